"""Lines as strips: what a theme's roles are to the terminal, each line made once.

Owns the rich styles of a theme and the cache of strips; a strip is kept with and without the thumb of the scrollbar
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from swink_agent.rendering.cells import clusters

from ..themes import Style, Theme
from ..transcript.line import Line, Span

__all__ = ["StripMaker", "Tint", "rich_style"]

Tint: TypeAlias = tuple[int, int, str]
"""From which cell to which a role is laid over a line."""

_MOST_KEPT = 1500


def rich_style(style: Style, theme: Theme, link: str = "") -> RichStyle:
    """A theme's style over its ground."""
    return RichStyle(
        color=style.foreground or theme.foreground,
        bgcolor=style.background or theme.background,
        bold=style.bold or None,
        dim=style.dim or None,
        italic=style.italic or None,
        underline=style.underline or None,
        strike=style.strike or None,
        reverse=style.reverse or None,
        link=link or None,
    )


class StripMaker:
    """Makes strips of one width in one theme."""

    def __init__(self, theme: Theme, width: int) -> None:
        self.theme = theme
        self.width = width
        self._styles: dict[tuple[str, str], RichStyle] = {}
        self._kept: dict[tuple[Line, str], Strip] = {}

    def style(self, role: str, link: str = "") -> RichStyle:
        """The style of a role."""
        known = self._styles.get((role, link))
        if known is None:
            known = rich_style(self.theme.style_of(role), self.theme, link)
            if len(self._styles) > _MOST_KEPT:  # every link is a style of its own
                self._styles.clear()
            self._styles[role, link] = known
        return known

    def strip(self, line: Line, edge: str) -> Strip:
        """The strip of a line; `edge` is the role of the scrollbar in its last cell, or nothing."""
        key = (line, edge)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                for old in list(self._kept)[: _MOST_KEPT // 3]:
                    del self._kept[old]
            kept = self._kept[key] = self._made(line.spans, edge)
        return kept

    def tinted(self, line: Line, edge: str, tints: Sequence[Tint]) -> Strip:
        """The strip of a line with roles laid over some of its cells: not kept, for it changes with every move."""
        spans = line.spans
        for tint in tints:
            spans = _laid_over(spans, tint, self.width - 1)
        return self._made(spans, edge)

    def _made(self, spans: Sequence[Span], edge: str) -> Strip:
        style = self.style
        room = self.width - 1
        segments = [Segment(text, style(role, link)) for text, role, link in spans if text]
        used = sum([len(segment.text) if segment.text.isascii() else cell_len(segment.text) for segment in segments])
        if used > room:
            strip = Strip(segments, used).crop(0, room)
            segments, used = list(strip), strip.cell_length
        if used < room:
            segments.append(Segment(" " * (room - used), style("text")))
        mark = "\u2590" if edge == "scrollbar.thumb" else "\u2595" if edge else " "
        segments.append(Segment(mark, style(edge or "text")))
        return Strip(segments, self.width)


def _laid_over(spans: Sequence[Span], tint: Tint, width: int) -> tuple[Span, ...]:
    """Spans of which the cells of a tint have one more role; blanks are put behind a line that is too short."""
    start, end, role = tint
    out: list[Span] = []
    at = 0
    for span in spans:
        for part, is_tinted in _parts(span.text, start - at, end - at):
            if part:
                out.append(
                    span._replace(text=part, role=f"{span.role}+{role}") if is_tinted else span._replace(text=part)
                )
        at += cell_len(span.text)
    end = min(end, width)
    if at < end:
        blank = max(start - at, 0)
        if blank:
            out.append(Span(" " * blank, "text"))
        out.append(Span(" " * (end - at - blank), f"text+{role}"))
    return tuple(out)


def _parts(text: str, start: int, end: int) -> list[tuple[str, bool]]:
    """The text in three parts: before, in and behind the cells from `start` to `end`."""
    if text.isascii():
        start, end = max(start, 0), max(end, 0)
        return [(text[:start], False), (text[start:end], True), (text[end:], False)]
    parts = ["", "", ""]
    at = 0
    for piece, _ in clusters(text):
        parts[0 if at < start else 1 if at < end else 2] += piece
        at += cell_len(piece)
    return [(parts[0], False), (parts[1], True), (parts[2], False)]
