"""Workers that stop, hang, drain, lose their store, or wake up too late."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

from swink_agent import Agent, ToolOutcome, ToolResultMessage, tool
from swink_agent.core.types import extract_text
from swink_agent.durable import Durable, StoreUnavailable, WorkerInfo
from swink_agent.durable.registry import AgentEntry
from swink_agent.durable.store import writing
from swink_agent.durable.store.connecting import open_database
from swink_agent.durable.store.store import Store
from swink_agent.durable.store.writing import Append, RunLost
from swink_agent.durable.urls import store_address
from swink_agent.memory import NoteAdded, encode_line
from swink_agent.testing import ModelRequest, call, scripted, text

from .conftest import Fleet, wait_until
from .postgres import PostgresServer
from .test_runs import adding, serving


async def until(is_true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


async def stop_between_writes(fleet: Fleet, process: int, url: str) -> None:
    """Stops a worker. One that is stopped in the middle of a write would keep the store locked for all others."""
    path = store_address(url).path
    await asyncio.sleep(0 if path else 0.5)  # a server is not asked for its locks
    fleet.signal(process, signal.SIGSTOP)
    while path is not None and not _can_write(path):
        fleet.signal(process, signal.SIGCONT)
        await asyncio.sleep(0.02)
        fleet.signal(process, signal.SIGSTOP)


def _can_write(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


@pytest.mark.sweep
async def test_a_worker_that_is_stopped_and_woken_writes_nothing_into_what_was_taken(
    kind: str, url: str, fleet: Fleet
) -> None:
    async with Durable(url) as durable:
        run = await durable.submit("long", "run-1", id="run-1")
        first = fleet.start(lease=1)
        await until(lambda: fleet.marks("ran"))
        await stop_between_writes(fleet, first, url)
        fleet.start(lease=1, poll=0.1)
        assert (await run.result(timeout=60)).text == "over"
        before = (await run.load()).records()
        fleet.signal(first, signal.SIGCONT)
        await until(lambda: "taken for dead" in fleet.log or "taken over" in fleet.log)
        later = await durable.submit("steps", "run-2", id="run-2")
        await later.result(timeout=60)
        assert (await run.load()).records() == before
        async with asyncio.timeout(60):
            while len((await durable.stats()).workers) != 2:  # noqa: ASYNC110 - until another process has joined again
                await asyncio.sleep(0.02)
    assert len(fleet.marks("ran")) == 1 + 4


@pytest.mark.sweep
async def test_a_worker_whose_event_loop_stands_still_is_taken_over(kind: str, url: str, fleet: Fleet) -> None:
    (fleet.folder / "hang").touch()
    async with Durable(url) as durable:
        run = await durable.submit("hanging", "run-1")
        fleet.start(lease=1, poll=0.1)
        await until(lambda: fleet.marks("hangs"))
        fleet.start(lease=1, poll=0.1)
        assert (await run.result(timeout=60)).text == "awake"
        assert (await run.info()).attempts == 2


@pytest.mark.sweep
async def test_on_sigterm_each_run_ends_its_turn_and_goes_back_at_no_cost(kind: str, url: str, fleet: Fleet) -> None:
    async with Durable(url) as durable:
        worker = fleet.start(poll=0.05)
        runs = [await durable.submit("steps", f"run-{number}", id=f"run-{number}") for number in range(3)]
        waiting = await durable.submit("refunds", "go")
        await until(lambda: len(fleet.marks("asked")) > 3)
        fleet.signal(worker, signal.SIGTERM)
        assert fleet.exit_code(worker) == 0
        stats = await durable.stats()
        assert (stats.running, stats.workers) == (0, ())
        infos = [await run.info() for run in runs]
        assert all(info.attempts == (info.status == "done") for info in infos)
        fleet.start(poll=0.05)
        for run in runs:
            result = await run.result(timeout=60)
            outcomes = {message.outcome for message in result.messages if isinstance(message, ToolResultMessage)}
            assert outcomes == {ToolOutcome.RAN}
        assert (await waiting.result(timeout=60)).pending


def test_a_worker_that_reached_the_store_through_a_link_is_seen_to_live(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    linked = tmp_path / "links" / "linked.db"
    linked.symlink_to(store_address(sqlite_url).path or "")
    context = multiprocessing.get_context("fork")
    holds, end = context.Event(), context.Event()

    def work() -> None:
        open_database(store_address(f"sqlite:///{linked}")).hold("worker", 1)
        holds.set()
        end.wait()

    worker = context.Process(target=work)
    worker.start()
    try:
        assert holds.wait(20)
        assert open_database(store_address(sqlite_url)).alive([("worker", 1)]) == {"worker"}
    finally:
        end.set()
        worker.join()


async def test_slow_runs_are_abandoned(sqlite_url: str) -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        started.set()
        await asyncio.sleep(60)
        return "x"

    async with Durable(sqlite_url) as durable:
        durable.agent("slow")(lambda: Agent("test:model", stream_fn=scripted(call("slow"), text("x")), tools=[slow]))
        run = await durable.submit("slow", "go")
        async with durable.worker(poll=0.05, drain=0.1):
            await asyncio.wait_for(started.wait(), 60)
        info = await run.info()
        assert (info.status, info.attempts, info.worker) == ("queued", 1, "")
        session = await run.load()
        assert extract_text(session.messages[-1].content).startswith("outcome unknown")  # type: ignore[union-attr]


@pytest.mark.sweep
async def test_a_run_that_stands_still_is_handed_on(kind: str, url: str) -> None:
    tries: list[int] = []

    @tool
    async def stuck() -> str:
        """Gets stuck."""
        await asyncio.sleep(60)
        return "x"

    def make() -> Agent:
        tries.append(1)
        script = scripted(call("stuck")) if len(tries) == 1 else scripted(text("moved on"))
        return Agent("test:model", stream_fn=script, tools=[stuck])

    async with Durable(url) as durable:
        durable.agent("slow", progress=0.3)(make)
        async with durable.worker(poll=0.05):
            run = await durable.submit("slow", "go")
            result = await run.result(timeout=60)
            assert result.text == "moved on"
            assert extract_text(result.messages[2].content).startswith("outcome unknown")  # type: ignore[union-attr]
            assert (await run.info()).attempts == 2


@pytest.mark.sweep
async def test_a_cancel_survives_the_death_of_its_worker(kind: str, url: str, fleet: Fleet) -> None:
    async with Durable(url) as durable:
        run = await durable.submit("long", "run-1", id="run-1")
        first = fleet.start()
        await until(lambda: fleet.marks("ran"))
        fleet.kill(first)
        assert await run.cancel("enough") is True
        fleet.start(poll=0.1)
        result = await run.result(timeout=60)
        assert result.error == "enough"
        assert (await run.info()).status == "cancelled"
        assert len(fleet.marks("asked")) == 1


async def test_a_worker_that_lost_a_run_cannot_write(kind: str, url: str) -> None:
    async with Durable(url) as durable:
        await durable.submit("calc", "2+3?", id="one")
        store = durable.open_store()
        entries = {"calc": AgentEntry(name="calc", factory=adding)}
        store.register(WorkerInfo(id="w", host="h", pid=1, slots=1, running=0, seen=0), 30, 1)
        (first,) = store.claim("w", entries, 1)
        assert append(store, first.epoch, 0) is None
        store.release("one", first.epoch)
        assert isinstance(append(store, first.epoch, 1), RunLost)  # nobody has it
        (second,) = store.claim("w", entries, 1)
        assert second.epoch > first.epoch
        for epoch, at in ((first.epoch, 0), (first.epoch, 1), (second.epoch + 1, 1), (second.epoch, 2)):
            assert isinstance(append(store, epoch, at), RunLost), (epoch, at)
        for _ in range(2):  # a commit whose answer was lost is repeated, and counts once
            assert append(store, second.epoch, 1) is None
        assert store.info("one").position == 2
        assert len(store.lines("one")) == 2
        store.take_over("w")
        with pytest.raises(RunLost):  # who is not on the list takes nothing
            store.claim("w", entries, 1)


def append(store: Store, epoch: int, before: int) -> Any:
    outcomes: list[Any] = []
    line = encode_line(before + 1, 0, NoteAdded("late"))[:-1]
    store.writer.add(
        Append(
            run_id="one",
            epoch=epoch,
            before=before,
            position=before + 1,
            lines=lambda: [(before + 1, line)],
            done=outcomes.append,
        )
    )
    deadline = time.monotonic() + 10
    while not outcomes and time.monotonic() < deadline:
        time.sleep(0.01)
    return outcomes[0]


@pytest.mark.sweep
async def test_a_ticket_too_many_or_too_few_does_no_harm(kind: str, url: str) -> None:
    async with serving(url, calc=adding) as durable:
        store = durable.open_store()
        run = await durable.submit("calc", "2+3?", id="one")
        for number in range(50, 60):
            store.write(lambda connection, n=number: store.tickets.add(connection, "one", n, 0))  # type: ignore[misc]
        store.write(lambda connection: store.tickets.add(connection, "nothing", 1, 0))
        await run.result(timeout=60)
        await asyncio.sleep(0.7)
        assert (await run.info()).attempts == 1
        lost = await durable.submit("calc", "2+3?", id="lost")
        await asyncio.to_thread(store.tickets.delete, ["lost#1"])
        assert (await lost.result(timeout=60)).text == "5"


@pytest.mark.sweep
async def test_a_clock_that_was_set_back_keeps_no_run_waiting(sqlite_url: str) -> None:
    async with serving(sqlite_url, calc=adding) as durable:
        store = durable.open_store()
        far = int(time.time() * 1000) + 10 * 86_400_000
        async with Durable(sqlite_url) as other:
            run = await other.submit("calc", "2+3?")
            await asyncio.to_thread(
                store.write,
                lambda connection: connection.execute(sa.text("UPDATE swink_runs SET due = :due"), {"due": far}),
            )
            assert (await run.result(timeout=60)).text == "5"


@pytest.mark.sweep
@pytest.mark.parametrize("days", [-10, 10])
async def test_clocks_that_jump_make_nobody_dead(kind: str, url: str, fleet: Fleet, days: int) -> None:
    """What workers and runs have on record of the time is days away from what it is now."""
    jump = days * 86_400_000
    async with Durable(url) as durable:
        store = durable.open_store()

        def shift(connection: Any) -> None:
            connection.execute(sa.text(f"UPDATE swink_workers SET seen = seen + {jump}"))
            columns = ", ".join(f"{name} = {name} + {jump}" for name in ("created", "updated", "started"))
            connection.execute(sa.text(f"UPDATE swink_runs SET {columns}"))

        for _ in range(2):
            fleet.start(lease=1, poll=0.1)
        await until(lambda: fleet.log.count("serves") == 2)
        run = await durable.submit("long", "run-1", id="run-1")
        await until(lambda: fleet.marks("ran"))
        for _ in range(5):  # longer than a lease
            await asyncio.to_thread(store.write, shift)
            await asyncio.sleep(0.4)
        after = await durable.submit("steps", "run-2", id="run-2")
        assert (await after.result(timeout=60)).error is None
        assert len((await durable.stats()).workers) == 2
        assert (await run.info()).attempts == 1, fleet.log
        assert "dead" not in fleet.log


# -- stores that cannot be written ---------------------------------------------------------------------------


@contextmanager
def broken(store: Store) -> Iterator[None]:
    """Nothing can be written meanwhile, as on a full disk."""
    whole = store.database.writing

    @contextmanager
    def refusing() -> Iterator[Any]:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))
        yield

    store.database.writing = refusing  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.database.writing = whole  # type: ignore[method-assign]


async def test_a_store_that_cannot_be_written_is_waited_for(sqlite_url: str) -> None:
    in_tool, go_on = asyncio.Event(), asyncio.Event()
    asked: list[ModelRequest] = []

    @tool
    async def work() -> str:
        """Works."""
        in_tool.set()
        await go_on.wait()
        return "worked"

    def reply(request: ModelRequest) -> Any:
        asked.append(request)
        return call("work") if len(asked) == 1 else text("ok")

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[reply] * 5), tools=[work])

    async with serving(sqlite_url, work=make) as durable:
        run = await durable.submit("work", "go")
        await asyncio.wait_for(in_tool.wait(), 60)
        with broken(durable.open_store()):
            go_on.set()
            await asyncio.sleep(0.8)
            assert len(asked) == 1  # the model is not asked
            with pytest.raises(StoreUnavailable, match="full"):
                await durable.submit("work", "other")
        assert (await run.result(timeout=60)).text == "ok"
        assert (await run.info()).attempts == 1
        assert len(await durable.runs()) == 1


@pytest.mark.sweep
async def test_an_attempt_ends_when_the_store_stays_away_and_the_run_goes_on_later(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PATIENCE", 0.5)
    in_tool, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Works."""
        in_tool.set()
        await go_on.wait()
        return "worked"

    def reply(request: ModelRequest) -> Any:
        return call("work") if len(request.messages) == 1 else text("ok")

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[reply] * 5), tools=[work])

    async with serving(sqlite_url, work=make) as durable:
        run = await durable.submit("work", "go")
        await asyncio.wait_for(in_tool.wait(), 60)
        with broken(durable.open_store()):
            go_on.set()
            await asyncio.sleep(1.5)
        result = await run.result(timeout=60)
        assert result.text == "ok"
        assert extract_text(result.messages[2].content).startswith("outcome unknown")  # type: ignore[union-attr]
        assert (await run.info()).attempts == 2


