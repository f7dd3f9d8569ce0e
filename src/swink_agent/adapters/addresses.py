"""Checks the address of a server before anything is sent to it."""

from __future__ import annotations

from urllib.parse import urlsplit


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
