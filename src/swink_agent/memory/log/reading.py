"""Finds the records in the bytes of a session's file, even if the file is damaged.

A line with a correct checksum is a record. A line with a wrong one is searched for records: a lost newline joins two.
All other bytes are damage. It is reported and skipped, and only the records that it hit are lost. Nothing here changes
a file.

Owns finding and ordering the records. `decoding` decodes them, and `fold` adds them up.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swink_agent.core.types import CustomMessage

from ..sessions.info import Problem
from .decoding import EntryDecoder
from .records import VERSION, SessionRecord, SessionStarted

_HEAD = re.compile(rb'\{"seq":(\d{1,18}),"at":(\d{1,18}),')
_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_SUFFIX = len(b',"crc":"00000000"}')
_BEFORE_A_VALUE, _BEHIND_A_VALUE = frozenset({b":", b",", b"["}), frozenset({b",", b"}", b"]"})
"""The bytes before and after an object that is a value inside another object."""
_MOST_LOOKS = 16
"""The search for records in a damaged line reads at most this multiple of its length, even if the line is hostile."""


class ByteRange(NamedTuple):
    """Some bytes of the file, from `start` up to `end`."""

    start: int
    end: int


class ParsedFile(NamedTuple):
    """The contents of a file."""

    records: list[SessionRecord]
    """In the order of their numbers, each number once."""
    problems: list[Problem]
    damaged: list[ByteRange]
    """The ranges without a record."""
    ends_with_newline: bool

    @property
    def start(self) -> SessionStarted | None:
        """The session's metadata, if the first record has them."""
        for record in self.records[:1]:
            if isinstance(record.entry, SessionStarted):
                return record.entry
        return None


def read_records(data: bytes, types: Sequence[type[CustomMessage]] = (), *, is_whole: bool = True) -> ParsedFile:
    """Reads all records in the bytes. With `is_whole=False` they are the end of a file, from the start of a line."""
    decoder = EntryDecoder(types)
    found, damaged = _find_records(data, decoder)
    records, disorder = _in_order(found, is_whole=is_whole)
    problems = [*map(Problem, _problems_of(data, damaged)), *map(Problem, disorder)]
    problems += decoder.unknown
    reading = ParsedFile(records, problems, damaged, data.endswith(b"\n"))
    if is_whole and records:
        _check_start(reading)
    return reading


def _find_records(data: bytes, decoder: EntryDecoder) -> tuple[list[SessionRecord], list[ByteRange]]:
    """Looks for records line by line. Returns them in the order of the file, and the ranges without any."""
    records: list[SessionRecord] = []
    damaged: list[ByteRange] = []
    at = 0
    for line in data.split(b"\n"):
        head = _HEAD.match(line)
        if head is not None and line.endswith(b',"crc":"%08x"}' % zlib.crc32(line[:-_SUFFIX])):
            records.append(_record(line, head, decoder))
        elif line or at < len(data):
            spans = _salvaged(line)
            records += [_record(part, _HEAD.match(part), decoder) for part in _parts(line, spans)]
            damaged += _gaps(line, at, spans)
        at += len(line) + 1
    return records, _joined(damaged)


def _record(line: bytes, head: re.Match[bytes] | None, decoder: EntryDecoder) -> SessionRecord:
    assert head is not None, "a salvaged range begins like a record"
    number = int(head[1])
    return SessionRecord(number, int(head[2]), decoder.decode(line, number))


def _parts(line: bytes, spans: Sequence[ByteRange]) -> list[bytes]:
    return [line[span.start : span.end] for span in spans]


def whole_lines(data: bytes) -> list[bytes]:
    """The lines of a file's records, without the damage."""
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        lines += _parts(line, _salvaged(line))
    return lines


def instead_of_records(data: bytes) -> str:
    """Describes bytes that contain no record."""
    return f"nothing in its {len(data)} bytes is a record" if data else "it is empty"


def _check_start(reading: ParsedFile) -> None:
    start = reading.start
    if start is None:
        words = "the first line, which describes the session, is missing or damaged"
        reading.problems.insert(0, Problem(words))
    else:
        reading.problems[:0] = problems_of_version(start)


def problems_of_version(start: SessionStarted) -> list[Problem]:
    """A note about the version that wrote the file; empty for this version or an older one."""
    if start.version <= VERSION:
        return []
    words = (
        f"it was written by a newer version (format {start.version}; this one knows {VERSION}): "
        "it is shown as far as it is understood"
    )
    return [Problem(words)]


# -- damage --------------------------------------------------------------------------------------------------


