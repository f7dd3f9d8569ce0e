"""Ollama's own chat API, `/api/chat`, with JSON lines, on this machine or at ollama.com.

For Ollama's OpenAI-compatible API, use `OpenAiStreamFn` with a `base_url`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from swink_agent.core.errors import ErrorKind
from swink_agent.core.stream import StreamFailed, StreamOptions, prompt_text
from swink_agent.core.types import (
    AgentContext,
    AssistantMessage,
    Image,
    ModelSpec,
    OfferedTool,
    StopReason,
    Thinking,
    ThinkingLevel,
    ToolResultMessage,
    Usage,
    UserBlock,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.decoders import json_decoder

from . import registry
from .kit.bodies import error_text, json_array, unused_id
from .kit.documents import UNREADABLE, count, items, mapping, read, text
from .kit.errors import classify_error
from .kit.frames import MOST_BYTES, FrameError, FrameParser, LineFrames, take_last
from .kit.http import with_advice
from .kit.images import Note, picture
from .kit.keyed import KeyedStreamFn
from .kit.transport import HttpRequest, TransportError


class OllamaStreamFn(KeyedStreamFn):
    """Models of an Ollama server, by default the one on this machine. Only ollama.com needs a key."""

    description = registry.ollama
    content_types: ClassVar[tuple[str, ...]] = ("application/x-ndjson", "application/json")
    keeps_own_ids: ClassVar[bool] = True

    def whole_address(self, url: str) -> str:
        """Returns the server's URL for a host, a host with a port, or a URL, as Ollama itself reads `OLLAMA_HOST`.

        Without a scheme, the default port is Ollama's. An address that means all interfaces means this machine. An API
        path at the end, `/v1` or `/api`, is dropped.
        """
        scheme, separator, rest = url.strip().strip("\"'").strip().rpartition("://")
        authority, _, path = rest.partition("/")
        user, at, place = authority.rpartition("@")
        if place.startswith("["):
            host, _, port = place[1:].partition("]")
        elif place.count(":") > 1:
            host, port = place, ""  # an IPv6 address without brackets
        else:
            host, _, port = place.partition(":")
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        port = port.lstrip(":")
        if not port.isdecimal():
            port = "" if separator else "11434"
        path = re.sub(r"(^|/)(v1|api)$", "", path.rstrip("/")).rstrip("/")
        made = f"{scheme or 'http'}://{user}{at}{f'[{host}]' if ':' in host else host}"
        return made + (f":{port}" if port else "") + (f"/{path}" if path else "")

    def serves(self, provider: str) -> bool:
        return provider == self.provider

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model takes this JSON Schema for its reply: any, but not next to tools, as it could not call
        one."""
        return not has_tools

    # -- the request -------------------------------------------------------------------------------------------

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        return self.request(f"{self.server()}/api/chat", self._fields(model, context, options), options)

    def headers(self, key: str | None) -> dict[str, str]:
        return {**super().headers(key or None), "accept": "application/x-ndjson"}

    def _fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the messages changes."""
        settings = {"temperature": options.temperature, "num_predict": options.max_tokens}
        settings = {name: value for name, value in settings.items() if value is not None}
        fields: dict[str, Any] = {
            "model": model.model_id,
            "stream": True,
            "think": _think(model),
            "tools": _tools(context.tools, options.tool_choice) or None,
            "format": options.output_schema,
            "messages": json_array(self._messages(model, context)),
            **options.extra,
        }
        settings.update(mapping(options.extra.get("options")))
        messages = fields.pop("messages")
        return {**fields, "options": settings or None, "messages": messages}

    # -- messages ----------------------------------------------------------------------------------------------

    def _messages(self, model: ModelSpec, context: AgentContext) -> Iterator[bytes]:
        if prompt := prompt_text(context.system_prompt):
            yield msgspec.json.encode({"role": "system", "content": prompt})
        names: dict[str, str] = {}
        pictures: list[ToolResultMessage] = []
        for message in context.messages:
            if type(message) is ToolResultMessage:
                name = message.tool_name or names.get(message.tool_call_id, "")
                yield self.encoded.encode(message, partial(_result, name=name), name)
                pictures.append(message)
                continue
            yield from self._pictures(pictures)
            if type(message) is AssistantMessage:
                names.update((call.id, call.name) for call in message.tool_calls)
                is_own = message.provider in (self.provider, model.provider)
                if message.text or message.tool_calls:
                    yield self.encoded.encode(message, partial(_assistant, is_own=is_own), is_own)
            elif type(message) is UserMessage and (_has_image(message.content) or extract_text(message.content)):
                yield self.encoded.encode(message, _user)
        yield from self._pictures(pictures)

    def _pictures(self, results: list[ToolResultMessage]) -> Iterator[bytes]:
        """Yields the images of tool results after the results, since most templates show only those of users."""
        for message in results:
            if _has_image(message.content):
                yield self.encoded.encode(message, _result_pictures, "pictures")
        results.clear()

    # -- models ------------------------------------------------------------------------------------------------

    async def advised(self, refused: StreamFailed, model: ModelSpec) -> StreamFailed:
        """Adds the names of the server's models, if it answers in time."""
        get = getattr(self.transport, "get", None)
        if get is None:
            return refused
        headers = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            document = mapping(msgspec.json.decode(await get(f"{self.base_url}/api/tags", headers)))
        except (TransportError, *UNREADABLE):
            return refused
        names = [name for item in items(document.get("models")) if (name := text(mapping(item).get("name")))]
        if not names:
            return with_advice(refused, f"it has no models: ollama pull {model.model_id}")
        from swink_agent.core.texts.likeness import close_names  # on use: for error messages

        near = close_names(model.model_id, names, n=3, cutoff=0.4)
        advice = f"is it {' or '.join(near)}?" if near else f"it has {', '.join(names[:5])}."
        return with_advice(refused, f"{advice} Others: ollama pull {model.model_id}")

    # -- the reply ---------------------------------------------------------------------------------------------

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> OllamaParser:
        return OllamaParser()


