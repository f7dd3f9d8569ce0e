"""A run as a stream of events: live, bounded, with a result, and ended when its reader leaves."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentLoopConfig,
    AlreadyRunning,
    AssistantMessageEvent,
    CancellationToken,
    EventStream,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnStart,
    agent_loop,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, names, reply, scripted, stall, text

MODEL = ModelSpec("test", "model")
ONE_TEXT_TURN = ["AgentStart", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]


class Torrent:
    """A stream function that never waits: it counts the deltas that were taken from it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.produced = 0

    async def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        for number in range(self.total):
            self.produced += 1
            yield TextDelta(0, f"{number} ")
        yield TextEnd(0)
        yield StreamDone()


async def turns_of_the_loop(count: int) -> None:
    """Lets everything run that can run without waiting for time to pass."""
    for _ in range(count):
        await asyncio.sleep(0)


async def read_until(stream: EventStream, kind: type[AgentEvent]) -> list[AgentEvent]:
    """Not with `async for`: leaving that would end the run."""
    events: list[AgentEvent] = []
    while not events or not isinstance(events[-1], kind):
        events.append(await anext(stream))
    return events


# -- reading -------------------------------------------------------------------------------------------------


async def test_events_are_read_while_the_reply_is_still_on_its_way() -> None:
    more = asyncio.Event()

    async def slow(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "one ")
        await more.wait()
        yield TextDelta(0, "two")
        yield TextEnd(0)
        yield StreamDone()

    agent = Agent(MODEL, stream_fn=slow)
    stream = agent.prompt_stream("hi")
    before = await read_until(stream, MessageUpdate)
    assert names(before) == ["AgentStart", "TurnStart", "MessageStart", "MessageUpdate"]
    more.set()
    after = await collect(stream)
    assert names(after) == ["MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]
    check_events(before + after)


async def test_the_result_after_reading_is_what_the_events_told() -> None:
    agent = Agent(MODEL, stream_fn=scripted("hello"))
    stream = agent.prompt_stream("hi")
    events = await collect(stream)
    result = await stream.result()
    assert names(events) == ONE_TEXT_TURN
    assert isinstance(events[-1], AgentEnd)
    assert result.messages == events[-1].messages
    assert result.text == "hello"
    assert (await stream.result()) is result


async def test_the_result_can_be_had_without_reading() -> None:
    agent = Agent(MODEL, stream_fn=Torrent(5000))
    result = await agent.prompt_stream("hi").result()
    assert result.text.startswith("0 1 2 ")
    assert result.text.endswith("4998 4999 ")
    assert not agent.is_running


async def test_the_result_can_be_asked_for_in_the_middle_and_the_rest_read_afterwards() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("abc", deltas=3)))
    stream = agent.prompt_stream("hi")
    before = await read_until(stream, MessageStart)
    result = await stream.result()
    after = await collect(stream)
    check_events(before + after)
    assert result.text == "abc"


async def test_events_waiting_for_their_reader_survive_a_request_for_the_result() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    stream = agent.prompt_stream("hi")
    await turns_of_the_loop(20)
    first = await anext(stream)
    await stream.result()
    events = [first, *await collect(stream)]
    assert names(events) == ONE_TEXT_TURN


async def test_the_result_can_be_awaited_beside_the_reader() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("abc", deltas=3), suspend=True))
    stream = agent.prompt_stream("hi")
    first = await anext(stream)
    result, rest = await asyncio.gather(stream.result(), collect(stream))
    check_events([first, *rest])
    assert result.text == "abc"


