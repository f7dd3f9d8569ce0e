"""Whether other sandboxes run commands in the same folders just now, in this process or another.

Owns a set of locks that says so. A mount is made by a path, and who may write the folders on that path could swap one
for a link in that very moment. The commands of one sandbox cannot, as all of them have the same paths held in place;
those of another sandbox, that was opened when the disk looked different, could. So what only this sandbox knows of is
mounted while no other one runs or starts a command there, and not otherwise.
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

from .errors import SandboxError

__all__ = ["Presence", "lock_path"]

_DEADLINE = 5.0
_PAUSE = 0.002

# struct flock of 64-bit Linux: type, whence, start, length, process
_FLOCK = "hhqqi4x"


class Presence:
    """The sandbox's place among the others. `enter()` before a command is started, `settle()` when its walls stand,
    `leave()` when it has ended. All threads may use it.

    One file has three bytes to lock for each folder: `here` is shared by sandboxes whose root it is while they run
    commands, `beneath` by those with a root beneath it, and `starting` by those of them that are alone and just mount.
    To be alone is to have the first two of the root for oneself, and to find nobody `here` in the folders above.
    """

    def __init__(self, roots: Sequence[str], path: str | None = None) -> None:
        self._file = _open(path or lock_path())
        above = {_place(folder) for root in roots for folder in _above(root)}
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
        """Whether this sandbox is alone. If so, no other one starts a command until `settle()`."""
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
            if not self._starting and self._is_alone:
                self._is_alone = False
                self._change(self._here, fcntl.F_RDLCK)
                self._change([*self._beneath, *self._starting_above], fcntl.F_UNLCK)

    def leave(self) -> None:
        with self._lock:
            self._present -= 1
            if not self._present:
                self._give_up()

    def close(self) -> None:
        """Idempotent; who enters or leaves later is nowhere."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _try(self) -> bool:
        """One attempt to be here at all, and alone if possible; false while another one must not be disturbed.

        Who says that it is here and who says that it is starting both look for the other afterwards: so at least one
        of them sees the other.
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
        for places in (self._here, self._beneath, self._beneath_above, self._starting_above):
            self._change(places, fcntl.F_UNLCK)

    def _change(self, places: Iterable[int], kind: int) -> bool:
        if self._file < 0:
            return True
        for place in places:
            try:
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, place, 1, 0))
            except OSError:
                return False
        return True

    def _is_free(self, places: Iterable[int]) -> bool:
        """Whether nobody else has a lock there, of whatever kind."""
        for place in places:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
            if struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK:
                return False
        return True


def lock_path() -> str:
    """The same for every process of the user; where there is one, in a folder that nobody else can write."""
    own = f"/run/user/{os.geteuid()}"
    return f"{own}/swink-locks" if os.access(own, os.W_OK) else f"/tmp/swink-locks-{os.geteuid()}"


def _open(path: str) -> int:
    """The file with the locks, or -1 where there is none that only we can write."""
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
    """Where the folder has its bytes, which is the same for every sandbox. The file itself stays empty."""
    try:
        state = os.stat(folder)
    except OSError:
        name = folder
    else:
        name = f"{state.st_dev} {state.st_ino}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big") * 4


def _above(folder: str) -> list[str]:
    found: list[str] = []
    while (parent := os.path.dirname(folder)) != folder:
        found.append(parent)
        folder = parent
    return found
