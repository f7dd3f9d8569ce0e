"""What follows an abort: the next run waits for the end of the aborted one, and nothing more is asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentEvent,
    AgentMessage,
    AlreadyRunning,
    AssistantMessage,
    AssistantMessageEvent,
    ErrorKind,
    MessageUpdate,
    ModelSpec,
    NoMessages,
    StopReason,
    StreamFailed,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    Usage,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, fail, names, reply, scripted, stall

MODEL = ModelSpec("test", "model")


async def streaming(agent: Agent) -> asyncio.Task[Any]:
    """A run of the agent that has begun to stream."""
    began = asyncio.Event()
    agent.subscribe(lambda event: began.set() if isinstance(event, MessageUpdate) else None)
    task = asyncio.ensure_future(agent.prompt("first"))
    await began.wait()
    return task


# -- the run after an abort ------------------------------------------------------------------------------------


async def test_a_prompt_after_an_abort_waits_for_the_end_of_that_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    first = await streaming(agent)
    agent.abort()
    second = await agent.prompt("second")
    assert first.done()
    assert second.text == "whole"
    end = [type(event).__name__ for event in seen].index("AgentEnd")
    check_events(seen[: end + 1])
    check_events(seen[end + 1 :])
    assert [extract_text(message.content) for message in agent.messages] == ["first", "half", "second", "whole"]


async def test_streams_structured_output_and_continuations_wait_for_an_aborted_run_too() -> None:
    answer = call("final_answer", word="x")
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "two", reply("half", stall()), answer))
    await streaming(agent)
    agent.abort()
    assert (await agent.prompt_stream("second").result()).text == "two"
    await streaming(agent)
    agent.abort()
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    assert await agent.structured_output("third", schema) == {"word": "x"}


async def test_a_continuation_after_an_abort_looks_at_the_history_when_that_run_is_over() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    await streaming(agent)
    agent.abort()
    assert (await agent.continue_loop()).text == "whole"  # the aborted reply does not count as an answer
    empty = Agent(MODEL, stream_fn=scripted())
    with pytest.raises(NoMessages):
        await empty.continue_loop()


async def test_of_two_prompts_after_an_abort_the_second_is_refused() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    await streaming(agent)
    agent.abort()
    second = asyncio.ensure_future(agent.prompt("second"))
    await asyncio.sleep(0)
    with pytest.raises(AlreadyRunning):
        await agent.prompt("third")
    assert (await second).text == "whole"


async def test_an_abort_of_a_prompt_that_still_waits_ends_it_as_any_other() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "never"))
    await streaming(agent)
    agent.abort()
    second = agent.prompt_stream("second")
    agent.abort()
    events = await collect(second)
    check_events(events)
    assert (await second.result()).stop_reason == StopReason.ABORTED
    assert not agent.is_running


async def test_blocking_the_event_loop_of_an_aborted_run_is_refused() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    await streaming(agent)
    agent.abort()
    with pytest.raises(AlreadyRunning, match="wait_for_idle"):
        agent.prompt_sync("second")
    await agent.wait_for_idle()
    assert agent.prompt_sync("second").text == "whole"


async def test_blocking_is_refused_also_when_the_abort_comes_at_the_last_moment() -> None:
    class Checked:
        """A stream function whose check, which comes right before a run begins, is the moment of an abort."""

        def __init__(self) -> None:
            self.script = scripted(reply("half", stall()), "whole")
            self.checks = 0

        def __call__(self, *arguments: Any) -> Any:
            return self.script(*arguments)

        def check(self, *_: Any) -> None:
            self.checks += 1
            if self.checks == 2:
                agent.abort()

    agent = Agent(MODEL, stream_fn=Checked())
    first = await streaming(agent)
    with pytest.raises(AlreadyRunning, match="wait_for_idle"):
        agent.prompt_sync("second")
    assert (await first).stop_reason == StopReason.ABORTED
    assert agent.prompt_sync("second").text == "whole"


async def test_blocking_is_refused_also_behind_others_in_this_event_loop() -> None:
    slow = Slow()
    agent = Agent(MODEL, stream_fn=scripted(call("slow"), "whole"), tools=[slow.tool()])
    first = asyncio.ensure_future(agent.prompt("first"))
    await slow.started.wait()
    agent.abort()
    second = asyncio.ensure_future(asyncio.to_thread(agent.prompt_sync, "second"))
    while True:
        try:
            agent.prompt_sync("too early")
        except AlreadyRunning as error:
            if "wait_for_idle() first" in str(error) and "event loop" not in str(error):
                break  # the second one waits by now
        await asyncio.sleep(0)
    agent.abort()
    with pytest.raises(AlreadyRunning, match="in this event loop"):
        agent.prompt_sync("third")
    await asyncio.gather(first, second)
    assert not agent.is_running
    await slow.ended.wait()  # on a machine with other work the run may go on without it


async def test_a_prompt_from_another_thread_waits_for_an_aborted_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "whole"))
    await streaming(agent)
    agent.abort()
    assert (await asyncio.to_thread(agent.prompt_sync, "second")).text == "whole"


class Slow:
    """A tool that ends only when it is released; it ignores cancellation."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    def tool(self) -> Any:
        @tool
        async def slow() -> str:
            """Waits."""
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.03)
                self.ended.set()
            return "never"

        return slow


