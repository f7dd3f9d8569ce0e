"""The engine: it queues tickets, and gives each of them to one worker. The only file that knows DBOS.

A ticket contains only the id of a run. A worker that gets one checks which runs it may take, and takes them from the
store by raising their epochs. So a superfluous ticket does no harm, and a lost one only delays the run until a worker
polls the store. A ticket is queued in the transaction that queues its run, and deleted when a worker has taken the run.
DBOS never sees an agent, a prompt or a record, and nothing is replayed as a workflow.

Owns tickets, the engine's tables, and its one queue. `store` decides which worker gets which run.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa

from swink_agent.core.machine.extras import require

from .errors import DurableError

log = logging.getLogger("swink_agent")

_dbos: Any = require("dbos", extra="durable")

ENGINE_VERSION = version("dbos")
"""The version of the engine that the tables in the store belong to. Another version migrates them first."""
_QUEUE = "swink"
_LOOK = "swink.look"
_APPLICATION = "swink"
_RELEASE = "1"
"""The engine gives tickets only to workers of the same release of the application. All workers here have this one."""
_AT_ONCE = 8
"""How many tickets a worker takes from the queue at once, the same for all workers: the queue is in the store."""
_POLL = 0.5
"""Seconds between two polls of the queue, the same for all workers too."""
_POOL = 2


class SqliteConnection(sqlite3.Connection):
    """A connection on which the engine can read the time. All connections to an SQLite store are of this class.

    On Python 3.12 and later, the engine and its tables use a form of the function unixepoch that SQLite has since 3.42.
    In earlier versions of SQLite it returns NULL, and no worker could start.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if sqlite3.sqlite_version_info < (3, 42):
            self.create_function("unixepoch", 1, _seconds)


def _seconds(modifier: object) -> float:
    return time.time()


def migrate_engine(url: str) -> None:
    _quiet()
    _dbos.DBOS.migrate(url)


def ticket_id(run_id: str, number: int) -> str:
    return f"{run_id}#{number}"


class Tickets:
    """Adds tickets to the queue, and deletes them."""

    def __init__(self, engine: sa.Engine) -> None:
        _quiet()
        self._client = _dbos.DBOSClient(
            system_database_engine=engine,
            serializer=_dbos.DBOSPortableJSONSerializer(),
            application_name=_APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def add(self, connection: sa.Connection, run_id: str, number: int, priority: int, delay: float = 0) -> None:
        """Queues a ticket in this transaction."""
        options: dict[str, Any] = {
            "workflow_name": _LOOK,
            "queue_name": _QUEUE,
            "workflow_id": ticket_id(run_id, number),
            "priority": priority + 1,  # the engine's begin with 1
        }
        if delay > 0:
            options["delay_seconds"] = delay
        self._client.enqueue_in_transaction(connection, options, run_id)

    def delete(self, tickets: Sequence[str]) -> None:
        """Deletes tickets in any state."""
        if tickets:
            self._client.delete_workflows(list(tickets))

    def close(self) -> None:
        self._client.destroy()


class Listener:
    """Takes tickets from the queue, in threads of the engine. The engine allows only one in a process."""

    is_taken = False

    def __init__(self, url: str, worker: str, look: Callable[[str], None]) -> None:
        """`look` is called with the id of a run, in a thread of the engine."""
        if Listener.is_taken:
            raise DurableError("this process has a worker already: a process can have one at a time")
        Listener.is_taken = True
        try:
            self._launch(url, worker, look)
        except BaseException:
            self.close()
            raise

    def _launch(self, url: str, worker: str, look: Callable[[str], None]) -> None:
        dbos, is_sqlite = _dbos.DBOS, url.startswith("sqlite")
        dbos(
            config={
                "name": _APPLICATION,
                "system_database_url": url,
                "sys_db_pool_size": _POOL,
                **({"db_engine_kwargs": {"connect_args": {"factory": SqliteConnection}}} if is_sqlite else {}),
                "executor_id": worker,
                "application_version": _RELEASE,
                "run_migrations": False,
                "serializer": _dbos.DBOSPortableJSONSerializer(),
                "use_listen_notify": False,
                "log_level": "CRITICAL",
                "max_executor_threads": _AT_ONCE,
                "scheduler_polling_interval_sec": 3600.0,
                "notification_listener_polling_interval_sec": 0.05,  # it cannot stop during this sleep
            }
        )

        def looked(run_id: str) -> None:
            look(run_id)

        dbos.workflow(name=_LOOK)(looked)
        dbos.listen_queues([_QUEUE])
        dbos.launch()
        dbos.register_queue(_QUEUE, worker_concurrency=_AT_ONCE, polling_interval_sec=_POLL, on_conflict="never_update")
        _quiet()

    def close(self) -> None:
        """Stops the engine's threads."""
        try:
            _dbos.DBOS.destroy(destroy_registry=True)
        except Exception as error:
            log.warning("the engine did not stop cleanly: %s", error)
        finally:
            Listener.is_taken = False


def tickets_of(run_id: str, last: int) -> Iterable[str]:
    return (ticket_id(run_id, number) for number in range(1, last + 1))


def _quiet() -> None:
    """Silences the engine's log on stderr. Its failures are noticed here without it."""
    logging.getLogger("dbos").setLevel(logging.CRITICAL)
