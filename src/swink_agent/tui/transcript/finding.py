"""Searches a whole transcript, including folded blocks and those that were never drawn.

Owns what a hit is. The search reads the text of blocks; the cells of a hit are computed when the user visits it, so a
search draws only the visible blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width

from .block import Block
from .line import Line, plain

_BETWEEN = r"[\s*_`~>|#-]+"
"""What may separate two words: blanks, a line end, and Markdown marks that are not drawn."""
_MOST_HITS = 10_000


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
