"""Connects a child to the proxy, where it shares the machine's network.

Landlock's rules for ports do not include addresses, and a filter cannot see them. So a child may make sockets but not
connect them: the guardian reads the address, and if it is the proxy's, it connects a socket of its own and replaces the
child's with it. The child's own socket stays unconnected. The launcher loads this module: the standard library only.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct

from swink_agent.sandbox.landlock.caller import Caller, failure, signed

_ADDRESS = struct.Struct("!2sH4s")  # the family is in the order of the machine, port and address are not
_INET = struct.pack("=H", socket.AF_INET)
_HERE = socket.inet_aton("127.0.0.1")
_LONGEST = 128
_PATIENCE = 1000  # milliseconds: a proxy that accepts late delays every call that the guardian serves


def connect(caller: Caller, proxy: int, number: int, address: int, length: int) -> int:
    """Serves `connect`. `proxy` is the port of the proxy at 127.0.0.1."""
    length &= 0xFFFFFFFF
    if not _ADDRESS.size <= length <= _LONGEST:
        raise failure(errno.EINVAL)
    family, port, host = _ADDRESS.unpack(caller.bytes_at(address, _ADDRESS.size))
    flags = _flags(caller.task, signed(number))
    if family != _INET or host[:1] != _HERE[:1]:
        raise failure(errno.ENETUNREACH)
    if (port, host) != (proxy, _HERE):
        raise failure(errno.ECONNREFUSED)
    ours = caller.keep(_connected(proxy).detach())
    os.set_blocking(ours, not flags & os.O_NONBLOCK)
    caller.services.listener.put(caller.identifier, ours, signed(number), flags)
    return 0


def _connected(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    code = connection.connect_ex(("127.0.0.1", port))
    if code == errno.EINPROGRESS:
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if poll.poll(_PATIENCE) else errno.ETIMEDOUT
    if code:
        connection.close()
        raise failure(code)
    return connection


def _flags(task: int, number: int) -> int:
    """The flags of a caller's socket. Raises `OSError` if it is not one."""
    try:
        if not os.readlink(f"/proc/{task}/fd/{number}").startswith("socket:"):
            raise failure(errno.ENOTSOCK)
        with open(f"/proc/{task}/fdinfo/{number}", encoding="ascii") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    except FileNotFoundError:
        raise failure(errno.EBADF) from None
