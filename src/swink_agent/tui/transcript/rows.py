"""Maps the blocks of a transcript to rows without drawing blocks that are not visible.

Owns the heights of blocks (measured if a block was drawn at this width, else estimated), the mapping between rows and
blocks, and moving by rows, which measures only the blocks that it passes. Independent of widgets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from .block import Block, Transcript, gap_before
from .line import EMPTY, Line

_MOST_DRAWN = 80
"""The number of blocks whose lines are cached; for the others only the height is known."""
_MOST_NEW = 4096
"""Characters of streamed text that are laid out at once: about 10 ms, so that keys are handled without delay."""


class Place(NamedTuple):
    """A row, stored as a block and a row in it because heights above may change. Row 0 is the block's gap, if any."""

    block: int
    row: int


class Rows:
    """The rows of a transcript at a width."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.blocks: list[Block] = []
        """The blocks as of the last `sync`; the transcript may have others by now."""
        self.width = 80
        self._heights: list[int] = []
        self._gaps: list[int] = []
        self._measured: list[int] = []
        """The width at which each block was measured; 0 if it was not, or has changed since."""
        self._starts: list[int] = []
        self._known = 0
        """How many of the starts are up to date."""
        self._index: dict[Block, int] = {}
        self._drawn: OrderedDict[Block, None] = OrderedDict()

    @property
    def count(self) -> int:
        """The number of blocks as of the last `sync`."""
        return len(self._heights)

    def index_of(self, block: Block) -> int | None:
        return self._index.get(block)

    # -- changes ---------------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Reads new blocks from the transcript; returns whether blocks were removed, which invalidates all places."""
        now, known = self._transcript.blocks, len(self.blocks)
        is_reset = len(now) < known or (known > 0 and now[known - 1] is not self.blocks[known - 1])
        if is_reset:
            self._heights, self._gaps, self._measured, self._starts, self._known = [], [], [], [], 0
            self._index, self._drawn, self.blocks, known = {}, OrderedDict(), [], 0
        for index in range(known, len(now)):
            block = now[index]
            self.blocks.append(block)
            self._index[block] = index
            gap = gap_before(block, now[index - 1] if index else None)
            self._gaps.append(gap)
            self._heights.append(block.estimated_height(self.width) + gap)
            self._measured.append(0)
            self._starts.append(0)
        return is_reset

    def changed(self, index: int) -> bool:
        """Notes a change of a block and measures it again if it was measured; returns whether rows have moved."""
        before = self._heights[index]
        was_measured = self._measured[index] != 0
        self._measured[index] = 0
        if was_measured or index >= len(self._heights) - 2:
            self.measure(index)
            if index + 1 < len(self._heights) and self._gap(index + 1) != self._gaps[index + 1]:
                self._measured[index + 1] = 0
                self.measure(index + 1)
                return True
        return self._heights[index] != before

    def forget(self, index: int) -> None:
        """Drops the lines of a block that is not visible; its height is an estimate until it is measured again."""
        block = self.blocks[index]
        block.forget()
        self._drawn.pop(block, None)
        self._measured[index] = 0
        self._heights[index] = block.estimated_height(self.width) + self._gaps[index]
        self._known = min(self._known, index + 1)

    def resize(self, width: int) -> None:
        """Changes the width. The old heights serve as estimates until the blocks are measured again."""
        self.width = width

    def measure(self, index: int) -> int:
        """Returns the exact height of a block; draws it if necessary."""
        if self._measured[index] == self.width:
            return self._heights[index]
        block = self.blocks[index]
        lines = self.lines(block)
        gap = self._gap(index) if lines else 0
        height = len(lines) + gap
        self._measured[index] = self.width
        self._gaps[index] = gap
        if height != self._heights[index]:
            self._heights[index] = height
            self._known = min(self._known, index + 1)
        return height

    def _gap(self, index: int) -> int:
        """Returns the gap above a block; blocks of height 0 are skipped."""
        above = index - 1
        while above >= 0 and self._heights[above] == 0:
            above -= 1
        return gap_before(self.blocks[index], self.blocks[above] if above >= 0 else None)

    def lines(self, block: Block) -> Sequence[Line]:
        """Returns the lines of a block and keeps them cached."""
        drawn = self._drawn
        drawn[block] = None
        drawn.move_to_end(block)
        if len(drawn) > _MOST_DRAWN:
            oldest, _ = drawn.popitem(last=False)
            oldest.forget()
        return block.lines(self.width, _MOST_NEW)

    # -- positions -------------------------------------------------------------------------------------------------

    def height(self, index: int) -> int:
        return self._heights[index]

    def start(self, index: int) -> int:
        if index >= self._known:
            at = self._starts[self._known - 1] + self._heights[self._known - 1] if self._known else 0
            for number in range(self._known, index + 1):
                self._starts[number] = at
                at += self._heights[number]
            self._known = index + 1
        return self._starts[index]

    def below(self, index: int) -> int:
        """Returns the number of rows after a block."""
        return self.total - self.start(index) - self._heights[index]

    @property
    def total(self) -> int:
        """The number of all rows, partly estimated."""
        last = len(self._heights) - 1
        return self.start(last) + self._heights[last] if last >= 0 else 0

    def place(self, row: int) -> Place:
        if not self._heights:
            return Place(0, 0)
        self.start(len(self._heights) - 1)
        index = min(max(bisect_right(self._starts, max(row, 0)) - 1, 0), len(self._heights) - 1)
        return Place(index, min(max(row - self._starts[index], 0), max(self._heights[index] - 1, 0)))

    def row(self, place: Place) -> int:
        if place.block >= len(self._heights):
            return self.total
        return self.start(place.block) + min(place.row, max(self._heights[place.block] - 1, 0))

    def line(self, place: Place) -> Line:
        """Returns the line at a place; an empty one in a gap."""
        number = self.line_number(place)
        if number < 0:
            return EMPTY
        lines = self.seen(place.block)
        return lines[number] if number < len(lines) else EMPTY

    def seen(self, index: int) -> Sequence[Line]:
        """Returns the lines of a block as they are on the screen; the next frame adds the changes since then."""
        return self.blocks[index].drawn_lines(self.width)

    def gap(self, index: int) -> int:
        return self._gaps[index]

    def line_number(self, place: Place) -> int:
        """Returns the number of a place's line in its block; negative in a gap."""
        return place.row - self._gaps[place.block]

    def place_of_line(self, index: int, number: int) -> Place:
        return Place(index, number + self._gaps[index])

    # -- moving ----------------------------------------------------------------------------------------------------

    def moved(self, place: Place, rows: int) -> Place:
        """Returns the place `rows` rows below, or above if negative. Measures the blocks on the way."""
        index, row = place.block, place.row + rows
        while row < 0 and index > 0:
            index -= 1
            row += self.measure(index)
        if row < 0:
            row = 0
        while index < len(self._heights) - 1 and row >= self.measure(index):
            row -= self._heights[index]
            index += 1
        return Place(index, row)

    def last_page(self, height: int) -> Place:
        """Returns the place of the top row when the last row is at the bottom."""
        index, left = len(self._heights), height
        while index > 0:
            index -= 1
            left -= self.measure(index)
            if left <= 0:
                return Place(index, -left)
        return Place(0, 0)

    def measure_page(self, place: Place, height: int) -> bool:
        """Measures the blocks of the page that begins at a place; returns whether they fill it."""
        index, left = place.block, height + place.row
        while index < len(self._heights):
            left -= self.measure(index)
            if left <= 0:
                return True
            index += 1
        return False
