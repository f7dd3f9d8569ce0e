"""Keeping secrets out of a session's file.

What people, models and tools said is masked; what records and providers refer to is not: ids, names, the data of
pictures, and the signature of a thought that was not changed.

Owns what of an entry is masked. What a secret is, the agent's redactor knows.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import structs

from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.core.secrets.redaction import SHORTEST_TEXT, Redactor
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Extension,
    FileImage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    UserMessage,
)
from swink_agent.core.values.nesting import DEEPEST, is_too_deep, kept_shallow

from .records import RecordEntry, SessionStarted, Summary, UnknownMessage

__all__ = ["masked", "may_need_masking"]

_NOTHING_SAID = frozenset({HistoryCut, ModelChanged, RunStarted})
_NO_TEXT = frozenset({int, float, bool, type(None)})

# Types are compared by `type(x) is T`, as in `core.types`, and the most frequent come first: this is done for every
# record of every run.


def may_need_masking(entry: RecordEntry) -> bool:
    """Whether there is any text in the entry that a redactor could find something in: a glance, which errs on that
    side. Calls without text and their starts, which are half of what a busy agent records, are known by it."""
    if type(entry) is MessageAdded:
        message = entry.message
        if type(message) is not AssistantMessage or message.error_message is not None:
            return True
        for block in message.content:
            if type(block) is not ToolCall or block.partial_json is not None or _hold_text(block.arguments):
                return True
        return False
    if type(entry) is ToolStarted:
        return entry.arguments is not None
    return type(entry) not in _NOTHING_SAID


def _hold_text(arguments: dict[str, Any]) -> bool:
    for name, value in arguments.items():
        if type(value) not in _NO_TEXT or type(name) is not str or len(name) >= SHORTEST_TEXT:
            return True
    return False


def masked(entry: RecordEntry, redactor: Redactor) -> RecordEntry:
    """The entry without the secrets that the redactor knows; the same object if there are none."""
    kind = type(entry)
    if isinstance(entry, (MessageAdded, MessageReplaced)):
        message = _message(entry.message, redactor)
        return entry if message is entry.message else structs.replace(entry, message=message)
    if isinstance(entry, ToolStarted):
        return entry if entry.arguments is None else _with(entry, arguments=_data(entry.arguments, redactor))
    if kind in _NOTHING_SAID:
        return entry
    if isinstance(entry, StateChanged):
        return _with(entry, state=redactor.redact_value(entry.state))
    if isinstance(entry, SessionStarted):
        return _with(entry, title=redactor.redact(entry.title), metadata=redactor.redact_value(entry.metadata))
    if isinstance(entry, Summary):
        return _with(entry, title=redactor.redact(entry.title), first=redactor.redact(entry.first))
    if isinstance(entry, ContextReplaced):
        parts = [part if isinstance(part, int) else _message(part, redactor) for part in entry.parts]
        return _with(entry, parts=tuple(parts))
    return redactor.redact_value(entry)


def _message(message: AgentMessage, redactor: Redactor) -> AgentMessage:
    if type(message) is AssistantMessage:
        content = _blocks(message.content, redactor)
        error = message.error_message
        if error is not None:
            return _with(message, content=content, error_message=redactor.redact(error))
        return message if content is message.content else structs.replace(message, content=content)
    if type(message) is UserMessage:
        content = _blocks(message.content, redactor)
        return message if content is message.content else structs.replace(message, content=content)
    if type(message) is ToolResultMessage:
        details = message.details if message.details is None else _data(message.details, redactor)
        return _with(message, content=_blocks(message.content, redactor), details=details)
    if is_too_deep(message, DEEPEST + 1):
        return _in_parts(message, redactor)
    return redactor.redact_message(message)


def _in_parts(message: AgentMessage, redactor: Redactor) -> UnknownMessage:
    """An application's own message, of which not all can be written as it is: its class may take nothing else for it,
    so that it is written as one is whose class is not known, and read as its own again if that can be done."""
    config = message.__struct_config__
    names = zip(message.__struct_encode_fields__, message.__struct_fields__, strict=True)
    fields = {name: kept_shallow(getattr(message, attribute)) for name, attribute in names}
    return UnknownMessage(redactor.redact_value({str(config.tag_field): config.tag, **fields}))


def _data(data: Any, redactor: Redactor) -> Any:
    """What a tool or an application gave, masked, and with a text for what is nested too deep to be written."""
    return redactor.redact_value(kept_shallow(data))


def _blocks(content: tuple[Any, ...], redactor: Redactor) -> tuple[Any, ...]:
    blocks = [_block(block, redactor) for block in content]
    for new, old in zip(blocks, content, strict=True):
        if new is not old:
            return tuple(blocks)
    return content


def _block(block: Text | Thinking | ToolCall | Image | Extension, redactor: Redactor) -> Any:
    if type(block) is Text:
        text = redactor.redact(block.text)
        return block if text == block.text else Text(text)
    if type(block) is ToolCall:
        arguments = redactor.redact_value(block.arguments) if _hold_text(block.arguments) else block.arguments
        if block.partial_json is not None:
            return _with(block, arguments=arguments, partial_json=redactor.redact(block.partial_json))
        return block if arguments == block.arguments else structs.replace(block, arguments=arguments)
    if type(block) is Thinking:
        thinking = redactor.redact(block.thinking)
        # A provider refuses a signature under another text than it signed.
        return block if thinking == block.thinking else Thinking(thinking)
    if type(block) is Extension:
        return _with(block, data=_data(block.data, redactor))
    return _picture(block, redactor) if type(block) is Image else block


def _picture(block: Image, redactor: Redactor) -> Image | Text:
    """The picture, unless its address holds a secret: under another address it is none, and it is named instead."""
    source = block.source
    if type(source) is UrlImage:
        address = redactor.redact(source.url)
        return block if address == source.url else Text(f"[image at {address}]")
    if type(source) is FileImage:
        path = redactor.redact(str(source.path))
        return block if path == str(source.path) else Text(f"[image in the file {path}]")
    return block


def _with(value: Any, **fields: Any) -> Any:
    """The value with other fields; the same object if they are no others."""
    for name, new in fields.items():
        old = getattr(value, name)
        if new is not old and cast("object", new) != old:
            return structs.replace(value, **fields)
    return value
