"""A network of its own for a process and all that it starts: nothing but a loopback, where its own servers listen.

Owns the way into it, for the back end that has no namespaces otherwise. Where the system does not allow it there is no
loopback either, as that would be the machine's. Loaded by the launcher: the standard library alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from swink_agent.sandbox.kernel import calls as kernel

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_PR_SET_DUMPABLE = 4
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sh22x")


def enter_own_network() -> bool:
    """Moves this process into a network of its own. False where that is not allowed; nothing has changed then."""
    pid = os.fork()  # half of the way leaves a process that is nobody: so another one goes first
    if pid == 0:
        try:
            _enter()
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        return False
    _enter()
    return True


def _enter() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_NEW_NETWORK)
    except OSError:
        _unshare(_NEW_USER | _NEW_NETWORK)
        kernel.prctl(_PR_SET_DUMPABLE, 1)  # it is not, with new rights, and could not say who it is
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        name, flags = _REQUEST.unpack(fcntl.ioctl(asking, _GET_FLAGS, _REQUEST.pack(b"lo", 0)))
        fcntl.ioctl(asking, _SET_FLAGS, _REQUEST.pack(name, flags | _UP))


def _unshare(flags: int) -> None:
    if kernel.libc().unshare(ctypes.c_int(flags)) == -1:
        kernel.fail()
