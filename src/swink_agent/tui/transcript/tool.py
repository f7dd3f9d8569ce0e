"""A tool call as a block: open while it runs, then folded to one line that the user can open.

Owns the visible state of a call, its badge, how much of its output is shown, and runs: consecutive folded calls of the
same tool share one row, which the first of them draws. `output` draws the output.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

from swink_agent.app.runs import telling
from swink_agent.app.talk.delegates import DelegateProgress
from swink_agent.core.types import ToolOutcome
from swink_agent.rendering.cells import cell_width, cut, cut_middle
from swink_agent.rendering.checklist import TodoItem, checklist, todo_of

from .block import Block
from .delegate import delegate_row, delegate_rows
from .diffs import Change
from .line import Line, Span, cut_spans, plain, safe, safe_row, width_of
from .output import Tail, change_of, checklist_lines, first_line, output_lines, preview_lines, preview_of_change
from .wrapping import Flow

ToolStatus: TypeAlias = Literal["waiting", "asking", "running", "done", "failed", "rejected", "cancelled"]

SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_GLYPHS = dict(zip(get_args(ToolStatus), "\u25cb?\u25cf\u2713\u2717\u2298\u2298", strict=True))
_STATUSES: dict[ToolOutcome, ToolStatus] = {
    ToolOutcome.RAN: "done",
    ToolOutcome.REJECTED: "rejected",
    ToolOutcome.SKIPPED: "rejected",
    ToolOutcome.CANCELLED: "cancelled",
    ToolOutcome.NEVER_RAN: "cancelled",
    ToolOutcome.PENDING: "asking",
}
_WORDS: dict[ToolOutcome, str] = {
    ToolOutcome.INVALID: "invalid arguments",
    ToolOutcome.UNKNOWN_TOOL: "unknown tool",
    ToolOutcome.SKIPPED: "skipped",
    ToolOutcome.INCOMPLETE: "incomplete",
    ToolOutcome.LOST: "outcome unknown",
    ToolOutcome.NEVER_RAN: "never ran",
    ToolOutcome.PENDING: "waits for an answer",
}
_TAIL_ROWS = 8
_PREVIEW_ROWS = 16
_PREVIEW_OF_CHANGE = 40
_OPEN_CHANGE = 30
"""A change with at most this many lines stays open."""
_SUMMARY_ROWS = 3
_LONGEST_SUMMARY = 4000
_WIDEST_HEAD = 116
"""The widest head in cells: farther right, the badge would be too far from the summary."""
_WIDEST_IN_RUN = 32
"""Cells for the summary of one call of a run."""


class ToolBlock(Block):
    """One call. `finish` leaves it open; the view folds it a little later, unless the user opened it."""

    is_selectable = True
    joins_runs = True
    """Whether it may share a row with calls of the same tool."""

    def __init__(self, call_id: str, name: str, summary: str, *, label: str = "") -> None:
        super().__init__()
        self.call_id = call_id
        self.name = name
        self.summary = summary
        self.label = label
        self.status: ToolStatus = "waiting"
        self.opened_by_hand = False
        self.began: float | None = None
        self.seconds: float | None = None
        self.is_pending = False
        """Whether it waits for an answer that may come in another run."""
        self.is_open = True
        self._is_apart = False
        """Whether the user opened the run that the call was in."""
        self._was_joinable = False
        self._word = ""
        self._output = ""
        self._details: Mapping[str, Any] | None = None
        self._change: Change | None = None
        self._todo: tuple[TodoItem, ...] = ()
        self._tail = Tail()
        self._beat: int | None = None
        self.delegate: DelegateProgress | None = None
        """The progress of the delegate that the call runs; `None` without a delegate."""

    # -- changes ---------------------------------------------------------------------------------------------------

    def set_summary(self, summary: str) -> None:
        """Replaces the summary after the arguments were changed."""
        self.summary = summary
        self._changed()

    def ask(self) -> None:
        """Notes that the user is being asked whether the call may run."""
        self.status, self.is_pending = "asking", False
        self._changed()

    def begin(self) -> None:
        self.status, self.began, self.is_pending = "running", time.monotonic(), False
        self._changed()

    def hear(self, text: str) -> None:
        if text:
            self._tail.hear(text)
            self._changed()

    def show_delegate(self, progress: DelegateProgress) -> None:
        """Shows the progress of the call's delegate. Call it again after each change of `progress`."""
        self.delegate = progress
        self._changed()

    def finish(
        self,
        outcome: ToolOutcome,
        text: str,
        *,
        is_error: bool,
        details: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Notes that the call has ended. `details` with `path`, `old` and `new` are shown as a change of a file.

        `seconds` is 0.0 for a call that never started, and is not shown then.
        """
        status = _STATUSES.get(outcome, "failed")
        self.status = "failed" if status == "done" and is_error else status
        self.is_pending = outcome is ToolOutcome.PENDING
        self._word = _WORDS.get(outcome, self.status)
        self.seconds, self._details, self._change = seconds or None, details, change_of(details)
        self._todo = todo_of(self.name, details) or () if self.status == "done" else ()
        self._output = text if text.strip() else self._tail.text
        self._tail = Tail()
        self._changed()

    def fold(self) -> None:
        """Folds the call to one line, unless the user opened it or it still runs."""
        if self.is_open and self.is_finished and not self.opened_by_hand:
            self.is_open = False
            self._changed()

    def beat(self, number: int | None) -> None:
        """Sets the step of the running call's animated sign; `None` shows it without animation."""
        if self._beat != number and self.status == "running":
            self._beat = number
            self._changed()

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self.is_pending or self.status in ("done", "failed", "rejected", "cancelled")

    @property
    def stays_open(self) -> bool:
        """Whether the call is not folded automatically: a change of a file that is short enough to stay readable."""
        return self.status == "done" and self._change is not None and self._change.size <= _OPEN_CHANGE

    @property
    def _shown_output(self) -> str:
        return checklist(self._todo) if self._todo else self._output

    @property
    def is_compact(self) -> bool:
        return not self.is_open

    @property
    def newest(self) -> str:
        last, _ = self._tail.last(1)
        return safe(last[0].strip()) if last else ""

    def open(self) -> bool:
        if self.is_open and (self.opened_by_hand or not self.is_finished):
            return False
        self.is_open = self.opened_by_hand = True
        self._changed()
        return True

    def toggle(self, row: int = 0) -> bool:
        """Opens or folds the call. A run opens into single calls; folding the first of them folds the run again."""
        if len(run := self._run()) > 1:
            _set_apart(run, True)
            return True
        self.opened_by_hand = self.is_open = not (self.is_open and (self.opened_by_hand or not self.is_finished))
        self._changed()
        if self._is_apart and not self.is_open and not (self._is_like(self.before) and self.before._is_apart):
            _set_apart(self._apart(), False)
        return True

    # -- runs ------------------------------------------------------------------------------------------------------

    @property
    def is_hidden(self) -> bool:
        return self._is_joined_to(self.before)

    @property
    def opens_by_key(self) -> bool:
        return not self.is_hidden

    @property
    def _is_joinable(self) -> bool:
        return self.joins_runs and self.status == "done" and not self.is_open and not self._is_apart

    def _is_like(self, other: Block | None) -> TypeGuard[ToolBlock]:
        return isinstance(other, ToolBlock) and (other.name, other.label) == (self.name, self.label)

    def _is_joined_to(self, other: Block | None) -> bool:
        return self._is_joinable and self._is_like(other) and other._is_joinable

    def _run(self) -> list[ToolBlock]:
        """Returns the calls that this call's row represents: itself and the following calls that are joined to it."""
        run: list[ToolBlock] = [self]
        while self._is_joined_to(following := run[-1].after) and self._is_like(following):
            run.append(following)
        return run

    def _apart(self) -> list[ToolBlock]:
        """Returns this call and the following ones that were in an opened run with it."""
        run: list[ToolBlock] = [self]
        while self._is_like(following := run[-1].after) and following._is_apart:
            run.append(following)
        return run

    def _changed(self) -> None:
        super()._changed()
        if self._was_joinable != self._is_joinable:
            self._was_joinable = self._is_joinable
            first = self.before
            while first is not None and first.is_hidden:
                first = first.before
            for neighbour in (first, self.after):
                if self._is_like(neighbour):
                    neighbour.redraw()

    def redraw(self) -> None:
        """Lays the block out again, after a neighbour has changed."""
        self._was_joinable = self._is_joinable
        super()._changed()

    def _plain(self) -> str:
        body = self._shown_output if self.is_finished else self._tail.text
        if self.delegate is not None:
            body = "\n".join([*[line.copied or "" for line in delegate_rows(self.delegate, _WIDEST_HEAD)], body])
        if self._change is not None:
            body = f"{body}\n{self._change.text}"
        return f"{self.name} {self.summary}\n{body}"

    def estimated_height(self, width: int) -> int:
        if not self.is_open:
            return 0 if self.is_hidden else 1
        return 2 + min(self._output.count("\n") + len(self._output) // max(width, 8), _PREVIEW_ROWS)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _draw(self, width: int) -> list[Line]:
        if self.is_hidden:
            return []
        if not self.is_open:
            run = self._run()
            return [self._folded(width) if len(run) == 1 else self._folded_run(run, width)]
        return [*self._head(width), *self._body(width)]

    def _sign(self) -> Span:
        glyph = _GLYPHS[self.status]
        if self.status == "running" and self._beat is not None:
            glyph = SPINNER[self._beat % len(SPINNER)]
        return Span(f"{glyph} ", self.status)

    def _named(self) -> list[Span]:
        label = [Span(f"{safe_row(self.label)} ", "plan")] if self.label else []
        return [*label, Span(cut(safe_row(self.name), 40), "tool.name")]

    def _badge(self) -> str:
        match self.status:
            case "asking":
                return self._word if self.is_pending else "waits for you"
            case "running":
                took = 0 if self.began is None or self._beat is None else int(time.monotonic() - self.began)
                return f"running {took} s" if took else "running"
            case "waiting":
                return "waiting"
            case _:
                return f"{self._word} {telling.seconds(self.seconds)}" if self.seconds is not None else self._word

    def _folded(self, width: int) -> Line:
        """Draws the sign, the name, the summary, the beginning of the output, and the badge at the right."""
        head = [self._sign(), *self._named()]
        badge = self._badge()
        edge = min(width, _WIDEST_HEAD)
        counted = f"  {self._change.summary}" if self._change else ""
        if self.delegate is not None:
            counted = f"  {self.delegate.counted}"
        room = edge - sum([cell_width(span.text) for span in head]) - len(badge) - len(counted) - 3
        output = "" if self._change or self._todo else first_line(self._output)
        summary = safe_row(self.summary[:_LONGEST_SUMMARY])
        if cell_width(summary) > room:
            summary = cut_middle(summary, max(room * 3 // 5 if output and room > 30 else room, 0))
        spans = [*head, Span(f" {summary}", "tool.summary"), Span(counted, "dim")]
        left = edge - sum([cell_width(span.text) for span in spans]) - len(badge) - 5
        if output and left > 8:
            spans += [Span(" \u2502 ", "tool.bar"), Span(cut(output, left), "tool.output")]
        used = sum([cell_width(span.text) for span in spans])
        spans += [Span(" " * max(edge - used - len(badge), 1), "tool"), Span(badge, self.status)]
        copied = " ".join(f"{self.name} {summary} {self._badge()} {output}".split())
        return Line(cut_spans([span for span in spans if span.text], width), copied, None, 2)

    def _folded_run(self, run: Sequence[ToolBlock], width: int) -> Line:
        """Draws the sign, the name, the number of calls, the summaries that fit, and the total time at the right."""
        counted = f" \u00d7{len(run):,}"
        head = [self._sign(), *self._named(), Span(counted, "tool.name")]
        known = [call.seconds for call in run if call.seconds is not None]
        badge = f"{self._word} {telling.seconds(sum(known))}" if known else self._word
        edge = min(width, _WIDEST_HEAD)
        room = edge - width_of(head) - len(badge) - 2
        about = _listed([safe_row(call.summary[:_LONGEST_SUMMARY]) for call in run], room)
        spans = [*head, *([Span(f" {about}", "tool.summary")] if about else [])]
        spans += [Span(" " * max(edge - width_of(spans) - len(badge), 1), "tool"), Span(badge, self.status)]
        copied = " ".join(f"{self.name}{counted} {about} {badge}".split())
        return Line(cut_spans(spans, width), copied, None, 2)

    def _head(self, width: int) -> list[Line]:
        """Draws the sign, the name, the summary, and the badge at the right."""
        badge = self._badge()
        start = [self._sign(), *self._named(), Span(" ", "tool")]
        room = min(width, _WIDEST_HEAD) - 2
        flow = Flow(room - len(badge) - 2)
        summary = [Span(safe_row(self.summary[:_LONGEST_SUMMARY]), "tool.summary")] if self.summary.strip() else []
        rows = [*flow.add([*start[1:], *summary]), *flow.end()]
        if len(rows) > _SUMMARY_ROWS and not self.opened_by_hand:
            last = cut(f"{plain(rows[_SUMMARY_ROWS - 1])} \u2026\u2026", max(room - len(badge) - 4, 8))
            rows = [*rows[: _SUMMARY_ROWS - 1], (Span(last.rstrip("\u2026") + "\u2026", "tool.summary"),)]
        lines: list[Line] = []
        for number, row in enumerate(rows):
            spans = [start[0] if not number else Span("  ", "tool"), *row]
            text = plain(row)
            if not number:
                used = sum([cell_width(span.text) for span in spans])
                edge = max(min(width, _WIDEST_HEAD), used + len(badge) + 2)
                spans += [Span(" " * max(edge - used - len(badge), 1), "tool"), Span(badge, self.status)]
            lines.append(Line(cut_spans(spans, width), text.rstrip(), " " if number else None, 2))
        return lines

    def _body(self, width: int) -> list[Line]:
        room = max(width - 4, 8)
        rows: Sequence[Line]
        if self.is_finished and self._change is not None:
            is_whole = self.opened_by_hand
            change = self._change
            rows = change.lines(room) if is_whole else preview_of_change(change, room, _PREVIEW_OF_CHANGE)
        elif self._todo:
            rows = checklist_lines(self._todo, room)
        elif self.is_finished and self.opened_by_hand:
            rows = output_lines(self._output, self._details, room)
        elif self.is_finished:
            rows = preview_lines(self._output, self._details, room, _PREVIEW_ROWS)
        else:
            last, before = self._tail.last(_TAIL_ROWS)
            rows = [_note(f"\u2026 {before:,} earlier line{'' if before == 1 else 's'}", room)] if before else []
            rows += [Line((Span(cut(safe(line), room), "tool.output"),), line) for line in last]
        if self.delegate is not None:
            shown = delegate_rows(self.delegate, room) if self.opened_by_hand else [delegate_row(self.delegate, room)]
            rows = [*shown, *rows]
        bar = Span("  \u2502 ", "tool.bar")
        return [Line((bar, *row.spans), row.copied, row.glue, row.gutter + 4) for row in rows]


def _note(text: str, width: int) -> Line:
    return Line((Span(cut(text, width), "dim"),), "", "")


def _set_apart(run: Sequence[ToolBlock], is_apart: bool) -> None:
    """Opens a run into single rows, or joins them into one row again."""
    for block in run:
        block._is_apart = is_apart  # pyright: ignore[reportPrivateUsage]
    for block in run:
        block.redraw()


def _listed(names: Sequence[str], room: int) -> str:
    """Joins the names that fit, each once, with an ellipsis for the rest."""
    distinct = list(dict.fromkeys([cut_middle(name, _WIDEST_IN_RUN) for name in names if name.strip()]))
    if cell_width(whole := ", ".join(distinct)) <= room:
        return whole
    listed = ""
    for name in distinct:
        if cell_width(f"{listed}{name}, \u2026") > room:
            break
        listed += f"{name}, "
    return f"{listed}\u2026" if listed else ""


class ShellBlock(ToolBlock):
    """A shell command that the user ran with `!`."""

    joins_runs = False

    def _named(self) -> list[Span]:
        return [Span("!", "shell")]
