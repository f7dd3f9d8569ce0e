"""Markdown within a line as spans: code, emphasis, links; all else is text.

Owns the roles of what stands in a paragraph, a heading or a cell, and which addresses are links; the reading is in
`rendering.inline_marks`. The text is safe already; addresses are checked here.
"""

from __future__ import annotations

import re

from swink_agent.rendering.inline_marks import InlineMarks, OpenMark

from .line import Span

__all__ = ["inline_spans"]

_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~]|`+|\*+|_+|~~|!?\[|\]"
    r"|<[bB][rR] ?/?>|<https?://[^\s<>]{1,2000}>|(?<!\w)https?://[^\s<>\"`\\^{|}\[\]*]{1,2000}"
)
_PAGE = re.compile(r"(?i)https?://[^\s/?#\\][^\s\"'<>\\^`{|}]*")
_ROLES = {("*", 1): "emphasis", ("_", 1): "emphasis", ("*", 2): "strong", ("_", 2): "strong", ("~", 2): "strike"}
_LONGEST_TAG = len("<br />")


def inline_spans(text: str, base: str) -> list[Span]:
    """The text of a paragraph as spans over the role `base`; a `\\n` in one is where a line has to end."""
    if _SPECIAL.search(text) is None:
        return [Span(text, base)] if text else []
    spans = _Spans(text)
    spans.read()
    return spans.joined(base)


class _Spans(InlineMarks):
    special = _SPECIAL

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._out: list[tuple[str, list[str], str]] = []
        """Pieces: text, roles that are laid over the base, a link."""

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
        is_line_end = len(tag) <= _LONGEST_TAG  # the one tag that is common, in cells of tables
        if is_line_end:
            self._put("\n")
        return is_line_end

    def end_emphasis(self, place: int, mark: str, size: int) -> None:
        self._lay_over(place, _ROLES[mark, size])

    def _lay_over(self, place: int, role: str, link: str = "") -> None:
        self._out[place] = ("", [], "")
        # Emphasis inside emphasis is bounded by what may be open, so a piece is laid over a bounded number of times.
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
        self._lay_over(opened.place, "link" if safe else "dim", safe)
        if is_image:
            self._out[opened.place] = ("image: ", ["dim"], "")
        if words != address and address:  # where it leads is always seen, safe or not
            self._put(f" ({address})" if words else address, "dim", link=safe)
        return True

    def put_address(self, address: str, text: str, *, is_in_link: bool) -> None:
        safe = _page(address)
        if not safe or is_in_link:
            self._put(text)
        else:
            self._put(address, "link", link=safe)


def _page(address: str) -> str:
    """The address, if it is one of a page and following it can do nothing but open that."""
    return address if _PAGE.fullmatch(address) else ""
