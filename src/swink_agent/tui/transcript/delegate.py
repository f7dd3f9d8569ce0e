"""A delegate under the call that runs it: one row with its progress and cost, or all of its calls.

Owns how a delegate is drawn. `app.talk.delegates` collects its progress; `tool` puts these rows into the call's block.
"""

from __future__ import annotations

from swink_agent.app.runs import telling
from swink_agent.app.talk.delegates import DelegateCall, DelegateProgress
from swink_agent.rendering.cells import cell_width, cut, cut_middle

from .line import Line, Span, cut_spans, safe_row

_GLYPHS: dict[str, str] = {"asking": "?", "running": "\u25cf", "done": "\u2713", "failed": "\u2717"}
_LONGEST_NAME = 40


def delegate_row(progress: DelegateProgress, width: int) -> Line:
    """Returns the row of a folded delegate: its usage, and its current call."""
    now = "" if progress.is_over else "thinking"
    if not progress.is_over and (call := progress.newest()) is not None:
        waits = "waits for you: " if call.status == "asking" else ""
        now = f"{waits}{_shown(call)}"
    text = f"\u25b8 {progress.counted}"
    if now:
        text += f" \u00b7 {cut_middle(now, max(width - cell_width(text) - 3, 8))}"
    return Line((Span(cut(text, width), "dim"),), text, None)


def delegate_rows(progress: DelegateProgress, width: int) -> list[Line]:
    """Returns the rows of an opened delegate: its usage, and each of its calls."""
    head = f"\u25be {progress.counted}"
    lines = [Line((Span(cut(head, width), "dim"),), head, None)]
    for call, depth in progress.every():
        sign = Span(f"{'  ' * (depth + 1)}{_GLYPHS[call.status]} ", call.status)
        took = "" if call.seconds is None else f" {telling.seconds(call.seconds)}"
        text = cut_middle(_shown(call), max(width - cell_width(sign.text) - len(took), 8))
        spans = (sign, Span(text, "tool.summary"), Span(took, "dim"))
        lines.append(Line(cut_spans([span for span in spans if span.text], width), f"{text}{took}", None))
    return lines


def _shown(call: DelegateCall) -> str:
    return f"{cut(safe_row(call.name), _LONGEST_NAME)} {safe_row(call.summary)}".rstrip()