async def test_a_stream_that_was_read_to_its_end_has_nothing_more() -> None:
    stream = Agent(MODEL, stream_fn=scripted("ok")).prompt_stream("hi")
    await collect(stream)
    assert await collect(stream) == []
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_run_that_fails_ends_its_stream_without_raising() -> None:
    async def broken(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        raise ConnectionError("gone")

    stream = Agent(MODEL, stream_fn=broken).prompt_stream("hi")
    events = await collect(stream)
    check_events(events)
    result = await stream.result()
    assert result.stop_reason == StopReason.ERROR
    assert "gone" in str(result.error)


async def test_an_impatient_reader_can_come_back() -> None:
    more = asyncio.Event()

    async def slow(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        await more.wait()
        yield StreamDone()

    stream = Agent(MODEL, stream_fn=slow).prompt_stream("hi")
    before = await read_until(stream, MessageStart)
    waiting = asyncio.ensure_future(anext(stream))
    await turns_of_the_loop(5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    more.set()
    after = await collect(stream)
    check_events(before + after)


async def test_the_agent_is_idle_when_the_end_is_read() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("nothing"), "one", "two"))
    async for event in agent.prompt_stream("hi"):
        if isinstance(event, AgentEnd):
            assert not agent.is_running
            assert (await agent.prompt("again")).text == "two"
        else:
            assert agent.is_running


# -- how far a run may go ahead of its reader ----------------------------------------------------------------


async def test_a_slow_reader_holds_the_model_back_and_misses_nothing() -> None:
    torrent = Torrent(20_000)
    stream = Agent(MODEL, stream_fn=torrent).prompt_stream("hi")
    events = await read_until(stream, MessageUpdate)
    await turns_of_the_loop(2_000)
    waiting_at = torrent.produced
    assert waiting_at < 1_000
    await turns_of_the_loop(2_000)
    assert torrent.produced == waiting_at
    for _ in range(5_000):
        events.append(await anext(stream))
    await turns_of_the_loop(2_000)
    assert torrent.produced < 6_500
    events += await collect(stream)
    check_events(events)
    deltas = [event.delta.delta for event in events if isinstance(event, MessageUpdate)]
    assert deltas == [f"{number} " for number in range(20_000)]


async def test_a_reader_that_never_came_holds_the_model_back_too() -> None:
    torrent = Torrent(20_000)
    stream = Agent(MODEL, stream_fn=torrent).prompt_stream("hi")
    await turns_of_the_loop(2_000)
    assert torrent.produced < 1_000
    await stream.aclose()
    assert torrent.produced < 1_000


async def test_a_tool_faster_than_the_reader_fills_no_memory_and_loses_nothing() -> None:
    @tool
    async def chatter(ctx: ToolContext) -> str:
        """Reports a great deal."""
        for number in range(5_000):
            ctx.update(f"{number} ")
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(call("chatter"), "ok"), tools=[chatter])
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    updates = [event.update for event in events if isinstance(event, ToolExecutionUpdate)]
    assert len(updates) < 1_000
    assert "".join(extract_text(update.content) for update in updates) == "".join(f"{n} " for n in range(5_000))


async def test_updates_that_found_no_room_are_delivered_as_soon_as_there_is_some() -> None:
    seen = asyncio.Event()

    @tool
    async def chatter(ctx: ToolContext) -> str:
        """Reports a great deal, then waits until all of it was read."""
        for number in range(400):
            ctx.update(f"<{number}>")
        try:
            async with asyncio.timeout(30):
                await seen.wait()
        except TimeoutError:
            return "nobody read the last report"
        return "all was read"

    agent = Agent(MODEL, stream_fn=scripted(call("chatter"), "ok"), tools=[chatter])
    result_text = ""
    async for event in agent.prompt_stream("hi"):
        if isinstance(event, ToolExecutionUpdate) and "<399>" in extract_text(event.update.content):
            seen.set()
        if isinstance(event, ToolExecutionEnd):
            result_text = extract_text(event.result.content)
    assert result_text == "all was read"


async def test_tools_do_not_run_before_the_reader_has_returned_from_the_message() -> None:
    ran: list[str] = []

    @tool
    async def act() -> str:
        """Acts."""
        ran.append("tool")
        return "acted"

    agent = Agent(MODEL, stream_fn=scripted(call("act"), "ok"), tools=[act])
    async for event in agent.prompt_stream("hi"):
        if isinstance(event, MessageEnd) and event.message.tool_calls:
            await turns_of_the_loop(100)
            assert ran == []
            ran.append("reader")
    assert ran == ["reader", "tool"]


async def test_a_reader_that_aborts_at_the_message_keeps_its_tools_from_running() -> None:
    @tool
    async def danger() -> str:
        """Does what cannot be undone."""
        raise AssertionError("it ran")

    agent = Agent(MODEL, stream_fn=scripted(call("danger")), tools=[danger])
    stream = agent.prompt_stream("hi")
    events: list[AgentEvent] = []
    async for event in stream:
        events.append(event)
        if isinstance(event, MessageEnd):
            agent.abort()
    check_events(events)
    assert not any(isinstance(event, ToolExecutionStart) for event in events)
    assert (await stream.result()).stop_reason == StopReason.ABORTED


