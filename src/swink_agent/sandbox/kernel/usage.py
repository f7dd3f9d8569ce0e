"""Watches how much memory a command uses, and how much it leaves of a disk.

A look is one small read while the machine has enough of both. Landlock's launcher loads this module: the standard
library only.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import NamedTuple

from swink_agent.sandbox.kernel.headcount import children_of

_SHARE = 10  # counting uses at most one part in this many of a processor
_DISK_AGAIN = 0.1
_MEMINFO = re.compile(rb"MemTotal: +(\d+) kB\n.*?MemAvailable: +(\d+) kB", re.DOTALL)
_PROPORTIONAL = re.compile(rb"^Pss: +(\d+) kB", re.MULTILINE)
_OF_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_FIRST_TO_GO = b"500"
_LEAST_FILES = 10_000
_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


class Usage:
    """Watches the processes beneath one. Call `reason_to_end` as often as the processes are counted."""

    def __init__(self, root: int, *, memory: int | None, disk: int | None, folders: Iterable[str] = ()) -> None:
        """`memory`: bytes that they may use together. `disk`: bytes that stay free on the disks of these folders.

        If less than twice that is free already, half of what is free stays. The same holds for 10,000 more files.
        """
        self._root = root
        self._memory = memory
        self._disks = {} if disk is None else _disks(folders, disk)
        self._count_at = self._disk_at = 0.0

    def reason_to_end(self) -> str:
        """Why a command that uses too much is killed, or an empty text."""
        now = time.monotonic()
        if self._memory is not None and now >= self._count_at and _may_be_used(self._memory):
            started = time.thread_time()
            processes = [self._root]
            for pid in processes:
                processes += children_of(pid)
            # Pages that several of them share count once.
            is_too_much = all(sum(map(held, processes)) > self._memory for held in (_resident, _proportional))
            self._count_at = now + _SHARE * (time.thread_time() - started)
            if is_too_much:
                return f"it used more than {_shown(self._memory)} of memory"
        if now >= self._disk_at:
            self._disk_at = now + _DISK_AGAIN
            for folder, least in self._disks.items():
                left = _left(folder)
                if left is not None and left.size < least.size:
                    return f"less than {_shown(least.size)} was left on the disk of {folder}"
                if left is not None and left.files < least.files:
                    return f"fewer than {least.files:,} more files fit on the disk of {folder}"
        return ""


def memory_of_machine() -> int | None:
    """The bytes of memory that this machine or container has; `None` if that is not known."""
    sizes: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _OF_GROUPS:
        with suppress(OSError, ValueError), open(path, "rb") as file:  # "max" means no limit
            sizes.append(int(file.read(64)))
    return min(sizes, default=None)


def offer_to_the_kernel(pid: int | str) -> None:
    """Lets the kernel kill this process and its children before others, if the machine has no memory left."""
    with suppress(OSError):
        descriptor = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, _FIRST_TO_GO)
        finally:
            os.close(descriptor)


@contextmanager
def offering_children_to_the_kernel() -> Generator[None]:
    """Does the same for processes that this one forks meanwhile, which inherit it; then resets this process.

    A child under Landlock cannot do that itself: it may not open the file. One that is open can still be written.
    """
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        before = os.pread(descriptor, 16, 0)
        if int(before) < int(_FIRST_TO_GO):
            with suppress(OSError):
                os.pwrite(descriptor, _FIRST_TO_GO, 0)
        yield
        with suppress(OSError):
            os.pwrite(descriptor, before, 0)
    finally:
        os.close(descriptor)


def _may_be_used(most: int) -> bool:
    """Whether the whole machine may use more than that."""
    try:
        with open("/proc/meminfo", "rb", buffering=0) as file:
            found = _MEMINFO.match(file.read(256))
    except OSError:
        return False  # another system, whose processes cannot be looked at in this way
    return found is None or 1024 * (int(found[1]) - int(found[2])) > most


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read(128).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has ended
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            found = _PROPORTIONAL.search(file.read(4096))
    except OSError:  # it has ended, or may not be looked at
        return _resident(pid)
    return 1024 * int(found[1]) if found is not None else _resident(pid)


class _Left(NamedTuple):
    """What is left of a disk: bytes, and files that can still be made (a huge number if they are not counted)."""

    size: int
    files: int


def _disks(folders: Iterable[str], least: int) -> dict[str, _Left]:
    """A folder on each disk, and what must stay free there."""
    found: dict[int, tuple[str, _Left]] = {}
    for folder in folders:
        with suppress(OSError):
            device = os.stat(folder).st_dev
            if device not in found and (left := _left(folder)) is not None:
                found[device] = (folder, _Left(min(least, left.size // 2), min(_LEAST_FILES, left.files // 2)))
    return dict(found.values())


def _left(folder: str) -> _Left | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    if not disk.f_blocks:
        return None
    return _Left(disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else sys.maxsize)


def _shown(size: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, "bytes"))
    return f"{size / unit:.3g} {name}"
