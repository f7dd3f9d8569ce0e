"""Lays out a draft as rows of a window, and maps cells to places in the text and back.

Breaks lines between words. Tokens show as their labels; control and bidirectional characters are escaped. A line that
has not changed is not laid out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from swink_agent.rendering.cells import TAB_STOP, cell_width, cut_middle
from swink_agent.rendering.escaping import safe_text

from .draft import Token, whole_characters

_NARROWEST = 2


class Piece(NamedTuple):
    """A character as it is shown: its place in the text, its width in cells, and whether it is a token."""

    place: int
    text: str
    width: int
    is_token: bool = False


class Row(NamedTuple):
    """A row of the window: the places of its start and end, and its pieces, whose places are relative to `start`."""

    start: int
    end: int
    pieces: tuple[Piece, ...]


_Broken: TypeAlias = tuple[tuple[int, tuple[Piece, ...]], ...]
"""The rows of one line: the start of each in the line, and its pieces, whose places are relative to that start."""


class Layout:
    """The rows of a text at one width. `update` lays out only the lines that have changed."""

    def __init__(self) -> None:
        self.rows: list[Row] = [Row(0, 0, ())]
        self.width = 0
        self._known: dict[str, _Broken] = {}
        self._labels: Mapping[str, Token] = {}

    def update(self, text: str, width: int, tokens: Mapping[str, Token]) -> None:
        """Lays out a text. Each row leaves one cell free for the cursor after it."""
        width = max(width - 1, _NARROWEST)
        if width != self.width or tokens is not self._labels:
            self._known = {}
        self.width, self._labels = width, tokens
        known: dict[str, _Broken] = {}
        rows: list[Row] = []
        start = 0
        for line in text.split("\n"):
            broken = known[line] = self._known.get(line) or _broken(line, width, tokens)
            ends = [*[first for first, _ in broken[1:]], len(line)]
            for (first, pieces), last in zip(broken, ends, strict=True):
                rows.append(Row(start + first, start + last, pieces))
            start += len(line) + 1
        self.rows, self._known = rows, known

    def cell_of(self, place: int) -> tuple[int, int]:
        """Returns the column and the row of a place in the text."""
        number = self.row_of(place)
        row = self.rows[number]
        column = sum([piece.width for piece in row.pieces if row.start + piece.place < place])
        return column, number

    def row_of(self, place: int) -> int:
        """Returns the row of a place. Where a line is broken, the place between two rows belongs to the second."""
        low, high = 0, len(self.rows) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.rows[middle].start <= place:
                low = middle
            else:
                high = middle - 1
        return low

    def place_at(self, column: int, number: int) -> int:
        """Returns the place in the text that is nearest to a cell."""
        number = max(0, min(number, len(self.rows) - 1))
        row = self.rows[number]
        at = 0
        for piece in row.pieces:
            if column < at + (piece.width + 1) // 2:
                return row.start + piece.place
            at += piece.width
        is_broken = number + 1 < len(self.rows) and self.rows[number + 1].start == row.end
        return row.start + row.pieces[-1].place if is_broken and row.pieces else row.end


def _moved(pieces: list[Piece]) -> tuple[int, tuple[Piece, ...]]:
    """Returns the place of the first piece, and the pieces with places relative to it."""
    if not pieces or pieces[0].place == 0:
        return 0, tuple(pieces)
    first = pieces[0].place
    return first, tuple([Piece(place - first, text, width, is_token) for place, text, width, is_token in pieces])


def _broken(line: str, width: int, tokens: Mapping[str, Token]) -> _Broken:
    if len(line) <= width and line.isascii() and line.isprintable():
        return ((0, _ascii_pieces(line)),)
    rows: list[tuple[int, tuple[Piece, ...]]] = []
    row: list[Piece] = []
    used, after_space = 0, 0
    for piece in _pieces(line, width, tokens):
        while used + piece.width > width and row:
            rest = row[after_space:] if after_space else []
            rows.append(_moved(row[: len(row) - len(rest)]))
            row, used, after_space = rest, sum([part.width for part in rest]), 0
        row.append(piece)
        used += piece.width
        if piece.text == " ":
            after_space = len(row)
    return (*rows, _moved(row))


@lru_cache(64)
def _ascii_pieces(line: str) -> tuple[Piece, ...]:
    return tuple([Piece(place, character, 1) for place, character in enumerate(line)])


def _pieces(line: str, width: int, tokens: Mapping[str, Token]) -> list[Piece]:
    if line.isascii() and line.isprintable():
        return [Piece(place, character, 1) for place, character in enumerate(line)]
    has_tokens = any(character in line for character in tokens)
    is_safe = not has_tokens and safe_text(line) == line
    pieces: list[Piece] = []
    place = used = 0
    for cluster, cells in whole_characters(line):
        token = tokens.get(cluster)
        if token is not None:
            label = cut_middle(token.label, width)
            pieces.append(Piece(place, label, cell_width(label), True))
        elif cluster == "\t":
            room = TAB_STOP - used % TAB_STOP
            pieces.append(Piece(place, " " * room, room))
        elif cells == 0:  # a combining mark without its letter
            shown = cut_middle(safe_text(f"\N{DOTTED CIRCLE}{cluster}"), width)
            pieces.append(Piece(place, shown, cell_width(shown)))
        elif is_safe:
            pieces.append(Piece(place, cluster, cells))
        else:
            shown = safe_text(cluster)
            shown = shown if cell_width(shown) <= width else cut_middle(shown, width)
            pieces.append(Piece(place, shown, cells if shown == cluster else cell_width(shown)))
        used += pieces[-1].width
        place += len(cluster)
    return pieces
