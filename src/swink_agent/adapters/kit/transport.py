"""The HTTP that a streaming adapter needs: one POST, its status, its headers, and its body in pieces.

Everything has a limit. aiohttp is imported when the first request is made.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, finalize

from swink_agent.core.cancel import CancellationToken, call_in
from swink_agent.core.errors import ErrorKind
from swink_agent.core.values.value import Value

_LARGE = 1024 * 1024
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PIECE = 32 * 1024
"""The most bytes of a body that are returned at once. If a server sends without a pause, other tasks run in between."""


class Limits(Value, frozen=True, kw_only=True):
    """Seconds that a call may take."""

    connect: float = 20.0
    """Until the connection is open."""
    progress: float = 120.0
    """From one frame to the next, including the first; bytes that complete no frame do not count."""
    total: float = 1800.0
    """For the whole call."""


class HttpRequest(Value, frozen=True, kw_only=True):
    """One POST. The repr never shows headers and body, which may hold keys and prompts."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"headers", "body"})

    url: str
    headers: dict[str, str]
    body: bytes
    limits: Limits = Limits()


class TransportError(Exception):
    """The call failed below HTTP, or a limit or the caller ended it."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.NETWORK) -> None:
        super().__init__(message)
        self.kind = kind


class HttpResponse(Protocol):
    """An answer whose body has not been read yet."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        ...

    async def read(self) -> bytes:
        """Returns the next bytes of the body, or none at its end. Raises `TransportError`."""
        ...

    def progress(self) -> None:
        """Restarts the progress deadline. Called when a frame is complete."""
        ...


class Transport(Protocol):
    """Sends requests. Tests, and users with special networks, can provide their own."""

    def post(self, request: HttpRequest, cancel: CancellationToken) -> Any:
        """Returns an async context manager that gives the `HttpResponse` and closes the connection at its end.

        Raises `TransportError`, also while reading the body, if a limit is reached or the token is cancelled.
        """
        ...


class AiohttpTransport:
    """The default transport. It keeps connections alive for each event loop as long as it exists."""

    __slots__ = ("__weakref__", "_sessions")

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[Any]] = WeakKeyDictionary()

    async def _session(self) -> Any:
        loop = asyncio.get_running_loop()
        keeper = self._sessions.get(loop)
        if keeper is None:
            keeper = self._sessions[loop] = _keep_session()
            session = await anext(keeper)
            # Referenced here too, so that collecting the transport closes the session without a warning.
            finalize(self, _let_go, session).atexit = False
            return session
        return await keeper.asend(None)

    async def get(self, url: str, headers: Mapping[str, str], *, seconds: float = 2.0) -> bytes:
        """Fetches a small document, for advice after a failure. Raises `TransportError` after a short time."""
        import aiohttp

        session = await self._session()
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with session.get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
                if response.status != 200:
                    raise TransportError(f"{url}: HTTP {response.status}")
                return await response.read()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise TransportError(_explain(error, url)) from error

    @asynccontextmanager
    async def post(self, request: HttpRequest, cancel: CancellationToken) -> AsyncGenerator[HttpResponse]:
        import aiohttp

        watch = _Watch(request.limits, cancel)
        session = await self._session()
        pending = session.post(
            request.url,
            # A large body is sent in pieces, so that it does not block the event loop.
            data=request.body if len(request.body) <= _LARGE else BytesIO(request.body),
            headers=request.headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=request.limits.connect),
        )
        response: Any = None
        try:
            try:
                response = await watch.first(pending)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # ValueError: an invalid URL or header. If the call was ended, the reason for that is raised instead.
                raise watch.reason or _unsendable(request) or TransportError(_explain(error, request.url)) from error
            watch.attach(response.close)
            yield _AiohttpResponse(response, watch, request.url)  # errors of its reader are not caught here
        finally:
            watch.close()
            if response is not None:
                response.release()  # for the next call if the body was read to its end, else closed


def _let_go(session: Any) -> None:
    """Does nothing: its argument only keeps the session referenced until its generator closes it."""


async def _keep_session() -> AsyncGenerator[Any]:
    """Holds a session until the event loop ends, which closes async generators, or the transport is collected."""
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
        auto_decompress=False,
        read_bufsize=256 * 1024,
        trust_env=True,
    )
    try:
        while True:
            yield session
    finally:
        await session.close()


