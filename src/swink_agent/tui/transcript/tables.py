"""A table as it streams in: columns as wide as their cells need, narrower where the window is.

Owns the widths and the wrapping inside cells. The first rows decide how wide the columns are; from then on every row
is final when it ends. A table with too many columns for the window is shown as records, a line for each cell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from .inline_markup import inline_spans
from .leaves import Emit, Row, split_lines
from .line import Span, width_of
from .wrapping import Flow

__all__ = ["Table", "cells_of", "columns_of"]

_MEASURED = 100
"""Rows that the widths are made of."""
_MOST_COLUMNS = 40
_NARROWEST = 6
_LONGEST_ROW = 8192
_DELIMITER = re.compile(r"[ \t|:-]*-[ \t|:-]*")
_BAR = re.compile(r"(?<!\\)\|")

_COLON = Span(": ", "table.line")

Side: TypeAlias = Literal["left", "right", "centre"]
_Cells: TypeAlias = "list[list[Span]]"


def cells_of(line: str) -> list[str]:
    """The cells of a row as they are written."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(inner, maxsplit=_MOST_COLUMNS)]


def columns_of(header: str, delimiter: str) -> list[Side] | None:
    """On which side the cells of each column stand, if the two lines begin a table."""
    if "|" not in header or "|" not in delimiter or _DELIMITER.fullmatch(delimiter) is None:
        return None
    marks = cells_of(delimiter)
    if len(marks) != len(cells_of(header)):
        return None
    return [_side(mark) for mark in marks]


def _side(mark: str) -> Side:
    if mark.endswith(":"):
        return "centre" if mark.startswith(":") else "right"
    return "left"


class Table:
    """Rows under a header."""

    __slots__ = ("_head", "_partial", "_role", "_rows", "_sides", "_widths", "_window", "kind")

    def __init__(self, width: int, role: str, header: str, sides: list[Side]) -> None:
        self.kind = "table"
        self._window = width
        self._role = role
        self._sides = sides
        self._head = [inline_spans(cell, f"{role}+table.head") for cell in cells_of(header)]
        self._rows: list[_Cells] = []
        self._widths: list[int] | None = None
        self._partial = ""

    def copy(self) -> Table:
        twin = Table.__new__(Table)
        twin.kind, twin._window, twin._role, twin._sides = self.kind, self._window, self._role, self._sides
        twin._head, twin._rows, twin._widths = self._head, list(self._rows), self._widths
        twin._partial = self._partial
        return twin

    def add(self, text: str, emit: Emit, *, is_last: bool) -> None:
        """One more row, or a piece of one."""
        self._partial += text
        if not is_last and len(self._partial) < _LONGEST_ROW:
            return
        written, self._partial = self._partial, ""
        cells = [inline_spans(cell, self._role) for cell in cells_of(written)[: len(self._sides)]]
        row = cells + [[] for _ in range(len(self._sides) - len(cells))]
        if self._widths is not None:
            self._draw_row(row, emit)
            return
        self._rows.append(row)
        if len(self._rows) == _MEASURED:
            self._draw(emit)

    def finish(self, emit: Emit) -> None:
        if self._partial:
            self.add("", emit, is_last=True)
        if self._widths is None:
            self._draw(emit)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _draw(self, emit: Emit) -> None:
        self._widths = widths = self._measured()
        if widths:
            self._draw_cells(self._head, widths, emit)
            rule = "\u2500\u253c\u2500".join(["\u2500" * width for width in widths])
            emit(Row((Span(rule, "table.line"),), "", ""))
        for row in self._rows:
            self._draw_row(row, emit)
        self._rows = []

    def _measured(self) -> list[int]:
        """The widths of the columns; none if they do not fit beside each other."""
        natural = [
            max(1, *[_natural(row[column]) for row in (self._head, *self._rows)]) for column in range(len(self._sides))
        ]
        room = self._window - 3 * (len(natural) - 1)
        if sum(natural) <= room:
            return natural
        if room < _NARROWEST * len(natural):
            return []
        widths = list(natural)
        # What needs less than its share keeps what it needs; the others share the rest.
        left, open_columns = room, sorted(range(len(natural)), key=lambda column: natural[column])
        while open_columns:
            share = left // len(open_columns)
            column = open_columns.pop(0)
            widths[column] = min(natural[column], max(share, _NARROWEST))
            left -= widths[column]
        return widths

    def _draw_row(self, row: _Cells, emit: Emit) -> None:
        if self._widths:
            self._draw_cells(row, self._widths, emit)
            return
        for head, cell in zip(self._head, row, strict=True):
            flow = Flow(self._window)
            glue = None
            one_line = [span._replace(text=span.text.replace("\n", " ")) for span in (*head, _COLON, *cell)]
            for spans in [*flow.add(one_line), *flow.end()]:
                emit(Row(tuple(spans), None, glue))
                glue = " "
        emit(Row((Span("\u2500" * min(self._window, 20), "table.line"),), "", ""))

    def _draw_cells(self, row: _Cells, widths: Sequence[int], emit: Emit) -> None:
        columns = [_rows_of(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(len(column) for column in columns)):
            spans: list[Span] = []
            for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
                if place:
                    spans.append(Span(" \u2502 ", "table.line"))
                cell = column[number] if number < len(column) else ()
                is_end = place == len(widths) - 1
                spans += _aligned(cell, width, self._sides[place], self._role, is_end=is_end)
            emit(Row(tuple(spans)))


def _natural(cell: list[Span]) -> int:
    """The cells that the widest line of a cell takes."""
    return max(width_of(line) for line in split_lines(cell))


def _rows_of(cell: list[Span], width: int) -> list[tuple[Span, ...]]:
    if not cell:
        return [()]
    rows: list[tuple[Span, ...]] = []
    for line in split_lines(cell):
        flow = Flow(width)
        rows += [*flow.add(line), *flow.end()]
    return rows


def _aligned(cell: Sequence[Span], width: int, side: Side, role: str, *, is_end: bool) -> list[Span]:
    missing = max(width - width_of(cell), 0)
    before = missing if side == "right" else missing // 2 if side == "centre" else 0
    after = 0 if is_end else missing - before
    spans = [Span(" " * before, role)] if before else []
    spans += cell
    if after:
        spans.append(Span(" " * after, role))
    return spans
