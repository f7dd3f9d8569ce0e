"""`instrument`: reports the runs of an agent as spans and metrics.

Reads the setting for content, and makes sure that no failure here changes a run. `spans` turns events into spans.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from swink_agent.core.agent.agent import Agent
from swink_agent.core.events import AgentEnd, AgentEvent, AgentStart, MessageUpdate
from swink_agent.core.machine.extras import require
from swink_agent.core.run.observer import ModelRequest
from swink_agent.core.tool import ToolContext
from swink_agent.core.values.checks import check_methods, check_switch, check_text, is_not

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .spans import Instruments, RunSpan

_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_VALUES = ("true", "span_only", "span_and_event")

log = logging.getLogger("swink_agent.telemetry")


def instrument(
    agent: Agent[Any],
    *,
    name: str | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool | None = None,
) -> Instrumentation:
    """Reports every run of the agent that begins from now on, and those of its delegates.

    `name` is the agent's name in spans and metrics. Without providers, those that the application has set for the
    process are used. With `content`, prompts, replies, arguments, results and texts of errors are reported too, masked;
    if it is `None`, `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` decides.

    Raises `ValueError` if the agent is instrumented already, and `MissingExtra` if OpenTelemetry is not installed.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("agent", agent, "an Agent")
    if name is not None:
        check_text("name", name)
    for what, provider, method in (
        ("tracer_provider", tracer_provider, "get_tracer"),
        ("meter_provider", meter_provider, "get_meter"),
    ):
        if provider is not None:
            check_methods(what, provider, f"a provider with {method}(), or None", method)
    require("opentelemetry", extra="otel")
    from .spans import Instruments

    if content is not None:
        check_switch("content", content)
    else:
        content = os.environ.get(_CONTENT_VARIABLE, "").strip().lower() in _CONTENT_VALUES
    return Instrumentation(agent, Instruments(tracer_provider, meter_provider, content), name)


class Instrumentation:
    """The instrumentation of one agent. Ends with `remove()`, or with a `with` block."""

    def __init__(self, agent: Agent[Any], instruments: Instruments, name: str | None) -> None:
        self._observer = _Observer(agent, instruments, name)
        try:
            self._subscription = agent.observe(self._observer)
        except ValueError as error:
            raise ValueError("the agent is instrumented already: remove() the first Instrumentation") from error

    def remove(self) -> None:
        """Ends the instrumentation, and the spans of the current run. Idempotent."""
        self._subscription.unsubscribe()
        self._observer.close()

    def __enter__(self) -> Instrumentation:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Observer:
    """Follows the runs of one agent, which may go on at once.

    All observers compare equal, so that an agent accepts only one.
    """

    def __init__(self, agent: Agent[Any], instruments: Instruments, name: str | None) -> None:
        self._agent = agent
        self._instruments = instruments
        self._name = name
        self._runs: dict[str, _RunObserver] = {}
        """The observers of the runs that go on, by the ids of these runs and of their delegates' runs."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Observer)

    def __hash__(self) -> int:
        return hash(_Observer)

    def for_run(self, run_id: str, parent: str | None) -> _RunObserver | _DelegateObserver | None:
        """Returns the observer of a run. That of a delegate belongs to the run that calls it."""
        if parent is None:
            observer = self._runs[run_id] = _RunObserver(self._begin, self._forget)
            return observer
        above = self._runs.get(parent)
        if above is None:
            return None
        self._runs[run_id] = above
        return _DelegateObserver(above)

    def _begin(self, run_id: str) -> RunSpan | None:
        agent = self._agent
        session = getattr(agent.journal, "id", None) if agent.is_running else None
        return self._instruments.begin(self._name, run_id, agent.model, session, agent.redactor)

    def _forget(self, observer: _RunObserver) -> None:
        self._runs = {run_id: other for run_id, other in self._runs.items() if other is not observer}

    def on_event(self, event: AgentEvent, /) -> None:
        """Does nothing: each run has its own observer."""

    def on_request(self, request: ModelRequest, /) -> None:
        """Does nothing."""

    def around_tool(self, context: ToolContext, /) -> AbstractContextManager[object]:
        return nullcontext()

    def close(self) -> None:
        """Ends the spans that are open."""
        runs, self._runs = self._runs, {}
        for observer in dict.fromkeys(runs.values()):
            observer.close()


class _RunObserver:
    """Follows one run and its delegates."""

    def __init__(self, begin: Callable[[str], RunSpan | None], forget: Callable[[_RunObserver], None]) -> None:
        self._begin = begin
        self._forget = forget
        self._run: RunSpan | None = None

    def on_event(self, event: AgentEvent, /) -> None:
        if type(event) is MessageUpdate:  # by far the most frequent, and never reported
            return
        try:
            if type(event) is AgentStart:
                self._run = self._begin(event.run_id)
            elif self._run is not None:
                self._run.take(event)
                if type(event) is AgentEnd:
                    self._run = None
        except Exception:
            log.exception("an event was not reported")
            if type(event) is AgentEnd:
                self.close()
        if type(event) is AgentEnd:
            self._forget(self)

    def on_request(self, request: ModelRequest, /) -> None:
        run = None if self._run is None else self._run.find(request.run_id)
        if run is not None:
            run.asked(request)

    def around_tool(self, context: ToolContext, /) -> AbstractContextManager[object]:
        run = None if self._run is None else self._run.find(context.run_id)
        return nullcontext() if run is None else run.around(context.call_id)

    def close(self) -> None:
        """Ends the spans that are open."""
        run, self._run = self._run, None
        if run is not None:
            run.break_off()


class _DelegateObserver:
    """Follows the requests and tools of a delegate for the run that calls it. The caller has the delegate's events."""

    def __init__(self, above: _RunObserver) -> None:
        self.on_request = above.on_request
        self.around_tool = above.around_tool

    def on_event(self, event: AgentEvent, /) -> None:
        """Does nothing."""
