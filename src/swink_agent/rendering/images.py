"""Decides which images of a session may be embedded in a page.

Owns the check: the data must be in the message, be of a bitmap type that browsers draw, and begin with the signature of
that type. SVG is refused because it can contain scripts. Nothing is fetched and no file is read.
"""

from __future__ import annotations

import base64
import binascii
import re

from swink_agent.core.types import Base64Source

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_HEAD = 24


def data_url(image: Base64Source) -> str | None:
    """Returns the image as a `data:` URL of base64 characters only, or `None` if it must not be embedded."""
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
    return f"data:{media_type};base64,{data}" if media_type and media_type == _declared_type(image) else None


def size_of(image: Base64Source) -> str:
    """Returns the size of an image or a document as a phrase, such as "12 KB"."""
    size = len(image.data) * 3 // 4
    return f"{size:,} bytes" if size < 10_000 else f"{size // 1024:,} KB"


def _declared_type(image: Base64Source) -> str:
    declared = image.media_type.strip().lower()
    return "image/jpeg" if declared == "image/jpg" else declared


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
