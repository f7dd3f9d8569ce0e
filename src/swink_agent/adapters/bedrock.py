"""Amazon Bedrock's ConverseStream: the signed request, and the frames of the binary event stream.

It also reads the replies of the older call, whose frames contain Anthropic's events. `_claude` has Claude's rules.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Struct

from swink_agent.core.errors import ErrorKind
from swink_agent.core.machine.extras import MissingExtra, install, require
from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import (
    AgentContext,
    Document,
    Image,
    ModelSpec,
    OfferedTool,
    StopReason,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from swink_agent.core.values.decoders import json_decoder

from . import _claude, registry
from .anthropic import MessageEvents
from .kit.bodies import EncodedMessages, json_object, parts_of, short_id, unused_id
from .kit.documents import count, items, json_text, mapping, object_in, read, text
from .kit.errors import NotConfigured, classify_error
from .kit.frames import AwsEventFrames, AwsMessage, FrameError, FrameParser
from .kit.http import HttpStreamFn
from .kit.images import Note, document_data, document_url, picture
from .kit.outgoing import RequestError
from .kit.transport import HttpRequest, Limits, Transport

_MARK: dict[str, Any] = {"cachePoint": {"type": "default"}}
_IMAGE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
_LONGEST_NAME = 150
_EFFORT = {**_claude.EFFORT, ThinkingLevel.EXTRA_HIGH: "high"}


class BedrockStreamFn(HttpStreamFn):
    """ConverseStream, with a bearer token, else with keys that sign the request.

    The bearer token comes from `StreamOptions.api_key`, else from `api_key`, else from the AWS variables, like the
    keys. Signing needs botocore, the extra `bedrock`. Another `base_url` may work without credentials.
    """

    description = registry.bedrock
    content_types: ClassVar[tuple[str, ...]] = ("application/vnd.amazon.eventstream",)
    session_field: ClassVar[str] = "requestMetadata"

    def __init__(
        self,
        region: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(transport=transport, limits=limits)
        variables = {name: value for name, value in os.environ.items() if value}  # an empty one counts as not set
        given = base_url or variables.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME")
        region = region or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
        if given is not None and region is None:
            found = re.search(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.", given)
            region = found[1] if found is not None else "us-east-1"
        self.region = region
        self.base_url = (given or f"https://bedrock-runtime.{region}.amazonaws.com").rstrip("/")
        self.address_source = "base_url" if base_url else "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"
        if given is None:
            self.address_source = "the address made of the region"
        self._needs_key = given is None
        self._token = api_key or variables.get("AWS_BEARER_TOKEN_BEDROCK")
        self._access_key = variables.get("AWS_ACCESS_KEY_ID")
        self._secret_key = variables.get("AWS_SECRET_ACCESS_KEY")
        self._session_token = variables.get("AWS_SESSION_TOKEN")
        self.encoded = EncodedMessages()

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        # A colon in a path is not escaped: HTTP clients differ in how they send an escaped one, and the signature
        # covers the path as it is sent.
        server = self.server() if self.region else self.base_url  # a missing region is reported below
        url = f"{server}/model/{quote(model.model_id, safe=':')}/converse-stream"
        body = json_object(self._fields(model, context, options))
        headers = {"content-type": "application/json", **self._authorization(url, body, model, options)}
        accepted = {"accept": self.content_types[0], "accept-encoding": "identity"}
        return HttpRequest(
            url=url, headers={**headers, **accepted, **options.headers}, body=body, limits=self.limits_for(options)
        )

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> BedrockParser:
        return BedrockParser()

    # -- credentials -------------------------------------------------------------------------------------------

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        if self._needs_key and not (options.api_key or self._token or self._has_keys):
            either = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK"
            raise NotConfigured(f"no credentials for bedrock: set {either}", "api_key")
        if self.region is not None:
            self.server()

    @property
    def _has_keys(self) -> bool:
        return self._access_key is not None and self._secret_key is not None

    def _authorization(self, url: str, body: bytes, model: ModelSpec, options: StreamOptions) -> dict[str, str]:
        self.check(model, options)
        token = options.api_key or self._token
        if self.region is None:
            raise RequestError("no region for bedrock: set AWS_REGION, or pass region")
        if token is not None:
            return {"authorization": f"Bearer {token}"}
        return self._signed(url, body, self.region) if self._has_keys else {}

    def _signed(self, url: str, body: bytes, region: str) -> dict[str, str]:
        """Returns the headers that sign the request. Imports botocore."""
        try:
            auth, requests = require("botocore.auth", extra="bedrock"), require("botocore.awsrequest", extra="bedrock")
            credentials = require("botocore.credentials", extra="bedrock")
        except MissingExtra as error:
            raise RequestError(f"requests to bedrock are signed by botocore: {install(error.extra)}") from error
        request = requests.AWSRequest("POST", url, headers={"content-type": "application/json"}, data=body)
        keys = credentials.Credentials(self._access_key, self._secret_key, self._session_token)
        auth.SigV4Auth(keys, "bedrock", region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    def document_names(self) -> DocumentNames:
        return DocumentNames()

    # -- the request -------------------------------------------------------------------------------------------

    def _fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the messages changes."""
        mark = [_MARK] if options.cache != "none" and _is_cacheable(model) else []
        fields, choice = _model_fields(model, context, options)
        if prompt := _claude.system_text(context):
            fields["system"] = [{"text": prompt}, *mark]
        if tools := _tools(context, choice):
            fields["toolConfig"] = {"tools": [*tools, *mark], **_tool_choice(choice)}
        if options.session_id:
            fields["requestMetadata"] = {"session_id": short_id(options.session_id, "session")}
        fields = _claude.with_extra(fields, options.extra)
        # Other models do not accept reasoning, not even their own.
        wire = _WIRE if _claude.claude_of(model.model_id) is not None else _WIRE._replace(takes_thinking=False)
        fields["messages"] = _claude.conversation(model, context.messages, self.encoded, wire, is_marked=bool(mark))
        return fields


