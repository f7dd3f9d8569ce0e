"""The connections of our servers: accepts them as long as this process has descriptors for them.

Owns the sockets that listen, how many connections are open at once, and how long one may stay without a request. The
event loop's own server writes a traceback for every connection that it cannot accept, hundreds in a second.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

log = logging.getLogger("swink_agent")
BACKLOG = 256
_PAUSE = 0.1
"""Seconds between two looks whether another connection can be accepted."""
_SAID = 60.0
"""Least seconds between two lines of the log about too many connections."""


class Connection(web.RequestHandler):
    """A connection that is closed if it sends no request for some seconds: it takes a descriptor, of which a process
    has few."""

    __slots__ = ("_patience", "_unused")

    def __init__(self, manager: web.Server, *, patience: float, **options: Any) -> None:
        super().__init__(manager, **options)
        self._patience = patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._unused = asyncio.get_running_loop().call_later(self._patience, transport.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._unused.cancel()
        super().connection_lost(exc)

    def note_request(self) -> None:
        """Keeps the connection open, because it has sent a request."""
        self._unused.cancel()


@web.middleware
async def noted(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
    """A middleware that notes that a connection has sent a request. It must be the first one."""
    if isinstance(request.protocol, Connection):
        request.protocol.note_request()
    return await handler(request)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns a socket bound to each address of a host. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys([(family, address) for family, _, _, _, address in found]):
            made.append(socket.socket(family, socket.SOCK_STREAM))
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made[-1].bind(address)
    except OSError:
        for each in made:
            each.close()
        raise
    return made


@asynccontextmanager
async def listening(
    manager: web.Server,
    sockets: Sequence[socket.socket],
    make: Callable[[], Connection],
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[None]:
    """Accepts connections at these sockets during the block, and closes the sockets at its end."""
    listener = _Listener(manager, make, tls)
    for each in sockets:
        each.setblocking(False)
        each.listen(BACKLOG)
    tasks = [asyncio.ensure_future(listener.accept_all(each)) for each in sockets]
    try:
        yield
    finally:
        for task in (ending := [*tasks, *listener.opening]):
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for each in sockets:
            each.close()


class _Listener:
    """Accepts the connections of one server."""

    def __init__(self, manager: web.Server, make: Callable[[], Connection], tls: ssl.SSLContext | None) -> None:
        self._manager = manager
        self._make = make
        self._tls = tls
        self.opening: set[asyncio.Task[None]] = set()
        self._said: float | None = None
        self._most = _most_connections()

    async def accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if len(self._manager.connections) + len(self.opening) >= self._most:
                await self._wait("the limit of open files is near")
                continue
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionError:  # the client has left already
                await asyncio.sleep(0)
                continue
            except OSError as error:
                await self._wait(error.strerror or str(error))
                continue
            task = asyncio.ensure_future(self._open(accepted))
            self.opening.add(task)
            task.add_done_callback(self.opening.discard)
            await asyncio.sleep(0)  # else many that come at once would hold up all others

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, accepted, ssl=self._tls)
        except OSError:  # no TLS, or the client has left
            accepted.close()

    async def _wait(self, why: str) -> None:
        now = time.monotonic()
        if self._said is None or now - self._said >= _SAID:
            self._said = now
            count = len(self._manager.connections)
            log.warning("%d connections are open, and no other can be accepted until one ends: %s", count, why)
        await asyncio.sleep(_PAUSE)


def _most_connections() -> float:
    """Returns how many connections leave enough descriptors for the work of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else max(limit * 3 // 4, 1)
