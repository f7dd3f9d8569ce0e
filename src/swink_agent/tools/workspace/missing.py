"""Suggests an existing path for one that does not exist: a similar name, or the same name in another folder.

The search is bounded for any folder, and never leaves it or follows a link.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from itertools import islice

from swink_agent.core.machine.beneath import FOLDER
from swink_agent.core.texts.likeness import close_names

from .._bounded import show_name
from .beneath import Root

_MOST_NAMES = 2000
_MOST_ENTRIES = 5000
_MOST_FOLDERS = 500
_MOST_NAMED = 3
_PASSED_OVER = frozenset({".git", ".hg", "node_modules", ".venv", "__pycache__"})


def describe_missing(root: Root, path: str, is_hidden: Callable[[tuple[str, ...]], bool]) -> str:
    """A suggestion, as the end of the sentence that the path does not exist. `path` is relative to the root."""
    folder, _, name = path.rstrip("/").rpartition("/")
    elsewhere = _elsewhere(root, name, is_hidden)
    meant = f"; did you mean {' or '.join(map(show_name, elsewhere))}?" if elsewhere else ""
    try:
        fd, parts = root.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return meant or (f"; neither does the folder {show_name(folder)}" if folder else "")
    try:
        if is_hidden(parts):
            return ""
        with os.scandir(fd) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES)]
    except OSError:
        return meant
    finally:
        os.close(fd)
    close = close_names(name, names)
    if close:
        return f"; did you mean {show_name('/'.join([*parts, close[0]]))}?"
    return meant or "; see with list_dir what is there"


def _elsewhere(root: Root, name: str, is_hidden: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """Paths beneath the root that end in that name, in any case, the nearest to the root first."""
    wanted = name.casefold()
    found: list[str] = []
    folders: deque[tuple[str, ...]] = deque([()])
    looked_at = 0
    for _ in range(_MOST_FOLDERS):
        if not folders or looked_at > _MOST_ENTRIES or len(found) >= _MOST_NAMED:
            break
        parts = folders.popleft()
        try:
            fd = root.open("/".join(parts) or ".", FOLDER).fd
        except OSError:
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in sorted(islice(entries, _MOST_NAMES), key=lambda entry: entry.name):
                    looked_at += 1
                    inner = (*parts, entry.name)
                    if entry.name in _PASSED_OVER or is_hidden(inner):
                        continue
                    if entry.name.casefold() == wanted:
                        found.append("/".join(inner))
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(inner)
        except OSError:
            continue
        finally:
            os.close(fd)
    return found[:_MOST_NAMED]
