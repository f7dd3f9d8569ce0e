"""The protocols of the storage in which a session store keeps the logs of its sessions.

A log is a sequence of bytes: the lines of `log.records`. A `Storage` finds, creates, locks and deletes logs; a
`LogReader` reads them; an `OpenLog` belongs to the one writer of a session. Nothing here knows what the lines mean.

Owns the protocols, and the rules for session ids. `folder` keeps each log in a file, `database` keeps the lines of all
logs in one SQLite database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

NEWEST = 2**63  # in place of a time that is unknown
LogState: TypeAlias = tuple[int, int, int]
"""Three numbers of a log. If they are equal, the log has not changed in between. A plain tuple saves memory."""


def is_id(text: str) -> bool:
    """Whether it can be an id: 1 to 128 letters, digits, hyphens and underscores, the first a letter or a digit."""
    return _ID.fullmatch(text) is not None


class LogName(NamedTuple):
    """The name of a log. As a string, it is the name that messages show."""

    id: str
    path: Path
    is_shared: bool = False
    """Whether the file holds other logs too."""

    def __str__(self) -> str:
        return f"{self.path} (session {self.id})" if self.is_shared else str(self.path)


class LogReader(Protocol):
    """Reads logs. It takes no lock and changes nothing. Its methods raise `SessionError`s."""

    def has(self, session_id: str, /) -> bool:
        """Whether there is a session with exactly this id."""
        ...

    def ids(self, beginning: str = "", /) -> list[str]:
        """The ids with this beginning, sorted."""
        ...

    def by_time(self, cwd: str | None = None, /) -> list[tuple[int, str]]:
        """When each log was written last, in milliseconds, and its id, newest first.

        Storage that knows the folders of sessions leaves out those of other folders than `cwd`.
        """
        ...

    def states(self) -> dict[str, LogState]:
        """The state of each log, by session id."""
        ...

    def read(self, session_id: str, /) -> bytes: ...


class OpenLog(Protocol):
    """A log that is locked by its one writer. Used by one thread at a time. Its methods raise `OSError`."""

    @property
    def name(self) -> LogName: ...

    @property
    def is_synced(self) -> bool:
        """Whether all of it survives a loss of power."""
        ...

    @property
    def append(self) -> Callable[[bytearray], int]:
        """Takes a line and returns how many bytes were taken. The caller reuses the buffer after it returns."""
        ...

    def push(self) -> None:
        """Returns when the lines survive a crash of the program, and others can read them."""
        ...

    def sync(self) -> None:
        """Returns when the lines survive a loss of power."""
        ...

    def empty(self) -> None:
        """Deletes all lines, to write the first one again."""
        ...

    def read(self) -> bytes: ...

    def mend(self, damaged: Sequence[bytes], lines: Sequence[bytes], cut: int | None) -> None:
        """Keeps the damaged bytes outside the log, and leaves only these lines in it.

        If the only damage is an incomplete last line, `cut` is where that begins.
        """
        ...

    def finish(self, *, sync: bool) -> None:
        """Makes a session that was created as unfinished visible to lists and `open`."""
        ...

    def discard(self) -> None: ...

    def close(self) -> None:
        """Releases the lock, also for a process that was forked from this one: such a process never calls it. Raises
        nothing."""
        ...


class NewLog(NamedTuple):
    """A log to create."""

    id: str
    cwd: str
    line: bytes
    is_unfinished: bool = False
    """Whether lists and `open` do not find the session before `OpenLog.finish`."""


class Storage(Protocol):
    """The place where a store keeps its logs. Its methods raise `SessionError`s."""

    @property
    def place(self) -> Path:
        """The folder or the database, for messages."""
        ...

    @property
    def index_path(self) -> Path:
        """The file of the search index."""
        ...

    def reading(self) -> AbstractContextManager[LogReader]: ...

    def name_of(self, session_id: str, /) -> LogName: ...

    def is_in_use(self, session_id: str, /) -> bool:
        """Whether a process has the session open for writing, as far as the system reports that."""
        ...

    def create(self, new: NewLog, /) -> OpenLog:
        """A new log with its first line, locked. Raises `SessionExists`."""
        ...

    def open(self, session_id: str, /) -> OpenLog:
        """A log, locked. Raises `SessionInUse` and `SessionNotFound`."""
        ...

    def delete(self, session_id: str, /) -> None:
        """Deletes a log and the damaged bytes that were kept of it. Raises `SessionInUse`."""
        ...

    def settle(self, deleted: Sequence[str], /) -> None:
        """Returns when the deletions survive a loss of power."""
        ...

    def clear_unfinished(self) -> None:
        """Removes unfinished logs of processes that died, once they are old enough."""
        ...
