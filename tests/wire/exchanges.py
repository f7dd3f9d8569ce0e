"""Reads the files in `made`: requests as they are sent, replies as they are streamed, events as they are read.

README.md explains the files.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import msgspec

from swink_agent import (
    AgentContext,
    AssistantMessage,
    AssistantMessageEvent,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StreamOptions,
    ThinkingLevel,
    decode_message,
    tool,
)
from swink_agent.adapters.kit.frames import FrameError
from swink_agent.adapters.kit.transport import HttpRequest
from swink_agent.adapters.proxy import ProxyStreamFn
from tests.adapters.each_provider import ADAPTERS, adapter_at, model_of

__all__ = [
    "APIS",
    "BAD_FRAME",
    "CUT",
    "MADE",
    "Exchange",
    "adapter",
    "body_of",
    "cases",
    "events_of",
    "frame",
    "framed",
    "load",
    "message_of",
    "model_for",
    "read",
    "request_for",
    "shown",
    "stored",
]

MADE = Path(__file__).parent / "made"
APIS = (*ADAPTERS, "proxy")
NAMED = ("anthropic", "openai-responses")
"""Their server-sent events have a name, besides the type in the data."""
HOST = "https://made.example"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
BAD_FRAME = "bad frame: "
CUT = "the connection ended before the reply did"


@tool
def weather(city: str, day: int = 0) -> str:
    """Tells the weather of a city."""
    return city


@tool
def clock() -> str:
    """Tells the time."""
    return "noon"


TOOLS = {"weather": weather, "clock": clock}


# -- files -----------------------------------------------------------------------------------------------------------


def cases(kind: str) -> list[tuple[str, str]]:
    """The API and the case of each file of a kind: `reply`, or `request`."""
    return [(path.parent.name, path.name.partition(".")[0]) for path in sorted(MADE.glob(f"*/*.{kind}.json"))]


def load(folder: str, name: str) -> Any:
    return json.loads((MADE / folder / f"{name}.json").read_text())


def stored(document: Any) -> str:
    """The text of a file: what is longer than a line has an item on each line, down to the third level."""
    text = _lines(document, 0) + "\n"
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _lines(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if depth == 3 or not isinstance(value, dict | list) or (depth and len(flat) < 200):
        return flat
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        items = [f"{json.dumps(name)}: {_lines(item, depth + 1)}" for name, item in fields.items()]
    else:
        items = [_lines(item, depth + 1 if depth else 3) for item in cast("list[Any]", value)]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    indent = "\n" + "  " * depth
    return opened + ",".join(f"{indent}  {item}" for item in items) + indent + closed


# -- adapters --------------------------------------------------------------------------------------------------------


class Exchange:
    """A transport that keeps the request and answers with bytes, without a network."""

    def __init__(
        self, body: bytes = b"", *, status: int = 200, headers: Mapping[str, str] | None = None, pieces: int = 1
    ) -> None:
        self.status = status
        self.headers = headers or {"content-type": "text/event-stream"}
        self.request: HttpRequest | None = None
        size = -(-len(body) // pieces) or 1
        self._pieces = [body[start : start + size] for start in range(0, len(body), size)]

    @asynccontextmanager
    async def post(self, request: HttpRequest, cancel: CancellationToken) -> Any:
        self.request = request
        yield self

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def progress(self) -> None:
        pass


def adapter(api: str, url: str = HOST, **options: Any) -> Any:
    make = ProxyStreamFn if api == "proxy" else partial(adapter_at, api)
    return make(url, "made-key", **options)


def model_for(api: str, told: Mapping[str, Any] = HI) -> ModelSpec:
    """The model of a conversation."""
    model = ModelSpec("proxy", "anthropic:claude-sonnet-4-5") if api == "proxy" else model_of(api)
    return ModelSpec(model.provider, model.model_id, ThinkingLevel(told.get("level", "off")))


async def events_of(
    api: str, exchange: Exchange | None, told: Mapping[str, Any] = HI, url: str = HOST
) -> list[AssistantMessageEvent]:
    """Sends a conversation, by the exchange or else over a socket, and returns the events of the answer."""
    model = model_for(api, told)
    messages: list[Any] = []
    for message in told["messages"]:
        messages.append(_message(api, model, message, messages))
    context = AgentContext(told.get("system", ""), messages, [TOOLS[name] for name in told.get("tools", ())])
    options = StreamOptions(**{"api_key": "made-key", **told.get("options", {})})
    stream = adapter(api, url, transport=exchange)(model, context, options, CancellationToken())
    return [event async for event in stream]


def _message(api: str, model: ModelSpec, told: dict[str, Any], before: list[Any]) -> Any:
    if "reply" in told:  # the reply of that name, as it was read
        message = message_of(read(api, body_of(api, load(api, f"{told['reply']}.reply"))), model)
        return msgspec.structs.replace(message, timestamp=0)
    if "result_of" in told:  # the place of the call in the last reply
        calls = next(message for message in reversed(before) if message.role == "assistant").tool_calls
        call = calls[told["result_of"]]
        told = {"role": "tool_result", "tool_call_id": call.id, "tool_name": call.name, **told}
    own = {"provider": model.provider, "model_id": model.model_id} if told["role"] == "assistant" else {}
    return decode_message(json.dumps({"timestamp": 0, **own, **told}))


async def request_for(api: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a conversation, as its file shows it."""
    exchange = Exchange()
    events = await events_of(api, exchange, told)
    request = exchange.request
    assert request is not None, events
    path = request.url.removeprefix(HOST)
    return {"path": path, "headers": dict(request.headers), "body": json.loads(request.body)}


