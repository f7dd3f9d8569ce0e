"""What can be wrong around an evaluation, as errors that a caller can act on.

    EvalError                       of the library's `AgentError`s
    ├── EvalSetError(path, line)    a set cannot be read
    └── EvalStoreError(path)        a result cannot be found, read or written

Owns the tree. What goes wrong in a case is no error here but a result that failed.
"""

from __future__ import annotations

import os

from swink_agent.core.errors import AgentError

__all__ = ["EvalError", "EvalSetError", "EvalStoreError"]


class EvalError(AgentError):
    """Something about an evaluation, not about the agent in it."""


class EvalSetError(EvalError):
    """A set cannot be read. `path` is its file as it was given; `line` counts from 1, `None` where none is to blame."""

    def __init__(self, message: str, *, path: str | os.PathLike[str] = "", line: int | None = None) -> None:
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.path = path
        self.line = line


class EvalStoreError(EvalError):
    """A result cannot be found, read or written. `path` is the file or folder that it is about."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path
