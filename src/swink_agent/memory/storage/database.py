"""An SQLite database with a table for the lines of all sessions.

    swink_sessions          one row for each session: its id, its folder, and when it was written
    swink_session_lines     the lines of the logs, in order
    swink_session_damage    damaged bytes that were in a log
    swink_session_schema    the version of these tables

A batch of lines is one transaction. In SQLite's write-ahead mode a committed transaction survives a crash of the
program and, with sync, a loss of power. The writer of a session holds the lock of a file in a folder beside the
database. The system releases the lock when the process ends.

Owns the rows and the locks. Reading opens a connection and closes it again; each open session has its own.
`connections` opens them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from swink_agent.core.machine.files import make_private

from ..errors import SessionError, SessionExists, SessionInUse, SessionNotFound, reason_of
from .connections import PATIENCE, Database, forks
from .files import FileOperations, close_quietly
from .folder import INDEX_NAME, lock_file, make_folder
from .protocols import NEWEST, LogName, LogReader, LogState, NewLog, OpenLog, is_id

_ABANDONED = 3_600_000  # milliseconds after which an unfinished session counts as left by a process that died
_LAST_POSITION = 2**62  # the highest position after which others may follow
_LISTED = "FROM swink_sessions WHERE NOT is_unfinished"
_LINES = "SELECT CAST(line AS BLOB) FROM swink_session_lines"
_OF_NUMBER = "WHERE session = ? ORDER BY position"
_OF_ID = "JOIN swink_sessions ON number = session WHERE id = ? AND NOT is_unfinished ORDER BY position"
_ADD_LINE = "INSERT INTO swink_session_lines VALUES (?, ?, ?)"


class DatabaseStorage:
    """The logs of a store in a database. A `Storage`."""

    def __init__(self, path: Path, *, sync: bool, connect: Callable[..., sqlite3.Connection] | None = None) -> None:
        self.place = path
        real = Path(os.path.realpath(path))  # a process that uses a link must find the same locks
        self.index_path = real.with_name(f"{real.stem}-{INDEX_NAME}")
        self.database = Database(real, sync=sync, connect=connect)
        self._locks = real.with_name(real.name + ".locks")
        self._files = FileOperations()

    def name_of(self, session_id: str) -> LogName:
        return LogName(session_id, self.place, is_shared=True)

    def is_in_use(self, session_id: str) -> bool:
        return self._files.is_locked(self._lock_path(session_id))

    def _lock_path(self, session_id: str) -> Path:
        return self._locks / session_id

    @contextmanager
    def reading(self) -> Generator[LogReader, None, None]:
        with self.database.reading() as connection:
            yield _DatabaseReader(connection, self.place)

    # -- creating ----------------------------------------------------------------------------------------------

    def create(self, new: NewLog) -> OpenLog:
        self._make_file()
        lock = self._locked(new.id, is_new=True)
        return self._opened(new.id, lock, "written", lambda connection: (self._insert(connection, new), 1))

    def _insert(self, connection: sqlite3.Connection, new: NewLog) -> int:
        try:
            with self.database.transaction(connection):
                columns = "(id, cwd, size, written, changes, is_unfinished) VALUES (?, ?, ?, ?, 0, ?)"
                values = (new.id, new.cwd, len(new.line), _now(), new.is_unfinished)
                made = connection.execute(f"INSERT INTO swink_sessions {columns}", values)
                number = made.lastrowid or 0
                connection.execute("INSERT INTO swink_session_lines VALUES (?, 0, ?)", (number, new.line))
                return number
        except sqlite3.IntegrityError:
            raise self._exists(new.id) from None

    def _exists(self, session_id: str) -> SessionExists:
        words = f"there is a session {session_id!r} in {self.place} already: open it, or choose another id"
        return SessionExists(words, path=str(self.place))

    def _make_file(self) -> None:
        """Creates an empty database, which only this user can read, and the folder of the locks."""
        path = self.database.path
        missing = [place for place in (path.parent, *path.parent.parents) if not os.path.exists(place)]
        make_folder(path.parent)
        make_folder(self._locks)
        with self.database.told("made"):
            if make_private(path) and self.database.sync:
                for folder in (path.parent, *[place.parent for place in missing]):
                    self._files.sync_folder(folder)

    def clear_unfinished(self) -> None:
        if not self.database.path.exists():
            return
        database = self.database
        with suppress(SessionError), database.writing() as connection, database.transaction(connection):
            found = connection.execute(
                "SELECT number FROM swink_sessions WHERE is_unfinished AND written < ?", (_now() - _ABANDONED,)
            )
            for (number,) in found.fetchall():
                _delete_rows(connection, number)

    # -- locks -------------------------------------------------------------------------------------------------

    def _locked(self, session_id: str, *, is_new: bool = False) -> int:
        """Takes the lock of a session. Raises `SessionInUse`, or `SessionExists` for a new session."""
        try:
            path = self._lock_path(session_id)
            return lock_file(path, session_id, self.place, self._files, flags=os.O_CREAT)
        except SessionInUse as error:
            if is_new:
                raise self._exists(session_id) from None
            raise SessionInUse(str(error), path=str(self.place)) from None

    def unlock(self, session_id: str, lock: int) -> None:
        """Releases the lock. Its file is deleted first: a process that opens the session later creates another."""
        with suppress(OSError):
            self._files.unlink(self._lock_path(session_id))
        close_quietly(self._files, lock)

    # -- opening and deleting ----------------------------------------------------------------------------------

    def open(self, session_id: str) -> OpenLog:
        with self.reading() as reader:
            if not reader.has(session_id):
                raise _missing(session_id, self.place)
        make_folder(self._locks)
        lock = self._locked(session_id)
        return self._opened(session_id, lock, "opened", lambda connection: self._found(connection, session_id))

    def _found(self, connection: sqlite3.Connection, session_id: str) -> tuple[int, int]:
        number = _number_of(connection, session_id)
        if number is None:
            raise _missing(session_id, self.place)  # deleted in the meantime
        position = _next_position(connection, number)
        if position > _LAST_POSITION:
            with self.database.transaction(connection):
                position = _count_anew(connection, number)
        return number, position

    def _opened(
        self, session_id: str, lock: int, what: str, start: Callable[[sqlite3.Connection], tuple[int, int]]
    ) -> OpenLog:
        """An open log. `start` gives the number of the session and the position of its next line."""
        try:
            with forks().without(), self.database.told(what):
                connection = self.database.writer()
                try:
                    number, position = start(connection)
                except BaseException:
                    connection.close()
                    raise
                return DatabaseLog(self, session_id, connection, number, lock, position)
        except BaseException:
            self.unlock(session_id, lock)
            raise

    def delete(self, session_id: str) -> None:
        make_folder(self._locks)
        lock = self._locked(session_id)
        try:
            with self.database.writing() as connection:
                with self.database.transaction(connection):
                    number = _number_of(connection, session_id)
                    if number is None:
                        raise _missing(session_id, self.place)
                    _delete_rows(connection, number)
                _truncate_wal(connection)
        finally:
            self.unlock(session_id, lock)

    def settle(self, deleted: Sequence[str]) -> None:
        """Nothing to do: a committed transaction is permanent."""


# -- reading -----------------------------------------------------------------------------------------------------


class _DatabaseReader:
    """Reads logs with one connection; without one, there are no sessions. A `LogReader`.

    Rows whose id cannot be the id of a session are ignored.
    """

    def __init__(self, connection: sqlite3.Connection | None, place: Path) -> None:
        if connection is not None:
            # One text that is not UTF-8 must not make the query of all rows fail.
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        self._connection = connection
        self._place = place

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"{self._place} cannot be read: {reason_of(error)}", path=str(self._place)) from error

    def has(self, session_id: str) -> bool:
        return bool(self._rows(f"SELECT 1 {_LISTED} AND id = ?", session_id))

    def ids(self, beginning: str = "") -> list[str]:
        # Ids are ASCII, so all ids with this beginning sort before the beginning followed by the last character.
        rows = self._rows(f"SELECT id {_LISTED} AND id >= ? AND id < ? ORDER BY id", beginning, beginning + "\x7f")
        return [session_id for (session_id,) in rows if _is_id(session_id)]

    def by_time(self, cwd: str | None = None) -> list[tuple[int, str]]:
        # The folder of a repaired log is unknown here: the list reads it from the log.
        condition, values = ("", ()) if cwd is None else ("AND (cwd = ? OR cwd IS NULL)", (cwd,))
        rows = self._rows(f"SELECT written, id {_LISTED} {condition} ORDER BY written DESC, number DESC", *values)
        timed = [(_whole(written, NEWEST), session_id) for written, session_id in rows if _is_id(session_id)]
        timed.sort(key=itemgetter(0), reverse=True)
        return timed

    def states(self) -> dict[str, LogState]:
        rows = [row for row in self._rows(f"SELECT id, size, changes, number {_LISTED}") if _is_id(row[0])]
        return {session_id: (_whole(size), _whole(changes), number) for session_id, size, changes, number in rows}

    def read(self, session_id: str) -> bytes:
        rows = self._rows(f"{_LINES} {_OF_ID}", session_id)
        if not rows and not self.has(session_id):
            raise _missing(session_id, self._place)
        return _joined(rows)


# -- an open session -----------------------------------------------------------------------------------------------


class DatabaseLog:
    """The log of one session, locked, with its own connection. An `OpenLog`; safe from any thread."""

    is_synced = True

    def __init__(
        self,
        storage: DatabaseStorage,
        session_id: str,
        connection: sqlite3.Connection,
        number: int,
        lock: int,
        position: int,
    ) -> None:
        self.name = storage.name_of(session_id)
        self._storage = storage
        self._database = storage.database
        self._connection: sqlite3.Connection | None = connection
        """`None` while the process forks, and after that until the next use."""
        self._file = os.stat(storage.database.path)
        self._number = number
        self._lock = lock
        self._position = position  # of the next line
        self._lines: list[bytes] = []  # written with the next transaction
        self._is_emptied = False  # whether that transaction deletes all earlier lines
        self._guard = threading.RLock()
        forks().connected.add(self)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._database.writer()
        return self._connection

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._guard, _as_os_errors():
            connection = self._connected()
            with self._database.transaction(connection):
                yield connection

    def append(self, line: bytearray) -> int:
        with self._guard:
            self._lines.append(bytes(line))
            if not self._database.sync:
                self.push()
        return len(line)

    def push(self) -> None:
        with self._guard:
            if not self._lines:
                return
            lines, self._lines = self._lines, []
            if self._is_emptied:
                self._replace(lines, "size = ?")
                self._is_emptied = False
                _truncate_wal(self._connected())  # it contains the unmasked text
                return
            with self._transaction() as connection:
                self._insert(connection, lines)
                self._change(connection, "size = size + ?", sum(map(len, lines)))
            self._position += len(lines)

    def _replace(self, lines: Sequence[bytes], change: str, damaged: Sequence[bytes] = ()) -> None:
        """Replaces all lines with these, in one transaction."""
        number, kept = self._number, [(self._number, part) for part in damaged]
        with self._transaction() as connection:
            connection.executemany("INSERT INTO swink_session_damage VALUES (?, ?)", kept)
            connection.execute("DELETE FROM swink_session_lines WHERE session = ?", (number,))
            self._position = 0
            self._insert(connection, lines)
            self._change(connection, change, sum(map(len, lines)))
        self._position = len(lines)

    def _insert(self, connection: sqlite3.Connection, lines: Iterable[bytes]) -> None:
        rows = [(self._number, position, line) for position, line in enumerate(lines, self._position)]
        connection.executemany(_ADD_LINE, rows)

    def _change(self, connection: sqlite3.Connection, change: str, *values: int) -> None:
        changed = connection.execute(
            f"UPDATE swink_sessions SET {change}, written = ?, changes = changes + 1 WHERE number = ?",
            (*values, _now(), self._number),
        )
        if not changed.rowcount:
            raise OSError("the session was deleted")

    def sync(self) -> None:
        self.push()
        try:
            is_there = os.path.samestat(os.stat(self._database.path), self._file)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise OSError("the file was deleted")  # nothing could ever be read from it

    def empty(self) -> None:
        """Takes effect with the next push, in one transaction."""
        with self._guard:
            self._lines.clear()
            self._is_emptied = True

    def read(self) -> bytes:
        with self._guard, _as_os_errors():
            rows = self._connected().execute(f"{_LINES} {_OF_NUMBER}", (self._number,))
            return _joined(rows.fetchall())

    def mend(self, damaged: Sequence[bytes], lines: Sequence[bytes], cut: int | None) -> None:
        with self._guard:
            self._replace([line + b"\n" for line in lines], "cwd = NULL, size = ?", damaged)

    def finish(self, *, sync: bool) -> None:
        with self._transaction() as connection:
            self._change(connection, "is_unfinished = 0")

    def discard(self) -> None:
        with self._transaction() as connection:
            _delete_rows(connection, self._number)

    def close(self) -> None:
        with self._guard:
            self._disconnect()
            self._storage.unlock(self.name.id, self._lock)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def before_fork(self) -> bool:
        """Closes the connection, and opens none until `after_fork`. `False` if a write takes too long."""
        if not self._guard.acquire(timeout=PATIENCE):
            return False
        self._disconnect()
        return True

    def after_fork(self, *, is_child: bool) -> None:
        if is_child:
            self._guard = threading.RLock()
        else:
            self._guard.release()


@contextmanager
def _as_os_errors() -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


# -- the tables ------------------------------------------------------------------------------------------------------


def _delete_rows(connection: sqlite3.Connection, number: int) -> None:
    """Deletes all rows of a session, in a transaction of the caller."""
    for statement in (
        "DELETE FROM swink_session_lines WHERE session = ?",
        "DELETE FROM swink_session_damage WHERE session = ?",
        "DELETE FROM swink_sessions WHERE number = ?",
    ):
        connection.execute(statement, (number,))


def _truncate_wal(connection: sqlite3.Connection) -> None:
    """Empties the file in which SQLite keeps the last transactions, if no process reads from it."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _number_of(connection: sqlite3.Connection, session_id: str) -> int | None:
    row = connection.execute(f"SELECT number {_LISTED} AND id = ?", (session_id,)).fetchone()
    return None if row is None else row[0]


