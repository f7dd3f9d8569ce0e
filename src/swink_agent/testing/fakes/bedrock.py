"""A strict fake of Bedrock's ConverseStream, for Claude and other models.

Checks requests to `/model/{model}/converse-stream` and streams replies. The rules of Claude's thinking are in
`_claude`, the check of signed requests in `_sigv4`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from swink_agent.core.types import StopReason, Usage
from swink_agent.testing.servers import ReceivedRequest

from ._claude import (
    check_thinking,
    check_thinking_first,
    is_claude,
    is_redacted_thinking,
    signature_of,
    signature_problem,
)
from ._sigv4 import signature_problem as request_signature_problem
from .kit.api import FakeApi
from .kit.checks import (
    TOOL_NAME,
    Shape,
    Turn,
    check_json_schema,
    check_names,
    check_pairs,
    items,
    mapping,
    objects,
    string,
    typed,
)
from .kit.replies import Block, FakeReply, aws_event, blocks, new_id, pieces

# The service itself allows dots and colons as well, but the models do not.
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_METADATA = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{1,256}")
_FORMATS = ("png", "jpeg", "gif", "webp")
_MOST_CACHE_POINTS = 4

# The service ignores unknown fields at the top level, and refuses them in unions.
_BODY = Shape(
    typed(
        (list, "messages system"),
        (dict, "inferenceConfig toolConfig additionalModelRequestFields guardrailConfig requestMetadata"),
    ),
    required=("messages",),
    unknown=None,
)
_INFERENCE = Shape({"maxTokens": int, "temperature": float, "topP": float, "stopSequences": list})
_MESSAGE = Shape({"role": str, "content": list}, required=("role", "content"))
_CONTENT = Shape(
    typed(
        (str, "text"),
        (dict, "image document video audio toolUse toolResult guardContent cachePoint reasoningContent"),
        (dict, "citationsContent searchResult"),
    )
)
_RESULT_CONTENT = Shape(typed((str, "text"), (dict, "json image document video searchResult")))
_TOOL_USE = Shape({"toolUseId": str, "name": str, "input": dict, "type": str}, required=("toolUseId", "name", "input"))
_TOOL_RESULT = Shape({"toolUseId": str, "content": list, "status": str, "type": str}, required=("toolUseId", "content"))
_TOOL = Shape({"toolSpec": dict, "systemTool": dict, "cachePoint": dict})
_TOOL_SPEC = Shape(
    {"name": str, "description": str, "inputSchema": dict, "strict": bool}, required=("name", "inputSchema")
)
_SYSTEM = Shape({"text": str, "guardContent": dict, "cachePoint": dict})
_ROLES = {
    **dict.fromkeys(("toolUse", "reasoningContent"), "assistant"),
    **dict.fromkeys(("toolResult", "image", "document"), "user"),
}
_DOCUMENT = Shape(
    {"format": str, "name": str, "source": dict, "context": str, "citations": dict}, required=("name", "source")
)
_DOCUMENT_NAME = re.compile(  # an underscore is taken, though the error does not list it
    r"(?!.*\s\s)[\w\s()\[\]-]{1,200}", re.ASCII
)


def problems(body: dict[str, Any], model: str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0") -> list[str]:
    """Lists what Bedrock would reject in the body of a request to the model, in the order of its checks."""
    found: list[str] = []
    _BODY.check(body, "", found)
    inference = mapping(body.get("inferenceConfig"))
    _INFERENCE.check(inference, "inferenceConfig", found)
    thinking = mapping(mapping(body.get("additionalModelRequestFields")).get("thinking"))
    if thinking and is_claude(model):
        check_thinking(thinking, model, inference.get("maxTokens"), inference.get("temperature"), found)
    for name, value in mapping(body.get("requestMetadata")).items():
        if not _METADATA.fullmatch(name) or not _METADATA.fullmatch(string(value)):
            found.append(f"requestMetadata.{name[:60]}: names and values must match {_METADATA.pattern}")
    for where, block in objects(body.get("system"), "system", found):
        _check_one(block, _SYSTEM, where, found)
        if block.get("text") == "":
            found.append(f"{where}.text: the length must be at least 1")
    _check_tools(body.get("toolConfig"), found)
    _check_messages(body, model, thinking, found)
    _check_cache_points(body, found)
    return found


def _check_one(block: dict[str, Any], shape: Shape, where: str, found: list[str]) -> str:
    """Returns the single member of a union."""
    shape.check(block, where, found)
    known = [name for name in block if name in shape.fields]
    if len(known) != 1 or len(block) != 1:
        found.append(f"{where}: exactly one of {', '.join(shape.fields)} must be set")
    return known[0] if known else ""


# -- messages ------------------------------------------------------------------------------------------------


def _check_messages(body: dict[str, Any], model: str, thinking: dict[str, Any], found: list[str]) -> None:
    messages = list(objects(body.get("messages"), "messages", found))
    for where, message in messages:
        _MESSAGE.check(message, where, found)
        _check_content(message, model, where, found)
    _check_documents(messages, found)
    _check_roles([string(message.get("role")) for _, message in messages], found)
    turns = [_turn(where, message) for where, message in messages]
    check_pairs(turns, found)
    if not mapping(body.get("toolConfig")).get("tools") and any(turn.calls or turn.results for turn in turns):
        found.append("toolConfig: it must be defined when using toolUse and toolResult content blocks")
    if len(turns) > 1 and turns[-1].results and is_claude(model):
        where, message = messages[-2]
        content = items(message.get("content"))
        has_thinking = bool(content) and "reasoningContent" in mapping(content[0])
        check_thinking_first(thinking, "thinking" if has_thinking else "", f"{where}.content.0", found)


def _check_roles(roles: list[str], found: list[str]) -> None:
    if not roles or roles[0] != "user":
        found.append("messages: a conversation must start with a user message")
    if any(role not in ("user", "assistant") for role in roles):
        found.append("messages: every role is user or assistant")
    if any(before == after for before, after in pairwise(roles)):
        found.append("messages: a conversation must alternate between user and assistant roles")
    if roles and roles[-1] == "assistant":
        found.append("messages: the conversation must end with a user message")


def _turn(where: str, message: dict[str, Any]) -> Turn:
    content = [mapping(block) for block in items(message.get("content"))]
    return Turn(
        where,
        tuple([string(mapping(block["toolUse"]).get("toolUseId")) for block in content if "toolUse" in block]),
        tuple([string(mapping(block["toolResult"]).get("toolUseId")) for block in content if "toolResult" in block]),
    )


def _check_content(message: dict[str, Any], model: str, where: str, found: list[str]) -> None:
    if not message.get("content"):
        found.append(f"{where}: the content field is empty; add a content block")
    for path, block in objects(message.get("content"), f"{where}.content", found):
        kind = _check_one(block, _CONTENT, path, found)
        if _ROLES.get(kind, message.get("role")) != message.get("role"):
            found.append(f"{path}: {kind} is not allowed in a message of the {message.get('role')}")
        match kind:
            case "toolUse":
                _check_tool_use(mapping(block["toolUse"]), f"{path}.toolUse", found)
            case "toolResult":
                _check_tool_result(mapping(block["toolResult"]), f"{path}.toolResult", found)
            case "reasoningContent":
                _check_reasoning(mapping(block["reasoningContent"]), model, f"{path}.reasoningContent", found)
            case _:
                _check_plain(block, kind, path, found)


def _check_plain(block: dict[str, Any], kind: str, where: str, found: list[str]) -> None:
    """Checks blocks that both messages and results may contain."""
    if kind == "text" and not string(block.get("text")).strip():
        found.append(f"{where}: the text field is blank; add text to it")
    elif kind == "image":
        _check_image(mapping(block["image"]), f"{where}.image", found)
    elif kind == "document":
        _check_document(mapping(block["document"]), f"{where}.document", found)


def _check_image(image: dict[str, Any], where: str, found: list[str]) -> None:
    if image.get("format") not in _FORMATS:
        found.append(f"{where}.format: {image.get('format')!r} is not one of {', '.join(_FORMATS)}")
    source = mapping(image.get("source"))
    if not string(source.get("bytes")) and "s3Location" not in source:
        found.append(f"{where}.source: bytes are required")


def _check_document(document: dict[str, Any], where: str, found: list[str]) -> None:
    _DOCUMENT.check(document, where, found)
    if not _DOCUMENT_NAME.fullmatch(string(document.get("name"))):
        found.append(
            f"{where}.name: the document file name can only contain alphanumeric characters, single whitespace "
            "characters, hyphens, parentheses, and square brackets"
        )
    source = mapping(document.get("source"))
    if not string(source.get("bytes")) and not source.keys() & {"s3Location", "text"}:
        found.append(f"{where}.source: bytes are required")


def _check_documents(messages: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that a message with a document has text, and that the names of documents are unique."""
    names: list[str] = []
    for where, message in messages:
        content = [mapping(block) for block in items(message.get("content"))]
        results = [
            mapping(part) for block in content for part in items(mapping(block.get("toolResult")).get("content"))
        ]
        documents = [mapping(block["document"]) for block in (*content, *results) if "document" in block]
        if documents and not any("text" in block for block in (*content, *results)):
            found.append(f"{where}: include a text content block with a document")
        names += [string(document.get("name")).lower() for document in documents]
    if len(set(names)) < len(names):
        found.append("messages: can't contain duplicate document names; rename the document and retry your request")


def _check_tool_use(call: dict[str, Any], where: str, found: list[str]) -> None:
    _TOOL_USE.check(call, where, found)
    _check_id(call, where, found)
    check_names([(f"{where}.name", call.get("name"))], TOOL_NAME, found)


def _check_tool_result(result: dict[str, Any], where: str, found: list[str]) -> None:
    _TOOL_RESULT.check(result, where, found)
    _check_id(result, where, found)
    if result.get("status", "success") not in ("success", "error"):
        found.append(f"{where}.status: {result.get('status')!r} is neither success nor error")
    for path, part in objects(result.get("content"), f"{where}.content", found):
        _check_plain(part, _check_one(part, _RESULT_CONTENT, path, found), path, found)


def _check_id(block: dict[str, Any], where: str, found: list[str]) -> None:
    if not _ID.fullmatch(string(block.get("toolUseId"))):
        found.append(f"{where}.toolUseId: {block.get('toolUseId')!r} must match {_ID.pattern}")


def _check_reasoning(block: dict[str, Any], model: str, where: str, found: list[str]) -> None:
    if "redactedContent" in block:
        if not is_redacted_thinking(block["redactedContent"]):
            found.append(f"{where}.redactedContent: it was not issued for redacted thinking")
        return
    reasoning = mapping(block.get("reasoningText"))
    if not is_claude(model):
        # Nova refuses its own reasoning, gpt-oss the signature; omitting it works for all.
        found.append(f"{where}: {model} does not accept reasoning")
        return
    problem = signature_problem(reasoning.get("text"), reasoning.get("signature"))
    if problem is not None:
        found.append(f"{where}.reasoningText.signature: {problem}")