@pytest.mark.sweep
async def test_a_worker_whose_disk_is_full_pauses_and_nothing_is_lost(sqlite_url: str, tmp_path: Path) -> None:
    """The worker's process can make no file longer, so that SQLite fails in the middle of its writes."""
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("it needs prlimit, which this system does not have")
    fleet = Fleet(sqlite_url, tmp_path)
    try:
        async with Durable(sqlite_url) as durable:
            runs = [await durable.submit("steps", f"run-{number}", id=f"run-{number}") for number in range(8)]
            worker = fleet.start(poll=0.1, slots=2)
            await until(lambda: len(fleet.marks("asked")) > 5)
            usual = resource.prlimit(worker, resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))
            await until(lambda: "cannot use its store" in fleet.log)
            paused = len(fleet.marks("asked")) + len(fleet.marks("ran"))
            await asyncio.sleep(1)
            assert len(fleet.marks("asked")) + len(fleet.marks("ran")) == paused  # no tool starts, no model is asked
            assert any([(await run.info()).status != "done" for run in runs])
            resource.prlimit(worker, resource.RLIMIT_FSIZE, usual)
            from .test_killing import check

            for run in runs:
                assert (await run.result(timeout=40)).error is None
                assert (await run.info()).attempts == 1, fleet.log
                check(await run.load(), fleet)
    finally:
        fleet.close()


