"""Masks values: messages, results, events, and the entries of sessions.

Owns which fields of which type hold text: `TEXTS`. Ids, the data of images and documents, and the signature of
unchanged thinking are never masked, since records and providers need them. How a text is masked is in `redaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from operator import is_
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct, structs
from msgspec.json import decode, encode

from .. import entries, events, stream, types
from ..approval import PendingCall
from ..encoding.codec import decode_message, encode_message
from ..errors import PolicyStop
from ..values.nesting import kept_shallow

V = TypeVar("V")

TEXTS: Mapping[type, tuple[str, ...]] = {
    # content
    types.ToolCall: ("name", "arguments", "partial_json"),
    types.Extension: ("data",),
    types.Base64Source: (),
    types.Usage: (),
    types.Cost: (),
    types.ModelSpec: (),
    # messages and results
    types.UserMessage: ("content",),
    types.AssistantMessage: ("content", "error_message"),
    types.ToolResultMessage: ("content", "details", "tool_name"),
    types.AgentToolResult: ("content", "details"),
    types.AgentResult: ("messages", "error", "stopped_by", "value", "pending"),
    PolicyStop: ("policy", "reason"),
    PendingCall: ("name", "arguments", "reason", "scope", "delegates"),
    # streamed replies
    stream.TextDelta: ("delta",),
    stream.ThinkingDelta: ("delta",),
    stream.ToolCallDelta: ("delta",),
    # events
    events.AgentStart: ("schema", "prompts"),
    events.TurnStart: (),
    events.TurnResumed: ("message", "pending"),
    events.MessagesInjected: ("messages",),
    events.ContextCompacted: (),
    events.UsageAdded: (),
    events.MessageStart: (),
    events.MessageUpdate: ("delta",),
    events.MessageRetry: ("error",),
    events.ModelFallback: ("error",),
    events.MessageEnd: ("message",),
    events.ToolApprovalRequested: ("name", "arguments", "scope"),
    events.ToolApprovalResolved: ("name", "reason", "note"),
    events.ToolCallDeferred: ("name", "arguments", "reason"),
    events.ToolExecutionStart: ("name", "arguments", "scope"),
    events.ToolExecutionUpdate: ("name", "update"),
    events.ToolExecutionRetry: ("name", "error"),
    events.ToolExecutionEnd: ("name", "result", "reason", "arguments"),
    events.DelegateEvent: ("name", "event"),
    events.TaskStarted: ("command",),
    events.TaskEnded: (),
    events.TurnEnd: ("message", "tool_results"),
    events.AgentEnd: ("messages", "stopped_by", "result"),
    # entries of sessions; the name of a call that started is that of a tool, and the rest of its facts is masked before
    entries.MessageAdded: ("message", "facts"),
    entries.MessageReplaced: ("message",),
    entries.ToolStarted: ("arguments", "facts"),
    entries.CallFacts: ("scope", "arguments"),
    entries.ContextReplaced: ("parts",),
    entries.HistoryCut: (),
    entries.ModelChanged: (),
    entries.StateChanged: ("state",),
    entries.RunStarted: ("schema",),
    entries.RunEnded: ("error", "stopped_by", "value"),
}
"""The fields with text, data, or values that have them. Of any other type, such as an application's own message, all
fields count."""


class Masks(Protocol):
    """What masks a text. A `Redactor` does."""

    def redact(self, text: str, /) -> str: ...
    def redact_texts(self, texts: Sequence[str], /) -> list[str]:
        """Masks texts that follow each other directly."""
        ...

    def redact_value(self, value: V, /) -> V:
        """Masks JSON data; returns the same object if nothing changes."""
        ...

    def redact_address(self, address: str, /) -> str:
        """Masks the address of an image or a document."""
        ...


def masked(value: V, masks: Masks, fields: tuple[str, ...] | None = None) -> V:
    """Returns the value with its texts masked, or the same object if nothing changes.

    `fields` are those that hold text, if the type is not in the table and has others.
    """
    own = None if fields else _OWN_WAYS.get(type(value))
    if own is not None:
        return own(value, masks)
    names = fields or TEXTS.get(type(value))
    if names is None:
        names = cast("Struct", value).__struct_fields__
    changed: dict[str, Any] = {}
    for name in names:
        old = getattr(value, name)
        new = _field(old, masks)
        if new is not old:
            changed[name] = new
    return _replaced(value, changed) if changed else value


def _field(field: object, masks: Masks) -> Any:
    """Masks a text, a value, or data. Data of an application that is nested too deep becomes text."""
    own = _OWN_WAYS.get(type(field))
    if own is not None:
        return own(field, masks)
    if field is None or isinstance(field, (int, float)):
        return field
    if isinstance(field, str):
        return _masked_string(field, masks)
    if type(field) in TEXTS or isinstance(field, Struct):
        return masked(field, masks)
    return masks.redact_value(kept_shallow(field))


def _several(items: tuple[Any, ...], masks: Masks) -> tuple[Any, ...]:
    """Masks the items of a tuple, the texts of blocks as one: a secret may begin in one and end in another."""
    if len(items) == 1:
        new = _field(items[0], masks)
        return items if new is items[0] else (new,)
    texts = [item.text for item in items if type(item) is types.Text]
    shown = iter(masks.redact_texts(texts) if len(texts) > 1 else map(masks.redact, texts))
    new = [_with_text(item, next(shown)) if type(item) is types.Text else _field(item, masks) for item in items]
    return items if all(map(is_, new, items)) else tuple(new)


def _with_text(block: types.Text, text: str) -> types.Text:
    return block if text == block.text else types.Text(text)


def _replaced(value: Any, fields: dict[str, Any]) -> Any:
    try:
        return structs.replace(value, **fields)
    except Exception:  # an application's class refuses masked values
        made = copy(value)
        for name, new in fields.items():
            structs.force_setattr(made, name, new)
        return made


# -- types that are masked in their own ways -----------------------------------------------------------------


def _masked_string(text: str, masks: Masks) -> str:
    shown = masks.redact(text)
    return text if shown == text else shown


def _masked_text(block: types.Text, masks: Masks) -> types.Text:
    return _with_text(block, masks.redact(block.text))


def _masked_thinking(block: types.Thinking, masks: Masks) -> types.Thinking:
    thinking = masks.redact(block.thinking)
    # A provider rejects a signature if the text differs from what it signed.
    return block if thinking == block.thinking else types.Thinking(thinking)


def _masked_image(block: types.Image, masks: Masks) -> types.Image | types.Text:
    place = _masked_place(block.source, masks)
    return block if place is None else types.Text(f"[image {place}]")


def _masked_document(block: types.Document, masks: Masks) -> types.Document | types.Text:
    place = _masked_place(block.source, masks)
    if place is not None:
        return types.Text(f"[document {place}]")
    name = masks.redact(block.name)
    return block if name == block.name else types.Document(block.source, name)


def _masked_place(source: types.Source, masks: Masks) -> str | None:
    """Returns the masked address if it holds a secret, else `None`: a masked address would not work."""
    if type(source) is types.UrlSource and source.url[:5].lower() != "data:":
        address = masks.redact_address(source.url)
        return None if address == source.url else f"at {address}"
    if type(source) is types.FileSource:
        path = masks.redact_address(source.path)
        return None if path == source.path else f"in the file {path}"
    return None


def _masked_result(message: types.ToolResultMessage, masks: Masks) -> types.ToolResultMessage:
    details: Any = message.details
    if message.outcome is not types.ToolOutcome.PENDING or not isinstance(details, dict):
        return masked(message, masks, TEXTS[types.ToolResultMessage])
    shown = _masked_pending(cast("dict[str, Any]", details), masks)
    rest = masked(message, masks, ("content", "tool_name"))
    return rest if shown is details else structs.replace(rest, details=shown)


def _masked_pending(details: dict[str, Any], masks: Masks) -> dict[str, Any]:
    """Masks the details of a waiting call. If that changes them, sets `is_masked`: masked arguments must never run."""
    inner = details.get("messages")
    if isinstance(inner, (list, tuple)):
        # The delegate's messages are masked as messages, so that each waiting call among them gets its own `is_masked`.
        try:
            read = [decode_message(encode(message)) for message in cast("list[Any]", inner)]
            kept = [decode(encode_message(masked(message, masks))) for message in read]
        except (TypeError, ValueError, RecursionError):
            pass  # they are damaged, and are masked as plain data
        else:
            rest = _masked_pending({name: value for name, value in details.items() if name != "messages"}, masks)
            return details if kept == inner and rest == {**rest} else {**rest, "messages": kept}
    shown = masks.redact_value(details)
    return details if shown is details else {**shown, "is_masked": True}


_OWN_WAYS: Mapping[type, Callable[[Any, Masks], Any]] = {
    str: _masked_string,
    tuple: _several,
    types.Text: _masked_text,
    types.Thinking: _masked_thinking,
    types.Image: _masked_image,
    types.Document: _masked_document,
    types.ToolResultMessage: _masked_result,
}
