"""The store of durable runs: every statement that reads or writes its tables.

A run is taken by raising its epoch, and each write of an attempt checks the epoch in its own transaction. A transaction
that queues a run also queues a ticket.

Owns the statements and the meaning of a run's row. All methods block: `durable` and `worker` call them in threads.
`writing` decides when records are written, and `connecting` has the differences between the two kinds of stores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import SQLAlchemyError

from swink_agent.core.approval import PendingCall
from swink_agent.core.errors import NotPending
from swink_agent.core.run.pending import Answer, checked_answer
from swink_agent.core.values.data import as_json

from ..engine import Tickets, ticket_id, tickets_of
from ..errors import DurableError, RunConflict, RunNotFound, RunOver, StoreUnavailable
from ..info import OVER, STATUSES, FleetStats, RunInfo, WorkerInfo
from ..registry import AgentEntry
from ..urls import StoreAddress
from ..waiting import Question, decoded_answers, decoded_questions, given_answer, still_open
from .connecting import is_outage, open_database, reason_of
from .gate import Claim, Gate, expanding, sql
from .tables import prepare
from .writing import Append, Ending, RunLost, Writer

T = TypeVar("T")

_THREADS = 4
_AT_ONCE = 500
_ALL = 1_000_000_000
_ROW = (
    "seq, id, agent, key, priority, metadata, status, created, updated, attempts, worker, position, pending, answers, "
    "error, tokens, cost, cancelled"
)


class NewRun(Struct, frozen=True, kw_only=True):
    id: str
    agent: str
    prompt: str
    digest: str
    key: str = ""
    priority: int = 0
    metadata: str = "{}"
    after: str | None = None


class Member(Struct, frozen=True):
    """A worker, as others see it."""

    id: str
    beat: int
    lease: float
    lock: int


class Fleet(Struct, frozen=True):
    """The state of the store that a worker reads regularly."""

    members: tuple[Member, ...]
    owners: frozenset[str]
    """The workers in the rows of running runs."""
    own: dict[str, int]
    """The worker's own runs, with their epochs."""
    cancelled: frozenset[str]
    """The worker's own runs that were cancelled."""
    now: int


