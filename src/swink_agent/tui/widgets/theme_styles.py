"""Lines as Textual draws them: our themes as rich styles, as strips, and as a theme of Textual's own.

Owns that translation and its caches. What a role looks like is in `themes`.
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

__all__ = ["ThemeStyles", "textual_theme"]


class ThemeStyles:
    """A theme, ready to draw with."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self._styles: dict[tuple[str, str], RichStyle] = {}

    def style(self, role: str, link: str = "") -> RichStyle:
        """The rich style of a role, over the background of the screen."""
        known = self._styles.get((role, link))
        if known is None:
            known = self._styles[role, link] = rich_style(self.theme.style_of(role), self.theme, link)
        return known

    def strip(self, line: Line, width: int, fill: str = "text") -> Strip:
        """A line as a row of the screen, filled up with the role `fill`."""
        return self.row(line.spans, width, fill)

    def row(self, spans: Iterable[Span], width: int, fill: str = "text") -> Strip:
        spans = tuple(spans)
        segments = [Segment(span.text, self.style(span.role, span.link)) for span in spans if span.text]
        missing = width - width_of(spans)
        if missing > 0:
            segments.append(Segment(" " * missing, self.style(fill)))
        return Strip(segments, max(width, width - missing))


def textual_theme(theme: Theme) -> TextualTheme:
    """What Textual's own parts (borders, inputs, lists) look like in a theme of ours."""

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
