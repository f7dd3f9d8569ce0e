"""Measures the cost of durable runs: a turn, runs per second, a takeover, evaluation, and waiting runs.

    python -m bench.durable [--quick] [--only PART …] [--postgres URL] [--cases N …] [--waiting N …]

The store is an SQLite file in a temporary folder, and also the database at URL if you pass one. Workers are processes.
Times are wall time, except where a row says CPU. The guide uses `--cases 100000` and `--waiting 1000 10000 100000`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from swink_agent import Agent, Approve, AssistantMessage, Defer, tool
from swink_agent.durable import Durable
from swink_agent.evals import EvalCase, EvalRunner, EvalSet
from swink_agent.evals.cases.cases import ResponseCriteria
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text

from .__main__ import print_table

TURNS = 5
PARTS = ("turn", "rate", "takeover", "cases", "waiting")


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pays."""
    return "paid"


def replies(count: int) -> Any:
    """A model whose next reply depends on the history alone: `count` calls, then a text."""

    def stream(model: Any, context: Any, options: Any, cancel: Any) -> Any:
        said = sum(isinstance(message, AssistantMessage) for message in context.messages)
        reply = call("add", a=said, b=1) if said < count else text("done")
        return scripted(reply)(model, context, options, cancel)

    return stream


def make_durable(url: str) -> Durable:
    durable = Durable(url)

    @durable.agent("five")
    def five() -> Agent:
        return Agent("test:model", tools=[add], stream_fn=replies(TURNS - 1), max_turns=None)

    @durable.agent("waits")
    def waits() -> Agent:
        def stream(model: Any, context: Any, options: Any, cancel: Any) -> Any:
            is_first = not any(isinstance(message, AssistantMessage) for message in context.messages)
            return scripted(call("pay", amount=1) if is_first else text("done"))(model, context, options, cancel)

        return Agent("test:model", tools=[pay], stream_fn=stream, approve=lambda _: Defer())

    @durable.agent("hangs")
    def hangs() -> Agent:
        @tool
        async def wait() -> str:
            """Waits."""
            await asyncio.sleep(3600)
            return ""

        def stream(model: Any, context: Any, options: Any, cancel: Any) -> Any:
            is_first = not any(isinstance(message, AssistantMessage) for message in context.messages)
            return scripted(call("wait") if is_first else text("done"))(model, context, options, cancel)

        return Agent("test:model", tools=[wait], stream_fn=stream)

    durable.evaluation("sums")(make_subject)
    return durable


def make_subject(case: EvalCase, folder: Path) -> Agent:
    return Agent("test:model", stream_fn=scripted(text("5")))


class Workers:
    """Processes with a worker each."""

    def __init__(self, url: str, count: int) -> None:
        command = [sys.executable, "-m", "bench.durable", "--serve", url]
        self.processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(count)]
        for process in self.processes:
            assert process.stderr is not None
            assert "serves" in process.stderr.readline()

    def close(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.communicate(timeout=60)


async def serve(url: str) -> None:
    durable = make_durable(url)
    worker = durable.worker(poll=0.2)
    async with worker:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.drain)
        print(f"{worker.id} serves", file=sys.stderr, flush=True)
        await worker.wait()
    await durable.close()


async def turn_cost(url: str, folder: Path, repeats: int) -> tuple[float, float]:
    """CPU milliseconds of a turn with a tool call: in a durable run, and with a session file on the same disk."""
    store = JsonlSessionStore(folder / "sessions")

    async def session(turns: int) -> float:
        agent = Agent("test:model", tools=[add], stream_fn=replies(turns - 1), max_turns=None)
        with store.create() as made:
            made.attach(agent)
            start = time.process_time()
            await agent.prompt("go")
            return time.process_time() - start

    async with Durable(url) as durable:
        for turns in (2, 42):
            durable.agent(f"turns{turns}")(
                lambda turns=turns: Agent("test:model", tools=[add], stream_fn=replies(turns - 1), max_turns=None)
            )

        async def run(turns: int) -> float:
            start = time.process_time()
            await (await durable.submit(f"turns{turns}", "go")).result()
            return time.process_time() - start

        async with durable.worker(poll=30):
            ours = [(await run(42), await run(2)) for _ in range(repeats)]
    plain = [(await session(42), await session(2)) for _ in range(repeats)]

    def least(costs: list[tuple[float, float]]) -> float:
        return (min(long for long, _ in costs) - min(short for _, short in costs)) / 40 * 1000

    return least(ours), least(plain)


