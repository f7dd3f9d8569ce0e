"""Images and documents as data, or a `Note` instead of one that cannot be sent.

Reads their files without blocking, only ordinary files, and no more than a provider accepts. A missing one is not an
error: the conversation continues with a note in its place.
"""

from __future__ import annotations

import base64
import mimetypes
import os
from typing import NamedTuple

from swink_agent.core.encoding.media import MOST_DOCUMENT_BYTES, MOST_IMAGE_BYTES, is_pdf, kind_of, read_media
from swink_agent.core.types import Base64Source, Document, FileSource, Image, UrlSource

_TIFF = (b"II*\x00", b"MM\x00*")
_LOOKED_AT = 512
_LEAST_TEXT = 32  # fewer bytes of text may be an image


class Note(NamedTuple):
    """The text that a model reads instead of an image or a document that cannot be sent."""

    text: str


class Picture(NamedTuple):
    """An image as it is sent in requests."""

    media_type: str
    data: str
    """In base64."""


def picture(image: Image) -> Picture | Note:
    """Returns the data of an image, which may be in a file, or a note that explains why it is missing."""
    source = image.source
    if isinstance(source, Base64Source):
        return Picture(source.media_type, source.data)
    if isinstance(source, FileSource):
        return _in_file(source)
    if source.url.startswith("data:") and ";base64," in source.url:
        media_type, _, data = source.url.removeprefix("data:").partition(";base64,")
        return Picture(media_type or "application/octet-stream", data)
    return Note(f"[image left out: this model is given image data, not URLs such as {source.url[:80]}]")


def image_url(image: Image) -> str | Note:
    """Returns a URL for the image: its own, or a data URL."""
    if isinstance(image.source, UrlSource):
        return image.source.url
    found = picture(image)
    return found if isinstance(found, Note) else f"data:{found.media_type};base64,{found.data}"


def document_url(document: Document) -> str | None:
    """Returns the address from which a provider can fetch the document, if it has one."""
    source = document.source
    return source.url if isinstance(source, UrlSource) and source.url[:5].lower() != "data:" else None


def file_name(document: Document) -> str:
    """Returns a file name for the document, which ends in `.pdf`."""
    name = document.shown_name
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"


def document_data(document: Document) -> str | Note:
    """Returns the data of a document in base64, or a note that explains why it is missing."""
    source, name = document.source, document.shown_name
    if isinstance(source, Base64Source):
        return source.data
    if isinstance(source, UrlSource):
        head, _, data = source.url.partition(",")
        if head[:5].lower() == "data:" and head.endswith(";base64"):
            return data
        return Note(f"[document {name} left out: this provider is given the data of documents, not their URLs]")
    data = _read(source.path, MOST_DOCUMENT_BYTES, f"document missing: {name}")
    if isinstance(data, Note):
        return data
    if not is_pdf(data):
        return Note(f"[document missing: {name} is {'empty' if not data else 'not a PDF'}]")
    return base64.b64encode(data).decode()


# -- files ---------------------------------------------------------------------------------------------------


def _read(path: str, most: int, missing: str) -> bytes | Note:
    try:
        return read_media(path, most)
    except OSError as error:
        return Note(f"[{missing} could not be read: {error.strerror or error}]")
    except ValueError as error:
        return Note(f"[{missing} {error}]")


def _in_file(source: FileSource) -> Picture | Note:
    name = (os.path.basename(source.path.rstrip("/")) or source.path)[:100]
    name = name if name.isprintable() else repr(name)
    data = _read(source.path, MOST_IMAGE_BYTES, f"image missing: {name}")
    if isinstance(data, Note):
        return data
    media_type = source.media_type or mimetypes.guess_type(source.path)[0] or ""
    found = _sniffed(data) or media_type
    if not data or (not found.startswith("image/") and not source.media_type) or _is_text(data):
        return Note(f"[image missing: {name} is {'empty' if not data else 'not an image'}]")
    return Picture(found, base64.b64encode(data).decode())


def _sniffed(data: bytes) -> str:
    """Returns the media type by the first bytes; providers refuse data with a wrong type."""
    kind = kind_of(data)
    if kind.startswith("image/"):
        return kind
    return "image/tiff" if data.startswith(_TIFF) else ""


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
