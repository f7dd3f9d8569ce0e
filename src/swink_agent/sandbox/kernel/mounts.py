"""Finds the real path of a file, and its other paths by the kernel's list of mounts.

Landlock's launcher loads this module: the standard library only.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_ANSWERED_ELSEWHERE = (b"fuse", b"nfs", b"cifs", b"smb", b"9p", b"afs", b"ceph", b"autofs", b"lustre", b"glusterfs")


def hidden_places(paths: Iterable[str], mounts: Sequence[Mount] | None = None) -> set[str]:
    """The real paths of hidden paths, and the places where the same files are mounted again."""
    mounts = read_mounts() if mounts is None else mounts
    places = set(real_paths(paths)) - {"/"}
    return places.union(*(mounted_again(place, mounts) for place in places))


def real_paths(paths: Iterable[str]) -> Iterator[str]:
    """`os.path.realpath` of each, with few system calls for many paths in few folders."""
    folders: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if name in ("", os.path.curdir, os.path.pardir) or os.path.islink(path):
            yield os.path.realpath(path)
        else:
            real = folders.get(folder) or folders.setdefault(folder, os.path.realpath(folder))
            yield os.path.join(real, name)


class Mount(NamedTuple):
    device: str
    root: str
    point: str


def read_mounts(path: str = "/proc/self/mountinfo") -> list[Mount]:
    try:
        with open(path, "rb") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [Mount(row[2].decode(), _unescape(row[3]), _unescape(row[4])) for row in rows if len(row) > 4]


def network_mounts(path: str = "/proc/self/mountinfo") -> frozenset[str]:
    """Mount points of file systems that depend on another program or machine, which may not answer."""
    try:
        with open(path, "rb") as file:
            rows = [line.split(b" - ", 1) for line in file]
    except OSError:
        return frozenset()
    slow = [row[0].split()[4] for row in rows if len(row) == 2 and row[1].startswith(_ANSWERED_ELSEWHERE)]
    return frozenset(map(_unescape, slow))


def _unescape(field: bytes) -> str:
    for code in (b" ", b"\t", b"\n", b"\\"):
        field = field.replace(b"\\%03o" % code[0], code)
    return os.fsdecode(field)


def mounted_again(path: str, mounts: Sequence[Mount]) -> Iterator[str]:
    """The other paths of `path`, or of something in it, through a second mount of the same file system."""
    own = max(
        (mount for mount in mounts if is_in(path, (mount.point,))), key=lambda mount: len(mount.point), default=None
    )
    if own is None:
        return
    inner = os.path.normpath(own.root + "/" + path[len(own.point.rstrip("/")) :])
    for mount in mounts:
        if mount.device != own.device or mount.point == own.point:
            continue
        if is_in(inner, (mount.root,)):
            yield os.path.normpath(mount.point + "/" + inner[len(mount.root.rstrip("/")) :])
        elif is_in(mount.root, (inner,)):
            yield mount.point


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether `path` is one of the folders, or in one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


class MountList:
    """The current mounts, read again only when the kernel reports a change."""

    def __init__(self, path: str = "/proc/self/mountinfo") -> None:
        self._path = path
        self._mounts: list[Mount] = []
        try:
            self._file = open(path, "rb")  # noqa: SIM115  kept open, because the kernel reports changes through it
            self._mounts = read_mounts(path)
        except OSError:
            self._file = None

    def has_changed(self) -> bool:
        """Whether something was mounted or unmounted since the last call."""
        if self._file is None:
            return False
        poll = select.poll()  # one for each call: threads may call at once, and one object does not support that
        poll.register(self._file, select.POLLPRI)
        return bool(poll.poll(0))

    def now(self) -> list[Mount]:
        """The list, which is the same object while nothing has changed."""
        if self.has_changed():
            self._mounts = read_mounts(self._path)
        return self._mounts

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
