"""OpenAI chat completions (`/v1/chat/completions`), for OpenAI and every compatible server.

Providers that differ have their own file with a subclass.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from swink_agent.core.errors import ErrorKind
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
    StopReason,
    Text,
    ThinkingLevel,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.decoders import json_decoder

from . import registry
from .kit.bodies import error_text, json_array, parts_of, short_id, unused_id
from .kit.documents import count, items, json_text, mapping, object_in, read, text
from .kit.errors import classify_error
from .kit.frames import FrameParser, SseFrames
from .kit.http import Parser
from .kit.images import Note, document_data, file_name, image_url
from .kit.keyed import KeyedStreamFn
from .kit.schemas import SchemaSubset
from .kit.transport import HttpRequest

_LONGEST_ID = 40
_WITHOUT_REASONING = re.compile(r"gpt-[34]|chatgpt|gpt-5-chat")
_STRICT_HOSTS = ("groq.com", "cerebras.ai", "googleapis.com")  # servers that refuse unknown fields
EFFORT = {
    ThinkingLevel.MINIMAL: "minimal",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.EXTRA_HIGH: "xhigh",
}


_ATTACHED = frozenset({Image, Document})
_WITHOUT_SCHEMAS = re.compile(r"(?:^|.*[/.])(?:gpt-3|gpt-4(?![o.\d])|gpt-4o-2024-05-13|chatgpt-4o|o1-(?:mini|preview))")
"""Models that came before structured outputs."""
STRICT = SchemaSubset(
    frozenset(
        {
            *("title", "const", "pattern", "multipleOf", "minItems", "maxItems"),
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        }
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
    needs_all=True,
    takes_cycles=True,
)
"""The part of JSON Schema that OpenAI takes in strict mode."""


def takes_schemas(model_id: str) -> bool:
    """Whether an OpenAI model takes a JSON Schema for its reply; an unknown model is assumed to."""
    return _WITHOUT_SCHEMAS.match(model_id) is None


def strict_format(schema: dict[str, Any], subset: SchemaSubset) -> dict[str, Any]:
    """Returns the format of a reply: strict if the subset can express the schema, else the schema unchanged."""
    expressed = subset.express(schema)
    return {"name": "answer", "schema": schema if expressed is None else expressed, "strict": expressed is not None}


class OpenAiStreamFn(KeyedStreamFn):
    """Chat completions of OpenAI or, with `base_url`, of any compatible server.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. Servers other than
    OpenAI's may work without a key.
    """

    description = registry.openai
    kin: ClassVar[frozenset[str]] = frozenset({"openai-responses"})
    serves_all_elsewhere: ClassVar[bool] = True
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    max_tokens_field: ClassVar[str] = "max_completion_tokens"
    usage_fields: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}
    session_field: ClassVar[str] = "prompt_cache_key"
    documents_need_images: ClassVar[bool] = True
    keeps_own_ids: ClassVar[bool] = True
    schemas: ClassVar[SchemaSubset] = STRICT

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model takes this JSON Schema for its reply."""
        return takes_schemas(model.model_id) and self.schemas.express(schema) is not None

    # -- the request -------------------------------------------------------------------------------------------

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        return self.request(self.url(model), {**self.fields(model, context, options), **options.extra}, options)

    def url(self, model: ModelSpec) -> str:
        return f"{self.server()}/chat/completions"

    def fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the messages changes."""
        fields: dict[str, Any] = {"model": model.model_id, "stream": True}
        fields.update(self.usage_fields)
        if context.tools:
            fields["tools"] = [self.tool(tool) for tool in context.tools]
            fields.update(self.tool_choice(options.tool_choice))
        if options.output_schema is not None:
            json_schema = strict_format(options.output_schema, self.schemas)
            fields["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        fields.update(self.thinking(model))
        fields["temperature"] = options.temperature
        fields[self.max_tokens_field] = options.max_tokens
        fields.update(self.session_fields(options))
        fields["messages"] = json_array(self.messages(context))
        return fields

    def session_fields(self, options: StreamOptions) -> dict[str, Any]:
        """Returns the session field, by which the provider finds its cache, except for servers that refuse it."""
        if not options.session_id or options.cache != "auto":
            return {}
        host = urlsplit(self.base_url).hostname or ""
        if _is_at(host, _STRICT_HOSTS):
            return {}
        name = "session_id" if _is_at(host, ("openrouter.ai",)) else "prompt_cache_key"
        return {name: short_id(options.session_id, "session")}

    def thinking(self, model: ModelSpec) -> dict[str, Any]:
        effort = EFFORT.get(model.thinking_level)
        return {} if effort is None or _WITHOUT_REASONING.match(model.model_id) else {"reasoning_effort": effort}

    def tool(self, tool: OfferedTool) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_schema}
        return {"type": "function", "function": function}

    def tool_choice(self, choice: str) -> dict[str, Any]:
        if choice == "auto":
            return {}
        if choice in ("none", "required"):
            return {"tool_choice": choice}
        return {"tool_choice": {"type": "function", "function": {"name": choice}}}

    # -- messages ----------------------------------------------------------------------------------------------

    def messages(self, context: AgentContext) -> list[bytes]:
        encoded: list[bytes] = []
        if prompt := prompt_text(context.system_prompt):
            encoded.append(msgspec.json.encode({"role": "system", "content": prompt}))
        pictures: list[ToolResultMessage] = []
        for message in context.messages:
            if type(message) is ToolResultMessage:
                encoded.append(self.encoded.encode(message, self.tool_result))
                if _has_attached(message):
                    pictures.append(message)
                continue
            self._add_pictures(encoded, pictures)
            if not is_silent(message):
                encoded.append(self.encoded.encode(message, self.message))
        self._add_pictures(encoded, pictures)
        return encoded

    def _add_pictures(self, encoded: list[bytes], pictures: list[ToolResultMessage]) -> None:
        """Adds the images and documents of tool results after the results: this API accepts them only from users."""
        for message in pictures:
            encoded.append(self.encoded.encode(message, self.tool_pictures, "pictures"))
        pictures.clear()

    def message(self, message: AgentMessage) -> dict[str, Any]:
        if isinstance(message, UserMessage):
            return {"role": "user", "content": self.user_content(message.content)}
        if isinstance(message, AssistantMessage):
            return self.assistant(message)
        raise TypeError(f"{a_kind(message)} is not a message for a provider")

    def user_content(self, content: Sequence[Any]) -> str | list[dict[str, Any]]:
        if all(type(block) is Text for block in content):
            return extract_text(content)
        return parts_of(content, {Text: _text_part, Image: _image_part, Document: _document_part}) or ""

    def assistant(self, message: AssistantMessage) -> dict[str, Any]:
        fields: dict[str, Any] = {"role": "assistant"}
        if message.text:
            fields["content"] = message.text
        if calls := message.tool_calls:
            fields["tool_calls"] = [
                {
                    "id": self.call_id(call.id),
                    "type": "function",
                    "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
                }
                for call in calls
            ]
        return fields if len(fields) > 1 else {**fields, "content": ""}

    def call_id(self, call_id: str) -> str:
        """Returns an id that the provider accepts; a call and its result get the same one."""
        if len(call_id) <= _LONGEST_ID:
            return call_id
        return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"

    def tool_result(self, message: ToolResultMessage) -> dict[str, Any]:
        """Returns the message of a call's result. This API has no flag for an error, so the text says it."""
        text = extract_text(message.content)
        if not text:
            text = f"(see the {_noun(message).lower()} below)" if _has_attached(message) else "(no output)"
        if message.is_error:
            text = error_text(text)
        return {"role": "tool", "tool_call_id": self.call_id(message.tool_call_id), "content": text}

    def tool_pictures(self, message: ToolResultMessage) -> dict[str, Any]:
        attached = [block for block in message.content if type(block) in _ATTACHED]
        opening = Text(f"{_noun(message)} from {message.tool_name}:")
        return {"role": "user", "content": self.user_content([opening, *attached])}

    # -- the reply ---------------------------------------------------------------------------------------------

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> Parser:
        return ChatParser()


