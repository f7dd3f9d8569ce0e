"""The host that a URL leads to, in the form in which people approve it and rules name it.

The tool that fetches URLs parses them here too, so that it connects to the host that was approved.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from swink_agent.sandbox.network.addresses import Address
from swink_agent.sandbox.network.hosts import DEFAULT_PORTS, normal_host

HOST_TOOLS = {"web_fetch": "url"}  # the tools that fetch from a host, and the argument with the URL
_PORTS = {"http": 80, "https": 443}
_LONGEST = 8_192
_QUOTED = str.maketrans({'"': "%22", "<": "%3C", ">": "%3E"})
"""Characters that a URL cannot contain and that could make a text which quotes it misleading."""
_STRAY = re.compile(r"[\x00-\x20\x7f\\]")


class WebPlace(NamedTuple):
    """A parsed URL: where to connect to, and what to ask for there."""

    url: str
    """The URL in its normal form, without a fragment."""
    host: str | Address
    port: int

    @property
    def name(self) -> str:
        """The host, with its port unless that is 80 or 443. People approve this text, and rules name it."""
        return _with_port(self.host, self.port if self.port not in DEFAULT_PORTS else None)


def read_url(url: str) -> WebPlace:
    """Parses an http or https URL. Raises `ValueError` with the problem."""
    if len(url) > _LONGEST:
        raise ValueError(f"the URL has {len(url):,} characters, more than {_LONGEST:,}")
    if _STRAY.search(url):
        raise ValueError("the URL has a space, a backslash or a control character: write those as %20, %5C, …")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ValueError("the URL must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("the URL has a user name in it: leave that out")
    if not parts.hostname:
        raise ValueError("the URL names no host")
    try:
        host = normal_host(f"[{parts.hostname}]" if "[" in parts.netloc else parts.hostname)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the host of the URL cannot be used: {error}") from None
    if port == 0:
        raise ValueError("the host of the URL cannot be used: port 0 is not a port")
    port = _PORTS[parts.scheme] if port is None else port
    place = _with_port(host, port if port != _PORTS[parts.scheme] else None)
    whole = urlunsplit((parts.scheme, place, parts.path or "/", parts.query, ""))
    return WebPlace(whole.translate(_QUOTED), host, port)


def _with_port(host: str | Address, port: int | None) -> str:
    text = f"[{host}]" if not isinstance(host, str) and host.version == 6 else str(host)
    return text if port is None else f"{text}:{port}"