@pytest.mark.sweep
async def test_a_server_that_restarts_loses_nothing(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.database(f"restart{os.getpid()}", template="template")
    fleet = Fleet(url, tmp_path)
    try:
        async with Durable(url) as durable:
            for _ in range(2):
                fleet.start(poll=0.1, slots=3)
            await until(lambda: fleet.log.count("serves") == 2)
            runs = [await durable.submit("steps", f"run-{number}", id=f"run-{number}") for number in range(6)]
            follower = asyncio.create_task(_numbers(runs[5]))
            await until(lambda: len(fleet.marks("asked")) > 5)
            postgres_server.stop()
            await asyncio.sleep(0.5)
            postgres_server.start()
            for run in runs:
                assert (await run.result(timeout=40)).error is None
                assert (await run.info()).attempts == 1, fleet.log  # nobody was taken for dead
            assert await asyncio.wait_for(follower, 60) == list(range(1, (await runs[5].info()).position + 1))
            from .test_killing import check

            for run in runs:
                check(await run.load(), fleet)
    finally:
        fleet.close()


@pytest.mark.sweep
def test_a_server_whose_machine_is_gone_is_noticed_within_seconds(postgres_server: PostgresServer) -> None:
    store = Store(store_address(postgres_server.database(f"gone{os.getpid()}", template="template")))
    try:
        with store.database.reading() as connection:
            given = connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr]
        assert int(given["tcp_user_timeout"]) <= 15_000
        assert int(given["keepalives_idle"]) + 3 * int(given["keepalives_interval"]) <= 15
    finally:
        store.close()


