"""The addresses of servers: what one means, and whether it is one."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_VERSION = re.compile(r"/v1(?:alpha|beta)?\d*")


def whole_address(url: str, default_url: str, added: str = "") -> str:
    """Returns the address to which the paths of requests are added, without a final slash. Checks nothing.

    An address without a path gets that of `default_url`. `added` is what the provider's own SDK adds to every address,
    such as `/v1`; it is not added to an address that ends in a version.
    """
    url = url.rstrip("/")
    path = _path(url)
    if not path:
        path = _path(default_url.rstrip("/"))
        url += path
    return url if _VERSION.fullmatch(path, path.rfind("/")) else url + added


def _path(url: str) -> str:
    """The path of an address, also of an invalid one."""
    _, slash, path = url.partition("://")[2].partition("/")
    return slash + path


def address_problem(url: str) -> str:
    """Returns why a URL is not a valid address of a server, as words to put after the URL; empty if it is valid."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return "has a space or a control character in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not an address: its host or port cannot be read"
    if parts.scheme not in ("http", "https"):
        return "is not an http:// or https:// address"
    if not parts.hostname or port == 0:
        return "names no server" if not parts.hostname else "has a port that no server has"
    return ""
