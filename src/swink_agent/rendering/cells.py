"""How much room text takes on a terminal, and cutting and wrapping it to that room.

Owns widths in cells, and the places where a line may be broken: never between a letter and its accent, nor inside an
emoji. Where terminals disagree (joined emoji, flags, vowel signs) the wider reading counts: a line that is counted too
wide is cut early, one that is counted too narrow would wrap, and a wrapped line begins wherever its author wants it to.
Pure text: no terminal is asked, nothing is written. What is safe to show at all is in `display`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from unicodedata import category, east_asian_width

__all__ = ["FOLLOWING", "cell_width", "clusters", "cut", "cut_middle", "cut_start", "expand_tabs", "laid_out", "wrap"]

FOLLOWING = "  ┆ "
"""The mark of every row but the first of a message, which no row of another kind begins with."""
TAB_STOP = 4
_ELLIPSIS = "…"
_JOINER = "\u200d"
_WIDEST = 16
"""Cells of the widest emoji there is, four people of four colours. What is joined to more is not one."""
_ROOM = 8
"""Where a mark leaves less than this beside it, it stands in a row of its own."""
_NARROWEST = 4
"""However narrow a window is, so much of a text stands in a row."""


@lru_cache(4096)
def _width(character: str) -> int:
    code = ord(character)
    if code < 0x300:
        return 0 if code < 0x20 or 0x7F <= code < 0xA0 or code == 0xAD else 1
    if east_asian_width(character) in "WF":
        return 2
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    # Flags are made of letters that some terminals draw wide; emoji of a later Unicode are wide there, unknown here.
    return 2 if 0x1F000 <= code <= 0x1FAFF or 0x20000 <= code <= 0x3FFFD else 1


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """The text in pieces that must not be torn apart, each with its width in cells."""
    start, width, is_joined = 0, 0, False
    for place, character in enumerate(text):
        own = _width(character)
        if own == 0 or (is_joined and width < _WIDEST):
            # The sign that asks for a colourful form makes a narrow symbol wide.
            width = max(width, 2) if character == "\ufe0f" else width + own
        else:
            if place > start:
                yield text[start:place], width
            start, width = place, own
        is_joined = character == _JOINER
    if text:
        yield text[start:], width


def cell_width(text: str) -> int:
    """The cells that the text takes at most, tabs and line ends not counted."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum([width for _, width in clusters(text)])


def expand_tabs(text: str) -> str:
    """One line of text with its tabs as spaces, to the next multiple of four cells."""
    if "\t" not in text:
        return text
    shown, used = "", 0
    for number, piece in enumerate(text.split("\t")):
        if number:
            shown += " " * (TAB_STOP - used % TAB_STOP)
            used += TAB_STOP - used % TAB_STOP
        shown += piece
        used += cell_width(piece)
    return shown


def cut(text: str, width: int, sign: str = _ELLIPSIS) -> str:
    """As much of the line as fits, with an ellipsis where something is missing."""
    if _fits(text, width):
        return text
    return _head(text, width - len(sign)) + sign if width >= len(sign) else ""


def cut_start(text: str, width: int) -> str:
    """As much of the end of the line as fits, with an ellipsis before it."""
    if _fits(text, width):
        return text
    return f"{_ELLIPSIS} {_tail(text, width - 2)}" if width > 2 else cut(text, width)


def cut_middle(text: str, width: int) -> str:
    """The line with its middle left out where it does not fit: both ends say what it is."""
    if _fits(text, width):
        return text
    if width < 5:
        return cut(text, width)
    tail = _tail(text, (width - 1) * 2 // 5)
    return _head(text, width - 1 - cell_width(tail)) + _ELLIPSIS + tail


def wrap(text: str, width: int, *, at_words: bool = False) -> list[str]:
    """One line as rows of at most so many cells, broken between words if asked and possible. Nothing is left out."""
    width = max(width, _NARROWEST)
    if _fits(text, width):
        return [text]
    rows: list[str] = []
    row: list[str] = []
    used, after_space = 0, 0
    for piece, size in _fitting(text, width):
        if used + size > width and row:
            rest = row[after_space:] if at_words and after_space else []
            rows.append("".join(row[: len(row) - len(rest)]))
            row, used, after_space = rest, sum([cell_width(part) for part in rest]), 0
            if not rest and at_words and piece == " ":
                continue
        row.append(piece)
        used += size
        if piece == " ":
            after_space = len(row)
    return [*rows, "".join(row)]


def _fitting(text: str, width: int) -> Iterator[tuple[str, int]]:
    """The pieces of the text; one that is wider than a row is torn apart after all, before a terminal does it."""
    for piece, size in clusters(text):
        if size <= width:
            yield piece, size
        else:
            yield from [(character, _width(character)) for character in piece]


def laid_out(
    text: str, first: str, following: str, width: int | None = None, *, at_words: bool = True, most: int | None = None
) -> list[str]:
    """Lines of foreign text as rows, each behind a mark of ours: `first`, then `following`.

    `text` has been made safe and may have line ends. Without a width (no terminal) lines are not broken. Past `most`
    rows the middle is left out, and that is said.
    """
    room = None if width is None else width - max(cell_width(first), cell_width(following))
    stands_alone = room is not None and room < _ROOM and cell_width(first) > cell_width(following)
    if width is not None and stands_alone:
        room = width - cell_width(following)
    rows: list[str] = []
    for line in text.split("\n"):
        line = expand_tabs(line)
        rows += [line] if room is None else wrap(line, room, at_words=at_words)
    if most is not None and len(rows) > most:
        tail = most * 2 // 5
        head = most - tail
        rows = [*rows[:head], cut(f"{_ELLIPSIS} [{len(rows) - most:,} more]", room or 80), *rows[len(rows) - tail :]]
    marks = [first.rstrip(), *[f"{following}{row}" for row in rows]]
    if stands_alone:
        return marks
    return [f"{first}{rows[0]}", *marks[2:]]


def _fits(text: str, width: int) -> bool:
    if len(text) <= width and text.isascii():
        return True
    return len(text) <= 4 * width + 64 and cell_width(text) <= width  # a long text is not measured to its end


def _head(text: str, width: int) -> str:
    taken: list[str] = []
    for piece, size in clusters(text):
        width -= size
        if width < 0:
            break
        taken.append(piece)
    return "".join(taken)


def _tail(text: str, width: int) -> str:
    # No more than a few characters make a cell, so the end is looked for in the end alone.
    taken: list[str] = []
    for piece, size in reversed(list(clusters(text[-(4 * width + 64) :]))):
        width -= size
        if width < 0:
            break
        taken.append(piece)
    return "".join(reversed(taken))