async def rate(url: str, workers: int, runs: int) -> tuple[float, float]:
    """Runs of five turns per second, and milliseconds of CPU that the workers take for one."""
    async with make_durable(url) as durable:
        done = (await durable.stats()).done  # of earlier work: the store may have been used before
        fleet = await asyncio.to_thread(Workers, url, workers)
        try:
            start, before = time.monotonic(), cpu_of(fleet)
            for number in range(0, runs, 50):
                await asyncio.gather(*[durable.submit("five", "go") for _ in range(min(50, runs - number))])
            while (stats := await durable.stats()).done < done + runs or stats.queued or stats.running:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            took, used = time.monotonic() - start, cpu_of(fleet) - before
        finally:
            await asyncio.to_thread(fleet.close)
        await durable.prune(0)
    return runs / took, used / runs * 1000


def cpu_of(fleet: Workers) -> float:
    """Seconds of CPU that the workers have taken."""
    fields = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split() for one in fleet.processes]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


async def takeover(url: str, repeats: int) -> list[float]:
    """Seconds from the death of a worker to the moment at which another has its run."""
    found: list[float] = []
    async with make_durable(url) as durable:
        for _ in range(repeats):
            fleet = await asyncio.to_thread(Workers, url, 2)
            try:
                run = await durable.submit("hangs", "go")
                while (await run.info()).position < 4:  # noqa: ASYNC110 - the store must be polled
                    await asyncio.sleep(0.02)
                owner = (await run.info()).worker
                process = next(one for one in fleet.processes if f"-{one.pid}-" in owner)
                process.kill()
                start = time.monotonic()
                while (info := await run.info()).worker == owner and info.status == "running":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                found.append(time.monotonic() - start)
                await run.result(30)
            finally:
                await asyncio.to_thread(fleet.close)
    return found


async def evaluation(url: str, cases: int) -> tuple[float, float, str]:
    """Cases per second: over two workers, and in one process. And the MB of this process and of the workers."""
    expected = ResponseCriteria(contains="5")
    eval_set = EvalSet(
        "sums", "Sums", [EvalCase(str(n), f"sum {n}", ["2 + 3?"], expected_response=expected) for n in range(cases)]
    )
    few = EvalSet("sums", "Sums", eval_set.cases[:2000])
    start = time.monotonic()
    await EvalRunner(make_subject, parallel=16).run(few)
    here = len(few.cases) / (time.monotonic() - start)
    async with make_durable(url) as durable:
        fleet = await asyncio.to_thread(Workers, url, 2)
        try:
            start = time.monotonic()
            run = await EvalRunner(executor=durable.executor("sums"), parallel=400).run(eval_set)
            there = cases / (time.monotonic() - start)
            memory = ", ".join(
                str(memory_of(process)) for process in [os.getpid(), *(one.pid for one in fleet.processes)]
            )
        finally:
            await asyncio.to_thread(fleet.close)
        assert run.summary.passed == cases
        await durable.prune(0)
    return there, here, memory


