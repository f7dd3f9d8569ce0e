"""Changes that a command makes to the settings of a repository that is held: taken over by content, or refused.

Git writes its configuration to `config.lock` and renames that over `config`. Where `config` is held, nothing may be
renamed over it, so the rename is a question to us: what is to be there is read once, compared with what is there, and
written into the very same file if all that differs is harmless. What is dangerous is never on the disk under the name
that git reads, not for a moment. Owns the comparison and the writing; who asks, and how, is the back ends' own. Loaded
by the launcher: the standard library alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable

from swink_agent.sandbox.repositories.git_config import Setting, is_harmless, is_plain, read_settings

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
"""With these git looks for hooks or objects elsewhere, or takes files for others: only their owner changes them."""
_WHERE_TO = frozenset({"remote", "pushremote", "merge"})

_QUOTED_LINE = re.compile(
    r"""[ \t]*(?:\[[A-Za-z0-9-]+[ ]"(?:[^"\\]|\\["\\])*"\]
    |[A-Za-z][A-Za-z0-9-]*[ ]=[ ](?:[^"\\#;]|"(?:[^"\\]|\\["\\nt])*"|\\["\\nt])*)""",
    re.VERBOSE | re.ASCII,
)


class Refused(Exception):
    """A change that is not taken over; `str()` says why."""


def is_settings(path: str) -> bool:
    """Whether a path is named like a configuration of git's."""
    return os.path.basename(path) in _NAMES


class Admissions:
    """The changes of one command. `told()`, at its end, is what a user should know of them."""

    def __init__(self, settings: Iterable[str]) -> None:
        """`settings`: the paths of what is held and may be asked about."""
        self._settings = frozenset(settings)
        self._refused: dict[str, None] = {}
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}

    def concern(self, source: str, target: str) -> bool:
        """Whether a rename is git's own way to change one of them."""
        return target in self._settings and source == target + LOCK

    def take_over(self, folder: int, path: str) -> None:
        """Makes what is in the lock beside `path` its content, and removes the former. `folder`: the one it is in.

        The file stays the same one, as mounts stand on it.

        Raises:
            OSError: it would do more than set something harmless, there is no such file, it is no plain one, or it
                has other names.
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
        # In one step, at most followed by empty lines: whoever reads it meanwhile reads either of the two.
        os.pwrite(file, new + b"\n" * (len(old or b"") - len(new)), 0)
        os.ftruncate(file, len(new))
    finally:
        os.close(file)
    os.unlink(lock, dir_fd=folder)
    return _text(old or b""), _text(new)


def _read(folder: int, name: str, *, alone: bool = False) -> bytes | None:
    """What a plain file holds, or nothing where there is none. `alone`: that it must have no other name."""
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
        raise Refused("it is too large to be looked at")
    return data


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# -- the comparison ----------------------------------------------------------------------------------------------


def compare(old: str, new: str) -> None:
    """Raises `Refused` if something that is not harmless would come, go, or change its place among its like."""
    before, was_whole = read_settings(old)
    after, is_whole = read_settings(new)
    if not was_whole or not is_whole or _is_odd(old, new):
        raise Refused("what git, or we, cannot read for certain is not written by a command")
    fixed_before, fixed_after = [s for s in before if _is_fixed(s)], [s for s in after if _is_fixed(s)]
    if fixed_before != fixed_after:
        moved = _differing(fixed_before, fixed_after) or fixed_after
        raise Refused(f"{_named(moved)} can make git run programs, or look elsewhere for them")


def led_elsewhere(old: str, new: str) -> str:
    """The names of settings by which something that was there is fetched from, or pushed to, another place."""
    before, after = read_settings(old)[0], read_settings(new)[0]
    return _named(setting for setting in _differing(before, after) if _leads_elsewhere(setting, before, after))


def _is_fixed(setting: Setting) -> bool:
    return str(setting) in _OF_THE_LAYOUT or not is_harmless(setting, lambda place: False)


def _is_odd(old: str, new: str) -> bool:
    """Whether it has lines, not there before, that somebody could read differently from us."""
    added = Counter(new.split("\n")) - Counter(old.split("\n"))
    return not all(is_plain(line) or (_QUOTED_LINE.fullmatch(line) and line.isprintable()) for line in _tabless(added))


def _tabless(lines: Iterable[str]) -> list[str]:
    return [line.lstrip("\t") for line in lines]


def _differing(before: list[Setting], after: list[Setting]) -> list[Setting]:
    return [*(Counter(after) - Counter(before)), *(Counter(before) - Counter(after))]


def _leads_elsewhere(setting: Setting, before: list[Setting], after: list[Setting]) -> bool:
    """Whether it is of a remote, or of where a branch goes to, that was there before and still is."""
    section, subsection, name, _ = setting
    if section == "remote" and subsection is not None:
        return all(any(other[:2] == (section, subsection) for other in those) for those in (before, after))
    if section == "branch" and subsection is not None and name in _WHERE_TO:
        return all(any(other[:3] == (section, subsection, name) for other in those) for those in (before, after))
    return section == "push"


def _named(settings: Iterable[Setting]) -> str:
    names = list(dict.fromkeys(re.sub(r"[^\x20-\x7e]", "?", str(setting))[:_LONGEST_NAME] for setting in settings))
    return ", ".join(names[:_MOST_NAMED])
