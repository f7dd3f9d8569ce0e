"""The lines of a session's file: one record each, with its number, its time and a checksum.

    {"seq":12,"at":1794764730123,"type":"message", ... ,"crc":"0a1b2c3d"}

`crc` is the CRC-32 of all bytes of the line before `,"crc":`. A record holds an entry of `core.journal`, or one
of the few kinds that only a file needs, which are defined here.

Owns the kinds and the encoding of lines. `reading` finds lines in a file, damaged or not; `decoding` decodes them,
also those of other versions; `fold` builds the history, and `masking` removes secrets.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from swink_agent.core.journal import JournalEntry
from swink_agent.core.types import CustomMessage
from swink_agent.core.values.data import plain_json
from swink_agent.core.values.value import Value

VERSION = 1
"""The version of the format. It grows only if an older reader would misread a new file."""


class SessionStarted(Value, frozen=True, kw_only=True, tag="session"):
    """The first line, which describes the session."""

    id: str
    version: int = VERSION
    created: int = 0
    cwd: str = ""
    title: str = ""
    metadata: dict[str, Any] = {}
    parent: str | None = None


class TitleChanged(Value, frozen=True, tag="title"):
    """The session was renamed."""

    title: str


class LabelAdded(Value, frozen=True, tag="label"):
    """A name for a place in the history: after the first `position` messages."""

    text: str
    position: int


class NoteAdded(Value, frozen=True, tag="note"):
    """An entry that the application added."""

    kind: str
    data: Any = None


class Summary(Value, frozen=True, tag="summary"):
    """Totals of the records before it, in logs of an earlier version. Readers ignore it."""


class UnknownRecord(Value, frozen=True):
    """A record of a kind that this version does not know."""

    type_name: str
    data: dict[str, Any] = {}


class UnknownMessage(CustomMessage, tag="unknown"):
    """A message of a type that the store was not given. It keeps its place and its fields; models do not see it."""

    data: dict[str, Any] = {}


RecordEntry: TypeAlias = JournalEntry | SessionStarted | TitleChanged | LabelAdded | NoteAdded | Summary | UnknownRecord


class SessionRecord(Value, frozen=True, gc=False):
    """One line of a session: its number, when it was recorded (milliseconds), and its entry."""

    # Not tracked by the garbage collector, as entries are not: a long session has many.

    number: int
    at: int
    entry: RecordEntry


# -- encoding ------------------------------------------------------------------------------------------------


class _Stamp(msgspec.Struct, gc=False):
    """The start of every line."""

    seq: int
    at: int


def encode_line(number: int, at: int, entry: RecordEntry) -> bytes:
    """The record as a line, with its newline. Values that are not JSON are written as text."""
    line = bytearray()
    fill_line(line, number, at, entry)
    return bytes(line)


def fill_line(line: bytearray, number: int, at: int, entry: RecordEntry) -> None:
    """Replaces the content of `line` with the record's line, so that a writer can reuse one buffer."""
    try:
        _fill(line, number, at, entry)
    except (TypeError, ValueError, OverflowError, UnicodeError):
        _fill(line, number, at, plain_json(entry))
    line.pop()  # the checksum comes before the closing brace
    line += b',"crc":"%08x"}\n' % crc32(line)


def _fill(line: bytearray, number: int, at: int, entry: Any) -> None:
    """Writes the stamp and the entry as one object: the entry begins where the stamp would end."""
    _encoder.encode_into(_Stamp(number, at), line)
    seam = len(line) - 1
    _encoder.encode_into(entry, line, seam)
    line[seam] = ord(",")


_encoder = msgspec.json.Encoder(enc_hook=str)