@pytest.mark.sweep
def test_a_lock_that_the_server_refuses_leaves_no_connection(postgres_server: PostgresServer) -> None:
    database = open_database(store_address(postgres_server.database(f"locks{os.getpid()}", template="template")))
    locks = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'swink lock'")

    def count() -> int:
        with database.reading() as connection:
            return connection.execute(locks).scalar_one()

    try:
        with pytest.raises(ProgrammingError) as refused:  # kept until the end, with all that it refers to
            database.hold("worker", 2**40)
        wait_until(lambda: count() == 0)
        assert "pg_try_advisory_lock" in str(refused.value)
    finally:
        database.close()


async def _numbers(run: Any) -> list[int]:
    return [record.number async for record in run.events()]


async def test_a_fleet_is_measured_where_opentelemetry_is_set_up() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from swink_agent.durable import FleetStats
    from swink_agent.durable.metrics import FleetMetrics

    reader = InMemoryMetricReader()
    metrics = FleetMetrics(MeterProvider([reader]))
    metrics.measure(FleetStats(queued=3, running=1, lag=2.5))
    metrics.count_takeover()
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, point.attributes.get("status")): point.value
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert found["swink.durable.runs", "queued"] == 3
    assert found["swink.durable.lag", None] == 2.5
    assert found["swink.durable.takeovers", None] == 1


