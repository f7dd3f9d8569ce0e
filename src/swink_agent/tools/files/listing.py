"""The contents of a folder for prompts and screens, without files that git ignores: one level, or all levels within a
time limit.

Runs no program: the folder may contain a foreign repository whose settings name commands. The tool that a model calls
is in `list_dir`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from swink_agent.core.machine.beneath import FOLDER

from ..search.ignore import IgnoreLevel
from ..search.tree import level_of

_MOST_SCANNED = 50_000
_DEEPEST = 40
_LONGEST = 1.0
_FOLDER = FOLDER & ~os.O_NOFOLLOW  # the user's own, which may be a link
_GIT = ".git"


class VisibleEntries(NamedTuple):
    """Names and whether each is a folder, sorted. `is_all` is false if the folder has too many names."""

    entries: list[tuple[str, bool]]
    is_all: bool = True


def visible_entries(folder: Path) -> VisibleEntries:
    """The contents of the folder, without names that begin with a dot and those that git ignores. Empty if unreadable.

    At most fifty thousand names are examined, in the system's order. Git's ignore rules are no longer applied after one
    second.
    """
    with ExitStack() as held:
        try:
            current, level = _entered(folder, time.monotonic() + _LONGEST, held)
            with os.scandir(current) as found:
                some = list(islice(found, _MOST_SCANNED + 1))
            seen = [entry for entry in some if not entry.name.startswith(".")]
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in seen)
        except OSError:
            return VisibleEntries([])
    is_all = len(some) <= _MOST_SCANNED
    shown: list[tuple[str, bool]] = []
    for position, (name, is_folder) in enumerate(entries):
        try:
            if not level.is_ignored(os.fsencode(name), is_folder):
                shown.append((name, is_folder))
        except TimeoutError:
            return VisibleEntries(shown + entries[position:], is_all)
    return VisibleEntries(shown, is_all)


class VisiblePaths(NamedTuple):
    """Paths beneath a folder, the least deep first. Those of folders end with `/`. `is_all` is false if some could not
    be examined."""

    paths: list[str]
    is_all: bool = True


def visible_paths(
    folder: Path,
    *,
    most: int = 20_000,
    seconds: float = 1.0,
    goes_on: Callable[[], bool] = lambda: True,
    into: list[str] | None = None,
) -> VisiblePaths:
    """The paths beneath the folder, as the search tool sees them: without `.git` and files that git ignores.

    The rules of the repository that contains the folder apply too. Outer folders come first, so that near paths are
    found in any tree; follows no link. Ends after `most` paths, after `seconds`, or when `goes_on` returns false. The
    paths are added to `into` as they are found: another thread may read them meanwhile.
    """
    until = time.monotonic() + seconds
    folder = Path(os.path.abspath(folder))
    paths: list[str] = [] if into is None else into
    is_all = True
    waiting: deque[tuple[str, IgnoreLevel | None]] = deque([("", _level_above(folder, until))])
    while waiting:
        if time.monotonic() > until or len(paths) >= most or not goes_on():
            return VisiblePaths(paths, False)
        above_path, above = waiting.popleft()
        try:
            level, found, is_whole = _read_folder(folder, above_path, above, until, most - len(paths))
        except (OSError, TimeoutError):
            continue
        is_all = is_all and is_whole
        for name, is_folder in found:
            path = f"{above_path}{name}"
            if len(paths) >= most:
                return VisiblePaths(paths, False)
            paths.append(f"{path}/" if is_folder else path)
            if is_folder and path.count("/") < _DEEPEST:
                waiting.append((f"{path}/", level))
    return VisiblePaths(paths, is_all)


def _level_above(folder: Path, until: float) -> IgnoreLevel | None:
    """The rules of the repository that contains the folder, down to the folder above it."""
    if (folder / _GIT).exists() or not any((place / _GIT).exists() for place in folder.parents):
        return None
    with ExitStack() as held:
        try:
            return _entered(folder.parent, until, held)[1]
        except OSError:
            return None


def _read_folder(
    top: Path, path: str, above: IgnoreLevel | None, until: float, most: int
) -> tuple[IgnoreLevel, list[tuple[str, bool]], bool]:
    """The rules in a folder, the entries that are not ignored, sorted by name, and whether all were examined."""
    fd = os.open(top / path, FOLDER if path else _FOLDER)
    try:
        name = path.rstrip("/").rpartition("/")[2] if path else top.name
        level = level_of(fd, b"" if above is None else os.fsencode(name), above, until)
        with os.scandir(fd) as listing:
            some = list(islice(listing, max(most, _MOST_SCANNED) + 1))
        found: list[tuple[str, bool]] = []
        for entry in some:
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == _GIT or not entry.name.isprintable():
                continue  # a user would not choose an invisible name
            if not level.is_ignored(os.fsencode(entry.name), is_folder):
                found.append((entry.name, is_folder))
        return level, sorted(found), len(some) <= max(most, _MOST_SCANNED)
    finally:
        os.close(fd)


def _entered(folder: Path, until: float, held: ExitStack) -> tuple[int, IgnoreLevel]:
    """The folder, held open, with the rules of the repository that contains it. Raises `OSError`."""
    top = next((place for place in (folder, *folder.parents) if (place / _GIT).exists()), folder)
    current, level = None, None
    for name in (top, *folder.relative_to(top).parts):
        current = os.open(name, _FOLDER, dir_fd=current)
        held.callback(os.close, current)
        level = level_of(current, b"" if level is None else os.fsencode(name), level, until)
    assert current is not None
    assert level is not None
    return current, level
