"""Decodes the lines of a session's file, including lines that another version wrote.

Lines of this version go through one typed decoder. All others are decoded field by field: fields that this version does
not understand are left out and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args

import msgspec
from msgspec import structs

from swink_agent.core.encoding.codec import decode_message
from swink_agent.core.journal import ContextReplaced, JournalEntry, MessageAdded, MessageReplaced
from swink_agent.core.types import AgentMessage, CustomMessage
from swink_agent.core.values.decoders import converted, json_decoder

from ..sessions.info import Problem
from .records import (
    LabelAdded,
    NoteAdded,
    RecordEntry,
    SessionStarted,
    Summary,
    TitleChanged,
    UnknownMessage,
    UnknownRecord,
)

_ANY: Any = JournalEntry | SessionStarted | TitleChanged | LabelAdded | NoteAdded | Summary
_KINDS: dict[str, type] = {str(kind.__struct_config__.tag): kind for kind in get_args(_ANY)}
_UNDECODED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_ENVELOPE = ("seq", "at", "crc", "type")
_STAND_IN: dict[str, Any] = {"role": "user", "content": []}
_WHERE = re.compile(r"at `\$((?:\.\w+|\[\d+\])+)`")
_MOST_REPAIRS = 16


class EntryDecoder:
    """Decodes lines. `types` are the application's message types that may occur in them."""

    def __init__(self, types: Sequence[type[CustomMessage]] = ()) -> None:
        self._types = tuple(types)
        # For lines of this version. It raises one of `_UNDECODED` for lines that it does not understand.
        self._decode_quickly: Callable[[bytes], RecordEntry] = json_decoder(_ANY).decode
        self.unknown: list[Problem] = []
        """The problems found so far."""

    def _miss(self, words: str, *, is_damage: bool = True) -> None:
        self.unknown.append(Problem(words, is_damage))

    def decode(self, line: bytes, number: int) -> RecordEntry:
        """Returns the line's entry, or an `UnknownRecord` if this version cannot decode it."""
        try:
            return self._decode_quickly(line)
        except _UNDECODED:
            return self._decode_slowly(line, number)

    def _decode_slowly(self, line: bytes, number: int) -> RecordEntry:
        """Decodes a line that another version wrote, or that holds messages of unknown types."""
        try:
            document = msgspec.json.decode(line)
        except _UNDECODED:
            document = None
        if not isinstance(document, dict):
            self._miss(f"record {number} is not a JSON object and is skipped")
            return UnknownRecord("")
        fields = cast("dict[str, Any]", document)
        type_name = fields.get("type")
        kind = _KINDS.get(type_name) if isinstance(type_name, str) else None
        if kind is None:
            self._miss(f"record {number} is of a kind that this version does not know, {type_name!r}")
            return _unknown(fields)
        messages = self._take_messages(fields, number)
        if fields.get("source") not in _SOURCES and kind is MessageAdded:
            fields["source"] = "given"
        try:
            entry = self._lenient(fields, kind, number)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError):
            self._miss(f"record {number}, a {type_name}, is not understood by this version")
            return _unknown(fields)
        if isinstance(entry, (MessageAdded, MessageReplaced)) and messages:
            return structs.replace(entry, message=messages[0])
        if isinstance(entry, ContextReplaced):
            made = iter(messages)
            parts = [part if isinstance(part, int) else next(made) for part in entry.parts]
            return structs.replace(entry, parts=tuple(parts))
        return entry

    def _take_messages(self, fields: dict[str, Any], number: int) -> list[AgentMessage]:
        """Returns the messages in a record, and leaves stand-ins in their places."""
        taken: list[AgentMessage] = []
        if isinstance(fields.get("message"), dict):
            taken.append(self._message(fields["message"], number))
            fields["message"] = _STAND_IN
        parts = fields.get("parts")
        if isinstance(parts, list):
            items = cast("list[Any]", parts)
            for position, part in enumerate(items):
                if isinstance(part, dict):
                    taken.append(self._message(cast("dict[str, Any]", part), number))
                    items[position] = _STAND_IN
        return taken

    def _message(self, fields: dict[str, Any], number: int) -> AgentMessage:
        original = fields
        if fields.get("role") == "unknown" and isinstance(fields.get("data"), dict):
            fields = original = fields["data"]  # written by a program that did not know its type
        said: list[str] = []
        for _ in range(_MOST_REPAIRS):
            try:
                message = decode_message(msgspec.json.encode(fields), self._types)
            except ValueError as error:
                left_out = _without(fields, str(error))
                if left_out is None:
                    break
                fields, where = left_out
                said.append(f"record {number}: `{where}` of its message is not understood by this version")
            else:
                for words in said:
                    self._miss(words)
                return message
        role = original.get("role")
        words = f"record {number} holds a message of the role {role!r}, whose type or content is not known"
        self._miss(words, is_damage=role in _OUR_ROLES)
        return UnknownMessage(original)

    def _lenient(self, fields: dict[str, Any], kind: type, number: int) -> RecordEntry:
        for _ in range(_MOST_REPAIRS):
            try:
                return cast("RecordEntry", converted(fields, kind))
            except msgspec.ValidationError as error:
                left_out = _without(fields, str(error))
                if left_out is None:
                    raise
                fields, where = left_out
                self._miss(f"record {number}: `{where}` is not understood by this version")
        raise msgspec.ValidationError("too much of it is not understood")


_OUR_ROLES = ("user", "assistant", "tool_result")
"""The roles of the library's own messages."""
_SOURCES = ("given", "prompt", "steering", "follow_up", "policy", "reply", "result")  # compared, so of any type


def _unknown(fields: dict[str, Any]) -> UnknownRecord:
    data = {name: value for name, value in fields.items() if name not in _ENVELOPE}
    return UnknownRecord(str(fields.get("type") or ""), data)


def _without(fields: dict[str, Any], error: str) -> tuple[dict[str, Any], str] | None:
    """Returns a copy without the field that the error names, and the field's path; `None` if it names no field."""
    found = _WHERE.search(error)
    if found is None:
        return None
    where = found[1]
    copy = msgspec.json.decode(msgspec.json.encode(fields))
    steps = [int(step[1:-1]) if step[0] == "[" else step[1:] for step in re.findall(r"\.\w+|\[\d+\]", where)]
    place: Any = copy
    try:
        for step in steps[:-1]:
            place = place[step]
        if not isinstance(steps[-1], str):
            return None  # an item of a list is content, which is never left out
        del place[steps[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return copy, where.lstrip(".")
