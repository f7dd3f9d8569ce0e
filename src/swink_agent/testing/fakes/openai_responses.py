"""A strict fake of OpenAI's Responses API, used without state: nothing is stored between two requests.

Checks requests to `/v1/responses` and streams replies, including reasoning items with encrypted content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

from swink_agent.core.types import StopReason, Usage

from .kit.api import FakeApi, needs_bearer
from .kit.chat import check_file
from .kit.checks import (
    STRICT_KEYWORDS,
    Shape,
    check_json_schema,
    check_lengths,
    check_names,
    check_output_schema,
    mapping,
    objects,
    string,
    typed,
)
from .kit.replies import Block, FakeReply, blocks, is_signed, new_id, pieces, sign, sse
from .openai import error

_ISSUER = "openai"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ITEM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_CALL_ID = 64
_FEWEST_OUTPUT_TOKENS = 16
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_shape = partial(Shape, unknown="unknown parameter: '{path}'")

_BODY = _shape(
    typed(
        (str, "model instructions truncation prompt_cache_key prompt_cache_retention safety_identifier service_tier"),
        (str, "previous_response_id user"),
        ((str, list), "input"),
        (bool, "stream store parallel_tool_calls background"),
        (dict, "stream_options reasoning text metadata prompt"),
        (list, "include tools"),
        ((str, dict), "tool_choice conversation"),
        (int, "max_tool_calls top_logprobs max_output_tokens"),
        (float, "temperature top_p"),
    ),
    required=("model", "input"),
)
_REASONING = _shape({"effort": str, "summary": str, "generate_summary": str, "context": str})
_FORMAT = _shape(
    {"type": str, "name": str, "description": str, "schema": dict, "strict": bool}, required=("name", "schema")
)
_TOOL = _shape(
    {"type": str, "name": str, "description": str, "parameters": dict, "strict": bool, "defer_loading": bool},
    required=("name", "parameters"),
)
_BASE = {"type": str, "id": str, "status": str}
_ITEMS = {
    "message": _shape({**_BASE, "role": str, "content": (str, list), "phase": str}, required=("role", "content")),
    "function_call": _shape(
        {**_BASE, "call_id": str, "name": str, "arguments": str, "namespace": str},
        required=("call_id", "name", "arguments"),
    ),
    "function_call_output": _shape({**_BASE, "call_id": str, "output": (str, list)}, required=("call_id", "output")),
    # Unlike other items, reasoning may not be sent back with its status.
    "reasoning": _shape(
        {"type": str, "id": str, "summary": list, "content": list, "encrypted_content": str}, required=("summary",)
    ),
}
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}
_OTHER_ITEMS = re.compile(
    r"custom_tool_call(?:_output)?|compaction|[a-z_]+_call(?:_output)?|mcp_[a-z_]+|tool_search_output"
)
_PARTS = {"assistant": ("output_text", "refusal"), "user": ("input_text", "input_image", "input_file", "input_audio")}


def problems(body: dict[str, Any]) -> list[str]:
    """Lists what OpenAI would reject in the body of a request, in the order of its checks."""
    found: list[str] = []
    _BODY.check(body, "", found)
    _check_options(body, found)
    _check_tools(body, found)
    if body.get("input") in ("", []):
        found.append("input: one of input, previous_response_id, prompt or conversation must be provided")
    entries = list(objects(body.get("input"), "input", found))
    for where, item in entries:
        _check_item(item, where, found)
    _check_calls(entries, found)
    _check_reasoning_order(entries, found)
    return found


# -- the rest of the body ------------------------------------------------------------------------------------


def _check_options(body: dict[str, Any], found: list[str]) -> None:
    check_lengths(body, ("prompt_cache_key", "safety_identifier"), 64, found)
    reasoning = mapping(body.get("reasoning"))
    _REASONING.check(reasoning, "reasoning", found)
    if reasoning.get("effort") not in (None, *_EFFORTS):
        found.append(f"reasoning.effort: {reasoning['effort']!r} is not one of {', '.join(_EFFORTS)}")
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < _FEWEST_OUTPUT_TOKENS:
        found.append(f"max_output_tokens: expected a value >= {_FEWEST_OUTPUT_TOKENS}, got {limit}")
    output_format = mapping(mapping(body.get("text")).get("format"))
    if output_format.get("type") == "json_schema":
        _FORMAT.check(output_format, "text.format", found)
        check_output_schema(output_format, "text.format", STRICT_KEYWORDS, found)
    if body.get("previous_response_id") is not None:
        found.append(f"previous_response_id: the response {body['previous_response_id']!r} was not found")
    if body.get("stream_options") is not None and body.get("stream") is not True:
        found.append("stream_options: only allowed when stream is true")


def _check_tools(body: dict[str, Any], found: list[str]) -> None:
    tools = list(objects(body.get("tools"), "tools", found))
    functions = [(where, tool) for where, tool in tools if tool.get("type") == "function"]
    check_names([(f"{where}.name", tool.get("name")) for where, tool in functions], _TOOL_NAME, found)
    for where, tool in tools:
        if not string(tool.get("type")):
            found.append(f"{where}.type: this field is required")
    for where, tool in functions:
        _TOOL.check(tool, where, found)
        check_json_schema(tool.get("parameters"), f"{where}.parameters", found)
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        found.append(f"tool_choice: {choice!r} is not one of auto, none, required")
    if isinstance(choice, dict) and not tools:
        found.append("tool_choice: the tool is not among the tools")


# -- items ---------------------------------------------------------------------------------------------------


def _check_item(item: dict[str, Any], where: str, found: list[str]) -> None:
    kind = _kind(item)
    shape = _ITEMS.get(kind)
    if kind == "item_reference":
        found.append(f"{where}: the item {item.get('id')!r} was not found: items are not persisted here")
        return
    if shape is None:
        if not _OTHER_ITEMS.fullmatch(kind):
            found.append(f"{where}.type: {kind!r} is not a type of item")
        return
    shape.check(item, where, found)
    _check_item_id(item, kind, where, found)
    match kind:
        case "message":
            _check_message(item, where, found)
        case "function_call" | "function_call_output":
            _check_call_item(item, kind, where, found)
        case _:
            _check_reasoning(item, where, found)


def _kind(item: dict[str, Any]) -> str:
    return string(item.get("type")) or ("message" if "role" in item else "")


def _check_item_id(item: dict[str, Any], kind: str, where: str, found: list[str]) -> None:
    item_id = item.get("id")
    if item_id is None:
        return
    if not _ITEM_ID.fullmatch(string(item_id)) or string(item_id).endswith("_"):
        found.append(f"{where}.id: {item_id!r} is not made of up to 64 letters, numbers, underscores and dashes")
    elif not string(item_id).startswith(_ID_PREFIXES[kind]):
        found.append(f"{where}.id: {item_id!r} does not begin with {_ID_PREFIXES[kind]!r}")


def _check_message(item: dict[str, Any], where: str, found: list[str]) -> None:
    role = string(item.get("role"))
    if role not in ("user", "assistant", "system", "developer"):
        found.append(f"{where}.role: {role!r} is not one of user, assistant, system, developer")
    if item.get("content") == []:
        found.append(f"{where}.content: the array is empty")
    _check_parts(item.get("content"), _PARTS.get(role, _PARTS["user"]), f"{where}.content", found)


def _check_parts(content: object, allowed: tuple[str, ...], where: str, found: list[str]) -> None:
    for path, part in objects(content, where, found):
        kind = part.get("type")
        if kind not in allowed:
            found.append(f"{path}.type: {kind!r} is not one of {', '.join(allowed)}")
        elif kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            found.append(f"{path}.text: this field is required")
        elif kind == "input_image" and not (string(part.get("image_url")) or string(part.get("file_id"))):
            found.append(f"{path}.image_url: expected a URL, as a string")
        elif kind == "input_file" and not string(part.get("file_url")):
            check_file(part, path, found)


def _check_call_item(item: dict[str, Any], kind: str, where: str, found: list[str]) -> None:
    call_id = string(item.get("call_id"))
    if not call_id:
        found.append(f"{where}.call_id: empty string")
    elif len(call_id) > _LONGEST_CALL_ID:
        found.append(f"{where}.call_id: string too long, at most {_LONGEST_CALL_ID} characters, got {len(call_id)}")
    if kind == "function_call":
        check_names([(f"{where}.name", item.get("name"))], _TOOL_NAME, found)
    else:
        _check_parts(item.get("output"), _PARTS["user"], f"{where}.output", found)


def _check_reasoning(item: dict[str, Any], where: str, found: list[str]) -> None:
    item_id, encrypted = item.get("id"), item.get("encrypted_content")
    if encrypted is None:
        found.append(f"{where}: the item {item_id!r} was not found: items are not persisted here")
    elif not _is_issued(item_id, encrypted):
        found.append(f"{where}.encrypted_content: it could not be verified")
    for path, part in objects(item.get("summary"), f"{where}.summary", found):
        if part.get("type") != "summary_text":
            found.append(f"{path}.type: {part.get('type')!r} is not summary_text")


def _is_issued(item_id: object, encrypted: object) -> bool:
    """Whether this fake encrypted the content for this item. The content contains the id, so the item may omit it."""
    own, _, signature = string(encrypted).partition(".")
    return item_id in (None, own) and is_signed(_ISSUER, own, signature)


def _check_calls(entries: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that every call has one output somewhere after it, and every output a call before it."""
    called: dict[str, str] = {}
    answered = set[str]()
    for where, item in entries:
        call_id = string(item.get("call_id"))
        if _kind(item) == "function_call":
            if call_id in called:
                found.append(f"{where}: duplicate call_id {call_id!r}")
            called[call_id] = where
        elif _kind(item) == "function_call_output":
            if call_id not in called:
                found.append(f"{where}: no tool call found for function call output with call_id {call_id!r}")
            elif call_id in answered:
                found.append(f"{where}: a second output for the function call {call_id!r}")
            answered.add(call_id)
    for call_id, where in called.items():
        if call_id not in answered:
            found.append(f"{where}: no tool output found for function call {call_id!r}")


