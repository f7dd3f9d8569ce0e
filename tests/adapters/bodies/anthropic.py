"""Bodies of Anthropic's Messages: events, and the expected results."""

from __future__ import annotations

import json
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.anthropic import AnthropicParser

from . import SO_FAR, Wire

__all__ = ["WHOLE", "WIRE", "called", "closed", "delta", "event", "opened", "said", "start", "stopped"]


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(**usage: Any) -> bytes:
    return event("message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": usage})


def opened(index: int, **block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def closed(index: int) -> bytes:
    return event("content_block_stop", index=index)


def stopped(reason: str, details: Any = None, **usage: Any) -> bytes:
    changes = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return event("message_delta", delta=changes, usage=usage or {"output_tokens": 7}) + event("message_stop")


def said(index: int, *pieces: str) -> bytes:
    return (
        opened(index, type="text", text="")
        + b"".join(delta(index, "text_delta", text=piece) for piece in pieces)
        + closed(index)
    )


def called(index: int, call: str, name: str, *pieces: str) -> bytes:
    return (
        opened(index, type="tool_use", id=call, name=name, input={})
        + b"".join(delta(index, "input_json_delta", partial_json=piece) for piece in ("", *pieces))
        + closed(index)
    )


WHOLE = (
    start(input_tokens=10, cache_creation_input_tokens=3, cache_read_input_tokens=5, output_tokens=1)
    + event("ping")
    + opened(0, type="thinking", thinking="", signature="")
    + delta(0, "thinking_delta", thinking="Two cities, ")
    + delta(0, "thinking_delta", thinking="two calls. 🌍")
    + delta(0, "signature_delta", signature="c2lnbmVk")
    + closed(0)
    + opened(1, type="redacted_thinking", data="b3BhcXVl")
    + closed(1)
    + said(2, "Let me ", "look. ☀")
    + called(3, "toolu_1", "weather", '{"city": "R', 'ome"}')
    + called(4, "toolu_2", "clock")
    + stopped("tool_use", output_tokens=40, output_tokens_details={"thinking_tokens": 12})
)


SO_FAR_OPEN = start(input_tokens=3) + opened(0, type="text", text="") + delta(0, "text_delta", text=SO_FAR)
BEFORE_THE_END, _, AFTER = WHOLE.partition(b"event: message_stop")
SAID_AND_STOPPED = start() + said(0, "ok") + stopped("end_turn").partition(b"event: message_stop")[0]
OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})

WIRE = Wire(
    parser=AnthropicParser,
    twins=start()
    + opened(0, type="tool_use", name="clock", input={})
    + closed(0)
    + called(1, "same", "clock")
    + called(2, "same", "clock")
    + stopped("tool_use"),
    bodies={"whole": WHOLE},
    line_ends=(b"\r\n", b"\r"),
    stop_reasons={
        reason: (start() + said(0, "well") + stopped(reason), expected)
        for reason, expected in [
            ("end_turn", StopReason.STOP),
            ("stop_sequence", StopReason.STOP),
            ("pause_turn", StopReason.STOP),
            ("tool_use", StopReason.TOOL_USE),
            ("max_tokens", StopReason.LENGTH),
            ("model_context_window_exceeded", StopReason.LENGTH),
            ("something_new", StopReason.STOP),
        ]
    },
    failures=[
        (SO_FAR_OPEN + event("error", error={"type": error, "message": words}), kind, words)
        for error, words, kind in [
            ("overloaded_error", "Overloaded", ErrorKind.NETWORK),
            ("api_error", "Internal server error", ErrorKind.NETWORK),
            ("rate_limit_error", "slow down", ErrorKind.THROTTLED),
            ("authentication_error", "invalid x-api-key", ErrorKind.AUTH),
            ("invalid_request_error", "prompt is too long: 9 > 8", ErrorKind.CONTEXT_OVERFLOW),
            ("invalid_request_error", "messages: empty", ErrorKind.INVALID_REQUEST),
        ]
    ],
    ended=[
        (BEFORE_THE_END, StopReason.TOOL_USE),
        *[
            (BEFORE_THE_END + b"event: message_stop" + AFTER[:length], StopReason.TOOL_USE)
            for length in range(len(AFTER))
        ],
        (SAID_AND_STOPPED + OVERLOADED, StopReason.STOP),
        (SAID_AND_STOPPED.rstrip(), StopReason.STOP),
    ],
    not_frames=[
        b"data: " + data + b"\n\n"
        for data in [
            b"{not json}",
            b"[1, 2]",
            b'"text"',
            b"\xff\xfe",
            b"[" * 50_000,
            b'{"type":"content_block_delta","index":"zero","delta":{"type":"text_delta","text":"x"}}',
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}',
            b'{"type":"message_start","message":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
        ]
    ],
)
