"""Anthropic Messages (`/v1/messages`), for Anthropic and every compatible server. `_claude` has Claude's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.core.errors import ErrorKind
from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import (
    PDF,
    AgentContext,
    Document,
    Image,
    ModelSpec,
    OfferedTool,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UrlSource,
    Usage,
)
from swink_agent.core.values.decoders import json_decoder

from . import _claude, registry
from .kit.bodies import parts_of, short_id, unused_id
from .kit.documents import UNREADABLE, count, items, json_text, mapping, object_in, read, text
from .kit.errors import classify_error
from .kit.frames import FrameParser, ShapeError, SseFrames
from .kit.images import Note, document_data, document_url, picture
from .kit.keyed import JSON_HEADERS, KeyedStreamFn
from .kit.schemas import SchemaSubset
from .kit.searches import SEARCHES, TOOL_NAME, Sources, kept, searched
from .kit.transport import HttpRequest

_MARK = {"cache_control": {"type": "ephemeral"}}
_SCHEMAS = SchemaSubset(
    frozenset({"title", "const", "minItems"}),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
    most_min_items=1,
)
_SEARCH = {"type": "web_search_20250305", "name": TOOL_NAME, "max_uses": 5}
"""Five searches stay below the number at which the provider pauses a reply."""
_SEARCH_PRICE = 0.01  # US dollars for one search


class AnthropicStreamFn(KeyedStreamFn):
    """Messages of Anthropic or, with `base_url`, of any compatible server.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. Servers other than
    Anthropic's may work without a key.
    """

    description = registry.anthropic
    default_url: ClassVar[str] = "https://api.anthropic.com"
    added_path: ClassVar[str] = "/v1"
    session_field: ClassVar[str] = "metadata"

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model is known to take the JSON Schema of its reply, and takes this one."""
        claude = _claude.claude_of(model.model_id)
        return claude is not None and claude.takes_schemas and _SCHEMAS.express(schema) is not None

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        """Whether the model is a Claude that is known to search."""
        claude = _claude.claude_of(model.model_id)
        return claude is not None and claude.version >= (3, 5)

    def search_cost(self, model: ModelSpec, searches: int) -> float:
        return searches * _SEARCH_PRICE

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        return self.request(f"{self.server()}/messages", self._fields(model, context, options), options)

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> AnthropicParser:
        return AnthropicParser()

    def headers(self, key: str | None) -> dict[str, str]:
        headers = {**JSON_HEADERS, "anthropic-version": "2023-06-01"}
        return headers if key is None else {**headers, "x-api-key": key}

    def _fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the messages changes."""
        mark = _MARK if options.cache != "none" else {}
        plan = _claude.plan_thinking(model, context, options)
        fields: dict[str, Any] = {"model": model.model_id, "max_tokens": plan.max_tokens, "stream": True}
        if prompt := _claude.system_text(context):
            fields["system"] = [{"type": "text", "text": prompt, **mark}]
        tools = _tools(context)
        searches = options.web_search and (bool(context.tools) or not tools)
        if searches:
            tools = [*tools, _SEARCH]
        if tools:
            fields["tools"] = [*tools[:-1], {**tools[-1], **mark}]
            fields["tool_choice"] = _tool_choice(plan.tool_choice if context.tools or searches else "none")
        fields.update(plan.fields)
        if options.output_schema is not None:
            schema = _SCHEMAS.express(options.output_schema) or options.output_schema
            output_format = {"type": "json_schema", "schema": schema}
            fields["output_config"] = {**fields.get("output_config", {}), "format": output_format}
        fields["temperature"] = plan.temperature
        if options.session_id:
            fields["metadata"] = {"user_id": short_id(options.session_id, "session")}
        fields = _claude.with_extra(fields, options.extra)
        fields["messages"] = _claude.conversation(
            model, context.messages, self.encoded, _WIRE, is_marked=bool(mark), with_searches=searches
        )
        return fields


def _marked(content: bytes) -> bytes:
    return content[:-2] + b',"cache_control":{"type":"ephemeral"}}]'


def _tools(context: AgentContext) -> list[dict[str, Any]]:
    if context.tools:
        return [_tool(tool) for tool in context.tools]
    return [{"name": name, "input_schema": {"type": "object"}} for name in _claude.called_tools(context.messages)]


def _tool(tool: OfferedTool) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **description, "input_schema": {"type": "object", **tool.parameters_schema}}


def _tool_choice(choice: str) -> dict[str, Any] | None:
    known = {"auto": None, "none": {"type": "none"}, "required": {"type": "any"}}
    return known.get(choice, {"type": "tool", "name": choice})


def _text(given: str) -> dict[str, Any]:
    return {"type": "text", "text": given}


def _user_blocks(content: Sequence[Any]) -> list[dict[str, Any]]:
    return parts_of(content, {Text: _text_block, Image: _image, Document: _document})


def _text_block(block: Text) -> dict[str, Any] | None:
    return _text(block.text) if block.text.strip() else None


def _image(image: Image) -> dict[str, Any]:
    if isinstance(image.source, UrlSource):
        return {"type": "image", "source": {"type": "url", "url": image.source.url}}
    found = picture(image)
    if isinstance(found, Note):
        return _text(found.text)
    media_type = found.media_type.replace("/jpg", "/jpeg")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": found.data}}


def _document(document: Document) -> dict[str, Any]:
    title = {"title": document.shown_name} if document.name.strip() else {}
    if (url := document_url(document)) is not None:
        return {"type": "document", "source": {"type": "url", "url": url}, **title}
    data = document_data(document)
    if isinstance(data, Note):
        return _text(data.text)
    return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": data}, **title}


def _assistant_block(block: Text | Thinking | ToolCall) -> dict[str, Any]:
    match block:
        case Text():
            return _text(block.text)
        case ToolCall():
            given = {"name": block.name, "input": _claude.arguments_of(block)}
            return {"type": "tool_use", "id": short_id(block.id, "call"), **given}
        case Thinking():
            signature = block.signature or ""
            if signature.startswith(_claude.REDACTED):
                return {"type": "redacted_thinking", "data": signature.removeprefix(_claude.REDACTED)}
            return {"type": "thinking", "thinking": block.thinking, "signature": signature}


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    """Returns the block of a call's result. An error contains only text, and may not be empty."""
    content = _user_blocks(message.content) or [_text("(no output)")]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": short_id(message.tool_call_id, "call")}
    if not message.is_error:
        return {**result, "content": content}
    if any(block["type"] != "text" for block in content):
        return {**result, "content": [_text("Error:"), *content]}
    return {**result, "content": content, "is_error": True}


