"""Bodies of Bedrock's ConverseStream: binary frames, and the expected results."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.bedrock import BedrockParser
from swink_agent.adapters.kit.frames import AwsEventFrames

from . import SO_FAR, Wire, damaged

__all__ = [
    "HELLO",
    "INVOKED",
    "START",
    "WHOLE",
    "WIRE",
    "called",
    "closed",
    "delta",
    "event",
    "failed",
    "frame",
    "opened",
    "said",
    "stopped",
    "wrapped",
]


def frame(payload: dict[str, Any] | bytes, **headers: str) -> bytes:
    """One message of the binary stream; header names are given without their colon."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    head = b""
    for name, value in headers.items():
        key = f":{name.replace('_', '-')}".encode()
        head += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", len(head) + len(data) + 16, len(head))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + data
    return body + struct.pack(">I", zlib.crc32(body))


def event(kind: str, **payload: Any) -> bytes:
    return frame({**payload, "p": "abcdef"}, event_type=kind, content_type="application/json", message_type="event")


def delta(index: int, **fields: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=fields)


def opened(index: int, **fields: Any) -> bytes:
    return event("contentBlockStart", contentBlockIndex=index, start=fields)


def closed(index: int) -> bytes:
    return event("contentBlockStop", contentBlockIndex=index)


def stopped(reason: str, **usage: int) -> bytes:
    usage = usage or {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
    return event("messageStop", stopReason=reason) + event("metadata", usage=usage, metrics={"latencyMs": 1})


def said(index: int, *pieces: str) -> bytes:
    return b"".join(delta(index, text=piece) for piece in pieces) + closed(index)


def called(index: int, call: str, name: str, *pieces: str, **fields: str) -> bytes:
    start = opened(index, toolUse={"toolUseId": call, "name": name, **fields})
    return start + b"".join(delta(index, toolUse={"input": piece}) for piece in pieces) + closed(index)


def wrapped(**inner: Any) -> bytes:
    payload = base64.b64encode(json.dumps(inner).encode()).decode()
    return frame({"bytes": payload, "p": "abc"}, event_type="chunk", message_type="event")


def failed(kind: str, message: str) -> bytes:
    return frame({"message": message}, exception_type=kind, content_type="application/json", message_type="exception")


START = event("messageStart", role="assistant")
HELLO = START + said(0, "Hel", "lo") + stopped("end_turn")
WHOLE = (
    START
    + delta(0, reasoningContent={"text": "Two cities, "})
    + delta(0, reasoningContent={"text": "two calls. 🌍"})
    + delta(0, reasoningContent={"signature": "c2lnbmVk"})
    + closed(0)
    + delta(1, reasoningContent={"redactedContent": base64.b64encode(b"b3BhcXVl").decode()})
    + closed(1)
    + said(2, "Let me ", "look. ☀")
    + called(3, "tooluse_1", "weather", '{"city": "R', 'ome"}')
    + called(4, "tooluse_2", "clock")
    + stopped("tool_use", inputTokens=10, outputTokens=40, cacheReadInputTokens=5, cacheWriteInputTokens=3)
)
INVOKED = (
    wrapped(type="message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}})
    + wrapped(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    + wrapped(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
    + wrapped(type="content_block_stop", index=0)
    + wrapped(type="message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 5})
    + wrapped(type="message_stop", **{"amazon-bedrock-invocationMetrics": {"inputTokenCount": 10}})
)


def damaged_inside(body: bytes, dice: random.Random) -> bytes:
    """The body with a frame's payload damaged: damage of a frame itself is found by its checksum."""
    frames = [(message.headers[":event-type"], message.payload) for message in AwsEventFrames().feed(body)]
    spoiled = dice.randrange(len(frames))
    return b"".join(
        frame(damaged(payload, dice) if place == spoiled else payload, event_type=kind)
        for place, (kind, payload) in enumerate(frames)
    )


ENDED = START + said(0, "ok") + event("messageStop", stopReason="end_turn")
USAGE = event("metadata", usage={"inputTokens": 1})

WIRE = Wire(
    parser=BedrockParser,
    twins=START
    + called(0, "", "clock")
    + called(1, "same", "clock")
    + called(2, "same", "clock")
    + stopped("tool_use"),
    bodies={"whole": WHOLE, "invoked": INVOKED},
    stop_reasons={
        reason: (START + said(0, "well") + stopped(reason), expected)
        for reason, expected in [
            ("end_turn", StopReason.STOP),
            ("stop_sequence", StopReason.STOP),
            ("tool_use", StopReason.TOOL_USE),
            ("max_tokens", StopReason.LENGTH),
            ("model_context_window_exceeded", StopReason.LENGTH),
            ("something_new", StopReason.STOP),
        ]
    },
    failures=[
        (START + delta(0, text=SO_FAR) + failed(name, words), kind, words)
        for name, words, kind in [
            ("throttlingException", "Too many tokens, please wait.", ErrorKind.THROTTLED),
            ("serviceUnavailableException", "try later", ErrorKind.NETWORK),
            ("internalServerException", "oops", ErrorKind.NETWORK),
            ("modelStreamErrorException", "oops", ErrorKind.NETWORK),
            ("modelTimeoutException", "oops", ErrorKind.NETWORK),
            ("accessDeniedException", "no", ErrorKind.AUTH),
            ("validationException", "Input is too long for requested model.", ErrorKind.CONTEXT_OVERFLOW),
            ("validationException", "the field is wrong", ErrorKind.INVALID_REQUEST),
        ]
    ],
    ended=[
        *[(ENDED + USAGE[:length], StopReason.STOP) for length in range(len(USAGE))],
        (ENDED + failed("internalServerException", "late"), StopReason.STOP),
    ],
    not_frames=[
        frame(b"{not json}", event_type="contentBlockDelta"),
        frame(b"", event_type="messageStop"),
        frame(b"[" * 50_000, event_type="metadata"),
        frame(b"\xff", event_type="metadata"),
        frame({"delta": {"text": 7}}, event_type="contentBlockDelta"),
        frame({"bytes": "!"}, event_type="chunk"),
        frame({"bytes": base64.b64encode(b"{").decode()}, event_type="chunk"),
        b"HTTP/1.1 200 OK, and then some",
    ],
    damage=damaged_inside,
    usage_is_last=True,
)
