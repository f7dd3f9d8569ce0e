"""Masks messages before they are stored.

The texts and data of people, models and tools are masked, the names of called tools included. Ids, the data of images
and documents, and the signature of unchanged thinking are not, since records and providers need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs
from msgspec.json import decode, encode

from ..encoding.codec import decode_message, encode_message
from ..types import (
    AgentMessage,
    AssistantMessage,
    Document,
    Extension,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
)
from ..values.nesting import kept_shallow
from .redaction import SHORTEST_TEXT, Redactor, differ, masked_document, masked_place

_NO_TEXT = frozenset({int, float, bool, type(None)})


def masked_message(message: AgentMessage, redactor: Redactor) -> AgentMessage:
    """Returns the message with its secrets masked, or the same object if it has none."""
    if type(message) is AssistantMessage:
        content = _blocks(message.content, redactor)
        error = message.error_message
        if error is not None:
            return with_fields(message, content=content, error_message=redactor.redact(error))
        return message if content is message.content else structs.replace(message, content=content)
    if type(message) is UserMessage:
        content = _blocks(message.content, redactor)
        return message if content is message.content else structs.replace(message, content=content)
    if type(message) is ToolResultMessage:
        details = message.details
        if message.outcome is ToolOutcome.PENDING and isinstance(details, dict):
            details = _masked_pending(cast("dict[str, Any]", details), redactor)
        elif details is not None:
            details = masked_data(details, redactor)
        name = redactor.redact(message.tool_name)
        return with_fields(message, content=_blocks(message.content, redactor), details=details, tool_name=name)
    return redactor.redact_message(message)


def masked_texts(texts: Sequence[str], redactor: Redactor) -> list[str]:
    """Masks texts that follow each other directly, including a secret that begins in one and ends in another."""
    if len(texts) == 1:
        return [redactor.redact(texts[0])]
    across = _across(texts, redactor)
    if not across:
        return [redactor.redact(text) for text in texts]
    shown: list[str] = []
    start = 0
    for text in texts:
        end, at, pieces = start + len(text), start, list[str]()
        for first, last, mask in across:
            if first >= end or last <= start:
                continue
            if first > at:
                pieces.append(redactor.redact(text[at - start : first - start]))
            if first >= start:
                pieces.append(mask)
            at = min(last, end)
        pieces.append(redactor.redact(text[at - start :]))
        shown.append("".join(pieces))
        start = end
    return shown


def _across(texts: Sequence[str], redactor: Redactor) -> list[tuple[int, int, str]]:
    """Finds secrets that span several of the texts: their positions in the joined text, and their placeholders."""
    seams: list[int] = []
    for text in texts[:-1]:
        seams.append(len(text) + (seams[-1] if seams else 0))
    found = redactor.mask("".join(texts)).places()
    return [(start, end, mask) for start, end, mask in found if any(start < seam < end for seam in seams)]


def hold_text(arguments: dict[str, Any]) -> bool:
    """Whether any text in the arguments of a call is long enough to hold a secret."""
    for name, value in arguments.items():
        if type(value) not in _NO_TEXT or type(name) is not str or len(name) >= SHORTEST_TEXT:
            return True
    return False


def masked_data(data: Any, redactor: Redactor) -> Any:
    """Masks the data of a tool or an application, and replaces parts that are nested too deep by text."""
    return redactor.redact_value(kept_shallow(data))


def _masked_pending(details: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Masks the details of a waiting call. If that changes them, sets `is_masked`: masked arguments must never run."""
    messages = details.get("messages")
    if isinstance(messages, (list, tuple)):
        # The delegate's messages are masked as messages, so that each waiting call among them gets its own `is_masked`.
        try:
            read = [decode_message(encode(message)) for message in cast("list[Any]", messages)]
            kept = [decode(encode_message(masked_message(message, redactor))) for message in read]
        except (TypeError, ValueError, RecursionError):
            pass  # they are damaged, and are masked as plain data
        else:
            rest = _masked_pending({name: value for name, value in details.items() if name != "messages"}, redactor)
            return {**rest, "messages": kept}
    masked = masked_data(details, redactor)
    return {**masked, "is_masked": True} if masked != details else masked


def _blocks(content: tuple[Any, ...], redactor: Redactor) -> tuple[Any, ...]:
    blocks = [_block(block, redactor) for block in content] if len(content) == 1 else _several(content, redactor)
    for new, old in zip(blocks, content, strict=True):
        if new is not old:
            return tuple(blocks)
    return content


def _several(content: tuple[Any, ...], redactor: Redactor) -> list[Any]:
    """Masks several blocks, with their texts as one, since a secret may begin in one and end in another."""
    texts = iter(masked_texts([block.text for block in content if type(block) is Text], redactor))
    blocks: list[Any] = []
    for block in content:
        if type(block) is not Text:
            blocks.append(_block(block, redactor))
        else:
            text = next(texts)
            blocks.append(block if text == block.text else Text(text))
    return blocks


def _block(block: Text | Thinking | ToolCall | Image | Document | Extension, redactor: Redactor) -> Any:
    if type(block) is Text:
        text = redactor.redact(block.text)
        return block if text == block.text else Text(text)
    if type(block) is ToolCall:
        arguments = redactor.redact_value(block.arguments) if hold_text(block.arguments) else block.arguments
        partial = block.partial_json if block.partial_json is None else redactor.redact(block.partial_json)
        return with_fields(block, name=redactor.redact(block.name), arguments=arguments, partial_json=partial)
    if type(block) is Thinking:
        thinking = redactor.redact(block.thinking)
        # A provider rejects a signature if the text differs from what it signed.
        return block if thinking == block.thinking else Thinking(thinking)
    if type(block) is Extension:
        return with_fields(block, data=masked_data(block.data, redactor))
    if type(block) is Image:
        place = masked_place(block.source, redactor.redact)
        return block if place is None else Text(f"[image {place}]")
    return masked_document(block, redactor.redact) if type(block) is Document else block


def with_fields(value: Any, **fields: Any) -> Any:
    """Returns the value with changed fields, or the same object if nothing changes."""
    for name, new in fields.items():
        old = getattr(value, name)
        if differ(new, old):
            return structs.replace(value, **fields)
    return value
