"""Decides where the words of a command lead, following folders, links and file patterns on the disk.

The question is whether a word stays in the folder that the model works in. The answer holds for the disk as it is now,
takes bounded effort, and is "no" if the bound is reached. `reading` decides which words name files. The sandbox makes
sure that nothing hidden can be read, even if the disk changes before the command runs.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice

from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox.kernel.mounts import is_in

# Parts of the operating system, which reveal nothing about the user.
_PUBLIC = ("/bin", "/dev/null", "/etc/os-release", "/lib", "/lib64", "/proc/cpuinfo", "/proc/meminfo", "/usr")
_LONGEST = 4096  # of a path, on most systems
_MOST_LISTED = 5_000
_MOST_WALKED = 20_000


class Place:
    """A folder in which a command runs, beneath the one that the model works in."""

    def __init__(self, root: str, current: str | None = None) -> None:
        self.given = os.path.normpath(root)
        self._root = root
        self._current = current

    @cached_property
    def root(self) -> str:
        """The folder that the model works in, without links. Found on use: most commands name no file."""
        return os.path.realpath(self._root)

    @property
    def current(self) -> str:
        return self.root if self._current is None else self._current

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.root, self.current) == (other.root, other.current)

    def __hash__(self) -> int:
        return hash(Place)  # few are ever compared

    def holds(self, path: str) -> bool:
        """Whether a path without links is in the folder or in a public one."""
        return is_in(path, (self.root, *_PUBLIC))

    def folder(self, name: str) -> Place | None:
        """The place that `cd` leads to: an existing folder in ours, without a link on the way."""
        if not name or name.startswith("-") or len(name) > _LONGEST:
            return None
        # For `..`, bash drops a name and the kernel goes to the parent folder: without links the two agree.
        path = os.path.normpath(os.path.join(self.current, name))
        if is_in(path, (self.given,)):
            path = self.root + path[len(self.given) :]
        if path != os.path.realpath(path) or not is_in(path, (self.root,)) or not os.path.isdir(path):
            return None
        return Place(self.root, path)

    def problem(self, text: str) -> str | None:
        """Why the text may name something outside of the folder, or `None`."""
        if os.path.isabs(text):
            return None if self._is_public_path(text) else f"{safe_display(text, 60)} leads out of the folder"
        if not text or (".." not in text and "/" not in text and not os.path.islink(os.path.join(self.current, text))):
            return None
        if len(text) > _LONGEST or not self.holds(os.path.realpath(os.path.join(self.current, text))):
            return f"{safe_display(text, 60)} leads out of the folder"
        return None

    def _is_public_path(self, path: str) -> bool:
        if len(path) > _LONGEST:
            return False
        plain = os.path.normpath(path)
        plain = plain[1:] if plain.startswith("//") else plain
        if is_in(plain, (self.root, self.given, *_PUBLIC)):
            return self.holds(os.path.realpath(path))
        # A search pattern may begin with a slash too; then it names nothing that exists.
        first = plain.lstrip("/").partition("/")[0]
        return bool(first) and not os.path.lexists(f"/{first}")

    # -- file patterns ---------------------------------------------------------------------------------------

    def becomes_something(self, pattern: str) -> bool:
        """Whether the pattern matches a name; otherwise bash leaves it as it is."""
        try:
            return any(True for _ in self._matches(pattern))
        except _TooMany:
            return True

    def pattern_problem(self, pattern: str, text: str, *, splits: bool = False) -> str | None:
        """Why some of the names that the pattern expands to are not files in the folder, or `None`.

        `splits`: bash splits and expands the names once more.
        """
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
                if splits and re.search(r"[\s*?\[\\]", name):
                    return f"{shown} becomes {safe_display(name, 60)}, which is split into words"
                if not self.holds(os.path.realpath(path)):
                    return f"{shown} becomes {safe_display(name, 60)}, which leads out of the folder"
        except _TooMany:
            return f"{shown} is searched for among more files than are checked here"
        return None

    def _matches(self, pattern: str) -> Iterator[tuple[str, str]]:
        """The paths that the pattern expands to, and how they are written."""
        parts = [part for part in pattern.split("/") if part]
        start = "/" if pattern.startswith("/") else ""
        found: list[tuple[str, str]] = [(start or self.current, start)]
        left = _MOST_LISTED
        for part in parts:
            if not re.search(r"[*?[]", part):
                found = [(os.path.join(path, part), f"{name}{part}/") for path, name in found]
                continue
            matcher = re.compile(fnmatch.translate(re.sub(r"\*+", "*", part)))
            # The locale decides how many characters a name that is not ASCII has: in some, each byte is one.
            loose = re.compile(fnmatch.translate(re.sub(r"[*?]+(?!\])", "*", part)))
            following: list[tuple[str, str]] = []
            for path, name in found:
                entries: list[str] = []
                with suppress(OSError), os.scandir(path) as listed:
                    entries = [entry.name for entry in islice(listed, left + 1)]
                left -= len(entries)
                if left < 0:
                    raise _TooMany
                following += [
                    (os.path.join(path, entry), f"{name}{entry}/")
                    for entry in entries
                    if (matcher if entry.isascii() else loose).match(entry)
                ]
            found = following
        return iter([(path, name.rstrip("/")) for path, name in found if os.path.lexists(path)])

    # -- links in a tree -------------------------------------------------------------------------------------

    def has_way_out(self, folders: Iterable[str]) -> bool:
        """Whether a program that follows every link beneath these folders could leave ours."""
        try:
            return any(map(self._leads_out, _entries_beneath(os.path.join(self.current, name) for name in folders)))
        except _TooMany:
            return True

    def is_plain(self) -> bool:
        """Whether names of files beneath can be passed on as words: none leads out, is split, or is like an option."""
        try:
            return not any(
                re.search(r"^-|[\s'\"\\]", entry.name) or not entry.name.isprintable() or self._leads_out(entry)
                for entry in _entries_beneath([self.root])
            )
        except _TooMany:
            return False

    def _leads_out(self, entry: os.DirEntry[str]) -> bool:
        return entry.is_symlink() and not self.holds(os.path.realpath(entry.path))


class _TooMany(Exception):
    """There are more files than are checked."""


def _entries_beneath(folders: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """Every entry beneath the folders. Raises `_TooMany`."""
    left = _MOST_WALKED
    stack = list(folders)
    while stack:
        with suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    raise _TooMany
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)


def _matches_dots(part: str) -> bool:
    """Whether a part of a pattern may match `.` or `..`, as it does in bash before 5.2."""
    if not part.startswith(".") or not re.search(r"[*?]", part):
        return False
    matcher = re.compile(fnmatch.translate(re.sub(r"\*+", "*", part)))
    return any(matcher.match(name) for name in (".", ".."))