# -- replies ---------------------------------------------------------------------------------------------------------


def body_of(api: str, frames: Iterable[Any]) -> bytes:
    return b"".join(framed(api, each) for each in frames)


def framed(api: str, given: Any) -> bytes:
    """The bytes of a frame; text stands for its own bytes."""
    if isinstance(given, str):
        return given.encode()
    if api == "bedrock":
        return _aws(given)
    data = json.dumps(given, ensure_ascii=False)
    if api == "ollama":
        return f"{data}\n".encode()
    name = f"event: {given['type']}\n" if api in NAMED and "type" in given else ""
    return f"{name}data: {data}\n\n".encode()


def _aws(given: dict[str, Any]) -> bytes:
    """A message of the binary stream: `{name: payload}` for an event or an exception, else its headers and payload."""
    if "headers" in given:
        return frame(given["payload"].encode(), given["headers"])
    ((name, payload),) = given.items()
    kind = "exception" if name.endswith("Exception") else "event"
    if name == "chunk" and "type" in payload:  # an event of Anthropic's
        payload = {"bytes": base64.b64encode(json.dumps(payload).encode()).decode()}
    return frame(json.dumps(payload).encode(), {f":{kind}-type": name, ":message-type": kind})


def frame(payload: bytes, headers: Mapping[str, str]) -> bytes:
    """A message of AWS's event stream."""
    head = b""
    for name, value in headers.items():
        head += struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
    lengths = struct.pack(">II", len(head) + len(payload) + 16, len(head))
    data = lengths + struct.pack(">I", zlib.crc32(lengths)) + head + payload
    return data + struct.pack(">I", zlib.crc32(data))


_reader = cache(adapter)


def read(api: str, *pieces: bytes) -> list[AssistantMessageEvent]:
    """The events of a body that comes in pieces, from the bare parser; it ends as the stream function ends it."""
    parser = _reader(api).parser(model_for(api), {})
    events: list[AssistantMessageEvent] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            events += parser.writer.take()
        parser.end()
    except FrameError as error:
        parser.writer.fail(f"{BAD_FRAME}{error}", ErrorKind.NETWORK)
    parser.writer.fail(CUT, ErrorKind.NETWORK, usage=parser.usage_so_far())
    return events + parser.writer.take()


def message_of(events: Iterable[AssistantMessageEvent], model: ModelSpec | None = None) -> AssistantMessage:
    assembler = MessageAssembler(model or ModelSpec("test", "some-model"))
    for event in events:
        assembler.feed(event)
    assert not assembler.is_broken, assembler.failure
    return assembler.message()


def shown(events: Iterable[AssistantMessageEvent], body: bytes) -> list[dict[str, Any]]:
    """The events as their file shows them: without cost and what is empty, and with numbers for ids of our own."""
    made: dict[str, str] = {}
    return [dict(_fields(event, body, made)) for event in events]


def _fields(event: AssistantMessageEvent, body: bytes, made: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in msgspec.to_builtins(event).items():
        if name == "usage" and value:
            yield name, {kind: number for kind, number in value.items() if number}
        elif name == "id" and re.fullmatch("call_[0-9a-f]{24}", value) and value.encode() not in body:
            yield name, made.setdefault(value, f"new {len(made) + 1}")
        elif name != "cost" and value is not None:
            yield name, value


def _write() -> None:
    for api, case in cases("reply"):
        data = body_of(api, load(api, f"{case}.reply"))
        (MADE / api / f"{case}.events.json").write_text(stored(shown(read(api, data), data)))
    for path, api in product(MADE.glob("conversations/*.json"), APIS):
        sent = asyncio.run(request_for(api, load("conversations", path.stem)))
        (MADE / api / f"{path.stem}.request.json").write_text(stored(sent))
    for path in MADE.glob("*/*.json"):
        path.write_text(stored(json.loads(path.read_text())))


if __name__ == "__main__":
    _write()
