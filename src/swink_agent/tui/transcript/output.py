"""Draws the output of a tool as lines: a diff, a file, JSON, or the output of a command.

Owns the detection of these kinds, and the tail of a running tool's output, whose size is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from swink_agent.rendering.cells import cut
from swink_agent.rendering.checklist import SIGNS, TodoItem
from swink_agent.rendering.turns import changed_texts

from .diffs import Change
from .highlighting import Highlighter, family_of_path
from .line import Line, Span, plain, safe, safe_row
from .wrapping import Flow, chopped

_MOST_KEPT = 400
_LONGEST_KEPT = 2000


class Tail:
    """The last lines of a running tool's output, and the number of all lines."""

    __slots__ = ("_kept", "_open", "count")

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=_MOST_KEPT)
        self._open = ""
        self.count = 0
        """The number of finished lines."""

    def hear(self, text: str) -> None:
        """Adds output. A carriage return overwrites its line, as progress bars do."""
        *whole, rest = (self._open + text.replace("\r\n", "\n")).split("\n")
        for line in whole:
            self._kept.append(_overwritten(line)[:_LONGEST_KEPT])
        self.count += len(whole)
        self._open = rest if len(rest) <= _LONGEST_KEPT else _overwritten(rest)[-_LONGEST_KEPT:]

    def last(self, most: int) -> tuple[list[str], int]:
        """Returns the last lines, and how many came before them."""
        shown = list(self._kept)
        total = self.count
        if self._open.strip():
            shown.append(_overwritten(self._open))
            total += 1
        shown = shown[-most:]
        return shown, total - len(shown)

    @property
    def text(self) -> str:
        return "\n".join(self.last(_MOST_KEPT)[0])


def _overwritten(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


def first_line(text: str) -> str:
    for line in text[:4000].split("\n"):
        if line.strip():
            return safe(_overwritten(line).strip())
    return ""


def change_of(details: Mapping[str, Any] | None) -> Change | None:
    """Returns the change of a file that a tool's details describe, or `None`."""
    texts = changed_texts(details)
    if details is None or texts is None or texts[0] == texts[1]:
        return None
    path = details.get("path")
    return Change(path if isinstance(path, str) else "", *texts)


def output_lines(text: str, details: Mapping[str, Any] | None, width: int) -> list[Line]:
    """Returns the whole output as rows of at most `width` cells."""
    body = text.strip("\n")
    return _drawn(body.split("\n"), 0, body, details, width) if body else []


def preview_lines(text: str, details: Mapping[str, Any] | None, width: int, most: int) -> list[Line]:
    """Returns the start and the end of the output, and between them a row with the number of omitted lines.

    The omitted lines of a long output are not laid out.
    """
    body = text.strip("\n")
    if not body:
        return []
    half = most // 2
    lines = body.split("\n")
    if len(lines) <= most:
        rows = _drawn([line[:_LONGEST_KEPT] for line in lines], 0, body, details, width)
        return rows if len(rows) <= most else [*rows[:half], _omitted_line(len(rows) - most, width), *rows[-half:]]
    head = _drawn([line[:_LONGEST_KEPT] for line in lines[:half]], 0, body, details, width)
    last = [line[:_LONGEST_KEPT] for line in lines[-half:]]
    tail = _drawn(last, len(lines) - half, body, details, width)
    return [*head[:half], _omitted_line(len(lines) - 2 * half, width), *tail[-half:]]


def preview_of_change(change: Change, width: int, most: int) -> list[Line]:
    """Returns the start of a change, and a row with the number of further lines."""
    hidden = change.size - most
    if hidden <= 1:
        return change.lines(width)
    return [*change.lines(width, most), _omitted_line(hidden, width)]


def checklist_lines(items: Sequence[TodoItem], width: int) -> list[Line]:
    """Returns the rows of a list of things to do, one or more for each item."""
    rows: list[Line] = []
    for item in items:
        role = {"done": "dim", "in_progress": "tool.name"}.get(item.status, "tool.output")
        flow = Flow(max(width - 4, 4))
        for number, row in enumerate([*flow.add([Span(safe_row(item.text), role)]), *flow.end()]):
            sign = Span("    " if number else f"{SIGNS[item.status]} ", role)
            rows.append(Line((sign, *row), None, " " if number else None, 4 if number else 0))
    return rows


def _omitted_line(count: int, width: int) -> Line:
    return Line((Span(cut(f"\u2026 {count:,} more lines", width), "dim"),), "", "")


def _drawn(lines: Sequence[str], before: int, body: str, details: Mapping[str, Any] | None, width: int) -> list[Line]:
    """Draws some lines of an output; `before` is the number of lines above them."""
    path, first, last = [(details or {}).get(name) for name in ("path", "first_line", "last_line")]
    if isinstance(path, str) and isinstance(first, int):  # lines of a file
        return _numbered(lines, family_of_path(path), before + first, last, width)
    from swink_agent.rendering.highlight import looks_like_diff

    if looks_like_diff(body):
        return _highlighted(lines, Highlighter("diff", "tool.output"), width)
    if body[0] in "{[" and body[-1] in "}]":
        return _highlighted(lines, Highlighter("json", "tool.output"), width)
    return _highlighted(lines, None, width)


def _highlighted(lines: Sequence[str], highlighter: Highlighter | None, width: int) -> list[Line]:
    rows: list[Line] = []
    for raw in lines:
        text = safe(_overwritten(raw))
        spans = (Span(text, "tool.output"),) if highlighter is None else highlighter.line(text)
        for number, row in enumerate(chopped(spans, width)):
            rows.append(Line(row, plain(row), "" if number else None))
    return rows


def _numbered(lines: Sequence[str], language: str, first: int, last: object, width: int) -> list[Line]:
    """Draws lines of a file with their numbers. Text after its `last` line is a note of the tool."""
    highlighter = Highlighter(language, "tool.output")
    digits = len(str(first + len(lines)))
    rows: list[Line] = []
    for place, raw in enumerate(lines):
        is_note = isinstance(last, int) and first + place > last
        spans = (Span(safe(raw), "dim"),) if is_note else highlighter.line(safe(raw))
        for number, row in enumerate(chopped(spans, width - digits - 1)):
            shown = f"{first + place:>{digits}} " if not number and not is_note else " " * (digits + 1)
            rows.append(Line((Span(shown, "number"), *row), plain(row), "" if number else None, digits + 1))
    return rows
