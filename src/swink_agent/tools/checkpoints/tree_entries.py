"""Reads a folder's tree: what is at each path, without following a link or running a program.

Every step opens one name in an open folder, never a path. Decides what is part of the tree; `store` keeps it and
`restoring` brings it back.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.machine.beneath import FILE, FOLDER
from swink_agent.core.machine.files import files_in_use, identity_of

from ..search.ignore import IgnoreLevel
from ..search.tree import level_of

Kind: TypeAlias = Literal["file", "folder", "link", "ignored", "unkept"]
"""`ignored` is a folder that git ignores, `unkept` an entry that cannot be copied. Only their names are known."""
KEPT = frozenset({"file", "folder", "link"})

_DEEPEST = 200
_MOST_SKIPPED = 100
_GIT = b".git"
_RULES_TAKE = 5.0
"""Seconds for matching git's ignore rules. After that, nothing more is ignored."""
_LARGEST = 2**63  # numbers from here on, which a file's times may have, cannot be stored
_CLOCK_TICK = 100_000_000
"""Nanoseconds in which a file may change twice and keep the same times, on all common file systems."""


class Entry(NamedTuple):
    """What is at a path. Two entries are equal if nothing that is kept differs."""

    kind: Kind
    mode: int
    """The permission bits; 0 for kinds that have none."""
    hash: str
    """Of the content, or of a link's target; empty for the rest."""


class Signature(NamedTuple):
    """Numbers from a file's status. If they are the same as before, so is the content."""

    inode: int
    size: int
    modified: int
    changed: int


class Seen(NamedTuple):
    """An entry, and the signature that it had when it was read; `None` if that could not show a later change."""

    entry: Entry
    signature: Signature | None


class TooManyFiles(Exception):
    """The tree has more entries than allowed."""


