"""A dialog for a secret that is not shown while the user types it.

Owns the typed text until the dialog closes. The text is never drawn and never copied to another widget or a message;
the screen shows only that something was typed.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from .dialog import DIALOG_CSS, QuestionDialog

_LONGEST = 20_000


class _Hidden(Widget, can_focus=True):
    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"hidden--cursor", "hidden--hint"}
    DEFAULT_CSS = """
    _Hidden {
        height: 1;
        width: 1fr;
        margin: 1 0 0 0;
        & > .hidden--cursor { text-style: reverse; }
        & > .hidden--hint { color: $text-muted; }
    }
    """
    is_filled = False

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    def render_line(self, y: int) -> Strip:
        cursor = Segment(" ", self.rich_style + self.get_component_rich_style("hidden--cursor"))
        hint = " hidden while you type or paste it" if not self.is_filled else " "
        hint_segment = Segment(hint, self.get_component_rich_style("hidden--hint"))
        dots = Segment("••••••••" if self.is_filled else "", self.rich_style)
        return Strip([dots, cursor, hint_segment]).adjust_cell_length(self.content_size.width, self.rich_style)


class SecretInput(QuestionDialog["str | None"]):
    """Returns the typed text without surrounding spaces, or `None` if the user declined or typed nothing."""

    DEFAULT_CSS = f"SecretInput {{ {DIALOG_CSS} }}"

    def __init__(self, title: str) -> None:
        self._hidden = _Hidden()
        self._typed: list[str] = []
        super().__init__(title, self._hidden, 1)

    def on_unmount(self) -> None:
        self._typed.clear()  # no matter how the dialog was closed

    async def on_key(self, event: events.Key) -> None:
        if event.key in ("ctrl+c", "ctrl+q"):
            self._typed.clear()
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self._end(None)
        elif event.key == "enter":
            self._end("".join(self._typed).strip() or None)
        elif event.key in ("backspace", "ctrl+h"):
            del self._typed[-1:]
        elif event.key in ("ctrl+u", "ctrl+w"):
            self._typed.clear()
        elif event.is_printable and event.character is not None and len(self._typed) < _LONGEST:
            self._typed.append(event.character)
        self._show()

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        room = _LONGEST - len(self._typed)
        self._typed.extend([part for part in event.text[:room] if part.isprintable()])
        self._show()

    def _show(self) -> None:
        if self._hidden.is_filled != bool(self._typed):
            self._hidden.is_filled = bool(self._typed)
            self._hidden.refresh()

    def _end(self, text: str | None) -> None:
        self._typed.clear()
        self.dismiss(text)