async def waiting(url: str, count: int, repeats: int) -> str:
    """What it costs that so many runs wait: answers, lists, counts, another run, and the memory of the worker."""
    import sqlalchemy as sa

    async with make_durable(url) as durable:
        fleet = await asyncio.to_thread(Workers, url, 1)
        try:
            first = await durable.submit("waits", "go", id="first")
            await first.result()
        finally:
            await asyncio.to_thread(fleet.close)
        store = durable.open_store()
        columns = [column["name"] for column in sa.inspect(store.database.engine).get_columns("swink_runs")]
        names = ", ".join(name for name in columns if name not in ("seq", "id"))
        numbers = (
            f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"
            if "sqlite" in url
            else f"(SELECT i FROM generate_series(1, {count}) AS g(i))"
        )

        def copy(connection: Any) -> None:
            for table, columns in (("swink_runs", f"id, {names}"), ("swink_records", "run, number, line")):
                is_first = "id = 'first'" if table == "swink_runs" else "run = 'first'"
                others = columns.partition(", ")[2]
                connection.execute(
                    sa.text(
                        f"INSERT INTO {table} ({columns}) SELECT 'copy-' || numbers.i, {others} FROM {table}, "
                        f"{numbers} AS numbers WHERE {is_first}"
                    )
                )

        await asyncio.to_thread(store.write, copy)
        if "postgresql" in url:  # as its own housekeeping does after a while
            await asyncio.to_thread(store.write, lambda connection: connection.execute(sa.text("ANALYZE")))
        fleet = await asyncio.to_thread(Workers, url, 1)
        try:
            answered: list[float] = []
            for number in range(1, repeats + 1):
                run = await durable.run(f"copy-{number * count // repeats}")
                start = time.monotonic()
                await run.answer((await run.info()).pending[0], Approve())
                await run.result(60)
                answered.append(time.monotonic() - start)
            submitted = await best_of(repeats, lambda: one_run(durable))
            listed = await best_of(repeats, lambda: durable.runs(status="waiting"))
            counted = await best_of(repeats, durable.stats)
            memory = memory_of(fleet.processes[0].pid)
        finally:
            await asyncio.to_thread(fleet.close)
        while await asyncio.to_thread(store.write, cleared):
            pass
        await durable.prune(0)
    return (
        f"{sorted(answered)[repeats // 2] * 1000:.0f} ms from answer to end, {submitted:.0f} ms a new run, "
        f"{listed:.1f} ms to list 50, {counted:.1f} ms to count, worker {memory} MB"
    )


def cleared(connection: Any) -> int:
    """Makes runs that wait cancelled, some thousands at a time, so that they can be deleted."""
    import sqlalchemy as sa

    done = connection.execute(
        sa.text(
            "UPDATE swink_runs SET status = 'cancelled' WHERE seq IN "
            "(SELECT seq FROM swink_runs WHERE status = 'waiting' LIMIT 5000)"
        )
    )
    return int(done.rowcount)


async def one_run(durable: Durable) -> None:
    await (await durable.submit("five", "go")).result(60)


async def best_of(repeats: int, work: Callable[[], Awaitable[object]]) -> float:
    """The least milliseconds that some work takes."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.monotonic()
        await work()
        times.append(time.monotonic() - start)
    return min(times) * 1000


def memory_of(process: int) -> int:
    """The most memory that a process had, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


async def measure(options: argparse.Namespace) -> list[list[str]]:
    rows = [["work", "store", "seen"]]
    repeats = 2 if options.quick else 5

    def note(work: str, store: str, seen: str) -> None:
        rows.append([work, store, seen])
        print(f"{work}, {store}: {seen} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        stores = {"sqlite": f"sqlite:///{folder}/runs.db"}
        if options.postgres:
            stores["postgresql"] = options.postgres
        for name, url in stores.items():
            if options.store not in (None, name):
                continue
            if "turn" in options.only:
                ours, plain = await turn_cost(url, folder, repeats)
                note("a turn with a tool call, CPU", name, f"{ours:.2f} ms, {ours / plain:.1f} times a session file's")
            if "rate" in options.only:
                for workers in (1, 2, 4):
                    per_second, cpu = await rate(url, workers, 100 if options.quick else 400)
                    said = f"{per_second:.0f} a second, {cpu:.0f} ms of CPU each"
                    note(f"runs of {TURNS} turns, {workers} workers", name, said)
            if "takeover" in options.only:
                times = sorted(await takeover(url, repeats))
                note("takeover of a killed worker's run", name, f"{times[0]:.2f} to {times[-1]:.2f} s")
            for cases in options.cases if "cases" in options.only else ():
                there, here, memory = await evaluation(url, cases)
                said = f"{there:.0f} a second, {there / here:.2f} of one process; runner and workers {memory} MB"
                note(f"{cases:,} cases over 2 workers", name, said)
            for count in options.waiting if "waiting" in options.only else ():
                note(f"{count:,} waiting runs", name, await waiting(url, count, 10))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), help="only this one")
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--cases", type=int, nargs="+", default=[2000])
    parser.add_argument("--waiting", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--serve", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        os._exit(0)
    print_table(asyncio.run(measure(options)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
