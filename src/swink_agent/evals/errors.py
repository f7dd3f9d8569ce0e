"""The errors of evaluations.

    EvalError                       an `AgentError`
    ├── EvalSetError(path, line)    a set cannot be read
    ├── EvalStoreError(path)        a result cannot be found, read or written
    └── NotMeasured                 an evaluator cannot score, and the agent is not the cause

If something goes wrong in a case, that is not an error here but a result that failed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from swink_agent.core.errors import AgentError, ErrorKind

PROVIDER_FAILURES = frozenset({ErrorKind.THROTTLED, ErrorKind.NETWORK})
"""Failures of a provider that say nothing about the agent: throttling, overload, server errors, no connection.

A refused key is not among them: that is a mistake in the set-up, and a retry does not help."""


class EvalError(AgentError):
    """An error of an evaluation, not of the agent in it."""


class EvalSetError(EvalError):
    """A set cannot be read. `path` is its file as given; `line` counts from 1 and is `None` if no line is at fault."""

    def __init__(self, message: str, *, path: str | os.PathLike[str] = "", line: int | None = None) -> None:
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.path = path
        self.line = line


class EvalStoreError(EvalError):
    """A result cannot be found, read or written. `path` is the file or folder."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


@contextmanager
def told(path: str | os.PathLike[str], what: str) -> Generator[None]:
    """Raises errors of the disk as `EvalStoreError`s."""
    try:
        yield
    except OSError as error:
        raise EvalStoreError(f"{what}: {error.strerror or error}", path=str(path)) from error


class NotMeasured(EvalError):
    """An evaluator raises this if it cannot score and the agent is not the cause: a judge that is throttled.

    The attempt is repeated. If that does not help, it counts neither for nor against the agent.
    """
