"""Building request bodies without encoding again what was encoded for the turn before.

Owns the pieces that every adapter's request builder is made of: encoded messages that are remembered, images as data,
and the joining of JSON that is already bytes.
"""

from __future__ import annotations

import base64
import mimetypes
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from swink_agent.core.types import Base64Image, FileImage, Image, UrlImage

from ._http import RequestError

__all__ = ["EncodedMessages", "image_data", "image_url", "json_array", "json_object"]

_MOST_REMEMBERED = 64 * 1024 * 1024


class EncodedMessages:
    """The JSON of messages, kept for as long as the same message objects come back, as they do from turn to turn."""

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, object], tuple[object, bytes]] = OrderedDict()
        self._size = 0

    def encode(self, message: object, encode: Callable[[Any], Any], variant: object = None) -> bytes:
        """The JSON of what `encode` makes of the message; `variant` tells several of its forms apart."""
        key = (id(message), variant)
        known = self._known.get(key)
        if known is not None and known[0] is message:
            self._known.move_to_end(key)
            return known[1]
        data = msgspec.json.encode(encode(message))
        self._known[key] = (message, data)
        self._size += len(data)
        while self._size > _MOST_REMEMBERED and len(self._known) > 1:
            _, (_, dropped) = self._known.popitem(last=False)
            self._size -= len(dropped)
        return data


def json_array(items: Iterable[bytes]) -> bytes:
    """An array of documents that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def json_object(fields: Mapping[str, Any]) -> bytes:
    """An object whose values are JSON already where they are bytes; those that are `None` are left out."""
    parts = [
        msgspec.json.encode(name) + b":" + (value if isinstance(value, bytes) else msgspec.json.encode(value))
        for name, value in fields.items()
        if value is not None
    ]
    return b"{" + b",".join(parts) + b"}"


def image_data(image: Image) -> tuple[str, str]:
    """The media type and the base64 data of an image that is not behind a URL. Raises `RequestError`."""
    source = image.source
    if isinstance(source, Base64Image):
        return source.media_type, source.data
    if isinstance(source, FileImage):
        try:
            data = Path(source.path).read_bytes()
        except OSError as error:
            raise RequestError(f"the image {source.path} cannot be read: {error.strerror or error}") from error
        media_type = source.media_type or mimetypes.guess_type(source.path)[0] or "application/octet-stream"
        return media_type, base64.b64encode(data).decode()
    if source.url.startswith("data:") and ";base64," in source.url:
        media_type, _, data = source.url.removeprefix("data:").partition(";base64,")
        return media_type or "application/octet-stream", data
    raise RequestError(
        f"this provider takes image data, not the URL {source.url[:80]}: give a Base64Image or FileImage"
    )


def image_url(image: Image) -> str:
    """A URL for the image: its own, or one that holds its data."""
    if isinstance(image.source, UrlImage):
        return image.source.url
    media_type, data = image_data(image)
    return f"data:{media_type};base64,{data}"
