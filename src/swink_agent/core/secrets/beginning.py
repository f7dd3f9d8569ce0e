"""Masks a long text only as far as it is shown: a hostile text of some megabytes takes minutes to mask."""

from __future__ import annotations

from .redaction import Redactor

_PIECE = 64 * 1024
"""Characters that are masked at once."""


def masked_beginning(redactor: Redactor, text: str, size: int) -> tuple[bytes, str]:
    """The beginning of the masked text in UTF-8, and the rest, unmasked, which must not be shown.

    The beginning has at least `size` bytes, or is all of the text. No secret is cut between the two.
    """
    masking = redactor.stream()
    data = bytearray()
    place = 0
    while place < len(text) and len(data) < size:
        data += masking.feed(text[place : place + _PIECE]).encode("utf-8", "replace")
        place += _PIECE
    if place >= len(text):
        data += masking.finish().encode("utf-8", "replace")
    return bytes(data), text[place:]
