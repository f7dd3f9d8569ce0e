"""Connections to the SQLite database of a session store: how they are opened, and closed before forks.

Owns the tables and their version, transactions, and the conversion of SQLite's errors to `SessionError`s.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from ..errors import SessionError, is_named, reason_of

_VERSION = 1
PATIENCE = 30.0  # seconds to wait while another process writes
_AGAIN = 0.01  # seconds between attempts, where SQLite does not wait itself
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


class Database:
    """One database file. Opens connections to it; holds none."""

    def __init__(self, path: Path, *, sync: bool, connect: Callable[..., sqlite3.Connection] | None) -> None:
        self.path = path
        self.sync = sync
        self._connect = sqlite3.connect if connect is None else connect
        self.turn = threading.Lock()
        """Held while writing. SQLite has one writer at a time, and the others would poll for their turn."""
        forks().databases.add(self)

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None, None, None]:
        """A connection for reading; `None` if there are no sessions. Raises `SessionError`."""
        if not self.path.exists():
            yield None
            return
        with forks().without():
            with self.told("read"):
                connection = self._reader()
            try:
                with self.told("read"):
                    is_empty = self._version(connection) is None
                yield None if is_empty else connection
            finally:
                connection.close()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection, None, None]:
        """A connection for one transaction or two. Raises `SessionError`."""
        with forks().without(), self.told("written"):
            connection = self.writer()
            try:
                yield connection
            finally:
                connection.close()

    def _reader(self) -> sqlite3.Connection:
        """A connection for reading. In a folder that cannot be written, SQLite must assume that no other process
        writes: otherwise it tries to create its other files there."""
        uri = self.path.as_uri()
        connection = self._connected(f"{uri}?mode=ro")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if is_named(error, "READONLY_ROLLBACK"):  # a crash left a transaction that only a writer can undo
                return self._connected(f"{uri}?mode=rw")
            if not is_named(error, "CANTOPEN", "READONLY") or _size_of(Path(f"{self.path}-wal")):
                raise
            connection = self._connected(f"{uri}?immutable=1")
        except BaseException:
            connection.close()
            raise
        return connection

    def writer(self) -> sqlite3.Connection:
        """A connection for writing to a database that has the tables. Raises `sqlite3.Error`, `OSError` and
        `SessionError`."""
        connection = self._connected(f"{self.path.as_uri()}?mode=rw")
        try:
            version = self._version(connection)  # before anything is changed
            self._prepare(connection)
            if version is None:
                with self.transaction(connection):
                    if self._version(connection) is None:  # no other process did it while this one waited
                        for statement in _TABLES:
                            connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, uri: str) -> sqlite3.Connection:
        return self._connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Readers do not wait for a writer in this mode, and a transaction needs one sync.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not is_named(error, "BUSY", "LOCKED") or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN)  # another process is creating the database
        # Without a sync for each transaction, a power failure may lose the last ones, but the database stays intact.
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.sync else 'NORMAL'}")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA secure_delete = ON")

    def _version(self, connection: sqlite3.Connection) -> int | None:
        """The version of the tables; `None` if there are none. Raises `SessionError` for that of a newer program."""
        size = _size_of(self.path)
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'swink_session_schema'").fetchone()
        if found is None:
            is_empty = not connection.execute("PRAGMA page_count").fetchone()[0]
            # SQLite takes a short file for an empty database, so it is refused here. A file that another process is
            # creating, or whose creation was interrupted, is not refused: SQLite has emptied it.
            if size and is_empty and _size_of(self.path):
                raise sqlite3.DatabaseError(_NO_DATABASE)
            return None
        (version,) = connection.execute("SELECT max(version) FROM swink_session_schema").fetchone()
        if type(version) is not int or version > _VERSION:
            words = f"{self.path} was written by a newer version (tables {version}; this one knows {_VERSION})"
            raise SessionError(f"{words}: install that version. It was left as it is", path=str(self.path))
        return version

    @contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Generator[None, None, None]:
        """One transaction: all of it is written, or nothing."""
        with self.turn:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # else the first error would be hidden
                        connection.execute("ROLLBACK")
                raise

    @contextmanager
    def told(self, what: str) -> Generator[None, None, None]:
        """Raises errors of SQLite and the disk as `SessionError`s."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            words = f"{self.path} cannot be {what}: {reason_of(error)}"
            if str(error) == _NO_DATABASE:
                words += ". It was left as it is"
            raise SessionError(words, path=str(self.path)) from error


# -- forks -------------------------------------------------------------------------------------------------------


class Connected(Protocol):
    """A log with a connection of its own."""

    def before_fork(self) -> bool: ...
    def after_fork(self, *, is_child: bool) -> None: ...


class Forks:
    """Ensures that no connection is open while this process forks.

    SQLite forbids using or closing a connection in a forked child. The child would also believe that it has the locks
    of its parent.
    """

    def __init__(self) -> None:
        self.connected: WeakSet[Connected] = WeakSet()
        """Their connections are closed before each fork, and may be opened again after it."""
        self.databases: WeakSet[Database] = WeakSet()
        self._held: list[Connected] = []
        self._reset()
        os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after_in_child)

    def _reset(self) -> None:
        self._one_fork = threading.Lock()  # held while the process forks: two threads may want to
        self._changed = threading.Condition()
        self._in_use = 0
        self._is_forking = False

    @contextmanager
    def without(self) -> Generator[None, None, None]:
        """Inside this context the process does not fork, so a connection may be used."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_forking, PATIENCE)
            self._in_use += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_use -= 1
                self._changed.notify_all()

    def _before(self) -> None:
        self._one_fork.acquire()
        with self._changed:
            self._is_forking = True
            self._changed.wait_for(lambda: not self._in_use, PATIENCE)
        self._held = [log for log in list(self.connected) if log.before_fork()]

    def _after(self) -> None:
        for log in self._held:
            log.after_fork(is_child=False)
        self._held = []
        with self._changed:
            self._is_forking = False
            self._changed.notify_all()
        self._one_fork.release()

    def _after_in_child(self) -> None:
        for log in list(self.connected):
            log.after_fork(is_child=True)
        for database in list(self.databases):
            database.turn = threading.Lock()
        self._held = []
        self._reset()


@cache
def forks() -> Forks:
    return Forks()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
