"""A strict fake of Anthropic's Messages API.

Checks requests to `/v1/messages` and streams replies. The rules of thinking, which Bedrock shares, are in `_claude`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from swink_agent.core.types import StopReason, Usage
from swink_agent.testing.servers import ReceivedRequest

from ._claude import (
    check_thinking,
    check_thinking_first,
    is_redacted_thinking,
    signature_of,
    signature_problem,
    version_of,
)
from .kit.api import FakeApi
from .kit.checks import (
    SCHEMA_KEYWORDS,
    Shape,
    Turn,
    check_json_schema,
    check_keywords,
    check_lengths,
    check_names,
    check_pairs,
    items,
    mapping,
    objects,
    string,
    subschemas,
    typed,
)
from .kit.replies import Block, FakeReply, blocks, new_id, pieces, sse

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MOST_CACHE_MARKS = 4
_LONGEST_TITLE = 500

_BODY = Shape(
    typed(
        (str, "model service_tier inference_geo speed"),
        (list, "messages stop_sequences tools mcp_servers"),
        (int, "max_tokens top_k"),
        ((str, list), "system"),
        (bool, "stream"),
        (float, "temperature top_p"),
        (dict, "tool_choice thinking metadata context_management output_config output_format cache_control"),
        ((str, dict), "container"),
    ),
    required=("model", "messages", "max_tokens"),
)
_OUTPUT = Shape({"effort": str, "format": dict, "task_budget": dict})
_FORMAT = Shape({"type": str, "schema": dict}, required=("type", "schema"))
_KEYWORDS = SCHEMA_KEYWORDS | {"$schema", "allOf", "minItems", "default"}
_METADATA = Shape({"user_id": str})
_MESSAGE = Shape({"role": str, "content": (str, list)}, required=("role", "content"))
_TOOL = Shape(
    typed(
        (str, "name type description"),
        (dict, "input_schema cache_control"),
        (bool, "strict defer_loading eager_input_streaming"),
        (list, "input_examples allowed_callers"),
    ),
    required=("name", "input_schema"),
)
_MARK = {"type": str, "cache_control": dict}
_BLOCKS = {
    "text": Shape({**_MARK, "text": str, "citations": list}, required=("text",)),
    "image": Shape({**_MARK, "source": dict}, required=("source",)),
    "document": Shape({**_MARK, "source": dict, "title": str, "context": str, "citations": dict}, required=("source",)),
    "tool_use": Shape(
        {**_MARK, "id": str, "name": str, "input": dict, "caller": dict}, required=("id", "name", "input")
    ),
    "tool_result": Shape(
        {**_MARK, "tool_use_id": str, "content": (str, list), "is_error": bool}, required=("tool_use_id",)
    ),
    "thinking": Shape({"type": str, "thinking": str, "signature": str}, required=("thinking",)),
    "redacted_thinking": Shape({"type": str, "data": str}, required=("data",)),
}
_ROLES = {
    **dict.fromkeys(("image", "document", "tool_result"), "user"),
    **dict.fromkeys(("tool_use", "thinking", "redacted_thinking"), "assistant"),
}
_OF_THE_PROVIDER = re.compile(r"server_tool_use|search_result|container_upload|compaction|.*_tool_result|mcp_.*")


def problems(body: dict[str, Any]) -> list[str]:
    """Lists what Anthropic would reject in the body of a request, in the order of its checks."""
    found: list[str] = []
    _BODY.check(body, "", found)
    model, thinking = string(body.get("model")), mapping(body.get("thinking"))
    if body.get("max_tokens") is not None and body["max_tokens"] in (0, -1):
        found.append("max_tokens: must be at least 1")
    if thinking:
        check_thinking(thinking, model, body.get("max_tokens"), body.get("temperature"), found)
        if thinking.get("type") != "disabled" and mapping(body.get("tool_choice")).get("type") in ("any", "tool"):
            found.append("tool_choice: thinking may not be on when a call is forced")
    if version_of(model) >= (4, 7):
        found += [f"{name}: not supported by {model}" for name in ("temperature", "top_p", "top_k") if name in body]
    _check_output(mapping(body.get("output_config")), model, found)
    metadata = mapping(body.get("metadata"))
    _METADATA.check(metadata, "metadata", found)
    check_lengths(metadata, ("user_id",), 256, found, "metadata.")
    _check_system(body.get("system"), found)
    _check_tools(body, found)
    _check_messages(body, found)
    _check_cache_marks(body, found)
    return found


def _check_output(config: dict[str, Any], model: str, found: list[str]) -> None:
    _OUTPUT.check(config, "output_config", found)
    if config.get("format") is None:
        return
    output_format, where = mapping(config["format"]), "output_config.format.schema"
    _FORMAT.check(output_format, "output_config.format", found)
    if version_of(model) < (4, 5):
        found.append(f"output_config.format: {model} does not support output format")
    schema = output_format.get("schema")
    check_json_schema(schema, where, found)
    check_keywords(schema, where, _KEYWORDS, found)
    for path, part in subschemas(schema, where):
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            found.append(f"{path}: for 'object' type, 'additionalProperties' must be explicitly set to false")
        if part.get("minItems", 0) not in (0, 1):
            found.append(f"{path}: for 'array' type, 'minItems' values other than 0 or 1 are not supported")


# -- messages ------------------------------------------------------------------------------------------------


def _check_messages(body: dict[str, Any], found: list[str]) -> None:
    messages = list(objects(body.get("messages"), "messages", found))
    if not messages:
        found.append("messages: at least one message is required")
        return
    for where, message in messages:
        _MESSAGE.check(message, where, found)
        _check_content(message, where, found)
        _check_searches(message, where, found)
    if messages[0][1].get("role") == "assistant":
        found.append("messages: the first message must be the user's")
    if messages[-1][1].get("role") == "assistant":
        # Claude 4.5 and older accept the beginning of a reply here, without thinking; newer models do not.
        found.append("messages: the conversation must end with a user message, not with the assistant's")
    turns = [_turn(where, message) for where, message in messages]
    check_pairs(turns, found)
    if len(turns) > 1 and turns[-1].results:  # the reply with these calls must keep its thinking
        where, message = messages[-2]
        content = items(message.get("content"))
        first = string(mapping(content[0]).get("type")) if content else ""
        check_thinking_first(body.get("thinking"), first, f"{where}.content.0", found)
    if not body.get("tools") and any(turn.calls or turn.results for turn in turns):
        found.append("tools: requests with tool_use or tool_result blocks must define tools")


def _check_searches(message: dict[str, Any], where: str, found: list[str]) -> None:
    """Checks that a search and its results come together."""
    content = [mapping(block) for block in items(message.get("content"))]
    asked = {string(block.get("id")) for block in content if block.get("type") == "server_tool_use"}
    given = {string(block.get("tool_use_id")) for block in content if block.get("type") == "web_search_tool_result"}
    found += [f"{where}: server tool use with id {one} was found without its result block" for one in asked - given]
    found += [f"{where}: a result for {one}, which was not asked for" for one in given - asked]


def _turn(where: str, message: dict[str, Any]) -> Turn:
    content = [mapping(block) for block in items(message.get("content"))]
    return Turn(
        where,
        tuple([string(block.get("id")) for block in content if block.get("type") == "tool_use"]),
        tuple([string(block.get("tool_use_id")) for block in content if block.get("type") == "tool_result"]),
    )


def _check_content(message: dict[str, Any], where: str, found: list[str]) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        found.append(f"{where}.role: {role!r} is neither user nor assistant")
    if content in ("", []):
        found.append(f"{where}: all messages must have non-empty content")
    elif isinstance(content, str) and not content.strip():
        found.append(f"{where}: text content must contain non-whitespace text")
    seen_other = False
    texts: list[str] = []
    for path, block in objects(content, f"{where}.content", found):
        kind = string(block.get("type"))
        _check_block(block, kind, string(role), path, found)
        if kind == "tool_result" and seen_other:
            found.append(f"{path}: tool results come first in a message, before anything else")
        seen_other = seen_other or kind != "tool_result"
        if kind == "text":
            texts.append(string(block.get("text")))
    if texts and not any(text.strip() for text in texts) and all(texts):
        found.append(f"{where}: text content blocks must contain non-whitespace text")


def _check_block(block: dict[str, Any], kind: str, role: str, where: str, found: list[str]) -> None:
    shape = _BLOCKS.get(kind)
    if shape is None:
        if not _OF_THE_PROVIDER.fullmatch(kind):
            found.append(f"{where}.type: {kind!r} is not a type of content block")
        return
    shape.check(block, where, found)
    if _ROLES.get(kind, role) != role:
        found.append(f"{where}: a {kind} block is not allowed in a message of the {role}")
    match kind:
        case "text":
            if block.get("text") == "":
                found.append(f"{where}: text content blocks must be non-empty")
        case "image":
            _check_source(mapping(block.get("source")), "image", _MEDIA_TYPES, ("file",), where, found)
        case "document":
            others = ("text", "content", "file")
            _check_source(mapping(block.get("source")), "document", ("application/pdf",), others, where, found)
            if block.get("title") is not None and not 1 <= len(string(block["title"])) <= _LONGEST_TITLE:
                found.append(f"{where}.title: must have 1 to {_LONGEST_TITLE} characters")
        case "tool_use":
            _check_id(block, "id", where, found)
            check_names([(f"{where}.name", block.get("name"))], _TOOL_NAME, found)
        case "tool_result":
            _check_result(block, where, found)
        case "thinking":
            problem = signature_problem(block.get("thinking"), block.get("signature"))
            if problem is not None:
                found.append(f"{where}.signature: {problem}")
        case "redacted_thinking":
            if not is_redacted_thinking(block.get("data")):
                found.append(f"{where}.data: it was not issued for redacted thinking")
        case _:
            pass


def _check_source(
    source: dict[str, Any], noun: str, kinds: tuple[str, ...], others: tuple[str, ...], where: str, found: list[str]
) -> None:
    """Checks where the data of an image or a document is. `kinds` are its media types, `others` are further places."""
    match source.get("type"):
        case "base64":
            if source.get("media_type") not in kinds:
                found.append(f"{where}.source.media_type: {source.get('media_type')!r} is not one of {kinds}")
            if not string(source.get("data")):
                found.append(f"{where}.source.data: {noun} data is required")
        case "url":
            if not string(source.get("url")):
                found.append(f"{where}.source.url: a URL is required")
        case other if other not in others:
            found.append(f"{where}.source.type: {other!r} is not a source for a block of the type {noun}")
        case _:
            pass


def _check_id(block: dict[str, Any], name: str, where: str, found: list[str]) -> None:
    if not _ID.fullmatch(string(block.get(name))):
        found.append(f"{where}.{name}: {block.get(name)!r} must match ^[a-zA-Z0-9_-]+$")


def _check_result(block: dict[str, Any], where: str, found: list[str]) -> None:
    content = block.get("content")
    _check_id(block, "tool_use_id", where, found)
    if block.get("is_error") is True and not content:
        found.append(f"{where}: content cannot be empty if is_error is true")
    for path, part in objects(content, f"{where}.content", found):
        kind = string(part.get("type"))
        if kind not in ("text", "image", "document", "search_result", "tool_reference"):
            found.append(f"{path}.type: {kind!r} is not allowed in a tool result")
            continue
        _check_block(part, kind, "user", path, found)
        if block.get("is_error") is True and kind != "text":
            found.append(f"{path}: all content must be text if is_error is true")


# -- the rest of the body ------------------------------------------------------------------------------------


def _check_system(system: object, found: list[str]) -> None:
    for path, block in objects(system, "system", found):
        if block.get("type") != "text":
            found.append(f"{path}.type: the system prompt consists of text")
        _check_block(block, "text", "system", path, found)


def _check_tools(body: dict[str, Any], found: list[str]) -> None:
    tools = list(objects(body.get("tools"), "tools", found))
    own = [(where, tool) for where, tool in tools if tool.get("type") in (None, "custom")]
    check_names([(f"{where}.name", tool.get("name")) for where, tool in own], _TOOL_NAME, found)
    for where, tool in own:
        _TOOL.check(tool, where, found)
        schema = mapping(tool.get("input_schema"))
        check_json_schema(schema, f"{where}.input_schema", found)
        for name in ("oneOf", "allOf", "anyOf"):
            if name in schema:
                found.append(f"{where}.input_schema: {name} is not supported at the top level")
        for name in mapping(schema.get("properties")):
            if not _PROPERTY.fullmatch(name):
                found.append(f"{where}.input_schema.properties: the key {name!r} must match {_PROPERTY.pattern}")
    choice = mapping(body.get("tool_choice"))
    if choice:
        if choice.get("type") not in ("auto", "any", "tool", "none"):
            found.append(f"tool_choice.type: {choice.get('type')!r} is not one of auto, any, tool, none")
        if not tools:
            found.append("tool_choice: may only be given together with tools")


def _check_cache_marks(body: dict[str, Any], found: list[str]) -> None:
    marked = [mapping(block) for block in [*items(body.get("system")), *items(body.get("tools"))]]
    for message in items(body.get("messages")):
        for block in items(mapping(message).get("content")):
            marked.append(mapping(block))
            marked += [mapping(part) for part in items(mapping(block).get("content"))]
    marks = [mark for block in marked if (mark := block.get("cache_control")) is not None]
    for mark in marks:
        fields = mapping(mark)
        if fields.get("type") != "ephemeral" or fields.get("ttl", "5m") not in ("5m", "1h"):
            found.append(f"cache_control: {mark!r} is not a cache mark")
    if len(marks) > _MOST_CACHE_MARKS:
        found.append(f"cache_control: at most {_MOST_CACHE_MARKS} blocks may be marked, found {len(marks)}")


# -- the server ----------------------------------------------------------------------------------------------


def _refusal(request: ReceivedRequest, key: str) -> str | None:
    if request.headers.get("x-api-key") != key:
        return "invalid x-api-key"
    if "anthropic-version" not in request.headers:
        return "anthropic-version: header is required"
    return None


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": new_id("req_", 24)}


_REASONS = {StopReason.STOP: "end_turn", StopReason.LENGTH: "max_tokens", StopReason.TOOL_USE: "tool_use"}


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
    }


def _stream(reply: FakeReply, model: str) -> Iterator[bytes]:
    message: dict[str, Any] = {"id": new_id("msg_", 24), "type": "message", "role": "assistant", "model": model}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    message["usage"] = {**_usage(reply.usage), "output_tokens": 1}
    yield _event("message_start", message=message)
    yield _event("ping")
    for index, block in enumerate(blocks(reply, lambda: new_id("toolu_01", 22))):
        yield _event("content_block_start", index=index, content_block=_start_of(block))
        for delta in _deltas(block):
            yield _event("content_block_delta", index=index, delta=delta)
        if block.is_closed:
            yield _event("content_block_stop", index=index)
    if reply.is_done:
        delta = {"stop_reason": _REASONS.get(reply.reason, "end_turn"), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": reply.usage.output})
        yield _event("message_stop")


def _start_of(block: Block) -> dict[str, Any]:
    if block.kind == "call":
        return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
    return {"type": block.kind, block.kind: ""} | ({"signature": ""} if block.kind == "thinking" else {})


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    name = "partial_json" if block.kind == "call" else block.kind
    for piece in pieces(block.text):
        yield {"type": "input_json_delta" if block.kind == "call" else f"{block.kind}_delta", name: piece}
    if block.kind == "thinking" and block.is_closed:
        yield {"type": "signature_delta", "signature": signature_of(block.text)}


API = FakeApi(
    path=re.compile(r"/v1/messages(?:\?beta=true)?"),
    content_type="text/event-stream; charset=utf-8",
    problems=lambda body, _: problems(body),
    refusal=_refusal,
    error=_error,
    stream=_stream,
)
