"""The visible rows as strips, and the changes to draw on the terminal.

Owns which strips must be made again, the marks that are drawn over a line (the selected call, search hits, the
selection, the marker for new lines below), and the difference between two states: how far rows have moved, and which
cells changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.geometry import Region
from textual.strip import Strip

from swink_agent.rendering.cells import cell_width

from ..transcript.block import Block
from ..transcript.line import EMPTY, Line, Span, width_of
from ..transcript.rows import Place, Rows
from ..transcript.viewport import Viewport
from .searching import Search
from .selecting import Selection
from .strips import StripMaker, Tint


class _Row(NamedTuple):
    """A row as it was made. `line` is `None` if something is drawn over it, so that it equals no other row."""

    line: Line | None
    edge: str
    strip: Strip


class Patch(NamedTuple):
    """Changed cells of row `y`, from cell `x` on."""

    y: int
    x: int
    strip: Strip


class Turn(NamedTuple):
    """The steps from one page to the next: move all rows up by `up` (down if negative), then draw the patches."""

    up: int
    patches: list[Patch]


class Page:
    """The rows of a transcript that a viewport shows."""

    def __init__(self, rows: Rows, window: Viewport, search: Search, selection: Selection, maker: StripMaker) -> None:
        self.maker = maker
        self.selected: Block | None = None
        """The call that is selected with the keyboard."""
        self._rows = rows
        self._window = window
        self._search = search
        self._selection = selection
        self._made_rows: list[_Row] = []
        self._spoiled: tuple[int, int] | None = None
        self._stale: tuple[int, int] | None = None
        """Rows that may look different on the terminal: Textual was asked to draw them and has not done so yet."""

    def spoil(self, regions: Sequence[Region]) -> None:
        """Marks the rows of the regions to be made and drawn again; without regions, all rows."""
        rows = [row for region in regions for row in (region.y, region.bottom)] or [0, self._window.height]
        first, last = min(rows), max(rows)
        self._spoiled = _union(self._spoiled, (first, last))
        self._stale = _union(self._stale, (first, last))

    def drawn(self, first: int, last: int) -> None:
        """Notes that Textual has drawn these rows in one step."""
        if self._stale is not None and first <= self._stale[0] and self._stale[1] <= last:
            self._stale = None

    def strips(self) -> list[Strip]:
        """Returns the strips of all rows from the top."""
        self._make_spoiled()
        return [row.strip for row in self._made_rows]

    def _make_spoiled(self) -> None:
        height = self._window.height
        if len(self._made_rows) != height:
            self._made_rows = [_Row(None, "", Strip.blank(0))] * height
            self._spoiled = self._stale = (0, height)
        if self._spoiled is not None:
            start, end = max(self._spoiled[0], 0), min(self._spoiled[1], height)
            self._made_rows[start:end] = self._made(start, end)
            self._spoiled = None

    # -- differences -----------------------------------------------------------------------------------------------

    def turn(self, up: int) -> Turn:
        """Makes all rows again. `up` is how far they have moved, or 0."""
        height = self._window.height
        old = self._made_rows
        if len(old) != height:
            self._make_spoiled()
            return Turn(0, [Patch(y, 0, row.strip) for y, row in enumerate(self._made_rows)])
        new = self._made(0, height)
        self._made_rows, self._spoiled = new, None
        if not 0 < abs(up) < height or _count_unchanged(old, new, up) <= _count_unchanged(old, new, 0):
            up = 0
        stale = range(0) if self._stale is None else range(self._stale[0] - up, self._stale[1] - up)
        patches: list[Patch] = []
        for y, row in enumerate(new):
            is_known = 0 <= y + up < height and y not in stale
            patches += _patches(y, old[y + up] if is_known else None, row, self.maker.width)
        return Turn(up, patches)

    def remake(self, first: int, last: int) -> Turn:
        """Makes the rows from `first` to before `last` again, on a page that has not moved."""
        if len(self._made_rows) != self._window.height or self._spoiled is not None:
            return self.turn(0)
        patches: list[Patch] = []
        old, self._made_rows[first:last] = self._made_rows[first:last], self._made(first, last)
        stale = range(0) if self._stale is None else range(*self._stale)
        for y in range(first, last):
            known = None if y in stale else old[y - first]
            patches += _patches(y, known, self._made_rows[y], self.maker.width)
        return Turn(0, patches)

    # -- making ----------------------------------------------------------------------------------------------------

    def marker(self) -> Line | None:
        """Returns the line with the number of new lines below, or `None` if there are none."""
        count = self._window.new_below
        if not count:
            return None
        text = f" \u2193 {count:,} new line{'' if count == 1 else 's'} "
        before = max((self.maker.width - 1 - cell_width(text)) // 2, 0)
        return Line((Span(" " * before, "text"), Span(text, "marker")), "", "")

    def _made(self, first: int, last: int) -> list[_Row]:
        rows, height = self._rows, self._window.height
        thumb_start, thumb_end = self._window.thumb()
        has_tints = self._search.is_on or self._selection.is_there
        made: list[_Row] = []
        index, row = self._window.place_at(first)
        lines: Sequence[Line] = ()
        gap, end, is_plain = 0, -1, True
        for y in range(first, last):
            while row >= end and index < rows.count:
                if end >= 0:
                    index, row = index + 1, 0
                if index >= rows.count:
                    break
                lines, gap, end = rows.seen(index), rows.gap(index), rows.height(index)
                is_plain = not has_tints and rows.blocks[index] is not self.selected
            edge = "" if thumb_start < 0 else "scrollbar.thumb" if thumb_start <= y < thumb_end else "scrollbar"
            number = row - gap
            if index >= rows.count:
                made.append(self._row(EMPTY, edge))
            elif is_plain:
                made.append(self._row(lines[number] if 0 <= number < len(lines) else EMPTY, edge))
            else:
                made.append(self._tinted(Place(index, row), edge))
            row += 1
        if last >= height and (marker := self.marker()) is not None:
            made[height - 1 - first] = self._row(marker, "scrollbar.thumb" if thumb_end >= height else "scrollbar")
        return made

    def _row(self, line: Line, edge: str) -> _Row:
        return _Row(line, edge, self.maker.strip(line, edge))

    def _tinted(self, place: Place, edge: str) -> _Row:
        rows, width = self._rows, self.maker.width - 1
        block, number = rows.blocks[place.block], rows.line_number(place)
        tints: list[Tint] = []
        if block is self.selected and number == 0:
            tints.append((0, width, "tool.selected"))
        if self._search.is_on and number >= 0:
            tints += self._search.tints(block, number)
        if (cells := self._selection.cells(place, width)) is not None:
            tints.append((*cells, "selection"))
        line = rows.line(place)
        return _Row(None, edge, self.maker.tinted(line, edge, tints)) if tints else self._row(line, edge)


def _union(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _count_unchanged(old: Sequence[_Row], new: Sequence[_Row], up: int) -> int:
    """Counts the rows with text that are unchanged if all rows moved up by `up`."""
    pairs = zip(old[up:], new, strict=False) if up >= 0 else zip(old, new[-up:], strict=False)
    return sum([before.line == after.line for before, after in pairs if after.line is not None and after.line.spans])


def _patches(y: int, old: _Row | None, new: _Row, width: int) -> list[Patch]:
    """Returns the cells of `new` that differ from `old`; all cells if `old` is unknown."""
    if old is None or old.line is None or new.line is None:
        return [] if old is not None and old.strip == new.strip else [Patch(y, 0, new.strip)]
    patches: list[Patch] = []
    if old.line.spans != new.line.spans:
        start, end = _difference(old.line.spans, new.line.spans, width - 1)
        if start < end:
            patches.append(Patch(y, start, new.strip.crop(start, end)))
    if old.edge != new.edge:
        patches.append(Patch(y, width - 1, new.strip.crop(width - 1, width)))
    return patches


def _difference(old: tuple[Span, ...], new: tuple[Span, ...], width: int) -> tuple[int, int]:
    """Returns the first cell where two rows differ and the cell after the last.

    A row that only grows differs from its old end to its new end: the cells before are the same, those after blank.
    """
    start = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            is_like = before[1:] == after[1:] and before.text.isascii() and after.text.isascii()
            start += _common_length(before.text, after.text) if is_like else 0
            break
        start += cell_width(after.text)
    end = width
    if _trailing_role(old, width) == _trailing_role(new, width):
        end = max(_end_of_text(old, width), _end_of_text(new, width))
    return min(start, width), min(end, width)


def _common_length(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _trailing_role(spans: tuple[Span, ...], width: int) -> str:
    """Returns the role of the blanks at the end of a row."""
    if spans and spans[-1].text.isspace() and not spans[-1].link:
        return spans[-1].role if width_of(spans) >= width else f"{spans[-1].role}, not to the edge"
    return "text" if width_of(spans) < width else "no blanks"


def _end_of_text(spans: tuple[Span, ...], width: int) -> int:
    """Returns the cell after the last one that is not a trailing blank."""
    total = width_of(spans)
    if spans and spans[-1].text.isspace() and not spans[-1].link and total >= width:
        return total - cell_width(spans[-1].text)
    return total
