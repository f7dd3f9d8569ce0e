"""Removes a folder with hostile content: of any depth, with folders that may not be entered, with very many files.

Not recursive: it holds at most two folders open and moves down and up by one name at a time, so that no path grows too
long. Follows no links, and ends in time.
"""

from __future__ import annotations

import os
import time
from itertools import islice

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1000


def remove_tree(folder: str, *, time_limit: float) -> bool:
    """Removes the folder and everything in it. Returns whether it is gone. After `time_limit` seconds the rest stays.

    Never raises because of the content. No other process may work in the folder.
    """
    try:
        if not os.path.lexists(folder):
            return True
        _empty(_enter(folder), time.monotonic() + time_limit)
        os.rmdir(folder)
    except OSError:  # it is not empty, or not ours
        return not os.path.lexists(folder)
    return True


class _Level:
    """A folder on the way down: its name in its parent, the folders still to be removed, and those that cannot be."""

    __slots__ = ("folders", "name", "stuck")

    def __init__(self, name: str) -> None:
        self.name = name
        self.folders: list[str] = []
        self.stuck: set[str] = set()


def _empty(fd: int, until: float) -> None:
    """Removes everything removable in an open folder and closes it. Raises `OSError` when the time is over."""
    levels = [_Level("")]
    try:
        while levels:
            level = levels[-1]
            if not level.folders:
                level.folders = _without_files(fd, level.stuck, until)
            if level.folders:
                name = level.folders.pop()
                try:
                    inner = _enter(name, fd)
                except OSError:
                    level.stuck.add(name)
                    continue
                levels.append(_Level(name))
            elif len(levels) == 1:
                return
            else:
                inner = os.open("..", _FOLDER, dir_fd=fd)
                levels.pop()
                try:
                    os.rmdir(level.name, dir_fd=inner)
                except OSError:
                    levels[-1].stuck.add(level.name)
            os.close(fd)
            fd = inner
    finally:
        os.close(fd)


def _without_files(fd: int, stuck: set[str], until: float) -> list[str]:
    """Removes files of a folder and returns names of folders in it; none, once neither are left."""
    while True:
        if time.monotonic() > until:
            raise TimeoutError("removing took too long")
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


def _enter(name: str, folder: int | None = None) -> int:
    """Opens a folder with all rights for its owner. Raises `OSError`, also for a link."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)  # a child may have taken away the rights
        fd = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.fchmod(fd, 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd
