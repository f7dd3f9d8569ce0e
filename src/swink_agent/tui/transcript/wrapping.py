"""Wraps spans into rows at words; a finished row never changes when more text arrives.

Owns the line breaking: greedy, between words, next to wide characters, and inside a word only if the word is wider than
a row. A row of plain ASCII, which is the usual case, costs one search for a blank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from swink_agent.rendering.cells import clusters

from .line import Span, plain

_NARROWEST = 4


class Flow:
    """Wraps text into rows of one width; the last row stays open for more text."""

    __slots__ = ("_has_rows", "_open", "_width")

    def __init__(self, width: int) -> None:
        self._width = max(width, _NARROWEST)
        self._open: tuple[Span, ...] = ()
        self._has_rows = False

    def add(self, spans: Sequence[Span]) -> list[tuple[Span, ...]]:
        """Adds text and returns the rows that are now full and can no longer change."""
        if not spans:
            return []
        every = [*self._open, *spans]
        rows = _slices(every, row_ranges(plain(every), self._width))
        self._open = rows.pop()
        self._has_rows = self._has_rows or bool(rows)
        return rows

    def end(self) -> list[tuple[Span, ...]]:
        """Returns the last row, unless it is empty and not the only one; the next text begins a new row."""
        last, self._open = _without_trailing_blanks(self._open), ()
        has_rows, self._has_rows = self._has_rows, False
        return [] if has_rows and not last else [last]


def row_ranges(text: str, width: int) -> list[tuple[int, int]]:
    """Returns the start and end of each row; the blanks at a line break belong to no row."""
    rows: list[tuple[int, int]] = []
    at, end = 0, len(text)
    while True:
        window = text[at : at + width + 1]
        if window.isascii():
            fits = len(window) if len(window) <= width else width
        else:
            window = text[at : at + 4 * width + 64]
            fits = _fitting(window, width)
        if at + fits >= end:
            rows.append((at, end))
            return rows
        broken = _break(window, fits)
        stop = at + broken
        rows.append((at, stop))
        at = stop
        while at < end and text[at] == " ":
            at += 1
        if at == end:  # the next text begins a new row
            rows.append((end, end))
            return rows


def _break(window: str, fits: int) -> int:
    """Returns how many characters of the window to put in the row, at most `fits`."""
    if window[fits] == " ":
        return fits
    blank = window.rfind(" ", 0, fits)
    if not window.isascii():
        # Between wide characters (Chinese, Japanese) a row may end without a blank.
        for place in range(fits, max(blank, 0), -1):
            if window[place - 1] >= "\u2e80" or window[place : place + 1] >= "\u2e80":
                return place
    indent = len(window) - len(window.lstrip(" "))
    return blank if blank > indent else fits


def _fitting(window: str, width: int) -> int:
    """Returns how many characters of the window fit into `width` cells; at least one."""
    taken, used = 0, 0
    for piece, size in clusters(window):
        used += size
        if used > width and taken:
            break
        taken += len(piece)
    return taken


def slice_spans(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    return _slices(spans, [(start, end)])[0]


def _slices(spans: Sequence[Span], ranges: Sequence[tuple[int, int]]) -> list[tuple[Span, ...]]:
    if len(spans) == 1:
        text, role, link = spans[0]
        return [(Span(text[start:end], role, link),) if end > start else () for start, end in ranges]
    offsets: list[int] = []
    at = 0
    for span in spans:
        offsets.append(at)
        at += len(span.text)
    rows: list[tuple[Span, ...]] = []
    for start, end in ranges:
        row: list[Span] = []
        number = max(bisect_right(offsets, start) - 1, 0)
        while number < len(spans) and offsets[number] < end:
            text, role, link = spans[number]
            base = offsets[number]
            piece = text[max(start - base, 0) : end - base]
            if piece:
                row.append(Span(piece, role, link))
            number += 1
        rows.append(tuple(row))
    return rows


def _without_trailing_blanks(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    while spans and spans[-1].text.endswith(" "):
        last = spans[-1]
        text = last.text.rstrip(" ")
        spans = (*spans[:-1], last._replace(text=text)) if text else spans[:-1]
    return spans


def chopped(spans: Sequence[Span], width: int) -> list[tuple[Span, ...]]:
    """Splits spans into rows of `width` cells anywhere, not only at words: for code, where every blank matters."""
    width = max(width, _NARROWEST)
    text = plain(spans)
    if len(text) <= width and text.isascii():
        return [tuple(spans)]
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(text) or not ranges:
        window = text[at : at + width]
        fits = len(window) if window.isascii() else _fitting(text[at : at + 4 * width + 64], width)
        ranges.append((at, at + fits))
        at += max(fits, 1)
    return _slices(spans, ranges)
