"""Pictures and documents from bytes and from files.

Detects the kind of a file from its first bytes. Reads only ordinary files, without waiting, and refuses files that
are larger than providers accept. Adapters send them.
"""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterable
from mimetypes import guess_type
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from ..types import PDF, Base64Source, Document, FileSource, Image, Source, UrlSource
from ..values.checks import a_kind, is_not

MOST_IMAGE_BYTES = 20 * 1024 * 1024
MOST_DOCUMENT_BYTES = 32 * 1024 * 1024

ImageInput: TypeAlias = Image | Source | bytes | str | Path
"""A picture, where it is, its bytes, or the path of its file."""
DocumentInput: TypeAlias = Document | Source | bytes | str | Path
"""A document, where it is, its bytes, or the path of its file."""

_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_BEFORE_A_PDF = b"\xef\xbb\xbf \t\r\n\0"
_LOOKED_AT = 1024


def kind_of(data: bytes) -> str:
    """Returns the media type by the first bytes: PNG, JPEG, GIF, WebP or PDF. Returns an empty string for any other."""
    for start, kind in _KINDS:
        if data.startswith(start):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return PDF if data[:_LOOKED_AT].lstrip(_BEFORE_A_PDF).startswith(b"%PDF-") else ""


def is_pdf(data: bytes) -> bool:
    """Whether a PDF reader may accept the data: most accept other bytes before the header."""
    return b"%PDF-" in data[:_LOOKED_AT]


def read_media(path: str | os.PathLike[str], most: int, first: int | None = None) -> bytes:
    """Reads a file, or its first bytes. Raises `OSError`, or `ValueError` with a text that follows the file's name."""
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
            count = most + 1 if first is None else first
            data = cast("bytes | None", file.read(count)) if status.st_size <= most else b""
    finally:
        os.close(descriptor)
    if data is None:  # some files of the kernel make their readers wait, as a pipe does
        raise ValueError("has nothing to read yet")
    if status.st_size > most or len(data) > most:
        raise ValueError(f"is larger than {most // 1024**2} MB")
    return data


_Block = TypeVar("_Block", Image, Document)


def images_of(given: Iterable[ImageInput]) -> list[Image]:
    """Converts a list to pictures. Raises what `image_of` raises, and `TypeError` for anything that is not a list."""
    return _several(given, "images", image_of)


def documents_of(given: Iterable[DocumentInput]) -> list[Document]:
    """Converts a list to documents. Raises what `document_of` raises, and `TypeError` if it is not a list."""
    return _several(given, "documents", document_of)


def _several(given: Any, name: str, convert: Callable[[Any], _Block]) -> list[_Block]:
    alone = (str, bytes, Path, Image, Document, Base64Source, UrlSource, FileSource)
    if isinstance(given, alone) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {a_kind(given)}; give a list of what to attach: {name}=[…]")
    return [convert(item) for item in cast("Iterable[Any]", given)]