def _marked(content: bytes) -> bytes:
    return content[:-1] + b',{"cachePoint":{"type":"default"}}]'


def _is_cacheable(model: ModelSpec) -> bool:
    """Whether the model accepts cache marks; others refuse them, or cache by themselves."""
    claude = _claude.claude_of(model.model_id)
    return claude is not None and (claude.version >= (3, 7) or claude == ("haiku", (3, 5)))


def _model_fields(model: ModelSpec, context: AgentContext, options: StreamOptions) -> tuple[dict[str, Any], str]:
    """Returns the limits and the thinking settings, in the form of each model family, and the choice of tools."""
    name = model.model_id.lower()
    effort = _EFFORT.get(model.thinking_level)
    choice = options.tool_choice
    limits: dict[str, Any] = {"maxTokens": options.max_tokens, "temperature": options.temperature}
    thinking: dict[str, Any] = {}
    if _claude.claude_of(name) is not None:
        plan = _claude.plan_thinking(model, context, options)
        limits = {"maxTokens": plan.max_tokens, "temperature": plan.temperature}
        thinking, choice = plan.fields, plan.tool_choice
    elif "nova-2" in name and effort is not None:
        thinking = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
        limits = limits if effort != "high" else {}  # high effort allows no limits
    elif "gpt-oss" in name and effort is not None:
        thinking = {"reasoning_effort": effort}
    fields: dict[str, Any] = {}
    if limits := {name: value for name, value in limits.items() if value is not None}:
        fields["inferenceConfig"] = limits
    if thinking:
        fields["additionalModelRequestFields"] = thinking
    return fields, choice


def _tools(context: AgentContext, choice: str) -> list[dict[str, Any]]:
    """Returns the tools. A history with calls needs definitions, even if there are no tools or none may be called."""
    names = _claude.called_tools(context.messages) if choice == "none" or not context.tools else []
    if context.tools and (choice != "none" or names):
        return [_tool(tool) for tool in context.tools]
    schema = {"json": {"type": "object"}}
    return [{"toolSpec": {"name": name, "description": "Not available now.", "inputSchema": schema}} for name in names]


def _tool(tool: OfferedTool) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description.strip() else {}
    schema = {"json": {"type": "object", **tool.parameters_schema}}
    return {"toolSpec": {"name": tool.name, **description, "inputSchema": schema}}


def _tool_choice(choice: str) -> dict[str, Any]:
    if choice in ("auto", "none"):  # this API cannot express none
        return {}
    return {"toolChoice": {"any": {}} if choice == "required" else {"tool": {"name": choice}}}


# -- messages ------------------------------------------------------------------------------------------------


def _user_blocks(content: Sequence[Any]) -> list[dict[str, Any]]:
    blocks = parts_of(content, {Text: _text, Image: _image, Document: _document})
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        blocks.insert(0, {"text": "(see the document)"})  # a document without text is refused
    return blocks


def _text(block: Text) -> dict[str, Any] | None:
    return {"text": block.text} if block.text.strip() else None


