"""Where the words of a command lead: folders, links and file patterns, looked at on the disk.

Owns the question whether what a word names lies in the folder that the model works in. It is answered for the disk as
it is at this moment, with bounded effort, and with no where the bound is reached. Which words name files is in
`reading`; that nothing hidden can be read, whatever happens between the look and the run, is up to the sandbox.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from ..display import safe_display

__all__ = ["Place"]

# Where looking tells nobody anything about the person: part of the operating system.
_PUBLIC = ("/bin", "/dev/null", "/etc/os-release", "/lib", "/lib64", "/proc/cpuinfo", "/proc/meminfo", "/usr")
_LONGEST = 4096  # of a path that a system takes
_MOST_LISTED = 5_000
_MOST_WALKED = 20_000


class Place:
    """A folder in which a command runs, beneath the one that the model works in."""

    def __init__(self, root: str, current: str | None = None) -> None:
        self.root = os.path.realpath(root)
        self.given = os.path.normpath(root)
        self.current = self.root if current is None else current

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.root, self.current) == (other.root, other.current)

    def __hash__(self) -> int:
        return hash((self.root, self.current))

    def holds(self, path: str) -> bool:
        """Whether a path without links lies in the folder, or where everybody may look."""
        return any(_is_beneath(path, place) for place in (self.root, *_PUBLIC))

    def folder(self, name: str) -> Place | None:
        """The place that `cd` leads to: a folder that is there, in ours, by a way that has no link in it."""
        if not name or name.startswith("-") or len(name) > _LONGEST:
            return None
        # bash goes by the names and the kernel by what they are: without links the two agree.
        path = os.path.normpath(os.path.join(self.current, name))
        if _is_beneath(path, self.given):
            path = self.root + path[len(self.given) :]
        if path != os.path.realpath(path) or not _is_beneath(path, self.root) or not os.path.isdir(path):
            return None
        return Place(self.root, path)

    def problem(self, text: str) -> str | None:
        """Why what the text may name is not in the folder, or `None`. A text that names nothing is no problem."""
        if os.path.isabs(text):
            return None if self._is_public_path(text) else f"{safe_display(text, 60)} leads out of the folder"
        if not text or (".." not in text and "/" not in text and not self._is_link(text)):
            return None
        if len(text) > _LONGEST or not self.holds(os.path.realpath(os.path.join(self.current, text))):
            return f"{safe_display(text, 60)} leads out of the folder"
        return None

    def _is_public_path(self, path: str) -> bool:
        if len(path) > _LONGEST:
            return False
        places = (self.root, self.given, *_PUBLIC)
        plain = os.path.normpath(path)
        plain = plain[1:] if plain.startswith("//") else plain
        if any(_is_beneath(plain, place) for place in places):
            return self.holds(os.path.realpath(path))
        # A pattern to look for may begin with a slash too, and then names nothing that is there.
        first = plain.lstrip("/").partition("/")[0]
        return bool(first) and not os.path.lexists(f"/{first}")

    def _is_link(self, name: str) -> bool:
        return os.path.islink(os.path.join(self.current, name))

    # -- file patterns ---------------------------------------------------------------------------------------

    def pattern_problem(self, pattern: str, text: str) -> str | None:
        """Why the names that a pattern becomes are not all of files in the folder, or `None`."""
        shown = safe_display(text, 60)
        if ".." in pattern.split("/") or any(_matches_dots(part) for part in pattern.split("/")):
            return f"{shown} may lead out of the folder"
        fixed = text[: re.search(r"[*?]", text).start()] if "*" in text or "?" in text else text  # type: ignore[union-attr]
        found = self.problem(fixed.rpartition("/")[0] or ("/" if fixed.startswith("/") else ""))
        if found is not None:
            return found
        try:
            for path, name in self._matches(pattern):
                if name.startswith("-"):
                    return f"{shown} becomes {safe_display(name, 60)}, which reads as an option"
                if not self.holds(os.path.realpath(path)):
                    return f"{shown} becomes {safe_display(name, 60)}, which leads out of the folder"
        except _TooMany:
            return f"{shown} is looked for among more files than are looked at here"
        return None

    def _matches(self, pattern: str) -> Iterator[tuple[str, str]]:
        """The paths that the pattern becomes, and how they are written."""
        parts = [part for part in pattern.split("/") if part]
        start = "/" if pattern.startswith("/") else ""
        found: list[tuple[str, str]] = [(start or self.current, start)]
        left = _MOST_LISTED
        for part in parts:
            if not re.search(r"[*?[]", part):
                found = [(os.path.join(path, part), f"{name}{part}/") for path, name in found]
                continue
            matcher = re.compile(fnmatch.translate(re.sub(r"\*+", "*", part)))
            following: list[tuple[str, str]] = []
            for path, name in found:
                entries = _names_in(path, left + 1)
                left -= len(entries)
                if left < 0:
                    raise _TooMany
                following += [
                    (os.path.join(path, entry), f"{name}{entry}/") for entry in entries if matcher.match(entry)
                ]
            found = following
        return iter([(path, name.rstrip("/")) for path, name in found if os.path.lexists(path)])

    # -- links in a tree -------------------------------------------------------------------------------------

    def has_way_out(self, folders: Iterable[str]) -> bool:
        """Whether a program that follows every link beneath these folders might leave ours."""
        left = _MOST_WALKED
        stack = [os.path.join(self.current, name) for name in folders]
        while stack:
            try:
                with os.scandir(stack.pop()) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0 or (entry.is_symlink() and not self.holds(os.path.realpath(entry.path))):
                            return True
                        if entry.is_dir(follow_symlinks=False):
                            stack.append(entry.path)
            except OSError:
                continue
        return False


class _TooMany(Exception):
    """There are more files than are looked at."""


def _names_in(folder: str, most: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, most)]
    except OSError:
        return []


def _matches_dots(part: str) -> bool:
    """Whether a part of a pattern may become `.` or `..`, which bash before 5.2 lets it."""
    if not part.startswith(".") or not re.search(r"[*?]", part):
        return False
    matcher = re.compile(fnmatch.translate(re.sub(r"\*+", "*", part)))
    return any(matcher.match(name) for name in (".", ".."))


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
