"""Applies the harmless changes that a command makes to a read-only git configuration, and refuses the others.

Git writes its configuration to `config.lock` and renames that over `config`. Where `config` is read-only, the back end
sends us the rename instead: the new content is read once, compared with the old, and written into the same file if only
harmless settings differ. Refused content is never on the disk under the name that git reads, not even for a moment.
This module compares and writes; the back ends intercept the rename. The launcher loads it: the standard library only.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable

from swink_agent.sandbox.repositories.git_config import Setting, is_harmless, is_unambiguous, read_settings

LOCK = ".lock"
_NAMES = ("config", "config.worktree")
_LARGEST = 256 * 1024
_MOST_NAMED = 8
_MOST_TOLD = 20
_LONGEST_NAME = 80
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_OF_THE_LAYOUT = frozenset(
    {"core.bare", "core.worktree", "core.filemode", "core.symlinks", "core.ignorecase", "extensions.objectformat"}
    | {"extensions.refstorage", "extensions.partialclone", "extensions.preciousobjects"}
)
"""They change where git looks for hooks or objects, or how it compares files: only the user may set them."""
_WHERE_TO = frozenset({"remote", "pushremote", "merge"})


class Refused(Exception):
    """A change that is not applied; `str()` is the reason."""


def is_settings(path: str) -> bool:
    """Whether a path has the name of a git configuration file."""
    return path.rpartition("/")[2] in _NAMES


class Admissions:
    """The configuration changes of one command. `told()` returns what the user should know about them at its end."""

    def __init__(self, settings: Iterable[str]) -> None:
        """`settings`: the paths of the read-only configurations that may be changed this way."""
        self._settings = frozenset(settings)
        self._refused: dict[str, None] = {}
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}

    def concern(self, source: str, target: str) -> bool:
        """Whether the rename is how git changes one of these configurations."""
        return target in self._settings and source == target + LOCK

    def take_over(self, folder: int, path: str) -> None:
        """Copies the content of the lock beside `path` into it and removes the lock. `folder`: the open parent folder.

        The file keeps its inode, because mounts depend on it.

        Raises:
            OSError: the change is not harmless, the lock is missing, one of the two is not a regular file, or the
                configuration has other names.
        """
        try:
            old, new = _take_over(folder, os.path.basename(path))
        except Refused as error:
            if len(self._refused) < _MOST_TOLD:
                self._refused[f"{path!r} was not changed: {error}"] = None
            raise OSError(errno.EACCES, os.strerror(errno.EACCES)) from None
        self._first.setdefault(path, old)
        self._last[path] = new

    def told(self) -> list[str]:
        led = {path: led_elsewhere(old, self._last[path]) for path, old in self._first.items()}
        changes = [
            f"{path!r}: {names} changed, see where it leads before you push" for path, names in led.items() if names
        ]
        return [*self._refused, *changes][:_MOST_TOLD]


def _take_over(folder: int, name: str) -> tuple[str, str]:
    lock = name + LOCK
    new = _read(folder, lock)
    if new is None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    old = _read(folder, name, alone=True)
    compare(_text(old or b""), _text(new))
    file = os.open(name, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if old is None else 0) | _FILE, 0o644, dir_fd=folder)
    try:
        # One write, padded with empty lines: until the file is truncated, no end of the old settings follows the new
        # ones. Only a reader in the middle of the write may see a part of each.
        os.pwrite(file, new + b"\n" * (len(old or b"") - len(new)), 0)
        os.ftruncate(file, len(new))
    finally:
        os.close(file)
    os.unlink(lock, dir_fd=folder)
    return _text(old or b""), _text(new)


def _read(folder: int, name: str, *, alone: bool = False) -> bytes | None:
    """The content of a regular file, or `None` if it does not exist. `alone`: it must not have a second name."""
    try:
        file = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or (alone and state.st_nlink != 1):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        data = os.pread(file, _LARGEST + 1, 0)
    finally:
        os.close(file)
    if len(data) > _LARGEST:
        raise Refused("it is too large to be checked")
    return data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# -- the comparison ----------------------------------------------------------------------------------------------


def compare(old: str, new: str) -> None:
    """Raises `Refused` if a setting that is not harmless would be added, removed, or moved among its kind."""
    before, was_whole = read_settings(old)
    after, is_whole = read_settings(new)
    added = Counter(new.split("\n")) - Counter(old.split("\n"))
    if not was_whole or not is_whole or not all(map(is_unambiguous, added)):
        raise Refused("it has lines that cannot be read, or that programs read differently")
    fixed_before, fixed_after = [s for s in before if _is_fixed(s)], [s for s in after if _is_fixed(s)]
    if fixed_before != fixed_after:
        moved = _differing(fixed_before, fixed_after) or fixed_after
        raise Refused(f"{_named(moved)} can make git run programs, or look elsewhere for them")


def led_elsewhere(old: str, new: str) -> str:
    """The names of changed settings that make existing remotes or branches fetch from or push to another place."""
    before, after = read_settings(old)[0], read_settings(new)[0]
    return _named(setting for setting in _differing(before, after) if _leads_elsewhere(setting, before, after))


def _is_fixed(setting: Setting) -> bool:
    return str(setting) in _OF_THE_LAYOUT or not is_harmless(setting, lambda place: False)


def _differing(before: list[Setting], after: list[Setting]) -> list[Setting]:
    return [*(Counter(after) - Counter(before)), *(Counter(before) - Counter(after))]


def _leads_elsewhere(setting: Setting, before: list[Setting], after: list[Setting]) -> bool:
    """Whether it belongs to a remote, or to a branch's upstream, that existed before and still exists."""
    section, subsection, name, _ = setting
    if section == "remote" and subsection is not None:
        return all(any(other[:2] == (section, subsection) for other in those) for those in (before, after))
    if section == "branch" and subsection is not None and name in _WHERE_TO:
        return all(any(other[:3] == (section, subsection, name) for other in those) for those in (before, after))
    return section == "push"


def _named(settings: Iterable[Setting]) -> str:
    names = list(dict.fromkeys(re.sub(r"[^\x20-\x7e]", "?", str(setting))[:_LONGEST_NAME] for setting in settings))
    return ", ".join(names[:_MOST_NAMED])
