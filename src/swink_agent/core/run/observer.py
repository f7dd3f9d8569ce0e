"""Observers of a run, which see more than its events: the requests to models, and the time in which a tool runs.

Owns the protocol, and the rule that an observer never changes a run: its exceptions are logged. Events themselves are
in `events`. An agent without an observer pays one check per request and per call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from ..errors import ErrorKind
from ..events import AgentEvent
from ..secrets.redaction import Redactor
from ..stream import StreamOptions
from ..tool import ToolContext
from ..types import AgentContext, ModelSpec
from ..values.value import Value

log = logging.getLogger("swink_agent")


class ModelRequest(Value, frozen=True):
    """One request to a model, as its stream function gets it. `run_id` is that of the run or delegate that asks."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"redactor_fn"})

    run_id: str
    model: ModelSpec
    context: AgentContext
    options: StreamOptions
    redactor_fn: Callable[[], Redactor]
    """Returns the redactor that masks the secrets of this run."""
    failure: ErrorKind | None = None
    """How the previous attempt for the same reply failed, if there was one."""


class RunObserver(Protocol):
    """Observes the runs of an agent and of its delegates. Nothing that it raises changes them.

    It may have `for_run(run_id, parent)`. That is called at the start of each run, also of those apart and of delegates
    (`parent` is the id of the run that called the delegate, otherwise `None`), and returns the observer for this run
    alone; `None` leaves the run unobserved.
    """

    def on_event(self, event: AgentEvent, /) -> None:
        """Called with every event of the run, before the run continues. Events of delegates come as `DelegateEvent`s of
        their caller, too."""
        ...

    def on_request(self, request: ModelRequest, /) -> None:
        """Called before each request, retries and fallbacks included."""
        ...

    def around_tool(self, context: ToolContext, /) -> AbstractContextManager[object]:
        """Returns a context manager that is entered before a tool is called, and left after it, in the tool's own task.

        Context variables that are set on entering are set for the tool, and for the threads and tasks that it starts.
        """
        ...


def has_own_for_each_run(observer: RunObserver) -> bool:
    return callable(getattr(observer, "for_run", None))


def observer_of(observer: RunObserver, run_id: str, parent: str | None) -> RunObserver | None:
    """Returns the observer of one run: what `for_run` returns, otherwise the observer itself."""
    for_run = getattr(observer, "for_run", None)
    if for_run is None:
        return observer
    try:
        return for_run(run_id, parent)
    except Exception:
        log.exception("an observer failed at the start of a run, which it does not observe")
        return None


def tell_event(observers: Sequence[RunObserver], event: AgentEvent) -> None:
    for observer in observers:
        try:
            observer.on_event(event)
        except Exception:
            log.exception("an observer failed on %s", type(event).__name__)


def tell_request(observers: Sequence[RunObserver], request: ModelRequest) -> None:
    for observer in observers:
        try:
            observer.on_request(request)
        except Exception:
            log.exception("an observer failed on a request")


async def observed(observers: Sequence[RunObserver], context: ToolContext, work: Coroutine[Any, Any, None]) -> None:
    """Runs the work of one tool call inside the observers' context managers."""
    entered: list[AbstractContextManager[object]] = []
    for observer in observers:
        try:
            manager = observer.around_tool(context)
            manager.__enter__()
            entered.append(manager)
        except Exception:
            log.exception("an observer failed before a tool call")
    try:
        await work
    finally:
        for manager in reversed(entered):
            try:
                manager.__exit__(None, None, None)
            except Exception:
                log.exception("an observer failed after a tool call")