@pytest.mark.sweep
async def test_workers_delete_what_has_been_over_for_so_long(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent.durable import worker

    monkeypatch.setattr(worker, "_FIRST_PRUNE", 0.2)
    async with serving(url, calc=adding) as durable:
        done = await durable.submit("calc", "2+3?")
        await done.result(timeout=60)
    async with Durable(url) as other:
        await other.submit("other", "later")
    for keep, left in ((None, 2), (30, 2), (0, 1)):
        async with Durable(url, keep_days=keep) as durable:
            durable.agent("calc")(adding)
            async with durable.worker(poll=0.05):
                await asyncio.sleep(1)
                assert len(await durable.runs()) == left


@pytest.mark.sweep
async def test_a_run_that_was_taken_without_anybody_knowing_is_handed_on(kind: str, url: str) -> None:
    """The connection may break when the store has taken a run for a worker, and before the worker hears of it."""
    async with Durable(url) as submitter, Durable(url) as durable:
        durable.agent("calc")(adding)
        async with durable.worker(poll=60) as worker:
            run = await submitter.submit("calc", "2+3?")
            taken = await submitter.call(lambda store: store.claim(worker.id, durable.agents, 1))
            assert [claim.id for claim in taken] == [run.id]
            assert (await run.result(timeout=60)).text == "5"
            assert (await run.info()).attempts == 2
