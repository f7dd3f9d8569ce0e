"""Blocks for the user's prompts and for the program's notices.

Owns the look of prompts (a bar, and a background over the full width) and of notices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import ClassVar, Literal, TypeAlias

from swink_agent.rendering.cells import cell_width, cut

from .block import Block
from .line import Line, Span, cut_spans, padded, plain, safe, safe_row
from .wrapping import Flow

NoticeKind: TypeAlias = Literal["info", "warning", "error", "welcome"]

_MOST_ROWS = 30
_FIRST_ROWS = 12
_LEAST_LABEL = 12
_SIGNS = {"info": "\u00b7", "warning": "!", "error": "\u2717", "welcome": "\u25c6"}


def wrapped_rows(text: str, width: int, role: str) -> list[tuple[tuple[Span, ...], str | None]]:
    """Wraps lines of escaped text into rows, each with its glue to the previous row."""
    rows: list[tuple[tuple[Span, ...], str | None]] = []
    for line in text.split("\n"):
        flow = Flow(width)
        full = [*(flow.add([Span(line, role)]) if line else ()), *flow.end()]
        rows += [(row, " " if number else None) for number, row in enumerate(full)]
    return rows


_TWO_COLUMNS = re.compile(r"  \S(?:.*?\S)? {2,}(?=\S)")
"""A row of a table in a notice: two spaces, a name, a gap."""
_INDENT = 4
_NARROWEST_PART = 58
_WIDEST_PART = 84
"""The narrowest and the widest part, in cells, when parts are shown side by side."""


def _indented_rows(text: str, width: int, role: str) -> list[tuple[tuple[Span, ...], str | None]]:
    """Wraps like `wrapped_rows`. The text after a name stays in its column, or goes below a name that is too wide."""
    rows: list[tuple[tuple[Span, ...], str | None]] = []
    for line in text.split("\n"):
        named = _TWO_COLUMNS.match(line)
        if named is None or cell_width(line) <= width:
            rows += wrapped_rows(line, width, role)
            continue
        name, column = named[0], cell_width(named[0])
        if column > width // 2:
            rows += wrapped_rows(name.rstrip(), width, role)
            name, column = "", _INDENT
        for number, (spans, glue) in enumerate(wrapped_rows(line[named.end() :], width - column, role)):
            before = Span(name if number == 0 and name else " " * column, role)
            rows.append(((before, *spans), glue if number or name else " "))
    return rows


class UserBlock(Block):
    """A prompt. `label` is how it was sent, if not as usual; `position` is its place in the agent's messages."""

    def __init__(self, text: str, *, images: Sequence[str] = (), label: str = "", position: int | None = None) -> None:
        super().__init__()
        self.label = label
        self.images = tuple(images)
        self.position = position
        self._text = text
        self._is_whole = False

    def set_content(self, text: str, images: Sequence[str] = ()) -> None:
        self._text, self.images = text, tuple(images)
        self._changed()

    def _plain(self) -> str:
        return self._text

    def estimated_height(self, width: int) -> int:
        rows = self._text.count("\n") + 1 + len(self._text) // max(width - 3, 8) + len(self.images)
        return min(rows, _MOST_ROWS) + bool(self.label)

    def open(self) -> bool:
        was_folded, self._is_whole = not self._is_whole, True
        if was_folded:
            self._changed()
        return was_folded

    def toggle(self, row: int = 0) -> bool:
        self._is_whole = not self._is_whole
        self._changed()
        return True

    def _draw(self, width: int) -> list[Line]:
        bar = Span("\u258c ", "user.bar")
        lines: list[Line] = []

        def put(spans: Sequence[Span], copied: str | None, glue: str | None) -> None:
            drawn = padded(cut_spans((bar, *spans), width), width, "user")
            lines.append(Line(drawn, copied, glue, 2))

        if self.label:
            put([Span(safe_row(self.label), "user.label")], "", "")
        rows = wrapped_rows(safe(self._text.strip("\n")), width - 3, "user")
        hidden = len(rows) - _FIRST_ROWS if len(rows) > _MOST_ROWS and not self._is_whole else 0
        for spans, glue in rows[: len(rows) - hidden]:
            put(spans, plain(spans), glue)
        if hidden:
            put([Span(f"\u2026 {hidden:,} more lines", "user.label")], "", "")
        for image in self.images:
            put([Span("\u25a3 ", "user.label"), Span(safe_row(image), "user.label")], None, None)
        return lines


