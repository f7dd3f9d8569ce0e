"""Reads the description of a session from the first and the last lines of its log.

The log writes a summary of itself from time to time; the records after the last summary are folded onto it. If that is
not enough (an older log, a change of the history since, damage), the whole log is read.

Owns the fast way to a `SessionInfo`, and the filter of a list. The slow way is `opening.read_contents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from swink_agent.core.types import CustomMessage

from ..errors import SessionError
from ..log.fold import Fold
from ..log.reading import problems_of_version, read_records
from ..log.records import SessionStarted, Summary
from ..storage.protocols import NEWEST, LogReader, Storage
from .info import SessionInfo
from .opening import read_contents
from .session import info_of

_HEAD = 16 * 1024
_TAIL = 16 * 1024
_AHEAD = 5 * 60_000  # milliseconds by which the clocks of machines that share sessions may differ
_START = rb'\{"seq":0,"at":\d{1,18},"type":"session","id":"[\w-]*","version":\d+,"created":(-?\d{1,18}),'
_CREATED = re.compile(_START)
_FOLDER = re.compile(_START + rb'"cwd":("(?:[^"\\\x00-\x1f]|\\.)*"),')
_TIME = re.compile(rb'^\{"seq":\d{1,18},"at":(\d{1,18}),', re.MULTILINE)
_UPDATED = re.compile(rb'"updated":(\d{1,18})[,}]')
_MARK = b',"type":"summary",'
_SUMMARY_LINE = re.compile(rb'\{"seq":\d+,"at":\d+,"type":"summary",')


class Wanted(NamedTuple):
    """The filter of a list of sessions."""

    cwd: str | None = None
    metadata: Mapping[str, Any] = {}
    """Keys that the metadata must have, with these values."""

    def includes(self, cwd: str, metadata: Mapping[str, Any]) -> bool:
        if self.cwd is not None and self.cwd != cwd:
            return False
        return all(key in metadata and _is_same(metadata[key], value) for key, value in self.metadata.items())


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. In Python, `1 == True`."""
    return one == other and _sorted_json(one) == _sorted_json(other)


def _sorted_json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def info_from_log(
    reader: LogReader, storage: Storage, session_id: str, types: Sequence[type[CustomMessage]], wanted: Wanted
) -> SessionInfo | None:
    """Describes a session; `None` if it is not wanted.

    Raises `SessionError`s and `OSError`.
    """
    with reader.glance(session_id) as log:
        head = log.head(_HEAD)
        if wanted.cwd is not None and _is_of_another_folder(head, wanted.cwd):
            return None
        start = _start_of(head)
        if start is not None:
            if not wanted.includes(start.cwd, start.metadata):
                return None
            window = _TAIL
            while window < log.size:
                tail = log.tail(window)
                found = _last_summary(tail)
                if found is not None:
                    info = _folded(session_id, start, tail[found:], types)
                    if info is not None:
                        return info
                    break
                window *= 4
    contents = read_contents(reader, storage, session_id, types)
    info = info_of(session_id, contents.start, contents.fold, contents.reading.problems)
    return info if wanted.includes(info.cwd, info.metadata) else None


def not_used_after(reader: LogReader, session_id: str) -> int:
    """The latest time at which a session may have been used, in milliseconds; `NEWEST` if its log's ends lack it."""
    try:
        with reader.glance(session_id) as log:
            created, tail, is_all = _CREATED.match(log.head(_HEAD)), log.tail(_TAIL), log.size <= _TAIL
    except (OSError, SessionError):
        return NEWEST  # the attempt to read the log will report the error
    begin = 0 if is_all else _last_summary(tail)
    if created is None or begin is None or not tail.endswith(b"\n"):
        return NEWEST
    tail = tail[begin:]
    times = _TIME.findall(tail)
    if len(times) != tail.count(b"\n"):  # another program wrote or damaged a line
        return NEWEST
    if not is_all:
        times += _UPDATED.findall(tail, 0, tail.index(b"\n"))
    return max(int(created[1]), *map(int, times))


def used_last(written: int, info: SessionInfo, now: int) -> int:
    """When a session was used last, in milliseconds, to sort a list.

    A time in the future comes from a clock that ran ahead. Then the time when the log was written is used; if that is
    in the future too, the session is sorted last.
    """
    if info.updated <= now + _AHEAD:
        return info.updated
    return written if written <= now + _AHEAD else 0


def _is_of_another_folder(head: bytes, cwd: str) -> bool:
    """Whether the first line names another folder. A quick look, for a list of one folder among many."""
    found = _FOLDER.match(head)
    try:
        return found is not None and msgspec.json.decode(found[2], type=str) != cwd
    except (msgspec.MsgspecError, UnicodeError):
        return False


def _start_of(head: bytes) -> SessionStarted | None:
    """The metadata, if the first line is complete and undamaged."""
    line, newline, _ = head.partition(b"\n")
    reading = read_records(line) if newline else None
    return None if reading is None or reading.damaged else reading.start


def _last_summary(tail: bytes) -> int | None:
    """Where the line of the last summary begins."""
    end = len(tail)
    while (found := tail.rfind(_MARK, 0, end)) >= 0:
        begin = tail.rfind(b"\n", 0, found) + 1
        if begin and _SUMMARY_LINE.match(tail, begin):
            return begin
        end = found
    return None


def _folded(
    session_id: str, start: SessionStarted, data: bytes, types: Sequence[type[CustomMessage]]
) -> SessionInfo | None:
    """Folds the lines from a summary on; `None` if the lines before them are needed."""
    reading = read_records(data, types, is_whole=False)
    if not reading.records or not isinstance(summary := reading.records[0].entry, Summary):
        return None
    fold = Fold(summary)
    for record in reading.records[1:]:
        fold.add(record.number, record.entry, record.at)
    return (
        None if fold.needs_all else info_of(session_id, start, fold, [*problems_of_version(start), *reading.problems])
    )
