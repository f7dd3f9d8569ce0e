"""Measures text in terminal cells, and cuts and wraps it to a width.

Owns widths in cells and the places where a line may be broken: never between a letter and its accent, nor inside an
emoji. Where terminals disagree (joined emoji, flags, vowel signs), the larger width counts. A line measured too wide is
only cut early; a line measured too narrow would be wrapped by the terminal, and its author could then choose what a row
begins with. Nothing here queries a terminal or writes to one. `escaping` decides what is safe to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from unicodedata import category, east_asian_width

FOLLOWING = "  ┆ "
"""Begins every row of a message after its first. No other kind of row begins with it."""
TAB_STOP = 4
_ELLIPSIS = "…"
_JOINER = "\u200d"
_WIDEST = 16
"""Cells of the widest emoji: four people with four skin colours. A wider joined sequence is not one emoji."""
_LEAST_BESIDE = 8  # if a mark leaves fewer cells than this for text, it gets a separate row
_NARROWEST = 4  # the least cells of text in a row, even if the window is narrower


@lru_cache(4096)
def _width(character: str) -> int:
    code = ord(character)
    if code < 0x300:
        return 0 if code < 0x20 or 0x7F <= code < 0xA0 or code == 0xAD else 1
    if east_asian_width(character) in "WF":
        return 2
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    # Some terminals draw the letters of flags wide. Emoji newer than this Python's Unicode tables are wide, too.
    return 2 if 0x1F000 <= code <= 0x1FAFF or 0x20000 <= code <= 0x3FFFD else 1


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yields the pieces of the text that must not be split, each with its width in cells."""
    start, width, is_joined = 0, 0, False
    for place, character in enumerate(text):
        own = _width(character)
        if own == 0 or (is_joined and width < _WIDEST):
            # The selector for the emoji form makes a narrow symbol wide.
            width = max(width, 2) if character == "\ufe0f" else width + own
        else:
            if place > start:
                yield text[start:place], width
            start, width = place, own
        is_joined = character == _JOINER
    if text:
        yield text[start:], width


def cell_width(text: str) -> int:
    """Returns how many cells the text takes at most. Tabs and line ends do not count."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum([width for _, width in clusters(text)])


def expand_tabs(text: str) -> str:
    """Replaces the tabs in one line with spaces up to the next multiple of four cells."""
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
    """Cuts the end of the line so that it fits, and marks the cut with `sign`."""
    if _fits(text, width):
        return text
    return _head(text, width - len(sign)) + sign if width >= len(sign) else ""


def cut_start(text: str, width: int) -> str:
    """Cuts the start of the line so that it fits, and marks the cut with an ellipsis."""
    if _fits(text, width):
        return text
    return f"{_ELLIPSIS} {_tail(text, width - 2)}" if width > 2 else cut(text, width)


def cut_middle(text: str, width: int) -> str:
    """Cuts the middle of the line so that it fits: the reader recognises the line by its two ends."""
    if _fits(text, width):
        return text
    if width < 5:
        return cut(text, width)
    tail = _tail(text, (width - 1) * 2 // 5)
    return _head(text, width - 1 - cell_width(tail)) + _ELLIPSIS + tail


def wrap(text: str, width: int, *, at_words: bool = False) -> list[str]:
    """Wraps one line into rows of at most `width` cells; `at_words` prefers breaks between words. Keeps all text."""
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
    """Yields the pieces of the text. A piece wider than a row is split here, because the terminal would split it."""
    for piece, size in clusters(text):
        if size <= width:
            yield piece, size
        else:
            yield from [(character, _width(character)) for character in piece]


def laid_out(text: str, first: str, following: str, width: int | None = None, *, most: int | None = None) -> list[str]:
    """Lays out foreign text as rows. The first row begins with the mark `first`, the others with `following`.

    The caller has already made `text` safe; it may contain line ends. Without a width (no terminal) lines are not
    wrapped. If there are more than `most` rows, a row with the number of missing rows replaces the middle.
    """
    room = None if width is None else width - max(cell_width(first), cell_width(following))
    stands_alone = room is not None and room < _LEAST_BESIDE and cell_width(first) > cell_width(following)
    if width is not None and stands_alone:
        room = width - cell_width(following)
    rows: list[str] = []
    for line in text.split("\n"):
        line = expand_tabs(line)
        rows += [line] if room is None else wrap(line, room, at_words=True)
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
    return len(text) <= 4 * width + 64 and cell_width(text) <= width  # skips measuring very long texts


def _head(text: str, width: int) -> str:
    return "".join(_that_fit(clusters(text), width))


def _tail(text: str, width: int) -> str:
    # A cell holds only a few characters, so only the end of the text has to be measured.
    pieces = list(clusters(text[-(4 * width + 64) :]))
    return "".join(reversed(_that_fit(reversed(pieces), width)))


def _that_fit(pieces: Iterable[tuple[str, int]], width: int) -> list[str]:
    taken: list[str] = []
    for piece, size in pieces:
        width -= size
        if width < 0:
            break
        taken.append(piece)
    return taken
