"""Any value of a frame may be odd: a reply still ends once, with the right kind, not as a broken connection."""

from __future__ import annotations

import asyncio
import importlib
import json
import zlib
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentContext,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StreamDone,
    StreamFailed,
    StreamOptions,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UserMessage,
)
from swink_agent.adapters import (
    AnthropicStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    ProxyStreamFn,
)
from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.testing import FakeReply
from swink_agent.testing.servers import LoopbackServer, answer

MODEL = ModelSpec("test", "some-model")
CONTEXT = AgentContext("", [UserMessage("hi")])
REPLY = FakeReply(
    thinking="Let me see.",
    text="Hello there",
    calls=[("look", {"place": "here"}), ("wait", {})],
    usage=Usage(input=7, output=3, total=10),
)


class Body:
    """A transport that answers with bytes and no network."""

    def __init__(self, body: bytes, *, status: int = 200, content_type: str = "text/event-stream") -> None:
        self.status = status
        self.headers = {"content-type": content_type}
        self._pieces = [body]

    def post(self, request: object, cancel: object) -> Body:
        return self

    async def __aenter__(self) -> Body:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""

    def progress(self) -> None:
        return None


# -- the frames of each adapter's own fake ---------------------------------------------------------------------------


def sse_frames(body: bytes) -> list[Any]:
    payloads = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(payload) if payload.strip() != b"[DONE]" else payload.decode() for payload in payloads]


def sse_body(frames: list[Any]) -> bytes:
    return b"".join(
        b"data: " + (frame.encode() if isinstance(frame, str) else json.dumps(frame).encode()) + b"\n\n"
        for frame in frames
    )


def named_sse_body(frames: list[Any]) -> bytes:
    lines = [(frame.get("type") if isinstance(frame, dict) else "", frame) for frame in frames]
    return b"".join(f"event: {name}\ndata: {json.dumps(frame)}\n\n".encode() for name, frame in lines)


def aws_frames(body: bytes) -> list[Any]:
    from swink_agent.adapters.kit.frames import AwsEventFrames

    messages = AwsEventFrames().feed(body)
    return [{"event": message.headers[":event-type"], "payload": json.loads(message.payload)} for message in messages]


def aws_body(frames: list[Any]) -> bytes:
    return b"".join(aws_frame(frame["event"], json.dumps(frame["payload"]).encode()) for frame in frames)


def aws_frame(event: object, payload: bytes) -> bytes:
    name, value = b":event-type", str(event).encode()
    headers = pack(">B", len(name)) + name + b"\x07" + pack(">H", len(value)) + value
    head = pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = head + pack(">I", zlib.crc32(head)) + headers + payload
    return message + pack(">I", zlib.crc32(message))


def proxy_events() -> bytes:
    writer = ReplyWriter()
    writer.thinking("Let me see.")
    writer.text("Hello there")
    writer.start_call(1, "a", "look")
    writer.arguments(1, '{"place": "here"}')
    writer.done("tool_use", Usage(input=7, output=3, total=10))  # type: ignore[arg-type]
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in writer.take())


def ndjson_frames(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.split(b"\n") if line.strip()]