def _next_position(connection: sqlite3.Connection, number: int) -> int:
    """The position for the next line. It is above `_LAST_POSITION` if a damaged position leaves no higher one."""
    (last,) = connection.execute(
        "SELECT CASE typeof(max(position)) WHEN 'integer' THEN max(position) WHEN 'null' THEN -1 ELSE ? END "
        "FROM swink_session_lines WHERE session = ?",
        (_LAST_POSITION, number),
    ).fetchone()
    return last + 1


def _count_anew(connection: sqlite3.Connection, number: int) -> int:
    """Numbers the lines in their order, in a transaction of the caller. Returns the position for the next line."""
    rows = connection.execute(f"{_LINES} {_OF_NUMBER}", (number,)).fetchall()
    connection.execute("DELETE FROM swink_session_lines WHERE session = ?", (number,))
    anew = [(number, position, line or b"") for position, (line,) in enumerate(rows)]
    connection.executemany(_ADD_LINE, anew)
    return len(rows)


def _whole(value: object, otherwise: int = 0) -> int:
    """A number of a row; `otherwise` if the row is damaged. SQLite stores any value in a column for numbers."""
    return value if type(value) is int else otherwise


def _is_id(value: object) -> bool:
    return isinstance(value, str) and is_id(value)


def _missing(session_id: str, place: Path) -> SessionNotFound:
    return SessionNotFound(f"there is no session {session_id!r} in {place}", path=str(place))


def _joined(rows: Iterable[tuple[Any, ...]]) -> bytes:
    return b"".join([line or b"" for (line,) in rows])


def _now() -> int:
    return time.time_ns() // 1_000_000
