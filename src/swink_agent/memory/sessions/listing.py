"""Reads what a list shows of a session from the first and the last lines of its file.

The log writes a summary of itself from time to time; the records after the last summary are folded onto it. If that is
not enough (an older file, a change of the history since, damage), the whole file is read.

Owns the fast way to a `SessionInfo`. The slow one is `opening.read_contents`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from swink_agent.core.types import CustomMessage

from ..log.fold import Fold
from ..log.reading import problems_of_version, read_records
from ..log.records import SessionStarted, Summary
from .info import SessionInfo
from .opening import read_contents
from .session import info_of

__all__ = ["info_from_file", "used_last"]

_HEAD = 16 * 1024
_TAIL = 16 * 1024
_AHEAD = 5 * 60_000
"""Milliseconds by which the clocks of machines that share a folder may differ."""
_MARK = b',"type":"summary",'
_SUMMARY_LINE = re.compile(rb'\{"seq":\d+,"at":\d+,"type":"summary",')


def info_from_file(path: Path, types: Sequence[type[CustomMessage]], cwd: str | None = None) -> SessionInfo | None:
    """What is known of a session; `None` if it is of another folder than `cwd`.

    Raises `SessionError`s and `OSError`.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        start = _start_of(head)
        if start is not None and cwd is not None and start.cwd != cwd:
            return None
        if start is not None:
            window = _TAIL
            while window < size:
                tail = os.pread(file.fileno(), window, size - window)
                found = _last_summary(tail)
                if found is not None:
                    info = _folded(path, start, tail[found:], types)
                    if info is not None:
                        return info if cwd is None or info.cwd == cwd else None
                    break
                window *= 4
    contents = read_contents(path, types)
    info = info_of(path, contents.start, contents.fold, contents.reading.problems)
    return info if cwd is None or info.cwd == cwd else None


def used_last(path: Path, info: SessionInfo, now: int) -> int:
    """When a session was used last, in milliseconds, to sort a list.

    A time in the future comes from a clock that ran ahead. Then the file's time is used; if that is in the future too,
    the session is sorted last.
    """
    if info.updated <= now + _AHEAD:
        return info.updated
    try:
        written = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
    return written if written <= now + _AHEAD else 0


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


def _folded(path: Path, start: SessionStarted, data: bytes, types: Sequence[type[CustomMessage]]) -> SessionInfo | None:
    """Folds the lines from a summary on; `None` if the lines before them are needed."""
    reading = read_records(data, types, is_whole=False)
    if not reading.records or not isinstance(summary := reading.records[0].entry, Summary):
        return None
    fold = Fold(summary)
    for record in reading.records[1:]:
        fold.add(record.number, record.entry, record.at)
    return None if fold.needs_all else info_of(path, start, fold, [*problems_of_version(start), *reading.problems])
