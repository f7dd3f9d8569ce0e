"""Gets one URL: resolves its host once, connects only to checked addresses, and reads no more than a limit.

Refuses requests into private networks, and limits redirects, time and size. `web_fetch` interprets the answer. No error
quotes text from a server, as that would be outside the marks around a page; only the URL of a redirect is named, in its
normal form.
"""

from __future__ import annotations

import asyncio
import socket
import string
import zlib
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin

from swink_agent.approvals.web_hosts import WebPlace, read_url
from swink_agent.core.errors import ToolError
from swink_agent.sandbox.network.addresses import Address, is_metadata, is_public, read_address
from swink_agent.sandbox.network.proxy import resolve_by_system

if TYPE_CHECKING:
    import aiohttp

ResolveFn = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, as texts."""

MOST_BYTES = 5 * 1024 * 1024
_CONNECT_SECONDS, _SECONDS = 10.0, 30.0
_MOST_REDIRECTS = 5
_CHUNK = 64 * 1024
_GZIP = b"\x1f\x8b"  # how each part of a gzip file begins
_MOST_PARTS = 100
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "Accept": "text/html, text/markdown, text/plain, application/json, application/xml, image/*;q=0.8, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "swink-agent",
}


class PrivateAddress(NamedTuple):
    """An address that is not public and may be fetched from; `None` is every port."""

    address: Address
    port: int | None


def private_address(text: str) -> PrivateAddress:
    """Reads `127.0.0.1:8080`, `10.0.0.5` or `[::1]:80`. Raises `ValueError` for names, networks and metadata."""
    host, port = text, None
    if text.startswith("[") or text.count(":") == 1:
        host, colon, number = text.rpartition(":") if not text.endswith("]") else (text, "", "")
        if colon and not (number.isascii() and number.isdecimal() and 1 <= int(number) <= 65535):
            raise ValueError(f"{text!r} is not an address that web_fetch can be given: {number!r} is not a port")
        port = int(number) if colon else None
    try:
        address = read_address(host)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address that web_fetch can be given: {error}") from None
    if address is None:
        raise ValueError(f"{text!r} is not an address: web_fetch is given addresses, not names or networks")
    if is_metadata(address):
        raise ValueError(f"{text!r} is the address of a cloud's metadata, which web_fetch never asks")
    return PrivateAddress(address, port)


class Answer(NamedTuple):
    """The answer of a server."""

    url: str
    status: int
    media_type: str
    charset: str | None
    body: bytes
    is_whole: bool
    """Whether the body is all of it."""
    size: int | None
    """The bytes of the body before it is unpacked, as declared by the server."""


async def fetch(place: WebPlace, *, resolve: ResolveFn | None, private: Sequence[PrivateAddress]) -> Answer:
    """Gets the URL, and follows redirects on the same host. Raises `ToolError`."""
    try:
        async with asyncio.timeout(_SECONDS):
            return await _follow(place, resolve or _system_addresses, private)
    except TimeoutError as error:
        raise ToolError(f"{place.name} did not answer within {_SECONDS:g} s") from error


async def _follow(place: WebPlace, resolve: ResolveFn, private: Sequence[PrivateAddress]) -> Answer:
    for _ in range(_MOST_REDIRECTS + 1):
        answer, location = await _ask(place, await _checked(place, resolve, private))
        if location is None:
            return answer
        try:
            onward = read_url(urljoin(place.url, location))
        except ValueError as error:
            raise ToolError(f"{place.name} redirects to an address that cannot be used: {error}") from error
        # A server may hide text in characters that do not show.
        onward = onward._replace(url=quote(onward.url, safe=string.punctuation, errors="surrogateescape"))
        if onward.name != place.name:
            raise ToolError(
                f"{place.name} redirects to another host, which is not followed: {onward.url}. To read it, call "
                "web_fetch with that URL"
            )
        place = onward
    raise ToolError(f"{place.name} redirects more than {_MOST_REDIRECTS} times")


async def _checked(place: WebPlace, resolve: ResolveFn, private: Sequence[PrivateAddress]) -> list[str]:
    """The addresses to connect to. Raises `ToolError` unless all of them are allowed."""
    if isinstance(place.host, str):
        try:
            found = [_normal(text) for text in await resolve(place.host, place.port)]
        except (OSError, ValueError) as error:
            raise ToolError(f"{place.host} cannot be found: {error}") from error
    else:
        found = [place.host]
    if not found:
        raise ToolError(f"{place.host} has no address")
    for address in found:
        is_opened = any(known.address == address and known.port in (None, place.port) for known in private)
        if is_metadata(address) or not (is_public(address) or is_opened):
            raise ToolError(
                f"{place.name} was not asked: {address} is not a public address. Only the user can allow it "
                "(the setting web_private)"
            )
    return [str(address) for address in found]


def _normal(text: str) -> Address:
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


async def _system_addresses(host: str, port: int) -> Sequence[str]:
    return list(dict.fromkeys([address.partition("%")[0] for address in await resolve_by_system(host, port)]))


async def _ask(place: WebPlace, addresses: list[str]) -> tuple[Answer, str | None]:
    """Sends one request to one of the addresses; returns the answer, and where it redirects to."""
    import aiohttp
    from yarl import URL

    url = URL(place.url, encoded=True)  # exactly as it was read and approved: nothing is decoded or rebuilt
    connector = aiohttp.TCPConnector(resolver=_fixed(addresses), use_dns_cache=False, force_close=True)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=_SECONDS, sock_connect=_CONNECT_SECONDS),
        trust_env=False,
        auto_decompress=False,
        headers=_HEADERS,
    )
    try:
        async with session, session.get(url, allow_redirects=False) as response:
            location = response.headers.get("Location") if response.status in _REDIRECTS else None
            body, is_whole = (b"", True) if location else await _body(response, place.name)
            kind, size = response.content_type.lower(), response.content_length
            answer = Answer(place.url, response.status, kind, response.charset, body, is_whole, size)
            return answer, location or None
    except aiohttp.ClientConnectorError as error:
        raise ToolError(f"{place.name} could not be reached: {error}") from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ToolError(f"{place.name} could not be reached within {_CONNECT_SECONDS:g} s") from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise ToolError(f"{place.name} could not be read: it closed the connection") from error
    except aiohttp.ClientError as error:
        why = "its answer is cut off" if isinstance(error, aiohttp.ClientPayloadError) else "its answer is not HTTP"
        raise ToolError(f"{place.name} could not be read: {why}") from error


def _fixed(addresses: list[str]) -> Any:
    """A resolver that knows only these addresses, so that nothing is looked up a second time."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Fixed(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        async def close(self) -> None:
            pass

    return Fixed()


