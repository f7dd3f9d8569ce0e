"""Workers are killed at any moment: no run is lost, no recorded reply is requested again, no call runs twice."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter

import pytest

from swink_agent import AssistantMessage, ToolOutcome, ToolResultMessage
from swink_agent.core.types import extract_text
from swink_agent.durable import Durable
from swink_agent.memory import LoadedSession

from .conftest import Fleet
from .fleet import STEPS


async def killed_again_and_again(
    url: str, fleet: Fleet, *, runs: int, kills: int, seed: int, stops: bool = False
) -> None:
    """Kills workers by chance while they have runs. With `stops`, some are only stopped, and woken too late."""
    dice = random.Random(seed)
    options = {"slots": 4, "poll": 0.1, "lease": 1 if stops else 30}
    async with Durable(url) as durable:
        for _ in range(3):
            fleet.start(**options)
        submitted = [await durable.submit("steps", f"run-{number}", id=f"run-{number}") for number in range(runs)]
        for _ in range(kills):
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            victim = dice.choice(fleet.workers)
            if stops and dice.random() < 0.5:
                fleet.signal(victim, signal.SIGSTOP)
                await asyncio.sleep(dice.uniform(0.5, 2.5))
                fleet.signal(victim, signal.SIGCONT)
            else:
                fleet.kill(victim)
                fleet.start(**options)
        try:
            for run in submitted:
                result = await run.result(timeout=60)
                assert result.error is None, (run.id, result.error)
            loaded = [await run.load() for run in submitted]
        except TimeoutError:
            raise AssertionError(f"{await durable.stats()}\n{fleet.log[-3000:]}") from None
    for session in loaded:
        check(session, fleet, stops=stops)


def check(session: LoadedSession, fleet: Fleet, *, stops: bool = False) -> None:
    """What is on record agrees with what happened. A worker that is stopped may do late what it was about to do."""
    assert session.info.problems == ()
    replies = [message for message in session.messages if isinstance(message, AssistantMessage)]
    assert len(replies) == STEPS + 1
    numbers = [record.number for record in session.records()]
    assert numbers == list(range(1, len(numbers) + 1))
    asked = [(int(step), nonce) for run, step, nonce, _ in fleet.marks("asked") if run == session.id]
    for step, reply in enumerate(replies):
        nonce = reply.text.split()[-1]
        last = [given for at, given in asked if at == step][-1]
        assert last == nonce or stops, f"reply {step} of {session.id} was asked for again although it was on record"
    ran = Counter(nonce for run, _, nonce, _ in fleet.marks("ran") if run == session.id)
    assert set(ran.values()) <= {1}, f"a call of {session.id} ran twice"
    results = [message for message in session.messages if isinstance(message, ToolResultMessage)]
    assert len(results) == STEPS
    for reply, result in zip(replies, results, strict=False):
        nonce = reply.tool_calls[0].arguments["nonce"]
        match result.outcome:
            case ToolOutcome.RAN:
                assert ran[nonce] == 1
            case ToolOutcome.LOST:
                assert extract_text(result.content).startswith("outcome unknown")
            case ToolOutcome.NEVER_RAN:
                assert ran[nonce] == 0
                assert extract_text(result.content).startswith("never ran")
            case other:
                raise AssertionError(other)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.sweep)])
async def test_workers_that_are_killed_lose_nothing(kind: str, url: str, fleet: Fleet) -> None:
    await killed_again_and_again(url, fleet, runs=6, kills=3, seed=1)


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
async def test_hundreds_of_kills_lose_nothing(kind: str, url: str, fleet: Fleet, seed: int) -> None:
    await killed_again_and_again(url, fleet, runs=60, kills=60, seed=seed + 100)


@pytest.mark.sweep
@pytest.mark.timeout(300)
async def test_workers_that_are_stopped_and_woken_do_no_harm(kind: str, url: str, fleet: Fleet) -> None:
    await killed_again_and_again(url, fleet, runs=30, kills=12, seed=7, stops=True)


@pytest.mark.sweep
async def test_a_run_that_kills_its_workers_fails_after_so_many_attempts(kind: str, url: str, fleet: Fleet) -> None:
    async with Durable(url) as durable:
        run = await durable.submit("poison", "go")
        other = await durable.submit("steps", "run-1", id="run-1")
        for dead in range(1, 3):
            fleet.start(poll=0.1)
            await _until(lambda dead=dead: len(fleet.marks("died")) == dead)
        fleet.start(poll=0.1)
        assert "2 attempts in a row" in str((await run.result(timeout=60)).error)
        assert (await other.result(timeout=60)).error is None
        assert len(fleet.marks("died")) == 2


@pytest.mark.sweep
async def test_a_dead_worker_is_taken_over_within_two_seconds(kind: str, url: str, fleet: Fleet) -> None:
    async with Durable(url) as durable:
        run = await durable.submit("long", "run-1", id="run-1")
        first = fleet.start()
        await _until(lambda: fleet.marks("ran"))
        fleet.start()
        await _until(lambda: fleet.log.count("serves") == 2)
        fleet.kill(first)
        died = time.monotonic()
        result = await run.result(timeout=60)
        assert result.text == "over"
        assert "outcome unknown" in extract_text(result.messages[2].content)
        asked = [int(at) for _, step, _, at in fleet.marks("asked") if step == "1"]
        assert asked[0] / 1e9 - died < 2
        assert (await run.info()).attempts == 2


async def _until(is_true: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
