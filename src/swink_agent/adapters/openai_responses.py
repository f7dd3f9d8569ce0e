"""OpenAI Responses (`/v1/responses`), for OpenAI and every compatible server.

The provider stores nothing: reasoning is sent back and forth as encrypted items. Chat completions are in `openai`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

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
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.decoders import json_decoder

from . import registry
from .kit.bodies import error_text, json_array, parts_of, short_id, unused_id
from .kit.documents import count, document, items, mapping, object_in, read, text
from .kit.errors import classify_error
from .kit.frames import FrameParser, SseFrames
from .kit.images import Note, document_data, document_url, file_name, image_url
from .kit.keyed import KeyedStreamFn
from .kit.searches import SEARCHES, Sources, searched
from .kit.transport import HttpRequest
from .openai import EFFORT, STRICT, strict_format, takes_schemas

_WITHOUT_SEARCH = re.compile(r"(?:^|[/.])(?:gpt-3|gpt-4(?!o|\.1|\.5)|gpt-4\.1-nano|o1|o3-mini)")
_SEARCH_PRICE = 0.01  # US dollars for one search
_WITHOUT_REASONING = re.compile(r"(?:^|[/.])(?:gpt-[34]|chatgpt|gpt-5-chat)")


class OpenAiResponsesStreamFn(KeyedStreamFn):
    """Responses of OpenAI or, with `base_url`, of any compatible server.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. Servers other than
    OpenAI's may work without a key. Requests ask for encrypted reasoning, except for models that are known to have
    none; for other names, such as a deployment's, `StreamOptions.extra={"include": None}` turns that off.
    """

    description = registry.openai_responses
    kin: ClassVar[frozenset[str]] = frozenset({"openai"})
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    session_field: ClassVar[str] = "prompt_cache_key"
    documents_need_images: ClassVar[bool] = True

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the model takes this JSON Schema for its reply."""
        return takes_schemas(model.model_id) and STRICT.express(schema) is not None

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        """Whether the model searches, as all but a few older ones do."""
        return not _WITHOUT_SEARCH.search(model.model_id)

    def search_cost(self, model: ModelSpec, searches: int) -> float:
        return searches * _SEARCH_PRICE

    # -- the request -------------------------------------------------------------------------------------------

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        fields, extra = self.fields(model, context, options), options.extra
        if "text" in fields and (more := mapping(extra.get("text"))):  # merged with the format of the reply
            extra = {**extra, "text": {**fields["text"], **more}}
        return self.request(f"{self.server()}/responses", {**fields, **extra}, options)

    def fields(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> dict[str, Any]:
        """Returns the body's fields, stable ones first: from turn to turn only the end of the input changes."""
        fields: dict[str, Any] = {"model": model.model_id, "stream": True, "store": False}
        fields["instructions"] = prompt_text(context.system_prompt) or None
        if context.tools:
            fields["tools"] = [_tool(tool) for tool in context.tools]
            fields["tool_choice"] = _tool_choice(options.tool_choice)
        if options.web_search:
            fields["tools"] = [*fields.get("tools", ()), {"type": "web_search"}]
        if not _WITHOUT_REASONING.search(model.model_id):
            fields["include"] = ["reasoning.encrypted_content"]
            if effort := EFFORT.get(model.thinking_level):
                fields["reasoning"] = {"effort": effort, "summary": "auto"}
        if options.output_schema is not None:
            fields["text"] = {"format": {"type": "json_schema", **strict_format(options.output_schema, STRICT)}}
        fields["temperature"] = options.temperature
        fields["max_output_tokens"] = options.max_tokens
        if options.session_id and options.cache == "auto":
            fields["prompt_cache_key"] = short_id(options.session_id, "session")
        fields["input"] = json_array(self._input(model, context.messages))
        return fields

    def _input(self, model: ModelSpec, messages: Sequence[AgentMessage]) -> Iterator[bytes]:
        """Yields the items of the messages as JSON; a message without content has none."""
        for message in messages:
            is_own = (
                type(message) is AssistantMessage
                and (message.provider, message.model_id) == (model.provider, model.model_id)
                and not message.is_failed
            )  # no other model can read its reasoning
            encoded = self.encoded.encode(message, partial(_items, with_reasoning=is_own), is_own)
            if encoded != b"[]":
                yield encoded[1:-1]

    # -- the reply ---------------------------------------------------------------------------------------------

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> ResponsesParser:
        return ResponsesParser()


def _tool(tool: OfferedTool) -> dict[str, Any]:
    # Without `strict` this API would rewrite the schema: every property required, no others allowed.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters_schema,
        "strict": False,
    }


def _tool_choice(choice: str) -> str | dict[str, Any] | None:
    if choice == "auto":
        return None
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


# -- input items ---------------------------------------------------------------------------------------------


def _items(message: AgentMessage, *, with_reasoning: bool) -> list[dict[str, Any]]:
    """The input items of one message."""
    if isinstance(message, UserMessage):
        content = parts_of(message.content, _PARTS)
        return [{"type": "message", "role": "user", "content": content}] if content else []
    if isinstance(message, AssistantMessage):
        return _reply_items(message, with_reasoning)
    if isinstance(message, ToolResultMessage):
        return [_result_item(message)]
    raise TypeError(f"{a_kind(message)} is not a message for a provider")


def _text_part(block: Text | Note) -> dict[str, Any] | None:
    return {"type": "input_text", "text": block.text} if block.text else None


def _image_part(image: Image) -> dict[str, Any] | None:
    url = image_url(image)
    return _text_part(url) if isinstance(url, Note) else {"type": "input_image", "image_url": url, "detail": "auto"}


def _file_part(document: Document) -> dict[str, Any] | None:
    if (url := document_url(document)) is not None:
        return {"type": "input_file", "file_url": url}
    data = document_data(document)
    if isinstance(data, Note):
        return _text_part(data)
    return {"type": "input_file", "filename": file_name(document), "file_data": f"data:{PDF};base64,{data}"}


_PARTS = {Text: _text_part, Image: _image_part, Document: _file_part}