def hash_of(data: bytes) -> str:
    """The hash of a content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@contextmanager
def opened_root(root: str | os.PathLike[str]) -> Generator[int]:
    """Opens the folder. Its path must be real: no part may have become a link. Raises `OSError`."""
    from swink_agent.sandbox.repositories.quarantine import OpenFolder  # on use

    with OpenFolder(os.fspath(root), os.fspath(root)) as folder:
        yield folder.descriptor


def entry_at(folder: int, name: bytes, most_file: int) -> Entry | None:
    """What is at a name in an open folder now, content included. Raises `OSError`."""
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(state.st_mode):
        return Entry("folder", stat.S_IMODE(state.st_mode) & 0o777, "")
    if stat.S_ISLNK(state.st_mode):
        return Entry("link", 0, hash_of(os.fsencode(os.readlink(name, dir_fd=folder))))
    try:
        found = _read_file(folder, name, most_file) if stat.S_ISREG(state.st_mode) else None
    except PermissionError:
        return Entry("file", stat.S_IMODE(state.st_mode) & 0o777, "")  # it cannot be read
    if found is None:
        return Entry("unkept", 0, "")
    data, state = found
    return Entry("file", stat.S_IMODE(state.st_mode) & 0o777, hash_of(data))


class Tree:
    """One look at a tree. `entries` has everything found, by path from the root; `skipped` has paths that are not kept.

    `known` is the result of an earlier look: a file with the same signature is not read again, and whether git ignores
    a folder is decided when it is first seen. Otherwise a command could hide files from a look, or make old files look
    new, by changing a `.gitignore`. A file that this program itself uses, such as its database, is never read.
    """

    def __init__(
        self,
        root: int,
        known: Mapping[bytes, Seen],
        keep: Callable[[str, bytes], object] | None = None,
        *,
        most_file: int,
        most_files: int,
        without: str | os.PathLike[str],
        was_kept: Callable[[bytes], bool] = lambda path: False,
        may_be_taken_in: bool = True,
    ) -> None:
        """`keep` is given the hash and the content of each file and link that is read. Raises `TooManyFiles`.

        `without` is a folder that is not part of the tree: where the copies are. `was_kept` returns whether a path was
        ever kept as a folder. With `may_be_taken_in`, a folder that git no longer ignores becomes part of the tree.
        """
        self.entries: dict[bytes, Seen] = {}
        self.changed: set[bytes] = set()
        """The paths whose entry or signature is not what `known` has."""
        self.left_out: set[bytes] = set()
        """The paths of which only the name is known."""
        self.skipped: list[str] = []
        self._known = known
        self._keep = keep
        self._most_file = most_file
        self._most_files = most_files
        self._device = os.fstat(root).st_dev
        self._without = identity_of(without)
        self._was_kept = was_kept
        self._may_be_taken_in = may_be_taken_in
        self._in_use = files_in_use()
        self._sorted: list[bytes] | None = None
        self._rules_end = time.monotonic() + _RULES_TAKE
        self._walk(root, b"", b"", None, 0)

    def _walk(self, folder: int, own_name: bytes, path: bytes, above: IgnoreLevel | None, depth: int) -> None:
        try:
            listed = os.listdir(folder)
        except OSError:
            self._skip(path)
            return
        names = os.fsencode("/".join(listed)).split(b"/") if listed else []  # quicker than one by one
        level = level_of(folder, own_name, above, self._rules_end, names)
        beneath = path + b"/" if path else b""
        known, entries = self._known, self.entries
        for name in names:
            if name == _GIT:
                continue
            inner = beneath + name
            try:
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
                last = known.get(inner)
                # Most files are as they were last time. These lines cost most of a checkpoint.
                if (
                    last is not None
                    and last.signature == (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
                    and last.entry.mode == state.st_mode & 0o777
                ):
                    entries[inner] = last
                elif stat.S_ISDIR(state.st_mode):
                    self._enter(folder, name, inner, state, level, depth)
                else:
                    self._add(folder, name, inner, state)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError:
                self._unkept(inner)
        if len(entries) > self._most_files:
            raise TooManyFiles

    def _enter(
        self, folder: int, name: bytes, path: bytes, state: os.stat_result, level: IgnoreLevel, depth: int
    ) -> None:
        if (state.st_dev, state.st_ino) == self._without:
            return
        if state.st_dev != self._device or depth >= _DEEPEST:
            self._unkept(path)
            return
        known = self._known.get(path)
        kind = known.entry.kind if known is not None else None
        is_hidden = kind == "ignored" and not self._may_be_taken_in
        if is_hidden or (kind != "folder" and self._is_ignored(level, name) and not self._was_kept(path)):
            self._put(path, Seen(Entry("ignored", 0, ""), None))
            return
        try:
            descriptor = os.open(name, FOLDER, dir_fd=folder)
        except PermissionError:
            if kind != "folder":
                raise
            # Without the permission, nothing beneath it was changed.
            self._put(path, Seen(Entry("folder", stat.S_IMODE(state.st_mode) & 0o777, ""), None))
            for inner in self._known_beneath(path):
                self._put(inner, self._known[inner])
            return
        try:
            opened = os.fstat(descriptor)
            if opened.st_dev != self._device:
                self._unkept(path)
                return
            self._put(path, Seen(Entry("folder", stat.S_IMODE(opened.st_mode) & 0o777, ""), None))
            self._walk(descriptor, name, path, level, depth + 1)
        finally:
            os.close(descriptor)

    def _known_beneath(self, path: bytes) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self._known)
        return self._sorted[bisect_left(self._sorted, path + b"/") : bisect_left(self._sorted, path + b"0")]

    def _is_ignored(self, level: IgnoreLevel, name: bytes) -> bool:
        try:
            return level.is_ignored(name, True)
        except TimeoutError:
            return False

    def _add(self, folder: int, name: bytes, path: bytes, state: os.stat_result) -> None:
        if stat.S_ISLNK(state.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            found = hash_of(target)
            if self._keep is not None:
                self._keep(found, target)
            self._put(path, Seen(Entry("link", 0, found), None))
            return
        if not stat.S_ISREG(state.st_mode):
            self._put(path, Seen(Entry("unkept", 0, ""), None))  # a pipe, a socket or a device: nothing to miss
            return
        mode = stat.S_IMODE(state.st_mode) & 0o777
        known = self._known.get(path)
        if (state.st_dev, state.st_ino) in self._in_use:
            if known is None or known.entry.kind != "file":
                self._unkept(path)
            else:  # what has changed in it is not the work of a call
                self._put(path, known)
            return
        try:
            read = _read_file(folder, name, self._most_file)
        except PermissionError:
            if known is None or known.entry.kind != "file" or known.signature is None:
                raise
            if known.signature[:3] != _signature(state)[:3]:
                raise
            self._put(path, Seen(known.entry._replace(mode=mode), _signature(state)))  # only its permission changed
            return
        if read is None:
            self._unkept(path)
            return
        data, state = read
        found = hash_of(data)
        if self._keep is not None:
            self._keep(found, data)
        signature = _signature(state)
        is_settled = time.time_ns() - state.st_ctime_ns > _CLOCK_TICK and all(abs(n) < _LARGEST for n in signature)
        entry = Entry("file", stat.S_IMODE(state.st_mode) & 0o777, found)
        self._put(path, Seen(entry, signature if is_settled else None))

    def _unkept(self, path: bytes) -> None:
        self._skip(path)
        self._put(path, Seen(Entry("unkept", 0, ""), None))

    def _skip(self, path: bytes) -> None:
        if len(self.skipped) < _MOST_SKIPPED:
            self.skipped.append(os.fsdecode(path) or ".")

    def _put(self, path: bytes, seen: Seen) -> None:
        self.entries[path] = seen
        if seen.entry.kind not in KEPT:
            self.left_out.add(path)
        if self._known.get(path) != seen:
            self.changed.add(path)
        if len(self.entries) > self._most_files:
            raise TooManyFiles


def _signature(state: os.stat_result) -> Signature:
    return Signature(state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _read_file(folder: int, name: bytes, most: int) -> tuple[bytes, os.stat_result] | None:
    """The content of a regular file with its status; `None` for one that is too large, or that keeps changing."""
    descriptor = os.open(name, FILE, dir_fd=folder)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        for _ in range(3):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode) or before.st_size > most:
                return None
            file.seek(0)
            data = _read_all(file.read, most)
            after = os.fstat(descriptor)
            if data is not None and len(data) == after.st_size and _signature(before) == _signature(after):
                return data, after
    return None


def _read_all(read: Callable[[int], bytes | None], most: int) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while part := read(1024 * 1024):
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)
