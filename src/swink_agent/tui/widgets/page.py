"""The rows in sight as strips, each made when it was spoiled and not before.

Owns which strips have to be made anew, and what is laid over a line: the selected call, hits, the selection, and the
marker of what is new below.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip

from swink_agent.rendering.cells import cell_width

from ..transcript.block import Block
from ..transcript.line import EMPTY, Line, Span
from ..transcript.rows import Place, Rows
from ..transcript.viewport import Viewport
from .searching import Search
from .selecting import Selection
from .strips import StripMaker, Tint

__all__ = ["Page"]


class Page:
    """What a window onto a transcript shows."""

    def __init__(self, rows: Rows, window: Viewport, search: Search, selection: Selection, maker: StripMaker) -> None:
        self.maker = maker
        self.selected: Block | None = None
        """The call that is selected by key."""
        self._rows = rows
        self._window = window
        self._search = search
        self._selection = selection
        self._strips: list[Strip] = []
        self._spoiled: tuple[int, int] | None = None

    def spoil(self, regions: Sequence[Region]) -> None:
        """Has the rows of regions made anew, or all of them."""
        rows = [row for region in regions for row in (region.y, region.bottom)] or [0, len(self._strips)]
        if self._spoiled is not None:
            rows += self._spoiled
        self._spoiled = (min(rows), max(rows))

    def strips(self) -> list[Strip]:
        """All strips from the top."""
        height = self._window.height
        if len(self._strips) != height:
            self._strips, self._spoiled = [Strip.blank(0)] * height, (0, height)
        if self._spoiled is not None:
            start, end = max(self._spoiled[0], 0), min(self._spoiled[1], height)
            self._strips[start:end] = self._made(start, end)
            self._spoiled = None
        return self._strips

    def marker(self) -> Line | None:
        """How much is new below, where something is."""
        count = self._window.new_below
        if not count:
            return None
        text = f" \u2193 {count:,} new line{'' if count == 1 else 's'} "
        before = max((self.maker.width - 1 - cell_width(text)) // 2, 0)
        return Line((Span(" " * before, "text"), Span(text, "marker")), "", "")

    def _made(self, first: int, last: int) -> list[Strip]:
        rows, maker, height = self._rows, self.maker, self._window.height
        thumb_start, thumb_end = self._window.thumb()
        has_tints = self._search.is_on or self._selection.is_there
        strips: list[Strip] = []
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
                strips.append(maker.strip(EMPTY, edge))
            elif is_plain:
                strips.append(maker.strip(lines[number] if 0 <= number < len(lines) else EMPTY, edge))
            else:
                strips.append(self._tinted(Place(index, row), edge))
            row += 1
        if last >= height and (marker := self.marker()) is not None:
            strips[height - 1 - first] = maker.strip(marker, "scrollbar.thumb" if thumb_end >= height else "scrollbar")
        return strips

    def _tinted(self, place: Place, edge: str) -> Strip:
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
        return self.maker.tinted(line, edge, tints) if tints else self.maker.strip(line, edge)
