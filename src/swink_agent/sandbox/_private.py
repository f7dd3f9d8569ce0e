"""A private temporary folder for one sandbox, that is gone after it, also after a crash of ours.

Owns the folder and its removal. What a killed process left behind is removed by the next one that makes a folder.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import islice

from ._places import temporary_outside
from ._removal import remove_tree

__all__ = ["PrivateFolder"]

log = logging.getLogger(__name__)

_PREFIX = "swink-sandbox-"
_LONGEST_REMOVAL = 20.0
_LONGEST_SWEEP = 2.0
_MOST_SWEPT = 100_000


class PrivateFolder:
    """`path` is for the child, `own` beside it is for us alone. Both are gone after `close()`."""

    def __init__(self, parent: str | None = None, *, avoid: Sequence[str] = ()) -> None:
        """`avoid`: folders that a child may write, where nothing of ours is safe."""
        parent = os.path.realpath(parent) if parent else temporary_outside(avoid)
        _sweep(parent)
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        # Held for as long as we live: how others know that it is in use.
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self.path = os.path.join(self._folder, "tmp")
        self.own = os.path.join(self._folder, "own")
        os.mkdir(self.path, 0o700)
        os.mkdir(self.own, 0o700)

    def close(self) -> None:
        """Idempotent. A fork of the process that made it removes nothing."""
        if self._lock >= 0:
            if os.getpid() == self._owner and not remove_tree(self._folder, time_limit=_LONGEST_REMOVAL):
                log.info("%s could not be removed whole; a later session will try again", self._folder)
            os.close(self._lock)
            self._lock = -1


def _sweep(parent: str) -> None:
    """Removes what killed processes left behind: folders of ours by name, owner and a lock that nobody has."""
    until = time.monotonic() + _LONGEST_SWEEP
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_SWEPT) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        if time.monotonic() > until:
            return  # the rest is for another session
        folder = os.path.join(parent, name)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # A folder that is a moment old may be one whose maker has not locked it yet.
            state = os.fstat(lock)
            if state.st_uid == os.geteuid() and _age(state) > 60:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder, time_limit=until - time.monotonic())
        except OSError:  # in use, or not ours to remove
            pass
        finally:
            os.close(lock)


def _age(state: os.stat_result) -> float:
    return time.time() - state.st_mtime
