"""Bodies of OpenAI's Responses: events, and the expected results."""

from __future__ import annotations

import json
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.openai_responses import ResponsesParser

from . import SO_FAR, Wire

__all__ = [
    "BODIES",
    "CUSTOM",
    "HELLO",
    "MESSAGE_STARTS",
    "REASONING",
    "THINKS_AND_CALLS",
    "USAGE",
    "WIRE",
    "call_events",
    "event",
    "response_end",
]


CUSTOM = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "c", "name": "grep"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": 'gAAAA/+==\\"é',
}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def response_end(kind: str = "completed", **fields: Any) -> bytes:
    return event(f"response.{kind}", response={"id": "resp_1", "status": kind, "output": [], **fields})


USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 150,
}

MESSAGE_STARTS = event(
    "response.output_item.added", output_index=0, item={"type": "message", "id": "msg_1", "content": []}
)
HELLO = (
    event("response.created", response={"id": "resp_1", "status": "in_progress", "output": []})
    + MESSAGE_STARTS
    + event("response.content_part.added", output_index=0, part={"type": "output_text", "text": ""})
    + event("response.output_text.delta", output_index=0, item_id="msg_1", delta="Hel")
    + event("response.output_text.delta", output_index=0, item_id="msg_1", delta="lo ☕")
    + event("response.output_text.done", output_index=0, item_id="msg_1", text="Hello ☕")
    + event(
        "response.output_item.done",
        output_index=0,
        item={"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello ☕"}]},
    )
)


def call_events(index: int, call_id: str, *pieces: str, name: str = "add", **done: Any) -> bytes:
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name}
    deltas = [
        event("response.function_call_arguments.delta", output_index=index, item_id=f"fc_{index}", delta=piece)
        for piece in pieces
    ]
    arguments = "".join(pieces)
    return (
        event("response.output_item.added", output_index=index, item={**item, "arguments": ""})
        + b"".join(deltas)
        + event("response.function_call_arguments.done", output_index=index, item_id=f"fc_{index}", arguments=arguments)
        + event("response.output_item.done", output_index=index, item={**item, "arguments": arguments, **done})
    )


THINKS_AND_CALLS = (
    event("response.output_item.added", output_index=0, item={"type": "reasoning", "id": "rs_1", "summary": []})
    + event("response.reasoning_summary_part.added", output_index=0, summary_index=0)
    + event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="Fir")
    + event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="st.")
    + event("response.reasoning_summary_text.delta", output_index=0, summary_index=1, delta="Then.")
    + event("response.output_item.done", output_index=0, item={**REASONING, "status": "completed"})
    + call_events(1, "call_1", '{"a":', "2}")
    + call_events(2, "call_2")
    + response_end(usage=USAGE)
)


BODIES = {
    "text": HELLO + response_end(usage=USAGE),
    "calls": THINKS_AND_CALLS,
    "cut call": call_events(0, "c", '{"a"', status="incomplete")
    + response_end("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "custom": event("response.output_item.added", output_index=0, item=CUSTOM)
    + event("response.custom_tool_call_input.delta", output_index=0, delta="☕")
    + response_end(),
    "error": HELLO + event("error", code="server_error", message="Sorry"),
    "CRLF": (HELLO + response_end()).replace(b"\n", b"\r\n"),
    "no last blank line": (HELLO + response_end()).rstrip(b"\n"),
}


SO_FAR_OPEN = MESSAGE_STARTS + event("response.output_text.delta", output_index=0, delta=SO_FAR)

WIRE = Wire(
    parser=ResponsesParser,
    twins=b"".join(
        event(
            "response.output_item.done",
            output_index=number,
            item={"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}"},
        )
        for number, call_id in enumerate([None, "same", "same"])
    )
    + response_end(),
    bodies=BODIES,
    stop_reasons={
        "completed": (HELLO + response_end(), StopReason.STOP),
        "completed with calls": (THINKS_AND_CALLS, StopReason.TOOL_USE),
        "incomplete": (
            HELLO + response_end("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            StopReason.LENGTH,
        ),
    },
    failures=[
        (SO_FAR_OPEN + frame + response_end(), kind, words)
        for frame, kind, words in [
            (response_end("failed", error={"code": "server_error", "message": "Sorry"}), ErrorKind.NETWORK, "Sorry"),
            (response_end("failed", error={"code": "rate_limit_exceeded", "message": "Slow"}), ErrorKind.THROTTLED, ""),
            (
                response_end("failed", error={"code": "context_length_exceeded", "message": "-"}),
                ErrorKind.CONTEXT_OVERFLOW,
                "",
            ),
            (response_end("failed", error={"code": "invalid_prompt", "message": "No"}), ErrorKind.CONTENT_FILTERED, ""),
            (response_end("cancelled"), ErrorKind.NETWORK, ""),
            (event("error", error={"code": "rate_limit_exceeded", "message": "Slowly"}), ErrorKind.THROTTLED, "Slowly"),
            (event("error", code="server_error", message="Sorry", param=None), ErrorKind.NETWORK, "Sorry"),
            (event("error", code=None, message="The server is overloaded"), ErrorKind.NETWORK, "overloaded"),
            (b'data: {"error": {"code": 503, "message": "Come back"}}\n\n', ErrorKind.NETWORK, "Come back"),
            (b'event: error\ndata: {"message": "Too many requests"}\n\n', ErrorKind.THROTTLED, "Too many"),
        ]
    ],
    ended=[
        (HELLO + response_end() + HELLO + response_end("failed") + event("error", message="late"), StopReason.STOP),
    ],
    not_frames=[
        b"data: {broken}\n\n",
        b"data: <html>\n\n",
        b"data: [1]\n\n",
        b'data: "text"\n\n',
        b'data: {"type": 7}\n\n',
        b'data: {"type": "response.output_text.delta", "delta": "\xff"}\n\n',
        b'data: {"type": "response.completed", "response": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n",
        b'data: {"type": "error", "unknown": "\xff"}\n\n',
    ],
)
