"""Connections to the two kinds of stores, and the differences between them.

    SQLite        one file with mode 0600, in WAL mode; locks are files in a folder beside it
    PostgreSQL    a pool of a few connections; locks are advisory

Owns connecting, transactions, locks that end with their process, and which errors mean that the store is unavailable.
`store` has the statements, which are the same for both.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from swink_agent.core.machine.files import make_private

from ..engine import SqliteConnection
from ..errors import DurableError
from ..urls import StoreAddress

_POOL = 4
"""The most connections of one process, the engine's and the lock's not counted."""
_BUSY = 10_000
"""Milliseconds that a statement waits for the lock of SQLite."""
_MIGRATION_LOCK = 7_495_821_306_412
"""The advisory lock for creating and migrating the tables."""
_WORKERS = 1_398_228_558
"""The class of the advisory locks of workers."""
_KEEPALIVE = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
"""So that the server soon notices when the machine of a worker disappears."""
_IMPATIENCE = "-c idle_in_transaction_session_timeout=10000"
"""So that a process that is stopped in the middle of a transaction does not block its rows for others."""

_OF_CLIENT = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""A lost server is noticed within seconds. By default, a statement would wait for a quarter of an hour."""

Lock = Callable[[], None]
"""Releases a lock."""


class _AnyDatabase:
    """What the two kinds of stores have in common."""

    shown: str
    serial: str
    bytes: str
    now: str
    """The store's time in milliseconds, as an expression that a statement computes once and not for each row."""
    for_update: str
    queued: str
    """The table of runs in statements about queued runs only. SQLite does not choose their index by itself, and would
    scan all runs of an agent."""
    engine_url: str
    engine: sa.Engine

    @contextmanager
    def writing(self) -> Generator[sa.Connection]:
        """A transaction that writes. It is committed at the end of the block, or rolled back."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Generator[sa.Connection]:
        """A transaction that only reads."""
        with self.engine.connect().execution_options(reads=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def create(self) -> None:
        """Creates an empty store that only this user can read, if there is none."""

    def forget(self, worker: str) -> None:
        """Removes the remains of a dead worker's lock."""

    def gate(self, connection: sa.Connection) -> None:
        """Lets one transaction at a time choose runs."""


# -- SQLite --------------------------------------------------------------------------------------------------