_WIRE = _claude.ClaudeWire(_user_blocks, _assistant_block, _tool_result, _marked, b'{"type":"text","text":"Continue."}')


# -- events --------------------------------------------------------------------------------------------------


class _Delta(Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    citation: Any = None


class _Event(Struct):
    type: str = ""
    index: int | None = None
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class _Kind(Struct):
    type: str = ""


_decode_event = json_decoder(_Event).decode
_decode_kind = json_decoder(_Kind).decode
_KINDS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"}
)
_STOP_REASONS = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "pause_turn": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
}


class AnthropicParser(FrameParser[tuple[bytes, bytes]]):
    """The server-sent events of one message."""

    def __init__(self) -> None:
        super().__init__(SseFrames())
        self._events = MessageEvents(self.writer)

    def take(self, frame: tuple[bytes, bytes], /) -> None:
        self._events.take(frame[1])

    def take_document(self, body: bytes) -> bool:
        message = object_in(body)
        if not isinstance(message.get("content"), list):
            return False
        self._events.take_message(message)
        return True

    def keep_searches(self) -> None:
        self._events.keeps_searches = True

    def end(self) -> None:
        super().end()
        self._events.end()

    def usage_so_far(self) -> Usage | None:
        return self._events.usage_so_far()


class MessageEvents:
    """Reads the events of one message, in any framing.

    Tools that the provider runs itself are ignored, except web searches with `keeps_searches`.
    """

    __slots__ = ("_counts", "_ids", "_inputs", "_refusal", "_searches", "_sources", "_stop", "keeps_searches", "writer")

    def __init__(self, writer: ReplyWriter) -> None:
        self.writer = writer
        self.keeps_searches = False
        self._searches: dict[int | None | str, dict[str, Any]] = {}
        """The searches that have no results yet, by position and by id."""
        self._sources = Sources()
        self._counts: dict[str, int] = {}
        self._ids: set[str] = set()
        self._inputs: dict[int | None, dict[str, Any]] = {}
        self._stop: str | None = None
        self._refusal = ""

    def take(self, payload: bytes) -> None:
        """Reads one event. Raises `FrameError` or `ShapeError`."""
        if self.writer.is_finished or not payload.strip():
            return
        event = _decoded(payload)
        match event.type:
            case "content_block_delta":
                if event.delta is not None:
                    self._add(event.index, event.delta)
            case "content_block_start":
                self._open(event.index, event.content_block or {})
            case "content_block_stop":
                self._close(event.index)
            case "message_start":
                message = mapping(event.message)
                self.writer.answered_by(message.get("model"), message.get("id"))
                self._count(message.get("usage"))
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
                    self._refusal = text(mapping(event.delta.stop_details).get("explanation"))
            case "message_stop":
                self.end()
            case "error" | "" if event.error is not None:
                self.end()  # an error after the stop reason changes nothing
                self.writer.fail(*classify_error(event.error), usage=self.usage_so_far())
            case _:
                pass

    def take_message(self, message: dict[str, Any]) -> None:
        """Reads a whole message, from a server that does not stream."""
        self.writer.answered_by(message.get("model"), message.get("id"))
        self._count(message.get("usage"))
        for index, block in enumerate(map(mapping, items(message.get("content")))):
            self._open(index, block)
            for cited in map(mapping, items(block.get("citations"))):
                self._add(index, _Delta("citations_delta", citation=cited))
            if block.get("type") != "server_tool_use":  # its results follow in another block
                self._close(index)
        self._stop = text(message.get("stop_reason")) or ("tool_use" if self._ids else "end_turn")
        self._refusal = text(mapping(message.get("stop_details")).get("explanation"))
        self.end()

    def end(self) -> None:
        """Ends the message, which is complete if its stop reason has arrived."""
        if self._stop == "refusal":
            message = self._refusal or "the model refused to answer"
            self.writer.fail(message, ErrorKind.CONTENT_FILTERED, usage=self._usage())
        elif self._stop is not None:
            if self._stop != "max_tokens":
                self.writer.text(self._sources.take())
            self.writer.done(_STOP_REASONS.get(self._stop, StopReason.STOP), self._usage())

    def _open(self, index: int | None, block: dict[str, Any]) -> None:
        writer = self.writer
        self._close(index)
        match block.get("type"):
            case "text":
                writer.text(text(block.get("text")))
            case "thinking":
                writer.thinking(text(block.get("thinking")))
                writer.signature(text(block.get("signature")))
            case "redacted_thinking":
                writer.signature(_claude.REDACTED + text(block.get("data")))
            case "tool_use":
                writer.text(self._sources.take())
                writer.start_call(index, unused_id(text(block.get("id")), self._ids), text(block.get("name")))
                if whole := mapping(block.get("input")):
                    self._inputs[index] = whole  # for servers that do not send it in pieces
            case "server_tool_use" if self.keeps_searches and block.get("name") == TOOL_NAME:
                search = {name: block.get(name) for name in ("type", "id", "name", "input")}
                self._searches[index] = self._searches[text(block.get("id"))] = search
            case "web_search_tool_result" if self.keeps_searches:
                self._keep(block)
            case _:
                pass

    def _keep(self, block: dict[str, Any]) -> None:
        """Keeps a search with its results, which the provider wants back together."""
        search = self._searches.pop(text(block.get("tool_use_id")), None)
        if search is None:
            return
        pieces = search.pop("pieces", "")
        given = object_in(pieces) if pieces else mapping(search["input"])
        result = {name: block.get(name) for name in ("type", "tool_use_id", "content")}
        self.writer.thinking(searched(given.get("query")))
        self.writer.signature(kept([{**search, "input": given}, result]))
        self.writer.end_speech()

    def _add(self, index: int | None, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self.writer.text(delta.text or "")
            case "input_json_delta" if index in self._searches:
                search = self._searches[index]
                search["pieces"] = search.get("pieces", "") + (delta.partial_json or "")
            case "citations_delta" if self.keeps_searches:
                cited = mapping(delta.citation)
                self._sources.add(cited.get("url"), cited.get("title"))
            case "input_json_delta":
                if delta.partial_json:
                    self._inputs.pop(index, None)
                    self.writer.arguments(index, delta.partial_json)
            case "thinking_delta":
                self.writer.thinking(delta.thinking or "")
            case "signature_delta":
                self.writer.signature(delta.signature or "")
            case _:
                pass

    def _close(self, index: int | None) -> None:
        self.writer.end_speech()
        self._searches.pop(index, None)
        if whole := self._inputs.pop(index, None):
            self.writer.arguments(index, json_text(whole))
        self.writer.end_call(index)

    def _count(self, usage: object) -> None:
        """Stores the given counts: later ones replace earlier ones."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if mapping(usage).get(name) is not None:
                self._counts[name] = count(usage, name)
        if reasoning := count(usage, "output_tokens_details", "thinking_tokens"):
            self._counts["reasoning"] = reasoning
        if self.keeps_searches and (searches := count(usage, "server_tool_use", "web_search_requests")):
            self._counts[SEARCHES] = searches

    def usage_so_far(self) -> Usage | None:
        return self._usage() if self._counts else None

    def _usage(self) -> Usage:
        counts = self._counts
        read, written = counts.get("cache_read_input_tokens", 0), counts.get("cache_creation_input_tokens", 0)
        given, output = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
        extra = {name: counts[name] for name in ("reasoning", SEARCHES) if name in counts}
        return Usage(given, output, read, written, given + output + read + written, extra)


_OPTIONAL = frozenset({"usage", "signature", "stop_details", "message", "id"})


def _decoded(payload: bytes) -> _Event:
    """Decodes the event; one of an unknown type may have any shape."""
    try:
        return read(payload, _decode_event, _Event, "an event", _OPTIONAL)
    except ShapeError:
        try:
            kind = _decode_kind(payload).type
        except UNREADABLE:
            kind = ""
        if kind in _KINDS or not kind:
            raise
        return _Event(kind)
