"""Images as data, or a `Note` instead of one that cannot be sent.

Reads image files without blocking, only ordinary files, and no more than a provider accepts. A missing image is not an
error: the conversation continues with a note in its place.
"""

from __future__ import annotations

import base64
import mimetypes
import os
import stat
from typing import NamedTuple

from swink_agent.core.types import Base64Image, FileImage, Image, UrlImage

__all__ = ["MOST_IMAGE_BYTES", "Note", "Picture", "image_url", "picture"]

MOST_IMAGE_BYTES = 20 * 1024 * 1024
_SIGNATURES = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
)
_LOOKED_AT = 512
_LEAST_TEXT = 32
"""This many bytes of text are not an image; fewer may be anything."""


class Note(NamedTuple):
    """The text that a model reads instead of an image that cannot be sent."""

    text: str


class Picture(NamedTuple):
    """An image as it is sent in requests."""

    media_type: str
    data: str
    """In base64."""


def picture(image: Image) -> Picture | Note:
    """Returns the data of an image, which may be in a file, or a note that explains why it is missing."""
    source = image.source
    if isinstance(source, Base64Image):
        return Picture(source.media_type, source.data)
    if isinstance(source, FileImage):
        return _in_file(source)
    if source.url.startswith("data:") and ";base64," in source.url:
        media_type, _, data = source.url.removeprefix("data:").partition(";base64,")
        return Picture(media_type or "application/octet-stream", data)
    return Note(f"[image left out: this model is given image data, not URLs such as {source.url[:80]}]")


def image_url(image: Image) -> str | Note:
    """Returns a URL for the image: its own, or a data URL."""
    if isinstance(image.source, UrlImage):
        return image.source.url
    found = picture(image)
    return found if isinstance(found, Note) else f"data:{found.media_type};base64,{found.data}"


# -- files ---------------------------------------------------------------------------------------------------


def _in_file(source: FileImage) -> Picture | Note:
    name = (os.path.basename(source.path.rstrip("/")) or source.path)[:100]
    name = name if name.isprintable() else repr(name)
    try:
        data = _read(source.path)
    except OSError as error:
        return Note(f"[image missing: {name} could not be read: {error.strerror or error}]")
    except ValueError as error:
        return Note(f"[image missing: {name} {error}]")
    media_type = source.media_type or mimetypes.guess_type(source.path)[0] or ""
    found = _sniffed(data) or media_type
    if not data or (not found.startswith("image/") and not source.media_type) or _is_text(data):
        return Note(f"[image missing: {name} is {'empty' if not data else 'not an image'}]")
    return Picture(found, base64.b64encode(data).decode())


def _read(path: str) -> bytes:
    """Reads the file. Raises `OSError`, or `ValueError` with a text that follows the file's name."""
    try:
        # This opens a named pipe at once, so that it can be refused; a plain open would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise ValueError("is not a valid file name") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise ValueError("is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not an ordinary file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_IMAGE_BYTES + 1) if status.st_size <= MOST_IMAGE_BYTES else b""
    finally:
        os.close(descriptor)
    if status.st_size > MOST_IMAGE_BYTES or len(data) > MOST_IMAGE_BYTES:
        raise ValueError(f"is larger than {MOST_IMAGE_BYTES // 1024**2} MB")
    return data


def _sniffed(data: bytes) -> str:
    """Returns the media type by the first bytes; providers refuse data with a wrong type."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for start, media_type in _SIGNATURES if data.startswith(start)), "")


def _is_text(data: bytes) -> bool:
    """Whether the data is text, such as a page that a failed download saved under an image's name."""
    if len(data) < _LEAST_TEXT or _sniffed(data):
        return False
    start = data[:_LOOKED_AT]
    if any(byte < 9 or 13 < byte < 32 for byte in start):
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(start) - 4  # the data was cut inside a character
    return True
