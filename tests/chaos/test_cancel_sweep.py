"""A run can be cancelled anywhere: at the n-th suspension point, for every n until the run completes by itself."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Inject,
    PolicyContext,
    PreDispatchContext,
    ProposedCall,
    StopReason,
    SummarizingCompactor,
    ToolContext,
    ToolResultMessage,
    tool,
)
from swink_agent.testing import FakeClock, call, check_conversation, check_events, fail, scripted, text, think

PROMPTLY = 0.1
"""Seconds from the cancellation to the end of the run."""

Promptly = Callable[[float], AbstractContextManager[None]]


class TooSlowError(AssertionError):
    """The run ended too late."""


class Points:
    """Counts the suspension points of a run and does something at the n-th."""

    def __init__(self, target: int, action: Callable[[], None]) -> None:
        self.target = target
        self.action = action
        self.passed = 0
        self.cancelled_at: float | None = None

    async def point(self) -> None:
        self.passed += 1
        if self.passed == self.target:
            self.cancelled_at = time.monotonic()
            self.action()
        await asyncio.sleep(0)


# -- scenarios -----------------------------------------------------------------------------------------------

Scenario = Callable[[Points], Agent]


def through(points: Points, stream: Any) -> Any:
    """The stream function with a suspension point before every event."""

    async def suspended(*arguments: Any) -> Any:
        async for event in stream(*arguments):
            await points.point()
            yield event

    return suspended


def text_scenario(points: Points) -> Agent:
    return Agent("a:b", stream_fn=through(points, scripted([think("hm"), text("hello world", deltas=4)])))


def tools_scenario(points: Points) -> Agent:
    @tool
    async def step(ctx: ToolContext, times: int) -> str:
        for number in range(times):
            await points.point()
            ctx.update(f"{number}")
        return "stepped"

    @tool(on_steer="finish")
    async def thorough() -> str:
        await points.point()
        await points.point()
        return "done"

    batch = [call("step", times=1), call("step", times=3), call("thorough"), call("unknown"), call("step", times="x")]
    agent = Agent(
        "a:b",
        stream_fn=through(points, scripted(batch, call("step", times=2), text("end"), text("more"))),
        tools=[step, thorough],
    )
    agent.steer("by the way")
    agent.follow_up("and then")
    return agent


def approval_scenario(points: Points) -> Agent:
    @tool(requires_approval=True)
    async def careful(n: int) -> int:
        await points.point()
        return n

    async def approve(request: ProposedCall) -> bool:
        await points.point()
        await points.point()
        return request.arguments["n"] != 2

    batch = [call("careful", n=1), call("careful", n=2), call("careful", n=3)]
    return Agent("a:b", stream_fn=scripted(batch, text("end")), tools=[careful], approve=approve)


def back_off_scenario(points: Points) -> Agent:
    async def sleep(seconds: float) -> None:
        await points.point()
        await points.point()

    replies = [[text("par"), fail("throttled")], fail("network", retry_after=5), text("whole")]
    fallback = scripted(text("never needed"))
    return Agent("a:b", stream_fn=through(points, scripted(*replies)), sleep=sleep, fallbacks=[("c:d", fallback)])


def transform_scenario(points: Points) -> Agent:
    async def shorten(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        await points.point()
        await points.point()
        return messages[1:] if overflow or len(messages) > 3 else None

    async def convert(message: AgentMessage) -> Any:
        await points.point()
        return message

    async def key(provider: str) -> str:
        await points.point()
        return "k"

    return Agent(
        "a:b",
        stream_fn=through(points, scripted(fail("context_overflow"), text("fits"))),
        messages=["one", AssistantMessage("two"), "three", AssistantMessage("four"), "five"],
        async_transform_context=shorten,
        transform_context=shorten,
        convert_to_llm=convert,
        get_api_key=key,
    )


def summary_scenario(points: Points) -> Agent:
    class Careful:
        on_every_request = True

        async def pre_turn(self, ctx: PolicyContext) -> None:
            await points.point()

        async def post_turn(self, ctx: PolicyContext) -> None:
            await points.point()

    async def key(provider: str) -> str:
        await points.point()
        return "k"

    talk = [message for number in range(9) for message in (f"question {number}", AssistantMessage("yes " * 40))]
    replies = [text("the summary", deltas=2), fail("context_overflow"), text("a shorter one"), text("fits")]
    return Agent(
        "a:b",
        stream_fn=through(points, scripted(*replies)),
        messages=talk,
        transform_context=SummarizingCompactor(max_tokens=300, keep_recent=120),
        policies=[Careful()],
        get_api_key=key,
    )


class Watcher:
    """A policy that takes its time in every slot."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.loops = 0

    async def pre_turn(self, ctx: PolicyContext) -> None:
        await self.points.point()

    async def pre_dispatch(self, ctx: PreDispatchContext) -> None:
        await self.points.point()

    async def post_turn(self, ctx: PolicyContext) -> Any:
        await self.points.point()
        return Inject("noted") if ctx.turn_index == 0 else None

    async def post_loop(self, ctx: PolicyContext) -> Any:
        await self.points.point()
        self.loops += 1
        return Inject("once more") if self.loops == 1 else None


