"""A private temporary folder for one sandbox. It is removed when the sandbox closes.

The folder of a process that was killed is removed by a later process that makes such a folder.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import islice

from swink_agent.core.machine.beneath import FOLDER

from .places import temporary_outside

log = logging.getLogger(__name__)

_PREFIX = "swink-sandbox-"
_LONGEST_REMOVAL = 20.0
_LONGEST_SWEEP = 2.0
_MOST_SWEPT = 100_000
_AT_ONCE = 1000


class PrivateFolder:
    """`path` is for the child, `own` beside it is only for us. `close()` removes both."""

    def __init__(self, parent: str | None = None, *, avoid: Sequence[str] = ()) -> None:
        """`avoid`: folders that a child may write, so that the private folder is not made there."""
        parent = os.path.realpath(parent) if parent else temporary_outside(avoid)
        _sweep(parent)
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        # Locked for as long as we live: other processes see that it is in use.
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.path = os.path.join(self._folder, "tmp")
        self.own = os.path.join(self._folder, "own")
        os.mkdir(self.path, 0o700)
        os.mkdir(self.own, 0o700)

    def close(self) -> None:
        """Removes the folder, except in a fork of the process that made it. Idempotent."""
        if self._lock >= 0:
            if os.getpid() == self._owner and not remove_tree(self._folder, time_limit=_LONGEST_REMOVAL):
                log.info("%s could not be removed completely; a later session will try again", self._folder)
            os.close(self._lock)
            self._lock = -1


def _sweep(parent: str) -> None:
    """Removes folders that killed processes left behind: ours by name and owner, and not locked."""
    until = time.monotonic() + _LONGEST_SWEEP
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_SWEPT) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        if time.monotonic() > until:
            return  # another session removes the rest
        folder = os.path.join(parent, name)
        try:
            lock = os.open(folder, FOLDER)
        except OSError:
            continue
        try:
            # A very new folder may not have been locked yet by its maker.
            state = os.fstat(lock)
            if state.st_uid == os.geteuid() and time.time() - state.st_mtime > 60:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder, time_limit=until - time.monotonic())
        except OSError:  # in use, or not ours to remove
            pass
        finally:
            os.close(lock)


def remove_tree(folder: str, *, time_limit: float) -> bool:
    """Removes the folder and everything in it. Returns whether it is gone. After `time_limit` seconds the rest stays.

    The content may be hostile: of any depth, with folders that may not be entered, with very many files. Not recursive:
    it holds at most two folders open and moves down and up by one name at a time, so that no path grows too long. It
    follows no links, and never raises because of the content. No other process may work in the folder.
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
                inner = os.open("..", FOLDER, dir_fd=fd)
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
    """Removes files of a folder and returns names of folders in it: none once nothing removable is left."""
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
        fd = os.open(name, FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)  # a child may have taken away the rights
        fd = os.open(name, FOLDER, dir_fd=folder)
    try:
        os.fchmod(fd, 0o700)
    except BaseException:
        os.close(fd)
        raise
    return fd
