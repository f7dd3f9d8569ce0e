"""What can be wrong with a session, as errors that a caller can act on.

    SessionError(message, path)     of the library's `AgentError`s
    ├── SessionNotFound             no session of that id
    ├── SessionAmbiguous            several ids begin like that
    ├── SessionExists               a session has that id already
    ├── SessionInUse                another writer has it open
    └── SessionDamaged              nothing at all can be read of it

Owns the tree. Each message is one line that names the session or its file, and says what to do.
"""

from __future__ import annotations

import os

from swink_agent.core.errors import AgentError


class SessionError(AgentError):
    """A session cannot be read or written; `path` is its file, where there is one."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class SessionNotFound(SessionError):
    """No session has this id, or one that begins like this."""


class SessionAmbiguous(SessionError):
    """Several sessions have ids that begin like this."""


class SessionExists(SessionError):
    """The id that was given for a new session is one that a session has already."""


class SessionInUse(SessionError):
    """Another writer has the session open. A session has one writer at a time."""


class SessionDamaged(SessionError):
    """Nothing at all can be read of the file."""


def reason_of(error: BaseException) -> str:
    """What an error says, without the file's name, which is said by who raises it again."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    words = str(error) or type(error).__name__
    return f"{words} (another connection holds a transaction open)" if _is_locked(error) else words


def remedy_of(error: BaseException) -> str:
    """What to do so that records can be written again."""
    return "commit or close that transaction" if _is_locked(error) else "make room or mend the disk"


def _is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for its lock, also if this was raised as another error since."""
    return is_named(error.__cause__ or error, "BUSY", "LOCKED")


def is_named(error: BaseException, *names: str) -> bool:
    """Whether SQLite gives the error a name that begins so."""
    name: str = getattr(error, "sqlite_errorname", None) or ""
    return name.removeprefix("SQLITE_").startswith(names)