async def test_the_model_is_not_asked_again_before_the_reader_has_returned_from_the_turn() -> None:
    scripted_stream = scripted(call("nothing"), "ok")
    agent = Agent(MODEL, stream_fn=scripted_stream)
    requests: list[int] = []
    async for event in agent.prompt_stream("hi"):
        if isinstance(event, TurnEnd):
            await turns_of_the_loop(100)
            requests.append(len(scripted_stream.requests))
    assert requests == [1, 2]


async def test_steering_from_the_reader_of_a_turn_leads_the_next_one() -> None:
    agent = Agent(MODEL, stream_fn=scripted("one", "two"))
    events: list[AgentEvent] = []
    async for event in agent.prompt_stream("hi"):
        events.append(event)
        if isinstance(event, TurnEnd) and event.turn_index == 0:
            agent.steer("and?")
    check_events(events)
    assert names(events).count("MessagesInjected") == 1
    assert [extract_text(message.content) for message in agent.messages] == ["hi", "one", "and?", "two"]


# -- leaving early -------------------------------------------------------------------------------------------


async def test_breaking_off_and_dropping_the_stream_cancels_the_run() -> None:
    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    agent.subscribe(seen.append)
    async for event in agent.prompt_stream("hi"):
        if isinstance(event, MessageUpdate):
            break
    gc.collect()
    async with asyncio.timeout(30):
        await agent.wait_for_idle()
    check_events(seen)
    last = seen[-2]
    assert isinstance(last, TurnEnd)
    assert last.message is not None
    assert (last.message.text, last.message.stop_reason) == ("half", StopReason.ABORTED)
    assert (await agent.prompt("again")).text == "whole"


async def test_a_stream_that_nobody_kept_cancels_its_run() -> None:
    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    agent.subscribe(seen.append)
    agent.prompt_stream("hi")
    gc.collect()
    async with asyncio.timeout(30):
        await agent.wait_for_idle()
    check_events(seen)
    assert not agent.is_running


async def test_a_stream_that_is_read_one_by_one_can_be_kept_for_later() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("abc", deltas=3)))
    stream = agent.prompt_stream("hi")
    before = await read_until(stream, MessageUpdate)
    gc.collect()
    await turns_of_the_loop(20)
    assert agent.is_running
    check_events(before + await collect(stream))


class Leaving(Exception):
    pass


async def _with_break(stream: EventStream) -> None:
    async for event in stream:
        if isinstance(event, MessageUpdate):
            break


async def _with_an_exception(stream: EventStream) -> None:
    async for event in stream:
        if isinstance(event, MessageUpdate):
            raise Leaving


async def _until_cancelled(stream: EventStream) -> None:
    async for _ in stream:
        pass


async def _until_cancelled_between_two_events(stream: EventStream) -> None:
    async for event in stream:
        if isinstance(event, MessageUpdate):
            await asyncio.Event().wait()


async def _one_by_one_until_cancelled(stream: EventStream) -> None:
    while True:
        await anext(stream)


WAYS_TO_LEAVE = {
    "break": _with_break,
    "an exception": _with_an_exception,
    "cancelled while it waits": _until_cancelled,
    "cancelled between two events": _until_cancelled_between_two_events,
    "cancelled, one by one": _one_by_one_until_cancelled,
}


@pytest.mark.parametrize("way", WAYS_TO_LEAVE)
async def test_leaving_a_stream_ends_the_run_whatever_still_refers_to_it(way: str) -> None:
    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    agent.subscribe(seen.append)
    stream = agent.prompt_stream("hi")
    reader = asyncio.ensure_future(WAYS_TO_LEAVE[way](stream))
    kept: list[object] = [stream, reader]
    await turns_of_the_loop(20)
    assert any(isinstance(event, MessageUpdate) for event in seen)
    reader.cancel()
    try:
        await reader
    except (asyncio.CancelledError, Leaving) as error:
        kept.append(error)
    async with asyncio.timeout(30):
        await agent.wait_for_idle()
    check_events(seen)
    assert (await stream.result()).stop_reason == StopReason.ABORTED
    assert (await agent.prompt("again")).text == "whole"
    assert kept


