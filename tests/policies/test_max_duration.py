"""MaxDuration limits the time of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from swink_agent import Agent, PolicyContext, tool
from swink_agent.policies import MaxDuration
from swink_agent.testing import FakeClock, call, fail, scripted, text

TurnFn = Callable[..., PolicyContext]


async def test_a_run_is_stopped_before_the_model_is_asked_again() -> None:
    clock = FakeClock()

    @tool
    async def work() -> str:
        """Works for a while."""
        clock.now += 4.0
        return "done"

    model = scripted(*[call("work")] * 9)
    result = await Agent("test:model", stream_fn=model, tools=[work], policies=[MaxDuration(10.0, clock.time)]).prompt(
        "go"
    )
    assert len(model.requests) == 3
    assert result.stopped_by is not None
    assert result.stopped_by.reason == "the run has taken 12.0 s of the 10 s it had; prompt again to continue"


async def test_a_run_is_stopped_before_its_tools_run() -> None:
    clock = FakeClock()
    ran: list[str] = []

    @tool
    async def work() -> str:
        """Works."""
        ran.append("work")
        return "done"

    def slowly(request: object) -> object:
        clock.now += 11.0
        return call("work")

    agent = Agent(
        "test:model",
        stream_fn=scripted(slowly),
        tools=[work],
        policies=[MaxDuration(10.0, clock.time)],  # type: ignore[arg-type]
    )
    result = await agent.prompt("go")
    assert ran == []
    assert result.stopped_by is not None
    assert result.stopped_by.policy == "max_duration"


async def test_retries_take_time_too() -> None:
    clock = FakeClock()
    model = scripted(fail("network"), fail("network"), text("never"))
    agent = Agent("test:model", stream_fn=model, policies=[MaxDuration(1.0, clock.time)], sleep=_slow(clock))
    result = await agent.prompt("go")
    assert len(model.requests) == 2
    assert result.stopped_by is not None


async def test_each_run_has_its_own_time() -> None:
    clock = FakeClock()
    agent = Agent("test:model", stream_fn=scripted("one", "two"), policies=[MaxDuration(10.0, clock.time)])
    assert (await agent.prompt("go")).text == "one"
    clock.now += 60.0
    assert (await agent.prompt("go")).text == "two"


def test_runs_at_the_same_time_do_not_share_it(turn: TurnFn) -> None:
    clock = FakeClock()
    policy = MaxDuration(10.0, clock.time)
    assert policy.pre_turn(turn(run_id=1)) is None
    clock.now += 8.0
    assert policy.pre_turn(turn(run_id=2)) is None
    clock.now += 8.0
    assert policy.pre_turn(turn(run_id=1, turn_index=1)) is not None
    assert policy.pre_turn(turn(run_id=2, turn_index=1)) is None


async def test_it_forgets_a_run_that_is_over() -> None:
    policy = MaxDuration(10.0)
    agent = Agent("test:model", stream_fn=scripted("one", fail("auth")), policies=[policy])
    await agent.prompt("go")
    await agent.prompt("again")
    assert len(policy._started) == 0


def _slow(clock: FakeClock) -> Callable[[float], object]:
    async def sleep(seconds: float) -> None:
        clock.now += 2.0
        await asyncio.sleep(0)

    return sleep
