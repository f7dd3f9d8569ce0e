"""Lets later commands under bubblewrap reach the servers of one that is still running.

Each command has its own network namespace. While a command that keeps its network runs, descriptors hold its namespace
open here, and later commands are started from inside it. The descriptors close when this process ends, so nothing is
left after a crash. Commands do not share other namespaces: processes, mounts, users.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from ..programs import own_interpreter

_OWNER = 0xB701
"""The request for the user namespace that a namespace belongs to."""

# Enters the namespaces and becomes bubblewrap. Root enters the network namespace alone. Others must first enter the
# user namespace that owns it, in which bubblewrap's own first process is root and no command runs.
_ENTER = (
    "import ctypes, os, sys\n"
    "network, users = int(sys.argv[1]), int(sys.argv[2])\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "def enter(descriptor, kind):\n"
    "    return libc.setns(descriptor, kind) == 0\n"
    "if not enter(network, 0x40000000) and not (enter(users, 0x10000000) and enter(network, 0x40000000)):\n"
    "    sys.exit('the network of the background command cannot be entered: ' + os.strerror(ctypes.get_errno()))\n"
    "os.close(network)\n"
    "os.close(users)\n"
    "os.execve(sys.argv[3], sys.argv[3:], {})\n"
)


class SharedNetwork:
    """The network that commands of one sandbox share while one of its keepers runs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keepers: set[object] = set()
        self._descriptors: tuple[int, int] | None = None

    def keep(self, keeper: object, pid: int) -> None:
        """Keeps the network of the process open until the keeper leaves. Raises `OSError`."""
        with self._lock:
            if self._descriptors is None:
                network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    users = fcntl.ioctl(network, _OWNER)
                    os.set_inheritable(users, False)
                except OSError:
                    os.close(network)
                    raise
                self._descriptors = network, users
            self._keepers.add(keeper)

    def leave(self, keeper: object) -> None:
        """Closes the network after its last keeper has ended. Idempotent."""
        with self._lock:
            self._keepers.discard(keeper)
            if not self._keepers:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._keepers.clear()
            self._close()

    def _close(self) -> None:
        descriptors, self._descriptors = self._descriptors, None
        for descriptor in descriptors or ():
            os.close(descriptor)

    def entrance(self) -> Entrance | None:
        """What a command needs to start in the network; `None` if no keeper runs."""
        with self._lock:
            interpreter = own_interpreter() if self._descriptors is not None else None
            if self._descriptors is None or not interpreter:
                return None
            return Entrance(interpreter, tuple(map(os.dup, self._descriptors)))


class Entrance:
    """The way into a network for one command. `close()` it after the start."""

    def __init__(self, interpreter: str, descriptors: tuple[int, ...]) -> None:
        self.descriptors = descriptors
        self._interpreter = interpreter

    @property
    def arguments(self) -> list[str]:
        """Arguments for bubblewrap: it stays in the network that it is started in, and keeps the user and group."""
        return ["--share-net", "--uid", str(os.geteuid()), "--gid", str(os.getegid())]

    def command_line(self, argv: Sequence[str]) -> list[str]:
        """The same command, started inside."""
        return [self._interpreter, "-I", "-S", "-c", _ENTER, *map(str, self.descriptors), *argv]

    def close(self) -> None:
        for descriptor in self.descriptors:
            with suppress(OSError):
                os.close(descriptor)
        self.descriptors = ()