class NoticeBlock(Block):
    """A message of the program to the user."""

    def __init__(self, text: str, kind: NoticeKind = "info") -> None:
        super().__init__()
        self.kind: NoticeKind = kind
        self._text = text
        self.is_compact = kind != "welcome"

    def _plain(self) -> str:
        return self._text

    def estimated_height(self, width: int) -> int:
        return self._text.count("\n") + 1 + len(self._text) // max(width - 2, 8)

    def _draw(self, width: int) -> list[Line]:
        lines: list[Line] = []
        first, *rest = _indented_rows(safe(self._text.strip("\n")), min(width, 116) - 2, self.kind)
        if self.kind == "welcome":
            rest = [(tuple([span._replace(role="dim") for span in spans]), glue) for spans, glue in rest]
        for number, (spans, glue) in enumerate([first, *rest]):
            sign = f"{_SIGNS[self.kind]} " if not number else "  "
            indent = 0 if glue is None or spans[0].text.strip() else len(spans[0].text)  # indentation is not copied
            lines.append(Line((Span(sign, self.kind), *spans), None, glue, 2 + indent))
        return lines


class HelpBlock(NoticeBlock):
    """A notice in parts, which are shown side by side if the window is wide enough."""

    WIDEST_COLUMN: ClassVar[int] = 2 * _NARROWEST_PART + 1
    """The greatest width in cells at which two parts are still shown below each other."""

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__("\n\n".join(parts))
        self._parts = parts

    def _draw(self, width: int) -> list[Line]:
        room = min((width - 2) // len(self._parts), _WIDEST_PART)
        if room < _NARROWEST_PART:
            return super()._draw(width)
        columns = [[spans for spans, _ in _indented_rows(safe(part), room - 2, self.kind)] for part in self._parts]
        lines: list[Line] = []
        for number, row in enumerate(zip_longest(*columns, fillvalue=())):
            spans = [span for part in row for span in padded(part, room, self.kind)]
            lines.append(Line((Span("  " if number else f"{_SIGNS[self.kind]} ", self.kind), *spans), None, None, 2))
        return lines


class ChoiceBlock(Block):
    """Choices that the user picks with a key or a click, one per row: the key, a label and a detail."""

    def __init__(self, title: str, rows: Sequence[tuple[str, str, str]], choose: Callable[[int], None]) -> None:
        super().__init__()
        self._title = title
        self._choices = rows
        self._choose = choose

    def _plain(self) -> str:
        return "\n".join([self._title, *[" ".join(row) for row in self._choices]])

    def estimated_height(self, width: int) -> int:
        return 1 + len(self._choices)

    def toggle(self, row: int = 0) -> bool:
        if not 1 <= row <= len(self._choices):
            return False
        self._choose(row - 1)
        return True

    def _draw(self, width: int) -> list[Line]:
        lines = [Line(cut_spans((Span(f"  {safe_row(self._title)}", "dim"),), width), "", "", 2)]
        for key, label, detail in self._choices:
            start, end = f"  {key}  ", f"  {safe_row(detail)}"
            room = max(width - cell_width(start) - cell_width(end), _LEAST_LABEL)
            spans = (Span(start, "tool.name"), Span(cut(safe_row(label), room), "text"), Span(end, "dim"))
            lines.append(Line(cut_spans(spans, width), "", "", 2))
        return lines
