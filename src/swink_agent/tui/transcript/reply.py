"""A reply of the model as it streams in: its thinking, its text, and how it ended.

Owns the folding of the thinking, once the text begins, and the gutter at the left. `markdown` lays out the text; the
cost of a delta depends only on its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from .block import Block
from .line import EMPTY, Line, Span, cut_spans, safe, width_of
from .markdown import MarkdownStream
from .messages import wrapped_rows
from .parts import Seam

Stopped: TypeAlias = Literal["", "aborted", "error"]

_THOUGHTS_SEEN = 6
"""The number of a thought's last rows that are shown while it streams in."""
_CURSOR = Span("\u258c", "cursor")
_PLAN_BAR = Span("\u258c ", "plan")
_SIGN = Span("\u25cf ", "reply")
_NO_SIGN = Span("  ", "text")


class _Section:
    """A continuous part of a reply that is either text or thinking."""

    __slots__ = ("chunks", "is_thought", "start", "stream", "unfed", "was_drawn")

    def __init__(self, *, is_thought: bool) -> None:
        self.is_thought = is_thought
        self.chunks: list[str] = []
        self.stream: MarkdownStream | None = None
        self.unfed: list[str] = []
        self.start: int | None = None
        """The line of the block at which the section begins; `None` until it is drawn at this width."""
        self.was_drawn = False

    @property
    def text(self) -> str:
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""


