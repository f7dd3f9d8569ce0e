"""The exercises of the benchmark with this library, written as a user would write them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from swink_agent import (
    Agent,
    AgentMessage,
    AssistantMessage,
    AssistantMessageEvent,
    MessageUpdate,
    Redactor,
    StopReason,
    StreamDone,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UserMessage,
    recommended,
    standard_tools,
    tool,
)
from swink_agent.approvals import Approvals

MODEL = "bench:model"
TOOL_USE = StreamDone(StopReason.TOOL_USE)


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
async def nap(seconds: float) -> str:
    """Sleeps for a while."""
    await asyncio.sleep(seconds)
    return "rested"


class ScriptedModel:
    """A stream function that calls a tool `turns` times and then says that it is done, a delta at a time."""

    def __init__(self, turns: int, calls: int = 1, name: str = "add", arguments: str = '{"a":2,"b":3}') -> None:
        self.turns = turns
        self.calls = calls
        self.name = name
        self.arguments = arguments
        self.deltas = 1
        self.counts = False
        """Whether no two calls are the same, as loop detection likes it."""

    async def __call__(self, *_: Any) -> AsyncIterator[AssistantMessageEvent]:
        self.turns -= 1
        yield StreamStart()
        if self.turns >= 0:
            for index in range(self.calls):
                yield ToolCallStart(index, f"call_{index}", self.name)
                yield ToolCallDelta(index, f'{{"a":{self.turns},"b":3}}' if self.counts else self.arguments)
                yield ToolCallEnd(index)
            yield TOOL_USE
            return
        yield TextStart(0)
        for _ in range(self.deltas):
            yield TextDelta(0, "x")
        yield TextEnd(0)
        yield StreamDone()


class SwinkAgent:
    """Ours, in the shape that all contenders have."""

    name = "swink-agent"
    import_statement = "from swink_agent import Agent, tool"

    async def tool_turns(self, turns: int) -> None:
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        model = ScriptedModel(0)
        model.deltas = deltas
        seen = 0
        async for event in Agent(MODEL, stream_fn=model).prompt_stream("go"):
            seen += type(event) is MessageUpdate
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        model = ScriptedModel(1, calls, "nap", f'{{"seconds":{seconds}}}')
        result = await Agent(MODEL, stream_fn=model, tools=[nap]).prompt("go")
        assert result.error is None, result

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        model = ScriptedModel(0)
        agent = Agent(MODEL, stream_fn=model, tools=[add], max_turns=None)

        async def run(turns: int) -> None:
            model.turns = turns
            result = await agent.prompt("go")
            assert result.error is None, result

        return run

    async def guarded_turns(self, turns: int) -> None:
        """The same turns by an agent with everything on: standard tools, recommended policies, approvals, redaction."""
        model = ScriptedModel(turns)
        model.counts = True
        with tempfile.TemporaryDirectory() as folder:
            agent = Agent(
                MODEL,
                stream_fn=model,
                tools=[add, *standard_tools(folder)],
                policies=recommended(folder, max_turns=turns + 1),
                max_turns=None,
                approve=Approvals(),
                redactor=Redactor(),
            )
            result = await agent.prompt("go")
            assert result.error is None, result
            assert result.stopped_by is None, result

    async def history_turns(self, history: int, turns: int) -> None:
        await self.agent_with_history(history)(turns)

    def agent_with_history(self, history: int) -> Callable[[int], Awaitable[None]]:
        pair: list[AgentMessage] = [UserMessage("question"), AssistantMessage("answer")]
        model = ScriptedModel(0)
        agent = Agent(MODEL, stream_fn=model, tools=[add], max_turns=None, messages=pair * (history // 2))

        async def run(turns: int) -> None:
            model.turns = turns
            await agent.prompt("go")

        return run
