"""The transcript widget: draws the visible rows from cached strips.

Owns the batching of changes into frames, the choice of what is redrawn, the selection of tool calls, and the handling
of keys and mouse. Where possible, changes of a streaming reply are painted directly on the terminal (`set_painter`),
because Textual would redraw whole rows, and all of them when the view scrolls. Related modules: `transcript.viewport`
has the scroll position, `strips` renders lines, `selecting` has the mouse selection, `searching` the search hits, and
`call_timers` folds tool calls.

The widget is not a `ScrollView` and scrolls itself, because one more line must not cause a new layout of the screen.
An idle view has no timers.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import ClassVar, TypeAlias

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
from .page import Page, Turn
from .searching import Search
from .selecting import Selection
from .strips import StripMaker

_FRAME = 1 / 20
_WHEEL = 3

Painter: TypeAlias = Callable[[Region, Turn], bool]
"""Scrolls the rows of a screen region and draws cells in it; returns whether it could."""


class TranscriptView(Widget, can_focus=False):
    """Shows a transcript and follows its end until the user scrolls up."""

    ALLOW_SELECT: ClassVar[bool] = False  # its own selection leaves the gutters out of the copied text
    DEFAULT_CSS = """
    TranscriptView { width: 1fr; height: 1fr; }
    """

    class Selected(Message):
        """The user selected text with the mouse, to be copied."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, transcript: Transcript, theme: Theme) -> None:
        self._transcript = transcript
        self._rows = Rows(transcript)
        self._window = Viewport(self._rows)
        self._shown: tuple[int, int, int] = (-1, -1, -1)
        """The top row and the scrollbar thumb of the last frame."""
        self._shown_top = Place(0, 0)
        self._painter: Painter | None = None
        self._dirty: dict[Block, None] = {}
        self._has_moved = True
        self._selection = Selection(self._rows)
        self._search = Search(self._rows)
        self._call_timers = CallTimers(transcript, self._later, lambda block: block is self._page.selected)
        self._page = Page(self._rows, self._window, self._search, self._selection, StripMaker(theme, 80))
        super().__init__()
        self._frame_timer: asyncio.TimerHandle | None = None
        self._last_frame = 0.0
        self._timer_context: contextvars.Context | None = None
        transcript.on_change(self._on_change)

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether the view scrolls along with the newest line."""
        return self._window.is_following

    @property
    def new_below(self) -> int:
        """The number of lines that were added since following ended and that have not been visible yet."""
        return self._window.new_below

    @property
    def top_row(self) -> int:
        """The first visible row."""
        return self._window.top_row

    @property
    def selected_block(self) -> Block | None:
        """The tool call that is selected with the keyboard."""
        return self._page.selected

    @property
    def theme(self) -> Theme:
        return self._page.maker.theme

    def set_theme(self, theme: Theme) -> None:
        self._page.maker = StripMaker(theme, max(self.size.width, 2))
        self._set_background()
        self.refresh()

    def set_motion(self, reduced: bool) -> None:
        """Sets whether running tools are shown without animation."""
        self._call_timers.set_still(reduced)

    def set_painter(self, painter: Painter) -> None:
        """Uses a painter that draws directly on the terminal; when it returns `False`, Textual draws."""
        self._painter = painter

    # -- mounting --------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._timer_context = contextvars.copy_context()
        self._set_background()
        self._on_change(None)
        for block in self._transcript.blocks:
            self._call_timers.look_after(block)

    def on_unmount(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        self._call_timers.stop()

    def _set_background(self) -> None:
        background = self._page.maker.theme.background
        if background is not None:
            self.styles.background = background
        else:
            self.styles.clear_rule("background")

    def _later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call, context=self._timer_context)

    # -- frames ----------------------------------------------------------------------------------------------------

    def _on_change(self, block: Block | None) -> None:
        if block is not None:
            self._dirty[block] = None
            if self._timer_context is not None:
                self._call_timers.look_after(block)
        else:
            self._has_moved = True
        self._schedule_frame(self._last_frame + _FRAME - time.monotonic())

    def _schedule_frame(self, wait: float) -> None:
        if self._frame_timer is None and self.is_attached and self._timer_context is not None:
            self._frame_timer = self._later(max(wait, 0), self._frame)

    def _frame(self) -> None:
        """Processes the changes since the last frame and redraws those that are visible."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        if not self.is_attached or not self.size.height:
            return
        self._last_frame = time.monotonic()
        rows = self._rows
        if rows.sync():
            self._window.reset()
            self._page.selected = None
            self._search.end()
            self._selection.clear()
            self._has_moved = True
        redrawn = self._lay_out()
        self._window.settle()
        if self._has_moved or (self._window.top_row, *self._window.thumb()) != self._shown:
            self._draw_moved(redrawn)
        else:
            self._draw_rows(redrawn)
        self._has_moved = False

    def _lay_out(self) -> list[tuple[int, int, int]]:
        """Lays out the changed blocks that may be visible; returns the rows of each that have changed."""
        rows, height = self._rows, self.size.height
        redrawn: list[tuple[int, int, int]] = []
        dirty, self._dirty = self._dirty, {}
        for block in dirty:
            if (index := rows.index_of(block)) is None:
                continue
            if block.is_behind and self._window.is_following and rows.below(index) >= height:
                rows.forget(index)  # it is laid out when the user scrolls there
                continue
            is_moving = rows.changed(index)
            start = rows.place_of_line(index, min(block.first_change, max(rows.height(index) - 1, 0))).row
            redrawn.append((index, start, height if is_moving else rows.height(index)))
            if block.is_behind:  # a lot of text has arrived: the next frame draws more of it
                self._dirty[block] = None
                self._schedule_frame(0 if block.is_finished else _FRAME)
        return redrawn

    def _draw_moved(self, redrawn: list[tuple[int, int, int]]) -> None:
        top, *thumb = (self._window.top_row, *self._window.thumb())
        old_top, *old_thumb = self._shown
        before, self._shown_top = self._shown_top, self._window.top
        self._shown = (top, *thumb)  # pyright: ignore[reportAttributeAccessIssue]
        if self._can_paint():
            self._paint(self._page.turn(top - self._rows.row(before)))
            return
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
        height = self.size.height
        parts: list[tuple[int, int]] = []
        for index, first, last in redrawn:
            start = self._rows.start(index) - top
            from_row = max(start + first, 0)
            to_row = min(start + last if last < height else height, height)
            if from_row < to_row:
                parts.append((from_row, to_row))
        if not self._window.is_following:
            parts.append((height - 1, height))  # the marker with the number of new lines
        for first, last in parts:
            if self._can_paint():
                self._paint(self._page.remake(first, last))
            else:
                self.refresh(Region(0, first, self.size.width, last - first))

    def _can_paint(self) -> bool:
        """Returns whether no dialog or notification covers this and it still has the size it was measured with."""
        size = (self._page.maker.width, self._window.height)
        if self._painter is None or self.size != size:
            return False
        return self.screen.is_active and not self.screen.query("Toast")

    def _paint(self, turn: Turn) -> None:
        if (turn.up or turn.patches) and (self._painter is None or not self._painter(self.region, turn)):
            self.refresh()

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
        if crop.height > 1:  # Textual also asks for a single row to find what is under the mouse
            self._page.drawn(crop.y, crop.bottom)
        if (crop.x, crop.width) != (0, self.size.width):
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    # -- scrolling -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Scrolls to the newest line and follows it."""
        self._window.follow()
        self._redraw_scrolled()

    def _redraw_scrolled(self) -> None:
        """Redraws at once after scrolling."""
        self._has_moved = True
        self._frame()

    def scroll_rows(self, count: int) -> None:
        """Scrolls down by `count` rows, or up if negative; scrolling up ends following."""
        self._process_changes()
        self._window.scroll(count)
        self._redraw_scrolled()

    def _process_changes(self) -> None:
        """Processes pending changes now instead of in the next frame."""
        if self._dirty or self._has_moved:
            self._frame()

    def scroll_pages(self, count: int) -> None:
        """Scrolls by screenfuls; one row of the old one stays visible."""
        self.scroll_rows(count * max(self.size.height - 1, 1))

    def scroll_to_start(self) -> None:
        self._process_changes()
        self._window.to_start()
        self._redraw_scrolled()

    # -- tool calls ------------------------------------------------------------------------------------------------

    def select_tool(self, step: int) -> None:
        """Selects the next (1) or previous (-1) tool call or thought.

        Without a selection, selects the newest one that is visible, or else the nearest above.
        """
        tools = [block for block in self._transcript.blocks if block.opens_by_key]
        if not tools:
            return
        if self._page.selected in tools:
            number = min(max(tools.index(self._page.selected) + step, 0), len(tools) - 1)
            self._choose(tools[number])
            return
        self._frame()  # blocks added since the last frame may be visible by now
        last = self._window.place_at(max(self.size.height - 1, 0)).block
        above = [block for block in self._transcript.blocks[: last + 1] if block.opens_by_key]
        self._choose(above[-1] if above else tools[0])

    def _choose(self, block: Block | None) -> None:
        before, self._page.selected = self._page.selected, block
        for changed in (before, block):
            if changed is not None and changed is not self._page.selected:
                self._call_timers.look_after(changed)
        self._frame()
        if block is not None:
            self._show_line(block)
        self.refresh()

    def _show_line(self, block: Block, number: int = 0) -> None:
        """Makes a line of a block visible; scrolls it to a third from the top if it was not."""
        if (index := self._rows.index_of(block)) is not None:
            self._rows.measure(index)
            if self._window.show(self._rows.place_of_line(index, number)):
                self._redraw_scrolled()

    def toggle_selected(self) -> None:
        """Opens or folds the selected tool call or thought, or the newest visible one if the selected one is not
        visible. Then scrolls so that its first line is visible."""
        block = self._page.selected
        index = None if block is None else self._rows.index_of(block)
        first, last = [self._window.place_at(row).block for row in (0, max(self.size.height - 1, 0))]
        if block is None or not block.opens_by_key or index is None or not first <= index <= last:
            self._page.selected = None
            self.select_tool(0)
        if (block := self._page.selected) is not None:
            block.toggle()
            self._frame()
            self._show_line(block)

    def clear_selection(self) -> None:
        """Clears the selection of a tool call and of text."""
        self._selection.clear()
        if self._page.selected is not None:
            self._choose(None)
        self.refresh()

    # -- searching -------------------------------------------------------------------------------------------------

    def search(self, query: str) -> int:
        """Searches the whole transcript, scrolls to the last hit and returns the number of hits."""
        self._search.begin(query, self._transcript.blocks)
        self.next_hit(-1)
        self.refresh()
        return self._search.count

    @property
    def current_hit(self) -> int:
        """The number of the hit that is shown, from 1; 0 without hits."""
        return self._search.current

    def next_hit(self, step: int) -> None:
        """Goes to the next (1) or previous (-1) hit; wraps around at the ends."""
        hit = self._search.step(step)
        if hit is None:
            return
        hit.block.open()
        self._frame()
        self._show_line(hit.block, self._search.line_of(hit))
        self.refresh()

    def end_search(self) -> None:
        """Removes the marks of the hits; the scroll position stays."""
        self._search.end()
        self.refresh()

    # -- the mouse -------------------------------------------------------------------------------------------------

    def selected_text(self) -> str:
        """Returns the text that is selected with the mouse, without gutters."""
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
        self._process_changes()
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
                self.post_message(self.Selected(text))
        else:
            self._click(self._place_at(event.y))
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Selects the word on a double click, the line on a triple click."""
        if event.button != 1 or event.chain < 2 or event.x >= self.size.width - 1 or not self._rows.count:
            return
        event.stop()
        self._selection.take(self._place_at(event.y), event.x, is_line=event.chain > 2)
        if text := self.selected_text():
            self.post_message(self.Selected(text))
        self.refresh()

    def _click(self, place: Place) -> None:
        """Opens or folds the clicked element: the head of a call, a thought, or a folded prompt."""
        block = self._rows.blocks[place.block]
        if block.is_hidden:
            return
        line = self._rows.line(place)
        number = self._rows.line_number(place)
        is_handle = number == 0 if block.is_selectable else line.copied == "" and line.glue == ""
        if number >= 0 and is_handle and block.toggle(number):
            self._frame()

    def _drag_thumb(self, y: int) -> None:
        self._window.to_share(y / max(self.size.height - 1, 1))
        self._redraw_scrolled()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return container.height
