"""The state of a search in a transcript: the hits, the current one, and their cells in the drawn lines.

`transcript.finding` finds the hits; the view scrolls to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..transcript.block import Block
from ..transcript.finding import Hit, Mark, find_hits, marks_in, pattern_of
from ..transcript.rows import Rows
from .strips import Tint


class Search:
    """One search at a time; off until `begin`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pattern: re.Pattern[str] | None = None
        self._hits: list[Hit] = []
        self._shown = -1
        self._marks: dict[Block, tuple[int, int, list[Mark]]] = {}

    @property
    def is_on(self) -> bool:
        return self._pattern is not None

    @property
    def count(self) -> int:
        return len(self._hits)

    @property
    def current(self) -> int:
        """The number of the hit that is shown, from 1; 0 without hits."""
        return self._shown + 1 if self._hits else 0

    def begin(self, query: str, blocks: Sequence[Block]) -> None:
        """Searches all blocks, including folded ones and those that have not been drawn."""
        self.forget_marks()
        self._pattern = pattern_of(query)
        self._hits = [] if self._pattern is None else find_hits(blocks, self._pattern)
        self._shown = len(self._hits)

    def step(self, by: int) -> Hit | None:
        """Goes to the next (1) or previous (-1) hit and returns it; wraps around at the ends."""
        if not self._hits:
            return None
        self._shown = (self._shown + by) % len(self._hits)
        return self._hits[self._shown]

    def end(self) -> None:
        self._pattern, self._hits, self._shown = None, [], -1
        self.forget_marks()

    def forget_marks(self) -> None:
        """Drops the cached cells of the hits; call it when the width of the lines changes."""
        self._marks.clear()

    def line_of(self, hit: Hit) -> int:
        """Returns the line of a hit in its block, or 0 if the text of the hit is not drawn."""
        marks = self._marks_of(hit.block)
        number = self._number(hit, marks)
        return next((mark.line for mark in marks if mark.number == number), 0)

    def tints(self, block: Block, line: int) -> list[Tint]:
        """Returns the tints for the cells of a line that are part of hits."""
        marks = self._marks_of(block)
        current = self._hits[self._shown] if 0 <= self._shown < len(self._hits) else None
        shown = self._number(current, marks) if current is not None and current.block is block else None
        return [
            (mark.start, mark.end, "hit.current" if mark.number == shown else "hit")
            for mark in marks
            if mark.line == line
        ]

    @staticmethod
    def _number(hit: Hit, marks: Sequence[Mark]) -> int:
        """Maps a hit to the number of a mark. A text can have more hits than its drawn lines: the last mark then
        represents the remaining hits."""
        return min(hit.number, max([mark.number for mark in marks], default=0))

    def _marks_of(self, block: Block) -> list[Mark]:
        kept = self._marks.get(block)
        if kept is None or kept[:2] != (block.version, self._rows.width):
            marks = [] if self._pattern is None else marks_in(self._rows.lines(block), self._pattern)
            kept = self._marks[block] = (block.version, self._rows.width, marks)
        return kept[2]
