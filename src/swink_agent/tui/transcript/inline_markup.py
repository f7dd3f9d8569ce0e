"""Markdown within a line as spans: code, emphasis, links; all else is text.

Owns what stands in a paragraph, a heading or a cell. Every special character is looked at once and what may be open
at a time is bounded, so no text takes longer than its length. The text is safe already; addresses are checked here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from .line import Span

__all__ = ["inline_spans"]

_MOST_OPEN = 24
_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~]|`+|\*+|_+|~~|!?\[|\]"
    r"|<[bB][rR] ?/?>|<https?://[^\s<>]{1,2000}>|(?<!\w)https?://[^\s<>\"`\\^{|}\[\]*]{1,2000}"
)
_TARGET = re.compile(
    r"\(\s*<?([^\s<>()\[\]]{0,2000}+(?>(?:\([^\s<>()\[\]]{0,500}+\)[^\s<>()\[\]]{0,2000}+){0,4}))>?"
    r"(?:\s+\"[^\"\n\[\]]{0,500}+\")?\s*\)"
)
_PAGE = re.compile(r"(?i)https?://[^\s/?#\\][^\s\"'<>\\^`{|}]*")
_TICKS = re.compile(r"`+")
_ROLES = {("*", 1): "emphasis", ("_", 1): "emphasis", ("*", 2): "strong", ("_", 2): "strong", ("~", 2): "strike"}


class _Open(NamedTuple):
    mark: str
    size: int
    place: int
    """Which piece of the output it is."""


def inline_spans(text: str, base: str) -> list[Span]:
    """The text of a paragraph as spans over the role `base`; a `\\n` in one is where a line has to end."""
    if _SPECIAL.search(text) is None:
        return [Span(text, base)] if text else []
    return _Inline(text, base).spans()


class _Inline:
    def __init__(self, text: str, base: str) -> None:
        self._text = text
        self._base = base
        self._out: list[tuple[str, list[str], str]] = []
        """Pieces: text, roles that are laid over the base, a link."""
        self._open: list[_Open] = []
        self._runs: dict[int, list[int]] | None = None

    def spans(self) -> list[Span]:
        text, at = self._text, 0
        while (found := _SPECIAL.search(text, at)) is not None:
            self._put(text[at : found.start()])
            at = self._special(found[0], found.start())
        self._put(text[at:])
        return self._joined()

    def _joined(self) -> list[Span]:
        spans: list[Span] = []
        for words, roles, link in self._out:
            if not words:
                continue
            role = "+".join([self._base, *dict.fromkeys(roles)])
            if spans and spans[-1].role == role and spans[-1].link == link:
                spans[-1] = Span(spans[-1].text + words, role, link)
            else:
                spans.append(Span(words, role, link))
        return spans

    def _put(self, words: str, *roles: str, link: str = "") -> None:
        if words:
            self._out.append((words, list(roles), link))

    def _special(self, mark: str, start: int) -> int:
        """Takes what begins with this mark; says where to go on."""
        first, end = mark[0], start + len(mark)
        if first == "\\":
            self._put(mark[1])
        elif first == "`":
            return self._code(start, end)
        elif first in "*_~":
            self._emphasis(first, start, end)
        elif mark in ("[", "!["):
            self._begin(mark, "[", 0)
        elif first == "]":
            return self._link(end)
        elif first == "<" and len(mark) <= len("<br />"):
            self._put("\n")  # the one tag that is common, in cells of tables
        elif first == "<":
            self._address(mark[1:-1], mark)
        else:
            address = _without_ending(mark)
            self._address(address, address)
            return start + len(address)
        return end

    def _begin(self, words: str, mark: str, size: int) -> None:
        if len(self._open) < _MOST_OPEN:
            self._open.append(_Open(mark, size, len(self._out)))
        self._out.append((words, [], ""))

    def _code(self, start: int, end: int) -> int:
        if self._runs is None:
            self._runs = {}
            for run in _TICKS.finditer(self._text):
                self._runs.setdefault(run.end() - run.start(), []).append(run.start())
        same = self._runs.get(end - start, [])  # a tick behind a backslash is part of no run
        following = bisect_right(same, start)
        if following == len(same):
            self._put("`" * (end - start))
            return end
        inner = self._text[end : same[following]].replace("\n", " ")
        if len(inner) > 2 and inner[0] == inner[-1] == " ":
            inner = inner[1:-1]
        self._put(inner, "inline")
        return same[following] + end - start

    def _emphasis(self, mark: str, start: int, end: int) -> None:
        size = end - start
        if size > 3:
            self._put(mark * size)
            return
        before = self._text[start - 1] if start else " "
        after = self._text[end] if end < len(self._text) else " "
        closes, opens = not before.isspace(), not after.isspace()
        if mark == "_":  # as in snake_case_names
            closes, opens = closes and not after.isalnum(), opens and not before.isalnum()
        while closes and size:
            taken = self._close(mark, size)
            if not taken:
                break
            size -= taken
        if not size:
            return
        if not opens:
            self._put(mark * size)
        elif size == 3:
            self._begin(mark, mark, 1)
            self._begin(mark * 2, mark, 2)
        else:
            self._begin(mark * size, mark, size)

    def _close(self, mark: str, size: int) -> int:
        """Ends the innermost emphasis of this mark that is no longer than this; says how long it was."""
        for depth in range(len(self._open) - 1, -1, -1):
            opened = self._open[depth]
            if opened.mark == mark and opened.size <= size:
                self._lay_over(opened.place, _ROLES[mark, opened.size])
                del self._open[depth:]  # what opened inside and did not close is text
                return opened.size
        return 0

    def _lay_over(self, place: int, role: str, link: str = "") -> None:
        self._out[place] = ("", [], "")
        # Emphasis inside emphasis is bounded by what may be open, so a piece is laid over a bounded number of times.
        for number in range(place + 1, len(self._out)):
            words, roles, own = self._out[number]
            if words and role not in roles:
                roles.append(role)
            if link and not own:
                self._out[number] = (words, roles, link)

    def _link(self, end: int) -> int:
        depth = next((n for n in range(len(self._open) - 1, -1, -1) if self._open[n].mark == "["), None)
        target = None if depth is None else _TARGET.match(self._text, end)
        if depth is None or target is None:
            self._put("]")
            if depth is not None:
                del self._open[depth]
            return end
        place = self._open[depth].place
        is_image = self._out[place][0] == "!["
        address = target[1]
        words = "".join([piece[0] for piece in self._out[place + 1 :]])
        safe = _page(address)
        self._lay_over(place, "link" if safe else "dim", safe)
        if is_image:
            self._out[place] = ("image: ", ["dim"], "")
        if words != address and address:  # where it leads is always seen, safe or not
            self._put(f" ({address})" if words else address, "dim", link=safe)
        # A link holds no other: brackets that are still open further out stay text.
        self._open[depth:] = []
        self._open[:] = [opened for opened in self._open if opened.mark != "["]
        return target.end()

    def _address(self, address: str, text: str) -> None:
        safe = _page(address)
        if not safe or any(opened.mark == "[" for opened in self._open):
            self._put(text)
        else:
            self._put(address, "link", link=safe)


def _page(address: str) -> str:
    """The address, if it is one of a page and following it can do nothing but open that."""
    return address if _PAGE.fullmatch(address) else ""


def _without_ending(address: str) -> str:
    """An address in running text, without the full stop or bracket that belongs to the sentence."""
    kept = address.rstrip(".,;:!?'")
    while kept.endswith(")") and kept.count(")") > kept.count("("):
        kept = kept[:-1].rstrip(".,;:!?'")
    return kept if len(kept) > len("https://") else address