class Store:
    """One store. Its methods block and are safe from any thread; `Durable.call` runs one in a thread."""

    def __init__(self, address: StoreAddress) -> None:
        self.shown = address.shown
        self.database = open_database(address)
        self._now = self.database.now
        self._gate = Gate(self.database)
        self._lock = threading.Lock()
        self._tickets: Tickets | None = None
        self.on_queued: Callable[[], None] | None = None
        """Called when this process has queued a run: its worker need not wait for a ticket."""
        self.version = 0
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="swink-store")
        self.writer = Writer(self.database, self.apply)

    @property
    def tickets(self) -> Tickets:
        if self._tickets is None:
            self._open()
        assert self._tickets is not None
        return self._tickets

    def _open(self) -> None:
        """Makes or migrates the tables, once."""
        with self._lock:
            if self._tickets is None:
                self.version = prepare(self.database)
                self._tickets = Tickets(self.database.engine)

    def close(self) -> None:
        self.writer.close()
        self.threads.shutdown()
        if self._tickets is not None:
            self._tickets.close()
        self.database.close()

    # -- transactions ------------------------------------------------------------------------------------------

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Calls `work` in a transaction. Raises `StoreUnavailable`."""
        return self._attempt(lambda: self._in_transaction(self.database.writing, work))

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """The same for work that only reads."""
        return self._attempt(lambda: self._in_transaction(self.database.reading, work))

    def _in_transaction(self, begin: Callable[[], Any], work: Callable[[sa.Connection], T]) -> T:
        if self._tickets is None:
            self._open()
        with begin() as connection:
            return work(connection)

    def _attempt(self, work: Callable[[], T]) -> T:
        for is_last in (False, True):
            try:
                return work()
            except Exception as error:
                words = f"{self.shown} cannot be used: {reason_of(error)}"
                if not is_outage(error):
                    if isinstance(error, SQLAlchemyError):
                        raise DurableError(words) from error
                    raise
                # A broken connection of the pool is noticed only at its next use: another one may work.
                if is_last or not getattr(error, "connection_invalidated", False):
                    raise StoreUnavailable(words) from error
        raise AssertionError

    # -- submitting and asking ---------------------------------------------------------------------------------

    def submit(self, new: NewRun) -> None:
        """Queues a run. Raises `RunConflict`, or `RunNotFound` for the run that it follows."""

        def work(connection: sa.Connection) -> None:
            if self._is_there(connection, new):
                return
            if new.after is not None:
                status = self._one(connection, "status", new.after)["status"]
                if status not in OVER:
                    raise RunConflict(f"run {new.after!r} is {status}: only a run that is over can be followed")
            inserted = connection.execute(
                sql(
                    "INSERT INTO swink_runs (id, agent, key, priority, metadata, status, created, updated, prompt, "
                    "digest, after_id, ticket) VALUES (:id, :agent, :key, :priority, :metadata, 'queued', "
                    f"{self._now}, {self._now}, :prompt, :digest, :after, 1) ON CONFLICT (id) DO NOTHING RETURNING seq"
                ),
                msgspec.structs.asdict(new),
            ).first()
            if inserted is None:
                self._is_there(connection, new)
                return
            self.tickets.add(connection, new.id, 1, new.priority)

        self.write(work)
        self._tell()

    def _is_there(self, connection: sa.Connection, new: NewRun) -> bool:
        row = self._row(connection, "agent, digest, after_id", new.id)
        if row is None:
            return False
        if (row["agent"], row["digest"], row["after_id"]) != (new.agent, new.digest, new.after):
            raise RunConflict(
                f"there is a run {new.id!r} already, of another agent, with another prompt or another `after`"
            )
        return True

    def _row(
        self, connection: sa.Connection, columns: str, run_id: str, *, to_change: bool = False
    ) -> Mapping[str, Any] | None:
        lock = self.database.for_update if to_change else ""
        statement = sql(f"SELECT {columns} FROM swink_runs WHERE id = :id {lock}")
        return cast("Mapping[str, Any] | None", connection.execute(statement, {"id": run_id}).mappings().first())

    def _one(
        self, connection: sa.Connection, columns: str, run_id: str, *, to_change: bool = False
    ) -> Mapping[str, Any]:
        row = self._row(connection, columns, run_id, to_change=to_change)
        if row is None:
            raise RunNotFound(run_id)
        return row

    def info(self, run_id: str) -> RunInfo:
        """Raises `RunNotFound`."""
        return self.read(lambda connection: _info(self._one(connection, _ROW, run_id)))

    def runs(self, status: str | None, agent: str | None, key: str | None, limit: int) -> tuple[RunInfo, ...]:
        wanted = {"status": status, "agent": agent, "key": key}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in given)
        if key is not None:  # its index is best, and the databases may choose another
            where = where.replace("status = :status", "status || '' = :status").replace("agent = ", "agent || '' = ")
        statement = sql(
            f"SELECT {_ROW} FROM swink_runs {'WHERE ' + where if where else ''} ORDER BY seq DESC LIMIT :limit"
        )
        rows = self.read(lambda connection: connection.execute(statement, {**given, "limit": limit}).mappings().all())
        return tuple([_info(row) for row in cast("Sequence[Mapping[str, Any]]", rows)])

    def lines(self, run_id: str) -> list[bytes]:
        """All records, as lines without newlines."""
        return [line for _, line in self.read(lambda connection: _lines(connection, run_id, 0, _ALL))]

    def news(self, run_id: str, after: int, limit: int) -> tuple[list[tuple[int, bytes]], RunInfo]:
        """The records after a position, each with its number, and the run as it was before they were read."""

        def work(connection: sa.Connection) -> tuple[list[tuple[int, bytes]], RunInfo]:
            info = _info(self._one(connection, _ROW, run_id))
            return [] if info.position <= after else _lines(connection, run_id, after, limit), info

        return self.read(work)

    # -- what people do ----------------------------------------------------------------------------------------

    def answer(self, run_id: str, call: PendingCall | str, answer: Answer | Any, *, by: str, token: str) -> bool:
        """Stores an answer, and returns whether it counts. Raises `NotPending` and `TypeError`."""

        def work(connection: sa.Connection) -> bool:
            row = self._one(connection, "status, pending, answers, cancelled, priority, ticket", run_id, to_change=True)
            questions, answers = decoded_questions(row["pending"]), decoded_answers(row["answers"])
            call_id = call if isinstance(call, str) else call.call_id
            if row["status"] in OVER or row["cancelled"] is not None or not questions:
                raise NotPending(call_id, f"run {run_id!r} is {row['status']}: no call {call_id!r} waits in it")
            reply = questions[0].reply  # all waiting calls are of one reply
            if isinstance(call, PendingCall) and call.position is not None and call.position != reply:
                raise NotPending(call_id, f"the call {call_id!r} at position {call.position} no longer waits")
            asked = [question for question in questions if question.call.call_id == call_id]
            earlier = answers.get(str(reply), {}).get(call_id)
            if isinstance(call, str) and any(not question.is_once for question in asked):
                hint = f"give one of its `pending`, on the command line --at {reply}"
                raise NotPending(call_id, f"several calls of run {run_id!r} have the id {call_id!r}: {hint}")
            if earlier is not None:
                return earlier.token == token
            if len(asked) != 1:
                raise NotPending(call_id, f"no call {call_id!r} waits in run {run_id!r}, or more than one")
            given = given_answer(checked_answer(answer, asked[0].call), by=by, token=token)
            at = self.time(connection)
            answers.setdefault(str(reply), {})[call_id] = msgspec.structs.replace(given, at=at)
            self._set(connection, run_id, answers=as_json(answers).decode())
            if row["status"] == "waiting":
                self._queue(connection, run_id, row["ticket"] + 1, row["priority"])
            return True

        counts = self.write(work)
        self._tell()
        return counts

    def cancel(self, run_id: str, reason: str) -> bool:
        """Cancels a run. Returns whether it is cancelled now, or will be as soon as its worker notices."""

        def work(connection: sa.Connection) -> bool:
            row = self._one(connection, "status, cancelled", run_id, to_change=True)
            match row["status"]:
                case "done" | "failed":
                    return False
                case "cancelled":
                    return True
                case "running":
                    if row["cancelled"] is None:
                        self._set(connection, run_id, cancelled=reason)
                case _:
                    words = cancelled_words(reason)
                    self._set(connection, run_id, status="cancelled", cancelled=reason, error=words, pending="[]")
            return True

        return self.write(work)

    def retry(self, run_id: str) -> None:
        """Queues a run that failed. Raises `RunOver` for any other."""

        def work(connection: sa.Connection) -> None:
            row = self._one(connection, "status, priority, ticket", run_id, to_change=True)
            if row["status"] != "failed":
                raise RunOver(f"run {run_id!r} is {row['status']}: only a run that failed can be retried")
            self._set(connection, run_id, error="", fruitless=0, failures=0)
            self._queue(connection, run_id, row["ticket"] + 1, row["priority"])

        self.write(work)
        self._tell()

    def _tell(self) -> None:
        if self.on_queued is not None:
            self.on_queued()

    def _set(self, connection: sa.Connection, run_id: str, **values: Any) -> None:
        columns = ", ".join(f"{name} = :{name}" for name in values)
        statement = sql(f"UPDATE swink_runs SET {columns}, updated = {self._now} WHERE id = :run_id")
        connection.execute(statement, {**values, "run_id": run_id})

    def _queue(self, connection: sa.Connection, run_id: str, ticket: int, priority: int, delay: float = 0) -> None:
        """Makes a run queued, with a ticket."""
        statement = sql(
            f"UPDATE swink_runs SET status = 'queued', worker = '', due = {self._now} + :delay, ticket = :ticket, "
            f"updated = {self._now} WHERE id = :id"
        )
        connection.execute(statement, {"id": run_id, "ticket": ticket, "delay": int(delay * 1000)})
        self.tickets.add(connection, run_id, ticket, priority, delay)

    def time(self, connection: sa.Connection) -> int:
        return int(connection.execute(sql(f"SELECT {self._now}")).scalar_one())

    # -- attempts ----------------------------------------------------------------------------------------------

    def claim(self, worker: str, entries: Mapping[str, AgentEntry], free: int) -> list[Claim]:
        """Takes up to `free` queued runs of these agents, by priority and age, within the limits of the fleet.

        Raises `RunLost` if the worker is no longer on the list of workers.
        """
        if free < 1 or not entries or not self.read(lambda connection: self._gate.chosen(connection, entries, 1)):
            return []
        return self.write(lambda connection: self._gate.claim(connection, worker, entries, free))

    def forget_tickets(self, claims: Iterable[Claim]) -> None:
        """Deletes the tickets of runs that were taken. If that fails, they do no harm."""
        names = [ticket_id(claim.id, claim.ticket) for claim in claims]
        self._attempt(lambda: self.tickets.delete(names))

    def apply(self, connection: sa.Connection, append: Append) -> str | None:
        """Writes records, and the end of an attempt. Returns the reason if the run is cancelled; raises `RunLost`."""
        more = ", fruitless = 0, failures = 0" if append.has_reply else ""
        more += ", prompt = NULL" if append.has_prompt else ""
        statement = sql(
            f"UPDATE swink_runs SET position = :position, tokens = :tokens, cost = :cost, updated = {self._now}{more} "
            "WHERE id = :id AND epoch = :epoch AND status = 'running' AND position = :before "
            "RETURNING cancelled, answers, ticket, priority"
        )
        values = {name: getattr(append, name) for name in ("epoch", "before", "position", "tokens", "cost")}
        values["id"] = append.run_id
        row = connection.execute(statement, values).mappings().first()
        if row is None:
            return self._already_written(connection, append)
        if append.encoded:
            rows = [{"run": append.run_id, "number": number, "line": line} for number, line in append.encoded]
            connection.execute(sql("INSERT INTO swink_records (run, number, line) VALUES (:run, :number, :line)"), rows)
        if append.ending is not None:
            self._end(connection, append, append.ending, cast("Mapping[str, Any]", row))
        return row["cancelled"]

    def _already_written(self, connection: sa.Connection, append: Append) -> str | None:
        """Checks that an append is in the store already: a connection may break after the commit. Raises `RunLost`."""
        row = self._row(connection, "epoch, status, position, cancelled", append.run_id)
        is_ours = row is not None and (row["epoch"], row["position"]) == (append.epoch, append.position)
        if row is None or not is_ours or (row["status"] == "running") != (append.ending is None):
            raise RunLost(f"run {append.run_id!r} was taken over: this attempt writes nothing more")
        return row["cancelled"]

    def _end(self, connection: sa.Connection, append: Append, ending: Ending, row: Mapping[str, Any]) -> None:
        status, error, pending = ending.status, ending.error, ending.pending
        if row["cancelled"] is not None:
            status, error, pending = "cancelled", cancelled_words(row["cancelled"]), "[]"
        elif status == "waiting":
            answers = decoded_answers(row["answers"])
            if any(call_id in answers.get(str(reply), {}) for reply, call_id in ending.asked):
                status = "queued"  # an answer came meanwhile
        free = int(ending.is_free)
        self._set(connection, append.run_id, status=status, worker="", error=error, pending=pending)
        if free or ending.has_failed:
            statement = sql(
                "UPDATE swink_runs SET attempts = attempts - :free, fruitless = fruitless - :free, "
                "failures = failures + :failed WHERE id = :id"
            )
            connection.execute(statement, {"free": free, "failed": int(ending.has_failed), "id": append.run_id})
        if status == "queued":
            self._queue(connection, append.run_id, row["ticket"] + 1, row["priority"], ending.delay)

    def release(self, run_id: str, epoch: int) -> None:
        """Hands a run on: the attempt with this epoch writes nothing more."""
        self.write(lambda connection: self._hand_on(connection, "id = :id AND epoch = :epoch", id=run_id, epoch=epoch))

    def _hand_on(self, connection: sa.Connection, where: str, **values: Any) -> int:
        statement = sql(
            "UPDATE swink_runs SET status = CASE WHEN cancelled IS NULL THEN 'queued' ELSE 'cancelled' END, "
            f"epoch = epoch + 1, worker = '', due = 0, ticket = ticket + 1, updated = {self._now}, "
            "pending = CASE WHEN cancelled IS NULL THEN pending ELSE '[]' END "
            f"WHERE status = 'running' AND {where} RETURNING id, status, ticket, priority, cancelled"
        )
        rows = connection.execute(statement, values).mappings().all()
        for row in rows:
            if row["status"] == "queued":
                self.tickets.add(connection, row["id"], row["ticket"], row["priority"])
            else:
                self._set(connection, row["id"], error=cancelled_words(row["cancelled"]))
        return len(rows)

    # -- workers -----------------------------------------------------------------------------------------------

    def register(self, info: WorkerInfo, lease: float, lock: int) -> None:
        statement = sql(
            "INSERT INTO swink_workers (id, host, pid, slots, running, agents, beat, seen, lease, lock) VALUES "
            f"(:id, :host, :pid, :slots, 0, :agents, 0, {self._now}, :lease, :lock)"
        )
        values = {name: getattr(info, name) for name in ("id", "host", "pid", "slots")}
        values |= {"agents": msgspec.json.encode(info.agents).decode(), "lease": lease, "lock": lock}
        self.write(lambda connection: connection.execute(statement, values))

    def beat(self, worker: str, running: int) -> bool:
        """Counts up for a worker. Returns whether it is still on the list."""
        statement = sql(
            f"UPDATE swink_workers SET beat = beat + 1, seen = {self._now}, running = :running WHERE id = :id "
            "RETURNING id"
        )
        return self.write(
            lambda connection: connection.execute(statement, {"id": worker, "running": running}).first() is not None
        )

    def fleet(self, worker: str) -> Fleet:
        def work(connection: sa.Connection) -> Fleet:
            listed = connection.execute(sql("SELECT id, beat, lease, lock FROM swink_workers"))
            members = tuple([Member(*row) for row in listed])
            owners = connection.execute(sql("SELECT DISTINCT worker FROM swink_runs WHERE status = 'running'"))
            own = sql(
                "SELECT id, epoch, cancelled IS NOT NULL FROM swink_runs WHERE status = 'running' AND worker = :id"
            )
            runs = connection.execute(own, {"id": worker}).all()
            return Fleet(
                members,
                frozenset(owners.scalars()),
                {row[0]: int(row[1]) for row in runs},
                frozenset([row[0] for row in runs if row[2]]),
                self.time(connection),
            )

        return self.read(work)

    def take_over(self, worker: str) -> int:
        """Hands on the runs of a worker, and removes it from the list; returns how many runs."""

        def work(connection: sa.Connection) -> int:
            count = self._hand_on(connection, "worker = :worker", worker=worker)
            connection.execute(sql("DELETE FROM swink_workers WHERE id = :id"), {"id": worker})
            return count

        count = self.write(work)
        self.database.forget(worker)
        return count

    # -- the whole ---------------------------------------------------------------------------------------------

    def stats(self) -> FleetStats:
        def work(connection: sa.Connection) -> FleetStats:
            by_status = connection.execute(sql("SELECT status, count(*) FROM swink_runs GROUP BY status"))
            counts = {str(row[0]): int(row[1]) for row in by_status}
            agents = connection.execute(
                sql(f"SELECT agent, count(*) FROM {self.database.queued} WHERE status = 'queued' GROUP BY agent")
            )
            oldest = sql(f"SELECT min(updated) FROM {self.database.queued} WHERE {self._gate.due}")
            since = connection.execute(oldest).scalar()
            now = self.time(connection)
            workers = connection.execute(sql("SELECT * FROM swink_workers ORDER BY id")).mappings().all()
            return FleetStats(
                **{status: counts.get(status, 0) for status in STATUSES},
                lag=0.0 if since is None else max(0, now - int(since)) / 1000,
                workers=tuple([_worker(cast("Mapping[str, Any]", row)) for row in workers]),
                queued_agents={row[0]: int(row[1]) for row in agents},
                version=self.version,
            )

        return self.read(work)

    def prune(self, days: float) -> int:
        """Deletes the runs that have been over for `days` days, some at a time; returns how many."""
        deleted = 0
        # The search only reads, so other processes can write meanwhile.
        while self.read(lambda connection: self._old(connection, days, 1)):
            some = self.write(lambda connection: self._prune_some(connection, days))
            names = [name for run_id, ticket in some for name in tickets_of(run_id, ticket)]
            self._attempt(lambda names=names: self.tickets.delete(names))
            deleted += len(some)
        return deleted

    def _old(self, connection: sa.Connection, days: float, limit: int) -> list[tuple[str, int]]:
        """Some runs that have been over for `days` days, with their last tickets."""
        statement = sql(
            "SELECT id, ticket FROM swink_runs WHERE status IN ('done', 'failed', 'cancelled') "
            f"AND updated <= {self._now} - :age AND NOT EXISTS (SELECT 1 FROM swink_runs AS later WHERE "
            "later.after_id = swink_runs.id AND later.position = 0 AND later.status IN ('queued', 'running')) "
            "LIMIT :limit"
        )
        values = {"age": int(days * 86_400_000), "limit": limit}
        return [(str(row[0]), int(row[1])) for row in connection.execute(statement, values)]

    def _prune_some(self, connection: sa.Connection, days: float) -> list[tuple[str, int]]:
        rows = self._old(connection, days, _AT_ONCE)
        if rows:
            ids = {"ids": [run_id for run_id, _ in rows]}
            connection.execute(expanding(sql("DELETE FROM swink_records WHERE run IN :ids"), "ids"), ids)
            connection.execute(expanding(sql("DELETE FROM swink_runs WHERE id IN :ids"), "ids"), ids)
        return rows


def _lines(connection: sa.Connection, run_id: str, after: int, limit: int) -> list[tuple[int, bytes]]:
    statement = sql(
        "SELECT number, line FROM swink_records WHERE run = :run AND number > :after ORDER BY number LIMIT :limit"
    )
    rows = connection.execute(statement, {"run": run_id, "after": after, "limit": limit})
    return [(int(row[0]), bytes(row[1])) for row in rows]


def cancelled_words(reason: str) -> str:
    return reason or "the run was cancelled"


def _info(row: Mapping[str, Any]) -> RunInfo:
    pending: tuple[PendingCall, ...] = ()
    if row["pending"] != "[]" and row["status"] not in OVER:
        questions: list[Question] = decoded_questions(row["pending"])
        pending = still_open(questions, decoded_answers(row["answers"]))
    columns: dict[str, Any] = {name: row[name] for name in RunInfo.__struct_fields__}
    columns |= {"metadata": msgspec.json.decode(row["metadata"]), "pending": pending}
    return RunInfo(**columns)


def _worker(row: Mapping[str, Any]) -> WorkerInfo:
    columns: dict[str, Any] = {name: row[name] for name in WorkerInfo.__struct_fields__}
    columns["agents"] = tuple(msgspec.json.decode(row["agents"]))
    return WorkerInfo(**columns)
