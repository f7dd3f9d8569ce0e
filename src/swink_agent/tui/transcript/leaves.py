"""The parts of a document that hold text: paragraphs and code, laid out as they come in.

Owns which of their rows are final. A leaf gives rows (spans with what is copied of them) to `emit`; where they stand,
in a list or a quote, is the business of `markdown`. Tables are in `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from .highlighting import Highlighter
from .inline_markup import inline_spans
from .line import Span, padded, plain
from .wrapping import Flow, chopped

__all__ = ["PIECE", "Code", "Emit", "Leaf", "Paragraph", "Row", "split_lines"]

PIECE = 1024
"""Characters after which a line or a paragraph is laid out in pieces: the most that is ever done again."""


class Row(NamedTuple):
    """A row of a leaf, before it is set behind bars and bullets."""

    spans: tuple[Span, ...]
    copied: str | None = None
    glue: str | None = None
    gutter: int = 0


Emit: TypeAlias = Callable[[Row], None]


class Leaf(Protocol):
    """Something with text in it that may still grow."""

    kind: str

    def copy(self) -> Leaf: ...

    def finish(self, emit: Emit) -> None:
        """Gives the rows that were still open."""
        ...


class Paragraph:
    """Words that flow; also a heading, which is a paragraph of one line."""

    __slots__ = ("_flow", "_goes_on", "_is_begun", "_is_hard", "_pending", "_role", "_size", "kind")

    def __init__(self, width: int, role: str, kind: str = "paragraph") -> None:
        self.kind = kind
        self._flow = Flow(width)
        self._role = role
        self._pending: list[str] = []
        self._size = 0
        self._is_hard = False
        self._is_begun = False
        """Whether some of it has been laid out."""
        self._goes_on = False
        """Whether the next row belongs to the same line of text as the last."""

    def copy(self) -> Paragraph:
        twin = Paragraph.__new__(Paragraph)
        twin.kind, twin._role, twin._size = self.kind, self._role, self._size
        twin._flow, twin._pending = self._flow.copy(), list(self._pending)
        twin._is_hard, twin._goes_on, twin._is_begun = self._is_hard, self._goes_on, self._is_begun
        return twin

    @property
    def last_line(self) -> str:
        """The line that was added last, if it is whole and not laid out yet."""
        return self._pending[-1].lstrip() if self._pending else ""

    def take_last(self) -> bool:
        """Gives the last line up; says whether it was all there is."""
        self._pending.pop()
        return not self._pending and not self._is_begun

    def add(self, text: str, emit: Emit, *, is_more: bool, is_last: bool) -> None:
        """One more line, or one more piece of the line that was added last."""
        if self._size + len(text) > PIECE:
            self._flush(emit)
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

    def _flush(self, emit: Emit) -> None:
        text = "".join(self._pending)
        self._pending, self._size = [], 0
        if not text:
            return
        for number, spans in enumerate(split_lines(inline_spans(text, self._role))):
            if number:
                self._end(emit)
            self._rows(self._flow.add(spans), emit)
        self._is_begun = True

    def finish(self, emit: Emit) -> None:
        self._flush(emit)
        self._end(emit)

    def _end(self, emit: Emit) -> None:
        self._rows(self._flow.end(), emit)
        self._goes_on = False

    def _rows(self, rows: Sequence[tuple[Span, ...]], emit: Emit) -> None:
        for row in rows:
            emit(Row(row, None, " " if self._goes_on else None))
            self._goes_on = True


def split_lines(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans split where a line has to end."""
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
    """Lines of a program behind a bar on a ground of their own. A line that has ended is final."""

    __slots__ = ("_blanks", "_highlighter", "_is_begun", "_label", "_width", "fence", "indent", "kind")

    def __init__(self, width: int, name: str, fence: str = "", indent: int = 0) -> None:
        self.kind = "code"
        self.fence = fence
        """The mark that ends it; nothing for indented code."""
        self.indent = indent
        self._width = width
        self._label = name
        self._highlighter = Highlighter(name)
        self._blanks = 0
        self._is_begun = False

    def copy(self) -> Code:
        twin = Code.__new__(Code)
        twin.kind, twin.fence, twin.indent, twin._width = self.kind, self.fence, self.indent, self._width
        twin._label, twin._blanks, twin._is_begun = self._label, self._blanks, self._is_begun
        twin._highlighter = self._highlighter.copy()
        return twin

    def go_on(self) -> None:
        """It began in a part before, which has its name."""
        self._is_begun = True

    def closes(self, text: str) -> bool:
        """Whether a line is the fence that ends it."""
        mark = text.strip()
        return bool(self.fence) and len(mark) >= len(self.fence) and not mark.strip(self.fence[0])

    def blank(self) -> None:
        """An empty line in indented code, which belongs to it if more follows."""
        self._blanks += 1

    def add(self, text: str, emit: Emit, *, is_more: bool) -> None:
        self._begin(emit)
        for _ in range(self._blanks):
            self._row((), emit, None)
        self._blanks = 0
        if not is_more and self.indent:
            text = text[min(self.indent, len(text) - len(text.lstrip(" "))) :]
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
