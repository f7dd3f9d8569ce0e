"""Encodes messages and events as JSON, and decodes them, also if a newer version wrote them.

A content block of an unknown type, or a document of an unknown kind, becomes an `Extension`. The values are defined in
`types` and `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Union, cast, get_args

import msgspec

from ..approval import PendingCall
from ..errors import ErrorKind
from ..events import AgentEnd, AgentEvent, DelegateEvent
from ..types import (
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Cost,
    CustomMessage,
    Document,
    PolicyStop,
    StopReason,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from ..values.checks import is_not
from ..values.data import as_json
from ..values.decoders import json_decoder

_OURS = (UserMessage, AssistantMessage, ToolResultMessage)


def encode_message(message: AgentMessage) -> bytes:
    """Encodes one message. Its `details` and `data` may hold any objects: see `as_json`."""
    return as_json(message)


def decode_message(data: bytes | str, types: Sequence[type[CustomMessage]] = ()) -> AgentMessage:
    """Decodes one message; `types` are the application's own message types. Raises `ValueError`."""
    return decode_json(data, _message_type(_several(types)), "message")


@lru_cache(maxsize=64)
def _message_type(types: tuple[type[CustomMessage], ...]) -> Any:
    return Union[(*_OURS, *checked_types(types))]


def checked_types(types: Iterable[type[CustomMessage]]) -> tuple[type[CustomMessage], ...]:
    """Checks an application's message types. Raises `TypeError` if two of them have the same tag."""
    types = _several(types)
    owners: dict[Any, type] = {kind.__struct_config__.tag: kind for kind in _OURS}
    for kind in types:
        if not isinstance(kind, type) or not issubclass(kind, CustomMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"types must be subclasses of CustomMessage, and {kind!r} is not one")
        tag = kind.__struct_config__.tag
        owner = owners.setdefault(tag, kind)
        if owner is not kind:
            raise TypeError(
                f"{kind.__name__} and {owner.__name__} have the same tag, {tag!r}: give one of them another"
            )
    return types


