"""What a tool gave back, as lines: a diff, a file, JSON, or what a command printed.

Owns which of these it is, and the tail of what is printed while it runs, which takes bounded room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .diffs import change_lines
from .highlighting import Highlighter, family_of_path
from .line import Line, Span, plain
from .safe import safe
from .wrapping import chopped

__all__ = ["Tail", "change_of", "first_line", "output_lines"]

_MOST_KEPT = 400
_LONGEST_KEPT = 2000


class Tail:
    """The last lines of what is printed, and how many there were before."""

    __slots__ = ("_kept", "_open", "count")

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=_MOST_KEPT)
        self._open = ""
        self.count = 0
        """All lines that have ended."""

    def hear(self, text: str) -> None:
        """More output. A carriage return begins its line anew, as a progress bar does."""
        *whole, rest = (self._open + text.replace("\r\n", "\n")).split("\n")
        for line in whole:
            self._kept.append(_overwritten(line)[:_LONGEST_KEPT])
        self.count += len(whole)
        self._open = rest if len(rest) <= _LONGEST_KEPT else _overwritten(rest)[-_LONGEST_KEPT:]

    def last(self, most: int) -> tuple[list[str], int]:
        """The last lines, and how many are not among them."""
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
    """The first line that says something."""
    for line in text[:4000].split("\n"):
        if line.strip():
            return safe(_overwritten(line).strip())
    return ""


def change_of(details: Mapping[str, Any] | None) -> tuple[str, str, str] | None:
    """Path, text before and text after, of a tool that says what it changed."""
    if details is None:
        return None
    old, new, path = details.get("old"), details.get("new"), details.get("path")
    if isinstance(old, str) and isinstance(new, str) and old != new:
        return (path if isinstance(path, str) else ""), old, new
    return None


def output_lines(name: str, text: str, details: Mapping[str, Any] | None, width: int) -> list[Line]:
    """The whole output as rows of at most so many cells."""
    change = change_of(details)
    if change is not None:
        return change_lines(*change, width)
    body = text.strip("\n")
    if not body:
        return []
    path = details.get("path") if details else None
    if name == "read_file" and isinstance(path, str):
        first = details.get("first_line", 1) if details else 1
        return _numbered(body.split("\n"), family_of_path(path), first if isinstance(first, int) else 1, width)
    from swink_agent.memory.export.highlight import looks_like_diff

    if looks_like_diff(body):
        return _highlighted(body.split("\n"), Highlighter("diff", "tool.output"), width)
    if body[0] in "{[" and body[-1] in "}]":
        return _highlighted(body.split("\n"), Highlighter("json", "tool.output"), width)
    return _highlighted(body.split("\n"), None, width)


def _highlighted(lines: Sequence[str], highlighter: Highlighter | None, width: int) -> list[Line]:
    rows: list[Line] = []
    for raw in lines:
        text = safe(_overwritten(raw))
        spans = (Span(text, "tool.output"),) if highlighter is None else highlighter.line(text)
        for number, row in enumerate(chopped(spans, width)):
            rows.append(Line(row, plain(row), "" if number else None))
    return rows


def _numbered(lines: Sequence[str], language: str, first: int, width: int) -> list[Line]:
    highlighter = Highlighter(language, "tool.output")
    digits = len(str(first + len(lines)))
    rows: list[Line] = []
    for place, raw in enumerate(lines):
        is_note = place == len(lines) - 1 and raw.startswith("[") and raw.endswith("]")
        spans = (Span(safe(raw), "dim"),) if is_note else highlighter.line(safe(raw))
        for number, row in enumerate(chopped(spans, width - digits - 1)):
            shown = f"{first + place:>{digits}} " if not number and not is_note else " " * (digits + 1)
            rows.append(Line((Span(shown, "number"), *row), plain(row), "" if number else None, digits + 1))
    return rows
