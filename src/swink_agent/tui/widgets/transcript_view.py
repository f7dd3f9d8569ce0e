"""The transcript on the screen: one widget that draws the rows that are seen, from strips that are made once.

Owns scrolling, following the newest line and letting go of it, the coalescing of changes into frames, folding, the
selection of tool calls, and the search. Where rows are is `transcript.rows`' knowledge, how a line looks `strips`',
selecting with the mouse `selecting`'s. It scrolls by itself rather than as a `ScrollView` does: growing by a line must
not lay the screen out anew. While nothing happens, nothing runs: there is no timer but those of something under way.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.policies.cells import cell_width

from ..themes import Theme
from ..transcript.block import Block, Transcript
from ..transcript.finding import Hit, Mark, find_hits, marks_in, pattern_of
from ..transcript.line import EMPTY, Line, Span
from ..transcript.rows import Place, Rows
from ..transcript.tool import ToolBlock
from .selecting import Selection
from .strips import StripMaker, Tint

__all__ = ["TranscriptView"]

_FRAME = 1 / 24
_BEAT = 0.125
_FOLD_AFTER = 3.0
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
        super().__init__(name=name, id=id, classes=classes)
        self._transcript = transcript
        self._rows = Rows(transcript)
        self._strips = StripMaker(theme, 80)
        self._top = Place(0, 0)
        self._is_following = True
        self._seen_end = (0, 0)
        """What was there when following ended: how many blocks, and the height of the last."""
        self._shown: tuple[int, int, int] = (-1, -1, -1)
        """Top row and thumb as they were drawn last."""
        self._told: tuple[bool, int] = (True, 0)
        """Whether it followed and how much was new, when that was told last."""
        self._dirty: dict[Block, None] = {}
        self._has_moved = True
        self._selected: Block | None = None
        self._selection = Selection(self._rows)
        self._pattern: Any = None
        self._hits: list[Hit] = []
        self._hit = -1
        self._marks: dict[Block, tuple[int, int, list[Mark]]] = {}
        self._is_reduced = False
        self._frame_timer: asyncio.TimerHandle | None = None
        self._beat_timer: asyncio.TimerHandle | None = None
        self._folds: dict[Block, asyncio.TimerHandle] = {}
        self._last_frame = 0.0
        self._beats = 0
        self._surroundings: contextvars.Context | None = None
        transcript.on_change(self._on_change)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether the newest line is kept in sight."""
        return self._is_following

    @property
    def new_below(self) -> int:
        """Lines that came since following ended and have not been in sight."""
        rows = self._rows
        count, height = self._seen_end
        if self._is_following or not rows.count:
            return 0
        grown = sum([rows.height(index) for index in range(count, rows.count)])
        if 0 < count <= rows.count:
            grown += max(rows.height(count - 1) - height, 0)
        return max(min(grown, rows.total - rows.row(self._top) - self.size.height), 0)

    @property
    def top_row(self) -> int:
        """The first row in sight, of `total_rows`."""
        return self._rows.row(self._top)

    @property
    def total_rows(self) -> int:
        return self._rows.total

    @property
    def selected_block(self) -> Block | None:
        """The tool call that is selected by key."""
        return self._selected

    @property
    def theme(self) -> Theme:
        return self._strips.theme

    def set_theme(self, theme: Theme) -> None:
        """Draws with other colours from now on."""
        self._strips = StripMaker(theme, max(self.size.width, 2))
        self._paint_ground()
        self.refresh()

    def set_motion(self, reduced: bool) -> None:
        """With reduced motion nothing turns while a tool runs."""
        self._is_reduced = reduced
        if reduced and self._beat_timer is not None:
            self._beat_timer.cancel()
            self._beat_timer = None
            for block in self._transcript.blocks:
                if isinstance(block, ToolBlock):
                    block.beat(None)
        elif not reduced:
            self._keep_beating()

    # -- life ------------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._surroundings = contextvars.copy_context()
        self._paint_ground()
        self._on_change(None)
        for block in self._transcript.blocks:
            self._look_after(block)

    def on_unmount(self) -> None:
        for timer in (self._frame_timer, self._beat_timer, *self._folds.values()):
            if timer is not None:
                timer.cancel()
        self._frame_timer = self._beat_timer = None
        self._folds.clear()

    def _paint_ground(self) -> None:
        ground = self._strips.theme.background
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
            if isinstance(block, ToolBlock):
                self._look_after(block)
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
            self._top, self._is_following, self._selected, self._hits, self._hit = Place(0, 0), True, None, [], -1
            self._marks.clear()
            self._selection.clear()
            self._has_moved = True
        redrawn: list[tuple[int, int, int]] = []
        for block in self._dirty:
            index = rows.index_of(block)
            if index is None:
                continue
            is_taller = rows.changed(index)
            start = rows.place_of_line(index, min(block.first_change, max(rows.height(index) - 1, 0))).row
            redrawn.append((index, start, self.size.height if is_taller else rows.height(index)))
        self._dirty.clear()
        self._settle()
        if self._has_moved or (rows.row(self._top), *self._thumb()) != self._shown:
            self._draw_moved(redrawn)
        else:
            self._draw_rows(redrawn)
        self._has_moved = False
        if (told := (self._is_following, self.new_below)) != self._told:
            self._told = told
            self.post_message(self.Scrolled(self))

    def _settle(self) -> None:
        """Measures what is in sight, and puts the top where the reader is."""
        rows, height = self._rows, self.size.height
        if self._is_following:
            self._top = rows.last_page(height)
            return
        self._top = rows.moved(self._top, 0)
        if not rows.measure_page(self._top, height):
            self._top = rows.last_page(height)

    def _draw_moved(self, redrawn: list[tuple[int, int, int]]) -> None:
        top, *thumb = (self._rows.row(self._top), *self._thumb())
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
        top = self._rows.row(self._top)
        width, height = self.size
        for index, first, last in redrawn:
            start = self._rows.start(index) - top
            from_row = max(start + first, 0)
            to_row = min(start + last if last < height else height, height)
            if from_row < to_row:
                self.refresh(Region(0, from_row, width, to_row - from_row))
        if not self._is_following:
            self.refresh(Region(0, height - 1, width, 1))  # the marker counts what is new

    def on_resize(self, event: events.Resize) -> None:
        width = max(event.size.width, 2)
        rows = self._rows
        if width != self._strips.width:
            self._strips = StripMaker(self._strips.theme, width)
        if width - 1 != rows.width:
            # The reader stays at the same part of the same block.
            share = 0.0
            if self._top.block < rows.count and not self._is_following:
                share = self._top.row / max(rows.height(self._top.block), 1)
            rows.resize(width - 1)
            self._marks.clear()
            rows.sync()
            if share:
                self._top = Place(self._top.block, int(share * rows.measure(self._top.block)))
        self._has_moved = True
        self._frame()

    # -- drawing ---------------------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        rows, maker = self._rows, self._strips
        thumb_start, thumb_end = self._thumb()
        has_tints = self._pattern is not None or self._selection.is_there
        strips: list[Strip] = []
        place = self._page_place(crop.y)
        index, row = place
        lines: Sequence[Line] = ()
        gap, end, is_plain = 0, -1, True
        for y in range(crop.y, crop.y + crop.height):
            while row >= end and index < rows.count:
                if end >= 0:
                    index, row = index + 1, 0
                if index >= rows.count:
                    break
                lines, gap, end = rows.seen(index), rows.gap(index), rows.height(index)
                is_plain = not has_tints and rows.blocks[index] is not self._selected
            edge = "" if thumb_start < 0 else "scrollbar.thumb" if thumb_start <= y < thumb_end else "scrollbar"
            number = row - gap
            if index >= rows.count:
                strips.append(maker.strip(EMPTY, edge))
            elif is_plain:
                strips.append(maker.strip(lines[number] if 0 <= number < len(lines) else EMPTY, edge))
            else:
                strips.append(self._tinted(Place(index, row), edge))
            row += 1
        height = self.size.height
        if not self._is_following and crop.y + crop.height >= height and (marker := self._marker()) is not None:
            strips[height - 1 - crop.y] = maker.strip(marker, "scrollbar.thumb" if thumb_end >= height else "scrollbar")
        if (crop.x, crop.width) != (0, self.size.width):
            strips = [strip.crop(crop.x, crop.x + crop.width) for strip in strips]
        return strips

    def _page_place(self, y: int) -> Place:
        """The place of a row of the window; measured already, so nothing is drawn for it."""
        index, row = self._top
        row += y
        rows = self._rows
        while index < rows.count and row >= rows.height(index):
            row -= rows.height(index)
            index += 1
        return Place(index, row)

    def _tinted(self, place: Place, edge: str) -> Strip:
        rows = self._rows
        line = rows.line(place)
        tints: list[Tint] = []
        block = rows.blocks[place.block]
        number = rows.line_number(place)
        if block is self._selected and number == 0:
            tints.append((0, self._strips.width - 1, "tool.selected"))
        if self._pattern is not None and number >= 0:
            tints += self._hits_in(block, number)
        if (selected := self._selection.cells(place, self._strips.width - 1)) is not None:
            tints.append((*selected, "selection"))
        return self._strips.tinted(line, edge, tints) if tints else self._strips.strip(line, edge)

    def _thumb(self) -> tuple[int, int]:
        """From which row to which the thumb of the scrollbar goes; below 0 without one."""
        height, total = self.size.height, self._rows.total
        if total <= height or height < 2:
            return -1, -1
        size = max(height * height // total, 1)
        room = height - size
        start = round(room * min(self._rows.row(self._top) / (total - height), 1.0))
        if self._is_following:
            start = room
        return start, start + size

    def _marker(self) -> Line | None:
        count = self.new_below
        if not count:
            return None
        text = f" \u2193 {count:,} new line{'' if count == 1 else 's'} "
        before = max((self._strips.width - 1 - cell_width(text)) // 2, 0)
        return Line((Span(" " * before, "text"), Span(text, "marker")), "", "")

    # -- scrolling -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Goes to the newest line and stays there."""
        self._is_following = True
        self._has_moved = True
        self._frame()

    def scroll_rows(self, count: int) -> None:
        """Moves by rows: down, or up, which lets go of the end."""
        rows, height = self._rows, self.size.height
        self._take_in()
        if not rows.count or not height:
            return
        if count < 0:
            top = rows.moved(self._top, count)
            if top != self._top:
                self._let_go()
                self._top = top
        elif self._is_following:
            return
        else:
            self._top = rows.moved(self._top, count)
            if not rows.measure_page(rows.moved(self._top, 1), height):
                self._is_following = True
        self._has_moved = True
        self._frame()

    def _take_in(self) -> None:
        """Waits for no frame with what has changed."""
        if self._dirty or self._has_moved:
            self._frame()

    def _let_go(self) -> None:
        if self._is_following:
            rows = self._rows
            last = rows.count - 1
            self._is_following = False
            self._seen_end = (last + 1, rows.height(last) if last >= 0 else 0)

    def scroll_pages(self, count: int) -> None:
        """Moves by windows, less a row that stays in sight."""
        self.scroll_rows(count * max(self.size.height - 1, 1))

    def scroll_to_start(self) -> None:
        """Goes to the oldest line."""
        self._take_in()
        if self._rows.total > self.size.height:
            self._let_go()
            self._top = Place(0, 0)
            self._has_moved = True
            self._frame()

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
        rows, height = self._rows, self.size.height
        rows.measure(place.block)
        row, top = rows.row(place), rows.row(self._top)
        if top <= row < top + height - 1:
            return
        self._let_go()
        self._top = rows.moved(place, -(height // 3))
        if not rows.measure_page(rows.moved(self._top, 1), height):
            self._is_following = True
        self._has_moved = True
        self._frame()

    # -- tool calls ------------------------------------------------------------------------------------------------

    def select_tool(self, step: int) -> None:
        """Selects the next tool call, or the one before; the first time, the newest."""
        tools = [block for block in self._transcript.blocks if block.is_selectable]
        if not tools:
            return
        if self._selected in tools:
            number = min(max(tools.index(self._selected) + step, 0), len(tools) - 1)
        else:
            number = len(tools) - 1
        self._choose(tools[number])

    def _choose(self, block: Block | None) -> None:
        before, self._selected = self._selected, block
        for changed in (before, block):
            if changed is not None and changed is not self._selected:
                self._look_after(changed)
        self._frame()
        if block is not None and (index := self._rows.index_of(block)) is not None:
            self._rows.measure(index)
            self.show(self._rows.place_of_line(index, 0))
        self.refresh()

    def toggle_selected(self) -> None:
        """Opens or folds the selected tool call; without one, the newest."""
        if self._selected is None:
            self.select_tool(0)
        if self._selected is not None:
            self._selected.toggle()
            self._frame()

    def clear_selection(self) -> None:
        """Selects no tool call and no text."""
        self._selection.clear()
        if self._selected is not None:
            self._choose(None)
        self.refresh()

    def _look_after(self, block: Block) -> None:
        """Folds a call a while after its end, and keeps the sign of one that runs turning."""
        if not isinstance(block, ToolBlock) or self._surroundings is None:
            return
        if block.status == "running":
            self._keep_beating()
        is_due = block.is_finished and block.is_open and not block.opened_by_hand and block is not self._selected
        if is_due and block not in self._folds:
            self._folds[block] = self._later(_FOLD_AFTER, lambda: self._fold(block))

    def _fold(self, block: ToolBlock) -> None:
        self._folds.pop(block, None)
        if block is not self._selected:
            block.fold()

    def _keep_beating(self) -> None:
        if self._beat_timer is None and not self._is_reduced and self._surroundings is not None:
            self._beat_timer = self._later(_BEAT, self._beat)

    def _beat(self) -> None:
        self._beat_timer = None
        running = [block for block in self._transcript.blocks[-64:] if isinstance(block, ToolBlock)]
        running = [block for block in running if block.status == "running"]
        self._beats += 1
        for block in running:
            block.beat(self._beats)
        if running:
            self._keep_beating()

    # -- searching -------------------------------------------------------------------------------------------------

    def search(self, query: str) -> int:
        """Looks for words in all of the transcript; says how often they stand there, and goes to the last place."""
        self._pattern = pattern_of(query)
        self._hits = [] if self._pattern is None else find_hits(self._transcript.blocks, self._pattern)
        self._marks.clear()
        self._hit = len(self._hits)
        if self._hits:
            self.next_hit(-1)
        self.refresh()
        return len(self._hits)

    @property
    def current_hit(self) -> int:
        """Which of the hits is shown, from 1; 0 without one."""
        return self._hit + 1 if self._hits else 0

    def next_hit(self, step: int) -> None:
        """Goes to the next place, or to the one before; from the last to the first."""
        if not self._hits or self._pattern is None:
            return
        self._hit = (self._hit + step) % len(self._hits)
        hit = self._hits[self._hit]
        hit.block.open()
        self._frame()
        index = self._rows.index_of(hit.block)
        if index is None:
            return
        self._rows.measure(index)
        marks = self._marks_of(hit.block)
        number = min(hit.number, max([mark.number for mark in marks], default=0))
        line = next((mark.line for mark in marks if mark.number == number), 0)
        self.show(self._rows.place_of_line(index, line))
        self.refresh()

    def end_search(self) -> None:
        """Shows no hits any more; the view stays where it is."""
        self._pattern, self._hits, self._hit = None, [], -1
        self._marks.clear()
        self.refresh()

    def _marks_of(self, block: Block) -> list[Mark]:
        kept = self._marks.get(block)
        if kept is None or kept[:2] != (block.version, self._rows.width):
            lines = self._rows.lines(block)
            kept = self._marks[block] = (block.version, self._rows.width, marks_in(lines, self._pattern))
        return kept[2]

    def _hits_in(self, block: Block, number: int) -> list[Tint]:
        current = self._hits[self._hit] if 0 <= self._hit < len(self._hits) else None
        marks = self._marks_of(block)
        last = max([mark.number for mark in marks], default=0)
        shown = None if current is None or current.block is not block else min(current.number, last)
        return [
            (mark.start, mark.end, "hit.current" if mark.number == shown else "hit")
            for mark in marks
            if mark.line == number
        ]

    # -- the mouse -------------------------------------------------------------------------------------------------

    def selected_text(self) -> str:
        """What is selected with the mouse, without gutters."""
        return self._selection.text()

    def _place_at(self, y: int) -> Place:
        return self._rows.moved(self._top, max(y, 0))

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
        if not self._is_following and event.y == self.size.height - 1 and self._marker() is not None:
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

    def _click(self, place: Place) -> None:
        """Opens or folds what was clicked at: the head of a call, a thought, a prompt that is folded."""
        block = self._rows.blocks[place.block]
        line = self._rows.line(place)
        number = self._rows.line_number(place)
        is_handle = number == 0 if block.is_selectable else line.copied == "" and line.glue == ""
        if number >= 0 and is_handle and block.toggle(number):
            self._frame()

    def _drag_thumb(self, y: int) -> None:
        height, total = self.size.height, self._rows.total
        if total <= height:
            return
        share = min(max(y / max(height - 1, 1), 0.0), 1.0)
        if share == 1.0:
            self.follow()
            return
        self._let_go()
        self._top = self._rows.place(round(share * (total - height)))
        self._has_moved = True
        self._frame()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return container.height