def _several(types: Iterable[type[CustomMessage]]) -> tuple[type[CustomMessage], ...]:
    if isinstance(types, type):
        raise TypeError(f"types must be a list of classes: write [{types.__name__}]")
    if isinstance(types, str) or not isinstance(types, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("types", types, "a list of classes")
    return tuple(types)


class _ResultInJson(msgspec.Struct, frozen=True):
    """The result in an `AgentEnd`, without the fields that the event itself has, and without the exception."""

    stop_reason: StopReason
    usage: Usage = msgspec.field(default_factory=Usage)
    cost: Cost = msgspec.field(default_factory=Cost)
    error: str | None = None
    error_kind: ErrorKind | None = None
    value: Any = None
    has_value: bool = False


class _WaitingInJson(_ResultInJson, frozen=True):
    """The result of a run after which calls wait."""

    pending: tuple[PendingCall, ...] = ()


class _ResultWithDelegates(_WaitingInJson, frozen=True):
    """The result of a run with delegates. All results are decoded as this type."""

    delegated_usage: Usage = msgspec.field(default_factory=Usage)
    delegated_cost: Cost = msgspec.field(default_factory=Cost)


class _DelegateInJson(msgspec.Struct, frozen=True, tag_field="type", tag="delegate_event"):
    """The JSON form of `DelegateEvent`."""

    call_id: str
    name: str
    event: msgspec.Raw


class _EndInJson(msgspec.Struct, frozen=True, tag_field="type", tag="agent_end"):
    """The JSON form of `AgentEnd`, which contains messages and `stopped_by` only once.

    The result contains `pending` only if calls wait, and the usage of delegates only if there is any.
    """

    messages: tuple[AgentMessage, ...]
    stopped_by: PolicyStop | None = None
    result: _ResultWithDelegates | None = None


_OTHERS = {AgentEnd: _EndInJson, DelegateEvent: _DelegateInJson}
_AnyInJson: Any = Union[tuple([_OTHERS.get(kind, kind) for kind in get_args(AgentEvent)])]  # noqa: UP007 - made of a list
_FIELDS_OF_MESSAGES = {"agent_start": "prompts", "agent_end": "messages", "messages_injected": "messages"}


def encode_event(event: AgentEvent) -> bytes:
    """Encodes one event, with objects that JSON does not have as their text."""
    if type(event) is AgentEnd:
        result = event.result
        if result is not None:
            has_delegates = result.delegated_usage != Usage() or result.delegated_cost != Cost()
            plain = _WaitingInJson if result.pending else _ResultInJson
            kind = _ResultWithDelegates if has_delegates else plain
            fields = {name: getattr(result, name) for name in kind.__struct_fields__}
            written = cast("_ResultWithDelegates", kind(**fields))
            return as_json(_EndInJson(event.messages, event.stopped_by, written))
    elif type(event) is DelegateEvent:
        return as_json(_DelegateInJson(event.call_id, event.name, msgspec.Raw(encode_event(event.event))))
    return as_json(event)


def decode_event(data: bytes | str, types: Sequence[type[CustomMessage]] = ()) -> AgentEvent:
    """Decodes one event; `types` are the application's own message types. Raises `ValueError`."""
    try:
        return _decoded(data, types)
    except RecursionError as error:
        raise ValueError("not a valid event: it is nested in too many delegates") from error


def _decoded(data: bytes | str, types: Sequence[type[CustomMessage]]) -> AgentEvent:
    document: dict[str, Any] = decode_json(data, dict[str, Any], "event") if types else {}
    name = _FIELDS_OF_MESSAGES.get(str(document.get("type")))
    if name is None or not isinstance(document.get(name), list):
        read = decode_json(data, _AnyInJson, "event")
        if type(read) is _DelegateInJson:
            return DelegateEvent(read.call_id, read.name, _decoded(bytes(read.event), types))
        return _event_of(read)
    messages = [decode_message(msgspec.json.encode(message), types) for message in document[name]]
    event = decode_json(msgspec.json.encode({**document, name: []}), _AnyInJson, "event")
    return _event_of(msgspec.structs.replace(event, **{name: tuple(messages)}))


def _event_of(read: Any) -> AgentEvent:
    if type(read) is not _EndInJson:
        return read
    result = read.result
    if result is None:
        return AgentEnd(read.messages, read.stopped_by)
    fields = {name: getattr(result, name) for name in _ResultWithDelegates.__struct_fields__}
    return AgentEnd(
        read.messages, read.stopped_by, AgentResult(messages=read.messages, stopped_by=read.stopped_by, **fields)
    )


def decode_json(data: bytes | str, kind: Any, noun: str, dec_hook: Callable[[type, Any], Any] | None = None) -> Any:
    """Decodes `data` as a value of `kind`; blocks of unknown types become `Extension`s. Raises `ValueError`."""
    decoder = json_decoder(kind, dec_hook)
    try:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            document = msgspec.json.decode(data)
            if not _wrap_unknown_blocks(document):
                raise
            return decoder.decode(msgspec.json.encode(document))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a valid {noun}: {error}") from error


_BLOCK_TAGS = frozenset({"text", "thinking", "tool_call", "image", "document", "extension"})
_OPAQUE_KEYS = frozenset({"arguments", "details", "data", "schema", "scope", "state", "value"})


def _wrap_unknown_blocks(document: Any) -> bool:
    """Rewrites blocks of unknown types in place, at any depth; returns whether there were any."""
    found = False
    if isinstance(document, list):
        for item in cast("list[Any]", document):
            found = _wrap_unknown_blocks(item) or found
    elif isinstance(document, dict):
        for key, value in cast("dict[str, Any]", document).items():
            if key in _OPAQUE_KEYS:
                continue
            if key == "content" and isinstance(value, list):
                found = _wrap_in_content(cast("list[Any]", value)) or found
            found = _wrap_unknown_blocks(value) or found
    return found


def _wrap_in_content(content: list[Any]) -> bool:
    found = False
    for position, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        fields = cast("dict[str, Any]", block)
        type_name = fields.get("type")
        if isinstance(type_name, str) and (type_name not in _BLOCK_TAGS or not _is_readable(type_name, fields)):
            data = {key: value for key, value in fields.items() if key != "type"}
            content[position] = {"type": "extension", "type_name": type_name, "data": data}
            found = True
    return found


def _is_readable(type_name: str, fields: dict[str, Any]) -> bool:
    """Whether this version can read the block: a newer version may write documents that are not PDFs."""
    if type_name != "document":
        return True
    try:
        json_decoder(Document).decode(msgspec.json.encode(fields))
    except msgspec.ValidationError:
        return False
    return True
