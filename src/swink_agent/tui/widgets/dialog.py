"""What the windows over the conversation have in common: a box in the middle, calm and no larger than it must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, wrap
from swink_agent.rendering.escaping import safe_text

__all__ = ["DIALOG_CSS", "DialogText"]

DIALOG_CSS = """
    align: center middle;
    background: $background 60%;
    & > .dialog {
        width: 72;
        max-width: 90%;
        height: auto;
        max-height: 80%;
        border: round $accent;
        border-title-color: $accent;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
        border-subtitle-style: none;
        background: $surface;
        padding: 0 1;
    }
"""
"""The look of a screen that holds one `.dialog`."""


class DialogText(Widget, can_focus=False):
    """A few lines of text, broken between words; made safe here."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "DialogText { height: auto; width: 1fr; }"

    def __init__(self, text: str, *, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._lines: Sequence[str] = safe_text(text).replace("\t", "    ").split("\n")

    def show(self, text: str) -> None:
        """Another text."""
        self._lines = safe_text(text).replace("\t", "    ").split("\n")
        self.refresh(layout=True)

    def _rows(self, width: int) -> list[str]:
        return [row for line in self._lines for row in wrap(line, width, at_words=True)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        rows = self._rows(width)
        text = rows[y] if y < len(rows) else ""
        return Strip([Segment(text + " " * max(width - cell_width(text), 0), self.rich_style)], width)