# -- the rest of the body ------------------------------------------------------------------------------------


def _check_tools(config: object, found: list[str]) -> None:
    tools = list(objects(mapping(config).get("tools"), "toolConfig.tools", found))
    if config is not None and not tools:
        found.append("toolConfig.tools: at least one tool is required")
    specs: list[tuple[str, dict[str, Any]]] = []
    for where, tool in tools:
        if _check_one(tool, _TOOL, where, found) == "toolSpec":
            specs.append((f"{where}.toolSpec", mapping(tool["toolSpec"])))
    check_names([(f"{where}.name", spec.get("name")) for where, spec in specs], TOOL_NAME, found)
    for where, spec in specs:
        _TOOL_SPEC.check(spec, where, found)
        if spec.get("description") == "":
            found.append(f"{where}.description: the length must be at least 1")
        check_json_schema(mapping(spec.get("inputSchema")).get("json"), f"{where}.inputSchema.json", found)
    choice = mapping(mapping(config).get("toolChoice"))
    if choice and set(choice) - {"auto", "any", "tool"}:
        found.append(f"toolConfig.toolChoice: {', '.join(choice)} is not one of auto, any, tool")


def _check_cache_points(body: dict[str, Any], found: list[str]) -> None:
    places = [items(body.get("system")), items(mapping(body.get("toolConfig")).get("tools"))]
    places += [items(mapping(message).get("content")) for message in items(body.get("messages"))]
    points = 0
    for place in places:
        for index, block in enumerate(place):
            if "cachePoint" not in mapping(block):
                continue
            points += 1
            if mapping(block["cachePoint"]).get("type") != "default":
                found.append("cachePoint.type: only 'default' is known")
            if index == 0:
                found.append("cachePoint: it must come after the content to cache")
    if points > _MOST_CACHE_POINTS:
        found.append(f"cachePoint: at most {_MOST_CACHE_POINTS} are allowed, found {points}")


# -- the server ----------------------------------------------------------------------------------------------


def _refusal(request: ReceivedRequest, key: str) -> str | None:
    """Checks that the request is signed with the key as the secret, or has the key as a bearer token."""
    if request.headers.get("authorization") == f"Bearer {key}":
        return None
    return request_signature_problem(request, key, "bedrock")


_REASONS = {StopReason.STOP: "end_turn", StopReason.LENGTH: "max_tokens", StopReason.TOOL_USE: "tool_use"}


def _stream(reply: FakeReply, model: str) -> Iterator[bytes]:
    yield aws_event("messageStart", {"role": "assistant", "p": "abc"})
    for index, block in enumerate(blocks(reply, lambda: new_id("tooluse_", 22))):
        if block.kind == "call":
            start = {"toolUse": {"toolUseId": block.call_id, "name": block.name}}
            yield aws_event("contentBlockStart", {"contentBlockIndex": index, "start": start})
        for delta in _deltas(block, model):
            yield aws_event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "ab"})
        if block.is_closed:
            yield aws_event("contentBlockStop", {"contentBlockIndex": index})
    if reply.is_done:
        yield aws_event("messageStop", {"stopReason": _REASONS.get(reply.reason, "end_turn")})
        yield aws_event("metadata", {"metrics": {"latencyMs": 1}, "usage": _usage(reply.usage)})


def _deltas(block: Block, model: str) -> Iterator[dict[str, Any]]:
    for piece in pieces(block.text):
        yield {
            "thinking": {"reasoningContent": {"text": piece}},
            "text": {"text": piece},
            "call": {"toolUse": {"input": piece}},
        }[block.kind]
    if block.kind == "thinking" and block.is_closed and is_claude(model):
        yield {"reasoningContent": {"signature": signature_of(block.text)}}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }


API = FakeApi(
    path=re.compile(r"/model/(?P<model>[^/?]+)/converse-stream"),
    content_type="application/vnd.amazon.eventstream",
    problems=problems,
    refusal=_refusal,
    error=lambda _, message: {"message": message},
    stream=_stream,
    refusal_status=403,
    streams_by_default=True,
)
