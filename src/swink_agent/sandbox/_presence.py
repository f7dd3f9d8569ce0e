"""Detects whether other sandboxes run commands in the same folders now, in this process or another.

Uses file locks. A mount is made by a path, and a process that may write the folders on that path could swap one for a
link at that moment. Commands of the same sandbox cannot, because the paths are read-only for all of them. Commands of
another sandbox, which was opened when the disk looked different, could. So paths that only this sandbox protects are
mounted only while no other sandbox runs or starts a command there.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import stat
import struct
import threading
import time
from collections.abc import Iterable, Sequence

from ._places import folders_above
from .errors import SandboxError

_DEADLINE = 5.0
_PAUSE = 0.002

# struct flock of 64-bit Linux: type, whence, start, length, process
_FLOCK = "hhqqi4x"


class Presence:
    """The locks of one sandbox. Call `enter()` before a command starts, `settle()` when its mounts are made, and
    `leave()` when it has ended. Thread-safe.

    One file has three bytes to lock for each folder. Sandboxes that run commands share `here` of their roots and
    `beneath` of the folders above; one that is alone and is mounting also shares `starting` of the folders above. A
    sandbox is alone if it can lock `here` and `beneath` of its roots exclusively, and no other has `here` of a folder
    above or `starting` of a root.
    """

    def __init__(self, roots: Sequence[str], path: str | None = None) -> None:
        self._file = _open(path or lock_path())
        above = {_place(folder) for root in roots for folder in folders_above(root)}
        self._here = [_place(root) for root in roots]
        self._beneath = [place + 1 for place in self._here]
        self._starting_here = [place + 2 for place in self._here]
        self._here_above = sorted(above - set(self._here))
        self._beneath_above = [place + 1 for place in sorted(above)]
        self._starting_above = [place + 2 for place in self._here_above]
        self._lock = threading.Lock()
        self._present = 0
        self._starting = 0
        self._is_alone = False

    async def enter(self) -> bool:
        """Returns whether this sandbox is alone. If so, no other one starts a command until `settle()`."""
        deadline = time.monotonic() + _DEADLINE
        while True:
            with self._lock:
                if self._try():
                    self._present += 1
                    self._starting += 1
                    return self._is_alone
                if not self._present:
                    self._give_up()
            if time.monotonic() > deadline:
                raise SandboxError("another sandbox has been starting a command in the same folder for too long")
            await asyncio.sleep(_PAUSE)

    def settle(self) -> None:
        with self._lock:
            self._starting -= 1
            if self._starting:
                return
            was_alone, self._is_alone = self._is_alone, False
            if not self._present:  # the command could not start, and has left
                self._give_up()
            elif was_alone:
                self._change(self._here, fcntl.F_RDLCK)
                self._change([*self._beneath, *self._starting_above], fcntl.F_UNLCK)

    def leave(self) -> None:
        with self._lock:
            self._present -= 1
            if not self._present and not self._starting:
                self._give_up()

    def close(self) -> None:
        """Releases all locks. Idempotent; later calls do nothing."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _try(self) -> bool:
        """Tries once to lock `here`, and to be alone if possible. Returns false while another sandbox is mounting.

        A sandbox sets its own lock before it looks for those of others, so that of two at least one sees the other.
        """
        if self._file < 0 or self._starting:
            return True
        if not self._change(self._beneath_above, fcntl.F_RDLCK):
            return False
        if self._change([*self._here, *self._beneath], fcntl.F_WRLCK):
            self._change(self._starting_above, fcntl.F_RDLCK)
            if self._is_free([*self._here_above, *self._starting_here]):
                self._is_alone = True
                return True
        self._change([*self._beneath, *self._starting_above], fcntl.F_UNLCK)
        return self._change(self._here, fcntl.F_RDLCK) and self._is_free(self._starting_here)

    def _give_up(self) -> None:
        self._change([0], fcntl.F_UNLCK, length=0)  # to the end of the file: no other sandbox has this descriptor

    def _change(self, places: Iterable[int], kind: int, length: int = 1) -> bool:
        if self._file < 0:
            return True
        for place in places:
            try:
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, length, 0))
            except OSError:
                return False
        return True

    def _is_free(self, places: Iterable[int]) -> bool:
        """Whether no other sandbox has any lock there."""
        for place in places:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
            if struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK:
                return False
        return True


def lock_path() -> str:
    """The lock file, the same for every process of the user, if possible in a folder that only the user can write."""
    own = f"/run/user/{os.geteuid()}"
    return f"{own}/swink-locks" if os.access(own, os.W_OK) else f"/tmp/swink-locks-{os.geteuid()}"


def _open(path: str) -> int:
    """Opens the file with the locks. Returns -1 if there is none that only we can write."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022:
        return descriptor
    os.close(descriptor)
    return -1


def _place(folder: str) -> int:
    """The position of the folder's bytes, the same in every sandbox. The file itself stays empty."""
    try:
        state = os.stat(folder)
    except OSError:
        name = folder
    else:
        name = f"{state.st_dev} {state.st_ino}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big") * 4
