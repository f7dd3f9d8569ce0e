"""The exercises with langgraph: a scripted in-process chat model, LangSmith tracing off, no network."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

try:
    from langchain.agents import create_agent

    _IMPORT = "from langchain.agents import create_agent"
except ImportError:  # langgraph without langchain: its own, older, prebuilt agent
    from langgraph.prebuilt import create_react_agent as create_agent

    _IMPORT = "from langgraph.prebuilt import create_react_agent"

os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"
_CONFIG = {"recursion_limit": 1_000_000}


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def nap(seconds: float) -> str:
    """Sleep for some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


class _Scripted(BaseChatModel):
    """Replies with the scripted tool calls in turn, then "done"; or streams `deltas` characters."""

    script: Any = iter(())
    deltas: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "_Scripted":
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        calls = next(self.script, None)
        message = AIMessage(content="", tool_calls=calls) if calls else AIMessage(content="done")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate()


class _Streaming(_Scripted):
    """The same with a streaming method: a model that has none is never asked to stream."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(self.deltas):
            yield ChatGenerationChunk(message=AIMessageChunk(content="x"))


def _call(name: str, args: dict[str, Any], index: int) -> dict[str, Any]:
    return {"name": name, "args": args, "id": f"call-{index}", "type": "tool_call"}


def _adds(turns: int) -> Iterator[list[dict[str, Any]]]:
    return ([_call("add", {"a": 2, "b": 3}, turn)] for turn in range(turns))


@lru_cache(maxsize=4)
def _history(count: int) -> tuple[Any, ...]:
    return tuple(AIMessage(f"answer {i}") if i % 2 else HumanMessage(f"ask {i}") for i in range(count))


def _prompt(history: int = 0) -> dict[str, Any]:
    return {"messages": [*_history(history), HumanMessage("go")]}


class LangGraph:
    """The bench's exercises on the prebuilt tool-calling agent that runs on langgraph."""

    name = "langgraph"
    import_statement = _IMPORT

    async def tool_turns(self, turns: int) -> None:
        """Run one prompt with `turns` rounds of one tool call each."""
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        """Stream one reply and return how many text deltas arrived."""
        agent = create_agent(_Streaming(deltas=deltas), tools=[])
        seen = 0
        async for chunk, _ in agent.astream(_prompt(), config=_CONFIG, stream_mode="messages"):
            if chunk.content:
                seen += 1
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        """Run one prompt whose first reply calls `nap` `calls` times at once."""
        naps = [_call("nap", {"seconds": seconds}, i) for i in range(calls)]
        await create_agent(_Scripted(script=iter([naps])), tools=[nap]).ainvoke(_prompt(), config=_CONFIG)

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        """Build one agent and return a function that runs `turns` tool turns with it."""
        model = _Scripted()
        agent = create_agent(model, tools=[add])

        async def run(turns: int) -> None:
            model.script = _adds(turns)
            await agent.ainvoke(_prompt(), config=_CONFIG)

        return run

    async def history_turns(self, history: int, turns: int) -> None:
        """Run `turns` tool turns in a conversation that already holds `history` messages."""
        agent = create_agent(_Scripted(script=_adds(turns)), tools=[add])
        await agent.ainvoke(_prompt(history), config=_CONFIG)
