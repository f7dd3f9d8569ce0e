"""The exercises with strands-agents: a scripted in-process `Model`, no network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model

_Calls = list[tuple[str, str, str]]  # (call id, tool name, arguments as JSON)


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def nap(seconds: float) -> str:
    """Sleep for some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


class _Scripted(Model):
    """Replies with the scripted tool calls in turn, then "done"; or streams `deltas` characters."""

    deltas = 0

    def __init__(self, script: Iterator[_Calls] | None = None) -> None:
        self.script = script or iter(())

    def update_config(self, **model_config: Any) -> None:
        """Nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        calls = next(self.script, None)
        yield {"messageStart": {"role": "assistant"}}
        for call_id, name, arguments in calls or ():
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            for piece in "x" * self.deltas or ("done",):
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def _adds(turns: int) -> Iterator[_Calls]:
    return ([(f"call-{turn}", "add", '{"a": 2, "b": 3}')] for turn in range(turns))


def _agent(model: _Scripted, tools: list[Any], messages: list[Any] | None = None) -> Agent:
    # The default manager drops all but the last 40 messages, the default handler prints each delta.
    return Agent(
        model=model,
        tools=tools,
        messages=messages,
        callback_handler=None,
        conversation_manager=NullConversationManager(),
    )


class Strands:
    """The bench's exercises on a strands `Agent`."""

    name = "strands-agents"
    import_statement = "from strands import Agent"

    async def tool_turns(self, turns: int) -> None:
        """Run one prompt with `turns` rounds of one tool call each."""
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        """Stream one reply and return how many text deltas arrived."""
        model = _Scripted()
        model.deltas = deltas
        seen = 0
        async for event in _agent(model, []).stream_async("go"):
            if "data" in event:
                seen += 1
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        """Run one prompt whose first reply calls `nap` `calls` times at once."""
        naps = [(f"call-{i}", "nap", f'{{"seconds": {seconds}}}') for i in range(calls)]
        await _agent(_Scripted(iter([naps])), [nap]).invoke_async("go")

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        """Build one agent and return a function that runs `turns` tool turns with it."""
        model = _Scripted()
        agent = _agent(model, [add])

        async def run(turns: int) -> None:
            model.script = _adds(turns)
            await agent.invoke_async("go")

        return run

    async def history_turns(self, history: int, turns: int) -> None:
        """Run `turns` tool turns in a conversation that already holds `history` messages."""
        messages = [
            {"role": "assistant", "content": [{"text": f"answer {i}"}]}
            if i % 2
            else {"role": "user", "content": [{"text": f"ask {i}"}]}
            for i in range(history)
        ]
        await _agent(_Scripted(_adds(turns)), [add], messages).invoke_async("go")
