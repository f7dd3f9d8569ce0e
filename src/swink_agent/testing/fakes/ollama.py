"""A strict fake of Ollama's own chat API.

Checks requests to `/api/chat` and streams replies, one JSON document in each line. The server decodes JSON to typed
fields: it ignores unknown fields and refuses those of a wrong type.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from swink_agent.core.types import StopReason

from .kit.api import FakeApi
from .kit.checks import Shape, items, mapping, objects, string, typed
from .kit.replies import Block, FakeReply, blocks, json_line, new_id, pieces

_BODY = Shape(
    typed(
        (str, "model"),
        (list, "messages tools"),
        (bool, "stream truncate shift logprobs"),
        ((str, dict), "format"),
        ((str, float), "keep_alive"),
        (dict, "options"),
        ((bool, str), "think"),
        (int, "top_logprobs"),
    ),
    unknown=None,
)
_MESSAGE = Shape(
    typed((str, "role content thinking tool_name tool_call_id"), (list, "images tool_calls")), unknown=None
)
_FUNCTION = Shape({"name": str, "arguments": dict, "index": int}, required=("name",), unknown=None)
_DECLARATION = Shape({"name": str, "description": str, "parameters": dict}, required=("name",), unknown=None)
_PARAMETERS = Shape({"type": str, "properties": dict, "required": list, "items": object}, unknown=None)
_LEVELS = ("low", "medium", "high", "max")


def problems(body: dict[str, Any]) -> list[str]:
    """Lists what Ollama would reject in the body of a request, in the order of its checks."""
    found: list[str] = []
    _BODY.check(body, "", found)
    if not body.get("model"):
        found.append("model is required")
    if isinstance(body.get("think"), str) and body["think"] not in _LEVELS:
        found.append(f"invalid think value: {body['think']!r} (must be {', '.join(_LEVELS)}, true, or false)")
    if isinstance(body.get("format"), str) and body["format"] not in ("", "json"):
        found.append(f'invalid format: {body["format"]!r}; expected "json" or a valid JSON Schema object')
    for where, tool in objects(body.get("tools"), "tools", found):
        function = mapping(tool.get("function"))
        _DECLARATION.check(function, f"{where}.function", found)
        _PARAMETERS.check(mapping(function.get("parameters")), f"{where}.function.parameters", found)
    messages = list(objects(body.get("messages"), "messages", found))
    for where, message in messages:
        _check_message(message, where, found)
    _check_results(messages, found)
    return found


def _check_message(message: dict[str, Any], where: str, found: list[str]) -> None:
    _MESSAGE.check(message, where, found)
    if message.get("role") not in ("system", "user", "assistant", "tool"):
        found.append(f"{where}.role: invalid role: {message.get('role')!r}")
    for path, call in objects(message.get("tool_calls"), f"{where}.tool_calls", found):
        _FUNCTION.check(mapping(call.get("function")), f"{path}.function", found)
    for index, image in enumerate(items(message.get("images"))):
        if not _is_base64(image):
            found.append(f"{where}.images.{index}: illegal base64 data")


def _is_base64(value: object) -> bool:
    try:
        return bool(base64.b64decode(string(value), validate=True))
    except (binascii.Error, ValueError):
        return False


def _check_results(messages: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that tool messages match the calls before them, in number and by name.

    The server accepts any tool message, but the templates of its models fail on one that does not match, so this fake
    refuses it.
    """
    expected: list[str] = []
    asker = ""
    for where, message in messages:
        if message.get("role") == "tool":
            name = string(message.get("tool_name"))
            if not expected or (name and name not in expected):
                found.append(f"{where}: the result of {name!r} answers no call before it")
            else:
                expected.remove(name or expected[0])
            continue
        if expected:
            found.append(f"{asker}: calls without a result directly after them: {', '.join(expected)}")
        calls = [mapping(mapping(call).get("function")) for call in items(message.get("tool_calls"))]
        expected, asker = [string(call.get("name")) for call in calls], where
    if expected:
        found.append(f"{asker}: calls without a result directly after them: {', '.join(expected)}")


# -- the server ----------------------------------------------------------------------------------------------


def _stream(reply: FakeReply, model: str) -> Iterator[bytes]:
    head = {"model": model, "created_at": "2026-01-01T00:00:00.000000Z"}
    number = 0
    for block in blocks(reply, lambda: new_id("call_", 8)):
        for message in _messages(block, number):
            yield json_line({**head, "message": {"role": "assistant", "content": "", **message}, "done": False})
        number += block.kind == "call"
    if reply.is_done:
        # A reply with calls has the same stop reason as any other.
        reason = "length" if reply.reason == StopReason.LENGTH else "stop"
        counts = {"prompt_eval_count": reply.usage.input, "eval_count": reply.usage.output}
        empty = {"role": "assistant", "content": ""}
        yield json_line({**head, "message": empty, "done": True, "done_reason": reason, "total_duration": 1, **counts})


def _messages(block: Block, number: int) -> Iterator[dict[str, Any]]:
    if block.kind == "call":
        if block.is_closed:
            function = {"index": number, "name": block.name, "arguments": block.arguments}
            yield {"tool_calls": [{"id": block.call_id, "function": function}]}
        return
    for piece in pieces(block.text):
        yield {"thinking" if block.kind == "thinking" else "content": piece}


API = FakeApi(
    path=re.compile(r"/api/chat"),
    content_type="application/x-ndjson",
    problems=lambda body, _: problems(body),
    refusal=lambda request, key: None,  # a local server needs no key
    error=lambda _, message: {"error": message},
    stream=_stream,
    streams_by_default=True,
)
