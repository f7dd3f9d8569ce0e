"""The errors of sessions.

    SessionError(message, path)     an `AgentError`
    ├── SessionNotFound             no session has that id
    ├── SessionAmbiguous            several ids begin with that text
    ├── SessionExists               a session has that id already
    ├── SessionInUse                another writer has it open
    └── SessionDamaged              no part of it can be read

Owns the tree. Each message is one line that names the session or its file, and what to do.
"""

from __future__ import annotations

import os

from swink_agent.core.errors import AgentError


class SessionError(AgentError):
    """A session cannot be read or written; `path` is its file, if it has one."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class SessionNotFound(SessionError):
    """No session has this id, or an id that begins with it."""


class SessionAmbiguous(SessionError):
    """Several sessions have ids that begin with this text."""


class SessionExists(SessionError):
    """A session with the id that was given for a new session exists already."""


class SessionInUse(SessionError):
    """Another writer has the session open. A session has one writer at a time."""


class SessionDamaged(SessionError):
    """No part of the file can be read."""


def reason_of(error: BaseException) -> str:
    """The text of an error without the file's name, which the caller adds."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    words = str(error) or type(error).__name__
    return f"{words} (another connection holds a transaction open)" if _is_locked(error) else words


def remedy_of(error: BaseException) -> str:
    """What to do so that records can be written again."""
    return "commit or close that transaction" if _is_locked(error) else "make room or mend the disk"


def _is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for its lock, also if the error was raised again as another one."""
    return is_named(error.__cause__ or error, "BUSY", "LOCKED")


def is_named(error: BaseException, *names: str) -> bool:
    """Whether SQLite's name for the error begins with one of these names."""
    name: str = getattr(error, "sqlite_errorname", None) or ""
    return name.removeprefix("SQLITE_").startswith(names)
