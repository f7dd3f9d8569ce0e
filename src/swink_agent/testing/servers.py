"""HTTP servers on loopback that send exactly what a test specifies, valid HTTP or not, and misbehave as servers do.

For tests of stream functions and of other code that talks to a provider.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

log = logging.getLogger("swink_agent")

SSE = "text/event-stream"


class ReceivedRequest:
    """A request that the server received."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers  # by lower-case name
        self.body = body

    def __repr__(self) -> str:
        return f"ReceivedRequest({self.method} {self.path}, {len(self.body)} bytes)"


Answer = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


class LoopbackServer:
    """A server on a free port of 127.0.0.1, for the duration of its `async with` block.

    It gives `answers` in turn and repeats the last one. `requests` lists the requests, `open_connections` counts
    the connected clients, and `closed` is set whenever one disconnects.
    """

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[ReceivedRequest] = []
        self.open_connections = 0
        self.closed = asyncio.Event()
        self._answers = list(answers)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the server is not running: use it in an async with block")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> LoopbackServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.open_connections += 1
        try:
            if (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                chosen = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                both = asyncio.ensure_future(chosen(request, writer)), asyncio.ensure_future(reader.read(1))
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for future in both:
                        future.cancel()
                    outcome, _ = await asyncio.gather(*both, return_exceptions=True)
                    if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                        log.error("an answer of a LoopbackServer raised an error", exc_info=outcome)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            self.closed.set()
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return ReceivedRequest(method, path, headers, body)
    except (asyncio.IncompleteReadError, ConnectionError):  # the client left, perhaps in the middle of its request
        return None


def answer(
    body: bytes | str = b"",
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = SSE,
    pieces: int = 1,
    pause: float = 0.0,
    ends: bool = True,
) -> Answer:
    """Makes a complete answer in `pieces`, with a pause between them; without an end, the connection stays open."""
    data = body.encode() if isinstance(body, str) else body

    async def respond(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        fields = {**({"content-type": content_type} if content_type else {}), **(headers or {}), "connection": "close"}
        await _start(writer, status, fields)
        size = max(1, -(-len(data) // pieces))
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if not ends:
            await asyncio.get_running_loop().create_future()

    return respond


def drips(body: bytes, *, pause: float, content_type: str = SSE) -> Answer:
    """Sends the body one byte at a time, with a pause after each."""
    return answer(body, content_type=content_type, pieces=len(body), pause=pause)


def hangs(*, after: bytes = b"", content_type: str = SSE, before_headers: bool = False) -> Answer:
    """Stops sending before the headers, or after some bytes."""

    async def respond(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if not before_headers:
            await answer(after, content_type=content_type, ends=False)(request, writer)
        await asyncio.get_running_loop().create_future()

    return respond


def resets(after: bytes = b"", *, content_type: str = SSE, before_headers: bool = False) -> Answer:
    """Resets the connection before the headers, or after some bytes."""

    async def respond(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if not before_headers:
            fields = {"content-type": content_type, "transfer-encoding": "chunked"}
            await _start(writer, 200, fields)
            writer.write(f"{len(after):x}\r\n".encode() + after + b"\r\n" if after else b"")
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.transport.abort()

    return respond


def floods_a_line(size: int, *, content_type: str = SSE) -> Answer:
    """Sends one line without an end, of up to `size` bytes, as fast as the client reads."""

    async def respond(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await _start(writer, 200, {"content-type": content_type, "connection": "close"})
        writer.write(b"data: ")
        piece = b"x" * 65536
        for _unused in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()

    return respond


def gzip_bomb(size: int, *, content_type: str = SSE) -> Answer:
    """Sends a small compressed body that unpacks to one line of `size` bytes."""

    async def respond(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        packed = gzip.compress(b"data: " + b"x" * size, compresslevel=9)  # on request, since it takes a while
        await answer(packed, headers={"content-encoding": "gzip"}, content_type=content_type)(request, writer)

    return respond


async def _start(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Odd"
    head = [f"HTTP/1.1 {status} {phrase}", *[f"{name}: {value}" for name, value in headers.items()], "", ""]
    writer.write("\r\n".join(head).encode("latin-1"))
    await writer.drain()
