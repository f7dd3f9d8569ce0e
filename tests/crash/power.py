"""A disk that loses power: all operations are recorded, and the disk can be rebuilt as of any moment.

Content that was synced survives. Of later writes, anything may survive: nothing, everything, a beginning, or the full
length with zeros for the rest. A name survives if the folder was synced after it was made; otherwise it may or may not,
independently of other names.

Owns the recording and rebuilds folders from it. The invariants are in the tests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from swink_agent.memory.storage.files import FileOperations


class Written(NamedTuple):
    inode: int
    data: bytes


class Truncated(NamedTuple):
    """Nothing of the file is left behind its first bytes."""

    inode: int
    size: int


class Synced(NamedTuple):
    inode: int


class Named(NamedTuple):
    """A name stands for a file from now on, or for none."""

    name: str
    inode: int | None


class Said(NamedTuple):
    """Somebody relies on something from now on."""

    line: list[Any]


Step = Written | Truncated | Synced | Named | Said


class Tape(FileOperations):
    """The real files, and all that was done to them, in order; nothing is waited for."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def say(self, *what: Any) -> None:
        self.steps.append(Said(list(what)))

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        descriptor = super().open(path, flags, mode)
        if flags & os.O_CREAT:
            self.steps.append(Named(path.name, os.fstat(descriptor).st_ino))
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        self.steps.append(Written(os.fstat(descriptor).st_ino, bytes(data)))  # it may be on disk before this returns
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        self.steps.append(Truncated(os.fstat(descriptor).st_ino, size))
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self.steps.append(Synced(os.fstat(descriptor).st_ino))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.steps += [Named(target.name, os.stat(target).st_ino), Named(source.name, None)]

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.steps.append(Named(path.name, None))


class Moment:
    """The disk after some steps of a tape, and what was relied on by then."""

    def __init__(self, folder: Path, before: dict[str, bytes]) -> None:
        self._folder = os.stat(folder).st_ino
        self._parent = os.stat(folder.parent).st_ino
        self.has_folder = bool(before)
        self.said: list[list[Any]] = []
        self._safe: dict[int, bytes] = {}
        self._later: dict[int, list[bytes]] = {}
        self._cut: dict[int, int] = {}
        """Where files were cut off that were not synced since, before anything was written behind."""
        self._names: dict[str, list[int | None]] = {}
        """Of each name, what it may stand for: what it surely did at the last sync, then each change since."""
        for number, (name, contents) in enumerate(before.items(), 1):
            self._safe[-number] = contents
            self._names[name] = [-number]

    def add(self, step: Step) -> None:
        match step:
            case Said(line):
                self.said.append(line)
            case Written(inode, data):
                self._later.setdefault(inode, []).append(data)
            case Truncated(inode, size):
                assert not self._later.get(inode), "only what is safe is cut off here"
                self._cut[inode] = size
            case Named(name, inode):
                self._names.setdefault(name, [None]).append(inode)
            case Synced(inode) if inode == self._folder:
                self._names = {name: changes[-1:] for name, changes in self._names.items()}
            case Synced(inode) if inode == self._parent:
                self.has_folder = True
            case Synced(inode):
                safe = self._safe.get(inode, b"")[: self._cut.pop(inode, None)]
                self._safe[inode] = safe + b"".join(self._later.pop(inode, []))

    def adopt(self, inode: int, name: str) -> None:
        """The file that had the name from the beginning is this one."""
        first = self._names[name][0]
        assert first is not None
        self._safe[inode] = self._safe[first]
        self._names[name] = [inode]

    def folders(self, dice: random.Random, several: int) -> Iterator[dict[str, bytes] | None]:
        """What may be there after a loss of power now: names and contents; `None` if the folder itself is gone."""
        if not self.has_folder:
            yield None
        for how in ["nothing", "all", "newest", *["cut", "zeros", "holes"] * several]:
            found: dict[str, bytes] = {}
            for name, changes in self._names.items():
                inode = changes[
                    0 if how == "nothing" else -1 if how in ("all", "newest") else dice.randrange(len(changes))
                ]
                if inode is not None:
                    found[name] = self._content(inode, how, dice)
            yield found

    def _content(self, inode: int, how: str, dice: random.Random) -> bytes:
        safe, left = self._safe.get(inode, b""), _left(self._later.get(inode, []), how, dice)
        cut = self._cut.get(inode)
        if cut is None:
            return safe + left
        is_shorter = how in ("all", "newest") or (how != "nothing" and dice.random() < 0.5)
        return safe[:cut] + left + (b"" if is_shorter else safe[cut + len(left) :])


def _left(writes: list[bytes], how: str, dice: random.Random) -> bytes:
    """What is left of writes that were not synced."""
    data = b"".join(writes)
    match how:
        case "nothing":
            return b""
        case "all":
            return data
        case "newest":  # the last write came first, as disks do
            return bytes(len(data) - len(writes[-1])) + writes[-1] if writes else b""
        case "cut":
            return data[: dice.randint(0, len(data))]
        case "zeros":
            kept = dice.randint(0, len(data))
            return data[:kept] + bytes(len(data) - kept)
        case _:
            return b"".join([write if dice.random() < 0.5 else bytes(len(write)) for write in writes])
