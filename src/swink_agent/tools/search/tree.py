"""Walks over a tree, without files that git ignores, and follows no link.

Every step opens one name in an open folder, never a path, so that nothing outside is reached even if names are swapped
meanwhile. Imports only the standard library: the scanner's child process loads this file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from .ignore import IgnoreLevel

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DEEPEST = 200
_LARGEST_RULES = 256 * 1024
_GIT = b".git"
_RULES = b".gitignore"


class Found(NamedTuple):
    """A regular file: its path from the root, and its open folder, valid until the next step."""

    path: bytes
    folder: int
    name: bytes


def walk(root: int, start: Sequence[bytes] = ()) -> Iterator[Found]:
    """The files beneath `start`, folder by folder in the order of their names, without `.git` and ignored ones.

    `start` itself is taken even if it is ignored, and may be a file. Folders that cannot be opened are skipped. Raises
    `OSError` if `start` cannot be reached without following a link.
    """
    with ExitStack() as held:
        *above, last = [b"", *start]
        folder, level = root, None
        for name in above:
            folder, level = _enter(folder, name, level, held)
        if last and stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            yield Found(b"/".join(start), folder, last)
            return
        folder, level = _enter(folder, last, level, held)
        yield from _beneath(folder, b"/".join(start), level, 0)


def _enter(folder: int, name: bytes, above: IgnoreLevel | None, held: ExitStack) -> tuple[int, IgnoreLevel]:
    """The folder of that name, held open, with its rules; the empty name is the folder itself."""
    inner = os.open(name or b".", _FOLDER, dir_fd=folder)
    held.callback(os.close, inner)
    return inner, level_of(inner, name, above)


def _beneath(folder: int, path: bytes, level: IgnoreLevel, depth: int) -> Iterator[Found]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted([(os.fsencode(entry.name), entry) for entry in listing], key=lambda pair: pair[0])
    except OSError:
        return
    for name, entry in entries:
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if name == _GIT or not (is_folder or entry.is_file(follow_symlinks=False)):
                continue
        except OSError:
            continue
        if level.is_ignored(name, is_folder):
            continue
        inner_path = path + b"/" + name if path else name
        if not is_folder:
            yield Found(inner_path, folder, name)
        elif depth < _DEEPEST:
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _beneath(inner, inner_path, level_of(inner, name, level), depth + 1)
            finally:
                os.close(inner)


def level_of(
    folder: int,
    name: bytes,
    above: IgnoreLevel | None,
    until: float | None = None,
    listed: Collection[bytes] = (_GIT, _RULES),
) -> IgnoreLevel:
    """The rules that apply in an open folder.

    `until`, for the outermost one, limits the time for matching them. `listed` has the names in the folder: if they are
    known already, files that it does not have are not looked for.
    """
    try:
        git = os.stat(_GIT, dir_fd=folder, follow_symlinks=False).st_mode if _GIT in listed else 0
    except OSError:
        git = 0
    exclude = _read_exclude(folder) if stat.S_ISDIR(git) else None
    is_repository = stat.S_ISDIR(git) or stat.S_ISREG(git)
    rules = _read_rules(folder, _RULES) if _RULES in listed else None
    return IgnoreLevel(name, above, rules=rules, exclude=exclude, is_repository=is_repository, until=until)


def open_file_in(folder: int, name: bytes) -> int | None:
    """A descriptor of a regular file, or `None` for anything else."""
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _read_exclude(folder: int) -> bytes | None:
    opened: list[int] = []
    try:
        for name in (_GIT, b"info"):
            folder = os.open(name, _FOLDER, dir_fd=folder)
            opened.append(folder)
        return _read_rules(folder, b"exclude")
    except OSError:
        return None
    finally:
        for fd in opened:
            os.close(fd)


def _read_rules(folder: int, name: bytes) -> bytes | None:
    fd = open_file_in(folder, name)
    if fd is None:
        return None
    with os.fdopen(fd, "rb", buffering=0) as file:
        try:
            return file.read(_LARGEST_RULES)
        except OSError:
            return None


class IgnoredPaths:
    """Answers which paths beneath a root are ignored, for results that another program found there.

    `start` is where it searched: that folder and those above it are not judged, only paths beneath. Must be closed. Not
    safe for two threads at once. Past `until` (`time.monotonic`) it raises `TimeoutError`.
    """

    def __init__(self, root: int, start: Sequence[bytes] = (), until: float | None = None) -> None:
        self._root = os.dup(root)
        self._until = until
        self._start = len(start)
        self._levels: dict[tuple[bytes, ...], IgnoreLevel | None] = {}

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def covers(self, path: bytes) -> bool:
        """Whether the file is ignored, is in an ignored folder, or cannot be judged: too deep, or its folder was
        deleted."""
        *folders, name = path.split(b"/")
        if len(folders) < self._start:
            return False  # the start itself, which is a file
        if len(folders) > self._start + _DEEPEST:
            return True  # as in the scanner
        level = self._level(tuple(folders))
        return level is None or name == _GIT or level.is_ignored(name, False)

    def _level(self, folders: tuple[bytes, ...]) -> IgnoreLevel | None:
        """The rules in a folder, or `None` if it is ignored itself."""
        known = len(folders)
        while known and folders[:known] not in self._levels:
            known -= 1
        if () not in self._levels:
            self._levels[()] = self._read_level((), None)
        level = self._levels[folders[:known]]
        for length in range(known + 1, len(folders) + 1):
            inner = folders[:length]
            is_judged = length > self._start
            is_left_out = level is None or (is_judged and (inner[-1] == _GIT or level.is_ignored(inner[-1], True)))
            level = None if is_left_out else self._read_level(inner, level)
            self._levels[inner] = level
        return level

    def _read_level(self, folders: tuple[bytes, ...], above: IgnoreLevel | None) -> IgnoreLevel | None:
        folder = os.dup(self._root)
        try:
            for name in folders:
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            return level_of(folder, folders[-1] if folders else b"", above, self._until)
        except OSError:
            return None
        finally:
            os.close(folder)