def policies_scenario(points: Points) -> Agent:
    @tool
    async def step() -> str:
        await points.point()
        return "ok"

    class Provider:
        async def poll_steering(self) -> list[AgentMessage]:
            await points.point()
            return []

        async def poll_follow_up(self) -> list[AgentMessage]:
            await points.point()
            return []

    model = scripted([call("step"), call("step")], text("done"), text("again"))
    return Agent("a:b", stream_fn=model, tools=[step], policies=[Watcher(points)], message_provider=Provider())


SCENARIOS: dict[str, Scenario] = {
    "text": text_scenario,
    "tools": tools_scenario,
    "approval": approval_scenario,
    "back-off": back_off_scenario,
    "transforms": transform_scenario,
    "summaries": summary_scenario,
    "policies": policies_scenario,
}


# -- ways to cancel ------------------------------------------------------------------------------------------


async def by_abort(agent: Agent, points: Points) -> AgentResult | None:
    points.action = agent.abort
    return await agent.prompt("go")


async def by_abort_from_a_thread(agent: Agent, points: Points) -> AgentResult | None:
    def abort() -> None:
        thread = threading.Thread(target=agent.abort)
        thread.start()
        thread.join()

    points.action = abort
    return await agent.prompt("go")


async def by_cancelling_the_task(agent: Agent, points: Points) -> AgentResult | None:
    task = asyncio.ensure_future(agent.prompt("go"))
    points.action = lambda: _cancel(task)
    try:
        return await task
    except asyncio.CancelledError:
        assert task.cancelled()
        return None


async def by_leaving_the_stream(agent: Agent, points: Points) -> AgentResult | None:
    left = asyncio.Event()
    points.action = left.set

    async def read() -> None:
        async for _ in stream:
            pass

    async with agent.prompt_stream("go") as stream:
        reading, leaving = asyncio.ensure_future(read()), asyncio.ensure_future(left.wait())
        await asyncio.wait([reading, leaving], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([reading])
    leaving.cancel()
    await asyncio.wait([leaving])
    result = await stream.result()
    # Between the point and the leaving there are a few turns of the loop, in which a run may just have ended.
    return None if left.is_set() and result.stop_reason == StopReason.STOP else result


def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()


WAYS: dict[str, Callable[[Agent, Points], Awaitable[AgentResult | None]]] = {
    "abort": by_abort,
    "abort from a thread": by_abort_from_a_thread,
    "cancelled task": by_cancelling_the_task,
    "left stream": by_leaving_the_stream,
}


# -- the sweep -----------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_cancelled_at_its_nth_suspension_point_ends_in_order(scenario: str, way: str) -> None:
    target, is_complete = 0, False
    while not is_complete:
        target += 1
        assert target < 200, "the scenario never completes"
        is_complete = run_once(SCENARIOS[scenario], WAYS[way], target)
    gc.collect()
    assert target > 3, "the sweep found nothing to cancel"


def run_once(scenario: Scenario, way: Callable[[Agent, Points], Awaitable[Any]], target: int) -> bool:
    """One run, cancelled at the target; says whether it was over before that."""
    for tries_left in (2, 1, 0):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            points = Points(target, lambda: None)
            try:
                completed = asyncio.run(checked_run(scenario(points), way, points))
            except TooSlowError:
                if not tries_left:
                    raise
                continue  # a busy machine may take its time once, a run that hangs takes it every time
            finally:
                gc.collect(1)  # what a run made is young; all of it is looked at once more when the sweep is over
        return completed
    raise AssertionError("unreachable")


async def checked_run(agent: Agent, way: Callable[[Agent, Points], Awaitable[Any]], points: Points) -> bool:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    before = list(agent.messages)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    async with asyncio.timeout(30):
        result = await way(agent, points)
    ended = time.monotonic()
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left: {left}"
    assert not problems
    assert not agent.is_running
    check_events(events)
    added = list(agent.messages)[len(before) :]
    assert list(agent.messages)[: len(before)] == before
    assert list(events[-1].messages) == added  # type: ignore[union-attr]
    check_calls(added)
    if result is not None:
        assert list(result.messages) == added
    if points.cancelled_at is None:
        assert result is not None
        assert result.stop_reason == StopReason.STOP, result
        return True
    if ended - points.cancelled_at >= PROMPTLY:
        raise TooSlowError(f"it took {ended - points.cancelled_at:.3f} s to end")
    assert result is None or result.stop_reason == StopReason.ABORTED
    check_can_go_on(agent)
    return False


def check_calls(messages: list[AgentMessage]) -> None:
    calls = [item.id for message in messages if isinstance(message, AssistantMessage) for item in message.tool_calls]
    results = [message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)]
    assert results == calls


