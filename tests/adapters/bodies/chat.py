"""Bodies of OpenAI's chat completions: events, and the expected results."""

from __future__ import annotations

import json
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.openai import ChatParser

from . import SO_FAR, Wire

__all__ = ["WIRE"]


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'chat_1', 'choices': [choice]})}\n\n".encode()


def call(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def failed(**error: Any) -> bytes:
    return f"data: {json.dumps({'error': error})}\n\n".encode()


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}\n\n'
DONE = b"data: [DONE]\n\n"
SAID = chunk(role="assistant", content="") + chunk(content="Let me ") + chunk(content="look. ☀")
WHOLE = (
    SAID
    + chunk(tool_calls=[call(0, "call_1", "weather", "")])
    + chunk(tool_calls=[call(0, None, None, '{"city": "R')])
    + chunk(tool_calls=[call(0, None, None, 'ome"}')])
    + chunk(tool_calls=[call(1, "call_2", "clock", "{}")])
    + chunk("tool_calls")
    + USAGE
    + DONE
)

WIRE = Wire(
    parser=ChatParser,
    twins=chunk(tool_calls=[call(0, None, "clock", "{}")])
    + chunk(tool_calls=[call(1, "same", "clock", "{}")])
    + chunk(tool_calls=[call(2, "same", "clock", "{}")])
    + chunk("tool_calls")
    + DONE,
    bodies={"whole": WHOLE},
    line_ends=(b"\r\n", b"\r"),
    stop_reasons={
        reason: (SAID + chunk(reason) + DONE, expected)
        for reason, expected in [
            ("stop", StopReason.STOP),
            ("length", StopReason.LENGTH),
            ("something_new", StopReason.STOP),
        ]
    },
    failures=[
        (chunk(content=SO_FAR) + failed(message=words, type=kind_of_error), kind, words)
        for kind_of_error, words, kind in [
            ("server_error", "The server had an error", ErrorKind.NETWORK),
            ("rate_limit_exceeded", "slow down", ErrorKind.THROTTLED),
            ("invalid_request_error", "This model's maximum context length is 8 tokens", ErrorKind.CONTEXT_OVERFLOW),
        ]
    ],
    ended=[
        (SAID + DONE, StopReason.STOP),
        (SAID + USAGE + DONE + failed(message="late", type="server_error"), StopReason.STOP),
        (SAID + chunk(tool_calls=[call(0, "call_1", "clock", "{}")]) + DONE, StopReason.TOOL_USE),
        *[(SAID + chunk("stop") + USAGE[:length], StopReason.STOP) for length in range(0, len(USAGE), 7)],
        (SAID + chunk("stop") + USAGE + DONE + failed(message="late", type="server_error"), StopReason.STOP),
    ],
    not_frames=[
        b"data: " + data + b"\n\n"
        for data in [b"{not json}", b"[1, 2]", b'"text"', b"\xff\xfe", b"[" * 50_000, b'{"choices": 7}']
    ],
    usage_is_last=True,
)
