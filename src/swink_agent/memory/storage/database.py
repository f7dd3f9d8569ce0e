"""An SQLite database with a table for the lines of all sessions.

    swink_sessions          one row for each session: its id, its folder, and when it was written
    swink_session_lines     the lines of the logs, in order
    swink_session_damage    damaged bytes that were in a log
    swink_session_schema    the version of these tables

A batch of lines is one transaction. In SQLite's write-ahead mode a transaction survives a crash of the program at any
moment and, with sync, a loss of power when it has returned. Who opens a session holds the lock of a file in the folder
beside the database, which the system releases when the process ends.

Owns the tables, the connections and the locks. Reading opens a connection and closes it again; an open session has one
of its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..errors import SessionError, SessionExists, SessionInUse, SessionNotFound, reason_of
from .files import FileOperations, close_quietly
from .folder import INDEX_NAME, lock_file, make_folder
from .protocols import LogGlance, LogName, LogReader, LogState, NewLog, OpenLog

__all__ = ["DatabaseStorage"]

_VERSION = 1
_PATIENCE = 30.0
"""Seconds to wait while another process writes."""
_AGAIN = 0.01
"""Seconds between attempts, where SQLite does not wait itself."""
_ABANDONED = 3_600_000
"""Milliseconds after which an unfinished session counts as left by a process that died."""
_TABLES = (
    """CREATE TABLE swink_sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, cwd TEXT, size INTEGER NOT NULL,
        written INTEGER NOT NULL, changes INTEGER NOT NULL, is_unfinished INTEGER NOT NULL)""",
    "CREATE INDEX swink_sessions_by_folder ON swink_sessions (cwd, written)",
    """CREATE TABLE swink_session_lines (
        session INTEGER NOT NULL, position INTEGER NOT NULL, line BLOB NOT NULL, PRIMARY KEY (session, position)
        ) WITHOUT ROWID""",
    "CREATE TABLE swink_session_damage (session INTEGER NOT NULL, damage BLOB NOT NULL)",
    "CREATE TABLE swink_session_schema (version INTEGER NOT NULL)",
    f"INSERT INTO swink_session_schema VALUES ({_VERSION})",
)
_NO_DATABASE = "file is not a database"
_LISTED = "FROM swink_sessions WHERE NOT is_unfinished"
_OF_SESSION = (
    "FROM swink_session_lines JOIN swink_sessions ON number = session WHERE id = ? AND NOT is_unfinished "
    "ORDER BY position"
)


class DatabaseStorage:
    """The logs of a store in a database. A `Storage`."""

    def __init__(
        self,
        path: Path,
        *,
        sync: bool,
        connect: Callable[..., sqlite3.Connection] | None = None,
        files: FileOperations | None = None,
    ) -> None:
        self.place = path
        self.index_path = path.with_name(f"{path.stem}-{INDEX_NAME}")
        self._locks = path.with_name(path.name + ".locks")
        self._sync = sync
        self._connect = sqlite3.connect if connect is None else connect
        self._files = FileOperations() if files is None else files
        self.waits_for_sync = sync
        """Whether lines are collected until the log pushes them."""

    def name_of(self, session_id: str) -> LogName:
        return LogName(session_id, self.place, is_shared=True)

    def is_in_use(self, session_id: str) -> bool:
        return self._files.is_locked(self._lock_path(session_id))

    def _lock_path(self, session_id: str) -> Path:
        return self._locks / session_id

    # -- connections -------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Generator[LogReader, None, None]:
        if not self.place.exists():
            yield _NoLogs(self.place)
            return
        with _forks().connected():
            with self._told("read"):
                database = self._reader()
            try:
                with self._told("read"):
                    is_empty = self._version(database) is None
                yield _NoLogs(self.place) if is_empty else _DatabaseReader(database, self.place)
            finally:
                database.close()

    def _reader(self) -> sqlite3.Connection:
        """A connection that changes nothing. In a folder that cannot be written, SQLite must be told that nobody else
        writes, or it wants to create its other files there."""
        uri = self.place.as_uri()
        database = self._connected(f"{uri}?mode=ro")
        try:
            database.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            database.close()
            if not _is_named(error, "CANTOPEN", "READONLY") or _size_of(Path(f"{self.place}-wal")):
                raise
            database = self._connected(f"{uri}?immutable=1")
        except BaseException:
            database.close()
            raise
        return database

    def writer(self) -> sqlite3.Connection:
        """A connection for writing to a database that has the tables. Raises `sqlite3.Error`, `OSError` and
        `SessionError`."""
        database = self._connected(f"{self.place.as_uri()}?mode=rw")
        try:
            version = self._version(database)  # before anything is changed
            self._prepare(database)
            if version is None:
                self._make_tables(database)
        except BaseException:
            database.close()
            raise
        return database

    def _connected(self, uri: str) -> sqlite3.Connection:
        return self._connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)

    def _prepare(self, database: sqlite3.Connection) -> None:
        # Readers do not wait for a writer in this mode, and a transaction needs one sync.
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                database.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not _is_named(error, "BUSY", "LOCKED") or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN)  # another process is creating the database
        # Without a sync for each transaction, the last ones may be lost with the power; the database stays whole.
        database.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")
        database.execute("PRAGMA fullfsync = ON")
        database.execute("PRAGMA secure_delete = ON")

    def _make_tables(self, database: sqlite3.Connection) -> None:
        with self.transaction(database):
            if self._version(database) is None:  # no other process did it while this one waited
                for statement in _TABLES:
                    database.execute(statement)

    def _version(self, database: sqlite3.Connection) -> int | None:
        """The version of the tables; `None` if there are none. Raises `SessionError` for that of a newer program."""
        size = _size_of(self.place)
        found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'swink_session_schema'").fetchone()
        if found is None:
            if size and not database.execute("PRAGMA page_count").fetchone()[0]:
                raise sqlite3.DatabaseError(_NO_DATABASE)  # SQLite takes a short file for an empty database
            return None
        (version,) = database.execute("SELECT max(version) FROM swink_session_schema").fetchone()
        if type(version) is not int or version > _VERSION:
            raise SessionError(
                f"{self.place} was written by a newer version (tables {version}; this one knows {_VERSION}): "
                "install that version. It was left as it is",
                path=str(self.place),
            )
        return version

    @contextmanager
    def transaction(self, database: sqlite3.Connection) -> Generator[None, None, None]:
        """One transaction, which is there whole or not at all."""
        with _forks().turn:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    with suppress(sqlite3.Error):  # else the first error would be hidden
                        database.execute("ROLLBACK")
                raise

    @contextmanager
    def _told(self, what: str) -> Generator[None, None, None]:
        """Errors of SQLite and the disk as `SessionError`s."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            words = f"{self.place} cannot be {what}: {reason_of(error)}"
            if str(error) == _NO_DATABASE:
                words += ". It was left as it is"
            raise SessionError(words, path=str(self.place)) from error

    # -- creating ----------------------------------------------------------------------------------------------

    def create(self, new: NewLog) -> OpenLog:
        self._make_file()
        lock = self._locked(new.id, is_new=True)
        try:
            with _forks().connected(), self._told("written"):
                database = self.writer()
                try:
                    number = self._insert(database, new)
                except BaseException:
                    database.close()
                    raise
                return _DatabaseLog(self, self.name_of(new.id), database, number, lock, position=1)
        except BaseException:
            self.unlock(new.id, lock)
            raise

    def _insert(self, database: sqlite3.Connection, new: NewLog) -> int:
        try:
            with self.transaction(database):
                made = database.execute(
                    "INSERT INTO swink_sessions (id, cwd, size, written, changes, is_unfinished) "
                    "VALUES (?, ?, ?, ?, 0, ?)",
                    (new.id, new.cwd, len(new.line), _now(), new.is_unfinished),
                )
                number = made.lastrowid or 0
                database.execute("INSERT INTO swink_session_lines VALUES (?, 0, ?)", (number, new.line))
                return number
        except sqlite3.IntegrityError:
            raise self._exists(new.id) from None

    def _exists(self, session_id: str) -> SessionExists:
        words = f"there is a session {session_id!r} in {self.place} already: open it, or choose another id"
        return SessionExists(words, path=str(self.place))

    def _make_file(self) -> None:
        """Creates an empty database, which only this user can read, and the folder of the locks."""
        missing = [place for place in (self.place.parent, *self.place.parent.parents) if not os.path.exists(place)]
        make_folder(self.place.parent)
        make_folder(self._locks)
        with self._told("made"), suppress(FileExistsError):
            self._files.close(self._files.open(self.place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            if self._sync:
                for folder in (self.place.parent, *[place.parent for place in missing]):
                    self._files.sync_folder(folder)

    def clear_unfinished(self) -> None:
        if not self.place.exists():
            return
        with suppress(SessionError), self._writing() as database, self.transaction(database):
            found = database.execute(
                "SELECT number FROM swink_sessions WHERE is_unfinished AND written < ?", (_now() - _ABANDONED,)
            )
            for (number,) in found.fetchall():
                delete_session(database, number)

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
        """Releases the lock. Its file goes first: who opens the file later makes another."""
        with suppress(OSError):
            self._files.unlink(self._lock_path(session_id))
        close_quietly(self._files, lock)

    def leave_locked(self, lock: int) -> None:
        """Closes the file of a lock that belongs to the process that this one was forked from."""
        with suppress(OSError):
            self._files.close(lock)

    # -- opening and deleting ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with _forks().connected(), self._told("written"):
            database = self.writer()
            try:
                yield database
            finally:
                database.close()

    def open(self, session_id: str) -> OpenLog:
        with self.reading() as reader:
            if not reader.has(session_id):
                raise _missing(session_id, self.place)
        make_folder(self._locks)
        lock = self._locked(session_id)
        try:
            with _forks().connected(), self._told("opened"):
                database = self.writer()
                try:
                    number = _number_of(database, session_id)
                    if number is None:
                        raise _missing(session_id, self.place)  # deleted in the meantime
                    position = _next_position(database, number)
                except BaseException:
                    database.close()
                    raise
                return _DatabaseLog(self, self.name_of(session_id), database, number, lock, position=position)
        except BaseException:
            self.unlock(session_id, lock)
            raise

    def delete(self, session_id: str) -> None:
        make_folder(self._locks)
        lock = self._locked(session_id)
        try:
            with self._writing() as database:
                with self.transaction(database):
                    number = _number_of(database, session_id)
                    if number is None:
                        raise _missing(session_id, self.place)
                    delete_session(database, number)
                truncate_wal(database)
        finally:
            self.unlock(session_id, lock)

    def settle(self, deleted: Sequence[str]) -> None:
        """Nothing to do: a transaction that has returned stays."""


# -- reading -----------------------------------------------------------------------------------------------------


class _DatabaseReader:
    """Reads logs with one connection. A `LogReader`."""

    def __init__(self, database: sqlite3.Connection, place: Path) -> None:
        self._database = database
        self._place = place

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"{self._place} cannot be read: {error}", path=str(self._place)) from error

    def has(self, session_id: str) -> bool:
        return bool(self._rows(f"SELECT 1 {_LISTED} AND id = ?", session_id))

    def ids(self, beginning: str = "") -> list[str]:
        # Ids are ASCII: what begins so is before the beginning with the last character of all.
        rows = self._rows(f"SELECT id {_LISTED} AND id >= ? AND id < ? ORDER BY id", beginning, beginning + "\x7f")
        return [session_id for (session_id,) in rows]

    def by_time(self, cwd: str | None = None) -> list[tuple[int, str]]:
        # The folder of a repaired log is unknown here: whoever lists it looks into the log.
        condition, values = ("", ()) if cwd is None else ("AND (cwd = ? OR cwd IS NULL)", (cwd,))
        return [
            (written, session_id)
            for written, session_id in self._rows(
                f"SELECT written, id {_LISTED} {condition} ORDER BY written DESC, number DESC", *values
            )
        ]

    def states(self) -> dict[str, LogState]:
        rows = self._rows(f"SELECT id, size, changes, number {_LISTED}")
        return {session_id: (size, changes, number) for session_id, size, changes, number in rows}

    def read(self, session_id: str) -> bytes:
        rows = self._rows(f"SELECT CAST(line AS BLOB) {_OF_SESSION}", session_id)
        if not rows and not self.has(session_id):
            raise _missing(session_id, self._place)
        return _joined(rows)

    @contextmanager
    def glance(self, session_id: str) -> Generator[LogGlance, None, None]:
        rows = self._rows(f"SELECT number, size {_LISTED} AND id = ?", session_id)
        if not rows:
            raise _missing(session_id, self._place)
        yield _RowGlance(self._database, *rows[0])


class _NoLogs:
    """Reads where there is no database, or one without sessions. A `LogReader`."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def has(self, session_id: str) -> bool:
        return False

    def ids(self, beginning: str = "") -> list[str]:
        return []

    def by_time(self, cwd: str | None = None) -> list[tuple[int, str]]:
        return []

    def states(self) -> dict[str, LogState]:
        return {}

    def read(self, session_id: str) -> bytes:
        raise _missing(session_id, self._place)

    def glance(self, session_id: str) -> nullcontext[LogGlance]:
        raise _missing(session_id, self._place)


class _RowGlance:
    """The ends of a log."""

    def __init__(self, database: sqlite3.Connection, number: int, size: int) -> None:
        self._database = database
        self._number = number
        self.size = size

    def _lines(self, order: str) -> Iterator[bytes]:
        statement = f"SELECT CAST(line AS BLOB) FROM swink_session_lines WHERE session = ? ORDER BY position {order}"
        try:
            for (line,) in self._database.execute(statement, (self._number,)):
                yield line or b""
        except sqlite3.Error as error:
            raise OSError(str(error)) from error

    def head(self, most: int) -> bytes:
        return next(self._lines("ASC"), b"")[:most]

    def tail(self, count: int) -> bytes:
        lines: list[bytes] = []
        left = count
        for line in self._lines("DESC"):
            lines.append(line)
            left -= len(line)
            if left <= 0:
                break
        return b"".join(reversed(lines))[-count:]


# -- an open session -----------------------------------------------------------------------------------------------


class _DatabaseLog:
    """The log of one session, locked, with a connection of its own. An `OpenLog`; safe from any thread."""

    is_synced = True

    def __init__(
        self,
        storage: DatabaseStorage,
        name: LogName,
        database: sqlite3.Connection,
        number: int,
        lock: int,
        *,
        position: int,
    ) -> None:
        self.name = name
        self._storage = storage
        self._connection: sqlite3.Connection | None = database
        """`None` while the process forks, and until it is used again."""
        self._file = os.stat(name.path)
        self._number = number
        self._lock = lock
        self._position = position
        """Of the next line."""
        self._lines: list[bytes] = []
        """What is to be written with the next transaction."""
        self._is_emptied = False
        """Whether all earlier lines are to be deleted with it."""
        self._guard = threading.RLock()
        _forks().logs.add(self)

    @property
    def _database(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._storage.writer()
        return self._connection

    def append(self, line: bytearray) -> int:
        with self._guard:
            self._lines.append(bytes(line))
            if not self._storage.waits_for_sync:
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
                truncate_wal(self._database)  # what was masked is in it
                return
            with _as_os_errors(), self._storage.transaction(self._database):
                self._insert(lines)
                self._change("size = size + ?", sum(map(len, lines)))
            self._position += len(lines)

    def _replace(self, lines: Sequence[bytes], change: str, damaged: Sequence[bytes] = ()) -> None:
        """Writes these lines in place of all, in one transaction."""
        with _as_os_errors(), self._storage.transaction(self._database):
            database, number = self._database, self._number
            database.executemany("INSERT INTO swink_session_damage VALUES (?, ?)", [(number, part) for part in damaged])
            database.execute("DELETE FROM swink_session_lines WHERE session = ?", (number,))
            self._position = 0
            self._insert(lines)
            self._change(change, sum(map(len, lines)))
        self._position = len(lines)

    def _insert(self, lines: Iterable[bytes]) -> None:
        rows = [(self._number, position, line) for position, line in enumerate(lines, self._position)]
        self._database.executemany("INSERT INTO swink_session_lines VALUES (?, ?, ?)", rows)

    def _change(self, change: str, *values: int) -> None:
        changed = self._database.execute(
            f"UPDATE swink_sessions SET {change}, written = ?, changes = changes + 1 WHERE number = ?",
            (*values, _now(), self._number),
        )
        if not changed.rowcount:
            raise OSError("somebody deleted the session")

    def sync(self) -> None:
        self.push()
        try:
            is_there = os.path.samestat(os.stat(self.name.path), self._file)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise OSError("somebody deleted the file")  # nothing could ever be read from it

    def empty(self) -> None:
        """Nothing changes before the next push: then it is one step."""
        with self._guard:
            self._lines.clear()
            self._is_emptied = True

    def read(self) -> bytes:
        with self._guard, _as_os_errors():
            rows = self._database.execute(
                "SELECT CAST(line AS BLOB) FROM swink_session_lines WHERE session = ? ORDER BY position",
                (self._number,),
            )
            return _joined(rows.fetchall())

    def mend(self, damaged: Sequence[bytes], lines: Sequence[bytes], cut: int | None) -> None:
        with self._guard:
            self._replace([line + b"\n" for line in lines], "cwd = NULL, size = ?", damaged)

    def finish(self, *, sync: bool) -> None:
        with self._guard, _as_os_errors(), self._storage.transaction(self._database):
            self._change("is_unfinished = 0")

    def discard(self) -> None:
        with self._guard, _as_os_errors(), self._storage.transaction(self._database):
            delete_session(self._database, self._number)

    def close(self, *, is_inherited: bool = False) -> None:
        if is_inherited:
            self._storage.leave_locked(self._lock)
            return
        with self._guard:
            self._disconnect()
            self._storage.unlock(self.name.id, self._lock)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def before_fork(self) -> bool:
        """Closes the connection, and uses none until `after_fork`. `False` if a write takes too long for that."""
        if not self._guard.acquire(timeout=_PATIENCE):
            return False
        self._disconnect()
        return True

    def after_fork(self, *, is_child: bool) -> None:
        if is_child:
            self._guard = threading.RLock()
        else:
            self._guard.release()


class _Forks:
    """Keeps connections and forks of this process apart.

    SQLite forbids to use or to close a connection in a forked child. The child would even believe that it has the locks
    of its parent, so that all connections are closed while the process forks.
    """

    def __init__(self) -> None:
        self.logs: WeakSet[_DatabaseLog] = WeakSet()
        self._held: list[_DatabaseLog] = []
        self._reset()
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after_in_child)

    def _reset(self) -> None:
        self.turn = threading.Lock()
        """Held by who writes. SQLite has one writer, and would make the others try again and again."""
        self._changed = threading.Condition()
        self._connected = 0
        self._is_forking = False

    @contextmanager
    def connected(self) -> Generator[None, None, None]:
        """Within this, the process does not fork."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking, _PATIENCE)
            self._connected += 1
        try:
            yield
        finally:
            with self._changed:
                self._connected -= 1
                self._changed.notify_all()

    def _before(self) -> None:
        with self._changed:
            self._is_forking = True
            self._changed.wait_for(lambda: not self._connected, _PATIENCE)
        self._held = [log for log in list(self.logs) if log.before_fork()]

    def _after(self) -> None:
        for log in self._held:
            log.after_fork(is_child=False)
        self._held = []
        with self._changed:
            self._is_forking = False
            self._changed.notify_all()

    def _after_in_child(self) -> None:
        for log in list(self.logs):
            log.after_fork(is_child=True)
        self._held = []
        self._reset()


@cache
def _forks() -> _Forks:
    return _Forks()


@contextmanager
def _as_os_errors() -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


# -- the tables ------------------------------------------------------------------------------------------------------


def delete_session(database: sqlite3.Connection, number: int) -> None:
    """Deletes all rows of a session, in a transaction of the caller."""
    for statement in (
        "DELETE FROM swink_session_lines WHERE session = ?",
        "DELETE FROM swink_session_damage WHERE session = ?",
        "DELETE FROM swink_sessions WHERE number = ?",
    ):
        database.execute(statement, (number,))


def truncate_wal(database: sqlite3.Connection) -> None:
    """Empties the file in which SQLite keeps the last transactions, if nobody reads from it."""
    with suppress(sqlite3.Error):
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _number_of(database: sqlite3.Connection, session_id: str) -> int | None:
    row = database.execute(f"SELECT number {_LISTED} AND id = ?", (session_id,)).fetchone()
    return None if row is None else row[0]


def _next_position(database: sqlite3.Connection, number: int) -> int:
    row = database.execute("SELECT max(position) FROM swink_session_lines WHERE session = ?", (number,)).fetchone()
    return 0 if row[0] is None else row[0] + 1


def _missing(session_id: str, place: Path) -> SessionNotFound:
    return SessionNotFound(f"there is no session {session_id!r} in {place}", path=str(place))


def _joined(rows: Iterable[tuple[Any, ...]]) -> bytes:
    return b"".join([line or b"" for (line,) in rows])


def _now() -> int:
    return time.time_ns() // 1_000_000


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_named(error: sqlite3.Error, *names: str) -> bool:
    """Whether SQLite gives the error one of these names."""
    name: str = getattr(error, "sqlite_errorname", None) or ""
    return name.removeprefix("SQLITE_").startswith(names)
