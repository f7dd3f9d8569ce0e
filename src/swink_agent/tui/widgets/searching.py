"""Searches a whole transcript: the hits, the current one, and their cells in the drawn lines.

Folded blocks are searched too, and those that were never drawn. The view scrolls to the hits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width

from ..transcript.block import Block
from ..transcript.line import Line, plain
from ..transcript.rows import Rows
from .strips import Tint

_BETWEEN = r"[\s*_`~>|#-]+"
"""Characters that may separate two words: blanks, a line end, and Markdown marks that are not drawn."""
_MOST_HITS = 10_000


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
        """Returns the number of a hit's mark. If the text has more hits than its drawn lines, the last mark represents
        the rest."""
        return min(hit.number, max([mark.number for mark in marks], default=0))

    def _marks_of(self, block: Block) -> list[Mark]:
        kept = self._marks.get(block)
        if kept is None or kept[:2] != (block.version, self._rows.width):
            marks = [] if self._pattern is None else marks_in(self._rows.lines(block), self._pattern)
            kept = self._marks[block] = (block.version, self._rows.width, marks)
        return kept[2]


class Hit(NamedTuple):
    """A match: the block, and the match's number in it, from 0."""

    block: Block
    number: int


class Mark(NamedTuple):
    """The cells of a line that are part of a hit; `number` is the hit's number in its block."""

    line: int
    start: int
    end: int
    number: int


def pattern_of(query: str) -> re.Pattern[str] | None:
    """Returns a pattern that matches the words as written or as drawn; `None` for an empty query."""
    words = [re.escape(word) for word in query.split()]
    return re.compile(_BETWEEN.join(words), re.IGNORECASE) if words else None


def find_hits(blocks: Sequence[Block], pattern: re.Pattern[str]) -> list[Hit]:
    """Returns the hits from the oldest block to the newest, at most `_MOST_HITS`."""
    hits: list[Hit] = []
    for block in blocks:
        for number, _ in enumerate(pattern.finditer(block.text)):
            hits.append(Hit(block, number))
            if len(hits) >= _MOST_HITS:
                return hits
    return hits


def marks_in(lines: Sequence[Line], pattern: re.Pattern[str]) -> list[Mark]:
    """Returns the marks of the matches in drawn lines; a match across two rows has a mark in each."""
    parts: list[str] = []
    starts: list[int] = []
    at = 0
    for line in lines:
        text = plain(line.spans)[line.gutter :].rstrip()
        joint = "\n" if line.glue is None else line.glue
        at += len(joint)
        starts.append(at)
        parts += [joint, text]
        at += len(text)
    joined = "".join(parts)
    marks: list[Mark] = []
    row = 0
    for number, found in enumerate(pattern.finditer(joined)):
        while row + 1 < len(starts) and starts[row + 1] <= found.start():
            row += 1
        place = row
        while place < len(starts) and starts[place] < found.end():
            line = lines[place]
            text = plain(line.spans)[line.gutter :].rstrip()
            start = max(found.start() - starts[place], 0)
            end = min(found.end() - starts[place], len(text))
            if end > start:
                before = line.gutter + cell_width(text[:start])
                marks.append(Mark(place, before, before + cell_width(text[start:end]), number))
            place += 1
    return marks