class ReplyBlock(Block):
    """A reply of the model, or a part of a very long one (see `parts`).

    `label` "PLAN" marks every row as part of a plan. `seam` is how a part follows the previous one, and `fence` is the
    line that opened the code block in which it begins.
    """

    def __init__(self, *, label: str = "", seam: Seam = "", fence: str = "") -> None:
        super().__init__()
        self.label = label
        self.is_joined = seam == "joined"
        self._is_first = not seam
        self._fence = fence
        self.is_finished = False
        self.stopped: Stopped = ""
        self.note = ""
        self.shows_thoughts = False
        self._sections: list[_Section] = []
        self._size = 0
        self._rows: list[Line] = []
        self._width = 0
        self._under_cursor: tuple[int, Line] | None = None
        """The number of the row with the cursor, and its line without the cursor."""
        self._settled = 0
        """The number of sections whose rows no longer change."""
        self._most_new: int | None = None

    # -- changes ---------------------------------------------------------------------------------------------------

    def append_text(self, delta: str) -> None:
        self._append(delta, is_thought=False)

    def append_thinking(self, delta: str) -> None:
        self._append(delta, is_thought=True)

    def _append(self, delta: str, *, is_thought: bool) -> None:
        if not delta:
            return
        if not self._sections or self._sections[-1].is_thought != is_thought:
            self._sections.append(_Section(is_thought=is_thought))
        section = self._sections[-1]
        section.chunks.append(delta)
        if section.stream is not None:
            section.unfed.append(delta)
        self._size += len(delta)
        self._changed()

    def finish(self, stopped: Stopped = "", note: str = "") -> None:
        """Notes that the reply has ended, normally or not."""
        self.is_finished, self.stopped, self.note = True, stopped, note
        self._changed()

    # -- state -----------------------------------------------------------------------------------------------------

    def _plain(self) -> str:
        parts = [section.text for section in self._sections]
        return "\n".join([*parts, self.note] if self.note else parts)

    @property
    def answer(self) -> str:
        """The text without the thinking, as the model wrote it."""
        self._restored()
        return "".join([section.text for section in self._sections if not section.is_thought])

    @property
    def final_lines(self) -> Sequence[Line]:
        """The drawn lines that can no longer change when more text arrives, without the cursor."""
        if self.is_finished:
            return self._rows
        last = self._sections[-1] if self._sections else None
        if last is None or last.start is None:
            return ()
        end = last.start
        if last.stream is not None and not last.is_thought:
            end += (0 if last is self._sections[0] else 1) + last.stream.final
        rows = self._rows[: min(end, len(self._rows))]
        if self._under_cursor is not None and self._under_cursor[0] < len(rows):
            rows[self._under_cursor[0]] = self._under_cursor[1]
        return rows

    def estimate_size(self, characters: int) -> None:
        """Sets the length of the text that will be filled in later."""
        self._size = characters

    def estimated_height(self, width: int) -> int:
        return 1 + self._size * 5 // (4 * max(min(width, 116) - 2, 8))

    def forget(self) -> None:
        super().forget()
        if self.is_finished:
            self._rows, self._width, self._under_cursor = [], 0, None
            for section in self._sections:
                section.stream, section.unfed, section.start = None, [], None

    @property
    def opens_by_key(self) -> bool:
        return any(section.is_thought for section in self._sections)

    def open(self) -> bool:
        if self.shows_thoughts or not self.opens_by_key:
            return False
        return self.toggle()

    def toggle(self, row: int = 0) -> bool:
        """Shows or folds the thinking."""
        if not self.opens_by_key:
            return False
        self.shows_thoughts = not self.shows_thoughts
        self._width = 0
        self._changed()
        return True

    # -- drawing ---------------------------------------------------------------------------------------------------

    def lines(self, width: int, most_new: int | None = None) -> Sequence[Line]:
        self._most_new = most_new
        return super().lines(width)

    def _draw(self, width: int) -> Sequence[Line]:
        if width != self._width:
            self._width, self._rows, self._settled, self._under_cursor = width, [], 0, None
            for section in self._sections:
                section.stream, section.unfed, section.start = None, [], None
        if self._under_cursor is not None:
            place, line = self._under_cursor
            self._rows[place : place + 1], self._under_cursor = [line], None
        if not self._sections or self._sections[0].start is None:
            self._rows.clear()  # only the cursor was drawn
        if self.label and self._is_first and not self._rows:
            self._rows.append(Line((_PLAN_BAR, Span(f" {safe(self.label)} ", "plan.badge")), "", "", 2))
        change = max(len(self._rows) - 1, 0)  # the row of the old cursor
        # Once a new section follows, the one before it is drawn again, folded. The last section gets only its new rows.
        self.is_behind = False
        while self._settled < len(self._sections):
            section = self._sections[self._settled]
            is_last = self._settled == len(self._sections) - 1
            change = min(change, self._draw_section(section, width, is_last=is_last))
            if is_last or self.is_behind:
                break
            self._settled += 1
        change = min(change, self._draw_end(width))
        self.first_change = change
        return self._rows

    def _draw_section(self, section: _Section, width: int, *, is_last: bool) -> int:
        """Draws the rows of a section; returns the first row that is new."""
        rows, most = self._rows, self._most_new
        if section.start is None:
            section.start = len(rows)
        if section.stream is None:
            fence = self._fence if section is self._sections[0] else ""
            section.stream = MarkdownStream(width - 2, "thinking" if section.is_thought else "text", fence)
            section.unfed = [section.text]
            if section.was_drawn or self.is_finished:
                most = None  # at a new width the whole section is needed at once
            section.was_drawn = True
        if section.unfed:
            text = "".join(section.unfed)
            section.stream.feed(text[:most])
            self.is_behind = most is not None and len(text) > most
            section.unfed = [text[most:]] if self.is_behind else []
        lines = section.stream.update()
        if section.is_thought:
            del rows[section.start :]
            self._draw_thoughts(lines, is_thinking=is_last and not self.is_finished)
            return section.start
        offset = section.start
        if not lines:
            del rows[offset:]
            return offset
        if section is not self._sections[0]:
            if len(rows) == offset:
                rows.append(self._row(EMPTY, is_first=False))
            offset += 1
        first = min(section.stream.first_change, len(rows) - offset)
        del rows[offset + first :]
        for number in range(first, len(lines)):
            rows.append(self._row(lines[number], is_first=not number))
        return offset + first

    def _draw_thoughts(self, lines: Sequence[Line], *, is_thinking: bool) -> None:
        rows = self._rows
        if len(rows) > bool(self.label):
            rows.append(self._row(EMPTY, is_first=False))
        if is_thinking and not self.shows_thoughts:
            hidden = max(len(lines) - _THOUGHTS_SEEN, 0)
            word, shown = "thinking \u2026", lines[hidden:]
        elif self.shows_thoughts:
            word, shown = "thinking \u2026" if is_thinking else "thought", lines
        else:
            count = len([line for line in lines if line.spans])
            word, shown = f"thought \u00b7 {count} line{'' if count == 1 else 's'}", ()
        sign = "\u273b" if is_thinking else "\u25be" if self.shows_thoughts else "\u25b8"
        bar = _PLAN_BAR if self.label else Span(f"{sign} ", "thinking.head")
        head = (bar, Span(word, "thinking.head"))
        rows.append(Line(cut_spans(head, self._width), "", "", 2))
        for line in shown:
            rows.append(self._row(line, is_first=False))

    def _draw_end(self, width: int) -> int:
        """Draws the cursor of an unfinished reply, or why a reply stopped; returns the first row that is new."""
        rows = self._rows
        if not self.is_finished or self.is_behind:
            if not rows:
                rows.append(self._row(EMPTY, is_first=True))
            place = len(rows) - 1
            self._under_cursor = (place, rows[place])
            rows[place] = _with_cursor(rows[place], width)
            return place
        if not self.stopped and not self.note:
            return len(rows)
        role = "error" if self.stopped == "error" else "cancelled"
        sign, word = {"aborted": ("\u2298", "stopped"), "error": ("\u2717", "failed"), "": ("\u00b7", "")}[self.stopped]
        said = ": ".join([part for part in (word, self.note) if part])
        place = len(rows)
        if len(rows) > bool(self.label):
            rows.append(self._row(EMPTY, is_first=False))
        gutter = _PLAN_BAR if self.label else Span(f"{sign} ", role)
        for spans, glue in wrapped_rows(safe(said), min(width, 116) - 2, role):
            rows.append(Line((gutter, *spans), None, glue, 2))
            gutter = _PLAN_BAR if self.label else _NO_SIGN
        return place

    def _row(self, line: Line, *, is_first: bool) -> Line:
        gutter = _PLAN_BAR if self.label else _SIGN if is_first and self._is_first else _NO_SIGN
        return Line((gutter, *line.spans), line.copied, line.glue, line.gutter + 2)


def _with_cursor(line: Line, width: int) -> Line:
    spans = line.spans
    if spans and spans[-1].text.isspace() and spans[-1].role == "code":  # the background of code fills the row
        pad = spans[-1]
        rest = (pad._replace(text=pad.text[1:]),) if len(pad.text) > 1 else ()
        return line._replace(spans=(*spans[:-1], _CURSOR, *rest))
    if width_of(spans) >= width:
        return line
    copied = line.copied
    if copied is None:
        copied = "".join([span.text for span in spans])[line.gutter :]
    return line._replace(spans=(*spans, _CURSOR), copied=copied)
