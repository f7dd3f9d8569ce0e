"""The exercises with pydantic-ai: a scripted in-process `Model`, no network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, StreamedResponse

_NO_LIMIT = UsageLimits(request_limit=None)
_EPOCH = datetime(2025, 1, 1, tzinfo=UTC)


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def nap(seconds: float) -> str:
    """Sleep for some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


@dataclass
class _Stream(StreamedResponse):
    """A streamed reply of one-character deltas, made the way the provider classes make theirs."""

    deltas: int

    model_name = "scripted"
    provider_name = None
    provider_url = None
    timestamp = _EPOCH

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        handle = self._parts_manager.handle_text_delta
        for _ in range(self.deltas):
            for event in handle(vendor_part_id="0", content="x"):
                yield event

    async def close_stream(self) -> None:
        """Nothing to close."""


class _Scripted(Model):
    """Replies with the scripted tool calls in turn, then "done"; or streams `deltas` characters.

    Not `FunctionModel`: that one guesses token counts for every delta, a cost real models do not have.
    """

    model_name = "scripted"
    system = "bench"
    deltas = 0

    def __init__(self, script: Iterator[list[ToolCallPart]] | None = None) -> None:
        super().__init__()
        self.script = script or iter(())

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        self.prepare_request(model_settings, model_request_parameters)
        return ModelResponse(parts=next(self.script, None) or [TextPart("done")], model_name="scripted")

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield _Stream(model_request_parameters=parameters, deltas=self.deltas)


def _adds(turns: int) -> Iterator[list[ToolCallPart]]:
    return ([ToolCallPart("add", '{"a": 2, "b": 3}', f"call-{turn}")] for turn in range(turns))


@lru_cache(maxsize=4)
def _history(count: int) -> tuple[ModelMessage, ...]:
    return tuple(
        ModelResponse(parts=[TextPart(f"answer {i}")]) if i % 2 else ModelRequest(parts=[UserPromptPart(f"ask {i}")])
        for i in range(count)
    )


class PydanticAi:
    """The bench's exercises on a pydantic-ai `Agent`."""

    name = "pydantic-ai"
    import_statement = "from pydantic_ai import Agent"

    async def tool_turns(self, turns: int) -> None:
        """Run one prompt with `turns` rounds of one tool call each."""
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        """Stream one reply and return how many text deltas arrived."""
        model = _Scripted()
        model.deltas = deltas
        seen = 0
        async with Agent(model).run_stream("go") as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                seen += 1
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        """Run one prompt whose first reply calls `nap` `calls` times at once."""
        naps = [ToolCallPart("nap", f'{{"seconds": {seconds}}}', f"call-{i}") for i in range(calls)]
        await Agent(_Scripted(iter([naps])), tools=[nap]).run("go", usage_limits=_NO_LIMIT)

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        """Build one agent and return a function that runs `turns` tool turns with it."""
        model = _Scripted()
        agent = Agent(model, tools=[add])

        async def run(turns: int) -> None:
            model.script = _adds(turns)
            await agent.run("go", usage_limits=_NO_LIMIT)

        return run

    async def history_turns(self, history: int, turns: int) -> None:
        """Run `turns` tool turns in a conversation that already holds `history` messages."""
        agent = Agent(_Scripted(_adds(turns)), tools=[add])
        await agent.run("go", message_history=list(_history(history)), usage_limits=_NO_LIMIT)