def _image(image: Image) -> dict[str, Any]:
    found = picture(image)
    if isinstance(found, Note):
        return {"text": found.text}
    image_format = _IMAGE_FORMATS.get(found.media_type.lower().replace("/jpg", "/jpeg"))
    if image_format is None:
        return {"text": f"[image left out: {found.media_type} is not taken here, only PNG, JPEG, GIF and WebP]"}
    return {"image": {"format": image_format, "source": {"bytes": found.data}}}


def _document(document: Document) -> dict[str, Any]:
    data = document_data(document)
    if isinstance(data, Note):
        return {"text": data.text}
    name = document.name or DocumentNames()(document)
    return {"document": {"format": "pdf", "name": name, "source": {"bytes": data}}}


class DocumentNames:
    """Names for the documents of one request: Converse takes few characters, and no name twice."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: set[str] = set()

    def __call__(self, document: Document) -> str:
        if document_url(document) is not None:
            return document.name  # it is not sent
        plain = " ".join(_NOT_IN_NAMES.sub("-", document.shown_name.removesuffix(".pdf")).split())[:_LONGEST_NAME]
        name = plain = plain.strip(" -") or "document"
        number = 1
        while name.lower() in self._used:
            number += 1
            name = f"{plain} {number}"
        self._used.add(name.lower())
        return name


def _assistant_block(block: Text | Thinking | ToolCall) -> dict[str, Any]:
    match block:
        case Text():
            return {"text": block.text}
        case ToolCall():
            given = {"name": block.name, "input": _claude.arguments_of(block)}
            return {"toolUse": {"toolUseId": short_id(block.id, "call"), **given}}
        case Thinking():
            signature = block.signature or ""
            reasoning: dict[str, Any] = {"reasoningText": {"text": block.thinking, "signature": signature}}
            if signature.startswith(_claude.REDACTED):
                data = base64.b64encode(signature.removeprefix(_claude.REDACTED).encode()).decode()
                reasoning = {"redactedContent": data}
            return {"reasoningContent": reasoning}


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    content = _user_blocks(message.content) or [{"text": "(no output)"}]
    result: dict[str, Any] = {"toolUseId": short_id(message.tool_call_id, "call"), "content": content}
    return {"toolResult": {**result, "status": "error"} if message.is_error else result}


_WIRE = _claude.ClaudeWire(_user_blocks, _assistant_block, _tool_result, _marked, b'{"text":"Continue."}')


# -- frames --------------------------------------------------------------------------------------------------


class _ToolUse(Struct, rename="camel", gc=False):
    tool_use_id: str | None = None
    name: str | None = None
    type: str | None = None
    input: Any = None


class _Start(Struct, rename="camel", gc=False):
    tool_use: _ToolUse | None = None


class _Reasoning(Struct, rename="camel", gc=False):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Delta(Struct, rename="camel", gc=False):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _Frame(Struct, rename="camel"):
    content_block_index: int | None = None
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    bytes: str | None = None


_decode_frame = json_decoder(_Frame).decode
_OPTIONAL = frozenset({"usage", "toolUseId", "signature", "redactedContent"})
_FRAMES = frozenset({"contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata", "chunk"})

_STOP_REASONS = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
}
_FILTERS = {
    "guardrail_intervened": "a guardrail stopped the reply",
    "content_filtered": "the provider's filter stopped the reply",
    "refusal": "the model refused to answer",
}
_EXCEPTIONS = {
    "throttling": ErrorKind.THROTTLED,
    "servicequotaexceeded": ErrorKind.THROTTLED,
    "accessdenied": ErrorKind.AUTH,
    "unrecognizedclient": ErrorKind.AUTH,
    "internalserver": ErrorKind.NETWORK,
    "serviceunavailable": ErrorKind.NETWORK,
    "modelstreamerror": ErrorKind.NETWORK,
    "modeltimeout": ErrorKind.NETWORK,
    "modelnotready": ErrorKind.NETWORK,
}


class BedrockParser(FrameParser[AwsMessage]):
    """Reads the frames of one reply: those of Converse, or chunks with Anthropic's events."""

    def __init__(self) -> None:
        super().__init__(AwsEventFrames())
        self._wrapped = MessageEvents(self.writer)
        self._ids: set[str] = set()
        self._stop: str | None = None
        self._usage: Usage | None = None

    def end(self) -> None:
        self._wrapped.end()
        if self._stop is None:
            return
        usage = self._usage or Usage()
        if self._stop in _FILTERS:
            self.writer.fail(_FILTERS[self._stop], ErrorKind.CONTENT_FILTERED, usage=usage)
        elif self._stop.startswith("malformed"):
            self.writer.fail(f"the model's reply was broken: {self._stop}", ErrorKind.NETWORK, usage=usage)
        else:
            self.writer.done(_STOP_REASONS.get(self._stop, StopReason.STOP), usage)

    def take(self, message: AwsMessage, /) -> None:
        if self.writer.is_finished:
            return
        if message.headers.get(":message-type", "event") != "event":
            self.end()  # an exception after the stop reason changes nothing
            self.writer.fail(*_failure(message), usage=self.usage_so_far())
            return
        event = message.headers.get(":event-type", "")
        if event not in _FRAMES:
            return
        frame = read(message.payload, _decode_frame, _Frame, f"a {event} frame", _OPTIONAL)
        match event:
            case "contentBlockDelta":
                if frame.delta is not None:
                    self._add(frame.content_block_index, frame.delta)
            case "contentBlockStart":
                self._open(frame.content_block_index, frame.start)
            case "contentBlockStop":
                self._close(frame.content_block_index)
            case "messageStop":
                self._stop = frame.stop_reason or "end_turn"
            case "metadata":
                self._usage = _usage(frame.usage)
                self.end()
            case _:
                self._wrapped.take(_unwrapped(frame.bytes or ""))

    def take_document(self, body: bytes) -> bool:
        reply = object_in(body)
        message = mapping(mapping(reply.get("output")).get("message"))
        if not message:
            return False
        for index, block in enumerate(map(mapping, items(message.get("content")))):
            reasoning = mapping(block.get("reasoningContent"))
            block = {**block, "reasoningContent": {**reasoning, **mapping(reasoning.get("reasoningText"))}}
            payload = json_text({"start": block, "delta": block}).encode()
            frame = read(payload, _decode_frame, _Frame, "a block", _OPTIONAL)
            self._open(index, frame.start)
            if frame.delta is not None:
                self._add(index, frame.delta)
            self._close(index)
        self._usage = _usage(mapping(reply.get("usage")))
        self._stop = text(reply.get("stopReason")) or ("tool_use" if self._ids else "end_turn")
        self.end()
        return True

    def usage_so_far(self) -> Usage | None:
        return self._usage or self._wrapped.usage_so_far()

    def _open(self, index: int | None, start: _Start | None) -> None:
        self._close(index)
        tool = start.tool_use if start is not None else None
        if tool is None or tool.type == "server_tool_use":  # the provider runs it itself
            return
        self.writer.start_call(index, unused_id(tool.tool_use_id, self._ids), tool.name or "")

    def _add(self, index: int | None, delta: _Delta) -> None:
        if delta.text:
            self.writer.text(delta.text)
        elif delta.tool_use is not None:
            piece = delta.tool_use.input
            if piece is not None:
                self.writer.arguments(index, piece if isinstance(piece, str) else json_text(piece))
        elif (reasoning := delta.reasoning_content) is not None:
            self.writer.thinking(reasoning.text or "")
            self.writer.signature(reasoning.signature or "")
            if reasoning.redacted_content:
                self.writer.signature(_redacted(reasoning.redacted_content))

    def _close(self, index: int | None) -> None:
        self.writer.end_speech()
        self.writer.end_call(index)


