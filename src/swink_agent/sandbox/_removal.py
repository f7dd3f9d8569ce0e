"""Removing a folder that a stranger filled: of any depth, with folders that may not be entered, with very much in it.

Owns the removal. It calls itself for no level and holds two folders open at most: what lies deeper is first moved up
beneath the folder itself, so no path grows too long. Follows no link, and ends in time whatever there is.
"""

from __future__ import annotations

import os
import time
from itertools import count, islice

__all__ = ["remove_tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1000


def remove_tree(folder: str, *, time_limit: float) -> bool:
    """Removes the folder with all that is in it; whether it is gone. What is left after `time_limit` seconds stays.

    Never raises for what it finds. Nobody else may be at work in the folder.
    """
    try:
        if not os.path.lexists(folder):
            return True
        top = _enter(folder)
        try:
            _Removal(top, time.monotonic() + time_limit).run()
        finally:
            os.close(top)
        os.rmdir(folder)
    except OSError:  # something is left in it, or it is not ours
        return not os.path.lexists(folder)
    return True


class _Removal:
    def __init__(self, top: int, until: float) -> None:
        self._top = top
        self._until = until
        self._names = map(f".removed-{os.getpid()}-{{}}".format, count())

    def run(self) -> None:
        """Empties the top folder. Raises `OSError` when the time is over; what cannot be removed is passed over."""
        stuck: set[str] = set()
        while folders := self._empty(self._top, stuck):
            for name in folders:
                if not self._is_removed(name):
                    stuck.add(name)

    def _is_removed(self, name: str) -> bool:
        """Removes a folder of the top's; the folders in it become the top's own first."""
        try:
            fd = _enter(name, self._top)
        except OSError:
            return False
        stuck: set[str] = set()
        try:
            while inner := self._empty(fd, stuck):
                stuck.update([folder for folder in inner if not self._is_moved_up(fd, folder)])
        finally:
            os.close(fd)
        try:
            os.rmdir(name, dir_fd=self._top)
        except OSError:
            return False
        return True

    def _empty(self, fd: int, stuck: set[str]) -> list[str]:
        """Removes files of a folder, and gives names of folders in it; nothing, once neither are left."""
        while True:
            self._check()
            with os.scandir(fd) as entries:
                some = list(islice((entry for entry in entries if entry.name not in stuck), _AT_ONCE))
            folders = [entry.name for entry in some if entry.is_dir(follow_symlinks=False)]
            files = {entry.name for entry in some}.difference(folders)
            for name in files:
                try:
                    os.unlink(name, dir_fd=fd)
                except OSError:
                    stuck.add(name)
            if folders or not files:
                return folders

    def _is_moved_up(self, fd: int, name: str) -> bool:
        self._check()
        try:
            os.chmod(name, 0o700, dir_fd=fd)  # to be moved, a folder must be one that its owner may write
            os.rename(name, next(self._names), src_dir_fd=fd, dst_dir_fd=self._top)
        except OSError:
            return False
        return True

    def _check(self) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError("removing took too long")


def _enter(name: str, folder: int | None = None) -> int:
    """An open folder that its owner may do everything in. Raises `OSError`, also for a link."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)  # a child may have taken the rights from a folder of its own
        fd = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.fchmod(fd, 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd
