"""Escapes invisible characters in text for documents, and characters that move or reorder the visible ones.

Owns which characters documents escape. Line ends, tabs, spaces, emoji and the ordinary characters of every script stay.
Every other invisible character is written as `\\u{202e}`, as on the command line. Escaping for HTML or Markdown comes
after this.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import category

from swink_agent.rendering.texts.invisible import is_deceptive, ordinary_places

from .escaping import MOST_MARKS_OF_A_SCRIPT, escaped, most_marks

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LAST_WITH_MARKS = 0x1F000
_SELECTORS = range(0xE0100, 0xE01F0)


def visible(text: str) -> str:
    """Escapes every character that is invisible, or that draws far over its neighbours. Keeps line ends and tabs."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if text.isascii():
        return _CONTROLS.sub(lambda match: escaped(match[0]), text)
    if _is_plain(text):
        return text
    return "\n".join([line if _is_plain(line) else _written_out(line) for line in text.split("\n")])


def one_line(text: str, limit: int = 200) -> str:
    """Returns the text as one line for a heading, cut to at most `limit` characters."""
    start = " ".join(text[: 4 * limit].split())
    shown = visible(start)
    return shown if len(shown) <= limit and len(text) <= 4 * limit else shown[: limit - 1].rstrip() + "…"


def _is_plain(text: str) -> bool:
    """Whether nothing in the text needs escaping. Fast for nearly every text."""
    if not text.replace("\n", " ").replace("\t", " ").isprintable():
        return False
    unusual, odd = _to_look_at()
    return unusual.isdisjoint(set(text)) or odd.search(text) is None


@lru_cache(maxsize=1)
def _to_look_at() -> tuple[frozenset[str], re.Pattern[str]]:
    """Returns the printable characters that may need escaping (blanks, accents) and a pattern for where they do."""
    codes = [chr(code) for code in (*range(0x80, _LAST_WITH_MARKS), *_SELECTORS)]
    marks = "".join([character for character in codes if category(character) in ("Mn", "Me", "Mc")])
    blanks = "".join([character for character in codes if character.isprintable() and is_deceptive(character)])
    odd = re.compile(f"^[{marks}]|[{blanks}]|[{marks}]{{3}}", re.MULTILINE)
    return frozenset(marks + blanks), odd


def _written_out(line: str) -> str:
    ordinary = ordinary_places(line)
    shown: list[str] = []
    marks = MOST_MARKS_OF_A_SCRIPT  # an accent without a letter would be drawn over the text before it
    for place, character in enumerate(line):
        if place in ordinary or character == "\t":
            shown.append(character)
            continue
        is_mark = category(character) in ("Mn", "Me", "Mc")
        marks = marks + 1 if is_mark else 0
        is_piled = is_mark and marks > most_marks(character)
        is_hidden = is_deceptive(character) and category(character) != "Zs"
        shown.append(escaped(character) if is_piled or is_hidden else character)
    return "".join(shown)
