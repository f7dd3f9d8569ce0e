"""What a list shows of a session, from the first line and the last few of its file.

The log writes a summary of itself now and then; what follows the last one is folded onto it. Where that is not enough
(an older file, a change of the history since, damage) the whole file is read.

Owns the short way to a `SessionInfo`. The long one is `opening.read_contents`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from swink_agent.core.types import CustomMessage

from .fold import Fold
from .info import SessionInfo
from .opening import read_contents
from .reading import problems_of_version, read_records
from .records import SessionStarted, Summary
from .session import info_of

__all__ = ["info_from_file", "used_last"]

_HEAD = 16 * 1024
_TAIL = 16 * 1024
_AHEAD = 5 * 60_000
"""Milliseconds by which the clocks of machines that share a folder may differ."""
_MARK = b',"type":"summary",'
_SUMMARY_LINE = re.compile(rb'\{"seq":\d+,"at":\d+,"type":"summary",')


def info_from_file(path: Path, types: Sequence[type[CustomMessage]]) -> SessionInfo:
    """What is known of a session. Raises `SessionError`s and `OSError`."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        start = _start_of(head)
        if start is not None:
            window = _TAIL
            while window < size:
                tail = os.pread(file.fileno(), window, size - window)
                found = _last_summary(tail)
                if found is not None:
                    info = _folded(path, start, tail[found:], types)
                    if info is not None:
                        return info
                    break
                window *= 4
    contents = read_contents(path, types)
    return info_of(path, contents.start, contents.fold, contents.reading.problems)


def used_last(path: Path, info: SessionInfo, now: int) -> int:
    """When a session was used last, to order a list by, in milliseconds.

    What says that it was used in the future was written by a clock that ran ahead. Its file's time is right if it was
    used since; if that lies in the future too, nothing is known, and it was used before all others.
    """
    if info.updated <= now + _AHEAD:
        return info.updated
    try:
        written = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
    return written if written <= now + _AHEAD else 0


def _start_of(head: bytes) -> SessionStarted | None:
    """The metadata, if they are whole and all there."""
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


def _folded(path: Path, start: SessionStarted, data: bytes, types: Sequence[type[CustomMessage]]) -> SessionInfo | None:
    """What the lines from a summary on come to; `None` if that cannot be said without the lines before them."""
    reading = read_records(data, types, is_whole=False)
    if not reading.records or not isinstance(summary := reading.records[0].entry, Summary):
        return None
    fold = Fold(summary)
    for record in reading.records[1:]:
        fold.add(record.number, record.entry, record.at)
    return None if fold.needs_all else info_of(path, start, fold, [*problems_of_version(start), *reading.problems])
