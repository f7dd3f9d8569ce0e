"""Unicode compatibility form in linear time.

The standard function takes quadratic time for the accents of one letter: a million of them take hours, in one call that
cannot be interrupted.
"""

from __future__ import annotations

from unicodedata import combining, normalize

_PIECE = 256


def compatibility_form(text: str) -> str:
    """Normalizes to NFKC. A letter with more than a few hundred accents, which no font could show, is split."""
    if text.isascii():
        return text
    if len(text) <= _PIECE:
        return normalize("NFKC", text)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = _end_of_piece(text, start)
        pieces.append(normalize("NFKC", text[start:end]))
        start = end
    return "".join(pieces)


def _end_of_piece(text: str, start: int) -> int:
    """Where a piece may end without separating accents from their letter: before the last plain letter, if any."""
    last = start + _PIECE
    if last >= len(text):
        return len(text)
    ends = range(last, start + _PIECE // 2, -1)
    plain = next((end for end in ends if text[end].isascii()), None)
    return plain or next((end for end in ends if not combining(text[end])), last)