def check_can_go_on(agent: Agent) -> None:
    """What the cancelled run left is a history that the next request can be made from."""
    model = scripted(text("fine"))
    other = Agent("a:b", stream_fn=model, messages=list(agent.messages))
    sent: list[Any] = []

    async def run() -> None:
        await other.prompt("are you there?")
        sent.extend(model.requests[0].messages)

    loop_result = threading.Thread(target=lambda: asyncio.run(run()))
    loop_result.start()
    loop_result.join()
    check_conversation(sent)


# -- those that do not cooperate -----------------------------------------------------------------------------


async def test_a_tool_that_swallows_its_cancellation_does_not_hold_up_an_abort(promptly: Promptly) -> None:
    released = asyncio.Event()

    @tool
    async def stubborn() -> str:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    agent = Agent("a:b", stream_fn=scripted([call("stubborn"), call("stubborn")], text("end")), tools=[stubborn])
    agent.subscribe(lambda event: agent.abort() if type(event).__name__ == "ToolExecutionStart" else None)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    try:
        await _ends(agent, promptly)
    finally:
        released.set()
    check_events(events)


async def test_a_stream_function_that_swallows_its_cancellation_does_not_hold_up_an_abort(
    promptly: Promptly,
) -> None:
    released = asyncio.Event()

    async def stubborn(*_: Any) -> Any:
        from swink_agent import StreamStart, TextDelta, TextStart

        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "so far")
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    agent = Agent("a:b", stream_fn=stubborn)
    try:
        result = await _ends(agent, promptly)
    finally:
        released.set()
    assert result.text == "so far"


async def test_an_approval_that_never_comes_does_not_hold_up_an_abort(promptly: Promptly) -> None:
    @tool(requires_approval=True)
    async def careful() -> str:
        return "never"

    async def approve(_: ProposedCall) -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    agent = Agent("a:b", stream_fn=scripted(call("careful"), text("end")), tools=[careful], approve=approve)
    await _ends(agent, promptly)


async def test_a_back_off_of_five_minutes_ends_with_the_abort(promptly: Promptly) -> None:
    agent = Agent("a:b", stream_fn=scripted(fail("throttled", retry_after=300)), sleep=FakeClock(auto=False).sleep)
    await _ends(agent, promptly)


async def test_a_reader_that_never_reads_does_not_hold_up_an_abort(promptly: Promptly) -> None:
    agent = Agent("a:b", stream_fn=scripted(text("x" * 5000, deltas=5000)))
    stream = agent.prompt_stream("go")
    for _ in range(10):
        await asyncio.sleep(0)
    with promptly(PROMPTLY):
        agent.abort()
        await agent.wait_for_idle()
    check_events([event async for event in stream])


async def _ends(agent: Agent, promptly: Promptly) -> AgentResult:
    task = asyncio.ensure_future(agent.prompt("go"))
    for _ in range(10):
        await asyncio.sleep(0)
    with promptly(PROMPTLY):
        agent.abort()
        result = await task
    assert result.stop_reason == StopReason.ABORTED
    await asyncio.sleep(0)
    return result
