"""The exercises with openai-agents: a scripted in-process `Model`, tracing off, no network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

_CONFIG = RunConfig(tracing_disabled=True)


@function_tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@function_tool
async def nap(seconds: float) -> str:
    """Sleep for some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(id="msg", content=[content], role="assistant", status="completed", type="message")


def _call(tool: str, arguments: str, index: int) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        name=tool, arguments=arguments, call_id=f"call-{index}", id=f"fc-{index}", type="function_call"
    )


class _Scripted(Model):
    """Replies with the scripted tool calls in turn, then "done"; or streams `deltas` characters."""

    deltas = 0

    def __init__(self, script: Iterator[list[ResponseFunctionToolCall]] | None = None) -> None:
        self.script = script or iter(())

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=next(self.script, None) or [_message("done")], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for number in range(self.deltas):
            # Validating costs a microsecond or two; this class's own `model_construct` costs dozens.
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta="x",
                item_id="msg",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
        response = Response(
            id="resp",
            created_at=0,
            model="scripted",
            object="response",
            output=[_message("x" * self.deltas)],
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=self.deltas, type="response.completed")


def _adds(turns: int) -> Iterator[list[ResponseFunctionToolCall]]:
    return ([_call("add", '{"a": 2, "b": 3}', turn)] for turn in range(turns))


@lru_cache(maxsize=4)
def _history(count: int) -> tuple[Any, ...]:
    return tuple(
        {"role": "assistant", "content": f"answer {i}"} if i % 2 else {"role": "user", "content": f"ask {i}"}
        for i in range(count)
    )


class OpenAiAgents:
    """The bench's exercises on an openai-agents `Agent`."""

    name = "openai-agents"
    import_statement = "from agents import Agent, Runner"

    async def tool_turns(self, turns: int) -> None:
        """Run one prompt with `turns` rounds of one tool call each."""
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        """Stream one reply and return how many text deltas arrived."""
        model = _Scripted()
        model.deltas = deltas
        seen = 0
        result = Runner.run_streamed(Agent(name="bench", model=model), "go", run_config=_CONFIG)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                seen += 1
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        """Run one prompt whose first reply calls `nap` `calls` times at once."""
        naps = [_call("nap", f'{{"seconds": {seconds}}}', i) for i in range(calls)]
        agent = Agent(name="bench", model=_Scripted(iter([naps])), tools=[nap])
        await Runner.run(agent, "go", run_config=_CONFIG)

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        """Build one agent and return a function that runs `turns` tool turns with it."""
        model = _Scripted()
        agent = Agent(name="bench", model=model, tools=[add])

        async def run(turns: int) -> None:
            model.script = _adds(turns)
            await Runner.run(agent, "go", max_turns=turns + 2, run_config=_CONFIG)

        return run

    async def history_turns(self, history: int, turns: int) -> None:
        """Run `turns` tool turns in a conversation that already holds `history` messages."""
        agent = Agent(name="bench", model=_Scripted(_adds(turns)), tools=[add])
        messages = [*_history(history), {"role": "user", "content": "go"}]
        await Runner.run(agent, messages, max_turns=turns + 2, run_config=_CONFIG)