class SqliteDatabase(_AnyDatabase):
    serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
    bytes = "BLOB"
    now = "(SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"
    for_update = ""
    queued = "swink_runs INDEXED BY swink_runs_queued"

    def __init__(self, path: Path, shown: str) -> None:
        self._path = path
        self._locks = Path(os.path.realpath(path) + ".locks")  # a process that uses a link must find the same locks
        self._held: tuple[str, int] | None = None
        self.shown = shown
        self.engine_url = sa.URL.create("sqlite", database=str(path)).render_as_string()
        self.engine = sa.create_engine(
            "sqlite://", creator=self._connect, poolclass=QueuePool, pool_size=_POOL, max_overflow=0
        )
        event.listen(self.engine, "begin", _begin)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=_BUSY / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=SqliteConnection,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def create(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite gives the files beside it the same mode.
        if not make_private(os.path.realpath(self._path)) and not self._size():  # it may have existed, and be empty
            self._path.chmod(0o600)

    @contextmanager
    def looking(self) -> Generator[sa.Connection | None]:
        """A connection for looking at the tables; `None` if there is no store yet. Raises `DurableError` if the file is
        not a database."""
        if not self._size():
            yield None
            return
        engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(self._path, timeout=_BUSY / 1000))
        try:
            with engine.connect() as connection:
                # SQLite takes a file of one byte for an empty database, and has emptied a file that was not finished.
                if not connection.exec_driver_sql("PRAGMA page_count").scalar() and self._size():
                    raise self._no_database()
                yield connection
        except DatabaseError as error:
            raise self._no_database() if "not a database" in str(error.orig) else error from None
        finally:
            engine.dispose()

    def _size(self) -> int:
        """The bytes of the file, read without opening it: SQLite loses its locks on a file that this process closes."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _no_database(self) -> DurableError:
        return DurableError(f"{self._path} is not a database. It was left as it is: give another path")

    def has_table(self, connection: sa.Connection, name: str) -> bool:
        found = connection.execute(sa.text("SELECT 1 FROM sqlite_master WHERE name = :name"), {"name": name})
        return found.first() is not None

    def try_migration_lock(self) -> Lock | None:
        """The lock that a process needs to make the tables; `None` if another process has it."""
        # Not a record lock: two threads of this process may try at once.
        descriptor = self._open_lock("tables")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return lambda: os.close(descriptor)

    def hold(self, worker: str, number: int) -> Lock:
        """Takes the lock of a worker, which ends with this process. Raises `DurableError` if it is taken."""
        descriptor = self._open_lock(worker)
        try:
            # A record lock belongs to the process: a forked child does not inherit it.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DurableError(f"the lock of worker {worker} is taken: {error}") from error
        self._held = worker, descriptor

        def release() -> None:
            self._held = None
            os.close(descriptor)
            self.forget(worker)

        return release

    def is_held(self) -> bool:
        """Whether the lock that `hold` took is still ours."""
        return self._held is not None

    def alive(self, workers: Iterable[tuple[str, int]]) -> set[str]:
        """The ids of the workers whose locks are held. Each worker is given as its id and the number of its lock."""
        return {worker for worker, _ in workers if self._is_alive(worker)}

    def _is_alive(self, worker: str) -> bool:
        if self._held is not None and self._held[0] == worker:
            return True  # trying our own lock would release it
        try:
            descriptor = os.open(self._locks / worker, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def forget(self, worker: str) -> None:
        with suppress(OSError):
            (self._locks / worker).unlink()

    def _open_lock(self, name: str) -> int:
        self._locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(self._locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _begin(connection: sa.Connection) -> None:
    """Takes the write lock at the start of a transaction: SQLite cannot wait for it in the middle of one."""
    is_reading = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


# -- PostgreSQL ----------------------------------------------------------------------------------------------


class PostgresDatabase(_AnyDatabase):
    serial = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
    bytes = "BYTEA"
    now = "(SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT))"
    for_update = "FOR UPDATE"
    queued = "swink_runs"

    def __init__(self, address: StoreAddress) -> None:
        self.shown = address.shown
        self.engine_url = address.url
        try:
            url = sa.make_url(address.url).set(drivername="postgresql+psycopg")
        except (SQLAlchemyError, ValueError) as error:
            raise ValueError("this is not the address of a PostgreSQL database") from error
        self._url = url
        self.engine = sa.create_engine(
            url,
            pool_size=_POOL,
            max_overflow=0,
            pool_timeout=30,
            pool_recycle=1800,
            connect_args={**_OF_CLIENT, "application_name": "swink", "options": _IMPATIENCE},
        )
        self._lock: sa.Connection | None = None

    @contextmanager
    def looking(self) -> Generator[sa.Connection | None]:
        with self.reading() as connection:
            yield connection

    def has_table(self, connection: sa.Connection, name: str) -> bool:
        return connection.execute(sa.text("SELECT to_regclass(:name)"), {"name": name}).scalar() is not None

    def _locked(self, key: str, /, **numbers: int) -> sa.Connection | None:
        """A separate connection that holds this advisory lock; `None` if the lock is taken."""
        engine = sa.create_engine(
            self._url,
            poolclass=sa.NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={**_OF_CLIENT, "application_name": "swink lock", "options": _KEEPALIVE},
        )
        connection = engine.connect()
        is_ours = False
        try:
            is_ours = bool(connection.execute(sa.text(f"SELECT pg_try_advisory_lock({key})"), numbers).scalar())
        finally:
            if not is_ours:
                connection.close()
        return connection if is_ours else None

    def try_migration_lock(self) -> Lock | None:
        connection = self._locked(":key", key=_MIGRATION_LOCK)
        return None if connection is None else connection.close

    def hold(self, worker: str, number: int) -> Lock:
        connection = self._locked(":kind, :number", kind=_WORKERS, number=number)
        if connection is None:
            raise DurableError(f"the lock of worker {worker} is taken")
        self._lock = connection

        def release() -> None:
            if self._lock is connection:
                self._lock = None
            with suppress(SQLAlchemyError):
                connection.close()

        return release

    def is_held(self) -> bool:
        if self._lock is None:
            return False
        try:
            self._lock.execute(sa.text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return not self._lock.invalidated

    def alive(self, workers: Iterable[tuple[str, int]]) -> set[str]:
        with self.reading() as connection:
            held = connection.execute(
                sa.text(
                    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = :kind "
                    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                ),
                {"kind": _WORKERS},
            ).scalars()
            numbers = {int(number) for number in held}
        return {worker for worker, number in workers if number in numbers}

    def gate(self, connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK + 1})


Database: TypeAlias = SqliteDatabase | PostgresDatabase


def open_database(address: StoreAddress) -> Database:
    """The store at an address. It is not read or created yet."""
    return SqliteDatabase(address.path, address.shown) if address.path is not None else PostgresDatabase(address)


# -- errors --------------------------------------------------------------------------------------------------


def is_outage(error: BaseException) -> bool:
    """Whether the store cannot be reached or written: waiting may help."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))
    return isinstance(error, (OSError, PoolTimeout))


def reason_of(error: BaseException) -> str:
    """The text of an error on one line, without the statement and its values."""
    words = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    return " ".join(words.split())[:300] or type(error).__name__
