"""Lays out Markdown as lines of one width while it streams in; finished parts are laid out only once.

Owns the structure: which lines are a list, a quote, code or a table, and the indentation of each row. The result does
not depend on how the text was split into deltas: whole lines (and whole pieces of very long ones) go through the parser
once, and the unfinished last line goes through a copy of the parser that is then dropped. HTML is shown as text,
nesting is bounded, and unknown syntax is shown as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from typing import Literal, NamedTuple

from swink_agent.rendering.block_marks import (
    DEEPEST,
    Item,
    begins_block,
    box_of,
    columns_of,
    definition_of,
    fence_of,
    heading_of,
    inside_quote,
    is_rule,
    item_of,
    underlined_level,
)

from .leaves import PIECE, Code, Paragraph, Row
from .line import EMPTY, Line, Span, plain, safe
from .tables import Table

_WIDEST_PROSE = 116
"""The most cells of a row of prose, because longer rows are hard to read."""

_MOST_REFERENCES = 200
"""The most definitions of links that are kept; more stay text, so that a long list of them costs no more each."""

_TABLE_MARKS = re.compile(r"[ \t|:-]+")
_BULLETS = "\u2022\u25e6\u25aa"


class _Container(NamedTuple):
    """An open quote or list item."""

    kind: Literal["quote", "item"]
    number: int
    """A serial number, because two items of a list can be equal otherwise."""
    needed: int = 0
    content: int = 0
    mark: str = ""

    @property
    def width(self) -> int:
        return 2 if self.kind == "quote" else len(self.mark)


class MarkdownStream:
    """The lines of a growing text. `lines` is one list that changes in place; `first_change` is the first line that the
    last `update` changed."""

    __slots__ = ("_continues", "_final", "_machine", "_rest", "first_change", "lines")

    def __init__(self, width: int, role: str = "text", fence: str = "") -> None:
        """`fence` is the line that opened the code block in which the text begins, or ""."""
        self.lines: list[Line] = []
        self.first_change = 0
        self._machine = _BlockParser(max(width, 8), role)
        if fence:
            self._machine.continue_code(fence)
        self._rest = ""
        self._continues = False
        self._final = 0

    @property
    def final(self) -> int:
        """The number of lines that can no longer change when more text is fed."""
        return self._final

    def feed(self, text: str) -> None:
        """Adds text; the next `update` lays it out."""
        *whole, rest = (self._rest + text).split("\n")
        for line in whole:
            self._take(line, is_last=True)
        while len(rest) > PIECE:
            rest = self._take_piece(rest)
        self._rest = rest

    def update(self) -> list[Line]:
        """Returns the lines of all text that was fed, including the unfinished last line."""
        machine = self._machine
        self.first_change = self._final
        del self.lines[self._final :]
        self.lines += machine.out
        machine.out = []
        self._final = len(self.lines)
        if self._rest or machine.is_open:
            probe = machine.copy()
            if self._rest and not probe.is_premature(self._rest):
                probe.take(self._rest, is_more=self._continues, is_last=True)
            probe.finish()
            self.lines += probe.out
        return self.lines

    def _take(self, line: str, *, is_last: bool) -> None:
        while len(line) > PIECE:
            line = self._take_piece(line)
        self._machine.take(line, is_more=self._continues, is_last=is_last)
        self._continues = not is_last

    def _take_piece(self, line: str) -> str:
        """Parses the start of a very long line and returns the rest."""
        blank = line.rfind(" ", PIECE // 2, PIECE)
        end = PIECE if blank < 0 else blank + 1
        self._machine.take(line[:end], is_more=self._continues, is_last=False)
        self._continues = True
        return line[end:]


class _BlockParser:
    def __init__(self, width: int, role: str) -> None:
        self.out: list[Line] = []
        self._width = width
        self._role = role
        self._containers: tuple[_Container, ...] = ()
        self._undrawn = 0
        """The first container whose mark has not been drawn yet."""
        self._leaf: Paragraph | Code | Table | None = None
        self._count = 0
        self._is_blank = False
        """Whether the last line was empty."""
        self._last: tuple[str, tuple[_Container, ...]] | None = None
        """The kind and the containers of the last drawn element."""
        self._is_new = True
        """Whether the next row is the first of its leaf."""
        self._references: Mapping[str, str] = {}
        """The addresses that earlier lines define for links. It is replaced, never changed: others share it."""

    def copy(self) -> _BlockParser:
        twin = copy(self)
        twin.out, twin._leaf = [], None if self._leaf is None else self._leaf.copy()
        return twin

    @property
    def is_open(self) -> bool:
        return self._leaf is not None or self._undrawn < len(self._containers)

    def is_premature(self, rest: str) -> bool:
        """Returns whether the unfinished line may become a closing fence or a table rule and is not to be drawn yet."""
        leaf = self._leaf
        if isinstance(leaf, Code) and leaf.fence:
            mark = rest.strip()
            return bool(mark) and not mark.strip(leaf.fence.mark[0]) and len(mark) < len(leaf.fence.mark)
        if isinstance(leaf, Paragraph) and "|" in leaf.last_line:
            return "-" in rest and _TABLE_MARKS.fullmatch(rest) is not None
        return False

    # -- lines -----------------------------------------------------------------------------------------------------

    def continue_code(self, fence: str) -> None:
        """Starts inside a code block that an earlier part opened."""
        self.take(fence, is_more=False, is_last=True)
        if isinstance(self._leaf, Code):
            self._leaf.go_on()

    def take(self, text: str, *, is_more: bool, is_last: bool) -> None:
        """Parses a line or a piece of a very long one: `is_more` if it is not the first, `is_last` if none follows."""
        text = safe(text)
        if is_more:
            self._more(text, is_last=is_last)
        else:
            self._line(text, is_last=is_last)
        if is_last and isinstance(self._leaf, Paragraph) and self._leaf.kind == "heading":
            self._close_leaf()

    def finish(self) -> None:
        self._close_leaf()
        self._close_containers(0)

    def _more(self, text: str, *, is_last: bool) -> None:
        leaf = self._leaf
        if isinstance(leaf, Code):
            leaf.add(text, self._emit, is_more=True)
        elif isinstance(leaf, Table):
            leaf.add(text, self._emit, is_last=is_last)
        elif leaf is not None:
            leaf.add(text, self._emit, is_more=True, is_last=is_last)
        else:
            self._paragraph(text, is_last=is_last)

    def _line(self, text: str, *, is_last: bool) -> None:
        matched, rest = self._matched(text)
        leaf = self._leaf
        is_blank = not rest.strip()
        if matched < len(self._containers):
            if isinstance(leaf, Paragraph) and not is_blank and not begins_block(rest):
                leaf.add(rest.lstrip(), self._emit, is_more=False, is_last=is_last)
                return
            self._close_leaf()
            self._close_containers(matched)
            leaf = None
        if isinstance(leaf, Code):
            if leaf.fence:
                if leaf.closes(rest):
                    self._close_leaf()
                else:
                    leaf.add(rest, self._emit, is_more=False)
                return
            if is_blank:
                leaf.blank()
                self._is_blank = True
                return
            if rest.startswith("    "):
                leaf.add(rest[4:], self._emit, is_more=False)
                return
            self._close_leaf()
        if is_blank:
            self._close_leaf()
            self._is_blank = True
            return
        rest = self._opened(rest)
        if rest.strip():
            self._leaf_line(rest, is_last=is_last)

    def _matched(self, text: str) -> tuple[int, str]:
        """Returns how many of the open containers the line belongs to, and its text inside them."""
        for number, container in enumerate(self._containers):
            if container.kind == "quote":
                inside = inside_quote(text)
                if inside is None:
                    return number, text
                text = inside
                continue
            lead = len(text) - len(text.lstrip(" "))
            if lead == len(text):
                continue
            if lead < container.needed:
                return number, text
            text = text[min(lead, container.content) :]
        return len(self._containers), text

    def _opened(self, rest: str) -> str:
        """Opens the quotes and items that the line begins; returns the text inside them."""
        while len(self._containers) < DEEPEST:
            if (inside := inside_quote(rest)) is not None:
                self._close_leaf()
                self._open(_Container("quote", self._count))
                rest = inside
                continue
            item = item_of(rest)
            if item is None or not self._may_begin(item, rest):
                break
            self._close_leaf()
            depth = sum(1 for container in self._containers if container.kind == "item")
            mark_text = f"{item.mark} " if len(item.mark) > 1 else f"{_BULLETS[depth % 3]} "
            rest = rest[item.content :]
            box = box_of(rest)
            if box is not None and len(item.mark) == 1:
                mark_text, rest = box, rest[4:]
            self._open(_Container("item", self._count, item.needed, item.content, mark_text))
        return rest

    def _may_begin(self, item: Item, rest: str) -> bool:
        """Returns whether a list item may begin here: inside a paragraph, a number or a lone dash is mostly text."""
        if not isinstance(self._leaf, Paragraph):
            return True
        return item.mark in ("-", "*", "+", "1.", "1)") and bool(rest[item.content :].strip())

    def _leaf_line(self, rest: str, *, is_last: bool) -> None:
        leaf = self._leaf
        if isinstance(leaf, Table):
            if "|" in rest and not begins_block(rest):
                leaf.add(rest, self._emit, is_last=is_last)
                return
            self._close_leaf()
            leaf = None
        if (fence := fence_of(rest)) is not None:
            self._begin(Code(self._room(), fence.language.strip("{}.")[:24], fence))
        elif (heading := heading_of(rest)) is not None:
            words = rest[heading.start :].rstrip().rstrip("#").rstrip() if is_last else rest[heading.start :]
            self._heading(heading.level, words, is_last=is_last)
        elif is_last and isinstance(leaf, Paragraph) and leaf.only_line and (level := underlined_level(rest)):
            words = leaf.only_line
            self._leaf = None
            self._heading(level, words, is_last=True)
        elif is_last and is_rule(rest):
            self._close_leaf()
            self._is_new = True
            self._begin_row("rule")
            self._emit(Row((Span("\u2500" * min(self._room(), _WIDEST_PROSE), "rule"),), "---"))
        elif leaf is None and rest.startswith("    "):
            opened_code = Code(self._room(), "")
            self._begin(opened_code)
            opened_code.add(rest[4:], self._emit, is_more=False)
        elif isinstance(leaf, Paragraph) and (sides := columns_of(leaf.last_line, rest)) is not None and is_last:
            header = leaf.last_line
            if leaf.take_last():
                self._leaf = None
            self._begin(Table(self._room(), self._role, header, sides, self._references))
        elif is_last and leaf is None and (defined := definition_of(rest)) is not None:
            self._paragraph(rest.lstrip(), is_last=True)
            self._close_leaf()
            if defined[0] not in self._references and len(self._references) < _MOST_REFERENCES:
                self._references = {**self._references, defined[0]: defined[1]}
        else:
            self._paragraph(rest.lstrip(), is_last=is_last)

    def _heading(self, level: int, words: str, *, is_last: bool) -> None:
        opened = Paragraph(self._prose_room(), f"{self._role}+heading.{level}", self._references, "heading")
        self._begin(opened)
        opened.add(words, self._emit, is_more=False, is_last=is_last)

    def _paragraph(self, text: str, *, is_last: bool) -> None:
        leaf = self._leaf
        if not isinstance(leaf, Paragraph):
            is_quoted = any(container.kind == "quote" for container in self._containers)
            leaf = Paragraph(self._prose_room(), f"{self._role}+quote" if is_quoted else self._role, self._references)
            self._begin(leaf)
        leaf.add(text, self._emit, is_more=False, is_last=is_last)

    # -- opening and closing ---------------------------------------------------------------------------------------

    def _open(self, container: _Container) -> None:
        self._containers = (*self._containers, container)
        self._count += 1

    def _begin(self, leaf: Paragraph | Code | Table) -> None:
        self._close_leaf()
        self._leaf = leaf
        self._is_new = True

    def _close_leaf(self) -> None:
        leaf, self._leaf = self._leaf, None
        if leaf is not None:
            self._leaf = leaf  # `_emit` reads its kind
            leaf.finish(self._emit)
            self._leaf = None
            self._is_new = True

    def _close_containers(self, kept: int) -> None:
        if self._undrawn < len(self._containers) and kept < len(self._containers):
            self._is_new = True
            self._emit(Row(()))  # an empty item
        self._containers = self._containers[:kept]
        self._undrawn = min(self._undrawn, kept)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        return max(self._width - sum(container.width for container in self._containers), 8)

    def _prose_room(self) -> int:
        return max(min(self._width, _WIDEST_PROSE) - sum(container.width for container in self._containers), 8)

    def _begin_row(self, kind: str) -> None:
        """Prepares the first row of a leaf: draws the gap above it, if there is one."""
        self._is_new = False
        last, self._last = self._last, (kind, self._containers)
        is_blank, self._is_blank = self._is_blank, False
        if last is None:
            return
        last_kind, last_containers = last
        stands_apart = kind in ("heading", "code", "table") or last_kind in ("code", "table")
        if is_blank or (stands_apart and not self._containers and not last_containers):
            shared = 0
            for one, other in zip(last_containers, self._containers, strict=False):
                if one != other:
                    break
                shared += 1
            bars = self._prefix(shared, is_first=False)[0]
            self.out.append(Line(bars, "") if plain(bars).strip() else EMPTY)

    def _prefix(self, count: int, *, is_first: bool) -> tuple[tuple[Span, ...], str]:
        """Returns the bars, marks and indentation before a row, and their text when copied."""
        spans: list[Span] = []
        copied = ""
        for number, container in enumerate(self._containers[:count]):
            if container.kind == "quote":
                spans.append(Span("\u258e ", "quote.bar"))
                copied += "> "
            elif is_first and number >= self._undrawn:
                spans.append(Span(container.mark, "bullet"))
                copied += "- " if container.mark[0] in _BULLETS else container.mark
            else:
                spans.append(Span(" " * container.width, self._role))
                copied += " " * container.width
        return tuple(spans), copied

    def _emit(self, row: Row) -> None:
        if self._is_new:
            self._begin_row("item" if self._leaf is None else self._leaf.kind)
        if not self._containers:
            self.out.append(Line(*row))
            return
        prefix, copied = self._prefix(len(self._containers), is_first=True)
        self._undrawn = len(self._containers)
        body = plain(row.spans) if row.copied is None else row.copied
        if row.gutter or row.glue is not None:
            copied = ""  # no prefix when copying code, or a row that continues the line above
        self.out.append(Line((*prefix, *row.spans), copied + body, row.glue, row.gutter + len(plain(prefix))))
