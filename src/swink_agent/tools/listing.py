"""What lies in a folder, as a person would list it: without what git ignores and what begins with a dot.

Owns a look from outside, for prompts and screens. No program is run for it: a folder that a stranger packed may hold a
repository whose settings name commands. The tool that a model calls is in `list_dir`.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ._ignore import IgnoreLevel
from ._tree import level_of

__all__ = ["VisibleEntries", "visible_entries"]

_MOST_SCANNED = 50_000
_LONGEST = 1.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class VisibleEntries(NamedTuple):
    """Names and whether each is a folder, sorted; `is_all` unless the folder holds too much to look at."""

    entries: list[tuple[str, bool]]
    is_all: bool = True


def visible_entries(folder: Path) -> VisibleEntries:
    """What is to be seen of the folder. Empty if it cannot be read.

    Of a folder with very many names the first fifty thousand are looked at, as the system gives them. Rules of what git
    ignores that take more than a second are no longer asked.
    """
    until = time.monotonic() + _LONGEST
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    with ExitStack() as held:
        try:
            current = os.open(top, _FOLDER)
            held.callback(os.close, current)
            level = level_of(current, b"", None, until)
            for part in folder.relative_to(top).parts:
                current, level = _enter(current, os.fsencode(part), level, held)
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


def _enter(folder: int, name: bytes, above: IgnoreLevel, held: ExitStack) -> tuple[int, IgnoreLevel]:
    inner = os.open(name, _FOLDER, dir_fd=folder)
    held.callback(os.close, inner)
    return inner, level_of(inner, name, above)
