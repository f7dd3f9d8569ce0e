"""Google Gemini's `streamGenerateContent`: the request. The reply is in `_gemini_frames`.

Gemini signs any part, not only thoughts. The signature of a text or call is stored in a `Thinking` block without text
directly before it, and is sent back with that part. A `Thinking` block with text has the signature of that thought.
Google's own searches are kept as described in `kit.searches`, and are sent back while search is offered.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast
from urllib.parse import quote

from swink_agent.core.stream import StreamOptions, prompt_text
from swink_agent.core.types import (
    PDF,
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Document,
    Image,
    ModelSpec,
    OfferedTool,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UrlSource,
    UserBlock,
    UserMessage,
    extract_text,
)

from . import registry
from ._gemini_frames import GeminiParser
from .kit.bodies import json_array, parts_of, short_id
from .kit.images import Note, document_data, document_url, picture
from .kit.keyed import JSON_HEADERS, KeyedStreamFn
from .kit.schemas import SchemaSubset
from .kit.searches import is_kept, kept_parts
from .kit.transport import HttpRequest

_OPENING = b'{"text":"Continue."}'
"""What the user says first if the conversation begins with a reply, as the end of a longer one may."""
_UNSIGNED = "skip_thought_signature_validator"
"""Google's documented signature for the first call of another model's message, which Gemini 3 refuses unsigned."""

_SCHEMAS = SchemaSubset(
    frozenset({"title", "format", "minItems", "maxItems", "minimum", "maximum", "prefixItems"}),
    is_closed=False,
    enum_types=(str, int, float),
)
_OF_A_PROJECT = re.compile(r"/v1(?:beta)?\d*/projects/")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_SERVER_TOOL = re.compile(rb"\x12[\x80-\xff]*[\x00-\x7f]\x0a[\x80-\xff]*[\x00-\x7f]\x08", re.DOTALL)


class GeminiStreamFn(KeyedStreamFn):
    """Gemini models at Google or, with `base_url`, at any compatible server.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. Servers other than
    Google's may work without a key.
    """

    description = registry.gemini
    default_url: ClassVar[str] = "https://generativelanguage.googleapis.com"
    added_path: ClassVar[str] = "/v1beta"
    content_types: ClassVar[tuple[str, ...]] = ("text/event-stream", "application/json")

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model takes this JSON Schema for its reply: from Gemini 2.5 on, and not next to tools."""
        version = _version(model.model_id)
        is_able = version is not None and version >= (2, 5) and not re.search("image|tts", model.model_id)
        return is_able and not has_tools and _SCHEMAS.express(schema) is not None

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        """Whether the model searches: from Gemini 2.0 on, next to tools from Gemini 3 on."""
        version = _version(model.model_id)
        if version is None or re.search("image|tts", model.model_id):
            return False
        return version >= ((3, 0) if has_tools else (2, 0))

    def search_cost(self, model: ModelSpec, searches: int) -> float:
        """Google charges for each search or, before Gemini 3, once for a reply with searches."""
        version = _version(model.model_id)
        return 0.035 if version is not None and version < (3, 0) else searches * 0.014

    def whole_address(self, url: str) -> str:
        """Returns the address with its version, which that of a project at Google Cloud has in front of the project."""
        return url.rstrip("/") if _OF_A_PROJECT.search(url) else super().whole_address(url)

    # -- the request -------------------------------------------------------------------------------------------

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        name = quote(model.model_id, safe="/")
        path = name if "/" in name else f"models/{name}"
        url = f"{self.server()}/{path}:streamGenerateContent?alt=sse"
        return self.request(url, _merged(self._fields(model, context, options), options.extra), options)

    def headers(self, key: str | None) -> dict[str, str]:
        return JSON_HEADERS if key is None else {**JSON_HEADERS, "x-goog-api-key": key}

    def _fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the contents changes."""
        fields: dict[str, Any] = {}
        if prompt := prompt_text(context.system_prompt):
            fields["systemInstruction"] = {"parts": [{"text": prompt}]}
        if context.tools:
            fields["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in context.tools]}]
            fields.update(_tool_config(options.tool_choice))
        searches = options.web_search and (options.tool_choice in ("auto", "none") or not context.tools)
        if searches:
            fields["tools"] = [*fields.get("tools", ()), {"googleSearch": {}}]
        if searches and context.tools:
            fields["toolConfig"] = {**fields.get("toolConfig", {}), "includeServerSideToolInvocations": True}
        config: dict[str, Any] = {
            "temperature": options.temperature,
            "maxOutputTokens": options.max_tokens,
            "thinkingConfig": _thinking(model),
        }
        if options.output_schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = _SCHEMAS.express(options.output_schema) or options.output_schema
        if config := {name: value for name, value in config.items() if value is not None}:
            fields["generationConfig"] = config
        fields["contents"] = json_array(_alternating(self._turns(model, context.messages, searches)))
        return fields

    # -- contents ----------------------------------------------------------------------------------------------

    def _turns(
        self, model: ModelSpec, messages: Sequence[AgentMessage], with_searches: bool
    ) -> Iterator[tuple[str, bytes]]:
        """Yields the role of each message, and its parts as a JSON array."""
        version = _version(model.model_id)
        takes_pictures = version is not None and version >= (3, 0)
        needs_signature = version is None or takes_pictures
        names: dict[str, str] = {}
        pictures: list[ToolResultMessage] = []
        for message in messages:
            if type(message) is ToolResultMessage:
                name = message.tool_name or names.get(message.tool_call_id, "tool")
                encode = partial(_result_parts, name=name, takes_pictures=takes_pictures)
                yield "user", self.encoded.encode(message, encode, (name, takes_pictures))
                pictures.append(message)
                continue
            yield from self._pictures(pictures, takes_pictures)
            if type(message) is AssistantMessage:
                names.update((call.id, call.name) for call in message.tool_calls)
                is_own = message.provider in (self.provider, model.provider)
                with_parts = is_own and with_searches
                encode = partial(_model_parts, is_own=is_own, needs_signature=needs_signature, with_searches=with_parts)
                yield "model", self.encoded.encode(message, encode, (is_own, needs_signature, with_parts))
            elif type(message) is UserMessage:
                yield "user", self.encoded.encode(message, _user_parts)
        yield from self._pictures(pictures, takes_pictures)

    def _pictures(self, results: list[ToolResultMessage], takes_pictures: bool) -> Iterator[tuple[str, bytes]]:
        """Yields the images and documents that tool results cannot contain, after all the results."""
        encode = partial(_picture_parts, takes_pictures=takes_pictures)
        for message in results:
            if _attached(message.content):
                yield "user", self.encoded.encode(message, encode, ("pictures", takes_pictures))
        results.clear()

    # -- the reply ---------------------------------------------------------------------------------------------

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> GeminiParser:
        return GeminiParser()


def _merged(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the fields of `extra`: objects are merged, arrays appended, anything else is replaced."""
    for name, value in extra.items():
        known = fields.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            fields[name] = {**cast("dict[str, Any]", known), **cast("dict[str, Any]", value)}
        elif isinstance(known, list) and isinstance(value, list):
            fields[name] = [*cast("list[Any]", known), *cast("list[Any]", value)]
        else:
            fields[name] = value
    return fields


