"""The messages that wait for their turn, a row each, above where the next one is written.

Owns the rows. What waits, and what becomes of it, is the conversation's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut
from swink_agent.rendering.escaping import safe_display

__all__ = ["WaitingMessages"]

_MOST_ROWS = 3
_WORDS = {"steer": ("↳", "steering"), "follow_up": ("⧗", "next")}


class WaitingMessages(Widget, can_focus=False):
    """Rows for what waits; not there while nothing does."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"chips--sign", "chips--hint"}
    DEFAULT_CSS = """
    WaitingMessages {
        display: none;
        height: auto;
        width: 1fr;
        padding: 0 2;
        color: $text-muted;
        & > .chips--sign { color: $text-accent; }
        & > .chips--hint { color: $text-disabled; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def show(self, waiting: Sequence[tuple[str, str]]) -> None:
        """Other messages, as pairs of "steer" or "follow_up" and the text, the next one first."""
        now = tuple([(kind, text) for kind, text in waiting])
        if now == self._waiting:
            return
        is_taller = min(len(now), _MOST_ROWS) != min(len(self._waiting), _MOST_ROWS)
        self._waiting = now
        self.styles.display = "block" if now else "none"
        self.refresh(layout=is_taller)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(len(self._waiting), _MOST_ROWS)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        # The last ones are those that can be taken back: of many, the first give way.
        first = max(len(self._waiting) - _MOST_ROWS, 0)
        if first + y >= len(self._waiting):
            return Strip.blank(width, self.rich_style)
        kind, text = self._waiting[first + y]
        sign, word = _WORDS.get(kind, ("·", kind))
        hint = ""
        if first + y == len(self._waiting) - 1:
            hint = "↑ takes it back"
        elif y == 0 and first:
            hint = f"{first} more before it"
        lead = f"{sign} {word}  "
        room = width - cell_width(lead) - (cell_width(hint) + 2 if hint else 0)
        shown = cut(safe_display(text, 400), max(room, 0))
        gap = " " * max(width - cell_width(lead) - cell_width(shown) - cell_width(hint), 0)
        hint = hint if room > 8 else ""
        segments = [
            Segment(lead, self.get_component_rich_style("chips--sign")),
            Segment(shown, self.rich_style),
            Segment(gap, self.rich_style),
            Segment(hint, self.get_component_rich_style("chips--hint")),
        ]
        return Strip(segments).adjust_cell_length(width, self.rich_style)