def _text_part(block: Text | Note) -> dict[str, Any] | None:
    return {"type": "text", "text": block.text} if block.text else None


def _image_part(image: Image) -> dict[str, Any] | None:
    url = image_url(image)
    return _text_part(url) if isinstance(url, Note) else {"type": "image_url", "image_url": {"url": url}}


def _document_part(document: Document) -> dict[str, Any] | None:
    data = document_data(document)
    if isinstance(data, Note):
        return _text_part(data)
    return {"type": "file", "file": {"filename": file_name(document), "file_data": f"data:{PDF};base64,{data}"}}


def _is_at(host: str, places: tuple[str, ...]) -> bool:
    return any(host == place or host.endswith(f".{place}") for place in places)


def _has_attached(message: ToolResultMessage) -> bool:
    return any(type(block) in _ATTACHED for block in message.content)


def _noun(message: ToolResultMessage) -> str:
    has_document = any(type(block) is Document for block in message.content)
    return "Document" if has_document and not any(type(block) is Image for block in message.content) else "Image"


def is_silent(message: AgentMessage) -> bool:
    """Whether a message has nothing that this API can represent, such as a reply that was aborted during thinking."""
    if type(message) is UserMessage:
        return not extract_text(message.content) and not any(type(block) in _ATTACHED for block in message.content)
    return type(message) is AssistantMessage and not message.text and not message.tool_calls


# -- frames --------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    """The whole reply, from a server that does not stream."""
    finish_reason: str | None = None


class _Chunk(Struct):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    x_groq: dict[str, Any] | None = None


_decode_chunk = json_decoder(_Chunk).decode
_OPTIONAL = frozenset({"usage", "x_groq", "id"})

_STOP_REASONS = {
    "stop": StopReason.STOP,
    "end_turn": StopReason.STOP,
    "eos": StopReason.STOP,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
}