def _alternating(turns: Iterator[tuple[str, bytes]]) -> Iterator[bytes]:
    """Joins consecutive messages of one role, so that the roles alternate. The user is first: this API refuses a call
    that does not follow a turn of the user."""
    role = ""
    parts: list[bytes] = []
    for next_role, encoded in turns:
        if encoded == b"[]":
            continue
        if not role and next_role == "model":
            yield _content("user", [_OPENING])
        if next_role != role and parts:
            yield _content(role, parts)
            parts = []
        role = next_role
        parts.append(encoded[1:-1])
    if parts:
        yield _content(role, parts)


def _content(role: str, parts: list[bytes]) -> bytes:
    return b'{"role":"' + role.encode() + b'","parts":[' + b",".join(parts) + b"]}"


def _user_parts(message: UserMessage) -> list[dict[str, Any]]:
    return parts_of(message.content, {Text: _text_part, Image: _image_part, Document: _document_part})


def _text_part(block: Text) -> dict[str, Any] | None:
    return {"text": block.text} if block.text else None


def _image_part(image: Image) -> dict[str, Any]:
    source = image.source
    if isinstance(source, UrlSource):
        name = re.split("[?#]", source.url)[0].rpartition("/")[2]
        media_type = source.media_type or mimetypes.guess_type(name)[0]
        return {"fileData": {"fileUri": source.url, **({"mimeType": media_type} if media_type else {})}}
    found = picture(image)
    if isinstance(found, Note):
        return {"text": found.text}
    return {"inlineData": {"mimeType": found.media_type, "data": found.data}}


