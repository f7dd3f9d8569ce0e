"""Lays out a Markdown table while it streams in.

Owns the widths of the columns and the wrapping inside cells. The first rows decide the widths; after them, every row
is final when it ends. A table with too many columns for the window is shown as records, one line per cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeAlias

from swink_agent.rendering.block_marks import Side, cells_of

from .inline_markup import inline_spans
from .leaves import Emit, Row, split_lines
from .line import Span, width_of
from .wrapping import Flow

_MEASURED = 100
"""The number of first rows that decide the widths."""
_NARROWEST = 6
_LONGEST_ROW = 8192

_COLON = Span(": ", "table.line")

_Cells: TypeAlias = "list[list[Span]]"


class Table:
    """A table that grows by rows."""

    __slots__ = ("_head", "_partial", "_references", "_role", "_rows", "_sides", "_widths", "_window", "kind")

    def __init__(self, width: int, role: str, header: str, sides: list[Side], references: Mapping[str, str]) -> None:
        self.kind = "table"
        self._references = references
        self._window = width
        self._role = role
        self._sides = sides
        self._head = [inline_spans(cell, f"{role}+table.head", references) for cell in cells_of(header)]
        self._rows: list[_Cells] = []
        self._widths: list[int] | None = None
        self._partial = ""

    def copy(self) -> Table:
        twin = copy(self)
        twin._rows = list(self._rows)
        return twin

    def add(self, text: str, emit: Emit, *, is_last: bool) -> None:
        """Adds a row, or a piece of one; `is_last` marks the end of the row."""
        self._partial += text
        if not is_last and len(self._partial) < _LONGEST_ROW:
            return
        written, self._partial = self._partial, ""
        cells = [inline_spans(cell, self._role, self._references) for cell in cells_of(written)[: len(self._sides)]]
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
        """Returns the widths of the columns; an empty list if they do not fit next to each other."""
        natural = [
            max(1, *[_natural(row[column]) for row in (self._head, *self._rows)]) for column in range(len(self._sides))
        ]
        room = self._window - 3 * (len(natural) - 1)
        if sum(natural) <= room:
            return natural
        if room < _NARROWEST * len(natural):
            return []
        widths = list(natural)
        # A column that needs less than an equal share gets what it needs; the others share the rest.
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
