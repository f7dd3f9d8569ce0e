"""The rows above the input that say what runs now. Their words are in `activity`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ..activity import Activity, activity_lines
from ..transcript.line import Line, Span
from .theme_styles import ThemeStyles

__all__ = ["ActivityPanel"]

_UNSEEN = 80
"""Columns to lay out for while it is not on the screen; it hears of its size when it is."""


class ActivityPanel(Widget, can_focus=False):
    """Draws what goes on; not there while nothing does."""

    DEFAULT_CSS = "ActivityPanel { height: auto; width: 1fr; display: none; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, looks: ThemeStyles) -> None:
        super().__init__()
        self._drawing: ThemeStyles = looks
        self._shown: Sequence[Activity] = ()
        self._progress = ""
        self._frame: int | None = None
        self._lines: list[Line] = []

    def show(self, running: Sequence[Activity], progress: str, frame: int | None, looks: ThemeStyles) -> None:
        """Draws this from now on. `progress` is what is waited for besides; `frame` turns the spinner."""
        is_same = running == self._shown and progress == self._progress and frame == self._frame
        if is_same and looks is self._drawing:
            return
        self._shown, self._progress, self._frame, self._drawing = running, progress, frame, looks
        before = len(self._lines)
        self._lay_out()
        if len(self._lines) != before:
            self.styles.display = "block" if self._lines else "none"
            self.refresh(layout=True)
        else:
            self.refresh()

    def _lay_out(self) -> None:
        width = self.size.width or _UNSEEN
        shown = list(self._shown)
        self._lines = activity_lines(shown, width, self._frame)
        if self._progress:
            sign = activity_lines([Activity("", "", 0)], width, self._frame)[0].spans[0]
            self._lines.append(Line((sign, Span(self._progress, "dim"))))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def on_resize(self) -> None:
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return self._drawing.row((), width)
        return self._drawing.strip(self._lines[y], width)
