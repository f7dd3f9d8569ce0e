"""The yardstick: a hand-written agent loop without a framework, events or a safety net.

It does only the necessary work: read the model's stream, join the deltas, parse and validate the arguments, await the
tools, keep the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import jsonschema_rs
import msgspec

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
NAP_SCHEMA = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
VALIDATORS = {"add": jsonschema_rs.validator_for(SCHEMA), "nap": jsonschema_rs.validator_for(NAP_SCHEMA)}

Event = tuple[str, Any]
Model = Callable[[list[Any]], AsyncIterator[Event]]


async def add(a: int, b: int) -> str:
    return str(a + b)


async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


TOOLS: dict[str, Callable[..., Awaitable[str]]] = {"add": add, "nap": nap}


def tool_model(turns: int, calls: int = 1, name: str = "add", arguments: str = '{"a":2,"b":3}') -> Model:
    """A model that calls a tool `turns` times and then says that it is done."""
    left = turns

    async def model(history: list[Any]) -> AsyncIterator[Event]:
        nonlocal left
        left -= 1
        if left >= 0:
            for number in range(calls):
                yield "call", (f"call_{number}", name)
                yield "arguments", arguments
        else:
            yield "text", "done"
        yield "done", None

    return model


def text_model(deltas: int) -> Model:
    """A model that streams one character at a time."""

    async def model(history: list[Any]) -> AsyncIterator[Event]:
        for _ in range(deltas):
            yield "text", "x"
        yield "done", None

    return model


async def run(model: Model, history: list[Any]) -> list[Any]:
    """Turns until the model calls no more tools."""
    while True:
        texts: list[str] = []
        calls: list[tuple[tuple[str, str], list[str]]] = []
        async for kind, payload in model(history):
            if kind == "text":
                texts.append(payload)
            elif kind == "call":
                calls.append((payload, []))
            elif kind == "arguments":
                calls[-1][1].append(payload)
        history.append({"role": "assistant", "text": "".join(texts), "calls": calls})
        if not calls:
            return history
        if len(calls) == 1:
            results = [await _call(*calls[0])]
        else:
            results = await asyncio.gather(*[_call(*call) for call in calls])
        history.extend(results)


async def _call(head: tuple[str, str], fragments: list[str]) -> dict[str, Any]:
    call_id, name = head
    arguments = msgspec.json.decode("".join(fragments))
    if not VALIDATORS[name].is_valid(arguments):
        return {"role": "tool", "id": call_id, "text": "invalid arguments"}
    return {"role": "tool", "id": call_id, "text": await TOOLS[name](**arguments)}


async def stream(model: Model, history: list[Any]) -> AsyncIterator[str]:
    """One reply, a delta at a time."""
    texts: list[str] = []
    async for kind, payload in model(history):
        if kind == "text":
            texts.append(payload)
            yield payload
    history.append({"role": "assistant", "text": "".join(texts)})


class Bare:
    """The yardstick, in the shape that all contenders have."""

    name = "bare loop"
    import_statement = "import asyncio, msgspec"

    async def tool_turns(self, turns: int) -> None:
        await self.make_agent()(turns)

    async def stream_text(self, deltas: int) -> int:
        seen = 0
        async for _ in stream(text_model(deltas), [{"role": "user", "text": "go"}]):
            seen += 1
        return seen

    async def parallel_tools(self, calls: int, seconds: float) -> None:
        model = tool_model(1, calls, "nap", f'{{"seconds":{seconds}}}')
        await run(model, [{"role": "user", "text": "go"}])

    def make_agent(self) -> Callable[[int], Awaitable[None]]:
        history: list[Any] = []

        async def run_turns(turns: int) -> None:
            history.append({"role": "user", "text": "go"})
            await run(tool_model(turns), history)

        return run_turns

    async def history_turns(self, history: int, turns: int) -> None:
        messages: list[Any] = [{"role": "user", "text": "question"}, {"role": "assistant", "text": "answer"}]
        await run(tool_model(turns), messages * (history // 2))
