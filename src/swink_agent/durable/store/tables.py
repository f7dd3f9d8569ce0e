"""The tables of the store, and how they are created and migrated.

The first process creates them. Others poll for its lock: they must not wait for it in a transaction, because the engine
creates indexes in a way that waits for every transaction. A store of a later version is refused and not changed.

Owns the definitions and the migrations. `connecting` opens connections, and `store` has the statements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import sqlalchemy as sa

from ..engine import ENGINE_VERSION, migrate_engine
from ..errors import DurableError, StoreUnavailable
from .connecting import Database

VERSION = 1
_WAIT = 60.0
"""Seconds to wait for another process that makes or migrates the tables."""
_PAUSE = 0.05

_RUNS = """
CREATE TABLE swink_runs (
  seq {serial},
  id TEXT NOT NULL UNIQUE,
  agent TEXT NOT NULL,
  key TEXT NOT NULL,
  priority INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  status TEXT NOT NULL,
  created BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  due BIGINT NOT NULL DEFAULT 0,
  started BIGINT NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  fruitless INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  epoch BIGINT NOT NULL DEFAULT 0,
  worker TEXT NOT NULL DEFAULT '',
  position BIGINT NOT NULL DEFAULT 0,
  pending TEXT NOT NULL DEFAULT '[]',
  answers TEXT NOT NULL DEFAULT '{{}}',
  error TEXT NOT NULL DEFAULT '',
  tokens BIGINT NOT NULL DEFAULT 0,
  cost DOUBLE PRECISION NOT NULL DEFAULT 0,
  prompt TEXT,
  digest TEXT NOT NULL,
  after_id TEXT,
  cancelled TEXT,
  ticket INTEGER NOT NULL DEFAULT 0
)"""

# The search for a run to take needs only the first index, even if many runs of full keys come before it (SQLite reads
# the status too). No index has a column that changes with each record: PostgreSQL would write all of them again.
_FIRST = (
    _RUNS,
    "CREATE INDEX swink_runs_queued ON swink_runs (agent, priority, seq, key, due, status) WHERE status = 'queued'",
    "CREATE INDEX swink_runs_key ON swink_runs (key, seq)",
    "CREATE INDEX swink_runs_running ON swink_runs (worker) WHERE status = 'running'",
    "CREATE INDEX swink_runs_status ON swink_runs (status, seq)",
    "CREATE INDEX swink_runs_started ON swink_runs (agent, started)",
    "CREATE INDEX swink_runs_after ON swink_runs (after_id) WHERE after_id IS NOT NULL",
    "CREATE TABLE swink_records (run TEXT NOT NULL, number BIGINT NOT NULL, line {bytes} NOT NULL, "
    "PRIMARY KEY (run, number))",
    "CREATE TABLE swink_workers (id TEXT PRIMARY KEY, host TEXT NOT NULL, pid BIGINT NOT NULL, slots INTEGER NOT NULL, "
    "running INTEGER NOT NULL, agents TEXT NOT NULL, beat BIGINT NOT NULL, seen BIGINT NOT NULL, "
    "lease DOUBLE PRECISION NOT NULL, lock BIGINT NOT NULL)",
    "CREATE TABLE swink_schema (version INTEGER NOT NULL, engine TEXT NOT NULL)",
    "INSERT INTO swink_schema (version, engine) VALUES (1, '')",
)
_MIGRATIONS: dict[int, tuple[str, ...]] = {1: _FIRST}
"""The statements that lead to each version from the one before it."""


def prepare(database: Database) -> int:
    """Creates or migrates the tables if needed; returns their version.

    Raises `DurableError` for a store of a later version, or a file that is not a database.
    """
    found = _look(database)
    if found == (VERSION, ENGINE_VERSION):
        return VERSION
    with _alone(database):
        version, engine = _look(database)
        database.create()
        if engine != ENGINE_VERSION:
            migrate_engine(database.engine_url)
        with database.writing() as connection:
            for step in range(version + 1, VERSION + 1):
                for statement in _MIGRATIONS[step]:
                    connection.execute(sa.text(statement.format(serial=database.serial, bytes=database.bytes)))
            versions = {"version": VERSION, "engine": ENGINE_VERSION}
            connection.execute(sa.text("UPDATE swink_schema SET version = :version, engine = :engine"), versions)
    return VERSION


def _look(database: Database) -> tuple[int, str]:
    """The versions of the tables and of the engine; 0 and an empty text if there are none. Changes nothing."""
    with database.looking() as connection:
        if connection is None or not database.has_table(connection, "swink_schema"):
            return 0, ""
        row = connection.execute(sa.text("SELECT * FROM swink_schema")).mappings().first()
    version = 0 if row is None else int(row["version"])
    if version > VERSION:
        versions = f"its tables have version {version}, this release knows {VERSION}"
        cure = "install that release. Nothing was changed"
        raise DurableError(f"{database.shown} was made by a later release ({versions}): {cure}")
    return version, "" if row is None else str(row["engine"])


@contextmanager
def _alone(database: Database) -> Generator[None]:
    """Holds the lock that a process needs to create the tables.

    It polls for the lock: waiting in the database would block the engine's own migrations.
    """
    deadline = time.monotonic() + _WAIT
    release: Callable[[], None] | None
    while (release := database.try_migration_lock()) is None:
        if time.monotonic() > deadline:
            raise StoreUnavailable(f"another process has been preparing {database.shown} for more than {_WAIT:g} s")
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        release()
