"""Any value of a frame may be odd: a reply still ends once, with the right kind, not as a broken connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentContext,
    CancellationToken,
    ErrorKind,
    ModelSpec,
    StreamDone,
    StreamFailed,
    StreamOptions,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UserMessage,
)
from swink_agent.adapters import (
    OpenAiStreamFn,
)
from swink_agent.testing.servers import LoopbackServer, answer
from tests.wire.exchanges import Exchange, body_of, events_of, load, message_of

MODEL = ModelSpec("test", "some-model")
CONTEXT = AgentContext("", [UserMessage("hi")])
ADAPTERS = ("anthropic", "openai", "openai-responses", "gemini", "ollama", "bedrock", "proxy")


def whole(adapter: str) -> list[Any]:
    """The frames of a good reply."""
    return load(adapter, "whole.reply")


async def outcome(adapter: str, frames: list[Any]) -> StreamDone | StreamFailed:
    """How a reply of these frames ends; its events are in order, and nothing is raised."""
    events = await events_of(adapter, Exchange(body_of(adapter, frames)))
    assert isinstance(events[-1], (StreamDone, StreamFailed)), events[-1]
    message_of(events)
    return events[-1]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


ODD: list[Any] = [
    None,
    "¹",
    "١٢",
    "12",
    "",
    "\x00",
    0,
    -1,
    1.5,
    1e300,
    10**40,
    True,
    [],
    [[[]]],
    {},
    {"message": {"message": [None]}},
    [{"type": 7}],
]


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_good_reply_is_good(adapter: str) -> None:
    assert isinstance(await outcome(adapter, whole(adapter)), StreamDone)


@pytest.mark.sweep
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_every_value_of_a_reply_may_be_odd(adapter: str) -> None:
    """Each value in turn: the reply ends well, or as one that was not understood. Only a lost end may be a cut."""
    frames = whole(adapter)
    for path in places(frames):
        if len(path) < 2:
            continue
        for odd in ODD:
            end = await outcome(adapter, replaced(frames, path, odd))
            if isinstance(end, StreamFailed) and end.kind == ErrorKind.NETWORK:
                assert end.message == "the connection ended before the reply did", (path, odd, end)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_an_odd_count_spoils_no_reply(adapter: str) -> None:
    frames = whole(adapter)
    counted = [path for path in places(frames) if isinstance(path[-1], str) and "token" in path[-1].lower()]
    counted += [path for path in places(frames) if path[-1] in ("eval_count", "prompt_eval_count", "usageMetadata")]
    if adapter == "proxy":
        return  # its counts are our own, which are never odd
    assert counted
    for path in counted:
        for odd in ODD:
            end = await outcome(adapter, replaced(frames, path, odd))
            assert isinstance(end, StreamDone), (path, odd, end)
            assert all(0 <= value <= 10**12 for value in msgspec.structs.astuple(end.usage)[:4])


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("adapter", ["anthropic", "openai", "openai-responses", "gemini", "ollama"])
async def test_every_value_of_an_error_frame_may_be_odd(adapter: str) -> None:
    error: dict[str, Any] = {
        "message": "Slowly",
        "type": "rate_limit_error",
        "code": 429,
        "status": "429",
        "details": [{"reason": "x"}],
    }
    frame: dict[str, Any] = {"type": "error", "error": error}
    for path in places(frame):
        for odd in ODD:
            frames = [*whole(adapter)[:3], replaced(frame, path, odd)]
            end = await outcome(adapter, frames)
            assert isinstance(end, StreamFailed), (path, odd)
            assert end.message


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("status", [400, 401, 429, 503])
@pytest.mark.sweep
async def test_every_value_of_an_error_body_may_be_odd(adapter: str, status: int) -> None:
    document = {"error": {"message": "No", "code": 400, "status": "400", "type": "t", "details": [{"reason": "r"}]}}
    kinds = {400: ErrorKind.INVALID_REQUEST, 401: ErrorKind.AUTH, 429: ErrorKind.THROTTLED, 503: ErrorKind.NETWORK}
    for path in places(document):
        for odd in ODD:
            body = json.dumps(replaced(document, path, odd)).encode()
            exchange = Exchange(body, status=status, headers={"content-type": "application/json"})
            (end,) = await events_of(adapter, exchange)
            assert (type(end), end.kind) == (StreamFailed, kinds[status]), (path, odd, end)
            assert end.message.startswith(f"HTTP {status}")


@pytest.mark.parametrize("adapter", ADAPTERS)
@given(data=st.data())
@settings(max_examples=40)
def test_several_odd_values_at_once_still_end_once(adapter: str, data: st.DataObject) -> None:
    frames = whole(adapter)
    for _ in range(data.draw(st.integers(1, 4))):
        options = [path for path in places(frames) if len(path) > 1]
        if options:
            frames = replaced(frames, data.draw(st.sampled_from(options)), data.draw(st.sampled_from(ODD)))
    assert asyncio.run(outcome(adapter, frames))


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000, b'"\\ud83d"'])
async def test_values_that_only_some_decoders_take_are_survived(value: bytes) -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":%b}}\n\n' % value
    body += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    end = (await events_of("openai", Exchange(body)))[-1]
    assert isinstance(end, StreamDone) or (isinstance(end, StreamFailed) and end.kind == ErrorKind.STREAM)


async def test_half_a_character_in_one_frame_loses_no_reply() -> None:
    body = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\ndata: {"choices":[{"delta":{"content":"b"}'
    body += b',"finish_reason":"stop"}]}\n\n'
    assert message_of(await events_of("openai", Exchange(body))).text == "a?b"


@pytest.mark.parametrize("adapter", ["gemini", "ollama"])
async def test_arguments_that_are_not_an_object_reach_the_loop_unchanged(adapter: str) -> None:
    """What the model wrote is for the loop to judge; the reply itself is complete."""
    frames = whole(adapter)
    path = next(path for path in places(frames) if path[-1] in ("args", "arguments"))
    events = await events_of(adapter, Exchange(body_of(adapter, replaced(frames, path, [1]))))
    assert isinstance(events[-1], StreamDone)
    start = next(event for event in events if isinstance(event, ToolCallStart))
    assert ToolCallDelta(start.index, "[1]") in events
    assert ToolCallEnd(start.index) in events


# -- mistakes of ours --------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize("error", [ValueError("bad"), OSError("bad"), TypeError("bad"), KeyError("bad")])
@pytest.mark.parametrize("where", ["feed", "end"])
async def test_a_mistake_in_a_parser_is_not_a_broken_connection(error: Exception, where: str) -> None:
    class Mistaken(OpenAiStreamFn):
        def parser(self, model: ModelSpec, headers: dict[str, str]) -> Any:
            parser: Any = super().parser(model, headers)

            def fail(*_: object) -> bool:
                raise error

            setattr(parser, where, fail)
            return parser

    async with LoopbackServer(answer(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')) as server:
        stream = Mistaken(server.url, "k")(MODEL, CONTEXT, StreamOptions(), CancellationToken())
        events = [event async for event in stream]
    failed = events[-1]
    assert isinstance(failed, StreamFailed)
    assert failed.kind == ErrorKind.STREAM
    assert "mistake in the adapter" in failed.message
    assert len(server.requests) == 1


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_json_of_another_shape_is_not_a_broken_connection(adapter: str) -> None:
    frames = whole(adapter)
    odd = {"contentBlockDelta": {"delta": 7}} if adapter == "bedrock" else [1]
    end = await outcome(adapter, [*frames[:2], odd, *frames[2:]])
    assert isinstance(end, StreamFailed)
    assert (end.kind, end.message.split(" that")[0].split(" with")[0][:18]) == (ErrorKind.STREAM, "the provider sent ")
