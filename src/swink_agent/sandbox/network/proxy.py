"""The filtering proxy: takes requests of confined commands and passes on those to allowed hosts.

It runs in this process, in the event loop that started the command, and reads what a hostile program sends. So it is
small: HTTP/1 only, `CONNECT` and absolute `http:` addresses, one request per connection, and bounds on everything. A
name is compared with the allowed ones, then resolved once, and the connection goes to an address that was checked.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hmac
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from swink_agent.core.waits import in_own_thread

from .addresses import Address, read_address
from .client_hello import HelloGate, NotTls, OtherHost
from .hosts import Hosts
from .reached import ConnectFn, Reached, ResolveFn
from .requests import LONGEST_HEAD, STRAY_LINE_END, BadRequest, Request, as_authority, close_after, read_request

_LOG = logging.getLogger("swink_agent.sandbox")

_CHUNK = 64 * 1024
_HTTP = 80
_HEAD_WITHIN = 30.0
_CONNECT_WITHIN = 30.0
_IDLE = 600.0
"""Seconds in which a connection must pass something on, in either direction."""
_AFTER_THE_CLIENT = 15.0
"""Seconds in which a server must continue its answer once the client has closed its side."""
_LINGER = 1.0
_MOST_LINGERED = 1024 * 1024
_MOST_ADDRESSES = 16
_LONGEST_CHUNK_LINE = 1024
_MOST_TRAILERS = 64
_USER = "swink"
"""The user name that is sent with a token."""
_HERE = "127.0.0.1"
_LOOPBACK = "localhost,127.0.0.1,::1"
_NOT_AMONG = "is not among the hosts that may be reached"


class _Refused(Exception):
    """The proxy answers itself, with this status and text, instead of the server."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Proxy:
    """Serves connections for one set of hosts. `handle` is called for each connection that a listener accepts."""

    def __init__(
        self,
        entries: Iterable[str],
        *,
        resolve: ResolveFn | None = None,
        connect: ConnectFn | None = None,
        token: str = "",
    ) -> None:
        """`token`: the password that every request must give, where others can reach the listener too."""
        self._hosts = Hosts(entries)
        self._resolve = resolve or resolve_by_system
        self._connect = connect or asyncio.open_connection
        self._expected = b"Basic " + base64.b64encode(f"{_USER}:{token}".encode()) if token else b""

    async def handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tell: Callable[[Reached], None]
    ) -> None:
        """Serves one request and closes the connection. Errors of a client or a server are not raised."""
        try:
            try:
                await self._serve(reader, writer, tell)
            except _Refused as refused:
                await _answer(reader, writer, refused.status, str(refused))
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError, OtherHost) as error:
            _LOG.debug("a connection of the network proxy ended: %r", error)
        finally:
            await _close(writer)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tell: Callable[[Reached], None]
    ) -> None:
        async with asyncio.timeout(_HEAD_WITHIN):
            head, rest = await _read_head(reader)
        try:
            request = read_request(head)
        except BadRequest as error:
            raise _Refused("400 Bad Request", f"the request is not served: {error}") from None
        if self._expected and not hmac.compare_digest(request.authorization, self._expected):
            raise _Refused("407 Proxy Authentication Required", "this proxy belongs to other commands")

        def note(allowed: bool, why: str) -> None:
            tell(Reached(str(request.host), request.port, allowed, why))

        upstream_reader, upstream = await self._open(request, note)
        note(True, "")
        client = _Source(reader, rest)
        try:
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _tunnel(
                    client, writer, upstream_reader, upstream, HelloGate(request.host, only_tls=request.port == _HTTP)
                )
            else:
                upstream.write(request.head)
                await _forward(client, writer, upstream_reader, upstream, request.length)
        except NotTls:
            note(False, "was closed: plain HTTP is asked for by its whole address, not in a tunnel")
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        except OtherHost as error:
            note(False, f"was closed: TLS inside the connection names {error}")
        finally:
            await _close(upstream)

    async def _open(
        self, request: Request, note: Callable[[bool, str], None]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a checked address of the host. Raises `_Refused`."""
        host, port = request.host, request.port
        where = as_authority(host, port)

        def refused(status: str, allowed: bool, why: str) -> _Refused:
            note(allowed, why)
            return _Refused(status, f"{where} {why}")

        if not self._hosts.allow(host, port):
            raise refused("403 Forbidden", False, _NOT_AMONG)
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                if isinstance(host, str):
                    try:
                        addresses = _addresses(await self._resolve(host, port))
                    except Exception as error:  # `resolve` may be the application's
                        _LOG.debug("%s could not be resolved: %r", host, error)
                        addresses = []
                    if not addresses:
                        raise refused("502 Bad Gateway", True, "could not be resolved")
                    if (wrong := self._hosts.refusal(addresses, port)) is not None:
                        raise refused("403 Forbidden", False, f"leads to {wrong}, which is not a public address")
                else:
                    addresses = [host]
                return await self._connect_to(addresses[:_MOST_ADDRESSES], port)
        except TimeoutError:
            raise refused("504 Gateway Timeout", True, "did not answer in time") from None
        except OSError as error:
            reason = (error.strerror or "").lower() or "the connection failed"
            raise refused("502 Bad Gateway", True, f"could not be reached: {reason}") from None

    async def _connect_to(
        self, addresses: Sequence[Address], port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The first connection that succeeds. Raises `OSError` of the last."""
        failure = OSError("no address")
        for number, address in enumerate(addresses):
            try:
                async with asyncio.timeout(_CONNECT_WITHIN / (len(addresses) - number + 1)):
                    return await self._connect(str(address), port)
            except TimeoutError:
                failure = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            except OSError as error:
                failure = error
            except Exception as error:  # `connect` may be the application's
                _LOG.debug("%s could not be connected to: %r", address, error)
        raise failure


def proxy_variables(port: int, token: str = "") -> dict[str, str]:
    """The variables by which programs find the proxy. Those for certificates stay, because TLS is not opened here."""
    address = f"http://{_USER}:{token}@{_HERE}:{port}" if token else f"http://{_HERE}:{port}"
    names = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": _LOOPBACK}
    return {**names, **{name.lower(): value for name, value in names.items()}, "NODE_USE_ENV_PROXY": "1"}


async def resolve_by_system(host: str, port: int) -> list[str]:
    """The addresses of a host, by the system's resolver."""
    # Not in the loop's few threads, which others need: a name server that does not answer blocks a thread for long.
    found = await in_own_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _addresses(given: Iterable[object]) -> list[Address]:
    """The addresses that a resolver returned. Raises `ValueError` if one is not an address: then none is used."""
    read = [read_address(str(text)) for text in ((given,) if isinstance(given, str) else given)]
    if None in read:
        raise ValueError("a name was resolved to something that is not an address")
    return [address for address in read if address is not None]


# -- reading -------------------------------------------------------------------------------------------------------


class _Source:
    """The bytes that a client sends after the head of its request."""

    def __init__(self, reader: asyncio.StreamReader, held: bytes) -> None:
        self._reader = reader
        self._held = held

    async def some(self, most: int = _CHUNK) -> bytes:
        """At least one byte, or none at the end."""
        if self._held:
            part, self._held = self._held[:most], self._held[most:]
            return part
        return await self._reader.read(most)

    async def line(self) -> bytes:
        """A line without its end. Raises `ValueError` if it is too long or ends wrongly."""
        while b"\n" not in self._held:
            if len(self._held) > _LONGEST_CHUNK_LINE:
                raise ValueError("a line is too long")
            part = await self._reader.read(_LONGEST_CHUNK_LINE)
            if not part:
                raise EOFError
            self._held += part
        line, _, self._held = self._held.partition(b"\n")
        if not line.endswith(b"\r") or b"\r" in line[:-1] or len(line) > _LONGEST_CHUNK_LINE:
            raise ValueError("a line ends wrongly")
        return line[:-1]


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head of a request without its empty line, and the bytes after it. Raises `_Refused`."""
    data = bytearray()
    while True:
        seen = len(data)
        part = await reader.read(_CHUNK)
        if not part:
            raise EOFError
        data += part
        end = data.find(b"\r\n\r\n", max(0, seen - 3))
        if STRAY_LINE_END.search(data, max(0, seen - 1), len(data) if end < 0 else end + 4):
            raise _Refused("400 Bad Request", "the request is not served: it has stray line ends")
        if max(end, len(data) if end < 0 else 0) > LONGEST_HEAD:
            raise _Refused("400 Bad Request", "the request is not served: its head is too long")
        if end >= 0:
            return bytes(data[:end]), bytes(data[end + 4 :])


# -- passing on ----------------------------------------------------------------------------------------------------


async def _tunnel(
    client: _Source,
    writer: asyncio.StreamWriter,
    upstream_reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
    gate: HelloGate,
) -> None:
    async with asyncio.timeout(_IDLE) as limit:

        async def up() -> None:
            while data := await client.some():
                if not gate.is_open:
                    data = gate.feed(data)
                await _send(upstream, data, limit)
            _end(upstream)

        async def down() -> None:
            while data := await upstream_reader.read(_CHUNK):
                await _send(writer, data, limit)
            _end(writer)

        await _together(up(), down())


async def _forward(
    client: _Source,
    writer: asyncio.StreamWriter,
    upstream_reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
    length: int | None,
) -> None:
    """Sends the body (the head was sent) and passes the answer on. Bytes after the body are dropped."""
    async with asyncio.timeout(_IDLE) as limit:
        sending = asyncio.ensure_future(
            _send_chunks(client, upstream, limit) if length is None else _send_body(client, upstream, length, limit)
        )
        answering = asyncio.ensure_future(_pass_answer(upstream_reader, writer, limit))
        leaving = answering
        try:
            await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with suppress(OSError):  # a server may answer and close before it has read everything
                    sending.result()
                leaving = asyncio.ensure_future(_wait_for_end(client))
                await asyncio.wait((leaving, answering), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    limit.reschedule(asyncio.get_running_loop().time() + _AFTER_THE_CLIENT)
            await answering
        finally:
            await _cancel(sending, answering, leaving)


async def _wait_for_end(client: _Source) -> None:
    """Waits until the client closes its side. It may still read the rest of the answer."""
    with suppress(OSError):
        while await client.some():
            pass


async def _send_body(client: _Source, upstream: asyncio.StreamWriter, length: int, limit: asyncio.Timeout) -> None:
    while length:
        data = await client.some(min(length, _CHUNK))
        if not data:
            raise EOFError
        length -= len(data)
        await _send(upstream, data, limit)
    await upstream.drain()


async def _send_chunks(client: _Source, upstream: asyncio.StreamWriter, limit: asyncio.Timeout) -> None:
    while True:
        size = _chunk_size(await client.line())
        if size == 0:
            break
        await _send(upstream, b"%x\r\n" % size, limit)
        await _send_body(client, upstream, size, limit)
        if await client.line():
            raise ValueError("a chunk is longer than its size")
        await _send(upstream, b"\r\n", limit)
    for _ in range(_MOST_TRAILERS):
        if not await client.line():  # what comes before it is not passed on
            await _send(upstream, b"0\r\n\r\n", limit)
            return
    raise ValueError("there are too many trailers")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if not 0 < len(digits) <= 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise ValueError("the size of a chunk is not a number")
    return int(digits, 16)


async def _pass_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: asyncio.Timeout) -> None:
    """Passes the answer on unchanged, except that its head announces the end of the connection."""
    data = b""
    while True:
        head, data = await _read_answer_head(reader, data)
        if head[9:10] != b"1" or head[9:12] == b"101":
            break
        await _send(writer, head, limit)  # 100 Continue and the like come before the answer
    await _send(writer, close_after(head) + data, limit)
    while data := await reader.read(_CHUNK):
        await _send(writer, data, limit)
    _end(writer)


async def _read_answer_head(reader: asyncio.StreamReader, data: bytes) -> tuple[bytes, bytes]:
    while True:
        if not (data[:5] == b"HTTP/"[: len(data)] and len(data) <= LONGEST_HEAD + _CHUNK):
            raise _Refused("502 Bad Gateway", "the server does not answer by HTTP/1")
        ends = [at + len(mark) for mark in (b"\r\n\r\n", b"\n\n") if (at := data.find(mark)) >= 0]
        if ends:
            return data[: min(ends)], data[min(ends) :]
        part = await reader.read(_CHUNK)
        if not part:
            raise _Refused("502 Bad Gateway", "the server closed the connection without an answer")
        data += part


async def _send(writer: asyncio.StreamWriter, data: bytes, limit: asyncio.Timeout) -> None:
    if data:
        writer.write(data)
        await writer.drain()
    limit.reschedule(asyncio.get_running_loop().time() + _IDLE)


def _end(writer: asyncio.StreamWriter) -> None:
    """Tells the other side that nothing more comes from here, while it may still send."""
    with suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


async def _together(*ways: Coroutine[Any, Any, None]) -> None:
    """Runs all to their end. The first failure cancels the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await _cancel(*tasks)


async def _cancel(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: str, text: str) -> None:
    """Answers instead of a server, and continues to read for a moment: closing at once could lose the answer."""
    body = f"swink sandbox: {text}\n".encode("utf-8", "replace")
    asks = b'Proxy-Authenticate: Basic realm="swink"\r\n' if status.startswith("407") else b""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n".encode()
    async with asyncio.timeout(_LINGER):
        writer.write(head + asks + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
        _end(writer)
        read = 0
        while read < _MOST_LINGERED and (part := await reader.read(_CHUNK)):
            read += len(part)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes a connection. What the other side does not read within a moment is dropped."""
    task = asyncio.current_task()
    with suppress(Exception):  # `connect` may be the application's
        try:
            writer.close()
            if task is None or not task.cancelling():  # else the command has ended
                async with asyncio.timeout(_LINGER):
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