@pytest.mark.parametrize("aborts_it_too", [False, True], ids=["cancelled", "aborted, then cancelled"])
async def test_a_prompt_cancelled_while_waiting_lets_no_run_start_beside_the_aborted(
    aborts_it_too: bool,
) -> None:
    slow = Slow()
    agent = Agent(MODEL, stream_fn=scripted(call("slow"), "whole"), tools=[slow.tool()])
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    first = asyncio.ensure_future(agent.prompt("first"))
    await slow.started.wait()
    agent.abort()
    second = asyncio.ensure_future(agent.prompt("second"))
    await asyncio.sleep(0)
    third: asyncio.Task[Any] | None = None
    if aborts_it_too:
        agent.abort()
        third = asyncio.ensure_future(agent.prompt("third"))
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not first.done()
    assert agent.is_running
    with pytest.raises(AlreadyRunning):
        agent.messages.clear()
    assert (await (third or agent.prompt("third"))).text == "whole"
    assert first.done()
    end = [type(event).__name__ for event in seen].index("AgentEnd")
    check_events(seen[: end + 1])
    check_events(seen[end + 1 :])
    assert not agent.is_running
    if left := asyncio.all_tasks() - {asyncio.current_task()}:  # the tool, if the machine is busy
        await asyncio.wait(left, timeout=30)


def test_an_aborted_stream_that_nobody_began_to_read_is_waited_for_by_nobody() -> None:
    agent = Agent(MODEL, stream_fn=scripted("whole"))
    stream = agent.prompt_stream("first")
    with pytest.raises(AlreadyRunning):
        agent.prompt_sync("too early")
    agent.abort()

    async def in_time() -> None:
        async with asyncio.timeout(30):
            await agent.wait_for_idle()
            assert (await agent.prompt("second")).text == "whole"

    asyncio.run(in_time())
    with pytest.raises(Aborted):
        asyncio.run(stream.result())
    assert [extract_text(message.content) for message in agent.messages] == ["second", "whole"]


IN_A_CLOSED_LOOP = """
import asyncio
from swink_agent import Agent
from swink_agent.testing import reply, scripted, stall

agent = Agent("test:model", stream_fn=scripted(reply("half", stall()), "whole"))

async def begin():
    running = asyncio.ensure_future(agent.prompt("first"))
    await asyncio.sleep(0.01)
    return running

loop = asyncio.new_event_loop()
left = loop.run_until_complete(begin())
assert agent.is_running
loop.close()

async def again():
    async with asyncio.timeout(30):
        await agent.wait_for_idle()
        assert (await agent.prompt("second")).text == "whole"

asyncio.run(again())
"""


@pytest.mark.slow
def test_a_run_whose_event_loop_was_closed_is_waited_for_by_nobody() -> None:
    # In a process of its own: what was left in the closed loop makes itself heard when it is collected.
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_CLOSED_LOOP], check=False, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 0, ended.stderr


# -- a stream function that fails because of the abort ----------------------------------------------------------


@pytest.mark.parametrize("kind", [*ErrorKind, None])
async def test_a_stream_that_fails_after_an_abort_is_aborted(kind: ErrorKind | None) -> None:
    """A connection that is closed by the abort may break in any way; none of them is retried or told as an error."""

    async def breaks(*arguments: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "so far")
        agent.abort()
        if kind is None:
            raise OSError("connection reset")
        yield TextEnd(0)
        yield StreamFailed("connection reset", kind, usage=Usage(output=3))

    spare = scripted("never")
    agent = Agent(MODEL, stream_fn=breaks, fallbacks=[(MODEL, spare)], transform_context=lambda *_: None)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert names(events)[2:] == ["MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]
    message, result = agent.messages[-1], events[-1].result  # type: ignore[union-attr]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.stop_reason, message.error_kind) == ("so far", "aborted", "aborted")
    assert (result.stop_reason, result.error_kind) == ("aborted", "aborted")  # type: ignore[union-attr]
    assert result.usage.output == (0 if kind is None else 3)  # type: ignore[union-attr]
    assert events[-2].reason == "aborted"  # type: ignore[union-attr]
    assert spare.requests == []


# -- an abort while the context is compacted -------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("overflow", [False, True], ids=["before the turn", "after an overflow"])
async def test_an_abort_while_the_context_is_compacted_starts_no_further_request(
    overflow: bool, is_async: bool
) -> None:
    model = scripted(fail("context_overflow"), "never") if overflow else scripted("never")

    def compact(messages: list[AgentMessage], is_overflow: bool) -> list[AgentMessage]:
        if is_overflow == overflow:
            agent.abort()
            return messages[-1:]
        return messages

    async def compact_later(messages: list[AgentMessage], is_overflow: bool) -> list[AgentMessage]:
        await asyncio.sleep(0)
        return compact(messages, is_overflow)

    agent = Agent(
        MODEL, stream_fn=model, transform_context=compact_later if is_async else compact, messages=["one", "two"]
    )
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    result = await agent.prompt("go")
    check_events(seen)
    assert result.stop_reason == StopReason.ABORTED
    assert len(model.requests) == int(overflow)


# -- a cancellation from outside ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["prompt", "compact"])
async def test_a_cancellation_comes_through_word_for_word(how: str) -> None:
    """anyio's cancel scopes, and all that is built on them, know their own by what it says."""
    waiting = asyncio.Event()

    async def forever(*_: Any) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    agent = Agent("test:model", stream_fn=scripted("x"), messages=["hi"], async_transform_context=forever)
    task = asyncio.ensure_future(agent.prompt("go") if how == "prompt" else agent.compact())
    await waiting.wait()
    task.cancel("by scope 7")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("by scope 7",)
