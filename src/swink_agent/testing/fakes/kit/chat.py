"""The base of the fakes of chat completions: the checks of messages and tools, and the chunks of a reply.

It has the rules of OpenAI; providers that differ have a subclass in their own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

from swink_agent.core.types import StopReason, Usage

from .api import FakeApi, needs_bearer
from .checks import (
    STRICT_KEYWORDS,
    TOOL_NAME,
    Shape,
    Turn,
    check_json_schema,
    check_lengths,
    check_names,
    check_output_schema,
    check_pairs,
    check_strict,
    items,
    mapping,
    objects,
    string,
    typed,
)
from .replies import Block, FakeReply, blocks, new_id, pieces, sse

_shape = partial(Shape, unknown="unrecognized request argument supplied: {path}")
_CALL = _shape({"id": str, "type": str, "function": dict, "index": int}, required=("id", "function"))
_FUNCTION = _shape({"name": str, "arguments": str}, required=("name", "arguments"))
_TOOL = _shape({"type": str, "function": dict}, required=("type", "function"))
_DECLARATION = _shape({"name": str, "description": str, "parameters": dict, "strict": bool}, required=("name",))
_FORMAT = _shape({"type": str, "json_schema": dict}, required=("type",))
_JSON_SCHEMA = _shape({"name": str, "description": str, "schema": dict, "strict": bool}, required=("name", "schema"))
_CONTENT = (str, list)


class ChatRules:
    """The rules of chat completions."""

    body: ClassVar[Shape] = _shape(
        typed(
            (str, "model reasoning_effort service_tier user verbosity prompt_cache_key prompt_cache_retention"),
            (str, "safety_identifier"),
            (list, "messages tools modalities"),
            (bool, "stream parallel_tool_calls logprobs store"),
            (dict, "stream_options response_format logit_bias metadata audio prediction moderation web_search_options"),
            ((str, dict), "tool_choice"),
            (float, "temperature top_p frequency_penalty presence_penalty"),
            (int, "max_tokens max_completion_tokens top_logprobs n seed"),
            ((str, list), "stop"),
        ),
        required=("model", "messages"),
    )
    roles: ClassVar[dict[str, Shape]] = {
        **dict.fromkeys(
            ("system", "developer", "user"),
            _shape({"role": str, "content": _CONTENT, "name": str}, required=("content",)),
        ),
        "assistant": _shape(
            typed(
                (str, "role name refusal"), (_CONTENT, "content"), (dict, "audio function_call"), (list, "tool_calls")
            )
        ),
        "tool": _shape({"role": str, "content": _CONTENT, "tool_call_id": str}, required=("content", "tool_call_id")),
    }
    parts: ClassVar[dict[str, tuple[str, ...]]] = {
        **dict.fromkeys(("system", "developer", "tool"), ("text",)),
        "user": ("text", "image_url", "input_audio", "file"),
        "assistant": ("text", "refusal"),
    }
    call_id: ClassVar[re.Pattern[str]] = re.compile(r".{1,40}", re.DOTALL)
    call_id_form: ClassVar[str] = "must be a string of at most 40 characters"
    takes_empty_content: ClassVar[bool] = True
    tool_choices: ClassVar[tuple[str, ...]] = ("auto", "none", "required")
    needs_tools: ClassVar[tuple[str, ...]] = ("tool_choice", "parallel_tool_calls")
    """Fields that make no sense without tools."""

    def problems(self, body: dict[str, Any]) -> list[str]:
        """Lists what the provider would reject in the body of a request, in the order of its checks."""
        found: list[str] = []
        self.body.check(body, "", found)
        self.check_options(body, found)
        self.check_tools(body, found)
        messages = list(objects(body.get("messages"), "messages", found))
        if not messages:
            found.append("messages: the array is too short")
        for where, message in messages:
            self.check_message(message, where, found)
        check_pairs(_turns(messages), found)
        self.check_order(messages, found)
        return found

    # -- the rest of the body ----------------------------------------------------------------------------------

    def check_options(self, body: dict[str, Any], found: list[str]) -> None:
        self.check_format(body, found)
        if body.get("stream_options") is not None and body.get("stream") is not True:
            found.append("stream_options: only allowed when stream is true")
        check_lengths(body, ("prompt_cache_key", "safety_identifier"), 64, found)
        check_lengths(body, ("user",), 256, found)

    def check_format(self, body: dict[str, Any], found: list[str]) -> None:
        response_format = mapping(body.get("response_format"))
        if not response_format:
            return
        _FORMAT.check(response_format, "response_format", found)
        if response_format.get("type") not in ("text", "json_object", "json_schema"):
            found.append(f"response_format.type: {response_format.get('type')!r} is not supported")
        if response_format.get("type") == "json_schema":
            described = mapping(response_format.get("json_schema"))
            _JSON_SCHEMA.check(described, "response_format.json_schema", found)
            self.check_output_schema(described, "response_format.json_schema", found)

    def check_output_schema(self, described: dict[str, Any], where: str, found: list[str]) -> None:
        check_output_schema(described, where, STRICT_KEYWORDS, found)

    def check_tools(self, body: dict[str, Any], found: list[str]) -> None:
        tools = list(objects(body.get("tools"), "tools", found))
        if body.get("tools") == []:
            found.append("tools: the array is too short")
        named = [(f"{where}.function.name", mapping(tool.get("function")).get("name")) for where, tool in tools]
        check_names(named, TOOL_NAME, found)
        for where, tool in tools:
            _TOOL.check(tool, where, found)
            self.check_function(mapping(tool.get("function")), f"{where}.function", found)
        self.check_tool_choice(body.get("tool_choice"), found)
        for name in self.needs_tools:
            if body.get(name) is not None and not tools:
                found.append(f"{name}: only allowed when tools are specified")

    def check_function(self, function: dict[str, Any], where: str, found: list[str]) -> None:
        _DECLARATION.check(function, where, found)
        if "parameters" in function:
            check_json_schema(function["parameters"], f"{where}.parameters", found)
        if function.get("strict") is True:
            check_strict(function.get("parameters"), f"{where}.parameters", found)

    def check_tool_choice(self, choice: object, found: list[str]) -> None:
        if isinstance(choice, str) and choice not in self.tool_choices:
            found.append(f"tool_choice: {choice!r} is not one of {', '.join(self.tool_choices)}")

    # -- messages ----------------------------------------------------------------------------------------------

    def check_message(self, message: dict[str, Any], where: str, found: list[str]) -> None:
        role = string(message.get("role"))
        shape = self.roles.get(role)
        if shape is None:
            found.append(f"{where}.role: {role!r} is not one of {', '.join(self.roles)}")
            return
        shape.check(message, where, found)
        self.check_content(message, role, where, found)
        if message.get("tool_calls") == []:
            found.append(f"{where}.tool_calls: the array is too short")
        for path, call in objects(message.get("tool_calls"), f"{where}.tool_calls", found):
            self.check_call(call, path, found)
        if role == "tool":
            self.check_id(message.get("tool_call_id"), f"{where}.tool_call_id", found)

    def check_content(self, message: dict[str, Any], role: str, where: str, found: list[str]) -> None:
        content = message.get("content")
        if content == []:
            found.append(f"{where}.content: the array is too short")
        if role == "assistant" and content is None and not message.get("tool_calls"):
            found.append(f"{where}.content: expected a string, got null, and there are no tool calls")
        if not self.takes_empty_content and not message.get("tool_calls") and _is_empty(content):
            found.append(f"{where}: every message needs at least one non-empty content element")
        for path, part in objects(content, f"{where}.content", found):
            self.check_part(part, role, path, found)

    def check_part(self, part: dict[str, Any], role: str, where: str, found: list[str]) -> None:
        kind = part.get("type")
        if kind not in self.parts[role]:
            found.append(f"{where}.type: {kind!r} is not allowed in a message of the role {role!r}")
        elif kind == "text" and not isinstance(part.get("text"), str):
            found.append(f"{where}.text: a string is required")
        elif kind == "image_url" and not _image_url(part):
            found.append(f"{where}.image_url.url: a URL is required")
        elif kind == "file" and "file" in part:
            check_file(mapping(part.get("file")), f"{where}.file", found)

    def check_call(self, call: dict[str, Any], where: str, found: list[str]) -> None:
        _CALL.check(call, where, found)
        self.check_id(call.get("id"), f"{where}.id", found)
        function = mapping(call.get("function"))
        _FUNCTION.check(function, f"{where}.function", found)
        check_names([(f"{where}.function.name", function.get("name"))], TOOL_NAME, found)

    def check_id(self, call_id: object, where: str, found: list[str]) -> None:
        if not self.call_id.fullmatch(string(call_id)):
            found.append(f"{where}: {call_id!r} {self.call_id_form}")

    def check_order(self, messages: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
        """Checks the order of roles, beyond the pairs of calls and results."""


def _turns(messages: list[tuple[str, dict[str, Any]]]) -> Iterator[Turn]:
    """Yields one turn for each message, and one for consecutive tool messages."""
    row: list[str] = []
    start = ""
    for where, message in messages:
        if message.get("role") == "tool":
            start = start or where
            row.append(string(message.get("tool_call_id")))
            continue
        if row:
            yield Turn(start, results=tuple(row))
            row, start = [], ""
        yield Turn(where, tuple([string(mapping(call).get("id")) for call in items(message.get("tool_calls"))]))
    if row:
        yield Turn(start, results=tuple(row))


def _is_empty(content: object) -> bool:
    if isinstance(content, str):
        return not content
    return all(mapping(part).get("type") == "text" and not mapping(part).get("text") for part in items(content))


def check_file(file: dict[str, Any], where: str, found: list[str]) -> None:
    """Checks a file in a message of OpenAI: an uploaded one, or a PDF as a data URL with its name."""
    if string(file.get("file_id")):
        return
    if not string(file.get("file_data")).startswith("data:application/pdf;base64,"):
        found.append(f"{where}.file_data: expected a PDF as a base64 data URL")
    if not string(file.get("filename")):
        found.append(f"{where}.filename: this field is required")


def _image_url(part: dict[str, Any]) -> str:
    image = part.get("image_url")
    return image if isinstance(image, str) else string(mapping(image).get("url"))


# -- chunks --------------------------------------------------------------------------------------------------

_REASONS = {StopReason.STOP: "stop", StopReason.LENGTH: "length", StopReason.TOOL_USE: "tool_calls"}


class ChatChunks:
    """The chunks of a reply."""

    def make_id(self) -> str:
        return new_id("call_", 24)

    def stream(self, reply: FakeReply, model: str) -> Iterator[bytes]:
        head: dict[str, Any] = {"id": new_id("chatcmpl-", 29), "object": "chat.completion.chunk"}
        head |= {"created": 1_700_000_000, "model": model}
        number = 0
        yield self.chunk(head, self.first_delta())
        for block in blocks(reply, self.make_id):
            for delta in self.deltas(block, number):
                yield self.chunk(head, delta)
            number += block.kind == "call"
        if reply.is_done:
            yield from self.end(head, reply)

    def chunk(
        self, head: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return sse({**head, "choices": [choice], **more})

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant", "content": ""}

    def deltas(self, block: Block, number: int) -> Iterator[dict[str, Any]]:
        if block.kind == "call":
            function = {"name": block.name, "arguments": ""}
            yield {"tool_calls": [{"index": number, "id": block.call_id, "type": "function", "function": function}]}
        for piece in pieces(block.text):
            match block.kind:
                case "thinking":
                    yield self.thinking(piece)
                case "text":
                    yield {"content": piece}
                case "call":
                    yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}

    def thinking(self, piece: str) -> dict[str, Any]:
        """Makes a delta of reasoning, which compatible servers send under this name; OpenAI itself does not."""
        return {"reasoning_content": piece}

    def end(self, head: dict[str, Any], reply: FakeReply) -> Iterator[bytes]:
        yield self.chunk(head, {}, _REASONS.get(reply.reason, "stop"))
        yield sse({**head, "choices": [], "usage": self.usage(reply.usage)})
        yield sse("[DONE]")

    def usage(self, usage: Usage) -> dict[str, Any]:
        prompt = usage.input + usage.cache_read + usage.cache_write
        return {
            "prompt_tokens": prompt,
            "completion_tokens": usage.output,
            "total_tokens": prompt + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "completion_tokens_details": {"reasoning_tokens": usage.extra.get("reasoning", 0)},
        }


def chat_api(
    rules: ChatRules, chunks: ChatChunks, error: Callable[[int, str], dict[str, Any]], **differences: Any
) -> FakeApi:
    """Makes the description of an API of chat completions: OpenAI's, with other values for fields of `FakeApi`."""
    fields: dict[str, Any] = {
        "path": re.compile(r"/v1/chat/completions"),
        "content_type": "text/event-stream; charset=utf-8",
        "refusal": needs_bearer,
        **differences,
    }
    return FakeApi(problems=lambda body, _: rules.problems(body), error=error, stream=chunks.stream, **fields)
