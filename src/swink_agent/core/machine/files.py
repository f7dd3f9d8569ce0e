"""Files: which one a path leads to, and how one is locked, written and replaced.

A replaced file has the old content or the new one for every reader, never a part, even after a crash.

Code that writes whole files uses these functions. Some places need their own way: file tools work beneath a folder by
descriptors and check the file again just before the rename (`tools/workspace/place`, `tools/checkpoints/restoring`), a
session locks its copy before the rename (`memory/storage/folder`), and a masking key never replaces another
(`app/keys/masking_key`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no locks, such as some of a network."""


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    sync: bool = True,
    sync_name: bool = False,
    fsync: Callable[[int], None] | None = None,
) -> Generator[BinaryIO]:
    """Opens a new file that takes the name `path` at the end of the block, or is deleted if the block raises.

    With `sync`, the content is on disk before the file takes the name. With `sync_name`, the name is on disk when the
    block ends; without it, a crash may bring the old file back. The folder must exist. Raises `OSError`.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            if sync:
                (fsync or os.fsync)(descriptor)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if sync_name:
        sync_folder(target.parent, fsync)


def replace_file(
    path: str | os.PathLike[str],
    data: bytes,
    *,
    mode: int = 0o600,
    sync: bool = True,
    sync_name: bool = False,
    fsync: Callable[[int], None] | None = None,
) -> None:
    """Gives a file this content in one step. The options are those of `replacing`. Raises `OSError`."""
    with replacing(path, mode=mode, sync=sync, sync_name=sync_name, fsync=fsync) as file:
        file.write(data)


def make_private(path: str | os.PathLike[str]) -> bool:
    """Makes an empty file that only this user can read, unless the name is taken; returns whether it did.

    It is for databases: the file is closed before it has its name. SQLite loses its locks on a file whenever this
    process closes it, also through another descriptor. The folder must exist. Raises `OSError`.
    """
    target = Path(path)
    if os.path.lexists(target):
        return False
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        os.close(descriptor)
        try:
            os.link(name, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            try:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                return False
        return True
    finally:
        os.unlink(name)


@contextmanager
def locked(path: str | os.PathLike[str], patience: float) -> Generator[bool]:
    """Takes the lock that programs and threads share for a file; yields whether it got it.

    Waits `patience` seconds at most: the holder may be suspended. The lock is a file next to it, which stays; its
    folder must exist. Names that lead to one file through links share its lock. A file system without locks gives it to
    everyone. Raises `OSError`.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a device, for instance: its folder does not get a lock
        target = Path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(target.with_name(f".{target.name}.lock"), flags, 0o600)
    is_ours = is_locked = False
    try:
        until = time.monotonic() + patience
        while not is_ours:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = is_locked = True
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.005)
            except OSError as error:
                if error.errno not in _WITHOUT_LOCKS:
                    raise
                is_ours = True
        yield is_ours
    finally:
        if is_locked:  # a child process that was forked meanwhile has the file open too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def sync_folder(folder: str | os.PathLike[str], fsync: Callable[[int], None] | None = None) -> None:
    """Makes the names in a folder survive a loss of power. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (fsync or os.fsync)(descriptor)
    finally:
        os.close(descriptor)


def write_fully(descriptor: int, data: bytes) -> None:
    """Writes all of the data: the system may write only a part of it at a time. Raises `OSError`."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def identity_of(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Returns the device and the inode of what a path leads to; `None` if nothing is there."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def files_in_use() -> frozenset[tuple[int, int]]:
    """Returns the device and the inode of each file that this process has open for reading and writing.

    Databases are among them, and files with locks. Code that opens files which others name must leave these alone: when
    a process closes a file, all its record locks on it end, also those that it took through another descriptor. Then
    another process takes SQLite's database for unused, and deletes what was not moved into it yet.
    """
    found: set[tuple[int, int]] = set()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # closed meanwhile
            if fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
                status = os.fstat(int(name))
                if stat.S_ISREG(status.st_mode):
                    found.add((status.st_dev, status.st_ino))
    return frozenset(found)
