"""Bodies of Gemini: events or one array, and the expected results."""

from __future__ import annotations

import base64
import json
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.gemini import GeminiParser

from . import SO_FAR, Wire

__all__ = ["BODIES", "FULL", "OVERLOADED", "SIGNATURE", "USAGE", "WIRE", "call", "chunk", "sse"]


SIGNATURE = base64.b64encode(b"\x12\x30\x0a\x2e\x01thoughts of the model").decode()


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **fields}


def sse(*chunks: Any, end: str = "\r\n") -> bytes:
    return "".join(f"data: {json.dumps(each)}{end}{end}" for each in chunks).encode()


def call(name: str, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {} if arguments is None else arguments, **fields}}


USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 20,
    "toolUsePromptTokenCount": 5,
    "totalTokenCount": 132,
}

FULL = sse(
    chunk({"text": "Let me ", "thought": True}),
    chunk({"text": "see.\n", "thought": True}),
    chunk({"text": "I ask two places: ☀ 𝄞"}),
    chunk(
        {**call("look_up", {"place": "Oslo"}, id="id1"), "thoughtSignature": SIGNATURE},
        call("look_up", {"place": "Łódź"}, id="id2"),
    ),
    chunk({"text": ""}, finish="STOP", usageMetadata=USAGE, modelVersion="gemini-3.1-pro-preview"),
)


OVERLOADED = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


BODIES = {
    "events": FULL,
    "array": json.dumps([chunk({"text": 'a "b" {c'}), chunk(call("ring", id="r"), finish="STOP")], indent=1).encode(),
    "failing": sse(chunk({"text": "é"}), end="\n") + json.dumps(OVERLOADED, indent=2).encode(),
}


ERRORS: list[tuple[dict[str, Any], ErrorKind]] = [
    (OVERLOADED, ErrorKind.NETWORK),
    ({"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}, ErrorKind.THROTTLED),
    ({"error": {"code": 499, "message": "cancelled", "status": "CANCELLED"}}, ErrorKind.NETWORK),
    ({"error": {"code": 400, "message": "The input token count exceeds"}}, ErrorKind.CONTEXT_OVERFLOW),
    ({"error": {"code": 400, "message": "bad field"}}, ErrorKind.INVALID_REQUEST),
    ({"error": "odd"}, ErrorKind.INVALID_REQUEST),
]
COMPLETE = sse(chunk({"text": "all of it"}, finish="STOP"))

WIRE = Wire(
    parser=GeminiParser,
    twins=sse(chunk(call("ring"), call("ring", id="same"), call("ring", id="same"), finish="STOP")),
    bodies=BODIES,
    stop_reasons={
        finish: (sse(chunk({"text": "a"}, finish=finish)), expected)
        for finish, expected in [
            ("STOP", StopReason.STOP),
            ("MAX_TOKENS", StopReason.LENGTH),
            ("SOMETHING_NEW", StopReason.STOP),
        ]
    },
    failures=[
        (body, kind, "")
        for error, kind in ERRORS
        for body in (
            sse(chunk({"text": SO_FAR}), error),
            sse(chunk({"text": SO_FAR})) + json.dumps(error, indent=2).encode(),
            json.dumps([chunk({"text": SO_FAR}), error], indent=1).encode(),
        )
    ],
    ended=[
        (COMPLETE + sse(OVERLOADED), StopReason.STOP),
        (COMPLETE + json.dumps(OVERLOADED, indent=2).encode(), StopReason.STOP),
        (FULL[:-4], StopReason.TOOL_USE),
        (FULL + b'data: {"usageMetadata": {"promptTok', StopReason.TOOL_USE),
    ],
    not_frames=[
        b"data: " + payload + b"\n\n"
        for payload in [
            b"no json",
            b"[]",
            b'{"candidates": 1}',
            b'{"candidates": [{"content": {"parts": [{"text": 5}]}}]}',
            b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": {"b": "\xff"}}}]}}]}',
            b'{"x": ' + b"[" * 100_000,
        ]
    ],
    calls_are_whole=True,
)
