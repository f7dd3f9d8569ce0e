"""One request of the API: what a route is, and what its handler is given.

Owns how a query and a body are read and refused, and how an answer is written. What is done is in the other files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from swink_agent.core.values.decoders import converted

from ..problems import Problem, invalid

if TYPE_CHECKING:
    from ..rooms import Room
    from ..site import Site

MOST_JSON = 1024 * 1024
Action: TypeAlias = Literal["read", "write", "answer", "delete", "operate"]
"""What a request does, for the application that decides who may."""


class Asked(NamedTuple):
    """A request whose sender may do it. `query` and `body` are what the route's types make of them."""

    site: Site
    request: web.Request
    by: str
    """The person who asks, as `authorize` named them."""
    query: Any
    body: Any
    routes: tuple[Route, ...]
    """All routes of the API."""

    @property
    def session(self) -> str:
        """The id of the session in the path."""
        return self.request.match_info["session"]

    def name(self, part: str) -> str:
        """A part of the path."""
        return self.request.match_info[part]

    async def room(self) -> Room:
        """The room of the session in the path. Raises `SessionNotFound`."""
        return self.site.rooms.of(await self.site.find(self.session))


HandlerFn: TypeAlias = "Callable[[Asked], Awaitable[web.StreamResponse]]"


class Route(NamedTuple):
    """A line of the table: method and path beneath `/api/v1`, what it does, and the types of what goes in and out."""

    method: str
    path: str
    action: Action
    handle: HandlerFn
    summary: str
    answer: Any = None
    """The type of the answer's JSON, a media type, or nothing."""
    status: int = 200
    query: type[Any] | None = None
    body: type[Any] | None = None
    raw: bool = False
    """Whether the body is not JSON."""


def answered(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=dict(headers or {})
    )


def read_format(name: str, formats: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The media type and the ending of a format. Raises 422 for an unknown format."""
    if name not in formats:
        raise invalid(f"there is no format {name[:40]!r}: {', '.join(formats)}")
    return formats[name]


def read_query(request: web.Request, kind: type[Any] | None) -> Any:
    """The query as its type; unknown and repeated parameters are refused."""
    given = request.query
    known = () if kind is None else kind.__struct_fields__
    for name in given:
        if name not in known:
            raise invalid(f"there is no parameter {name[:60]!r} here")
        if len(given.getall(name)) > 1:
            raise invalid(f"the parameter {name!r} is given more than once")
    if kind is None:
        return None
    try:
        return converted(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None


async def read_body(request: web.Request, kind: type[Any]) -> Any:
    """The body as its type. Raises 413, 415, 400 and 422, in this order."""
    data = await read_bytes(request, MOST_JSON)
    is_json = request.content_type == "application/json"
    if not data and is_optional(kind) and (not is_json or not kind.__struct_fields__):
        return kind()
    if not is_json:
        raise Problem(415, "media_type", "the body must be sent as application/json")
    try:
        parsed: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(400, "not_json", "the body is not JSON") from None
    try:
        return converted(parsed, kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except RecursionError:
        raise invalid("the body is nested too deep") from None


def is_optional(kind: type[Any]) -> bool:
    """Whether a body may be left out: none of its fields is needed."""
    return len(kind.__struct_defaults__) == len(kind.__struct_fields__)


async def read_bytes(request: web.Request, most: int) -> bytes:
    """The body, of at most so many bytes. Raises 413."""
    length = request.content_length
    if length is not None and length > most:
        raise Problem(413, "too_large", f"the body is larger than {most:,} bytes")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.content.iter_any():
            size += len(part)
            if size > most:
                raise Problem(413, "too_large", f"the body is larger than {most:,} bytes")
            parts.append(part)
    except (web.HTTPException, Problem, ConnectionError):
        raise
    except Exception as error:  # a wrong length or chunk, an unknown encoding
        raise Problem(400, "not_readable", f"the body cannot be read: {type(error).__name__}") from None
    return b"".join(parts)
