"""Accepts connections of commands from a listener in their network, in our event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from .proxy import Proxy, proxy_variables
from .reached import Reached, ReachedLog, WaysOut

_MOST_CONNECTIONS = 128
"""At once; more wait. Each takes two descriptors of this process."""
_WITHOUT_DESCRIPTORS = 0.5
"""Seconds until the next try, when this process has none left."""


class ProxyServer:
    """Serves one listener, which it owns, in the running loop, until `close()`."""

    def __init__(self, proxy: Proxy, listener: socket.socket) -> None:
        self.logs: dict[ReachedLog, None] = {}
        """The logs of the running commands. Each gets every request."""
        self._proxy = proxy
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Ends every connection. Call it in the thread of the loop, or after its end. Idempotent."""
        if self._listener.fileno() < 0:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._listener)
            for task in self._connections:
                task.cancel()
        self._listener.close()

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # another loop was quicker, or the client has given up
        except OSError:
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_WITHOUT_DESCRIPTORS, self._resume)
            return
        task = self._loop.create_task(self._serve(connection))
        self._connections[task] = connection
        task.add_done_callback(self._forget)
        if len(self._connections) >= _MOST_CONNECTIONS:
            self._loop.remove_reader(self._listener)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        connection.setblocking(False)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection)
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        await self._proxy.handle(reader, writer, self._tell)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()
        if len(self._connections) == _MOST_CONNECTIONS - 1:
            self._resume()
        if not task.cancelled():
            task.exception()

    def _tell(self, reached: Reached) -> None:
        for log in self.logs:
            log.add(reached)


class SharedProxy:
    """One listener for all commands of a sandbox, which share a network. Served in each loop that runs some of them."""

    def __init__(self, hosts: Iterable[str], ways_out: WaysOut, listener: socket.socket, token: str = "") -> None:
        """`token`: the password that commands give, where others can reach the listener too."""
        self._proxy = Proxy(hosts, resolve=ways_out.resolve, connect=ways_out.connect, token=token)
        self._listener = listener
        self._servers: dict[asyncio.AbstractEventLoop, ProxyServer] = {}
        self.variables = proxy_variables(listener.getsockname()[1], token)

    def begin(self, log: ReachedLog) -> None:
        """Serves in the running loop while a command runs, and notes what is reached meanwhile."""
        loop = asyncio.get_running_loop()
        if loop not in self._servers:
            self._servers[loop] = ProxyServer(self._proxy, self._listener.dup())
        self._servers[loop].logs[log] = None

    def end(self, loop: asyncio.AbstractEventLoop, log: ReachedLog) -> None:
        """Stops serving in the loop after its last command. Call it in the thread of the loop, or after its end."""
        server = self._servers.get(loop)
        if server is not None:
            server.logs.pop(log, None)
            if not server.logs:
                del self._servers[loop]
                server.close()