async def _body(response: aiohttp.ClientResponse, name: str) -> tuple[bytes, bool]:
    """Reads and unpacks the body, up to the limit; returns whether that is all. Raises `ToolError`."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise ToolError(f"{name} could not be read: it compressed its answer in a way that was not asked for")
    unpack = None if encoding in ("", "identity") else _Unpacking(name)
    parts: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        data = chunk if unpack is None else unpack.feed(chunk, MOST_BYTES + 1 - size)
        parts.append(data)
        size += len(data)
        if size > MOST_BYTES:
            return b"".join(parts)[:MOST_BYTES], False
        if unpack is not None and unpack.is_over:  # a server may send garbage without an end
            break
    return b"".join(parts), unpack is None or unpack.is_whole


class _Unpacking:
    """Unpacks gzip and deflate in pieces of a limited size: a small answer may unpack to gigabytes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        self._is_first = True
        self._parts = 1
        self.is_over = False
        """Whether nothing that follows is unpacked."""

    @property
    def is_whole(self) -> bool:
        """Whether everything was unpacked: the compressed data, if there was any, had an end."""
        return (self._inflate.eof or self._is_first) and self._parts < _MOST_PARTS

    def feed(self, data: bytes, most: int) -> bytes:
        unpacked = self._unpacked(data, most)
        # A gzip file may have several parts. Whatever else follows its end is not a part of it.
        while self._inflate.eof and len(unpacked) < most and len(rest := self._inflate.unused_data) >= len(_GZIP):
            self.is_over = not rest.startswith(_GZIP) or self._parts == _MOST_PARTS
            if self.is_over:
                break
            self._parts += 1
            self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            unpacked += self._unpacked(rest, most - len(unpacked))
        return unpacked

    def _unpacked(self, data: bytes, most: int) -> bytes:
        try:
            return self._inflate.decompress(data, most)
        except zlib.error as error:
            if self._is_first:  # deflate without its header, as some servers send it
                self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
                try:
                    return self._inflate.decompress(data, most)
                except zlib.error:
                    pass
            raise ToolError(f"{self._name} could not be read: its answer cannot be unpacked") from error
        finally:
            self._is_first = False
