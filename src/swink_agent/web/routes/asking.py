"""One request of the API: the entry of its route, and the argument of its handler.

Owns how a query and a body are parsed and refused, and how an answer is written. The handlers are in the other files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from aiohttp import web

from swink_agent.core.values.decoders import converted

from ..problems import Problem, invalid

if TYPE_CHECKING:
    from ..channels import SessionChannel
    from ..site import Site

MOST_JSON = 1024 * 1024
Action: TypeAlias = Literal["read", "write", "answer", "delete", "operate"]
"""The kind of a request, by which the application decides whether the user may send it."""


class Asked(NamedTuple):
    """An authorized request. `query` and `body` are parsed into the route's types."""

    site: Site
    request: web.Request
    by: str
    """The name of the user, as `authorize` returned it."""
    query: Any
    body: Any
    routes: tuple[Route, ...]
    """All routes of the API."""

    @property
    def session(self) -> str:
        """The id of the session in the path."""
        return self.request.match_info["session"]

    def name(self, part: str) -> str:
        """Returns a part of the path."""
        return self.request.match_info[part]

    async def channel(self) -> SessionChannel:
        """Returns the channel of the session in the path. Raises `SessionNotFound`."""
        return self.site.channels.of(await self.site.find(self.session))


HandlerFn: TypeAlias = "Callable[[Asked], Awaitable[web.StreamResponse]]"


class Route(NamedTuple):
    """An entry of the table: method, path under `/api/v1`, handler, summary, and types of query, body and answer."""

    method: str
    path: str
    action: Action
    handle: HandlerFn
    summary: str
    answer: Any = None
    """The type of the answer's JSON, a media type, or `None` for an empty answer."""
    status: int = 200
    query: type[Any] | None = None
    body: type[Any] | None = None
    raw: bool = False
    """Whether the body is not JSON."""


def answered(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns an answer in JSON."""
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=dict(headers or {})
    )


def read_format(name: str, formats: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """Returns the media type and the file extension of a format. Raises 422 for an unknown format."""
    if name not in formats:
        raise invalid(f"there is no format {name[:40]!r}: {', '.join(formats)}")
    return formats[name]


def read_query(request: web.Request, kind: type[Any] | None) -> Any:
    """Returns the query as its type. Raises 422, also for unknown and repeated parameters."""
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
    """Returns the body as its type. Raises 413, 415, 400 and 422, in this order."""
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
    """Whether a body may be left out, because all its fields have defaults."""
    return len(kind.__struct_defaults__) == len(kind.__struct_fields__)


async def read_bytes(request: web.Request, most: int) -> bytes:
    """Returns the body. Raises 413 if it has more than `most` bytes, and 400 if it cannot be read."""
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
