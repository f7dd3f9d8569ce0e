"""Images as data, and the words in place of one that cannot be sent.

Owns reading image files: never for long, never a thing that is no file, never more than a provider takes. A picture
that is gone is no error: the conversation that it was part of goes on with a `Note` where it stood.
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
"""So many bytes of text are no picture; fewer may be anything."""


class Note(NamedTuple):
    """What a model reads in place of an image that cannot be sent."""

    text: str


class Picture(NamedTuple):
    """An image as requests carry it."""

    media_type: str
    data: str
    """In base64."""


def picture(image: Image) -> Picture | Note:
    """The data of an image, which may be in a file, or a note that says why there is none."""
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
    """A URL for the image: its own, or one that holds its data."""
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
        return Note(f"[image missing: {name} is {'empty' if not data else 'no image'}]")
    return Picture(found, base64.b64encode(data).decode())


def _read(path: str) -> bytes:
    """The file's content. Raises `OSError`, or `ValueError` whose text goes on behind the name."""
    try:
        # A named pipe is opened at once this way, and seen to be none of ours; a plain open would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise ValueError("is no name that a file can have") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise ValueError("is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no ordinary file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_IMAGE_BYTES + 1) if status.st_size <= MOST_IMAGE_BYTES else b""
    finally:
        os.close(descriptor)
    if status.st_size > MOST_IMAGE_BYTES or len(data) > MOST_IMAGE_BYTES:
        raise ValueError(f"is larger than {MOST_IMAGE_BYTES // 1024**2} MB")
    return data


def _sniffed(data: bytes) -> str:
    """The media type that the first bytes tell; providers refuse data that calls itself something else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for start, media_type in _SIGNATURES if data.startswith(start)), "")


def _is_text(data: bytes) -> bool:
    """Whether it is words, such as the page that a failed download left under a picture's name."""
    if len(data) < _LEAST_TEXT or _sniffed(data):
        return False
    start = data[:_LOOKED_AT]
    if any(byte < 9 or 13 < byte < 32 for byte in start):
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(start) - 4  # cut inside a character
    return True
