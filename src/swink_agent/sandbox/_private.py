"""A private temporary folder for one sandbox. It is removed with the sandbox, also after a crash.

What a killed process left behind is removed by the next process that makes such a folder.
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

log = logging.getLogger(__name__)

_PREFIX = "swink-sandbox-"
_LONGEST_REMOVAL = 20.0
_LONGEST_SWEEP = 2.0
_MOST_SWEPT = 100_000


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
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
