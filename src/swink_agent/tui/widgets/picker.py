"""A dialog to pick one item of a list by typing, with a preview beside the list in wide windows.

Owns the list, its keys and the preview. One widget draws all items, so that items outside the window cost nothing.
`composing.matching` decides which items match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.rendering.cells import cell_width, cut
from swink_agent.rendering.escaping import safe_display

from ..composing.matching import PickItem, matching
from ..transcript.line import Line
from .dialog import DIALOG_CSS, LOW, Dialog
from .draft_view import DraftView

_WIDE = 100
"""The least number of columns for a preview."""
_PREVIEW_DELAY = 0.08
"""Seconds that an item must stay chosen before its preview is made, so that moving through the list makes none."""


PreviewFn = Callable[[str], Awaitable[Sequence[Line]]]
StyleFn = Callable[[str], Style]


class _List(Widget, can_focus=False):
    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"list--chosen", "list--detail"}
    DEFAULT_CSS = """
    _List {
        height: 1fr;
        width: 1fr;
        & > .list--chosen { background: $accent 25%; color: $text-accent; text-style: bold; }
        & > .list--detail { color: $text-muted; }
    }
    """

    class Picked(Message):
        """The chosen item was clicked."""

    def __init__(self, items: Sequence[PickItem]) -> None:
        super().__init__()
        self.items = items
        self.chosen = 0
        self._top = 0

    def show(self, items: Sequence[PickItem]) -> None:
        self.items, self.chosen, self._top = items, 0, 0
        self.refresh()

    def step(self, by: int) -> None:
        self.chosen = max(0, min(self.chosen + by, len(self.items) - 1))
        height = max(self.content_size.height, 1)
        self._top = min(max(self._top, self.chosen - height + 1), self.chosen)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        number = self._top + y
        if number >= len(self.items):
            text = "  no matches" if y == 0 and not self.items else ""
            style = self.get_component_rich_style("list--detail")
            return Strip([Segment(text, style)]).adjust_cell_length(width, self.rich_style)
        item = self.items[number]
        is_chosen = number == self.chosen
        base = self.get_component_rich_style("list--chosen") if is_chosen else self.rich_style
        dim = base if is_chosen else self.get_component_rich_style("list--detail")
        detail = cut(safe_display(item.detail, 200), width * 2 // 5)
        room = max(width - cell_width(detail) - 3, 4)
        label = cut(safe_display(item.label, 400), room)
        gap = " " * max(width - cell_width(label) - cell_width(detail) - 2, 0)
        segments = [Segment(" ", base), Segment(label, base), Segment(gap, base), Segment(f"{detail} ", dim)]
        return Strip(segments).adjust_cell_length(width, base)

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        number = self._top + event.get_content_offset_capture(self).y
        if number < len(self.items):
            self.step(number - self.chosen)
            self.post_message(self.Picked())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.step(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.step(3)


class _Preview(Widget, can_focus=False):
    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = """
    _Preview { height: 1fr; width: 1fr; border-left: solid $accent 30%; padding: 0 1; display: none; }
    """

    def __init__(self, style_of: StyleFn) -> None:
        super().__init__()
        self._style_of = style_of
        self._lines: Sequence[Line] = ()

    def show(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if y >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        segments = [Segment(span.text, base + self._style_of(span.role)) for span in self._lines[y].spans]
        return Strip(segments).adjust_cell_length(width, base)


class Picker(Dialog["str | None"]):
    """Returns the key of the picked item, or `None` if the user picked none.

    `preview(key)` returns the lines of an item's preview, of which as many as fit are shown; `style_of` returns the
    style of a span's role.
    """

    DEFAULT_CSS = (
        f"Picker {{ {DIALOG_CSS} }}"
        "Picker > .dialog { width: 90%; max-width: 140; height: 40; }"
        "Picker > .dialog > DraftView { height: 1; margin: 0 0 1 0; }"
        "Picker.-low > .dialog > DraftView { margin: 0; }"
        "Picker.-wide > .dialog _Preview { display: block; }"
    )

    def __init__(
        self,
        title: str,
        items: Sequence[PickItem],
        preview: PreviewFn | None = None,
        *,
        style_of: StyleFn = lambda role: Style.null(),
    ) -> None:
        super().__init__()
        self._heading = title
        self._items = items
        self._preview_of = preview
        self._view = DraftView(
            on_key=self._key, on_change=self._changed, placeholder="Type to search", sign="/", most_rows=1
        )
        self._list = _List(items)
        self._preview = _Preview(style_of)
        self._preview_task: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = Content(cut(safe_display(self._heading, 100), 60))
            box.border_subtitle = "↑↓ choose · Enter takes it · Esc back"
            yield self._view
            with Horizontal():
                yield self._list
                yield self._preview

    def on_mount(self) -> None:
        self._view.focus()
        self._update_preview()

    def on_unmount(self) -> None:
        if self._preview_task is not None:
            self._preview_task.cancel()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.set_class(self._preview_of is not None and event.size.width >= _WIDE, "-wide")

    def fit(self, room: int) -> None:
        self.set_class(room < LOW, "-low")

    def _key(self, event: events.Key) -> bool:
        page = max(self._list.content_size.height - 1, 1)
        steps = {"up": -1, "ctrl+p": -1, "down": 1, "ctrl+n": 1, "pageup": -page, "pagedown": page}
        if event.key in steps:
            self._list.step(steps[event.key])
            self._update_preview()
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self._take()
        else:
            return event.key in ("tab", "shift+tab", "ctrl+j", "shift+enter", "alt+enter")
        return True

    def _take(self) -> None:
        if self._list.items:
            self.dismiss(self._list.items[self._list.chosen].key)

    def _changed(self) -> None:
        self._list.show(matching(self._items, self._view.draft.text))
        self._update_preview()

    def on__list_picked(self) -> None:
        self._take()

    def _update_preview(self) -> None:
        if self._preview_of is None:
            return
        if self._preview_task is not None:
            self._preview_task.cancel()
        items = self._list.items
        if items:
            self._preview_task = asyncio.create_task(self._load_preview(self._preview_of, items[self._list.chosen].key))
        else:
            self._preview.show(())

    async def _load_preview(self, preview_of: PreviewFn, key: str) -> None:
        await asyncio.sleep(_PREVIEW_DELAY)
        try:
            self._preview.show(await preview_of(key))
        except Exception:  # no preview then; picking the item reports the error
            self._preview.show(())
