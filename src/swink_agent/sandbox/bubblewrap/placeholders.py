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

from ..errors import UnfitFolder
from ..kernel.calls import close_all, open_without_links
from ..profile import DEFAULT_PROTECTED, HOME_PROTECTED
from ..protected import PLACEHOLDER_STAMP, has_mark

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
    return path.rpartition("/")[2] in _FILES


def is_placeholder(path: str) -> bool:
    """Whether it has the mark of a placeholder and is as empty: a command could have set the time of another file."""
    try:
        state = os.lstat(path)
        if not has_mark(state) or state.st_uid != os.geteuid():
            return False
        if stat.S_ISDIR(state.st_mode):
            return not os.listdir(path)
        return stat.S_ISREG(state.st_mode) and state.st_size == 0
    except OSError:
        return False


class Placeholders:
    """The placeholders of one command. They are in use until `release()`, which is followed by `close()`."""

    def __init__(self) -> None:
        self._parents: dict[str, int | None] = {}
        self._placed: list[tuple[int, str, int, tuple[int, int]]] = []
        """Open parent folders, names in them, and the open placeholders with their devices and numbers."""

    def place(self, path: str) -> tuple[int, int] | None:
        """Makes or shares the placeholder at `path`. Returns its device and number.

        Returns `None` if something real exists there now, or nothing can be created there: the folder is not ours, or
        sealed, or the file system is read-only. Raises `UnfitFolder` if the name cannot be protected.
        """
        above, _, name = path.rpartition("/")
        folder = above or "/"
        if folder not in self._parents:
            self._parents[folder] = _open_folder(folder, path) if os.access(folder, os.W_OK) else None
        if (parent := self._parents[folder]) is None:
            return None
        try:
            for _ in range(_TRIES):
                is_ours = _make(parent, name)
                descriptor = _open(parent, name)
                if descriptor is None:
                    time.sleep(0.001)  # another process is removing it
                elif found := _placeholder(parent, name, descriptor, lists=not is_ours):
                    self._placed.append((parent, name, descriptor, found))
                    return found
                else:
                    state = os.fstat(descriptor)
                    os.close(descriptor)
                    if time.time() - state.st_ctime >= 1.0 or state.st_size % 4096:
                        break
                    time.sleep(0.001)  # another process may be making it: a moment later it has its stamp
            if _exists(parent, name):
                return None
        except OSError as error:
            if error.errno == errno.EROFS:
                return None
            raise _unfit(path, error.strerror or str(error)) from error
        raise _unfit(path, "it comes and goes")

    def release(self) -> None:
        """Removes those that nothing else uses and that are still empty. Call it when the command has ended."""
        for parent, name, descriptor, identity in self._placed:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A `.git` needs no mark: a command may have begun a repository there. If it is not empty, it stays.
                if name == ".git" or _is_untouched(parent, name, identity):
                    (os.unlink if name in _FILES else os.rmdir)(name, dir_fd=parent)
            except OSError:  # in use elsewhere, or no longer empty: then it stays
                pass

    def close(self) -> None:
        """Closes all descriptors. Separate from `release`, because the disk may take a moment. Idempotent."""
        placed, self._placed = self._placed, []
        parents, self._parents = self._parents, {}
        opened = (*(descriptor for _, _, descriptor, _ in placed), *parents.values())
        close_all([descriptor for descriptor in opened if descriptor is not None])


def _unfit(path: str, why: str) -> UnfitFolder:
    return UnfitFolder(f"the protected name {path!r} is missing and cannot be kept so: {why}")


def _open_folder(folder: str, path: str) -> int:
    """Opens the folder of the path, without following a link. The descriptor only gives access to names in it."""
    try:
        return open_without_links(folder)
    except OSError as error:
        raise UnfitFolder(f"the folder of the protected name {path!r} cannot be opened: {error.strerror}") from error


def _make(parent: int, name: str) -> bool:
    """Makes the placeholder. Returns false if something of that name exists."""
    try:
        if name in _FILES:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=parent)
            try:
                os.write(descriptor, _content(name))
            finally:
                os.close(descriptor)
        else:
            os.mkdir(name, 0o755, dir_fd=parent)
        os.utime(name, (PLACEHOLDER_STAMP, PLACEHOLDER_STAMP), dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _content(name: str) -> bytes:
    # Git rejects an empty `commondir`; this content means the same as no file.
    return b".\n" if name == "commondir" else b""


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


def _placeholder(parent: int, name: str, descriptor: int, *, lists: bool) -> tuple[int, int] | None:
    """Its device and number if the descriptor is the file of that name, and an untouched placeholder.

    `lists`: whether to look into a folder too. Otherwise only its time counts, which a command could have set.
    """
    opened = os.fstat(descriptor)
    identity = opened.st_dev, opened.st_ino
    if not _is_untouched(parent, name, identity) or (lists and stat.S_ISDIR(opened.st_mode) and os.listdir(descriptor)):
        return None
    return identity


def _is_untouched(parent: int, name: str, identity: tuple[int, int]) -> bool:
    """Whether the file of that name is this one, with the mark and size of a placeholder. Does not list a folder."""
    try:
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    if (state.st_dev, state.st_ino) != identity or state.st_uid != os.geteuid() or not has_mark(state):
        return False
    return stat.S_ISDIR(state.st_mode) or (stat.S_ISREG(state.st_mode) and state.st_size == len(_content(name)))


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True
