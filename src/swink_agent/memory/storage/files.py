"""All file operations of sessions, each in one place, so that a test can make any of them fail.

Owns opening, locking, writing, syncing and replacing files. `folder` and `log/session_log` decide what is written, and
when.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class FileOperations:
    """The operations of the operating system. A test passes a subclass that fails where it should."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    write = staticmethod(os.write)  # without a wrapper: it is called for every record
    """Writes once; returns how many bytes were written. The caller reuses the buffer: keep a copy."""

    truncate = staticmethod(os.ftruncate)

    def empty(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)

    def sync(self, descriptor: int) -> None:
        """Returns when the written data survives a loss of power."""
        full = getattr(fcntl, "F_FULLFSYNC", None)  # where fsync alone does not reach the disk
        if full is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, full)

    def lock(self, descriptor: int) -> bool:
        """Takes the lock of an open file, for this descriptor only; `False` if another holder has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, descriptor: int) -> None:
        """Releases the lock, also for a forked child process that has the file open too."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def is_locked(self, path: Path) -> bool:
        """Whether a process has the lock of a file. Only Linux can answer this without taking the lock."""
        try:
            status = os.stat(path)
            locks = Path("/proc/locks").read_text("ascii")
        except (OSError, ValueError):
            return False
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(fields[1] == "FLOCK" and device in fields for fields in map(str.split, locks.splitlines()))

    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    close = staticmethod(os.close)

    # -- combinations ------------------------------------------------------------------------------------------

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
    """Closes a file and releases its lock."""
    for step in (files.unlock, files.close):
        with suppress(OSError):  # nothing is lost: the data was synced before
            step(descriptor)


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether the entry can be a session: not a folder, nor a pipe, which would block a reader forever."""
    try:
        return entry.is_file()
    except OSError:
        return False  # a link to an inaccessible place
