"""Decides whether a repository has contained some data since before a certain moment.

Looks into git's object store without git, which would read the repository's own settings. Opens only the indexes of
packs, within bounds. Uses the times of inodes, which no command can set.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from contextlib import suppress

_MOST_PACKS = 200
_LARGEST_INDEX = 512 * 1024 * 1024
_HEADER = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = 8
_NAMES = _FANOUT + 256 * 4


def has_held(repository: str, data: bytes, before: int) -> bool:
    """Whether the data was an object of the repository before the moment `before`, in nanoseconds."""
    blob = b"blob %d\0" % len(data) + data
    objects = os.path.join(repository, "objects")
    if not _is_older(objects, None, stat.S_IFDIR):
        return False
    for name in (hashlib.sha1(blob, usedforsecurity=False).hexdigest(), hashlib.sha256(blob).hexdigest()):
        if _is_older(os.path.join(objects, name[:2], name[2:]), before, stat.S_IFREG):
            return True
        if any(_holds(index, bytes.fromhex(name)) for index in _indexes(os.path.join(objects, "pack"), before)):
            return True
    return False


def _is_older(path: str, before: int | None, kind: int) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_IFMT(state.st_mode) == kind and (before is None or state.st_ctime_ns < before)


def _indexes(folder: str, before: int) -> list[str]:
    """The indexes of packs that existed, index and pack alike, before the moment."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".idx")][:_MOST_PACKS]
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return [
        path
        for path in paths
        if _is_older(path, before, stat.S_IFREG) and _is_older(f"{path[:-4]}.pack", before, stat.S_IFREG)
    ]


def _holds(index: str, name: bytes) -> bool:
    """Whether the sorted names of a pack index, which follow a table of counts by first byte, contain this one."""
    with suppress(OSError, ValueError):
        descriptor = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not _NAMES < os.fstat(descriptor).st_size <= _LARGEST_INDEX:
                return False
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as table:
                return table[: len(_HEADER)] == _HEADER and _is_among(table, name)
        finally:
            os.close(descriptor)
    return False


def _is_among(table: mmap.mmap, name: bytes) -> bool:
    def count(first: int) -> int:
        return int.from_bytes(table[_FANOUT + first * 4 : _FANOUT + first * 4 + 4], "big") if first >= 0 else 0

    low, high = count(name[0] - 1), count(name[0])
    while low < high:
        middle = (low + high) // 2
        at = _NAMES + middle * len(name)
        found = table[at : at + len(name)]
        if found == name:
            return True
        low, high = (middle + 1, high) if found < name else (low, middle)
    return False
