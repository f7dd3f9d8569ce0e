"""Text in its compatibility form, in time that is in proportion to its length.

Owns one function. The standard one sorts the accents of a letter by moving each past the others: a million of them, in
one call that nothing can interrupt, take hours.
"""

from __future__ import annotations

from unicodedata import combining, normalize

__all__ = ["compatibility_form"]

_PIECE = 256


def compatibility_form(text: str) -> str:
    """NFKC. A letter with more than a few hundred accents is taken in pieces, and no font could show it."""
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
    """Where a piece may end without parting what belongs together: before the last plain letter, if there is one."""
    last = start + _PIECE
    if last >= len(text):
        return len(text)
    ends = range(last, start + _PIECE // 2, -1)
    plain = next((end for end in ends if text[end].isascii()), None)
    return plain or next((end for end in ends if not combining(text[end])), last)
