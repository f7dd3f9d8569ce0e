"""Which pictures of a session may stand in a page.

Owns the check: only data that is in the message, of a type that browsers draw as dots and nothing else, and that
begins as such a file does. An SVG is a program, so there are none. Nothing is fetched and no file is read.
"""

from __future__ import annotations

import base64
import binascii
import re

from swink_agent.core.types import Base64Image

__all__ = ["data_url", "size_of"]

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_HEAD = 24


def data_url(image: Base64Image) -> str | None:
    """A `data:` address made of known letters only, or `None` for what is no such picture."""
    data = image.data.strip()
    if "\n" in data or "\r" in data:
        data = data.replace("\r", "").replace("\n", "")
    if _BASE64.fullmatch(data) is None or len(data) % 4:
        return None
    try:
        head = base64.b64decode(data[: 4 * _HEAD // 3], validate=True)
    except binascii.Error:
        return None
    media_type = _media_type(head)
    return f"data:{media_type};base64,{data}" if media_type and media_type == _said(image) else None


def size_of(image: Base64Image) -> str:
    """How much data it is, in words."""
    size = len(image.data) * 3 // 4
    return f"{size:,} bytes" if size < 10_000 else f"{size // 1024:,} KB"


def _said(image: Base64Image) -> str:
    said = image.media_type.strip().lower()
    return "image/jpeg" if said == "image/jpg" else said


def _media_type(head: bytes) -> str | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return None
