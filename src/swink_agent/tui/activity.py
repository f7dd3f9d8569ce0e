"""What runs now, in a few rows: each tool with its time and the newest line that it printed.

Owns the rows of the tool panel. Pure: what there is to say is given, a widget draws it. Whole results are in the
transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width, cut, cut_middle
from swink_agent.rendering.escaping import safe_display

from .transcript.line import Line, Span

__all__ = ["Activity", "activity_lines"]

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MOST = 4
_LEAST_NEWEST = 12
_LONGEST_NAME = 40


class Activity(NamedTuple):
    """One thing that goes on: its name, what it is about, how long already, and its newest output."""

    name: str
    summary: str
    seconds: float
    newest: str = ""


def activity_lines(running: Sequence[Activity], width: int, frame: int | None) -> list[Line]:
    """A row for each, four at most; the rest are counted. `frame` turns the spinner; without it nothing moves."""
    shown = list(running[-_MOST:]) if len(running) <= _MOST else list(running[-(_MOST - 1) :])
    sign = "▸" if frame is None else SPINNER[frame % len(SPINNER)]
    lines = [_line(activity, width, sign) for activity in shown]
    if len(running) > len(shown):
        lines.insert(0, Line((Span(f"  … and {len(running) - len(shown)} more", "dim"),)))
    return lines


def _line(activity: Activity, width: int, sign: str) -> Line:
    name, summary = cut(safe_display(activity.name, 60), _LONGEST_NAME), safe_display(activity.summary, 400)
    took = f" {int(activity.seconds)}s" if activity.seconds >= 1 else ""
    head = [Span(f" {sign} ", "activity"), Span(name, "tool.name")]
    used = sum([cell_width(span.text) for span in head]) + len(took) + 1
    room = max(width - used, 0)
    newest = safe_display(activity.newest, 400) if room >= 2 * _LEAST_NEWEST else ""
    summary = cut_middle(summary, max(room // 2 if newest else room - 1, 1)) if summary else ""
    spans = [*head, Span(f" {summary}" if summary else "", "text"), Span(took, "dim")]
    left = width - sum([cell_width(span.text) for span in spans]) - 4
    if newest and left >= _LEAST_NEWEST:
        spans.append(Span(f" │ {cut(newest, left)}", "dim"))
    return Line(tuple(spans))