def _think(model: ModelSpec) -> bool | str:
    """Whether to think; gpt-oss always does, and accepts a level instead."""
    if "gpt-oss" not in model.model_id:
        return model.thinking_level != ThinkingLevel.OFF
    levels = {ThinkingLevel.MEDIUM: "medium", ThinkingLevel.HIGH: "high", ThinkingLevel.EXTRA_HIGH: "high"}
    return levels.get(model.thinking_level, "low")


def _tools(tools: Sequence[OfferedTool], choice: str) -> list[dict[str, Any]]:
    """Returns the tools to offer. Ollama has no tool choice: a required tool is offered alone."""
    if choice == "none":
        return []
    if choice not in ("auto", "required"):
        tools = [tool for tool in tools if tool.name == choice] or tools
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters_schema},
        }
        for tool in tools
    ]


def _has_image(content: Sequence[UserBlock]) -> bool:
    return any(type(block) is Image for block in content)


def _user(message: UserMessage) -> dict[str, Any]:
    return {"role": "user", **_with_images(extract_text(message.content), message.content)}


def _with_images(words: str, content: Sequence[UserBlock]) -> dict[str, Any]:
    """Returns the text and the images; an image that cannot be sent becomes a note after the text."""
    found = [picture(block) for block in content if type(block) is Image]
    notes = [note.text for note in found if isinstance(note, Note)]
    fields: dict[str, Any] = {"content": "\n".join([words, *notes] if words else notes)}
    if len(notes) < len(found):
        fields["images"] = [image.data for image in found if not isinstance(image, Note)]
    return fields


