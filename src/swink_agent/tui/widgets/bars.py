"""Widgets of a few rows around the input: status, running tools, the list of things to do, and queued messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut
from swink_agent.rendering.checklist import TodoItem
from swink_agent.rendering.escaping import safe_display

from ..status_rows import Activity, Status, activity_lines, status_line, todo_lines
from ..transcript.line import EMPTY, Line, Span
from .strips import ThemeStyles


class StatusBar(Widget, can_focus=False):
    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; dock: bottom; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, status: Status, looks: ThemeStyles) -> None:
        super().__init__()
        self._status = status
        self._drawing: ThemeStyles = looks

    def show(self, status: Status, looks: ThemeStyles) -> None:
        """Redraws if the status or the theme has changed."""
        if status != self._status or looks is not self._drawing:
            self._status, self._drawing = status, looks
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self._drawing.strip(status_line(self._status, width), width, "status")


_LOW = 20
"""In a window with fewer rows, the list of things to do has one row."""
_UNSEEN = 80
"""Columns to assume while a panel is hidden and has no size."""


class _Panel(Widget, can_focus=False):
    """Rows of the screen; hidden while there are none."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "_Panel { display: none; height: auto; width: 1fr; }"

    def __init__(self, looks: ThemeStyles) -> None:
        super().__init__()
        self._drawing: ThemeStyles = looks
        self._lines: list[Line] = []

    def _put(self, lines: list[Line]) -> None:
        is_taller = len(lines) != len(self._lines)
        self._lines = lines
        if is_taller:
            self.styles.display = "block" if lines else "none"
        self.refresh(layout=is_taller)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        return self._drawing.strip(self._lines[y] if y < len(self._lines) else EMPTY, self.size.width)


class ActivityPanel(_Panel):
    """Draws the running tools."""

    def __init__(self, looks: ThemeStyles) -> None:
        super().__init__(looks)
        self._shown: Sequence[Activity] = ()
        self._progress = ""
        self._frame: int | None = None

    def show(self, running: Sequence[Activity], progress: str, frame: int | None, looks: ThemeStyles) -> None:
        """Draws these tools. `progress` is a line about a local model; `frame` is the step of the spinner."""
        is_empty = not running and not progress and not self._lines
        is_same = running == self._shown and progress == self._progress and frame == self._frame
        if not is_empty and not (is_same and looks is self._drawing):
            self._shown, self._progress, self._frame, self._drawing = running, progress, frame, looks
            self._put(self._laid_out())

    def _laid_out(self) -> list[Line]:
        width = self.size.width or _UNSEEN
        lines = activity_lines(list(self._shown), width, self._frame)
        if self._progress:
            sign = activity_lines([Activity("", "", 0)], width, self._frame)[0].spans[0]
            lines.append(Line((sign, Span(self._progress, "dim"))))
        return lines

    def on_resize(self) -> None:
        self._lines = self._laid_out()


class TodoPanel(_Panel):
    """Draws the list of things to do, if any is left. A click, or a key, opens and folds it."""

    def __init__(self, looks: ThemeStyles) -> None:
        super().__init__(looks)
        self._items: tuple[TodoItem, ...] = ()
        self._hint = ""
        self._is_open = True

    def show(self, items: tuple[TodoItem, ...], hint: str, looks: ThemeStyles) -> None:
        """Redraws if the list, the hint or the theme has changed. `hint` names the key that folds the list."""
        if (items, hint) != (self._items, self._hint) or looks is not self._drawing:
            self._items, self._hint, self._drawing = items, hint, looks
            self.fit()

    def toggle(self) -> None:
        """Opens the list, or folds it to one row."""
        self._is_open = not self._is_open
        self.fit()

    def fit(self) -> None:
        """Lays out the list for the current size of the window."""
        if self.is_attached:  # else the program is ending
            is_open = self._is_open and self.screen.size.height >= _LOW
            self._put(todo_lines(self._items, self.screen.size.width or _UNSEEN, is_open=is_open, hint=self._hint))

    def on_click(self) -> None:
        self.toggle()


_MOST_ROWS = 3
_WORDS = {"steer": ("↳", "steering"), "follow_up": ("⧗", "next")}


class WaitingMessages(Widget, can_focus=False):
    """Rows for the queued messages; hidden while there are none."""

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

    def show(self, waiting: Sequence[tuple[str, str]]) -> None:
        """Shows these messages: pairs of "steer" or "follow_up" and the text, the next one first."""
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
        # Of many, only the last are shown, because those can be taken back.
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
