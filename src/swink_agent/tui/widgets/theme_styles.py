"""Translates our themes to rich styles, strips and Textual themes.

Owns that translation and its cache. `themes` defines what a role looks like.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip
from textual.theme import Theme as TextualTheme

from ..themes import Theme
from ..transcript.line import Line, Span, width_of
from .strips import rich_style


class ThemeStyles:
    """The rich styles of one theme."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self._styles: dict[tuple[str, str], RichStyle] = {}

    def style(self, role: str, link: str = "") -> RichStyle:
        """Returns the rich style of a role on the theme's background."""
        known = self._styles.get((role, link))
        if known is None:
            known = self._styles[role, link] = rich_style(self.theme.style_of(role), self.theme, link)
        return known

    def strip(self, line: Line, width: int, fill: str = "text") -> Strip:
        """Returns a line as a row of the screen, padded to `width` in the role `fill`."""
        return self.row(line.spans, width, fill)

    def row(self, spans: Iterable[Span], width: int, fill: str = "text") -> Strip:
        spans = tuple(spans)
        segments = [Segment(span.text, self.style(span.role, span.link)) for span in spans if span.text]
        missing = width - width_of(spans)
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
