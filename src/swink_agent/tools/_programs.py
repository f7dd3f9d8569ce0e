"""Where a program that a tool starts is found: once, by the user's own PATH, and never in the workspace.

Owns that search. How the program is confined is the sandbox's business.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["find_program", "search_path"]

_USUAL = ("/usr/local/bin", "/usr/bin", "/bin")


def search_path() -> tuple[str, ...]:
    """The folders of this process's PATH, then the usual ones."""
    return (*os.environ.get("PATH", "").split(os.pathsep), *_USUAL)


def find_program(name: str, *, not_in: str, folders: Sequence[str] | None = None) -> str | None:
    """The first program of that name in absolute folders outside `not_in`, where a model may have put its own."""
    forbidden = os.path.realpath(not_in)
    for folder in search_path() if folders is None else folders:
        candidate = os.path.join(folder, name)
        if not os.path.isabs(folder) or not (os.path.isfile(candidate) and os.access(candidate, os.X_OK)):
            continue
        real = os.path.realpath(candidate)
        if forbidden == "/" or not any(_is_beneath(path, forbidden) for path in (real, os.path.abspath(candidate))):
            return candidate
    return None


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
