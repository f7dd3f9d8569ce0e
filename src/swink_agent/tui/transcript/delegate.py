"""A delegate under the call that runs it: one row with its progress and cost, or all of its calls.

Owns what is shown of a delegate. `narration` fills it from events, and `tool` draws it inside the call's block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from swink_agent.app.runs import telling
from swink_agent.rendering.cells import cell_width, cut, cut_middle

from .line import Line, Span, cut_spans, safe_row

CallStatus: TypeAlias = Literal["asking", "running", "done", "failed"]

_GLYPHS: dict[str, str] = {"asking": "?", "running": "\u25cf", "done": "\u2713", "failed": "\u2717"}
_LONGEST_NAME = 40


class DelegateCall:
    """One call of a delegate, with the calls of the delegate that it runs itself."""

    __slots__ = ("calls", "id", "name", "seconds", "status", "summary")

    def __init__(self, call_id: str, name: str, summary: str) -> None:
        self.id = call_id
        self.name = name
        self.summary = summary
        self.status: CallStatus = "running"
        self.seconds: float | None = None
        self.calls: list[DelegateCall] = []

    @property
    def is_open(self) -> bool:
        return self.status in ("asking", "running")


class DelegateProgress:
    """What a delegate has done and used so far. Texts are masked before they come here."""

    __slots__ = ("calls", "dollars", "is_over", "tokens")

    def __init__(self) -> None:
        self.calls: list[DelegateCall] = []
        self.tokens = 0
        self.dollars = 0.0
        self.is_over = False

    def newest(self) -> DelegateCall | None:
        """The call that is running, the innermost and newest; one that waits for the user goes first."""
        running = [call for call, _ in _all(self.calls) if call.is_open]
        asking = [call for call in running if call.status == "asking"]
        return (asking or running or [None])[-1]

    @property
    def counted(self) -> str:
        """The number of calls, the tokens and the cost, in a few words."""
        count = sum([1 for _ in _all(self.calls)])
        parts = [f"{count:,} call{'' if count == 1 else 's'}"]
        if self.tokens:
            parts.append(telling.tokens(self.tokens))
        if self.dollars:
            parts.append(telling.dollars(self.dollars))
        return " \u00b7 ".join(parts)

    def row(self, width: int) -> Line:
        """The folded delegate: what it has used, and what it does now."""
        now = "" if self.is_over else "thinking"
        if not self.is_over and (call := self.newest()) is not None:
            waits = "waits for you: " if call.status == "asking" else ""
            now = f"{waits}{_shown(call)}"
        text = f"\u25b8 {self.counted}"
        if now:
            text += f" \u00b7 {cut_middle(now, max(width - cell_width(text) - 3, 8))}"
        return Line((Span(cut(text, width), "dim"),), text, None)

    def rows(self, width: int) -> list[Line]:
        """The opened delegate: what it has used, and each of its calls."""
        head = f"\u25be {self.counted}"
        lines = [Line((Span(cut(head, width), "dim"),), head, None)]
        for call, depth in _all(self.calls):
            sign = Span(f"{'  ' * (depth + 1)}{_GLYPHS[call.status]} ", call.status)
            took = "" if call.seconds is None else f" {telling.seconds(call.seconds)}"
            text = cut_middle(_shown(call), max(width - cell_width(sign.text) - len(took), 8))
            spans = (sign, Span(text, "tool.summary"), Span(took, "dim"))
            lines.append(Line(cut_spans([span for span in spans if span.text], width), f"{text}{took}", None))
        return lines


def _all(calls: list[DelegateCall], depth: int = 0) -> Iterator[tuple[DelegateCall, int]]:
    for call in calls:
        yield call, depth
        yield from _all(call.calls, depth + 1)


def _shown(call: DelegateCall) -> str:
    return f"{cut(safe_row(call.name), _LONGEST_NAME)} {safe_row(call.summary)}".rstrip()
