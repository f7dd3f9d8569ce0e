"""Placeholders: empty files or folders at missing names, for mounts to cover, removed after the last command.

A mount can only cover what exists, so a missing protected name gets an empty file or folder on the disk while a command
runs. Several commands, sandboxes and programs may need the same one: each has a shared lock on it, and the one that can
lock it exclusively removes it. If it were removed while another namespace has a mount on it, that mount would be lost.
A placeholder that a killed process left behind is recognised by its time stamp, does no harm, and is removed with the
next command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager

from ..errors import UnfitFolder
from ..kernel.calls import open_without_links
from ..profile import DEFAULT_PROTECTED, HOME_PROTECTED
from ..protected import PLACEHOLDER_STAMP

_TRIES = 50

_FOLDERS_IN_HOME = frozenset(
    name
    for name in HOME_PROTECTED
    if name.startswith((".config/", ".local/", "Library/")) and not name.endswith(".toml")
) | frozenset(
    {".swink", ".ssh", ".gnupg", ".aws", ".kube", ".docker", "bin", ".oh-my-zsh", ".nvm", ".i3", ".vim", ".emacs.d"}
    | {".vscode", ".vscode-server", ".cargo/bin"}
)
_FILES = frozenset({"config", "config.worktree", "commondir"}) | frozenset(
    os.path.basename(name) for name in HOME_PROTECTED if name not in (*_FOLDERS_IN_HOME, *DEFAULT_PROTECTED)
)


def is_a_file(path: str) -> bool:
    """Whether a missing path would be a file. All others are folders, because git ignores an empty folder."""
    return os.path.basename(path) in _FILES


def has_mark(state: os.stat_result) -> bool:
    """Whether the status has the mark of a placeholder. It is one if it is also empty."""
    return state.st_mtime_ns // 1_000_000_000 == PLACEHOLDER_STAMP


def is_placeholder(path: str) -> bool:
    """Whether it has the mark of a placeholder and is as empty: a command could have set the time of another file."""
    try:
        state = os.lstat(path)
        if int(state.st_mtime) != PLACEHOLDER_STAMP or state.st_uid != os.geteuid():
            return False
        if stat.S_ISDIR(state.st_mode):
            return not os.listdir(path)
        return stat.S_ISREG(state.st_mode) and state.st_size == 0
    except OSError:
        return False


class Placeholder:
    """A placeholder that is in use until `release()`, which is followed by `close()`."""

    def __init__(self, path: str, parent: int, descriptor: int) -> None:
        self.path = path
        self._name = os.path.basename(path)
        self._parent = parent
        self._descriptor = descriptor

    def release(self) -> None:
        """Removes it if nothing else uses it and it is still empty. Call it when the command has ended."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # An unfinished repository that a command made there may be as empty.
            if self._name == ".git" or _is_placeholder(self._parent, self._name, self._descriptor):
                if self._name in _FILES:
                    os.unlink(self._name, dir_fd=self._parent)
                else:
                    os.rmdir(self._name, dir_fd=self._parent)
        except OSError:  # in use elsewhere, or no longer empty: then it stays
            pass

    def close(self) -> None:
        """Closes its descriptors. Separate from `release`, because the disk may take a moment."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._parent)
            self._descriptor = -1


def place(path: str) -> Placeholder | None:
    """Makes or shares the placeholder at `path`.

    Returns `None` if something real exists there now, or the file system is read-only. Raises `UnfitFolder` if the name
    cannot be protected.
    """
    name = os.path.basename(path)
    parent = _open_parent(path)
    try:
        for _ in range(_TRIES):
            _make(parent, path)
            descriptor = _open(parent, name)
            if descriptor is None:
                time.sleep(0.001)  # another process is removing it
            elif _is_placeholder(parent, name, descriptor):
                return Placeholder(path, parent, descriptor)
            else:
                is_new = time.time() - os.fstat(descriptor).st_ctime < 1.0 and not os.fstat(descriptor).st_size % 4096
                os.close(descriptor)
                if not is_new:
                    break
                time.sleep(0.001)  # another process may be making it: a moment later it has its stamp
        if _exists(parent, name):
            os.close(parent)
            return None
    except OSError as error:
        os.close(parent)
        if error.errno == errno.EROFS:
            return None
        raise UnfitFolder(f"the protected name {path!r} is missing and cannot be kept so: {error.strerror}") from error
    os.close(parent)
    raise UnfitFolder(f"the protected name {path!r} is missing and cannot be kept so: it comes and goes")


def _open_parent(path: str) -> int:
    """Opens the folder of the path, without following a link."""
    try:
        parent = open_without_links(os.path.dirname(path))
        with _closing(parent):
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise UnfitFolder(f"the folder of the protected name {path!r} cannot be opened: {error.strerror}") from error


@contextmanager
def _closing(descriptor: int) -> Generator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _make(parent: int, path: str) -> None:
    name = os.path.basename(path)
    try:
        if is_a_file(path):
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=parent)
            with _closing(descriptor):
                os.write(descriptor, _content(path))
        else:
            os.mkdir(name, 0o755, dir_fd=parent)
        os.utime(name, (PLACEHOLDER_STAMP, PLACEHOLDER_STAMP), dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        pass


def _content(path: str) -> bytes:
    # Git rejects an empty `commondir`; this content means the same as no file.
    return b".\n" if os.path.basename(path) == "commondir" else b""


def _open(parent: int, name: str) -> int | None:
    """A descriptor with a shared lock, or `None` if another process is removing it."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_placeholder(parent: int, name: str, descriptor: int) -> bool:
    """Whether the descriptor is the file of that name, and an untouched placeholder."""
    try:
        named = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    opened = os.fstat(descriptor)
    same = (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
    small = stat.S_ISDIR(opened.st_mode) and not os.listdir(descriptor)
    small = small or (stat.S_ISREG(opened.st_mode) and opened.st_size == len(_content(name)))
    return same and small and int(opened.st_mtime) == PLACEHOLDER_STAMP and opened.st_uid == os.geteuid()


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True
