"""Markdown within a line, as HTML: code, emphasis, links, line breaks; all else is text.

Owns a safe subset, read in one pass: every special character is looked at once, what may be open at a time is bounded,
so no text takes longer than its length. The text has been through `visible`; what comes out is escaped.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from html import escape
from typing import NamedTuple

__all__ = ["inline_html", "safe_address"]

_MOST_OPEN = 24
_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~]|`+|\*+|_+|~+|!?\[|\]|\n"
    r"|<(?:https?://|mailto:)[^\s<>]{1,2000}>|(?<!\w)https?://[^\s<>\"`\\^{|}\[\]*]{1,2000}"
)
_TARGET = re.compile(
    r"\(\s*<?([^\s<>()\[\]]{0,2000}+(?>(?:\([^\s<>()\[\]]{0,500}+\)[^\s<>()\[\]]{0,2000}+){0,4}))>?"
    r"(?:\s+\"[^\"\n\[\]]{0,500}+\")?\s*\)"
)
_ADDRESS = re.compile(r"(?i)(?:https?://[^\s/?#\\]|mailto:)[^\s\"'<>\\^`{|}]*")
_LOOKS_LIKE_ADDRESS = re.compile(r"(?i)\s*(?:https?://)?((?:[\w-]{1,63}\.){1,8}[a-z]{2,20})(?![\w.])")
_TICKS = re.compile(r"`+")
_TAGS = {("*", 1): "em", ("_", 1): "em", ("*", 2): "strong", ("_", 2): "strong", ("~", 2): "del"}


class _Open(NamedTuple):
    """Something that a later mark may close: what it is, where in the output it stands, where in the text it ends."""

    mark: str
    size: int
    place: int
    source: int


def safe_address(address: str) -> str | None:
    """The address, if following it can do nothing but open a page or write a mail."""
    return address if _ADDRESS.fullmatch(address) else None


def inline_html(text: str) -> str:
    """The text of a paragraph, heading or cell as HTML."""
    return _Inline(text).html()


class _Inline:
    def __init__(self, text: str) -> None:
        self._text = text
        self._out: list[str] = []
        self._open: list[_Open] = []
        self._runs: dict[int, list[int]] | None = None

    def html(self) -> str:
        text, out, at = self._text, self._out, 0
        while (found := _SPECIAL.search(text, at)) is not None:
            out.append(escape(text[at : found.start()]))
            at = self._special(found[0], found.start())
        out.append(escape(text[at:]))
        return "".join(out)

    def _special(self, mark: str, start: int) -> int:
        """Takes what begins with this mark; says where to go on."""
        first, end = mark[0], start + len(mark)
        if first == "\\":
            self._out.append(escape(mark[1]))
        elif first == "\n":
            self._out.append("<br>\n")
        elif first == "`":
            return self._code(start, end)
        elif first in "*_~":
            self._emphasis(first, start, end)
        elif mark in ("[", "!["):
            self._begin(mark, 0, end)
        elif first == "]":
            return self._link(end)
        elif first == "<":
            self._address(mark[1:-1], mark)
        else:
            address = _without_ending(mark)
            self._address(address, address)
            return start + len(address)
        return end

    def _begin(self, mark: str, size: int, source: int = 0) -> None:
        if len(self._open) < _MOST_OPEN:
            self._open.append(_Open(mark[0] if size else "[", size, len(self._out), source))
        self._out.append(mark)

    def _code(self, start: int, end: int) -> int:
        if self._runs is None:
            self._runs = {}
            for run in _TICKS.finditer(self._text):
                self._runs.setdefault(run.end() - run.start(), []).append(run.start())
        same = self._runs.get(end - start, [])
        following = bisect_right(same, start)
        if following == len(same):
            self._out.append("`" * (end - start))
            return end
        inner = self._text[end : same[following]].replace("\n", " ")
        if len(inner) > 2 and inner[0] == inner[-1] == " ":
            inner = inner[1:-1]
        self._out.append(f"<code>{escape(inner)}</code>")
        return same[following] + end - start

    def _emphasis(self, mark: str, start: int, end: int) -> None:
        size = end - start
        if size > 3 or (mark == "~" and size != 2):
            self._out.append(mark * size)
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
            self._out.append(mark * size)
        elif size == 3:
            self._begin(mark, 1)
            self._begin(mark * 2, 2)
        else:
            self._begin(mark * size, size)

    def _close(self, mark: str, size: int) -> int:
        """Ends the innermost emphasis of this mark that is no longer than this; says how long it was."""
        for depth in range(len(self._open) - 1, -1, -1):
            opened = self._open[depth]
            if opened.mark == mark and opened.size <= size:
                tag = _TAGS[mark, opened.size]
                self._out[opened.place] = f"<{tag}>"
                self._out.append(f"</{tag}>")
                del self._open[depth:]  # what opened inside and did not close is text
                return opened.size
        return 0

    def _link(self, end: int) -> int:
        depth = next((n for n in range(len(self._open) - 1, -1, -1) if self._open[n].mark == "["), None)
        target = None if depth is None else _TARGET.match(self._text, end)
        address = None if target is None else safe_address(target[1])
        if depth is None or target is None or address is None:
            self._out.append("]")
            if depth is not None:
                del self._open[depth]
            return end
        place = self._open[depth].place
        is_image = self._out[place] == "!["
        words = "image: " if is_image else ""
        self._out[place] = f"{_anchor(address)}{words}"
        self._out.append(f"</a>{_where(self._text[self._open[depth].source : end - 1], address)}")
        # A link holds no other: brackets that are still open further out stay text.
        self._open[depth:] = []
        self._open[:] = [opened for opened in self._open if opened.mark != "["]
        return target.end()

    def _address(self, address: str, text: str) -> None:
        safe = safe_address(address)
        if safe is None or any(opened.mark == "[" for opened in self._open):
            self._out.append(escape(text))
        else:
            self._out.append(f"{_anchor(safe)}{escape(address)}</a>")


def _anchor(address: str) -> str:
    shown = escape(address)
    return f'<a href="{shown}" title="{shown}" rel="noopener noreferrer nofollow">'


def _where(words: str, address: str) -> str:
    """Where a link leads to, if its words say another place."""
    said = _LOOKS_LIKE_ADDRESS.match(words)
    host = address.split("//")[-1].split("/")[0].split("?")[0].split("#")[0].rpartition("@")[2]
    if said is None or host.lower().removeprefix("www.").split(":")[0] == said[1].lower().removeprefix("www."):
        return ""
    return f' <span class="quiet">({escape(host)})</span>'


def _without_ending(address: str) -> str:
    """An address in running text, without the full stop or bracket that belongs to the sentence."""
    kept = address.rstrip(".,;:!?'")
    while kept.endswith(")") and kept.count(")") > kept.count("("):
        kept = kept[:-1].rstrip(".,;:!?'")
    return kept if len(kept) > len("https://") else address
