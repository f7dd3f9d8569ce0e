"""Distinguishes invisible characters of ordinary writing from those that hide something.

Some scripts and emoji need joiners, variation selectors, accents or wide spaces between certain characters. Anywhere
else such a character may deceive. The caller decides how to show it. Also converts texts to Unicode's compatibility
form, in linear time.
"""

from __future__ import annotations

import re
from unicodedata import category, combining, east_asian_width, normalize

# Unicode calls these printable, but they show nothing: fillers, joiners, variation selectors.
_FILLERS = (
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x2D7F, 0x3164, 0xFFA0, 0x1107F, 0x16FE4, 0x1BC9D, 0x1D159),
)
_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_BLANK = frozenset({*_FILLERS, *_SELECTORS})

_FLAG = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
"""The flags of England, Scotland and Wales, the only ones that use tag characters."""
_KEYCAP = re.compile("[0-9#*]\ufe0f\u20e3")
_JOINERS = "\u200c\u200d"
_SKIN = range(0x1F3FB, 0x1F400)
_PIECE = 256
_PERHAPS_ORDINARY = re.compile(
    "[\u180b-\u180d\u200c\u200d\u3000\ufe0e\ufe0f\U0001f300-\U0001faff\U000e0100-\U000e01ef]"
)
"""All characters that `_is_ordinary` may accept."""


def is_deceptive(character: str) -> bool:
    """Whether a terminal shows nothing, or something else, for the character. A plain space is not deceptive."""
    return not character.isprintable() or ord(character) in _BLANK


def ordinary_places(text: str) -> frozenset[int]:
    """Returns the positions at which an invisible character is part of ordinary writing."""
    perhaps = [match.start() for match in _PERHAPS_ORDINARY.finditer(text)]
    found = [place for place in perhaps if _is_ordinary(text, place, text[place])]
    for pattern in (_FLAG, _KEYCAP) if found or "\U0001f3f4" in text or "\u20e3" in text else ():
        for match in pattern.finditer(text):
            found.extend(range(match.start() + 1, match.end()))
    return frozenset(found)


def _is_ordinary(text: str, place: int, character: str) -> bool:
    if character.isprintable() and ord(character) not in _BLANK:
        return False
    before = text[place - 1] if place else ""
    after = text[place + 1] if place + 1 < len(text) else ""
    code = ord(character)
    if character in "\ufe0e\ufe0f":
        return _is_symbol(before)
    if character in _JOINERS:
        if _is_joining(before) and (_is_joining(after) or character == "\u200d"):
            return True
        return character == "\u200d" and _is_symbol(_before_selectors(text, place)) and _is_symbol(after)
    if character == "\u3000":  # between words of a script with wide characters
        return (bool(before) and east_asian_width(before) in "WF") or (bool(after) and east_asian_width(after) in "WF")
    if 0xE0100 <= code <= 0xE01EF:
        return bool(before) and category(before) == "Lo" and east_asian_width(before) == "W"
    if 0x180B <= code <= 0x180D:
        return "\u1820" <= before <= "\u18aa"
    # Emoji of a newer Unicode version than this Python's.
    return category(character) == "Cn" and 0x1F300 <= code <= 0x1FAFF


def _before_selectors(text: str, place: int) -> str:
    place -= 1
    while place >= 0 and (text[place] in "\ufe0e\ufe0f" or ord(text[place]) in _SKIN):
        place -= 1
    return text[place] if place >= 0 else ""


def _is_symbol(character: str) -> bool:
    """Whether the character can be part of an emoji."""
    if not character or character.isascii():
        return False
    if category(character) in ("So", "Sk", "Sm") or character in "\u203c\u2049\u3030":
        return True
    return category(character) == "Cn" and 0x1F300 <= ord(character) <= 0x1FAFF


def _is_joining(character: str) -> bool:
    """Whether the script uses joiners between letters: Arabic, those of India, Mongolian."""
    return bool(character) and 0x0600 <= ord(character) <= 0x1CFF and category(character)[0] in "LM"


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
    """Where a piece may end without separating accents from their letter: before the last ASCII character, if any."""
    last = start + _PIECE
    if last >= len(text):
        return len(text)
    ends = range(last, start + _PIECE // 2, -1)
    plain = next((end for end in ends if text[end].isascii()), None)
    return plain or next((end for end in ends if not combining(text[end])), last)
