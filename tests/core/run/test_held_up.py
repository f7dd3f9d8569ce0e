"""An event loop that is blocked while a run ends: tools still get their moment to end by themselves.

The machine may be busy, or other code may block the loop. By the clock, the moment is then over before any task could
run in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from swink_agent import (
    Agent,
    AgentEvent,
    AssistantMessageEvent,
    CancellationToken,
    ErrorKind,
    MessageUpdate,
    ModelSpec,
    StopReason,
    StreamFailed,
    StreamStart,
    TextDelta,
    TextStart,
    ToolContext,
    ToolExecutionStart,
    ToolResultMessage,
    Usage,
    extract_text,
    tool,
)
from swink_agent.testing import call, scripted, text

MODEL = ModelSpec("test", "model")
LONG = 0.3
"""Longer than all the moments that there are at the end of a run, together."""


def hold_up() -> None:
    """Keeps the event loop from everything else, when it comes round."""
    asyncio.get_running_loop().call_soon(time.sleep, LONG)


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_aborted_reply_says_what_it_used() -> None:
    async def model(_: Any, __: Any, ___: Any, cancel: CancellationToken) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "half")
        await cancel.wait()
        await some_turns()
        yield StreamFailed("aborted", ErrorKind.ABORTED, usage=Usage(7, 1, total=8))

    agent = Agent(MODEL, stream_fn=model)

    def abort(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate):
            hold_up()
            agent.abort()

    agent.subscribe(abort)
    result = await agent.prompt("go")
    assert (result.stop_reason, result.text) == (StopReason.ABORTED, "half")
    assert result.usage == Usage(7, 1, total=8)


async def result_of_a_tool(end: str) -> str:
    """What a tool has for a result that ends when it is told to, and holds up the loop while it tidies."""

    @tool
    async def listens(ctx: ToolContext) -> str:
        """Waits until it is told to stop."""
        await ctx.cancel.wait()
        time.sleep(LONG)  # noqa: ASYNC251 - that is the point
        await some_turns()
        return "as far as I got"

    agent = Agent(MODEL, stream_fn=scripted(call("listens"), text("ok")), tools=[listens])

    def stop() -> None:
        agent.abort() if end == "abort" else agent.steer("stop that")

    loop = asyncio.get_running_loop()
    agent.subscribe(lambda event: loop.call_later(0.01, stop) if isinstance(event, ToolExecutionStart) else None)
    await agent.prompt("go")
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    return extract_text(result.content)


async def test_a_tool_that_listens_has_its_own_last_word_when_the_run_is_aborted() -> None:
    assert await result_of_a_tool("abort") == "as far as I got"


async def test_a_tool_that_listens_has_its_own_last_word_when_it_is_steered() -> None:
    assert await result_of_a_tool("steer") == "as far as I got"


async def test_endless_code_is_not_waited_for() -> None:
    @tool
    async def spins(ctx: ToolContext) -> str:
        """Listens, and goes on all the same, in every turn of the loop."""
        cancel = ctx.cancel
        while not cancel.is_cancelled or not over.is_set():
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        return "never"

    over = asyncio.Event()
    agent = Agent(MODEL, stream_fn=scripted(call("spins"), text("never")), tools=[spins])

    def stop() -> None:
        hold_up()
        agent.abort()

    loop = asyncio.get_running_loop()
    agent.subscribe(lambda event: loop.call_later(0.01, stop) if isinstance(event, ToolExecutionStart) else None)
    async with asyncio.timeout(30):
        assert (await agent.prompt("go")).stop_reason == StopReason.ABORTED
    over.set()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