async def test_a_reader_with_a_time_limit_can_come_back() -> None:
    go_on = asyncio.Event()

    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        await go_on.wait()
        yield TextDelta(0, "whole")
        yield TextEnd(0)
        yield StreamDone()

    stream = Agent(MODEL, stream_fn=model).prompt_stream("hi")
    await read_until(stream, MessageStart)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
    go_on.set()
    assert await read_until(stream, AgentEnd)
    assert (await stream.result()).text == "whole"


async def test_a_reader_with_a_time_limit_may_do_something_else_before_it_comes_back() -> None:
    go_on = asyncio.Event()

    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        await go_on.wait()
        yield StreamDone()

    agent = Agent(MODEL, stream_fn=model)
    stream = agent.prompt_stream("hi")
    await read_until(stream, MessageStart)
    for limited in (_waiting_for_it, _under_a_timeout):
        with pytest.raises(TimeoutError):
            await limited(stream)
        await asyncio.sleep(0.08)  # longer than a reader that was cancelled is waited for
        assert agent.is_running
    go_on.set()
    assert await read_until(stream, AgentEnd)
    assert (await stream.result()).stop_reason == StopReason.STOP


async def _waiting_for_it(stream: EventStream) -> None:
    await asyncio.wait_for(anext(stream), 0.01)


async def _under_a_timeout(stream: EventStream) -> None:
    async with asyncio.timeout(0.01):
        await anext(stream)


async def test_a_reader_that_is_cancelled_while_it_waits_with_a_time_limit_has_left() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    stream = agent.prompt_stream("hi")

    async def read() -> None:
        while True:
            await asyncio.wait_for(anext(stream), 60)

    reader = asyncio.ensure_future(read())
    await turns_of_the_loop(20)
    reader.cancel()
    async with asyncio.timeout(30):
        await agent.wait_for_idle()
    assert (await stream.result()).stop_reason == StopReason.ABORTED


async def test_two_readers_of_one_stream_share_its_events_and_both_come_to_the_end() -> None:
    stream = Agent(MODEL, stream_fn=scripted(text("abcdef", deltas=6))).prompt_stream("hi")

    async def read() -> list[AgentEvent]:
        return [event async for event in stream]

    async with asyncio.timeout(30):
        one, other = await asyncio.gather(read(), read())
    assert sorted(names([*one, *other])) == sorted([*ONE_TEXT_TURN, *["MessageUpdate"] * 5])


async def test_of_two_readers_one_that_is_cancelled_takes_nothing_from_the_other() -> None:
    go_on = asyncio.Event()

    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        await go_on.wait()
        yield StreamDone()

    stream = Agent(MODEL, stream_fn=model).prompt_stream("hi")
    await read_until(stream, MessageStart)
    one, other = (asyncio.ensure_future(_only_the_next(stream)) for _ in range(2))
    await turns_of_the_loop(5)
    one.cancel()
    await turns_of_the_loop(5)
    go_on.set()
    async with asyncio.timeout(30):
        assert isinstance(await other, MessageEnd)
        assert await read_until(stream, AgentEnd)


async def _only_the_next(stream: EventStream) -> AgentEvent:
    return await anext(stream)


async def test_leaving_an_async_with_cancels_the_run_and_waits_for_its_end() -> None:
    cancelled: list[bool] = []

    @tool
    async def wait() -> str:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return "never"

    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(call("wait"), "ok"), tools=[wait])
    agent.subscribe(seen.append)
    async with agent.prompt_stream("hi") as stream:
        await read_until(stream, ToolExecutionStart)
        assert agent.is_running
    assert not agent.is_running
    assert cancelled == [True]
    check_events(seen)
    assert (await stream.result()).stop_reason == StopReason.ABORTED
    assert await collect(stream) == []


async def test_an_error_inside_an_async_with_cancels_the_run_and_goes_through() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))

    async def show() -> None:
        async with agent.prompt_stream("hi") as stream:
            await anext(stream)
            raise RuntimeError("display gone")

    with pytest.raises(RuntimeError, match="display gone"):
        await show()
    assert not agent.is_running


async def test_leaving_an_async_with_after_the_end_changes_nothing() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    async with agent.prompt_stream("hi") as stream:
        events = await collect(stream)
    assert names(events) == ONE_TEXT_TURN
    assert (await stream.result()).stop_reason == StopReason.STOP
    assert agent.last_error is None


async def test_closing_twice_is_once() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    stream = agent.prompt_stream("hi")
    await stream.aclose()
    await stream.aclose()
    assert not agent.is_running


