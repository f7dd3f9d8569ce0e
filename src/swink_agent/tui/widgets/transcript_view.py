"""The transcript on the screen: one widget that draws the rows in sight, from strips that are made once.

Owns the coalescing of changes into frames, what of the screen is drawn again, the selection of tool calls, and what
keys and mouse do. Where the reader is, is `transcript.viewport`'s knowledge, how a line looks `strips`'; `selecting`
knows what the mouse selects, `searching` what is looked for, `call_timers` when calls fold. It scrolls by itself rather
than as a `ScrollView` does: growing by a line must not lay the screen out anew. While nothing happens, nothing runs:
there is no timer but those of something under way.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ..themes import Theme
from ..transcript.block import Block, Transcript
from ..transcript.rows import Place, Rows
from ..transcript.viewport import Viewport
from .call_timers import CallTimers
from .page import Page
from .searching import Search
from .selecting import Selection
from .strips import StripMaker

__all__ = ["TranscriptView"]

_FRAME = 1 / 24
_WHEEL = 3


class TranscriptView(Widget, can_focus=False):
    """Shows a transcript and follows its end until the reader scrolls up."""

    ALLOW_SELECT: ClassVar[bool] = False  # by its own: what is copied has no gutters
    DEFAULT_CSS = """
    TranscriptView { width: 1fr; height: 1fr; }
    """

    class Scrolled(Message):
        """The view has let go of the end, or follows it again, or more is new below."""

        def __init__(self, view: TranscriptView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> TranscriptView:
            return self.view

    class Selected(Message):
        """Text was selected with the mouse: to be copied."""

        def __init__(self, view: TranscriptView, text: str) -> None:
            super().__init__()
            self.view = view
            self.text = text

        @property
        def control(self) -> TranscriptView:
            return self.view

    def __init__(
        self,
        transcript: Transcript,
        theme: Theme,
        *,
        name: str | None = None,
        id: str | None = None,  # noqa: A002 - the name that Textual has for it
        classes: str | None = None,
    ) -> None:
        self._transcript = transcript
        self._rows = Rows(transcript)
        self._window = Viewport(self._rows)
        self._shown: tuple[int, int, int] = (-1, -1, -1)
        """Top row and thumb as they were drawn last."""
        self._told: tuple[bool, int] = (True, 0)
        """Whether it followed and how much was new, when that was told last."""
        self._dirty: dict[Block, None] = {}
        self._has_moved = True
        self._selection = Selection(self._rows)
        self._search = Search(self._rows)
        self._call_timers = CallTimers(transcript, self._later, lambda block: block is self._page.selected)
        self._page = Page(self._rows, self._window, self._search, self._selection, StripMaker(theme, 80))
        super().__init__(name=name, id=id, classes=classes)
        self._frame_timer: asyncio.TimerHandle | None = None
        self._last_frame = 0.0
        self._surroundings: contextvars.Context | None = None
        transcript.on_change(self._on_change)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether the newest line is kept in sight."""
        return self._window.is_following

    @property
    def new_below(self) -> int:
        """Lines that came since following ended and have not been in sight."""
        return self._window.new_below

    @property
    def top_row(self) -> int:
        """The first row in sight, of `total_rows`."""
        return self._window.top_row

    @property
    def total_rows(self) -> int:
        return self._rows.total

    @property
    def selected_block(self) -> Block | None:
        """The tool call that is selected by key."""
        return self._page.selected

    @property
    def theme(self) -> Theme:
        return self._page.maker.theme

    def set_theme(self, theme: Theme) -> None:
        """Draws with other colours from now on."""
        self._page.maker = StripMaker(theme, max(self.size.width, 2))
        self._paint_ground()
        self.refresh()

    def set_motion(self, reduced: bool) -> None:
        """With reduced motion nothing turns while a tool runs."""
        self._call_timers.set_still(reduced)

    # -- life ------------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._surroundings = contextvars.copy_context()
        self._paint_ground()
        self._on_change(None)
        for block in self._transcript.blocks:
            self._call_timers.look_after(block)

    def on_unmount(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        self._call_timers.stop()

    def _paint_ground(self) -> None:
        ground = self._page.maker.theme.background
        if ground is not None:
            self.styles.background = ground
        else:
            self.styles.clear_rule("background")

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call, context=self._surroundings)

    # -- changes become frames -------------------------------------------------------------------------------------

    def _on_change(self, block: Block | None) -> None:
        if block is not None:
            self._dirty[block] = None
            if self._surroundings is not None:
                self._call_timers.look_after(block)
        else:
            self._has_moved = True
        if self._frame_timer is None and self.is_attached and self._surroundings is not None:
            wait = self._last_frame + _FRAME - time.monotonic()
            self._frame_timer = self._later(max(wait, 0), self._frame)

    def _frame(self) -> None:
        """Takes in what has changed since the last frame, and has drawn again what of it is in sight."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        if not self.is_attached or not self.size.height:
            return
        self._last_frame = time.monotonic()
        rows = self._rows
        went = rows.sync()
        if went:
            self._window.reset()
            self._page.selected = None
            self._search.end()
            self._selection.clear()
            self._has_moved = True
        redrawn: list[tuple[int, int, int]] = []
        for block in self._dirty:
            index = rows.index_of(block)
            if index is None:
                continue
            is_moving = rows.changed(index)
            start = rows.place_of_line(index, min(block.first_change, max(rows.height(index) - 1, 0))).row
            redrawn.append((index, start, self.size.height if is_moving else rows.height(index)))
        self._dirty.clear()
        self._window.settle()
        if self._has_moved or (self._window.top_row, *self._window.thumb()) != self._shown:
            self._draw_moved(redrawn)
        else:
            self._draw_rows(redrawn)
        self._has_moved = False
        if (told := (self._window.is_following, self._window.new_below)) != self._told:
            self._told = told
            self.post_message(self.Scrolled(self))

    def _draw_moved(self, redrawn: list[tuple[int, int, int]]) -> None:
        top, *thumb = (self._window.top_row, *self._window.thumb())
        old_top, *old_thumb = self._shown
        self._shown = (top, *thumb)  # pyright: ignore[reportAttributeAccessIssue]
        if top != old_top or self._has_moved:
            self.refresh()
            return
        width, height = self.size
        edges = [y for y in range(height) if (thumb[0] <= y < thumb[1]) != (old_thumb[0] <= y < old_thumb[1])]
        if (thumb[0] < 0) != (old_thumb[0] < 0):
            edges = list(range(height))
        if edges:
            self.refresh(Region(width - 1, edges[0], 1, edges[-1] - edges[0] + 1))
        self._draw_rows(redrawn)

    def _draw_rows(self, redrawn: list[tuple[int, int, int]]) -> None:
        top = self._window.top_row
        width, height = self.size
        for index, first, last in redrawn:
            start = self._rows.start(index) - top
            from_row = max(start + first, 0)
            to_row = min(start + last if last < height else height, height)
            if from_row < to_row:
                self.refresh(Region(0, from_row, width, to_row - from_row))
        if not self._window.is_following:
            self.refresh(Region(0, height - 1, width, 1))  # the marker counts what is new

    def on_resize(self, event: events.Resize) -> None:
        width = max(event.size.width, 2)
        self._window.height = event.size.height
        if width != self._page.maker.width:
            self._page.maker = StripMaker(self._page.maker.theme, width)
        if width - 1 != self._rows.width:
            self._window.resize(width - 1)
            self._search.forget_marks()
        self._has_moved = True
        self._frame()

    # -- drawing ---------------------------------------------------------------------------------------------------

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> TranscriptView:
        if repaint:
            self._page.spoil(regions)
        super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = self._page.strips()[crop.y : crop.bottom]
        if (crop.x, crop.width) != (0, self.size.width):
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    # -- scrolling -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Goes to the newest line and stays there."""
        self._window.follow()
        self._go()

    def _go(self) -> None:
        """The window has moved: it is drawn at once."""
        self._has_moved = True
        self._frame()

    def scroll_rows(self, count: int) -> None:
        """Moves by rows: down, or up, which lets go of the end."""
        self._take_in()
        self._window.scroll(count)
        self._go()

    def _take_in(self) -> None:
        """Waits for no frame with what has changed."""
        if self._dirty or self._has_moved:
            self._frame()

    def scroll_pages(self, count: int) -> None:
        """Moves by windows, less a row that stays in sight."""
        self.scroll_rows(count * max(self.size.height - 1, 1))

    def scroll_to_start(self) -> None:
        """Goes to the oldest line."""
        self._take_in()
        self._window.to_start()
        self._go()

    def scroll_up(self, **_: Any) -> None:
        self.scroll_rows(-1)

    def scroll_down(self, **_: Any) -> None:
        self.scroll_rows(1)

    def scroll_page_up(self, **_: Any) -> None:
        self.scroll_pages(-1)

    def scroll_page_down(self, **_: Any) -> None:
        self.scroll_pages(1)

    def scroll_home(self, **_: Any) -> None:
        self.scroll_to_start()

    def scroll_end(self, **_: Any) -> None:
        self.follow()

    def show(self, place: Place) -> None:
        """Brings a place into sight, a third from the top if it was not."""
        if self._window.show(place):
            self._go()

    # -- tool calls ------------------------------------------------------------------------------------------------

    def select_tool(self, step: int) -> None:
        """Selects the next tool call, or the one before; the first time, the newest."""
        tools = [block for block in self._transcript.blocks if block.is_selectable]
        if not tools:
            return
        if self._page.selected in tools:
            number = min(max(tools.index(self._page.selected) + step, 0), len(tools) - 1)
        else:
            number = len(tools) - 1
        self._choose(tools[number])

    def _choose(self, block: Block | None) -> None:
        before, self._page.selected = self._page.selected, block
        for changed in (before, block):
            if changed is not None and changed is not self._page.selected:
                self._call_timers.look_after(changed)
        self._frame()
        if block is not None and (index := self._rows.index_of(block)) is not None:
            self._rows.measure(index)
            self.show(self._rows.place_of_line(index, 0))
        self.refresh()

    def toggle_selected(self) -> None:
        """Opens or folds the selected tool call; without one, the newest."""
        if self._page.selected is None:
            self.select_tool(0)
        if self._page.selected is not None:
            self._page.selected.toggle()
            self._frame()

    def clear_selection(self) -> None:
        """Selects no tool call and no text."""
        self._selection.clear()
        if self._page.selected is not None:
            self._choose(None)
        self.refresh()

    # -- searching -------------------------------------------------------------------------------------------------

    def search(self, query: str) -> int:
        """Looks for words in all of the transcript; says how often they stand there, and goes to the last place."""
        self._search.begin(query, self._transcript.blocks)
        self.next_hit(-1)
        self.refresh()
        return self._search.count

    @property
    def current_hit(self) -> int:
        """Which of the hits is shown, from 1; 0 without one."""
        return self._search.current

    def next_hit(self, step: int) -> None:
        """Goes to the next place, or to the one before; from the last to the first."""
        hit = self._search.step(step)
        if hit is None:
            return
        hit.block.open()
        self._frame()
        index = self._rows.index_of(hit.block)
        if index is not None:
            self._rows.measure(index)
            self.show(self._rows.place_of_line(index, self._search.line_of(hit)))
        self.refresh()

    def end_search(self) -> None:
        """Shows no hits any more; the view stays where it is."""
        self._search.end()
        self.refresh()

    # -- the mouse -------------------------------------------------------------------------------------------------

    def selected_text(self) -> str:
        """What is selected with the mouse, without gutters."""
        return self._selection.text()

    def _place_at(self, y: int) -> Place:
        return self._rows.moved(self._window.top, max(y, 0))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-_WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(_WHEEL)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._take_in()
        if event.button != 1 or not self._rows.count:
            return
        event.stop()
        if event.y == self.size.height - 1 and self._page.marker() is not None:
            self.follow()
            return
        if event.x >= self.size.width - 1:
            self._drag_thumb(event.y)
            self._selection.is_dragging_thumb = True
        else:
            self._selection.begin(self._place_at(event.y), event.x)
        self.capture_mouse()
        self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._selection.is_dragging_thumb:
            self._drag_thumb(event.y)
        elif self._selection.is_under_way:
            event.stop()
            if event.y < 0:
                self.scroll_rows(-1)
            elif event.y >= self.size.height:
                self.scroll_rows(1)
            self._selection.reach(self._place_at(min(event.y, self.size.height - 1)), event.x)
            self.refresh()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._selection.is_dragging_thumb:
            self._selection.is_dragging_thumb = False
            self.release_mouse()
            return
        if not self._selection.is_under_way:
            return
        event.stop()
        self.release_mouse()
        if self._selection.end():
            if text := self.selected_text():
                self.post_message(self.Selected(self, text))
        else:
            self._click(self._place_at(event.y))
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """A double click selects a word, a third one the line."""
        if event.button != 1 or event.chain < 2 or event.x >= self.size.width - 1 or not self._rows.count:
            return
        event.stop()
        self._selection.take(self._place_at(event.y), event.x, is_line=event.chain > 2)
        if text := self.selected_text():
            self.post_message(self.Selected(self, text))
        self.refresh()

    def _click(self, place: Place) -> None:
        """Opens or folds what was clicked at: the head of a call, a thought, a prompt that is folded."""
        block = self._rows.blocks[place.block]
        line = self._rows.line(place)
        number = self._rows.line_number(place)
        is_handle = number == 0 if block.is_selectable else line.copied == "" and line.glue == ""
        if number >= 0 and is_handle and block.toggle(number):
            self._frame()

    def _drag_thumb(self, y: int) -> None:
        self._window.to_share(y / max(self.size.height - 1, 1))
        self._go()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return container.height
