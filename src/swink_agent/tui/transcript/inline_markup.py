"""Turns inline Markdown into spans: code, emphasis and links; the rest is text.

Owns the roles of inline text in paragraphs, headings and table cells, and which addresses become links.
`rendering.inline_marks` parses. The text has already been escaped; this module checks the addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from swink_agent.rendering.inline_marks import ENTITY, InlineMarks, OpenMark

from .line import Span

_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~]|`+|\*+|_+|~~|!?\[|\]"
    r"|<[bB][rR] ?/?>|<https?://[^\s<>]{1,2000}>|(?<!\w)https?://[^\s<>\"`\\^{|}\[\]*]{1,2000}|" + ENTITY
)
_PAGE = re.compile(r"(?i)https?://[^\s/?#\\][^\s\"'<>\\^`{|}]*")
_ROLES = {("*", 1): "emphasis", ("_", 1): "emphasis", ("*", 2): "strong", ("_", 2): "strong", ("~", 2): "strike"}
_LONGEST_TAG = len("<br />")


def inline_spans(text: str, base: str, references: Mapping[str, str]) -> list[Span]:
    """Returns the spans of a paragraph, with roles added to `base`; a `\\n` in a span is a line end.

    `references`: as for `InlineMarks`.
    """
    if _SPECIAL.search(text) is None:
        return [Span(text, base)] if text else []
    spans = _Spans(text, references)
    spans.read()
    return spans.joined(base)


def settled_length(text: str) -> int:
    """Returns how much of the text more text cannot change: up to a blank where no mark is open, or 0."""
    if _SPECIAL.search(text) is None:
        return text.rfind(" ") + 1 or len(text)
    spans = _Spans(text, {})
    spans.read()
    return spans.settled


class _Spans(InlineMarks):
    special = _SPECIAL

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        super().__init__(text, references)
        self._out: list[tuple[str, list[str], str]] = []
        """Pieces: the text, the roles added to the base, and a link."""

    def joined(self, base: str) -> list[Span]:
        spans: list[Span] = []
        for words, roles, link in self._out:
            if not words:
                continue
            role = "+".join([base, *dict.fromkeys(roles)])
            if spans and spans[-1].role == role and spans[-1].link == link:
                spans[-1] = Span(spans[-1].text + words, role, link)
            else:
                spans.append(Span(words, role, link))
        return spans

    def put(self, words: str) -> None:
        self._put(words)

    def _put(self, words: str, *roles: str, link: str = "") -> None:
        if words:
            self._out.append((words, list(roles), link))

    def begin_piece(self, mark: str) -> int:
        self._out.append((mark, [], ""))
        return len(self._out) - 1

    def put_code(self, code: str) -> None:
        self._put(code, "inline")

    def put_tag(self, tag: str) -> bool:
        is_line_end = len(tag) <= _LONGEST_TAG  # `<br>`, which is common in table cells
        if is_line_end:
            self._put("\n")
        return is_line_end

    def end_emphasis(self, place: int, mark: str, size: int) -> None:
        self._add_role(place, _ROLES[mark, size])

    def _add_role(self, place: int, role: str, link: str = "") -> None:
        self._out[place] = ("", [], "")
        # The number of open marks is bounded, so each piece gets a bounded number of roles.
        for number in range(place + 1, len(self._out)):
            words, roles, own = self._out[number]
            if words and role not in roles:
                roles.append(role)
            if link and not own:
                self._out[number] = (words, roles, link)

    def end_link(self, opened: OpenMark, end: int, address: str) -> bool:
        is_image = self._out[opened.place][0] == "!["
        words = "".join([piece[0] for piece in self._out[opened.place + 1 :]])
        safe = _page(address)
        self._add_role(opened.place, "link" if safe else "dim", safe)
        if is_image:
            self._out[opened.place] = ("image: ", ["dim"], "")
        if words != address and address:  # always show where a link leads, safe or not
            self._put(f" ({address})" if words else address, "dim", link=safe)
        return True

    def put_address(self, address: str, text: str, *, is_in_link: bool) -> None:
        safe = _page(address)
        if not safe or is_in_link:
            self._put(text)
        else:
            self._put(address, "link", link=safe)


def _page(address: str) -> str:
    """Returns the address if it is a web page that is safe to open, else ""."""
    return address if _PAGE.fullmatch(address) else ""
