"""The base of all dialogs: a box over the conversation and above the input, no larger than necessary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut, wrap
from swink_agent.rendering.escaping import safe_text

from .composer import Composer

if TYPE_CHECKING:
    from textual.app import App

T = TypeVar("T")

LOW = 8
"""A box with fewer rows than this has no empty rows."""
_LEAST_ROWS = 3
"""Rows that a dialog has in every window: its frame and one row inside."""

DIALOG_CSS = """
    align: center middle;
    background: $background 60%;
    & > .dialog {
        width: 72;
        max-width: 90%;
        height: auto;
        max-height: 100%;
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


class Dialog(ModalScreen[T]):
    """A screen with one `.dialog`, which never covers the input, and gives one answer."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        # Keys pressed just before it closed are still delivered to it, and would close the screen below.
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()

    def on_screen_resume(self) -> None:
        self._make_room()

    def on_resize(self, event: events.Resize) -> None:
        # Textual lays out the screen below after this one.
        self.call_after_refresh(self._make_room)

    def _make_room(self) -> None:
        app = cast("App[Any]", self.app)  # pyright: ignore[reportUnknownMemberType]
        window = app.size.height
        inputs = [found for found in app.screen_stack[0].query(Composer) if found.display]
        below = window - inputs[0].region.y if inputs else 1
        room = max(window - below, _LEAST_ROWS)
        for box in self.query(".dialog"):
            box.styles.margin = (0, 0, window - room, 0)
            box.styles.max_height = room
        self.fit(room)

    def fit(self, room: int) -> None:
        """Adapts the content to a box of `room` rows, frame included."""


class DialogText(Widget, can_focus=False):
    """A few lines of text, wrapped at words. Control characters are escaped here."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "DialogText { height: auto; width: 1fr; }"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._lines: Sequence[str] = safe_text(text).replace("\t", "    ").split("\n")

    def fit(self, rows: int) -> None:
        """Draws at most `rows` rows; the last one ends with "…" if there are more."""
        self.styles.max_height = max(rows, 1)

    def _rows(self, width: int) -> list[str]:
        return [row for line in self._lines for row in wrap(line, width, at_words=True)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        rows = self._rows(width)
        text = rows[y] if y < len(rows) else ""
        if y == self.content_size.height - 1 and y < len(rows) - 1:
            text = f"{cut(text, max(width - 2, 0))} …"
        return Strip([Segment(text + " " * max(width - cell_width(text), 0), self.rich_style)], width)


class QuestionDialog(Dialog[T]):
    """A dialog with a question and, below it, the widget for the answer, which takes `rows` rows."""

    def __init__(self, title: str, answer: Widget, rows: int) -> None:
        super().__init__()
        self._words = DialogText(title)
        self._answer = answer
        self._answer_rows = rows

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = "Enter takes it · Esc declines"
            yield self._words
            yield self._answer

    def on_mount(self) -> None:
        self._answer.focus()

    def fit(self, room: int) -> None:
        gap = int(room >= LOW)
        self._answer.styles.margin = (gap, 0, 0, 0)
        self._words.fit(room - 2 - gap - self._answer_rows)
