"""A strict fake of Google's Gemini API.

Checks requests to `streamGenerateContent` and streams replies as server-sent events. Like the API, it accepts names of
fields in camel case and in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from swink_agent.core.types import StopReason, Usage
from swink_agent.testing.servers import ReceivedRequest

from .kit.api import FakeApi
from .kit.checks import Shape, check_json_schema, check_names, items, mapping, objects, string, subschemas, typed
from .kit.replies import FakeReply, blocks, is_signed, new_id, pieces, sign, sse

_ISSUER = "gemini"
_STAND_INS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_shape = partial(Shape, unknown="invalid JSON payload received: unknown name '{path}', cannot find field")

_BODY = _shape(
    typed(
        (list, "contents tools safetySettings"),
        (dict, "toolConfig systemInstruction generationConfig labels"),
        (str, "cachedContent model serviceTier"),
        (bool, "store"),
    ),
    required=("contents",),
)
_GENERATION = _shape(
    typed(
        (float, "temperature topP topK presencePenalty frequencyPenalty"),
        (int, "candidateCount maxOutputTokens logprobs seed"),
        (list, "stopSequences responseModalities"),
        (str, "responseMimeType mediaResolution"),
        (dict, "responseSchema responseJsonSchema speechConfig thinkingConfig imageConfig"),
        (bool, "responseLogprobs audioTimestamp"),
    )
)
_THINKING = _shape({"includeThoughts": bool, "thinkingBudget": int, "thinkingLevel": str})
_CONTENT = _shape({"role": str, "parts": list}, required=("parts",))
_DATA = typed(
    (str, "text"),
    (dict, "inlineData fileData functionCall functionResponse executableCode codeExecutionResult"),
    (dict, "toolCall toolResponse"),
)
_PART = _shape(
    {
        **_DATA,
        **typed((bool, "thought"), (str, "thoughtSignature"), (dict, "videoMetadata mediaResolution partMetadata")),
    }
)
_CALL = _shape({"id": str, "name": str, "args": dict}, required=("name",))
_RESPONSE = _shape(
    {"id": str, "name": str, "response": dict, "parts": list, "willContinue": bool, "scheduling": str},
    required=("name", "response"),
)
_INLINE = _shape({"mimeType": str, "data": str, "displayName": str}, required=("mimeType", "data"))
_DECLARATION = _shape(
    typed((str, "name description behavior"), (dict, "parameters parametersJsonSchema response responseJsonSchema")),
    required=("name",),
)
_SCHEMA = _shape(
    typed(
        (str, "type format title description pattern"),
        (bool, "nullable"),
        (list, "enum required anyOf propertyOrdering"),
        (dict, "items properties"),
        ((int, str), "minItems maxItems minProperties maxProperties minLength maxLength"),
        (float, "minimum maximum"),
        (object, "example default"),
    )
)


def problems(body: dict[str, Any], model: str = "gemini-3-pro-preview") -> list[str]:
    """Lists what Gemini would reject in the body of a request to the model, in the order of its checks."""
    found: list[str] = []
    body = _camel(body)
    _BODY.check(body, "", found)
    _check_generation(_camel(mapping(body.get("generationConfig"))), bool(body.get("tools")), model, found)
    _check_tools(body.get("tools"), found)
    _check_search(body, model, found)
    if body.get("systemInstruction") is not None:
        _check_parts(mapping(body["systemInstruction"]), "systemInstruction", found)
    contents = list(objects(body.get("contents"), "contents", found))
    if not contents:
        found.append("contents: is not specified")
    for where, content in contents:
        _CONTENT.check(content, where, found)
        if content.get("role", "user") not in ("user", "model", "function"):
            found.append(f"{where}.role: please use a valid role: user, model")
        _check_parts(content, where, found)
    _check_function_turns(contents, found)
    if model.startswith("gemini-3"):
        _check_signed_calls(contents, found)
    return found


def _camel(value: dict[str, Any]) -> dict[str, Any]:
    """Converts the names of the object's fields to camel case."""
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), name): item for name, item in value.items()}