async def test_the_task_of_a_run_may_be_cancelled_before_its_first_step() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok", "ok"))
    before = asyncio.all_tasks()
    stream = agent.prompt_stream("hi")
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await turns_of_the_loop(5)
    assert await collect(stream) == []
    assert not agent.is_running
    await agent.wait_for_idle()
    assert (await agent.prompt("again")).text == "ok"


async def test_a_stream_of_the_bare_loop_ends_when_it_is_dropped() -> None:
    ended = asyncio.Event()

    async def endless(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        try:
            yield StreamStart()
            await asyncio.Event().wait()
        finally:
            ended.set()

    config = AgentLoopConfig(model=MODEL, stream_fn=endless)
    stream = agent_loop("hi", AgentContext(), config)
    await read_until(stream, MessageStart)
    await turns_of_the_loop(5)
    assert not ended.is_set()
    del stream
    gc.collect()
    async with asyncio.timeout(30):
        await ended.wait()


# -- without an event loop -----------------------------------------------------------------------------------


def test_a_stream_made_without_a_running_loop_starts_when_it_is_read() -> None:
    scripted_stream = scripted("ok")
    agent = Agent(MODEL, stream_fn=scripted_stream)
    stream = agent.prompt_stream("hi")
    assert agent.is_running
    assert scripted_stream.requests == []
    events = asyncio.run(collect(stream))
    assert names(events) == ONE_TEXT_TURN
    assert not agent.is_running


def test_a_stream_made_without_a_running_loop_starts_when_its_result_is_asked_for() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    stream = agent.prompt_stream("hi")

    async def result() -> str:
        return (await stream.result()).text

    assert asyncio.run(result()) == "ok"


def test_a_stream_that_was_never_started_and_is_dropped_frees_the_agent() -> None:
    seen: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(seen.append)
    stream = agent.prompt_stream("never read")
    with pytest.raises(AlreadyRunning):
        agent.prompt_sync("too early")
    del stream
    gc.collect()
    assert not agent.is_running
    assert seen == []
    assert agent.messages == []
    assert agent.prompt_sync("hi").text == "ok"


def test_a_stream_that_was_never_started_and_is_closed_frees_the_agent() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"), messages=["hi"])
    stream = agent.continue_loop_stream()

    async def leave() -> None:
        async with stream:
            pass

    asyncio.run(leave())
    assert not agent.is_running
    assert agent.continue_loop_sync().text == "ok"


def test_a_stream_that_was_closed_before_it_started_never_starts() -> None:
    scripted_stream = scripted("first", "second")
    agent = Agent(MODEL, stream_fn=scripted_stream)
    closed = agent.prompt_stream("closed")

    async def read_it_all_the_same() -> None:
        await closed.aclose()
        other = agent.prompt_stream("other")
        await read_until(other, TurnStart)
        assert await collect(closed) == []
        assert agent.is_running
        assert (await other.result()).text == "first"

    asyncio.run(read_it_all_the_same())
    assert [extract_text(message.content) for message in agent.messages] == ["other", "first"]
    assert len(scripted_stream.requests) == 1


def test_an_agent_whose_event_loop_went_away_can_run_again_in_another() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))

    async def leave_it_running() -> EventStream:
        stream = agent.prompt_stream("hi")
        await read_until(stream, MessageUpdate)
        return stream

    stream = asyncio.run(leave_it_running())
    assert not agent.is_running
    assert asyncio.run(agent.prompt("again")).text == "whole"
    del stream


COLLECTED_UNDER_A_LOCK = """
import gc
from swink_agent import Agent, AlreadyRunning
from swink_agent.testing import scripted

agent = Agent("test:model", stream_fn=scripted())

def drop_a_stream_in_a_cycle():
    cycle = [agent.prompt_stream("never read")]
    cycle.append(cycle)

gc.disable()
for allocations in range(1, 60):
    drop_a_stream_in_a_cycle()
    gc.set_threshold(allocations)
    gc.enable()
    try:
        agent.prompt_stream("second")
    except AlreadyRunning:
        pass
    gc.disable()
    gc.collect()
    assert not agent.is_running
"""


@pytest.mark.slow
@pytest.mark.sweep
def test_a_dropped_stream_may_be_collected_while_the_agent_holds_its_lock() -> None:
    # In a process of its own: the collector that waits for its own thread's lock never comes back.
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", COLLECTED_UNDER_A_LOCK],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
