"""The list of completions above the input.

Owns the rows and the chosen one. `composing.completer` finds the completions; the composer handles the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut, cut_middle, cut_start
from swink_agent.rendering.escaping import safe_line

from ..composing.completer import Completion

_MOST_ROWS = 8


class CompletionList(Widget, can_focus=False):
    """Completions, one per row; hidden while empty."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"completion--chosen", "completion--detail", "completion--more"}
    DEFAULT_CSS = """
    CompletionList {
        display: none;
        height: auto;
        width: 1fr;
        padding: 0 1;
        margin: 0 1;
        background: $surface;
        & > .completion--chosen { background: $accent 25%; color: $text-accent; text-style: bold; }
        & > .completion--detail { color: $text-muted; }
        & > .completion--more { color: $text-muted; }
    }
    """

    class Picked(Message):
        def __init__(self, completion: Completion) -> None:
            super().__init__()
            self.completion = completion

    def __init__(self, room: Callable[[], int] = lambda: _MOST_ROWS) -> None:
        """`room` returns how many rows the list may take now."""
        super().__init__()
        self._room = room
        self.items: Sequence[Completion] = ()
        self._note = ""
        self._chosen = 0
        self._top = 0

    @property
    def is_open(self) -> bool:
        return bool(self.items)

    @property
    def chosen(self) -> Completion | None:
        """The completion that Enter takes."""
        return self.items[self._chosen] if self.items else None

    def show(self, items: Sequence[Completion], note: str = "") -> None:
        """Replaces the completions and the note below them; an empty list without a note hides the widget.

        Chooses the first one, or keeps the user's choice if more completions of the same search have arrived.
        """
        if items == self.items and note == self._note:
            return
        chosen = self.chosen if self._chosen else None
        before = self._height()
        self.items, self._note, self._chosen, self._top = items, note, 0, 0
        if chosen is not None and note and chosen in items:
            self.step(items.index(chosen))
        self.styles.display = "block" if items or note else "none"
        self.refresh(layout=self._height() != before)

    def _height(self) -> int:
        return self._seen() + self._has_note()

    def _seen(self) -> int:
        return min(len(self.items), max(min(self._room() - bool(self._note), _MOST_ROWS), 1))

    def _has_note(self) -> bool:
        return bool(self._note) and (not self.items or self._room() > 1)

    def fit(self) -> None:
        """Adapts to a new number of available rows."""
        self.step(0)
        self.refresh(layout=True)

    def close(self) -> None:
        self.show(())

    def step(self, by: int) -> None:
        """Chooses another row; wraps around at the ends."""
        self._chosen = (self._chosen + by) % max(len(self.items), 1)
        self._top = min(max(self._top, self._chosen - self._seen() + 1), self._chosen)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._height()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        number = self._top + y
        if self._has_note() and y == self._seen():
            style = self.get_component_rich_style("completion--more")
            return Strip([Segment(cut(self._note, width), style)]).adjust_cell_length(width, self.rich_style)
        if number >= len(self.items):
            return Strip.blank(width, self.rich_style)
        item = self.items[number]
        is_chosen = number == self._chosen
        base = self.get_component_rich_style("completion--chosen") if is_chosen else self.rich_style
        dim = base if is_chosen else self.get_component_rich_style("completion--detail")
        more = f" {number + 1}/{len(self.items)}" if is_chosen and len(self.items) > self._seen() else ""
        room = width - cell_width(more)
        column = min(max([cell_width(safe_line(each.label)) for each in self.items[:50]]) + 2, max(room // 2, 12))
        shown = safe_line(item.label)
        detail = safe_line(item.detail)
        label = cut_start(shown, room) if "/" in shown[1:] else cut_middle(shown, room)
        if detail:
            label = cut(label, max(column - 1, 4))
            label += " " * (column - cell_width(label))
        detail = cut(detail, max(room - cell_width(label), 0))
        gap = " " * (width - cell_width(label) - cell_width(detail) - cell_width(more))
        return Strip([Segment(label, base), Segment(detail, dim), Segment(gap, base), Segment(more, dim)], width)

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        number = self._top + event.get_content_offset_capture(self).y
        if 0 <= number < min(len(self.items), self._top + self._seen()):
            self.post_message(self.Picked(self.items[number]))
