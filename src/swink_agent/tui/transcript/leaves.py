"""The leaves of a Markdown document, which hold the text: paragraphs and code, laid out as they stream in.

Owns which of their rows are final. A leaf passes its rows to `emit`; `markdown` adds the indentation of lists and
quotes. Tables are in `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple, TypeAlias

from swink_agent.rendering.block_marks import Fence

from .highlighting import Highlighter
from .inline_markup import inline_spans, settled_length
from .line import Span, padded, plain
from .wrapping import Flow, chopped

PIECE = 1024
"""Longer lines and paragraphs are laid out in pieces of this many characters, which bounds repeated work."""
_LONGEST_MARKED = 4 * PIECE
"""The longest text that waits for the end of its emphasis, code or link before it is laid out."""


class Row(NamedTuple):
    """A row of a leaf, before bars and bullets are added."""

    spans: tuple[Span, ...]
    copied: str | None = None
    glue: str | None = None
    gutter: int = 0


Emit: TypeAlias = Callable[[Row], None]


class Paragraph:
    """Wrapped text; also a heading, which is a paragraph of one line."""

    __slots__ = (
        "_continues_line",
        "_due",
        "_flow",
        "_is_begun",
        "_is_hard",
        "_pending",
        "_references",
        "_role",
        "_size",
        "kind",
    )

    def __init__(self, width: int, role: str, references: Mapping[str, str], kind: str = "paragraph") -> None:
        self.kind = kind
        self._references = references
        self._flow = Flow(width)
        self._role = role
        self._pending: list[str] = []
        self._size = 0
        self._due = PIECE
        """The size above which a part is laid out."""
        self._is_hard = False
        self._is_begun = False
        """Whether a part of the paragraph has been laid out."""
        self._continues_line = False
        """Whether the next row belongs to the same line of text as the last."""

    def copy(self) -> Paragraph:
        twin = copy(self)
        twin._flow, twin._pending = copy(self._flow), list(self._pending)
        return twin

    @property
    def last_line(self) -> str:
        """The line that was added last, if it has not been laid out yet."""
        return self._pending[-1].lstrip() if self._pending else ""

    @property
    def only_line(self) -> str:
        """The text, if it is one line and has not been laid out yet; else empty."""
        return self._pending[0].strip() if len(self._pending) == 1 and not self._is_begun else ""

    def take_last(self) -> bool:
        """Removes the last line; returns whether it was the only one."""
        self._pending.pop()
        return not self._pending and not self._is_begun

    def add(self, text: str, emit: Emit, *, is_more: bool, is_last: bool) -> None:
        """Adds a line, or another piece (`is_more`) of the last line."""
        if self._size + len(text) > self._due:
            self._flush_settled(emit)
        if is_more:
            joint = ""
        elif self._pending or self._is_begun:
            joint = "\n" if self._is_hard else " "
        else:
            joint = ""
        self._is_hard = False
        if is_last:
            kept = text.rstrip()
            self._is_hard = text.endswith("  ")
            if kept.endswith("\\") and not kept.endswith("\\\\"):
                kept, self._is_hard = kept[:-1].rstrip(), True
            text = kept
        self._pending.append(joint + text)
        self._size += len(text) + 1

    def _flush_settled(self, emit: Emit) -> None:
        """Lays out the pending text up to the last blank where no mark is open."""
        text = "".join(self._pending)
        end = settled_length(text)
        if len(text) - end > _LONGEST_MARKED - PIECE:
            end = len(text)
        rest = text[end:]
        self._lay_out(text[:end], emit)
        self._pending, self._size = [rest] if rest else [], len(rest)
        self._due = self._size + PIECE

    def _lay_out(self, text: str, emit: Emit) -> None:
        if not text:
            return
        for number, spans in enumerate(split_lines(inline_spans(text, self._role, self._references))):
            if number:
                self._end(emit)
            self._rows(self._flow.add(spans), emit)
        self._is_begun = True

    def finish(self, emit: Emit) -> None:
        self._lay_out("".join(self._pending), emit)
        self._pending, self._size = [], 0
        self._end(emit)

    def _end(self, emit: Emit) -> None:
        self._rows(self._flow.end(), emit)
        self._continues_line = False

    def _rows(self, rows: Sequence[tuple[Span, ...]], emit: Emit) -> None:
        for row in rows:
            emit(Row(row, None, " " if self._continues_line else None))
            self._continues_line = True


def split_lines(spans: Sequence[Span]) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    for span in spans:
        if "\n" not in span.text:
            lines[-1].append(span)
            continue
        for number, part in enumerate(span.text.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append(span._replace(text=part))
    return lines


class Code:
    """A code block: lines with a bar at the left and their own background. A finished line is final."""

    __slots__ = ("_blanks", "_highlighter", "_is_begun", "_label", "_width", "fence", "kind")

    def __init__(self, width: int, name: str, fence: Fence | None = None) -> None:
        self.kind = "code"
        self.fence = fence
        """The line that opened the block; `None` for indented code."""
        self._width = width
        self._label = name
        self._highlighter = Highlighter(name)
        self._blanks = 0
        self._is_begun = False

    def copy(self) -> Code:
        twin = copy(self)
        twin._highlighter = copy(self._highlighter)
        return twin

    def go_on(self) -> None:
        """Notes that the block began in an earlier part of the reply, which shows the label."""
        self._is_begun = True

    def closes(self, text: str) -> bool:
        return self.fence is not None and self.fence.is_closed_by(text)

    def blank(self) -> None:
        """Adds an empty line of indented code, which is drawn only if more code follows."""
        self._blanks += 1

    def add(self, text: str, emit: Emit, *, is_more: bool) -> None:
        self._begin(emit)
        for _ in range(self._blanks):
            self._row((), emit, None)
        self._blanks = 0
        if not is_more and self.fence is not None:
            text = text[min(self.fence.indent, len(text) - len(text.lstrip(" "))) :]
        glue = "" if is_more else None
        for row in chopped(self._highlighter.line(text), self._width - 3):
            self._row(row, emit, glue)
            glue = ""

    def _begin(self, emit: Emit) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        if self._label:
            label = (Span("\u258e ", "code.bar"), Span(self._label[: max(self._width - 3, 1)], "code.label"))
            emit(Row(padded(label, self._width, "code"), "", "", 2))

    def _row(self, spans: tuple[Span, ...], emit: Emit, glue: str | None) -> None:
        drawn = padded((Span("\u258e ", "code.bar"), *spans), self._width, "code")
        emit(Row(drawn, plain(spans), glue, 2))

    def finish(self, emit: Emit) -> None:
        if self.fence:
            self._begin(emit)
