"""Finding the records in the bytes of a session's file, whatever happened to them.

A line whose checksum is right is a record. In one whose checksum is wrong, records are looked for: a newline that was
lost has joined two. Everything else is damage, which is reported and passed over, and costs only the records that it
hit. Nothing here changes a file.

Owns the way from bytes to records in their order. What they say is for `decoding`, what they come to for `fold`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swink_agent.core.types import CustomMessage

from .decoding import EntryDecoder
from .records import VERSION, RecordEntry, SessionStarted

__all__ = ["Numbered", "Reading", "Span", "problems_of_version", "read_records"]

_HEAD = re.compile(rb'\{"seq":(\d{1,18}),"at":(\d{1,18}),')
_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_SUFFIX = len(b',"crc":"00000000"}')
_MOST_STARTS = 256
"""Places in one damaged line where a record may begin that are looked at: a hostile line must not take forever."""


class Numbered(NamedTuple):
    """A record as it was read."""

    number: int
    at: int
    entry: RecordEntry


class Span(NamedTuple):
    """Some bytes of the file, from `start` up to `end`."""

    start: int
    end: int


class Reading(NamedTuple):
    """What a file holds."""

    records: list[Numbered]
    """In the order of their numbers, each number once."""
    problems: list[str]
    spans: list[Span]
    """Where the whole records are, as they stand in the file, without newlines."""
    damaged: list[Span]
    ends_with_newline: bool

    @property
    def start(self) -> SessionStarted | None:
        """The metadata, if they are there."""
        for record in self.records[:1]:
            if isinstance(record.entry, SessionStarted):
                return record.entry
        return None


def read_records(data: bytes, types: Sequence[type[CustomMessage]] = (), *, is_whole: bool = True) -> Reading:
    """All that can be read of the bytes. With `is_whole=False` they are the end of a file, from some line on."""
    decoder = EntryDecoder(types)
    decode = decoder.decode
    records: list[Numbered] = []
    spans: list[Span] = []
    damaged: list[Span] = []
    crc32, head = zlib.crc32, _HEAD.match
    at = 0
    for line in data.split(b"\n"):
        end = at + len(line)
        if line:
            match = head(line)
            if match is not None and line[-_SUFFIX:] == b',"crc":"%08x"}' % crc32(line[:-_SUFFIX]):
                number = int(match[1])
                records.append(Numbered(number, int(match[2]), decode(line, number)))
                spans.append(Span(at, end))
            else:
                for span in _salvaged(line):
                    whole = line[span.start : span.end]
                    match = head(whole)
                    assert match is not None
                    number = int(match[1])
                    records.append(Numbered(number, int(match[2]), decode(whole, number)))
                    spans.append(Span(at + span.start, at + span.end))
                _add_gaps(damaged, at, end, spans)
        elif end < len(data):
            damaged.append(Span(at, end + 1))  # an empty line: something was a newline that is none
        at = end + 1
    problems = [_describe(data, span) for span in _joined(damaged)]
    records, disorder = _in_order(records, is_whole=is_whole)
    problems += disorder
    problems += decoder.unknown
    reading = Reading(records, problems, spans, _joined(damaged), data.endswith(b"\n"))
    if is_whole and records:
        _check_start(reading)
    return reading


def _check_start(reading: Reading) -> None:
    start = reading.start
    if start is None:
        reading.problems.insert(0, "the first line, which says what the session is, is missing or damaged")
    else:
        reading.problems[:0] = problems_of_version(start)


def problems_of_version(start: SessionStarted) -> list[str]:
    """What there is to say of the version that wrote the file: nothing, if it is this one or an older."""
    if start.version <= VERSION:
        return []
    return [
        f"it was written by a newer version (format {start.version}; this one knows {VERSION}): "
        "it is shown as far as it is understood"
    ]


# -- damage --------------------------------------------------------------------------------------------------


def _salvaged(line: bytes) -> Iterator[Span]:
    """The whole records inside a line that is none."""
    at = 0
    for _ in range(_MOST_STARTS):
        match = _HEAD.search(line, at)
        if match is None:
            return
        end = _end_of(line, match.start())
        if end is None:
            at = match.start() + 1
        else:
            yield Span(match.start(), end)
            at = end


def _end_of(line: bytes, start: int) -> int | None:
    """Where the record ends that begins at `start`, if a whole one does."""
    view = memoryview(line)
    crc, at = 0, start
    for match in _END.finditer(line, start):
        crc = zlib.crc32(view[at : match.start()], crc)
        at = match.start()
        if match[0] == b',"crc":"%08x"}' % crc:
            return match.end()
    return None


def _add_gaps(damaged: list[Span], start: int, end: int, spans: list[Span]) -> None:
    """Adds what is between the records that were found in a line."""
    at = start
    for span in [span for span in spans[-_MOST_STARTS:] if span.start >= start]:
        if span.start > at:
            damaged.append(Span(at, span.start))
        at = span.end
    if at < end:
        damaged.append(Span(at, end))


def _joined(damaged: list[Span]) -> list[Span]:
    """Damage that has only a newline between it is one."""
    joined: list[Span] = []
    for span in damaged:
        if joined and span.start <= joined[-1].end + 1:
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _describe(data: bytes, span: Span) -> str:
    size = span.end - span.start
    amount = "1 byte" if size == 1 else f"{size} bytes"
    if not data[span.start : span.end].strip(b"\0"):
        return f"{amount} at {span.start} are zero, as a machine leaves them that lost its power"
    if span.end >= len(data):
        return f"the last record was cut off while it was written ({amount} at {span.start})"
    return f"{amount} at {span.start} are damaged and were passed over"


# -- order ---------------------------------------------------------------------------------------------------


def _in_order(records: list[Numbered], *, is_whole: bool) -> tuple[list[Numbered], list[str]]:
    """The records in the order of their numbers, each once, and what was wrong with that."""
    if not records:
        return records, []
    first = 0 if is_whole else records[0].number
    last = records[-1].number
    if last - first + 1 == len(records) and all(
        record.number == number for number, record in enumerate(records, first)
    ):
        return records, []
    problems: list[str] = []
    known: dict[int, Numbered] = {}
    before = -1
    for record in records:
        if record.number in known:
            same = known[record.number].entry == record.entry
            problems.append(
                f"record {record.number} is there twice"
                + (", and is used once" if same else " with different contents, and the first is used")
            )
            continue
        if record.number < before:
            problems.append(f"record {record.number} stands behind record {before}: it is read in its place")
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