def _salvaged(line: bytes) -> list[ByteRange]:
    """The ranges of the complete records inside a line."""
    found: list[ByteRange] = []
    at, left = 0, _MOST_LOOKS * len(line)
    while left > 0:
        match = _HEAD.search(line, at)
        if match is None:
            break
        end = _end_of(line, match.start())
        if end is None:
            left -= len(line) - match.start()
            at = match.start() + 1
        else:
            span = ByteRange(match.start(), end)
            if not _is_a_value(line, span, found[-1].end if found else 0):
                found.append(span)
            at = end
    return found


def _is_a_value(line: bytes, span: ByteRange, before: int) -> bool:
    """Whether the range is not a record but a value inside one: a model can write an argument that looks like a record.

    `before` is where the previous record in the line ends. A lost or damaged newline is at most one byte.
    """
    goes_on = line[span.end : span.end + 1] in _BEHIND_A_VALUE
    if span.start <= before + 1:
        return goes_on and _HEAD.match(line, span.end + 1) is None
    return goes_on or line[span.start - 1 : span.start] in _BEFORE_A_VALUE


def _end_of(line: bytes, start: int) -> int | None:
    """Where the record that begins at `start` ends; `None` if no complete record begins there."""
    view = memoryview(line)
    crc, at = 0, start
    for match in _END.finditer(line, start):
        crc = zlib.crc32(view[at : match.start()], crc)
        at = match.start()
        if match[0] == b',"crc":"%08x"}' % crc:
            return match.end()
    return None


def _gaps(line: bytes, start: int, spans: list[ByteRange]) -> Iterator[ByteRange]:
    """The ranges between the records of a line that begins at `start`. An empty line is a superfluous newline."""
    at = 0
    for span in spans:
        if span.start > at:
            yield ByteRange(start + at, start + span.start)
        at = span.end
    if at < len(line):
        yield ByteRange(start + at, start + len(line))
    elif not line:
        yield ByteRange(start, start + 1)


def _joined(damaged: list[ByteRange]) -> list[ByteRange]:
    """Joins ranges that are separated only by a newline."""
    joined: list[ByteRange] = []
    for span in damaged:
        if joined and span.start <= joined[-1].end + 1:
            joined[-1] = ByteRange(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _problems_of(data: bytes, damaged: list[ByteRange]) -> list[str]:
    """Describes the damage. Damage that an editor does to every line is reported once."""
    returns = {span for span in damaged if data[span.start : span.end + 1] == b"\r\n"}
    said = [_describe(data, span) for span in damaged if span not in returns]
    if returns:
        lines = "1 line ends" if len(returns) == 1 else f"{len(returns)} lines end"
        said.append(f"{lines} with a carriage return, as some editors write it: nothing is lost")
    return said


def _describe(data: bytes, span: ByteRange) -> str:
    size = span.end - span.start
    amount = "1 byte" if size == 1 else f"{size} bytes"
    if not data[span.start : span.end].strip(b"\0"):
        return f"{amount} at {span.start} are zero, as after a power failure"
    if span.end >= len(data):
        return f"the last record was cut off while it was written ({amount} at {span.start})"
    return f"{amount} at {span.start} are damaged and were skipped"


# -- order ---------------------------------------------------------------------------------------------------


def _in_order(records: list[SessionRecord], *, is_whole: bool) -> tuple[list[SessionRecord], list[str]]:
    """The records in the order of their numbers, each once, and the problems with order and completeness."""
    if not records:
        return records, []
    first = 0 if is_whole else records[0].number
    last = records[-1].number
    if last - first + 1 == len(records) and all(
        record.number == number for number, record in enumerate(records, first)
    ):
        return records, []
    problems: list[str] = []
    known: dict[int, SessionRecord] = {}
    before = -1
    for record in records:
        if record.number in known:
            same = known[record.number].entry == record.entry
            problems.append(
                f"record {record.number} occurs twice"
                + (", and is used once" if same else " with different contents, and the first is used")
            )
            continue
        if record.number < before:
            problems.append(f"record {record.number} comes after record {before}: it is read in the right order")
        before = max(before, record.number)
        known[record.number] = record
    ordered = [known[number] for number in sorted(known)]
    expected = first
    for record in ordered:
        missing = record.number - expected
        if missing == 1 and expected:
            problems.append(f"record {expected} is missing")
        elif missing > 1:
            problems.append(f"records {max(expected, 1)} to {record.number - 1} are missing")
        expected = record.number + 1
    return ordered, problems
