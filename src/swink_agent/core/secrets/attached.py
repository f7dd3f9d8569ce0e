"""Masks the names and addresses of images and documents. Their data is not searched."""

from __future__ import annotations

from collections.abc import Callable

from ..types import Document, FileSource, Source, Text, UrlSource


def masked_document(block: Document, redact: Callable[[str], str]) -> Document | Text:
    """Returns the document with its name masked, or a note if its address holds a secret."""
    place = masked_place(block.source, redact)
    if place is not None:
        return Text(f"[document {place}]")
    name = redact(block.name)
    return block if name == block.name else Document(block.source, name)


def masked_place(source: Source, redact: Callable[[str], str]) -> str | None:
    """Returns the masked address if it holds a secret, else `None`: a masked address would not work."""
    if type(source) is UrlSource and source.url[:5].lower() != "data:":
        address = redact(source.url)
        return None if address == source.url else f"at {address}"
    if type(source) is FileSource:
        path = redact(str(source.path))
        return None if path == str(source.path) else f"in the file {path}"
    return None