def _document_part(document: Document) -> dict[str, Any]:
    if (url := document_url(document)) is not None:
        return {"fileData": {"fileUri": url, "mimeType": PDF}}
    data = document_data(document)
    return {"text": data.text} if isinstance(data, Note) else {"inlineData": {"mimeType": PDF, "data": data}}


def _attached_part(block: Image | Document) -> dict[str, Any]:
    return _image_part(block) if type(block) is Image else _document_part(cast("Document", block))


def _attached(content: Sequence[UserBlock]) -> list[Image | Document]:
    return [block for block in content if type(block) is Image or type(block) is Document]


def _noun(attached: Sequence[Image | Document]) -> str:
    return "Document" if all(type(block) is Document for block in attached) else "Image"


def _model_parts(
    message: AssistantMessage, *, is_own: bool, needs_signature: bool, with_searches: bool = False
) -> list[dict[str, Any]]:
    """Returns the parts of a reply, with each signature on its part; empty if the reply has no content."""
    parts: list[dict[str, Any]] = []
    signature = ""
    has_text = has_call = False
    for block in message.content:
        if type(block) is Thinking:
            if is_kept(block):
                if with_searches:
                    parts += [*([{"text": "", "thoughtSignature": signature}] if signature else ()), *kept_parts(block)]
                    signature = ""
            elif is_own and block.signature and _goes_back(block.signature):
                if block.thinking:
                    parts.append({"text": block.thinking, "thought": True, "thoughtSignature": block.signature})
                else:
                    if signature:
                        parts.append({"text": "", "thoughtSignature": signature})
                    signature = block.signature
            continue
        if type(block) is Text and block.text:
            has_text = True
            part: dict[str, Any] = {"text": block.text}
        elif type(block) is ToolCall:
            arguments = {} if block.is_incomplete else block.arguments
            part = {"functionCall": {"id": short_id(block.id, "call"), "name": block.name, "args": arguments}}
            signature = signature or ("" if has_call or not needs_signature else _UNSIGNED)
            has_call = True
        else:
            continue
        parts.append({**part, "thoughtSignature": signature} if signature else part)
        signature = ""
    if signature:
        parts.append({"text": "", "thoughtSignature": signature})
    return parts if has_text or has_call else []


def _goes_back(signature: str) -> bool:
    """Whether to send the signature back. That of a tool which Google ran is not sent, since its parts are not kept."""
    if not _SIGNATURE.fullmatch(signature):
        return False
    start = signature[:16].replace("-", "+").replace("_", "/")
    return len(start) < 16 or "=" in start or not _SERVER_TOOL.match(base64.b64decode(start))


def _result_parts(message: ToolResultMessage, *, name: str, takes_pictures: bool) -> list[dict[str, Any]]:
    shown = extract_text(message.content)
    attached = _attached(message.content)
    pictures = [_attached_part(block) for block in attached if _has_data(block)]
    shown += "".join(part["text"] for part in pictures if "text" in part)  # notes on files that cannot be sent
    pictures = [part for part in pictures if "text" not in part]
    if not shown:
        shown = f"(see the {_noun(attached).lower()})" if attached else "(no output)"
    response: dict[str, Any] = {
        "id": short_id(message.tool_call_id, "call"),
        "name": name,
        "response": {"error" if message.is_error else "output": shown},
    }
    if takes_pictures and pictures:
        response["parts"] = pictures
    return [{"functionResponse": response}]


