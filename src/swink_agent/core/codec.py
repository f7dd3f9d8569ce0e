"""Messages and events as JSON, and back, also what a newer version wrote.

Owns that, and the wrapping of content blocks whose type this version does not know. Which values there are is in
`types` and `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Union, cast

import msgspec

from .events import AgentEvent
from .types import AgentMessage, AssistantMessage, CustomMessage, ToolResultMessage, UserMessage

__all__ = ["checked_types", "decode_event", "decode_json", "decode_message", "encode_event", "encode_message"]

_OURS = (UserMessage, AssistantMessage, ToolResultMessage)


def encode_message(message: AgentMessage) -> bytes:
    """One message as JSON."""
    return msgspec.json.encode(message)


def decode_message(data: bytes | str, types: Sequence[type[CustomMessage]] = ()) -> AgentMessage:
    """The message in `data`; `types` are the application's own that may occur. Raises `ValueError`."""
    return decode_json(data, _message_type(_several(types)), "message")


@lru_cache(maxsize=64)
def _message_type(types: tuple[type[CustomMessage], ...]) -> Any:
    return Union[(*_OURS, *checked_types(types))]


def checked_types(types: Iterable[type[CustomMessage]]) -> tuple[type[CustomMessage], ...]:
    """The types of an application's own messages. Raises `TypeError` if one of them could be read for another."""
    types = _several(types)
    owners: dict[Any, type] = {kind.__struct_config__.tag: kind for kind in _OURS}
    for kind in types:
        if not isinstance(kind, type) or not issubclass(kind, CustomMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"types are classes on CustomMessage, and {kind!r} is none")
        tag = kind.__struct_config__.tag
        owner = owners.setdefault(tag, kind)
        if owner is not kind:
            raise TypeError(
                f"{kind.__name__} and {owner.__name__} have the same tag, {tag!r}: give one of them another"
            )
    return types


def _several(types: Iterable[type[CustomMessage]]) -> tuple[type[CustomMessage], ...]:
    if isinstance(types, type):
        raise TypeError(f"types are a list of classes, [{types.__name__}], not one")
    return tuple(types)


def encode_event(event: AgentEvent) -> bytes:
    """One event as JSON."""
    return msgspec.json.encode(event)


def decode_event(data: bytes | str, types: Sequence[type[CustomMessage]] = ()) -> AgentEvent:
    """The event in `data`; `types` are the application's messages that may occur. Raises `ValueError`."""
    document: dict[str, Any] = decode_json(data, dict[str, Any], "event") if types else {}
    if document.get("type") not in ("agent_end", "messages_injected") or not isinstance(document.get("messages"), list):
        return decode_json(data, AgentEvent, "event")
    messages = [decode_message(msgspec.json.encode(message), types) for message in document["messages"]]
    event = decode_json(msgspec.json.encode({**document, "messages": []}), AgentEvent, "event")
    return msgspec.structs.replace(event, messages=tuple(messages))


def decode_json(data: bytes | str, kind: Any, noun: str, dec_hook: Callable[[type, Any], Any] | None = None) -> Any:
    """`data` as a value of `kind`; blocks of unknown type become `Extension`s. Raises `ValueError`."""
    try:
        try:
            return msgspec.json.decode(data, type=kind, dec_hook=dec_hook)
        except msgspec.ValidationError:
            document = msgspec.json.decode(data)
            if not _wrap_unknown_blocks(document):
                raise
            return msgspec.json.decode(msgspec.json.encode(document), type=kind, dec_hook=dec_hook)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a valid {noun}: {error}") from error


_BLOCK_TAGS = frozenset({"text", "thinking", "tool_call", "image", "extension"})
_OPAQUE_KEYS = frozenset({"arguments", "details", "data", "state"})


def _wrap_unknown_blocks(document: Any) -> bool:
    """Rewrites blocks of unknown type in place, wherever content stands; says whether there was one."""
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
        if isinstance(type_name, str) and type_name not in _BLOCK_TAGS:
            data = {key: value for key, value in fields.items() if key != "type"}
            content[position] = {"type": "extension", "type_name": type_name, "data": data}
            found = True
    return found
