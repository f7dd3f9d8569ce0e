"""Addresses of servers: whether one can be asked at all, told before anything is sent to it."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["address_problem"]


def address_problem(url: str) -> str:
    """What keeps a URL from being the address of a server, as words behind it; nothing if it can be one."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return "has a space or a control character in it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no address: its host or port cannot be read"
    if parts.scheme not in ("http", "https"):
        return "is no http:// or https:// address"
    if not parts.hostname or port == 0:
        return "names no server" if not parts.hostname else "has a port that no server has"
    return ""
