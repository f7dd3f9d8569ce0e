"""Opens what is beneath a folder: one name after the other, each in the folder before it, and never through a link.

A path that is checked and then opened by name may lead elsewhere by then. Here another program may swap any name
meanwhile: what is opened is beneath the folder, or nothing is. Pipes and devices are not waited for.

Two places have their own way: `tools/workspace/beneath` follows links that stay beneath, and the search tool's scanner
(`tools/search/tree`) and the sandbox's launcher run without this package.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a folder."""
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags for what should be a regular file: the kernel does not wait for anything else."""

Name = str | bytes


@contextmanager
def opened_folder(path: str | os.PathLike[str], *, is_followed: bool = False) -> Generator[int]:
    """Holds a folder open. With `is_followed` its last name may be a link. Raises `OSError`."""
    descriptor = os.open(path, FOLDER & ~os.O_NOFOLLOW if is_followed else FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def folder_beneath(root: int, parts: Sequence[Name]) -> Generator[int]:
    """Holds the folder open to which these names lead from an open folder. Raises `OSError`."""
    here = os.dup(root)
    try:
        for part in parts:
            inner = os.open(_one_name(part), FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def open_file_in(folder: int, name: Name) -> int:
    """Opens a regular file in an open folder, for reading.

    Raises `OSError`, with `ELOOP` for a link, `EISDIR` for a folder, and `EINVAL` for another kind of file.
    """
    name = _one_name(name)
    _refuse_irregular(os.stat(name, dir_fd=folder, follow_symlinks=False), name)  # opening a device may do something
    descriptor = os.open(name, FILE, dir_fd=folder)
    try:
        _refuse_irregular(os.fstat(descriptor), name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_beneath(root: int, parts: Sequence[Name], most: int) -> bytes:
    """The content of a regular file beneath an open folder.

    Raises `OSError`, with `EFBIG` if it has more bytes than `most`.
    """
    if not parts:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with folder_beneath(root, parts[:-1]) as folder, open(open_file_in(folder, parts[-1]), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fsdecode(parts[-1]))
    return content


def _one_name(name: Name) -> Name:
    text = os.fsdecode(name)
    if text in ("", ".", "..") or "/" in text or "\0" in text:
        raise OSError(errno.EINVAL, "is not a name in a folder", text)
    return name


def _refuse_irregular(status: os.stat_result, name: Name) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    for is_kind, code in ((stat.S_ISLNK, errno.ELOOP), (stat.S_ISDIR, errno.EISDIR)):
        if is_kind(status.st_mode):
            raise OSError(code, os.strerror(code), os.fsdecode(name))
    raise OSError(errno.EINVAL, "is not a regular file", os.fsdecode(name))
