"""What lies in a folder, as a person would list it: without what git ignores and what begins with a dot.

Owns a look from outside, for prompts and screens. No program is run for it: a folder that a stranger packed may hold a
repository whose settings name commands. The tool that a model calls is in `list_dir`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from ._ignore import IgnoreLevel
from ._tree import level_of

__all__ = ["visible_entries"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def visible_entries(folder: Path) -> list[tuple[str, bool]]:
    """The names in the folder and whether each is a folder, sorted. Empty if it cannot be read."""
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    with ExitStack() as held:
        try:
            current = os.open(top, _FOLDER)
            held.callback(os.close, current)
            level = level_of(current, b"", None)
            for part in folder.relative_to(top).parts:
                current, level = _enter(current, os.fsencode(part), level, held)
            with os.scandir(current) as found:
                entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
        except OSError:
            return []
    return [
        (name, is_folder)
        for name, is_folder in entries
        if not name.startswith(".") and not level.is_ignored(os.fsencode(name), is_folder)
    ]


def _enter(folder: int, name: bytes, above: IgnoreLevel, held: ExitStack) -> tuple[int, IgnoreLevel]:
    inner = os.open(name, _FOLDER, dir_fd=folder)
    held.callback(os.close, inner)
    return inner, level_of(inner, name, above)
