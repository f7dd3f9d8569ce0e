"""What may be meant, in a few rows above what is being typed.

Owns the rows and which of them is chosen. What there is to choose from is in `composing.completer`; the keys are the
composer's.
"""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["CompletionList"]

_MOST_ROWS = 8


class CompletionList(Widget, can_focus=False):
    """Rows to choose from; not there while there are none."""

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
        """A row was clicked."""

        def __init__(self, completion: Completion) -> None:
            super().__init__()
            self.completion = completion

    def __init__(self) -> None:
        super().__init__()
        self._items: Sequence[Completion] = ()
        self._chosen = 0
        self._top = 0

    @property
    def is_open(self) -> bool:
        """Whether there is something to choose from."""
        return bool(self._items)

    @property
    def items(self) -> Sequence[Completion]:
        """What there is to choose from."""
        return self._items

    @property
    def chosen(self) -> Completion | None:
        """What would be taken."""
        return self._items[self._chosen] if self._items else None

    def show(self, items: Sequence[Completion]) -> None:
        """Other things to choose from, the first of them chosen; none closes the list."""
        if items == self._items:
            return
        is_taller = min(len(items), _MOST_ROWS) != min(len(self._items), _MOST_ROWS)
        self._items, self._chosen, self._top = items, 0, 0
        self.styles.display = "block" if items else "none"
        self.refresh(layout=is_taller)

    def close(self) -> None:
        """Nothing to choose from any more."""
        self.show(())

    def step(self, by: int) -> None:
        """Chooses another row, around the ends."""
        self._chosen = (self._chosen + by) % max(len(self._items), 1)
        self._top = min(max(self._top, self._chosen - _MOST_ROWS + 1), self._chosen)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(len(self._items), _MOST_ROWS)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        number = self._top + y
        if number >= len(self._items):
            return Strip.blank(width, self.rich_style)
        item = self._items[number]
        is_chosen = number == self._chosen
        base = self.get_component_rich_style("completion--chosen") if is_chosen else self.rich_style
        dim = base if is_chosen else self.get_component_rich_style("completion--detail")
        more = f" {number + 1}/{len(self._items)}" if is_chosen and len(self._items) > _MOST_ROWS else ""
        room = width - cell_width(more)
        column = min(max([cell_width(safe_line(each.label)) for each in self._items[:50]]) + 2, max(room // 2, 12))
        shown = safe_line(item.label)
        detail = safe_line(item.detail)
        label = cut_start(shown, room) if "/" in shown[1:] else cut_middle(shown, room)
        if detail:
            label = cut(label, max(column - 1, 4)).ljust(0)
            label += " " * (column - cell_width(label))
        detail = cut(detail, max(room - cell_width(label), 0))
        gap = " " * (width - cell_width(label) - cell_width(detail) - cell_width(more))
        return Strip([Segment(label, base), Segment(detail, dim), Segment(gap, base), Segment(more, dim)], width)

    async def _on_click(self, event: events.Click) -> None:
        event.stop()
        number = self._top + event.get_content_offset_capture(self).y
        if 0 <= number < len(self._items):
            self.post_message(self.Picked(self._items[number]))