def _reply_items(message: AssistantMessage, with_reasoning: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in message.content:
        if type(block) is Text and block.text:
            content = [{"type": "output_text", "text": block.text}]
            found.append({"type": "message", "role": "assistant", "content": content})
        elif type(block) is ToolCall:
            found.append(_call_item(block))
        elif type(block) is Thinking and with_reasoning and (item := reasoning_item(block.signature)):
            found.append(item)
    # Reasoning is refused without the item that followed it. If that item was a tool which the provider ran, it is not
    # in the history, and other reasoning follows: without its id, the provider does not look for the tool.
    while found and found[-1]["type"] == "reasoning":
        found.pop()
    for item, following in pairwise(found):
        if item["type"] == following["type"] == "reasoning":
            item.pop("id", None)
    return found


def _call_item(call: ToolCall) -> dict[str, Any]:
    arguments = "{}" if call.is_incomplete else msgspec.json.encode(call.arguments).decode()
    call_id = short_id(call.id, "call")
    return {"type": "function_call", "call_id": call_id, "name": call.name, "arguments": arguments}


def _result_item(message: ToolResultMessage) -> dict[str, Any]:
    """Returns the item of a call's result. This API has no flag for an error, so the text says it."""
    content = parts_of(message.content, _PARTS)
    output: str | list[dict[str, Any]] = content
    if all(part["type"] == "input_text" for part in content):
        output = "".join(part["text"] for part in content) or "(no output)"
        if message.is_error:
            output = error_text(output)
    elif message.is_error:
        content.insert(0, {"type": "input_text", "text": "Error:"})
    return {"type": "function_call_output", "call_id": short_id(message.tool_call_id, "call"), "output": output}


# -- reasoning as a signature --------------------------------------------------------------------------------


def reasoning_signature(item: dict[str, Any]) -> str | None:
    """Encodes a reasoning item as the signature of its thinking block, without `status`, which is refused as input.

    The encrypted content is valid only with the item's id and parts, so they are kept as one document. An item with
    neither encrypted nor open reasoning cannot be sent back and has no signature.
    """
    if not text(item.get("encrypted_content")) and not items(item.get("content")):
        return None
    return msgspec.json.encode({name: value for name, value in item.items() if name != "status"}).decode()


def reasoning_item(signature: str | None) -> dict[str, Any] | None:
    """Returns the reasoning item in a signature, or `None` if it has none."""
    item = object_in(signature) if signature is not None and signature.startswith("{") else {}
    return item if item.get("type") == "reasoning" else None


# -- events --------------------------------------------------------------------------------------------------


class _Event(Struct):
    """The fields of all events that are read; an event has only those of its type."""

    type: str = ""
    delta: Any = None
    output_index: int | float | str | None = None
    item_id: int | float | str | None = None
    item: Any = None
    arguments: Any = None
    input: Any = None
    response: Any = None
    error: Any = None


_decode_event = json_decoder(_Event).decode
_OPTIONAL = frozenset({"output_index", "item_id"})

_Key: TypeAlias = int | float | str


class _Call(Struct, eq=False):
    """A call that is being streamed."""

    index: _Key | None
    id: str
    is_custom: bool  # whether its arguments are free text, which becomes `{"input": text}`
    has_arguments: bool = False


class ResponsesParser(FrameParser[tuple[bytes, bytes]]):
    """Events of a response."""

    def __init__(self) -> None:
        super().__init__(SseFrames())
        self._calls: dict[_Key, _Call] = {}
        self._call_ids: set[str] = set()
        self._last_call: _Call | None = None
        self._spoken: set[_Key | None] = set()
        self._has_items = False
        self._refusal: list[str] = []
        self._counts: dict[str, Any] = {}
        self._keeps_searches = False
        self._searches = 0
        self._sources = Sources()

    def keep_searches(self) -> None:
        self._keeps_searches = True

    def take(self, frame: tuple[bytes, bytes], /) -> None:
        name, payload = frame
        if self.writer.is_finished or not payload or payload.strip() in (b"", b"[DONE]"):
            return
        event = read(payload, _decode_event, _Event, "an event", _OPTIONAL)
        if not event.type:
            event.type = name.decode(errors="replace")
        response = mapping(event.response)
        self.writer.answered_by(response.get("model"), response.get("id"))
        if counts := mapping(response.get("usage")):
            self._counts = counts
        take = self._actions.get(event.type)
        if take is not None:
            take(self, event)
        elif event.type == "error" or (event.error is not None and not event.type.startswith("response.")):
            error = mapping(document(payload, "an event"))
            error.pop("type", None)  # it is "error", which is not a code
            self.writer.fail(*classify_error(error), usage=self.usage_so_far())

    def usage_so_far(self) -> Usage | None:
        return self.usage(self._counts) if self._counts else None

    # -- speech ------------------------------------------------------------------------------------------------

    def _take_text(self, event: _Event) -> None:
        self._spoken.add(event.output_index)
        self.writer.text(text(event.delta))

    def _take_thinking(self, event: _Event) -> None:
        self._spoken.add(event.output_index)
        self.writer.thinking(text(event.delta))

    def _take_refusal(self, event: _Event) -> None:
        self._spoken.add(event.output_index)
        self._refusal.append(text(event.delta))

    def _is_spoken(self, index: _Key | None) -> bool:
        """Whether an item's text came in deltas. Without positions, any delta counts."""
        return index in self._spoken or None in self._spoken or (index is None and bool(self._spoken))

    # -- items -------------------------------------------------------------------------------------------------

    def _take_item(self, event: _Event) -> None:
        """Starts an item. Tools that the provider runs itself are ignored."""
        self._has_items = True
        self.writer.end_speech()
        self._start_call(event.output_index, mapping(event.item))

    def _take_whole_item(self, event: _Event) -> None:
        """Ends an item, and reads the parts of it that did not come in deltas."""
        self._has_items = True
        item = mapping(event.item)
        kind, is_spoken = item.get("type"), self._is_spoken(event.output_index)
        if kind == "message":
            if not is_spoken:
                for part in map(mapping, items(item.get("content"))):
                    self.writer.text(text(part.get("text")))
                    self._refusal.append(text(part.get("refusal")))
            if self._keeps_searches:
                self._write_sources(item)
            self.writer.end_speech()
        elif kind == "reasoning":
            if not is_spoken:
                for part in map(mapping, items(item.get("summary")) + items(item.get("content"))):
                    self.writer.thinking(text(part.get("text")))
            self.writer.signature(reasoning_signature(item) or "")
            self.writer.end_speech()
        elif kind == "web_search_call":
            self._take_search(mapping(item.get("action")))
        elif call := self._start_call(event.output_index, item):
            self._complete(call, item.get("input" if call.is_custom else "arguments"))
            if item.get("status") != "incomplete":  # cut off by the length limit: it stays open
                self._end_call(call)

    def _take_search(self, action: dict[str, Any]) -> None:
        """Counts a search; pages that the model opens are free."""
        if self._keeps_searches and action.get("type") == "search":
            self._searches += 1
            self.writer.end_speech()
            self.writer.thinking(searched(*(items(action.get("queries")) or [action.get("query")])))
            self.writer.end_speech()

    def _write_sources(self, item: dict[str, Any]) -> None:
        """Writes the cited addresses that the text of an item does not name itself."""
        for part in map(mapping, items(item.get("content"))):
            for cited in map(mapping, items(part.get("annotations"))):
                url = text(cited.get("url"))
                if cited.get("type") == "url_citation" and url not in text(part.get("text")):
                    self._sources.add(url, cited.get("title"))
        self.writer.text(self._sources.take())

    # -- calls -------------------------------------------------------------------------------------------------

    def _start_call(self, index: _Key | None, item: dict[str, Any]) -> _Call | None:
        """Returns the call of an item, and starts it if needed; `None` for other items, or without a name yet."""
        kind, name = item.get("type"), text(item.get("name"))
        if kind not in ("function_call", "custom_tool_call") or not name:
            return None
        call_id, item_id = text(item.get("call_id")), text(item.get("id"))
        call = self._known_call(index, item_id, call_id)
        if call is None:
            call = self._last_call = _Call(index, call_id, is_custom=kind == "custom_tool_call")
            self._calls.update((key, call) for key in (index, item_id, call_id) if key is not None and key != "")
            self.writer.start_call(call, unused_id(call_id, self._call_ids), name)
        return call

    def _known_call(self, index: _Key | None, item_id: _Key | None, call_id: str = "") -> _Call | None:
        """Finds a call by its position and id, as far as given. Some servers change item ids in every event."""
        for key in (index, call_id, item_id):
            call = None if key is None else self._calls.get(key)
            if (
                call is not None
                and (index is None or call.index is None or index == call.index)
                and (not call_id or not call.id or call_id == call.id)
            ):
                return call
        return None

    def _take_arguments(self, event: _Event) -> None:
        if call := self._call_of(event):
            self._add_arguments(call, text(event.delta))

    def _take_whole_arguments(self, event: _Event) -> None:
        if call := self._call_of(event):
            self._complete(call, event.input if call.is_custom else event.arguments)

    def _call_of(self, event: _Event) -> _Call | None:
        call = self._known_call(event.output_index, event.item_id)
        return call or (self._last_call if event.output_index is None else None)

    def _complete(self, call: _Call, arguments: object) -> None:
        """Takes the complete arguments, if none came in deltas."""
        if not call.has_arguments:
            self._add_arguments(call, text(arguments))

    def _add_arguments(self, call: _Call, delta: str) -> None:
        if call.is_custom:
            delta = msgspec.json.encode(delta).decode()[1:-1]
            if not call.has_arguments:
                delta = '{"input":"' + delta
        if delta:
            call.has_arguments = True
            self.writer.arguments(call, delta)

    def _end_call(self, call: _Call) -> None:
        if call.is_custom:
            self._complete(call, "")
            self.writer.arguments(call, '"}')
        self.writer.end_call(call)

    # -- the end -----------------------------------------------------------------------------------------------

    def take_document(self, body: bytes) -> bool:
        response = object_in(body)
        if not isinstance(response.get("output"), list):
            return False
        self.writer.answered_by(response.get("model"), response.get("id"))
        self._take_end(_Event(type="response.completed", response=response))
        return True

    def _take_end(self, event: _Event) -> None:
        """Ends the response by its status or, without one, by the event's name."""
        response = mapping(event.response)
        if not self._has_items:  # the server sends them only here
            for index, item in enumerate(items(response.get("output"))):
                self._take_whole_item(_Event(output_index=index, item=item))
        usage = self.usage(mapping(response.get("usage")))
        status = text(response.get("status"))
        if status not in ("failed", "incomplete", "cancelled"):
            status = event.type.removeprefix("response.")
        reason = text(mapping(response.get("incomplete_details")).get("reason"))
        if refusal := "".join(self._refusal):
            self.writer.fail(refusal, ErrorKind.CONTENT_FILTERED, usage=usage)
        elif status == "failed":
            self.writer.fail(*classify_error(response.get("error") or "the response failed"), usage=usage)
        elif status == "cancelled":
            self.writer.fail("the provider cancelled the response", ErrorKind.NETWORK, usage=usage)
        elif status == "incomplete" and reason == "content_filter":
            self.writer.fail("the provider's filter stopped the reply", ErrorKind.CONTENT_FILTERED, usage=usage)
        elif status == "incomplete":
            self.writer.done(StopReason.LENGTH, usage)
        else:
            for call in self._calls.values():
                self._end_call(call)
            self.writer.done(StopReason.TOOL_USE if self._call_ids else StopReason.STOP, usage)

    def usage(self, counts: dict[str, Any]) -> Usage:
        """Converts the provider's counts: input excludes cached tokens, and output includes reasoning."""
        prompt, output = count(counts, "input_tokens"), count(counts, "output_tokens")
        read = min(prompt, count(counts, "input_tokens_details", "cached_tokens"))
        written = min(prompt - read, count(counts, "input_tokens_details", "cache_write_tokens"))
        reasoning = count(counts, "output_tokens_details", "reasoning_tokens")
        extra = {"reasoning": reasoning} if reasoning else {}
        if self._searches:
            extra[SEARCHES] = self._searches
        return Usage(prompt - read - written, output, read, written, prompt + output, extra)

    _actions: ClassVar[dict[str, Callable[[ResponsesParser, _Event], None]]] = {
        "response.output_text.delta": _take_text,
        "response.reasoning_summary_text.delta": _take_thinking,
        "response.reasoning_text.delta": _take_thinking,
        "response.refusal.delta": _take_refusal,
        "response.output_item.added": _take_item,
        "response.output_item.done": _take_whole_item,
        "response.function_call_arguments.delta": _take_arguments,
        "response.function_call_arguments.done": _take_whole_arguments,
        "response.custom_tool_call_input.delta": _take_arguments,
        "response.custom_tool_call_input.done": _take_whole_arguments,
        "response.completed": _take_end,
        "response.incomplete": _take_end,
        "response.failed": _take_end,
        "response.cancelled": _take_end,
    }