class _PendingCall(Struct):
    """A call whose name has not arrived yet, with the arguments that arrived before it."""

    key: object
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class ChatParser(FrameParser[tuple[bytes, bytes]]):
    """Chunks of a chat completion."""

    def __init__(self) -> None:
        super().__init__(SseFrames())
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._refusal: list[str] = []
        self._calls: dict[int, _PendingCall] = {}
        self._ids: set[str] = set()

    def end(self) -> None:
        super().end()
        if not self.writer.is_finished and self._finish is not None:
            self._done()

    def take(self, frame: tuple[bytes, bytes], /) -> None:
        payload = frame[1]
        if self.writer.is_finished:
            return
        if payload.strip() == b"[DONE]":
            self._done()  # some servers leave out the reason
            return
        if not payload.strip():
            return
        chunk = read(payload, _decode_chunk, _Chunk, "a chunk", _OPTIONAL)
        self.writer.answered_by(chunk.model, chunk.id)
        if chunk.usage:
            self._usage.update(chunk.usage)
        if chunk.x_groq:
            self._usage.update(mapping(chunk.x_groq.get("usage")))
        if chunk.error is not None and self._finish is None:
            self.writer.fail(*classify_error(chunk.error), usage=self.usage_so_far())
            return
        for choice in chunk.choices or ():
            if not choice.index:
                if said := choice.delta or choice.message:
                    self._take_delta(said)
                if choice.finish_reason:
                    self._finish = choice.finish_reason

    def take_document(self, body: bytes) -> bool:
        choices = items(object_in(body).get("choices"))
        if not choices or not mapping(mapping(choices[0]).get("message")):
            return False
        self.take((b"", body))
        self._done()
        return True

    def _take_delta(self, delta: _Delta) -> None:
        writer = self.writer
        if thinking := delta.reasoning_content or delta.reasoning:
            writer.thinking(thinking)
        if delta.content:
            self._take_content(delta.content)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        if delta.function_call is not None:
            self._take_call(_Call(0, None, delta.function_call), 0)
        for position, call in enumerate(delta.tool_calls or ()):
            self._take_call(call, position)

    def _take_content(self, content: object) -> None:
        if isinstance(content, str):
            self.writer.text(content)
            return
        for part in map(mapping, items(content)):  # Mistral sends a list of typed parts
            self.writer.text(text(part.get("text")))
            for piece in items(part.get("thinking")) or [part.get("thinking")]:
                self.writer.thinking(text(piece) or text(mapping(piece).get("text")))

    def _take_call(self, call: _Call, position: int) -> None:
        index = position if call.index is None else call.index
        pending = self._calls.get(index)
        name = call.function.name if call.function is not None else None
        if pending is None or (call.id and name and pending.id and call.id != pending.id):
            # The same index with another id and a name is another call.
            pending = self._calls[index] = _PendingCall(object())
        if call.id and not pending.id:
            pending.id = call.id
        arguments = call.function.arguments if call.function is not None else None
        if arguments is not None and not isinstance(arguments, str):
            arguments = json_text(arguments)
        if name and not pending.name:
            pending.name = name
            self.writer.start_call(pending.key, unused_id(pending.id, self._ids), name)
            for piece in pending.arguments:
                self.writer.arguments(pending.key, piece)
            pending.arguments.clear()
        if arguments:
            if pending.name:
                self.writer.arguments(pending.key, arguments)
            else:
                pending.arguments.append(arguments)

    def _done(self) -> None:
        usage = self.usage(self._usage)
        if self._refusal:
            self.writer.fail("".join(self._refusal), ErrorKind.CONTENT_FILTERED, usage=usage)
        elif self._finish == "content_filter":
            self.writer.fail("the provider's filter stopped the reply", ErrorKind.CONTENT_FILTERED, usage=usage)
        elif self._finish == "error":
            self.writer.fail("the provider ended the reply with an error", ErrorKind.NETWORK, usage=usage)
        else:
            reason = StopReason.TOOL_USE if self._finish is None and self._ids else StopReason.STOP
            self.writer.done(_STOP_REASONS.get(self._finish or "", reason), usage)

    def usage_so_far(self) -> Usage | None:
        return self.usage(self._usage) if self._usage else None

    def usage(self, counts: dict[str, Any]) -> Usage:
        """Converts the provider's counts: input excludes cached tokens, and output includes reasoning."""
        prompt, output = count(counts, "prompt_tokens"), count(counts, "completion_tokens")
        cached = count(counts, "prompt_tokens_details", "cached_tokens") or count(counts, "prompt_cache_hit_tokens")
        written = count(counts, "prompt_tokens_details", "cache_write_tokens")
        reasoning = count(counts, "completion_tokens_details", "reasoning_tokens")
        if reasoning and count(counts, "total_tokens") == prompt + output + reasoning:
            output += reasoning  # xAI counts it separately
        return Usage(
            input=max(0, prompt - cached - written),
            output=output,
            cache_read=cached,
            cache_write=written,
            total=max(prompt, cached + written) + output,
            extra={"reasoning": reasoning} if reasoning else {},
        )
