"""Evaluation over workers: the same results as in one process, whatever happens to the workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from swink_agent import Agent, CancellationToken, tool
from swink_agent.durable import Durable
from swink_agent.evals import EvalCase, EvalRun, EvalRunner, EvalSet, EvalStore, Score
from swink_agent.evals.cases.cases import ExpectedCall, ExpectedTrajectory, ResponseCriteria
from swink_agent.testing import call, fail, scripted, text


@tool
def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


def make_agent(case: EvalCase, folder: Path) -> Agent:
    if case.id.endswith("9"):
        raise RuntimeError("no agent for this one")
    if case.id.endswith("8"):
        return Agent("test:model", stream_fn=scripted(fail("invalid_request", "never")))
    return Agent("test:model", tools=[add], stream_fn=scripted(call("add", a=1, b=int(case.id)), text(f"={case.id}")))


def is_odd(case: EvalCase, invocation: Any) -> Score:
    return Score(int(case.id) % 2)


def a_set(count: int) -> EvalSet:
    trajectory = ExpectedTrajectory([ExpectedCall("add", {"a": 1})])
    cases = [
        EvalCase(
            str(number),
            f"case {number}",
            ["add it"],
            expected_response=ResponseCriteria(contains="="),
            expected_trajectory=trajectory,
        )
        for number in range(count)
    ]
    return EvalSet("sums", "Sums", cases)


TIMES = {"seconds", "started", "created", "id", "elapsed", "timestamp", "chain", "folder", "path", "at", "low", "high"}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list | tuple) else value


def plain(run: EvalRun) -> Any:
    results = [
        replace(result, attempts=tuple([replace(one, trajectory=one.invocation) for one in result.attempts]))
        for result in run.results
    ]
    return without_times(msgspec.to_builtins(replace(run, results=tuple(results)), enc_hook=str))


async def test_the_result_equals_that_of_one_process_but_for_times(url: str, tmp_path: Path) -> None:
    here = await EvalRunner(make_agent, [is_odd], parallel=3, repeat=2).run(a_set(20))
    async with Durable(url) as durable:
        durable.evaluation("sums", evaluators=[is_odd], at_once=3)(make_agent)
        runner = EvalRunner(
            executor=durable.executor("sums", chunk=7), parallel=40, repeat=2, store=EvalStore(tmp_path / "results")
        )
        async with durable.worker(slots=2, poll=0.05):
            there = await runner.run(a_set(20))
        assert plain(there) == plain(here)
        assert (there.summary.passed, there.summary.total) == (8, 20)
        chunks = await durable.runs(agent="sums")
        assert [info.status for info in chunks] == ["done"] * 6
        assert sum(info.metadata["attempts"] for info in chunks) == 40


async def test_a_chunk_whose_worker_was_abandoned_is_made_again(sqlite_url: str) -> None:
    holds, began = asyncio.Event(), asyncio.Event()

    async def slow(case: EvalCase, folder: Path) -> Agent:
        began.set()
        await holds.wait()
        return make_agent(case, folder)

    async with Durable(sqlite_url) as durable:
        durable.evaluation("sums", evaluators=[is_odd])(slow)
        running = asyncio.create_task(EvalRunner(executor=durable.executor("sums"), parallel=8).run(a_set(6)))
        async with durable.worker(poll=0.05, drain=0):
            await began.wait()
        assert [info.status for info in await durable.runs()] == ["queued"]
        holds.set()
        async with durable.worker(poll=0.05):
            assert (await running).summary.total == 6
        (chunk,) = await durable.runs()
        assert (chunk.status, chunk.attempts) == ("done", 2)


async def test_an_evaluation_that_is_stopped_cancels_its_chunks(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        durable.evaluation("sums")(make_agent)
        token = CancellationToken()
        runner = EvalRunner(executor=durable.executor("sums", chunk=2), parallel=4)
        running = asyncio.create_task(runner.run(a_set(6), cancel=token))
        while len(await durable.runs(status="queued")) < 2:  # noqa: ASYNC110 - the store must be polled
            await asyncio.sleep(0.02)
        token.cancel()
        run = await running
        assert (run.is_complete, run.results) == (False, ())
        assert {info.status for info in await durable.runs()} == {"cancelled"}


async def test_a_chunk_that_cannot_be_made_fails_its_attempts_alone(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        durable.evaluation("sums")(make_agent)
        running = asyncio.create_task(EvalRunner(executor=durable.executor("sums"), parallel=2).run(a_set(2)))
        while not (queued := await durable.runs()):  # noqa: ASYNC110 - the store must be polled
            await asyncio.sleep(0.02)
        await (await durable.run(queued[0].id)).cancel("not today")
        run = await running
        assert (run.is_complete, run.summary.passed) == (True, 0)
        assert all("not today" in (result.attempts[0].error or "") for result in run.results)


def test_impossible_arguments_are_value_errors() -> None:
    durable = Durable("sqlite:///never.db")
    durable.evaluation("sums")(make_agent)
    for wrong in ({"name": "other"}, {"name": "sums", "chunk": 0}):
        with pytest.raises(ValueError, match=r"no evaluation 'other' here; there are: sums|chunk must be at least 1"):
            durable.executor(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="already"):
        durable.evaluation("sums")
    with pytest.raises(ValueError, match="at_once"):
        durable.evaluation("more", at_once=0)
    with pytest.raises(ValueError, match="cannot name an agent"):
        durable.evaluation("a b")