def _parts(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [_camel(mapping(part)) for part in items(content.get("parts"))]


# -- the rest of the body ------------------------------------------------------------------------------------


def _check_generation(config: dict[str, Any], has_tools: bool, model: str, found: list[str]) -> None:
    _GENERATION.check(config, "generationConfig", found)
    thinking = _camel(mapping(config.get("thinkingConfig")))
    _THINKING.check(thinking, "generationConfig.thinkingConfig", found)
    if thinking.get("thinkingBudget") is not None and thinking.get("thinkingLevel") is not None:
        found.append("generationConfig.thinkingConfig: only one of thinkingBudget and thinkingLevel can be set")
    if string(thinking.get("thinkingLevel")).upper() not in ("", "MINIMAL", "LOW", "MEDIUM", "HIGH"):
        found.append(f"generationConfig.thinkingConfig.thinkingLevel: invalid value {thinking['thinkingLevel']!r}")

    if config.get("responseJsonSchema") is not None:
        check_json_schema(config["responseJsonSchema"], "generationConfig.responseJsonSchema", found)
        if config.get("responseMimeType") != "application/json":
            found.append("generationConfig.responseMimeType: must be application/json with a schema")
    if config.get("responseMimeType") == "application/json" and has_tools and not model.startswith("gemini-3"):
        found.append("function calling with a response mime type: 'application/json' is unsupported")


def _check_tools(tools: object, found: list[str]) -> None:
    named: list[tuple[str, object]] = []
    for where, tool in objects(tools, "tools", found):
        for path, given in objects(_camel(tool).get("functionDeclarations"), f"{where}.functionDeclarations", found):
            declaration = _camel(given)
            _DECLARATION.check(declaration, path, found)
            named.append((f"{path}.name", declaration.get("name")))
            if "parameters" in declaration and "parametersJsonSchema" in declaration:
                found.append(f"{path}: parameters and parametersJsonSchema exclude each other")
            if "parameters" in declaration:
                _check_schema(declaration["parameters"], f"{path}.parameters", found)
    check_names(named, _NAME, found)


def _check_search(body: dict[str, Any], model: str, found: list[str]) -> None:
    """Checks Google's own search next to other tools."""
    names = {name for tool in items(body.get("tools")) for name in _camel(mapping(tool))}
    if not {"googleSearch", "functionDeclarations"} <= names:
        return
    if not model.startswith("gemini-3"):
        found.append("tools: built-in tools with function calling are unsupported by this model")
    elif _camel(mapping(body.get("toolConfig"))).get("includeServerSideToolInvocations") is not True:
        found.append(
            "toolConfig: please enable includeServerSideToolInvocations to use built-in tools with function calling"
        )


def _check_schema(schema: object, where: str, found: list[str]) -> None:
    """Checks a schema in the API's own dialect, which is a subset of JSON Schema."""
    for path, part in subschemas(schema, where):
        _SCHEMA.check(_camel(part), path, found)
        if any(not isinstance(choice, str) for choice in items(part.get("enum"))):
            found.append(f"{path}.enum: only strings can be listed")
        if string(part.get("type")).upper() == "ARRAY" and "items" not in part:
            found.append(f"{path}.items: missing field")


# -- contents ------------------------------------------------------------------------------------------------


def _check_parts(content: dict[str, Any], where: str, found: list[str]) -> None:
    parts = list(objects(content.get("parts"), f"{where}.parts", found))
    if not parts:
        found.append(f"{where}.parts: must not be empty")
    elif all(set(part) == {"text"} and not part["text"] for _, part in parts):
        # An empty text beside another part is allowed.
        found.append(f"{where}.parts: an empty text parameter; add a value to it")
    for path, given in parts:
        part = _camel(given)
        _PART.check(part, path, found)
        if len([name for name in part if name in _DATA]) != 1:
            found.append(f"{path}: exactly one of {', '.join(_DATA)} must be set")
        _check_data(part, path, found)
        signature = part.get("thoughtSignature")
        if signature is not None and signature not in _STAND_INS and not is_signed(_ISSUER, "", signature):
            found.append(f"{path}.thoughtSignature: corrupted thought signature")


def _check_data(part: dict[str, Any], where: str, found: list[str]) -> None:
    if "functionCall" in part:
        _CALL.check(mapping(part["functionCall"]), f"{where}.functionCall", found)
        check_names([(f"{where}.functionCall.name", mapping(part["functionCall"]).get("name"))], _NAME, found)
    elif "functionResponse" in part:
        response = _camel(mapping(part["functionResponse"]))
        _RESPONSE.check(response, f"{where}.functionResponse", found)
        check_names([(f"{where}.functionResponse.name", response.get("name"))], _NAME, found)
        for path, media in objects(response.get("parts"), f"{where}.functionResponse.parts", found):
            _check_inline(_camel(media), path, found)
    elif "inlineData" in part:
        _check_inline(part, where, found)


def _check_inline(part: dict[str, Any], where: str, found: list[str]) -> None:
    data = _camel(mapping(part.get("inlineData")))
    _INLINE.check(data, f"{where}.inlineData", found)
    if not string(data.get("data")):
        found.append(f"{where}.inlineData.data: must not be empty")


def _check_function_turns(contents: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that a turn of calls follows a user turn, and that the next turn has a response to each of them."""
    before: dict[str, Any] = {}
    for where, content in contents:
        calls = [mapping(part["functionCall"]) for part in _parts(before) if "functionCall" in part]
        responses = [mapping(part["functionResponse"]) for part in _parts(content) if "functionResponse" in part]
        if responses and not calls:
            found.append(f"{where}: a function response turn must come immediately after a function call turn")
        elif len(calls) != len(responses):
            found.append(f"{where}: the number of function responses is not that of the function calls before it")
        else:
            _check_match(calls, responses, where, found)
        if any("functionCall" in part for part in _parts(content)):
            if content.get("role") != "model":
                found.append(f"{where}: a function call must be in a model's content")
            if before.get("role", "model" if not before else "user") == "model":
                found.append(
                    f"{where}: a function call turn must come immediately after a user or function response turn"
                )
        before = content
    if any("functionCall" in part for part in _parts(before)):
        found.append("contents: the function calls at the end have no responses")
    if before and before.get("role") == "model":
        found.append("contents: multiturn requests must end with a user role or a function response")


def _check_match(calls: list[dict[str, Any]], responses: list[dict[str, Any]], where: str, found: list[str]) -> None:
    if sorted(string(call.get("name")) for call in calls) != sorted(string(item.get("name")) for item in responses):
        found.append(f"{where}: the function responses name other functions than the calls")
    given = {string(item.get("id")) for item in responses} - {""}
    if len(given) < len([item for item in responses if item.get("id")]):
        found.append(f"{where}: two function responses with the same id")
    if given - {string(call.get("id")) for call in calls}:
        found.append(f"{where}: a function response whose id is not that of a call")


def _check_signed_calls(contents: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
    """Checks that the first call of every step since the last user message has a signature."""
    start = 0
    for position, (_, content) in enumerate(contents):
        if content.get("role") != "model" and not any("functionResponse" in part for part in _parts(content)):
            start = position
    for where, content in contents[start:]:
        calls = [part for part in _parts(content) if "functionCall" in part]
        if calls and calls[0].get("thoughtSignature") is None:
            name = mapping(calls[0]["functionCall"]).get("name")
            found.append(f"{where}: the function call {name!r} is missing a thought_signature")


# -- the server ----------------------------------------------------------------------------------------------


def _refusal(request: ReceivedRequest, key: str) -> str | None:
    return None if request.headers.get("x-goog-api-key") == key else "API key not valid. Please pass a valid API key."


_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_REASONS = {StopReason.LENGTH: "MAX_TOKENS"}


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def _stream(reply: FakeReply, model: str) -> Iterator[bytes]:
    response_id = new_id("", 22)

    def chunk(part: dict[str, Any], **more: Any) -> bytes:
        candidate = {"content": {"parts": [part], "role": "model"}, "index": 0, **more}
        tail = {"usageMetadata": _usage(reply.usage), "modelVersion": model, "responseId": response_id}
        return sse({"candidates": [candidate], **tail})

    has_signed = False
    for block in blocks(reply, lambda: new_id("", 8)):
        if block.kind != "call":
            for piece in pieces(block.text):
                yield chunk({"text": piece, "thought": True} if block.kind == "thinking" else {"text": piece})
        elif block.is_closed:
            part: dict[str, Any] = {"functionCall": {"name": block.name, "args": block.arguments, "id": block.call_id}}
            if not has_signed:
                part["thoughtSignature"] = sign(_ISSUER, "")
                has_signed = True
            yield chunk(part)
    if reply.is_done:
        yield chunk({"text": ""}, finishReason=_REASONS.get(reply.reason, "STOP"))


def _usage(usage: Usage) -> dict[str, int]:
    thoughts = usage.extra.get("reasoning", 0)
    return {
        "promptTokenCount": usage.input + usage.cache_read,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": usage.input + usage.cache_read + usage.output,
    }


API = FakeApi(
    path=re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:?]+):streamGenerateContent\?alt=sse"),
    content_type="text/event-stream",
    problems=problems,
    refusal=_refusal,
    error=_error,
    stream=_stream,
    refusal_status=400,
    streams_by_default=True,
)
