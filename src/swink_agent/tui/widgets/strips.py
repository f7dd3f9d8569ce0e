"""Renders lines to Textual strips in the colours of a theme, and translates our themes to styles of rich and Textual.

Owns the cache of strips. Each line is rendered once per state of the scrollbar cell beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip
from textual.theme import Theme as TextualTheme

from swink_agent.rendering.cells import clusters

from ..themes import Theme
from ..transcript.line import Line, Span, width_of

Tint: TypeAlias = tuple[int, int, str]
"""The first cell, the cell after the last, and the role that is added to those cells of a line."""

_MOST_KEPT = 1500


class StripMaker:
    """Renders strips of one width in one theme."""

    def __init__(self, theme: Theme, width: int) -> None:
        self.theme = theme
        self.width = width
        self._looks = ThemeStyles(theme)
        self._kept: dict[tuple[Line, str], Strip] = {}

    def strip(self, line: Line, edge: str) -> Strip:
        """Returns the strip of a line; `edge` is the role of the scrollbar in its last cell, or ""."""
        key = (line, edge)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                for old in list(self._kept)[: _MOST_KEPT // 3]:
                    del self._kept[old]
            kept = self._kept[key] = self._made(line.spans, edge)
        return kept

    def tinted(self, line: Line, edge: str, tints: Sequence[Tint]) -> Strip:
        """Returns the strip of a line with roles added to some cells; not cached, because tints change often."""
        spans = line.spans
        for tint in tints:
            spans = _with_tint(spans, tint, self.width - 1)
        return self._made(spans, edge)

    def _made(self, spans: Sequence[Span], edge: str) -> Strip:
        style = self._looks.style
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


def _with_tint(spans: Sequence[Span], tint: Tint, width: int) -> tuple[Span, ...]:
    """Adds a tint's role to its cells; pads a line that ends before the tint does with blanks."""
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
    """Splits a text into three parts: before, in and after the cells from `start` to `end`."""
    if text.isascii():
        start, end = max(start, 0), max(end, 0)
        return [(text[:start], False), (text[start:end], True), (text[end:], False)]
    parts = ["", "", ""]
    at = 0
    for piece, _ in clusters(text):
        parts[0 if at < start else 1 if at < end else 2] += piece
        at += cell_len(piece)
    return [(parts[0], False), (parts[1], True), (parts[2], False)]


class ThemeStyles:
    """The rich styles of one theme."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self._styles: dict[tuple[str, str], RichStyle] = {}

    def style(self, role: str, link: str = "") -> RichStyle:
        """Returns the rich style of a role on the theme's background."""
        known = self._styles.get((role, link))
        if known is None:
            if len(self._styles) > _MOST_KEPT:  # every link needs its own style
                self._styles.clear()
            style = self.theme.style_of(role)
            known = self._styles[role, link] = RichStyle(
                color=style.foreground or self.theme.foreground,
                bgcolor=style.background or self.theme.background,
                bold=style.bold or None,
                dim=style.dim or None,
                italic=style.italic or None,
                underline=style.underline or None,
                strike=style.strike or None,
                reverse=style.reverse or None,
                link=link or None,
            )
        return known

    def strip(self, line: Line, width: int, fill: str = "text") -> Strip:
        """Returns a line as a row of the screen, padded to `width` in the role `fill`."""
        segments = [Segment(text, self.style(role, link)) for text, role, link in line.spans if text]
        missing = width - width_of(line.spans)
        if missing > 0:
            segments.append(Segment(" " * missing, self.style(fill)))
        return Strip(segments, max(width, width - missing))


def textual_theme(theme: Theme) -> TextualTheme:
    """Returns the Textual theme that gives Textual's own parts (borders, inputs, lists) the colours of our theme."""

    def colour(role: str) -> str:
        return theme.style_of(role).foreground or "ansi_default"

    is_plain = theme.background is None
    background = theme.background or "ansi_default"
    surface = theme.style_of("popup").background or background
    plain: dict[str, str] = dict.fromkeys(("border-blurred", "ansi-background", "ansi-foreground"), "ansi_default")
    return TextualTheme(
        name=f"swink-{theme.name}",
        primary=colour("accent"),
        secondary=colour("reply"),
        accent=colour("accent"),
        warning=colour("warning"),
        error=colour("error"),
        success=colour("done"),
        foreground=theme.foreground or "ansi_default",
        background=background,
        surface=surface,
        panel=surface,
        boost=surface,
        dark=theme.is_dark,
        ansi=is_plain,
        variables=plain if is_plain else {},
    )
