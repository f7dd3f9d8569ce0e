"""The head of a request to the proxy: read strictly, and written anew for the host that it goes to.

Whatever two programs could read in two ways is refused: several lengths, stray line ends, folded lines. The `Host`
header is made from the address of the request; the client's own is dropped. Pure functions on bytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .addresses import Address
from .hosts import normal_host

LONGEST_HEAD = 64 * 1024
_MOST_HEADERS = 200
STRAY_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\0")
"""Line feeds and carriage returns that are not a pair; one at the end may become a pair."""
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_FIRST_LINE = re.compile(rb"(%b{1,32}) ([^\x00-\x20\x7f]{1,16384}) HTTP/1\.([01])" % _TOKEN)
_HEADER = re.compile(rb"(%b{1,256}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)" % _TOKEN)
_ABSOLUTE = re.compile(r"http://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]@]+)(?::([0-9]{1,5}))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HTTP_PORT = 80
_NOT_PASSED_ON = frozenset(
    {
        *(b"host", b"connection", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"keep-alive"),
        *(b"te", b"trailer", b"upgrade", b"content-length", b"transfer-encoding"),
    }
)


class BadRequest(Exception):
    """A request is refused with status 400; the text is the reason."""


class Request(NamedTuple):
    """One request: where it goes, and what is sent there."""

    host: str | Address
    port: int
    is_tunnel: bool
    """Whether it is `CONNECT`, which is not sent on."""
    head: bytes
    length: int | None
    """The length of its body; `None` if it comes in chunks."""
    authorization: bytes
    """Its credentials for the proxy."""


def read_request(head: bytes) -> Request:
    """Reads everything before the empty line, without line ends at its end. Raises `BadRequest`."""
    if STRAY_LINE_END.search(head) or head.endswith(b"\r"):
        raise BadRequest("it has stray line ends")
    first, *lines = head.split(b"\r\n")
    found = _FIRST_LINE.fullmatch(first)
    if found is None:
        raise BadRequest("it does not begin with an HTTP/1 request line")
    if len(lines) > _MOST_HEADERS:
        raise BadRequest("it has too many headers")
    headers = [_header(line) for line in lines]
    try:
        method, target, version = found[1], found[2].decode(), found[3]
    except UnicodeDecodeError:
        raise BadRequest("its address is not text") from None
    length = _length(headers, version)
    authorization = b"".join(value for name, value in headers if name.lower() == b"proxy-authorization")
    if method == b"CONNECT":
        if length != 0:
            raise BadRequest("a CONNECT has no body")
        host, port = _authority(target)
        if port is None:
            raise BadRequest("a CONNECT needs a host and a port")
        return Request(host, port, True, b"", 0, authorization)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or "#" in target:
        raise BadRequest("this proxy takes CONNECT, and addresses that begin with http://")
    host, given = _authority(absolute[1])
    port = _HTTP_PORT if given is None else given
    path = absolute[2] if absolute[2].startswith("/") else f"/{absolute[2]}"
    line = method + b" " + path.encode() + b" HTTP/1." + version
    return Request(host, port, False, _written(line, host, port, headers, length), length, authorization)


def as_authority(host: str | Address, port: int) -> str:
    text = str(host)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def close_after(head: bytes) -> bytes:
    """The head of an answer, with all line ends, changed so that the connection ends with it."""
    first, *lines = head.rstrip(b"\r\n").split(b"\n")
    kept = [line.rstrip(b"\r") for line in lines if not re.match(rb"(?i)((proxy-)?connection|keep-alive)[ \t]*:", line)]
    return b"\r\n".join([first.rstrip(b"\r"), *kept, b"Connection: close", b"", b""])


def _header(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise BadRequest("it has a line that is not a header")
    return found[1], found[2].rstrip(b" \t")


def _length(headers: list[tuple[bytes, bytes]], version: bytes) -> int | None:
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise BadRequest("it gives the length of its body more than once")
    if codings:
        if codings[0].lower() != b"chunked" or version != b"1":
            raise BadRequest("the only transfer encoding of a body is chunked")
        return None
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise BadRequest("the length of its body is not a number")
    return int(lengths[0]) if lengths else 0


def _authority(text: str) -> tuple[str | Address, int | None]:
    found = _AUTHORITY.fullmatch(text)
    if found is None or (found[2] and not 1 <= int(found[2]) <= 65535):
        raise BadRequest("it does not name a host and a port")
    try:
        return normal_host(found[1]), int(found[2]) if found[2] else None
    except ValueError as error:
        raise BadRequest(f"it does not name a host: {error}") from None


def _written(
    line: bytes, host: str | Address, port: int, headers: list[tuple[bytes, bytes]], length: int | None
) -> bytes:
    authority = as_authority(host, port)
    named = (value for name, value in headers if name.lower() == b"connection")
    dropped = {word.strip().lower() for value in named for word in value.split(b",")} | _NOT_PASSED_ON
    has_length = any(name.lower() == b"content-length" for name, _ in headers)
    lines = [line, b"Host: " + (authority.removesuffix(":80") if port == _HTTP_PORT else authority).encode()]
    lines += [name + b": " + value for name, value in headers if name.lower() not in dropped]
    if length is None:
        lines.append(b"Transfer-Encoding: chunked")
    elif has_length:
        lines.append(b"Content-Length: %d" % length)
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
