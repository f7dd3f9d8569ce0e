"""The row at the bottom. Its words are in `status`."""

from __future__ import annotations

from typing import ClassVar

from textual.strip import Strip
from textual.widget import Widget

from ..status import Status, status_line
from .theme_styles import ThemeStyles

__all__ = ["StatusBar"]


class StatusBar(Widget, can_focus=False):
    """Draws a `Status`."""

    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; dock: bottom; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, status: Status, looks: ThemeStyles) -> None:
        super().__init__()
        self._status = status
        self._drawing: ThemeStyles = looks

    def show(self, status: Status, looks: ThemeStyles) -> None:
        """Draws this from now on, if it is anything new."""
        if status != self._status or looks is not self._drawing:
            self._status, self._drawing = status, looks
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self._drawing.strip(status_line(self._status, width), width, "status")