def image_of(given: ImageInput) -> Image:
    """Converts a source, bytes or the path of a file to a picture. A picture is returned as it is.

    Raises `OSError` for a path without a file, `ValueError` for data of a kind that models do not take, `TypeError` for
    anything that is not a picture. Of a `FileSource`, only the beginning is read now; sending it reads the whole file.
    """
    if isinstance(given, (bytes, bytearray, str, Path)):
        data, kind, place = _picture(given)
        if not kind:
            raise ValueError(f"{place} is not a picture of a kind that models take: PNG, JPEG, GIF, WebP")
        return Image(Base64Source(kind, b64encode(data).decode()))
    if not isinstance(given, (Image, Base64Source, UrlSource, FileSource)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("one of the images", given, "a path, bytes, a source or an Image")
    image = given if isinstance(given, Image) else Image(given)
    source = image.source
    if isinstance(source, FileSource):  # only new input is checked: every history must stay readable
        data, kind, place = _picture(source.path, _LOOKED_AT)
        # Some providers take kinds that are not detected here: the caller's media type or the file name is enough.
        if not data or not (kind or (source.media_type or guess_type(source.path)[0] or "").startswith("image/")):
            raise ValueError(f"{place} is {'not a picture' if data else 'empty'}")
    return image


def _picture(given: bytes | bytearray | str | Path, first: int | None = None) -> tuple[bytes, str, str]:
    """Returns the data, its media type if it is known, and a name for errors. Raises `ValueError` for a PDF."""
    data, place = _data(given, MOST_IMAGE_BYTES, first)
    kind = kind_of(data)
    if kind == PDF:
        raise ValueError(f"{place} is a PDF: give it as one of the documents")
    return data, kind, place


def document_of(given: DocumentInput) -> Document:
    """Converts a source, bytes or a path to a document, which is named after the file. A document is returned as it is.

    Raises `OSError` for a file that cannot be read, `ValueError` for data that is not a PDF, `TypeError` for anything
    that is not a document. Of a `FileSource`, only the beginning is read now; sending it reads the whole file.
    """
    if isinstance(given, (bytes, bytearray, str, Path)):
        data, place = _data(given, MOST_DOCUMENT_BYTES)
        _check_pdf(data, place)
        name = "" if isinstance(given, (bytes, bytearray)) else Path(given).name
        return Document(Base64Source(PDF, b64encode(data).decode()), name)
    if not isinstance(given, (Document, Base64Source, UrlSource, FileSource)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("one of the documents", given, "a path, bytes, a source or a Document")
    document = given if isinstance(given, Document) else Document(given)
    _check_source(document.source)
    return document


def _check_source(source: Source) -> None:
    """Raises what `document_of` raises. Only new input is checked: every history must stay readable."""
    if isinstance(source, FileSource):
        _check_pdf(*_data(source.path, MOST_DOCUMENT_BYTES, _LOOKED_AT))
    elif isinstance(source, Base64Source):
        _check_base64(source.data, "the data of a document")
    elif source.url[:5].lower() == "data:":
        head, _, data = source.url.partition(",")
        if not head.endswith(";base64"):
            raise ValueError(f"a data URL of a document begins with 'data:{PDF};base64,'")
        _check_base64(data, "the data URL of a document")
    elif not source.url.lower().startswith(("https://", "http://")):
        raise ValueError(f"a document is fetched by https or http, not from {source.url[:100]!r}")


def _check_base64(data: str, place: str) -> None:
    if not isinstance(data, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"data is {type(data).__name__}; give a string in base64, or the bytes of the PDF themselves")
    if len(data) // 4 * 3 > MOST_DOCUMENT_BYTES + 2:
        raise ValueError(f"{place} is larger than {MOST_DOCUMENT_BYTES // 1024**2} MB")
    try:
        # Strict, and over all data: a provider refuses the whole request for one wrong character.
        found = a2b_base64(data, strict_mode=True)
    except (Error, ValueError):
        raise ValueError(f"{place} is not base64") from None
    _check_pdf(found, place)


def _check_pdf(data: bytes, place: str) -> None:
    kind = kind_of(data)
    if kind and kind != PDF:
        raise ValueError(f"{place} is a picture ({kind}): give it as one of the images")
    if not is_pdf(data):
        raise ValueError(f"{place} is not a PDF, and other kinds of documents are not taken")


def _data(given: bytes | bytearray | str | Path, most: int, first: int | None = None) -> tuple[bytes, str]:
    """Returns the data, or the first bytes of the file, and a name for errors."""
    if isinstance(given, (bytes, bytearray)):
        place = f"the data of {len(given):,} bytes"
        if len(given) > most:
            raise ValueError(f"{place} is larger than {most // 1024**2} MB")
        return bytes(given), place
    shown = repr(str(given)[:300])
    if not str(given):
        raise ValueError("an empty string is not the path of a file")
    if isinstance(given, str) and given.startswith(("http://", "https://", "data:")):
        raise TypeError(f"{shown[:100]} is an address, not a path: give UrlSource(…)")
    try:
        return read_media(given, most, first), shown
    except ValueError as error:
        raise ValueError(f"{shown} {error}") from None
