"""What a session does to the disk, each step in one place, so that a test can make any of them fail.

Owns opening, locking, writing, syncing and replacing files. What is written and when is for `log` and `repair`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["FileOperations", "close_quietly", "is_file"]


class FileOperations:
    """The operating system's own. A test gives a subclass that fails where it should."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    write = staticmethod(os.write)  # the system's own, without a call around it: it is done for every record
    """Writes once; returns how many bytes were taken. What it is given is used again after it returns: keep a copy."""

    def empty(self, descriptor: int) -> None:
        """Takes everything out of a file."""
        os.ftruncate(descriptor, 0)

    def sync(self, descriptor: int) -> None:
        """Returns when what was written would survive a loss of power."""
        full = getattr(fcntl, "F_FULLFSYNC", None)  # where fsync alone does not reach the disk
        if full is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, full)

    def lock(self, descriptor: int) -> bool:
        """Takes the lock of an open file, for this opening of it alone; `False` if somebody else has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, descriptor: int) -> None:
        """Gives the lock back, also for a child process that was forked meanwhile and has the file open too."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def is_locked(self, path: Path) -> bool:
        """Whether somebody has the lock of a file now, as far as that can be told without taking it: on Linux."""
        try:
            status = os.stat(path)
            locks = Path("/proc/locks").read_text("ascii")
        except (OSError, ValueError):
            return False
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(fields[1] == "FLOCK" and device in fields for fields in map(str.split, locks.splitlines()))

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    # -- made of these -----------------------------------------------------------------------------------------

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in a folder survive a loss of power."""
        descriptor = self.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync(descriptor)
        finally:
            close_quietly(self, descriptor)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """Writes all of it, in as many steps as it takes. Raises `OSError`."""
        view = memoryview(data)
        while view:
            view = view[self.write(descriptor, bytes(view[: 1 << 24])) :]


def close_quietly(files: FileOperations, descriptor: int) -> None:
    """Closes a file, and gives its lock back."""
    for step in (files.unlock, files.close):
        try:
            step(descriptor)
        except OSError:
            pass  # nothing is lost: what counts was synced before


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it can be a session: no folder, and no pipe, at which a reader would wait for ever."""
    try:
        return entry.is_file()
    except OSError:
        return False  # a link to a place that cannot be seen
