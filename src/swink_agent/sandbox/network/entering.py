"""Our side of `namespaces`: the proxy of a command, with a listener in its network before the command starts."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..errors import SandboxError
from ..starting import end_helper, start_helper
from .proxy import Proxy, proxy_variables
from .reached import ReachedLog, WaysOut
from .serving import ProxyServer

_END_DEADLINE = 5.0
_PORTS = range(61001, 65535)
"""Above the ports that Linux gives to connections and people give to servers. One is chosen at random: variables name
it before the network exists."""


class NamespaceHelper:
    """The program that makes listeners in other networks."""

    def __init__(self, write: Sequence[str]) -> None:
        """`write`: the folders that commands may write, from which nothing is started. Raises `SandboxError`."""
        self._owner = os.getpid()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = start_helper(
                    "network.namespaces", theirs.fileno(), os.getpid(), outside=write, stderr=subprocess.DEVNULL
                )
        except BaseException:
            self._line.close()
            raise

    async def listen(self, process: int, port: int) -> socket.socket:
        """A listener at 127.0.0.1 in the network of the process. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            try:
                with theirs:
                    socket.send_fds(self._line, [str(port).encode()], [theirs.fileno(), network])
            finally:
                os.close(network)
            ours.setblocking(False)
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(ours, lambda: readable.done() or readable.set_result(None))
            try:
                await readable
            finally:
                loop.remove_reader(ours)
            data, descriptors, _, _ = socket.recv_fds(ours, 1000, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            why = data[1:].decode("utf-8", "replace") or "the helper has ended"
            raise SandboxError(f"the command's network cannot be entered, so hosts cannot be reached by name: {why}")
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        """Ends the helper, except in a fork of the process that started it. Idempotent."""
        if os.getpid() != self._owner:
            return
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        end_helper(self._process, _END_DEADLINE)


class CommandProxy:
    """Serves one command, and notes what it reached."""

    def __init__(self, helper: NamespaceHelper, hosts: Iterable[str], ways_out: WaysOut) -> None:
        self._helper = helper
        self._proxy = Proxy(hosts, resolve=ways_out.resolve, connect=ways_out.connect)
        self._port = secrets.choice(_PORTS)
        self._server: ProxyServer | None = None
        self.log = ReachedLog()
        self.variables = proxy_variables(self._port)

    async def open(self, process: int) -> None:
        """Begins to serve in the network of the process. Raises `SandboxError`."""
        try:
            listener = await self._helper.listen(process, self._port)
        except OSError as error:
            raise SandboxError(f"the command's network cannot be entered: {error}") from error
        self._server = ProxyServer(self._proxy, listener)
        self._server.logs[self.log] = None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
