"""The text selected with the mouse, in a transcript that may grow at the same time.

Owns the two ends of the selection and finds the selected text: without gutters, and with wrapped rows joined into one
line. The view draws it.
"""

from __future__ import annotations

import re

from swink_agent.rendering.cells import cell_width, clusters

from ..transcript.line import body_of, plain
from ..transcript.rows import Place, Rows

_WORD = re.compile(r"[\w./~:@%+-]+|\S")


class Selection:
    """The selection, from the cell where the mouse button was pressed to where the mouse is, or was released."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._anchor: tuple[Place, int] | None = None
        self._head: tuple[Place, int] | None = None
        self.is_under_way = False
        self.is_dragging_thumb = False

    @property
    def is_there(self) -> bool:
        return self._head is not None

    def begin(self, place: Place, column: int) -> None:
        self._anchor, self._head, self.is_under_way = (place, column), None, True

    def reach(self, place: Place, column: int) -> None:
        if self._head is not None or self._anchor != (place, column):
            self._head = (place, column)

    def end(self) -> bool:
        """Ends the drag and returns whether anything is selected."""
        self.is_under_way = False
        if self._head is None:
            self._anchor = None
        return self._head is not None

    def take(self, place: Place, column: int, *, is_line: bool) -> None:
        """Selects the word at a cell, or the whole line."""
        line = self._rows.line(place)
        text = plain(line.spans)
        start, end = line.gutter, max(cell_width(text.rstrip()) - 1, line.gutter)
        if not is_line:
            at = len(_cells_of(text, 0, column))
            words = [word for word in _WORD.finditer(text) if word.start() <= at < word.end()]
            if not words:
                self.clear()
                return
            start = cell_width(text[: words[0].start()])
            end = cell_width(text[: words[0].end()]) - 1
        self._anchor, self._head, self.is_under_way = (place, start), (place, end), False

    def clear(self) -> None:
        self._anchor = self._head = None
        self.is_under_way = False

    def _ends(self) -> tuple[tuple[Place, int], tuple[Place, int]] | None:
        if self._anchor is None or self._head is None:
            return None
        first, last = sorted((self._anchor, self._head))
        return first, last

    def cells(self, place: Place, width: int) -> tuple[int, int] | None:
        """Returns the selected cells of a row: the first and the one after the last."""
        ends = self._ends()
        if ends is None:
            return None
        (first, start), (last, end) = ends
        if not first <= place <= last:
            return None
        from_cell = start if place == first else 0
        to_cell = min(end + 1, width) if place == last else width
        return (from_cell, to_cell) if to_cell > from_cell else None

    def text(self) -> str:
        ends = self._ends()
        if ends is None:
            return ""
        (first, start), (last, end) = ends
        rows = self._rows
        parts: list[str] = []
        place = first
        while place <= last and place.block < rows.count:
            line = rows.line(place)
            body = body_of(line)
            if place == last:
                body = _cells_of(body, 0, end + 1 - line.gutter)
            if place == first:
                body = _cells_of(body, max(start - line.gutter, 0), None)
            if parts:
                parts.append("\n" if line.glue is None else line.glue)
            parts.append(body)
            following = rows.moved(place, 1)
            if following == place or following.row >= rows.measure(following.block):
                break
            place = following
        return "".join(parts).strip("\n")


def _cells_of(text: str, start: int, end: int | None) -> str:
    """Returns the characters from cell `start` up to, not including, cell `end`."""
    if text.isascii():
        return text[start : None if end is None else max(end, 0)]
    kept: list[str] = []
    at = 0
    for piece, size in clusters(text):
        if at >= start and (end is None or at < end):
            kept.append(piece)
        at += size
    return "".join(kept)