class _Watch:
    """Watches the limits and the token of one call, and closes the response when one is reached."""

    __slots__ = ("_cancel", "_close", "_deadline", "_key", "_last", "_limits", "_loop", "_timer", "reason")

    def __init__(self, limits: Limits, cancel: CancellationToken) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._cancel = cancel
        self._close: Callable[[], None] | None = None
        self._last = self._loop.time()
        self._deadline = self._last + limits.total
        self._timer: asyncio.TimerHandle | None = None
        self.reason: TransportError | None = None  # why the watch ended the call, if it did
        self._key = cancel.add_callback(self._on_cancel)

    async def first(self, pending: Any) -> Any:
        """Waits for the response and its headers."""
        task = asyncio.ensure_future(pending)
        self._close = task.cancel
        if self.reason is not None:
            task.cancel()
        self._check()
        try:
            return await task
        except asyncio.CancelledError:
            if self.reason is None:
                task.cancel()
                raise
            raise self.reason from None

    def attach(self, close: Callable[[], None]) -> None:
        self._close = close
        if self.reason is not None:
            close()

    def progress(self) -> None:
        self._last = self._loop.time()

    def close(self) -> None:
        self._cancel.remove_callback(self._key)
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        stalled = self._last + self._limits.progress
        if now >= self._deadline:
            self._give_up(TransportError(f"the call took longer than {self._limits.total:g} s"))
        elif now >= stalled:
            self._give_up(TransportError(f"nothing usable came for {self._limits.progress:g} s"))
        else:
            self._timer = self._loop.call_at(min(stalled, self._deadline), self._check)

    def _on_cancel(self) -> None:
        call_in(self._loop, self._give_up, TransportError("the call was cancelled", ErrorKind.ABORTED))

    def _give_up(self, reason: TransportError) -> None:
        if self.reason is None:
            self.reason = reason
            if self._close is not None:
                self._close()


class _AiohttpResponse:
    __slots__ = ("_broken", "_read", "_unpacker", "_url", "_watch", "headers", "status")

    def __init__(self, response: Any, watch: _Watch, url: str) -> None:
        from aiohttp import ClientError

        self._broken = (ClientError, OSError, ValueError)
        self._url = url
        self._watch = watch
        self._read: Callable[[int], Awaitable[bytes]] = response.content.read
        self.status: int = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        encoding = self.headers.get("content-encoding", "identity").lower()
        self._unpacker = None if encoding in ("", "identity") else _Unpacker(encoding)

    def progress(self) -> None:
        self._watch.progress()

    async def read(self) -> bytes:
        unpacker = self._unpacker
        while True:
            if unpacker is not None and unpacker.has_more and (piece := unpacker.next()):
                await asyncio.sleep(0)
                return piece
            try:
                data = await self._read(_PIECE)
                if len(data) == _PIECE:  # aiohttp returns buffered data without letting other tasks run
                    await asyncio.sleep(0)
            except self._broken as error:
                raise self._watch.reason or TransportError(_explain(error, self._url)) from error
            if not data and self._watch.reason is not None:
                raise self._watch.reason
            if unpacker is None or not data:
                return data
            unpacker.feed(data)


class _Unpacker:
    """Decompresses gzip and deflate in small pieces, so that a tiny body cannot become a huge one at once."""

    __slots__ = ("_inner", "_packed", "has_more")

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise TransportError(f"a body in the encoding {encoding!r}, which was not asked for")
        self._inner = zlib.decompressobj(wbits=47 if "gzip" in encoding else 15)
        self._packed = b""
        self.has_more = False

    def feed(self, packed: bytes) -> None:
        self._packed += packed
        self.has_more = True

    def next(self) -> bytes:
        """Returns the next piece, or nothing until more data is fed."""
        try:
            piece = self._inner.decompress(self._packed, _PIECE)
        except zlib.error as error:
            raise TransportError(f"a compressed body that cannot be read: {error}") from error
        self._packed = self._inner.unconsumed_tail
        self.has_more = bool(self._packed or piece)
        return piece


def _unsendable(request: HttpRequest) -> TransportError | None:
    """Returns the error for a header that HTTP cannot express, such as a key that was read with its line end."""
    for name, value in request.headers.items():
        if _CONTROL.search(value):
            what = f"the header {name} has a line break or another control character in it: remove it from the key"
            return TransportError(f"{what}, or from StreamOptions.headers", ErrorKind.INVALID_REQUEST)
    return None


def _explain(error: Exception, url: str) -> str:
    """Describes an error for a user, without the names of Python's classes."""
    where = url.split("?", 1)[0]  # a query may hold a key
    place = urlsplit(where)
    where = where.replace(f"{place.netloc.rpartition('@')[0]}@", "") if "@" in place.netloc else where
    system = getattr(error, "os_error", error)
    if isinstance(system, TimeoutError):
        return f"{where}: no answer in time"
    number = getattr(system, "errno", None)
    if isinstance(number, int) and number > 0:
        advice = " (no server listens there: is it running?)" if number == errno.ECONNREFUSED else ""
        return f"{where}: {os.strerror(number)}{advice}"
    if reason := getattr(system, "strerror", None):
        return f"{where}: {reason}"
    text = str(error)
    return f"{where}: {text or 'the connection failed'}" if text != url else f"{where} cannot be asked"