def _assistant(message: AssistantMessage, *, is_own: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": message.text}
    thinking = "".join(block.thinking for block in message.content if type(block) is Thinking)
    if is_own and thinking:
        fields["thinking"] = thinking
    for index, call in enumerate(message.tool_calls):
        arguments = {} if call.is_incomplete else call.arguments
        function = {"index": index, "name": call.name, "arguments": arguments}
        fields.setdefault("tool_calls", []).append({"id": call.id, "function": function})
    return fields


def _result(message: ToolResultMessage, *, name: str) -> dict[str, Any]:
    content = extract_text(message.content)
    if not content:
        content = "(see the image below)" if _has_image(message.content) else "(no output)"
    if message.is_error:
        content = error_text(content)
    fields = {"role": "tool", "content": content, "tool_call_id": message.tool_call_id}
    return {**fields, "tool_name": name} if name else fields


def _result_pictures(message: ToolResultMessage) -> dict[str, Any]:
    return {"role": "user", **_with_images(f"Image from {message.tool_name or 'the tool'}:", message.content)}


# -- lines ---------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class _Call(Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct):
    model: Any = None
    message: _Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: Any = None
    eval_count: Any = None
    error: Any = None


_decode_line = json_decoder(_Line).decode
_OPTIONAL = frozenset({"id"})


class OllamaParser(FrameParser[bytes]):
    """Reads the lines of a reply; the last one has the stop reason and the usage."""

    def __init__(self) -> None:
        super().__init__(LineFrames())
        self._call_ids: set[str] = set()
        self._usage: Usage | None = None
        self._document = bytearray()
        """The lines so far of one document in several lines, from a server that does not stream."""

    def end(self) -> None:
        super().end()
        take_last([bytes(self._document)] if self._document else [], self._take_line)

    def take(self, data: bytes, /) -> None:
        if self.writer.is_finished or not data.strip():
            return
        if self._document or data.strip() == b"{":
            self._document += data + b"\n"
            if len(self._document) > MOST_BYTES:
                raise FrameError(f"a document of more than {MOST_BYTES} bytes")
        else:
            self._take_line(data)

    def _take_line(self, data: bytes) -> None:
        line = read(data, _decode_line, _Line, "a line", _OPTIONAL)
        self.writer.answered_by(line.model)
        if line.prompt_eval_count is not None or line.eval_count is not None:
            prompt, output = count(line.prompt_eval_count), count(line.eval_count)
            self._usage = Usage(input=prompt, output=output, total=prompt + output)
        if line.error is not None:
            message, kind = classify_error({"error": line.error})
            if kind == ErrorKind.INVALID_REQUEST:
                kind = ErrorKind.NETWORK  # the request was accepted, so the server failed
            self.writer.fail(message, kind, usage=self._usage)
            return
        if line.message is not None:
            self.writer.thinking(line.message.thinking or "")
            self.writer.text(line.message.content or "")
            for call in line.message.tool_calls or ():
                self._take_call(call)
        if line.done:
            reason = StopReason.TOOL_USE if self._call_ids else StopReason.STOP
            self.writer.done(StopReason.LENGTH if line.done_reason == "length" else reason, self._usage or Usage())

    def _take_call(self, call: _Call) -> None:
        function = call.function
        if function is None or not function.name:
            return
        try:
            arguments = _arguments(bytes(function.arguments))
        except UNREADABLE as error:
            raise FrameError(f"arguments of {function.name!r} that cannot be read: {error}") from error
        call_id = unused_id(call.id, self._call_ids)
        self.writer.start_call(call_id, call_id, function.name)
        self.writer.arguments(call_id, arguments)
        self.writer.end_call(call_id)

    def usage_so_far(self) -> Usage | None:
        return self._usage


def _arguments(data: bytes) -> str:
    """Returns the arguments as JSON text; they are an object, but servers that imitate Ollama may send a string.

    Other values are passed on: the loop reports to the model that they are not an object.
    """
    if data[:1] == b'"':
        return msgspec.json.decode(data, type=str)
    return "" if data == b"null" else data.decode()
