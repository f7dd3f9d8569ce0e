"""What can be seen of an on-device model from outside: its states, its progress, its errors.

Owns the values. Who reports them: `store` while a file is fetched, `stream` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from swink_agent.core.errors import AgentError
from swink_agent.core.values.value import Value

__all__ = ["LocalModelError", "LocalModelEvent", "LocalState", "OnStateFn"]


class LocalState(StrEnum):
    """Where a model is on its way into memory."""

    UNLOADED = "unloaded"
    FETCHING = "fetching"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class LocalModelEvent(Value, frozen=True, gc=False):
    """A change of state, or progress within one.

    While `fetching`, `done` and `total` are bytes; while `ready`, they are tokens of a prompt being read, and both are
    zero once it has been. `total` is zero where it is not known.
    """

    state: LocalState
    model: str
    message: str = ""
    done: int = 0
    total: int = 0


OnStateFn: TypeAlias = Callable[[LocalModelEvent], object]
"""Hears of every event, in the thread where it happens; what it raises is logged and dropped."""


class LocalModelError(AgentError):
    """A model could not be found, fetched, verified or loaded; the message says which and what to do."""

    def __init__(self, message: str, *, model: str = "") -> None:
        super().__init__(message)
        self.model = model
