"""The transport over streamable HTTP.

The package `mcp` speaks the protocol. Responses are limited and filtered here, before the package reads them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, JSONRPCError, JSONRPCResponse

from swink_agent.core.values.decoders import json_decoder, whole_json

from .flood import LIST_CHANGED, TOO_MANY, Flood
from .process import LONGEST_LINE

_MOST_OWED = 32
_NOTICE_TAKEN = 10.0  # seconds in which a server must accept a message that needs no answer
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LONGEST_END = 4
_LARGE = f"larger than the limit of {LONGEST_LINE // 1024**2} MiB"


@asynccontextmanager
async def http_streams(
    url: str, headers: Mapping[str, str], on_status: Callable[[int], None], on_list_changed: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The messages of a server at an address. `on_status` gets the status of each response, or 0 if none came."""
    sieve = _Sieve(on_list_changed)

    def broke(error: httpx2.HTTPError, request: httpx2.Request) -> bytes:
        on_status(0)
        problem = {"code": INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}"}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": _id_of(request.content), "error": problem})

    async def look(response: httpx2.Response) -> None:
        if response.request.method == "POST":  # other requests only listen, and a server may refuse them
            on_status(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for", request=response.request)
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Events(response.stream, sieve)
        else:
            response.stream = _Bounded(response.stream, lambda error: broke(error, response.request))

    async def limit(request: httpx2.Request) -> None:
        # Notices and answers are sent one after the other, so one that is never accepted would block all calls.
        if request.method == "POST" and _id_of(request.content) is None:
            limits = request.extensions.get("timeout", {})
            request.extensions = {**request.extensions, "timeout": {**limits, "read": _NOTICE_TAKEN}}

    async with (
        _Client(
            broke,
            headers={"accept-encoding": "identity", **headers},
            timeout=httpx2.Timeout(30, read=None),  # `McpServer` limits the time of calls
            event_hooks={"request": [limit], "response": [look]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_LINE) as (read, write),
    ):
        yield read, _Answers(write, sieve)


class _Client(httpx2.AsyncClient):
    """A client that makes an answer itself if a request fails: else the package would end all other calls too."""

    def __init__(self, broke: Callable[[httpx2.HTTPError, httpx2.Request], bytes], **given: Any) -> None:
        super().__init__(**given)
        self._broke = broke

    async def send(self, request: httpx2.Request, **given: Any) -> httpx2.Response:
        try:
            return await super().send(request, **given)
        except httpx2.HTTPError as error:
            if request.method != "POST":
                raise
            said = self._broke(error, request)
            status = 202 if _id_of(request.content) is None else 200
            return httpx2.Response(status, headers={"content-type": "application/json"}, content=said, request=request)


class _Head(msgspec.Struct):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET


_HEAD = json_decoder(_Head)


def _id_of(body: bytes) -> msgspec.Raw | None:
    """The id of a request of ours; `None` for notices and answers."""
    head = _HEAD.decode(body)
    return None if head.id is msgspec.UNSET or head.method is msgspec.UNSET else head.id


class _Sieve:
    """Decides which events of a server are taken.

    Drops notifications that do not matter here. Also drops requests of a server that does not accept our answers fast
    enough, so that they do not fill our memory.
    """

    def __init__(self, on_list_changed: Callable[[], None]) -> None:
        self._on_list_changed = on_list_changed
        self._flood = Flood()
        self.owed = 0  # the server's own requests that have no answer yet

    def sift(self, event: bytes) -> bytes:
        """The event; if its message is dropped, only its id and retry time. Raises `SSEError` for too many events."""
        if self._flood.grows():
            raise httpx2.SSEError(TOO_MANY)
        data: list[bytes] = []
        place: list[bytes] = []
        is_message = True
        for line in event.splitlines():
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                is_message = value.strip() in (b"", b"message")
            elif field in (b"id", b"retry"):
                place.append(line)
        said = b"\n".join(data)
        if is_message and (not data or self._is_taken(said)):
            whole = whole_json(said)
            return event if whole is said else b"\n".join([*place, b"data: " + whole, b"", b""])
        return b"\n".join([*place, b"", b""]) if place else b""

    def _is_taken(self, data: bytes) -> bool:
        try:
            head = _HEAD.decode(data)
        except (ValueError, RecursionError):
            return True  # the package reports what is wrong with it
        if head.method is msgspec.UNSET:
            return True
        if head.id is msgspec.UNSET:
            if head.method == LIST_CHANGED:
                self._on_list_changed()
            return self._flood.hears(head.method)
        if self.owed >= _MOST_OWED:
            return False
        self.owed += 1
        return True


class _Events(httpx2.AsyncByteStream):
    """A response that is a stream of events, without the dropped ones."""

    def __init__(self, stream: Any, sieve: _Sieve) -> None:
        self._stream = stream
        self._sieve = sieve

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        waiting = bytearray()
        searched = 0
        async for chunk in self._stream:
            await asyncio.sleep(0)  # a server that sends without a pause must not block the event loop
            waiting += chunk
            taken: list[bytes] = []
            begin = 0
            for end in _EVENT_END.finditer(waiting, max(0, searched - _LONGEST_END + 1)):
                taken.append(self._sieve.sift(bytes(waiting[begin : end.end()])))
                begin = end.end()
            del waiting[:begin]
            searched = len(waiting)
            if searched > LONGEST_LINE:
                raise httpx2.SSEError(f"an event is {_LARGE}")
            if any(taken):
                yield b"".join(taken)
        if waiting:
            yield bytes(waiting)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A response that is one message. If it fails or is too large, it is replaced by the result of `broke`."""

    def __init__(self, stream: Any, broke: Callable[[httpx2.HTTPError], bytes]) -> None:
        self._stream = stream
        self._broke = broke

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        whole = bytearray()
        try:
            async for chunk in self._stream:
                whole += chunk
                if len(whole) > LONGEST_LINE:
                    raise httpx2.ReadError(f"the answer is {_LARGE}")
        except httpx2.HTTPError as error:
            yield self._broke(error)
        else:
            yield whole_json(bytes(whole))

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Answers:
    """Messages to a server. Notes which of its requests are answered."""

    def __init__(self, stream: Any, sieve: _Sieve) -> None:
        self._stream = stream
        self._sieve = sieve

    async def send(self, item: SessionMessage, /) -> None:
        try:
            await self._stream.send(item)
        finally:
            if isinstance(item.message, (JSONRPCResponse, JSONRPCError)):
                self._sieve.owed -= 1

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