def _picture_parts(message: ToolResultMessage, *, takes_pictures: bool) -> list[dict[str, Any]]:
    attached = [block for block in _attached(message.content) if not (takes_pictures and _has_data(block))]
    if not attached:
        return []
    opening = f"{_noun(attached)} from {message.tool_name or 'the tool'}:"
    return [{"text": opening}, *map(_attached_part, attached)]


def _has_data(block: Image | Document) -> bool:
    """Whether a result can contain it: Gemini accepts data there, but no URLs."""
    return not isinstance(block.source, UrlSource)


# -- tools and thinking --------------------------------------------------------------------------------------


def _declaration(tool: OfferedTool) -> dict[str, Any]:
    schema = {name: value for name, value in tool.parameters_schema.items() if name != "$schema"}
    schema.setdefault("type", "object")
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}


def _tool_config(choice: str) -> dict[str, Any]:
    if choice == "auto":
        return {}
    config: dict[str, Any] = {"mode": "NONE" if choice == "none" else "ANY"}
    if choice not in ("none", "required"):
        config["allowedFunctionNames"] = [choice]
    return {"toolConfig": {"functionCallingConfig": config}}


_BUDGETS = {
    ThinkingLevel.OFF: 0,
    ThinkingLevel.MINIMAL: 512,
    ThinkingLevel.LOW: 1_024,
    ThinkingLevel.MEDIUM: 8_192,
    ThinkingLevel.HIGH: 24_576,
    ThinkingLevel.EXTRA_HIGH: 32_768,
}
_LEVELS = {
    ThinkingLevel.OFF: "MINIMAL",
    ThinkingLevel.MINIMAL: "MINIMAL",
    ThinkingLevel.LOW: "LOW",
    ThinkingLevel.MEDIUM: "MEDIUM",
    ThinkingLevel.HIGH: "HIGH",
    ThinkingLevel.EXTRA_HIGH: "HIGH",
}


def _version(model_id: str) -> tuple[int, int] | None:
    """Returns the version of a Gemini model, the newest for names such as `gemini-flash-latest`; `None` for others."""
    found = re.search(r"gemini-(\d+)(?:\.(\d+))?", model_id)
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    return (1_000, 0) if "gemini" in model_id else None


def _thinking(model: ModelSpec) -> dict[str, Any] | None:
    """Returns the thinking settings: tokens up to Gemini 2.5, levels from Gemini 3 on; `None` for other models.

    Most models cannot turn thinking off: for `OFF` they get the lowest setting, and their thoughts are not requested.
    """
    level, version = model.thinking_level, _version(model.model_id)
    is_off = level == ThinkingLevel.OFF
    if (version is not None and version < (2, 5)) or re.search("image|tts", model.model_id):
        return None
    shown = {} if is_off else {"includeThoughts": True}
    budget = model.thinking_budgets.get(level) if model.thinking_budgets is not None else None
    if budget is not None:
        return {**shown, "thinkingBudget": budget}
    if version is None:
        return None if is_off else {**shown, "thinkingLevel": _LEVELS[level]}
    if version < (3, 0):
        least, most = (128, 32_768) if "pro" in model.model_id else (0, 24_576)
        return {**shown, "thinkingBudget": min(max(_BUDGETS[level], least), most)}
    return {**shown, "thinkingLevel": _level(_LEVELS[level], model.model_id, version)}


def _level(level: str, model_id: str, version: tuple[int, int]) -> str:
    """Returns the nearest level that the model accepts: only small and early Flash models have MINIMAL."""
    if level == "MINIMAL" and "flash-lite" not in model_id and ("flash" not in model_id or version >= (3, 6)):
        return "LOW"
    if level == "MEDIUM" and version == (3, 0) and "pro" in model_id:
        return "HIGH"
    return level
