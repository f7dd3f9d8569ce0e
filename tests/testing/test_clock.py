"""The fake clock: time passes only when a test advances it."""

from __future__ import annotations

import asyncio
import time

import pytest

from swink_agent import Agent, MessageRetry, StopReason
from swink_agent.testing import FakeClock, collect, fail, scripted


async def nap(clock: FakeClock, seconds: float, log: list[tuple[float, float]]) -> None:
    await clock.sleep(seconds)
    log.append((seconds, clock.time()))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# -- by itself -----------------------------------------------------------------------------------------------


async def test_by_default_a_sleep_takes_no_time_and_moves_the_clock_on() -> None:
    clock = FakeClock(100.0)
    before = time.monotonic()
    await clock.sleep(3600)
    await clock.sleep(0.5)
    assert time.monotonic() - before < 20
    assert clock.time() == clock.now == 3700.5
    assert clock.sleeps == [3600, 0.5]


async def test_a_sleep_lets_others_run() -> None:
    clock = FakeClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(1)
    order.append("sleeper")
    await task
    assert order == ["other", "sleeper"]


async def test_a_sleep_can_be_cancelled() -> None:
    for clock in (FakeClock(), FakeClock(auto=False)):
        task = asyncio.create_task(clock.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clock.time() == 0.0


# -- by hand -------------------------------------------------------------------------------------------------


async def test_a_clock_that_is_moved_by_hand_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(10.0, auto=False)
    log: list[tuple[float, float]] = []
    task = asyncio.create_task(nap(clock, 5, log))
    await settle()
    assert (log, clock.time()) == ([], 10.0)
    await clock.advance(4.9)
    assert (log, clock.time()) == ([], 14.9)
    await clock.advance(0.2)
    assert log == [(5, 15.0)]
    assert clock.time() == pytest.approx(15.1)
    await task


async def test_sleepers_wake_in_the_order_of_their_times_each_at_its_own() -> None:
    clock = FakeClock(auto=False)
    log: list[tuple[float, float]] = []
    tasks = [asyncio.create_task(nap(clock, seconds, log)) for seconds in (3, 1, 2)]
    await settle()
    await clock.advance(10)
    assert log == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert clock.sleeps == [3, 1, 2]
    await asyncio.gather(*tasks)


async def test_sleepers_of_one_time_wake_in_the_order_in_which_they_lay_down() -> None:
    clock = FakeClock(auto=False)
    order: list[int] = []

    async def sleeper(number: int) -> None:
        await clock.sleep(1)
        order.append(number)

    tasks = [asyncio.create_task(sleeper(number)) for number in range(10)]
    await settle()
    await clock.advance(1)
    assert order == list(range(10))
    await asyncio.gather(*tasks)


async def test_a_sleeper_that_lies_down_again_is_woken_again_in_the_same_move() -> None:
    clock = FakeClock(auto=False)
    times: list[float] = []

    async def twice() -> None:
        for _ in range(3):
            await clock.sleep(2)
            times.append(clock.time())

    task = asyncio.create_task(twice())
    await settle()
    await clock.advance(5)
    assert times == [2.0, 4.0]
    await clock.advance(1)
    assert times == [2.0, 4.0, 6.0]
    await task


async def test_a_sleeper_that_was_cancelled_is_passed_over() -> None:
    clock = FakeClock(auto=False)
    log: list[tuple[float, float]] = []
    first = asyncio.create_task(nap(clock, 1, log))
    second = asyncio.create_task(nap(clock, 2, log))
    await settle()
    first.cancel()
    await asyncio.wait([first])
    await clock.advance(3)
    assert log == [(2, 2.0)]
    await second


# -- with an agent -------------------------------------------------------------------------------------------


async def test_an_agent_waits_by_the_clock() -> None:
    clock = FakeClock()
    stream = scripted(fail("throttled", retry_after=30.0), fail("network", retry_after=90.0), "ok")
    result = await Agent("test:model", stream_fn=stream, sleep=clock.sleep).prompt("hi")
    assert result.text == "ok"
    assert clock.sleeps == [30.0, 90.0]
    assert clock.time() == 120.0


async def test_a_test_can_look_at_an_agent_while_it_waits() -> None:
    clock = FakeClock(auto=False)
    stream = scripted(fail("throttled", retry_after=30.0), "ok")
    agent = Agent("test:model", stream_fn=stream, sleep=clock.sleep)
    reading = asyncio.create_task(collect(agent.prompt_stream("hi")))
    while not clock.sleeps:  # noqa: ASYNC110 - whatever the number of turns of the loop is
        await asyncio.sleep(0)
    await clock.advance(29.0)
    assert len(stream.requests) == 1
    await clock.advance(1.0)
    events = await reading
    assert len(stream.requests) == 2
    assert [event.delay for event in events if isinstance(event, MessageRetry)] == [30.0]


async def test_an_abort_ends_a_wait_that_the_clock_never_would() -> None:
    clock = FakeClock(auto=False)
    agent = Agent("test:model", stream_fn=scripted(fail("network")), sleep=clock.sleep)
    running = asyncio.create_task(agent.prompt("hi"))
    while not clock.sleeps:  # noqa: ASYNC110 - whatever the number of turns of the loop is
        await asyncio.sleep(0)
    agent.abort()
    assert (await running).stop_reason == StopReason.ABORTED
    assert clock.time() == 0.0
