"""Parses the Markdown marks inside a paragraph: emphasis, code, links, and text that only looks like them.

Owns the parser, which reads the text once, in time proportional to its length. Subclasses write the output: `inline`
writes HTML, and the terminal UI writes styled spans. They also decide what is safe to show or to link to.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from html import unescape
from html.entities import html5
from typing import NamedTuple

from .block_marks import folded
from .characters import visible

_MOST_OPEN = 24
_TARGET = re.compile(
    r"\(\s*<?([^\s<>()\[\]]{0,2000}+(?>(?:\([^\s<>()\[\]]{0,500}+\)[^\s<>()\[\]]{0,2000}+){0,4}))>?"
    r"(?:\s+\"[^\"\n\[\]]{0,500}+\")?\s*\)"
)
_LONGEST_TARGET = 4096
_LONGEST_LABEL = 200
_LABEL = re.compile(r"\[([^\[\]]{0,200}+)\]")
ENTITY = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_TICKS = re.compile(r"`+")
_ENDINGS = ".,;:!?'"


class OpenMark(NamedTuple):
    """A mark that a later mark may close.

    `place` is the number of its piece in the output, and `source` is where it ends in the text.
    """

    mark: str
    size: int
    place: int
    source: int


class InlineMarks:
    """Parses a text from its beginning to its end. Subclasses define `special` and write the output.

    `put` writes plain text. `begin_piece` writes a mark that may turn out to be plain text, and returns its place in
    the output; `end_emphasis` and `end_link` receive that place when the mark is closed. `put_code` and `put_address`
    write code spans and addresses.
    """

    special: re.Pattern[str]  # matches everything that is not plain text: escapes, marks, brackets, addresses

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """`references` has the addresses that the whole text defines for its links, each under its folded label."""
        self.text = text
        self._references = references
        self.settled = 0
        """After `read`: where the text can be parted, behind a blank, so that both parts mean the same as before and
        more text changes nothing in the first; 0 without such a place."""
        self._may_settle = True
        self._open: list[OpenMark] = []
        self._runs: dict[int, list[int]] | None = None

    # -- output, written by subclasses --------------------------------------------------------------------------

    def put(self, words: str) -> None:
        raise NotImplementedError

    def begin_piece(self, mark: str) -> int:
        raise NotImplementedError

    def put_code(self, code: str) -> None:
        raise NotImplementedError

    def end_emphasis(self, place: int, mark: str, size: int) -> None:
        raise NotImplementedError

    def put_address(self, address: str, text: str, *, is_in_link: bool) -> None:
        raise NotImplementedError

    def end_link(self, opened: OpenMark, end: int, address: str) -> bool:
        """Turns the output since `opened` into a link. Returns false if it must stay text."""
        raise NotImplementedError

    def put_tag(self, tag: str) -> bool:
        """Writes a tag that the output supports, such as a line break. Returns false if `tag` is not one."""
        return False

    def put_line_end(self) -> None:
        self.put("\n")

    # -- parsing -----------------------------------------------------------------------------------------------

    def read(self) -> None:
        text, at = self.text, 0
        while (found := self.special.search(text, at)) is not None:
            self._plain(at, found.start())
            at = self._special(found[0], found.start())
        self._plain(at, len(text))

    def _plain(self, start: int, end: int) -> None:
        self.put(self.text[start:end])
        if self._may_settle and not self._open:
            self.settled = max(self.text.rfind(" ", start, end) + 1, self.settled)

    def _special(self, mark: str, start: int) -> int:
        """Handles what this mark begins, and returns where to continue."""
        first, end = mark[0], start + len(mark)
        if mark == "\\\n":
            self.put_line_end()
        elif first == "\\":
            self.put(mark[1])
        elif first == "&":
            self.put(_character(mark))
        elif first == "\n":
            self.put_line_end()
        elif first == "`":
            return self._code(start, end)
        elif first in "*_~":
            self._emphasis(first, start, end)
        elif mark in ("[", "!["):
            self._begin(mark, 0, end)
        elif first == "]":
            return self._link(end)
        elif first == "<":
            if not self.put_tag(mark):
                self._address(mark[1:-1], mark)
        else:
            address = without_ending(mark)
            self._address(address, address)
            return start + len(address)
        return end

    def _begin(self, mark: str, size: int, source: int = 0) -> None:
        place = self.begin_piece(mark)
        if len(self._open) < _MOST_OPEN:
            self._open.append(OpenMark(mark[0] if size else "[", size, place, source))

    def _code(self, start: int, end: int) -> int:
        if self._runs is None:
            self._runs = {}
            for run in _TICKS.finditer(self.text):
                self._runs.setdefault(run.end() - run.start(), []).append(run.start())
        same = self._runs.get(end - start, [])  # an escaped tick does not belong to a run
        following = bisect_right(same, start)
        if following == len(same):
            self._may_settle = False  # more text may end the code
            self.put("`" * (end - start))
            return end
        inner = self.text[end : same[following]].replace("\n", " ")
        if len(inner) > 2 and inner[0] == inner[-1] == " ":
            inner = inner[1:-1]
        self.put_code(inner)
        return same[following] + end - start

    def _emphasis(self, mark: str, start: int, end: int) -> None:
        size = end - start
        if size > 3 or (mark == "~" and size != 2):
            self.put(mark * size)
            return
        before = self.text[start - 1] if start else " "
        after = self.text[end] if end < len(self.text) else " "
        closes, opens = not before.isspace(), not after.isspace()
        if mark == "_":  # snake_case_names are not emphasis
            closes, opens = closes and not after.isalnum(), opens and not before.isalnum()
        while closes and size:
            taken = self._close(mark, size)
            if not taken:
                break
            size -= taken
        if not size:
            return
        if not opens:
            self.put(mark * size)
        elif size == 3:
            self._begin(mark, 1)
            self._begin(mark * 2, 2)
        else:
            self._begin(mark * size, size)

    def _close(self, mark: str, size: int) -> int:
        """Closes the innermost emphasis of this mark of at most this size. Returns its size, or 0 without one."""
        for depth in range(len(self._open) - 1, -1, -1):
            opened = self._open[depth]
            if opened.mark == mark and opened.size <= size:
                self.end_emphasis(opened.place, mark, opened.size)
                del self._open[depth:]  # marks that were opened inside and not closed are text
                return opened.size
        return 0

    def _link(self, end: int) -> int:
        depth = next((n for n in range(len(self._open) - 1, -1, -1) if self._open[n].mark == "["), None)
        target = None if depth is None else _TARGET.match(self.text, end)
        if depth is None:
            address, following = "", end
        elif target is None:
            address, following = self._referred(self._open[depth], end)
        else:
            address, following = target[1], target.end()
        if depth is None or not address or not self.end_link(self._open[depth], end, address):
            if target is None and self.text.startswith("(", end) and ")" not in self.text[end : end + _LONGEST_TARGET]:
                self._may_settle = False  # more text may end the address
            self.put("]")
            if depth is not None:
                del self._open[depth]
            return end
        # Links cannot be nested: brackets that are still open outside this link stay text.
        self._open[depth:] = []
        self._open[:] = [opened for opened in self._open if opened.mark != "["]
        return following

    def _referred(self, opened: OpenMark, end: int) -> tuple[str, int]:
        """The address that the text defines for `[words][label]` or `[label]`, or "", and where the link ends."""
        named = _LABEL.match(self.text, end) if self._references else None
        if not self._references or (named is None and self.text.startswith(":", end)):
            return "", end
        own = self.text[opened.source : min(end - 1, opened.source + _LONGEST_LABEL)]
        label = named[1] if named is not None and named[1] else own
        return self._references.get(folded(label), ""), end if named is None else named.end()

    def _address(self, address: str, text: str) -> None:
        self.put_address(address, text, is_in_link=any(opened.mark == "[" for opened in self._open))


def _character(entity: str) -> str:
    """Returns what the entity stands for; the entity itself if it is unknown, or stands for what would be escaped."""
    found = unescape(entity) if entity[1] == "#" else html5.get(entity[1:], entity)
    shown = found.replace("\xa0", " ")
    return shown if shown.isprintable() and visible(shown) == shown else entity


def without_ending(address: str) -> str:
    """Returns an address from running text without the punctuation or bracket that belongs to the sentence."""
    kept = address.rstrip(_ENDINGS)
    while kept.endswith(")") and kept.count(")") > kept.count("("):
        kept = kept[:-1].rstrip(_ENDINGS)
    return kept if len(kept) > len("https://") else address
