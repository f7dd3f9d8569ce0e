"""Bodies of Ollama: lines, and the expected results."""

from __future__ import annotations

import json
from typing import Any

from swink_agent import ErrorKind, StopReason
from swink_agent.adapters.ollama import OllamaParser

from . import SO_FAR, Wire

__all__ = ["FULL", "WIRE", "call", "line"]


def line(done: str | None = None, error: Any = None, **message: Any) -> bytes:
    fields: dict[str, Any] = {"model": "qwen3:4b", "created_at": "2026-01-01T00:00:00Z"}
    if error is not None:
        fields = {"error": error}
    elif done is None:
        fields |= {"message": {"role": "assistant", "content": "", **message}, "done": False}
    else:
        fields |= {"message": {"role": "assistant", "content": "", **message}, "done": True, "done_reason": done}
        fields |= {"total_duration": 5, "prompt_eval_count": 11, "eval_count": 7}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"index": 0, "name": name, "arguments": arguments}, **fields}


FULL = (
    line(thinking="Let me ")
    + line(thinking="see.")
    + line(content="I ask: ☀ 𝄞")
    + line(tool_calls=[call("look_up", {"place": "Łódź"}, id="c1"), call("look_up", {"place": "Oslo"}, id="c2")])
    + line("stop")
)


ERRORS: list[tuple[Any, str, ErrorKind]] = [
    ("the model runner stopped", "stopped", ErrorKind.NETWORK),
    ("prompt too long; exceeded maximum context length", "too long", ErrorKind.CONTEXT_OVERFLOW),
    ("unauthorized", "unauthorized", ErrorKind.AUTH),
    ("too many requests", "too many", ErrorKind.THROTTLED),
    ({"message": "odd", "code": 503}, "odd", ErrorKind.NETWORK),
]

WIRE = Wire(
    parser=OllamaParser,
    twins=line(tool_calls=[call("ring", {}), call("ring", {}, id="same"), call("ring", {}, id="same")]) + line("stop"),
    bodies={"lines": FULL},
    stop_reasons={
        reason: (line(content="a") + line(reason), expected)
        for reason, expected in [
            ("stop", StopReason.STOP),
            ("length", StopReason.LENGTH),
            ("load", StopReason.STOP),
            ("unload", StopReason.STOP),
            ("something new", StopReason.STOP),
        ]
    },
    failures=[(line(content=SO_FAR) + line(error=error), kind, words) for error, words, kind in ERRORS],
    ended=[
        (FULL + line(error="late") + line("length") + b"no json\n", StopReason.TOOL_USE),
        (FULL[:-1], StopReason.TOOL_USE),
    ],
    not_frames=[
        data + b"\n"
        for data in [
            b"no json",
            b"[]",
            b'{"message": 5}',
            b'{"message": {"content": ["a"]}}',
            b'{"message": {"tool_calls": [{"function": {"name": "a", "arguments": {"b": "\xff"}}}]}}',
            b'{"x": ' + b"[" * 100_000,
        ]
    ],
    calls_are_whole=True,
)
