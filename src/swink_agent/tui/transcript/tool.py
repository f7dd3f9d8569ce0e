"""A tool call as a block: open while it runs, then one line that can be opened.

Owns the state of a call as a reader sees it, its badge, and how much of the output shows when. What the output looks
like is in `output`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from swink_agent.core.types import ToolOutcome
from swink_agent.rendering.cells import cell_width, cut, cut_middle

from .block import Block
from .diffs import Change
from .line import Line, Span, cut_spans, plain
from .output import Tail, change_of, first_line, output_lines, preview_lines, preview_of_change
from .safe import safe, safe_row
from .wrapping import Flow

__all__ = ["ShellBlock", "ToolBlock", "ToolStatus"]

ToolStatus: TypeAlias = Literal["waiting", "asking", "running", "done", "failed", "rejected", "cancelled"]

_SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_GLYPHS: dict[str, str] = {
    "waiting": "\u25cb",
    "asking": "?",
    "running": "\u25cf",
    "done": "\u2713",
    "failed": "\u2717",
    "rejected": "\u2298",
    "cancelled": "\u2298",
}
_STATUSES: dict[ToolOutcome, ToolStatus] = {
    ToolOutcome.RAN: "done",
    ToolOutcome.REJECTED: "rejected",
    ToolOutcome.SKIPPED: "rejected",
    ToolOutcome.CANCELLED: "cancelled",
    ToolOutcome.NEVER_RAN: "cancelled",
}
_WORDS: dict[ToolOutcome, str] = {
    ToolOutcome.INVALID: "invalid arguments",
    ToolOutcome.UNKNOWN_TOOL: "unknown tool",
    ToolOutcome.SKIPPED: "skipped",
    ToolOutcome.INCOMPLETE: "incomplete",
    ToolOutcome.LOST: "outcome unknown",
    ToolOutcome.NEVER_RAN: "never ran",
}
_TAIL_ROWS = 8
_PREVIEW_ROWS = 16
_PREVIEW_OF_CHANGE = 40
_SUMMARY_ROWS = 3
_LONGEST_SUMMARY = 4000
_WIDEST_HEAD = 116
"""Cells after which how a call stands is no longer seen beside what it is about."""


class ToolBlock(Block):
    """One call. `finish` leaves it open; whoever draws folds it a little later, unless it was opened by hand."""

    is_selectable = True

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
        self._is_open = True
        self._word = ""
        self._output = ""
        self._details: Mapping[str, Any] | None = None
        self._change: Change | None = None
        self._tail = Tail()
        self._beat: int | None = None

    # -- what happens ----------------------------------------------------------------------------------------------

    def set_summary(self, summary: str) -> None:
        """Says anew what the call is about, when its arguments were changed."""
        self.summary = summary
        self._changed()

    def ask(self) -> None:
        """A person is being asked whether it may run."""
        self.status = "asking"
        self._changed()

    def begin(self) -> None:
        """It runs."""
        self.status, self.began = "running", time.monotonic()
        self._changed()

    def hear(self, text: str) -> None:
        """It has printed something."""
        if text:
            self._tail.hear(text)
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
        """It has ended. `details` with `path`, `old` and `new` show as a change of a file."""
        status = _STATUSES.get(outcome, "failed")
        self.status = "failed" if status == "done" and is_error else status
        self._word = _WORDS.get(outcome, self.status)
        self.seconds, self._details, self._change = seconds, details, change_of(details)
        self._output = text if text.strip() else self._tail.text
        self._tail = Tail()
        self._changed()

    def fold(self) -> None:
        """Makes one line of it, unless somebody opened it or it still runs."""
        if self._is_open and self.is_finished and not self.opened_by_hand:
            self._is_open = False
            self._changed()

    def beat(self, number: int | None) -> None:
        """Moves the sign of a call that runs; `None` holds it still."""
        if self._beat != number and self.status == "running":
            self._beat = number
            self._changed()

    # -- what is asked ---------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self.status in ("done", "failed", "rejected", "cancelled")

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_compact(self) -> bool:
        return not self._is_open

    @property
    def newest(self) -> str:
        """The newest line of the output of a call that runs."""
        last, _ = self._tail.last(1)
        return safe(last[0].strip()) if last else ""

    def open(self) -> bool:
        if self._is_open and (self.opened_by_hand or not self.is_finished):
            return False
        self._is_open = self.opened_by_hand = True
        self._changed()
        return True

    def toggle(self, row: int = 0) -> bool:
        self.opened_by_hand = self._is_open = not (self._is_open and (self.opened_by_hand or not self.is_finished))
        self._changed()
        return True

    def _plain(self) -> str:
        body = self._output if self.is_finished else self._tail.text
        if self._change is not None:
            body = f"{body}\n{self._change.text}"
        return f"{self.name} {self.summary}\n{body}"

    def estimate_size(self, characters: int) -> None:
        """A call of an older conversation is one line, however long its result."""

    def estimated_height(self, width: int) -> int:
        if not self._is_open:
            return 1
        return 2 + min(self._output.count("\n") + len(self._output) // max(width, 8), _PREVIEW_ROWS)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _draw(self, width: int) -> list[Line]:
        if not self._is_open:
            return [self._folded(width)]
        return [*self._head(width), *self._body(width)]

    def _sign(self) -> Span:
        glyph = _GLYPHS[self.status]
        if self.status == "running" and self._beat is not None:
            glyph = _SPINNER[self._beat % len(_SPINNER)]
        return Span(f"{glyph} ", self.status)

    def _named(self) -> list[Span]:
        label = [Span(f"{safe_row(self.label)} ", "plan")] if self.label else []
        return [*label, Span(cut(safe_row(self.name), 40), "tool.name")]

    def _badge(self) -> str:
        match self.status:
            case "asking":
                return "waits for you"
            case "running":
                took = 0 if self.began is None or self._beat is None else int(time.monotonic() - self.began)
                return f"running {took} s" if took else "running"
            case "waiting":
                return "waiting"
            case _:
                return f"{self._word} {_seconds(self.seconds)}" if self.seconds is not None else self._word

    def _folded(self, width: int) -> Line:
        head = [self._sign(), *self._named()]
        badge = f"  {self._badge()}"
        counted = f"  {self._change.summary}" if self._change else ""
        room = width - sum([cell_width(span.text) for span in head]) - len(badge) - len(counted) - 1
        output = "" if self._change else first_line(self._output)
        summary = safe_row(self.summary[:_LONGEST_SUMMARY])
        wanted = cell_width(summary)
        if wanted > room:
            summary = cut_middle(summary, max(room * 3 // 5 if output and room > 30 else room, 0))
        spans = [*head, Span(f" {summary}", "tool.summary"), Span(counted, "dim"), Span(badge, self.status)]
        left = width - sum([cell_width(span.text) for span in spans]) - 3
        if output and left > 8:
            spans += [Span(" \u2502 ", "tool.bar"), Span(cut(output, left), "tool.output")]
        copied = " ".join(f"{self.name} {summary} {self._badge()} {output}".split())
        return Line(cut_spans([span for span in spans if span.text], width), copied, None, 2)

    def _head(self, width: int) -> list[Line]:
        """Sign, name, what it is about, and at the right how it stands."""
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
        elif self.is_finished and self.opened_by_hand:
            rows = output_lines(self.name, self._output, self._details, room)
        elif self.is_finished:
            rows = preview_lines(self.name, self._output, self._details, room, _PREVIEW_ROWS)
        else:
            last, before = self._tail.last(_TAIL_ROWS)
            rows = [_note(f"\u2026 {before:,} earlier line{'' if before == 1 else 's'}", room)] if before else []
            rows += [Line((Span(cut(safe(line), room), "tool.output"),), line) for line in last]
        bar = Span("  \u2502 ", "tool.bar")
        return [Line((bar, *row.spans), row.copied, row.glue, row.gutter + 4) for row in rows]


def _note(text: str, width: int) -> Line:
    return Line((Span(cut(text, width), "dim"),), "", "")


def _seconds(count: float) -> str:
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 60:
        return f"{count:.1f} s"
    return f"{count / 60:.0f} min" if count < 3600 else f"{count / 3600:.1f} h"


class ShellBlock(ToolBlock):
    """A command of the user's own, which they began with `!`."""

    def _named(self) -> list[Span]:
        return [Span("!", "shell")]
