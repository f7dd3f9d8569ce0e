"""A small Internet on loopback: servers with their own names and addresses, and a proxy in front of them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from swink_agent.sandbox import Reached
from swink_agent.sandbox.network.proxy import Proxy
from swink_agent.sandbox.network.reached import ReachedLog
from swink_agent.sandbox.network.serving import ProxyServer

PUBLIC = "93.184.216.34"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class World:
    """Every address leads to one server, which keeps what it was sent."""

    names: dict[str, list[str]] = field(default_factory=dict)
    resolved: list[tuple[str, int]] = field(default_factory=list)
    connected: list[tuple[str, int]] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    answer: bytes = HELLO
    port: int = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append((host, port))
        return self.names.get(host, [PUBLIC])

    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads the head of a request and its body, and answers."""
        heard = await reader.readuntil(b"\r\n\r\n")
        if b"Content-Length: " in heard:
            heard += await reader.readexactly(int(heard.partition(b"Content-Length: ")[2].split(b"\r\n")[0]))
        elif b"chunked" in heard:
            heard += await reader.readuntil(b"0\r\n\r\n")
        self.heard.append(heard)
        writer.write(self.answer)


@asynccontextmanager
async def world(serve: Serve | None = None, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[World]:
    there = World()

    served: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        task.add_done_callback(served.discard)
        try:
            await (serve or there.serve)(reader, writer)
            await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0, ssl=tls)
    there.port = server.sockets[0].getsockname()[1]
    try:
        yield there
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        await server.wait_closed()


@dataclass
class Front:
    """A proxy that listens here, and what was reached through it."""

    port: int
    log: ReachedLog

    @property
    def reached(self) -> list[Reached]:
        return list(self.log.entries())

    async def ask(self, request: bytes) -> bytes:
        """The whole answer to what is sent. The sending side stays open."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(60):
                writer.write(request)
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def status(self, request: bytes) -> int:
        """The number in the first line of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(60):
                writer.write(request)
                return int((await reader.readline()).split(b" ")[1])
        finally:
            writer.close()


@asynccontextmanager
async def front(there: World, *hosts: str, token: str = "") -> AsyncIterator[Front]:
    proxy = Proxy(hosts, resolve=there.resolve, connect=there.connect, token=token)
    listener = socket.create_server(("127.0.0.1", 0))
    server = ProxyServer(proxy, listener)
    log = ReachedLog()
    server.logs[log] = None
    try:
        yield Front(listener.getsockname()[1], log)
    finally:
        server.close()
        await asyncio.sleep(0.01)
