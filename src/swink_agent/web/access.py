"""Access checks: the host names of the server, the sites that may send requests, the token, and codes that work once.

Owns these checks, in their order, the cookie, and the headers of every answer. `Site.authorized` decides afterwards
what a user may do with a session.

Browsers send the cookies of a host to all its ports. Therefore the cookie is bound to an unguessable path: browsers do
not send it to another server on this machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from .problems import Problem

CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HOW = "start with the address that `swink web` printed, or send `Authorization: Bearer TOKEN`"
CODE_SECONDS = 60.0
"""Seconds in which a code for one visit works."""
_MAY_SEND = "authorization, content-type, last-event-id"


class Access:
    """The checks of one server.

    `token` is the secret of users and programs; without one, only the application decides who has access. `hosts` are
    names, with or without a port, in addition to the loopback names. `origins` are other sites that may send requests.
    """

    def __init__(
        self, *, token: str | None = None, hosts: Collection[str] = (), origins: Collection[str] = (), port: int = 0
    ) -> None:
        self.token = token
        self.key = secrets.token_urlsafe(16) if token is not None else ""
        """The unguessable part of every page's path."""
        self.port = port
        self._cookie = secrets.token_urlsafe(32)
        self._code: tuple[str, float] | None = None
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}

    def __repr__(self) -> str:
        return "<Access>"

    def masked(self, text: str) -> str:
        """Returns a text for the log, without the token, the cookie and the key."""
        code = "" if self._code is None else self._code[0]
        for secret in (self.token, self._cookie, self.key, code):
            text = text.replace(secret, "[masked]") if secret else text
        return text

    @property
    def prefix(self) -> str:
        """The beginning of every page's path."""
        return f"/{self.key}" if self.key else ""

    @property
    def cookie_name(self) -> str:
        return f"swink_{self.port}"

    # -- the checks, in their order ------------------------------------------------------------------------------

    def check_host(self, request: web.Request) -> None:
        """Raises 421 for a name that is not ours: a foreign site can make its own name resolve to this machine."""
        host = request.headers.get("host", "").lower()
        if len(request.headers.getall("host", [])) != 1 or not self._is_ours(host, request):
            raise Problem(421, "host", "this server does not answer to that host name: --allow-host adds one")

    def _is_ours(self, host: str, request: web.Request) -> bool:
        name, port = _split(host)
        if not name:
            return False
        if name in self._hosts or f"{name}:{port or _standard_port(request)}" in self._hosts:
            return True
        return name in _LOOPBACK and (port or _standard_port(request)) == _our_port(request)

    def check_origin(self, request: web.Request) -> None:
        """Raises 403 for a request that another site's page sends."""
        origin = request.headers.get("origin")
        if origin is not None and not self._is_allowed(origin, request):
            raise Problem(403, "origin", "pages of another site may not send requests here: --allow-origin adds one")
        site = request.headers.get("sec-fetch-site", "").lower()
        if site in ("cross-site", "same-site") and origin is None:
            is_navigation = request.method == "GET" and request.headers.get("sec-fetch-mode", "").lower() == "navigate"
            if not is_navigation:
                raise Problem(403, "origin", "pages of another site may not use this server")

    def _is_allowed(self, origin: str, request: web.Request) -> bool:
        given = origin.lower()
        if given in self._origins:
            return True
        host = request.headers.get("host", "").lower()
        return given in (f"http://{host}", f"https://{host}")

    def check_token(self, request: web.Request, *, is_keyed: bool) -> None:
        """Raises 401 without the token or the cookie, and 403 for a change by cookie without the header Origin."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if self.token is None or (scheme.lower() == "bearer" and self.is_token(bearer.strip())):
            return
        given = request.cookies.get(self.cookie_name, "") if is_keyed else ""
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._cookie.encode()):
            raise Problem(401, "token", f"the token is missing or wrong: {_HOW}", {"www-authenticate": "Bearer"})
        if request.method in CHANGING and "origin" not in request.headers:
            raise Problem(403, "origin", "a change by cookie needs the header Origin, which browsers send")

    def is_token(self, given: str) -> bool:
        """Whether this is the token; compares in constant time."""
        wanted = (self.token or "").encode()
        return bool(wanted) and hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)

    def new_code(self) -> str:
        """Returns a code that lets one browser in, once, within a minute, and replaces the one before."""
        code = secrets.token_urlsafe(24)
        self._code = (code, time.monotonic() + CODE_SECONDS)
        return code

    def takes_code(self, given: str) -> bool:
        """Whether this is the code, which then never works again."""
        if self._code is None:
            return False
        code, until = self._code
        is_right = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), code.encode())
        if is_right or time.monotonic() >= until:
            self._code = None
        return is_right and time.monotonic() < until

    # -- answers -------------------------------------------------------------------------------------------------

    def is_keyed(self, path: str) -> bool:
        """Whether a path begins with the key."""
        return bool(self.key) and f"{path}/".startswith(f"{self.prefix}/")

    def entered(self, request: web.Request) -> web.Response:
        """Answers a request with the token in its address: redirects to the page under the key, and sets the cookie."""
        return self._with_cookie(request, web.Response(status=303, headers={"location": self._page_of(request)}))

    def entered_once(self, request: web.Request) -> web.Response:
        """Answers a request with the code in its address, like `entered`.

        It comes from a file, which is another site: browsers send the cookie only after our own page has led on.
        """
        return self._with_cookie(request, web.Response(headers={"refresh": f"0; url={self._page_of(request)}"}))

    def _page_of(self, request: web.Request) -> str:
        asked = request.rel_url.without_query_params("token", "code")
        page = asked.raw_path.removeprefix(self.prefix)  # raw: the quoting stays
        query = f"?{asked.raw_query_string}" if asked.raw_query_string else ""
        return f"{self.prefix}{page or '/'}{query}"

    def _with_cookie(self, request: web.Request, response: web.Response) -> web.Response:
        response.set_cookie(
            self.cookie_name, self._cookie, path=self.prefix, httponly=True, samesite="Strict", secure=request.secure
        )
        return response

    def preflight(self, request: web.Request) -> web.Response | None:
        """Answers a browser's question whether an allowed site may send a request; `None` for any other request."""
        if request.method != "OPTIONS" or "access-control-request-method" not in request.headers:
            return None
        if request.headers.get("origin", "").lower() not in self._origins:
            return None
        return web.Response(
            status=204,
            headers={
                "access-control-allow-methods": "GET, POST, PATCH, DELETE",
                "access-control-allow-headers": _MAY_SEND,
                "access-control-max-age": "600",
            },
        )

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the headers of every answer, and those that allowed sites need."""
        add_safe_headers(response)
        origin = request.headers.get("origin", "")
        if origin.lower() in self._origins:
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-expose-headers"] = "location"
            response.headers["cross-origin-resource-policy"] = "cross-origin"
            response.headers["vary"] = "Origin"


def add_safe_headers(response: web.StreamResponse) -> None:
    """Adds the headers that every answer has."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "swink"


def _split(host: str) -> tuple[str, int | None]:
    """Returns the name and the port of a `Host` header; an empty name if it is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port
    except ValueError:
        return "", None
    if parts.path or parts.query or parts.fragment or "@" in host or any(letter.isspace() for letter in host):
        return "", None
    if port is not None and not host.endswith(f":{port}"):  # other ways to write a port are refused
        return "", None
    name = host[: host.rindex(":")] if port is not None else host.removesuffix(":")
    return name, port


def _standard_port(request: web.Request) -> int:
    return 443 if request.secure else 80


def _our_port(request: web.Request) -> int:
    transport = request.transport
    address: Any = None if transport is None else transport.get_extra_info("sockname")
    return address[1] if isinstance(address, tuple) else -1  # pyright: ignore[reportUnknownVariableType]


def is_host(text: str) -> bool:
    """Whether a text is the name or the address of a host, with or without a port."""
    return bool(_split(text)[0]) and "*" not in text


def is_origin(text: str) -> bool:
    """Whether a text is the address of a site, without a path. Programs with pages have their own schemes."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+/?", text) is not None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