def _unwrapped(chunk: str) -> bytes:
    try:
        return base64.b64decode(chunk, validate=True)
    except ValueError as error:
        raise FrameError(f"a chunk frame that cannot be read: {error}") from error


def _redacted(blob: str) -> str:
    """Returns the signature for encrypted reasoning; for Claude, the text that Anthropic itself sends."""
    try:
        return _claude.REDACTED + base64.b64decode(blob, validate=True).decode("ascii")
    except ValueError:
        return ""  # other models do not accept it


def _usage(counts: dict[str, Any] | None) -> Usage:
    given, output = count(counts, "inputTokens"), count(counts, "outputTokens")
    read, written = count(counts, "cacheReadInputTokens"), count(counts, "cacheWriteInputTokens")
    return Usage(given, output, read, written, given + output + read + written)


def _failure(message: AwsMessage) -> tuple[str, ErrorKind]:
    """Returns the message and the kind of an exception frame."""
    name = message.headers.get(":exception-type") or message.headers.get(":error-code") or ""
    payload = object_in(message.payload)
    words = text(payload.get("message")) or text(payload.get("Message")) or message.headers.get(":error-message", "")
    shown, kind = classify_error({"type": name, "message": f"{name}: {words}" if words else name})
    by_name = _EXCEPTIONS.get(name.lower().removesuffix("exception"), kind)
    # The service reports many errors as stream errors of the model; an error about a too long input keeps its kind.
    is_overflow = kind == ErrorKind.CONTEXT_OVERFLOW and by_name == ErrorKind.NETWORK
    return shown, kind if is_overflow else by_name
