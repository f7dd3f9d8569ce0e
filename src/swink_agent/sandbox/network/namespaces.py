"""Makes a listener in the network namespace of another process. A separate program, started once per sandbox.

Only a process with one thread can enter the user namespace that a network namespace belongs to, and it cannot leave
it again. So this program forks for each request; the fork enters, makes the listener and passes its descriptor out. It
runs with the standard library only and ends with the agent.
"""

from __future__ import annotations

import array as array  # `socket` needs it for descriptors
import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
from typing import NoReturn

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_OWNER = 0xB701  # NS_GET_USERNS
_ANY_LOCAL_ADDRESS = 15  # IP_FREEBIND: the loopback may not be up yet
_BACKLOG = 128


def main(descriptor: int, agent: int) -> NoReturn:
    """Serves requests from the line until the agent closes it, or ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are reaped by the kernel
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    line = socket.socket(fileno=descriptor)
    try:
        end = os.pidfd_open(agent)
    except OSError:
        sys.exit(0)
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(end, select.POLLIN)
    while end not in dict(poll.poll()):
        data, descriptors, _, _ = socket.recv_fds(line, 64, 2, socket.MSG_CMSG_CLOEXEC)
        if not data:
            break
        if os.fork() == 0:
            _serve(int(data), *descriptors)
        for number in descriptors:
            os.close(number)
    sys.exit(0)


def _serve(port: int, answer: int, network: int) -> NoReturn:
    """Answers with the listener's descriptor, or with the error."""
    try:
        with socket.socket(fileno=answer) as line:
            try:
                enter(network)
                listener = socket.socket()
                listener.setsockopt(socket.IPPROTO_IP, _ANY_LOCAL_ADDRESS, 1)
                listener.bind(("127.0.0.1", port))
                listener.listen(_BACKLOG)
                socket.send_fds(line, [b"L"], [listener.fileno()])
            except OSError as error:
                line.send(f"E{error.strerror or error}".encode())
    finally:
        os._exit(0)


def enter(network: int) -> None:
    """Moves this process into a network namespace, and into the user namespace that owns it. Raises `OSError`."""
    owner = fcntl.ioctl(network, _GET_OWNER)
    ours = os.stat("/proc/self/ns/user")
    theirs = os.fstat(owner)
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        _set_namespace(owner, _NEW_USER)
    _set_namespace(network, _NEW_NETWORK)


def _set_namespace(descriptor: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)) == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