def ndjson_body(frames: list[Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


Adapter = tuple[Callable[[Any], Any], Callable[[bytes], list[Any]], Callable[[list[Any]], bytes]]
ADAPTERS: dict[str, Adapter] = {
    "anthropic": (lambda body: AnthropicStreamFn("http://x", "k", transport=body), sse_frames, named_sse_body),
    "openai": (lambda body: OpenAiStreamFn("http://x", "k", transport=body), sse_frames, sse_body),
    "openai-responses": (
        lambda body: OpenAiResponsesStreamFn("http://x", "k", transport=body),
        sse_frames,
        named_sse_body,
    ),
    "gemini": (lambda body: GeminiStreamFn("http://x", "k", transport=body), sse_frames, sse_body),
    "ollama": (lambda body: OllamaStreamFn("http://x", transport=body), ndjson_frames, ndjson_body),
    "bedrock": (lambda body: BedrockStreamFn("us-east-1", "http://x", transport=body), aws_frames, aws_body),
    "proxy": (lambda body: ProxyStreamFn("http://x", "k", transport=body), sse_frames, sse_body),
}


def whole(adapter: str) -> list[Any]:
    """The frames of a good reply."""
    if adapter == "proxy":
        return sse_frames(proxy_events())
    api = importlib.import_module(f"swink_agent.testing.fakes.{adapter.replace('-', '_')}").API
    return ADAPTERS[adapter][1](b"".join(api.stream(REPLY, MODEL.model_id)))


async def outcome(adapter: str, frames: list[Any]) -> StreamDone | StreamFailed:
    """How a reply of these frames ends; its events are in order, and nothing is raised."""
    make, _, body_of = ADAPTERS[adapter]
    assembler = MessageAssembler(MODEL)
    last: Any = None
    async for event in make(Body(body_of(frames)))(MODEL, CONTEXT, StreamOptions(), CancellationToken()):
        assembler.feed(event)
        last = event
    assert isinstance(last, (StreamDone, StreamFailed)), last
    assert not assembler.is_broken, assembler.failure
    return last


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
        if len(path) < 2 or path[1] == "event":
            continue
        for odd in ODD:
            end = await outcome(adapter, replaced(frames, path, odd))
            if isinstance(end, StreamFailed) and end.kind == ErrorKind.NETWORK:
                assert end.message == "the connection ended before the reply did", (path, odd, end)


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
            call = ADAPTERS[adapter][0](Body(body, status=status, content_type="application/json"))
            (end,) = [event async for event in call(MODEL, CONTEXT, StreamOptions(), CancellationToken())]
            assert (type(end), end.kind) == (StreamFailed, kinds[status]), (path, odd, end)
            assert end.message.startswith(f"HTTP {status}")


@pytest.mark.parametrize("adapter", ADAPTERS)
@given(data=st.data())
@settings(max_examples=40)
def test_several_odd_values_at_once_still_end_once(adapter: str, data: st.DataObject) -> None:
    frames = whole(adapter)
    for _ in range(data.draw(st.integers(1, 4))):
        options = [path for path in places(frames) if len(path) > 1 and path[1] != "event"]
        if options:
            frames = replaced(frames, data.draw(st.sampled_from(options)), data.draw(st.sampled_from(ODD)))
    assert asyncio.run(outcome(adapter, frames))


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000, b'"\\ud83d"'])
async def test_values_that_only_some_decoders_take_are_survived(value: bytes) -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":%b}}\n\n' % value
    body += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    call = OpenAiStreamFn("http://x", "k", transport=Body(body))(  # type: ignore[arg-type]
        MODEL, CONTEXT, StreamOptions(), CancellationToken()
    )
    end = [event async for event in call][-1]
    assert isinstance(end, StreamDone) or (isinstance(end, StreamFailed) and end.kind == ErrorKind.STREAM)


async def test_half_a_character_in_one_frame_loses_no_reply() -> None:
    body = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\ndata: {"choices":[{"delta":{"content":"b"}'
    body += b',"finish_reason":"stop"}]}\n\n'
    call = OpenAiStreamFn("http://x", "k", transport=Body(body))(  # type: ignore[arg-type]
        MODEL, CONTEXT, StreamOptions(), CancellationToken()
    )
    assembler = MessageAssembler(MODEL)
    async for event in call:
        assembler.feed(event)
    assert assembler.message().text == "a?b"


@pytest.mark.parametrize("adapter", ["gemini", "ollama"])
async def test_arguments_that_are_no_object_reach_the_loop_as_they_are(adapter: str) -> None:
    """What the model wrote is for the loop to judge; the reply itself is complete."""
    frames = whole(adapter)
    path = next(path for path in places(frames) if path[-1] in ("args", "arguments"))
    body = Body(ADAPTERS[adapter][2](replaced(frames, path, [1])))
    stream = ADAPTERS[adapter][0](body)(MODEL, CONTEXT, StreamOptions(), CancellationToken())
    events = [event async for event in stream]
    assert isinstance(events[-1], StreamDone)
    start = next(event for event in events if isinstance(event, ToolCallStart))
    assert ToolCallDelta(start.index, "[1]") in events
    assert ToolCallEnd(start.index) in events


# -- mistakes of ours --------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize("error", [ValueError("bad"), OSError("bad"), TypeError("bad"), KeyError("bad")])
@pytest.mark.parametrize("where", ["feed", "end"])
async def test_a_mistake_in_a_parser_is_no_broken_connection(error: Exception, where: str) -> None:
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
async def test_json_of_another_shape_is_no_broken_connection(adapter: str) -> None:
    frames = whole(adapter)
    odd = {"event": "contentBlockDelta", "payload": {"delta": 7}} if adapter == "bedrock" else [1]
    end = await outcome(adapter, [*frames[:2], odd, *frames[2:]])
    assert isinstance(end, StreamFailed)
    assert (end.kind, end.message.split(" that")[0].split(" with")[0][:18]) == (ErrorKind.STREAM, "the provider sent ")
