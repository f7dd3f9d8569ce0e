"""States, progress and errors of an on-device model, for listeners.

`weights/store` reports them while it fetches a file, `loading` reports the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias, TypeVar

from swink_agent.core.errors import AgentError
from swink_agent.core.values.value import Value

T = TypeVar("T")


class LocalState(StrEnum):
    """How far a model is loaded."""

    UNLOADED = "unloaded"
    FETCHING = "fetching"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class LocalModelEvent(Value, frozen=True, gc=False):
    """A change of state, or progress within one.

    While `fetching`, `done` and `total` are bytes. While `ready`, they are tokens of the prompt that the model reads;
    both are zero once it has read the prompt. `total` is zero if it is not known.
    """

    state: LocalState
    model: str
    message: str = ""
    done: int = 0
    total: int = 0


OnStateFn: TypeAlias = Callable[[LocalModelEvent], object]
"""Called with every event, in the thread where it happens. Its exceptions are logged and dropped."""


def notify(listener: Callable[[T], object] | None, event: T) -> bool:
    """Calls a listener, if there is one. Returns `False` if it raised, and logs that: a broken progress bar must fail
    neither a reply nor a download."""
    try:
        if listener is not None:
            listener(event)
    except Exception:
        logging.getLogger("swink_agent").exception("a listener of a local model failed")
        return False
    return True


class LocalModelError(AgentError):
    """A model could not be found, fetched, verified or loaded. The message has its name and a remedy."""

    def __init__(self, message: str, *, model: str = "") -> None:
        super().__init__(message)
        self.model = model