def _check_reasoning_order(entries: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that reasoning with an id is directly before the item that it led to."""
    for position, (where, item) in enumerate(entries):
        if _kind(item) == "reasoning" and item.get("id") is not None:
            following = entries[position + 1][1] if position + 1 < len(entries) else {}
            if _kind(following) == "message" and following.get("role") == "assistant":
                continue
            if _kind(following) != "function_call":
                found.append(f"{where}: the reasoning {item['id']!r} was provided without its required following item")


# -- the server ----------------------------------------------------------------------------------------------


class _Events:
    """The events of one response, numbered."""

    def __init__(self, reply: FakeReply, model: str) -> None:
        self.reply = reply
        self.response: dict[str, Any] = {"id": new_id("resp_", 48), "object": "response", "created_at": 1_700_000_000}
        self.response |= {"status": "in_progress", "error": None, "incomplete_details": None, "model": model}
        self.response |= {"output": [], "usage": None}
        self._numbers = count()

    def event(self, kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, **fields, "sequence_number": next(self._numbers)}, kind)

    def stream(self) -> Iterator[bytes]:
        yield self.event("response.created", response=self.response)
        yield self.event("response.in_progress", response=self.response)
        output: list[dict[str, Any]] = []
        for index, block in enumerate(blocks(self.reply, lambda: new_id("call_", 24))):
            yield from self.item(block, index, output)
        if self.reply.is_done:
            is_cut = self.reply.reason == StopReason.LENGTH
            status = "incomplete" if is_cut else "completed"
            details = {"reason": "max_output_tokens"} if is_cut else None
            end = {"status": status, "incomplete_details": details, "output": output, "usage": _usage(self.reply.usage)}
            yield self.event(f"response.{status}", response={**self.response, **end})

    def item(self, block: Block, index: int, output: list[dict[str, Any]]) -> Iterator[bytes]:
        item_id = new_id({"thinking": "rs_", "text": "msg_", "call": "fc_"}[block.kind], 48)
        place: dict[str, Any] = {"item_id": item_id, "output_index": index}
        match block.kind:
            case "thinking":
                start: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": []}
                part: dict[str, Any] = {"type": "summary_text", "text": ""}
                summary = [{**part, "text": block.text}]
                end = {**start, "summary": summary, "encrypted_content": f"{item_id}.{sign(_ISSUER, item_id)}"}
                place["summary_index"] = 0
                deltas = self.speech(block, place, "reasoning_summary_part", part, "reasoning_summary_text")
            case "text":
                start = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                end = {**start, "status": "completed", "content": [{**part, "text": block.text}]}
                place["content_index"] = 0
                deltas = self.speech(block, place, "content_part", part, "output_text", logprobs=[])
            case "call":
                start = {"id": item_id, "type": "function_call", "status": "in_progress", "call_id": block.call_id}
                start |= {"name": block.name, "arguments": ""}
                end = {**start, "status": "completed", "arguments": block.text}
                deltas = self.arguments(block, place)
        yield self.event("response.output_item.added", output_index=index, item=start)
        yield from deltas
        if block.is_closed:
            output.append(end)
            yield self.event("response.output_item.done", output_index=index, item=end)

    def speech(
        self, block: Block, place: dict[str, Any], kind: str, part: dict[str, Any], text: str, **more: Any
    ) -> Iterator[bytes]:
        yield self.event(f"response.{kind}.added", **place, part=part)
        for piece in pieces(block.text):
            yield self.event(f"response.{text}.delta", **place, delta=piece, **more)
        if block.is_closed:
            yield self.event(f"response.{text}.done", **place, text=block.text, **more)
            yield self.event(f"response.{kind}.done", **place, part={**part, "text": block.text})

    def arguments(self, block: Block, place: dict[str, Any]) -> Iterator[bytes]:
        for piece in pieces(block.text):
            yield self.event("response.function_call_arguments.delta", **place, delta=piece)
        if block.is_closed:
            yield self.event("response.function_call_arguments.done", **place, arguments=block.text)


def _usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.extra.get("reasoning", 0)},
        "total_tokens": prompt + usage.output,
    }


API = FakeApi(
    path=re.compile(r"/v1/responses"),
    content_type="text/event-stream; charset=utf-8",
    problems=lambda body, _: problems(body),
    refusal=needs_bearer,
    error=error,
    stream=lambda reply, model: _Events(reply, model).stream(),
)
