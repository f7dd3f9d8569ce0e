"""Looking for words in a transcript: in all of it, also where it is folded or was never drawn.

Owns what a hit is. Blocks are searched by their text; where in its lines a hit stands is found when it is visited, so
a search draws nothing but what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width

from .block import Block
from .line import Line, plain

__all__ = ["Hit", "Mark", "find_hits", "marks_in", "pattern_of"]

_BETWEEN = r"[\s*_`~>|#-]+"
"""What may stand between two words: blanks, a line end, and marks that are not drawn."""
_MOST_HITS = 10_000


class Hit(NamedTuple):
    """A place where the words stand: the block, and the how manieth it is there."""

    block: Block
    number: int


class Mark(NamedTuple):
    """The cells of a line that are part of a hit."""

    line: int
    start: int
    end: int
    number: int


def pattern_of(query: str) -> re.Pattern[str] | None:
    """What matches the words as they are written or drawn; nothing for no words."""
    words = [re.escape(word) for word in query.split()]
    return re.compile(_BETWEEN.join(words), re.IGNORECASE) if words else None


def find_hits(blocks: Sequence[Block], pattern: re.Pattern[str]) -> list[Hit]:
    """All hits, from the oldest block to the newest."""
    hits: list[Hit] = []
    for block in blocks:
        for number, _ in enumerate(pattern.finditer(block.text)):
            hits.append(Hit(block, number))
            if len(hits) >= _MOST_HITS:
                return hits
    return hits


def marks_in(lines: Sequence[Line], pattern: re.Pattern[str]) -> list[Mark]:
    """Where in drawn lines the words stand; a hit that goes over the end of a row has a mark in each."""
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
