"""Turns Markdown inside a paragraph into HTML: code, emphasis, links, line breaks. Everything else is text.

Owns the HTML tags of a safe subset, and which addresses may become links. `inline_marks` parses the text. The caller
has passed the text through `visible`; the result is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from .inline_marks import ENTITY, InlineMarks, OpenMark

_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~\n]|`+|\*+|_+|~+|!?\[|\]|\n"
    r"|<(?:https?://|mailto:)[^\s<>]{1,2000}>|(?<!\w)https?://[^\s<>\"`\\^{|}\[\]*]{1,2000}|" + ENTITY
)
_ADDRESS = re.compile(r"(?i)(?:https?://[^\s/?#\\]|mailto:)[^\s\"'<>\\^`{|}]*")
_NAMED_HOST = re.compile(r"(?i)(?<![\w.-])((?:[\w-]{1,63}\.){1,8}[a-z]{2,20}|(?:\d{1,3}\.){3}\d{1,3})(?![\w-])[^\s,;]*")
_MARKS = re.compile(r"[\\*_~`]")
_TAGS = {("*", 1): "em", ("_", 1): "em", ("*", 2): "strong", ("_", 2): "strong", ("~", 2): "del"}


def safe_address(address: str) -> str | None:
    """Returns the address if a click on it can only open a web page or write a mail, else `None`."""
    return address if _ADDRESS.fullmatch(address) else None


def inline_html(text: str, references: Mapping[str, str]) -> str:
    """Returns the text of a paragraph, heading or table cell as HTML. `references`: as for `InlineMarks`."""
    page = _Html(text, references)
    page.read()
    return "".join(page.out)


class _Html(InlineMarks):
    special = _SPECIAL

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        super().__init__(text, references)
        self.out: list[str] = []

    def put(self, words: str) -> None:
        self.out.append(escape(words))

    def put_line_end(self) -> None:
        self.out.append("<br>\n")

    def begin_piece(self, mark: str) -> int:
        self.out.append(mark)
        return len(self.out) - 1

    def put_code(self, code: str) -> None:
        self.out.append(f"<code>{escape(code)}</code>")

    def end_emphasis(self, place: int, mark: str, size: int) -> None:
        tag = _TAGS[mark, size]
        self.out[place] = f"<{tag}>"
        self.out.append(f"</{tag}>")

    def end_link(self, opened: OpenMark, end: int, address: str) -> bool:
        safe = safe_address(address)
        if safe is None:
            return False
        words = "image: " if self.out[opened.place] == "![" else ""
        self.out[opened.place] = f"{_anchor(safe)}{words}"
        self.out.append(f"</a>{_where(self.text[opened.source : end - 1], safe)}")
        return True

    def put_address(self, address: str, text: str, *, is_in_link: bool) -> None:
        safe = safe_address(address)
        if safe is None or is_in_link:
            self.put(text)
        else:
            self.out.append(f"{_anchor(safe)}{escape(address)}</a>")


def _anchor(address: str) -> str:
    shown = escape(address)
    return f'<a href="{shown}" title="{shown}" rel="noopener noreferrer nofollow">'


def _where(words: str, address: str) -> str:
    """Returns the host of a link in brackets if the text of the link names another host."""
    place = address.partition(":")[2].removeprefix("//")
    host = re.split("[/?#]", place, maxsplit=1)[0].rpartition("@")[2]
    plain = host.lower().removeprefix("www.").split(":")[0]
    named = [name[1].lower().removeprefix("www.") for name in _NAMED_HOST.finditer(_MARKS.sub("", words))]
    if all(name == plain for name in named):
        return ""
    return f' <span class="quiet">({escape(host)})</span>'
