"""Turns Markdown from people and models into safe HTML.

Owns the HTML of blocks (paragraphs, headings, lists, tables, quotes, fenced code). `block_marks` recognises the blocks,
and `inline` writes the text inside them. Time is proportional to the length of the text, because nesting is limited.
HTML in the text is shown as text, and so is Markdown outside the supported subset. A very long text stays plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from . import block_marks
from .characters import visible
from .highlight import code_html
from .inline import inline_html

LONGEST = 400_000
_TOP_HEADING = 3  # the page uses the levels above
_CLASSES = {"left": "", "centre": ' class="centre"', "right": ' class="right"'}


def prose_html(text: str) -> str:
    """Returns the Markdown text, which need not be trusted, as HTML."""
    shown = visible(text)
    if len(shown) > LONGEST:
        return plain_html(shown)
    lines = [_untabbed(line) for line in shown.split("\n")]
    page = _Page([], _references(lines))
    _blocks(lines, 0, page)
    return "".join(page.out)


def plain_html(shown: str) -> str:
    return f'<div class="plain">{escape(shown)}</div>\n'


class _Page(NamedTuple):
    """The HTML so far, and the addresses that the text defines for its links, each under its label."""

    out: list[str]
    references: Mapping[str, str]


def _references(lines: Sequence[str]) -> dict[str, str]:
    """The addresses that lines outside fenced code define. The first definition of a label counts."""
    found: dict[str, str] = {}
    fence: block_marks.Fence | None = None
    for line in lines:
        if fence is not None:
            fence = None if fence.is_closed_by(line) else fence
        elif (defined := block_marks.definition_of(line)) is not None:
            found.setdefault(*defined)
        else:
            fence = block_marks.fence_of(line)
    return found


def _untabbed(line: str) -> str:
    return line.expandtabs(4) if line[:1] == "\t" or line.lstrip(" ")[:1] == "\t" else line


def _blocks(lines: list[str], depth: int, page: _Page) -> None:
    if depth > block_marks.DEEPEST:
        page.out.append(plain_html("\n".join(lines).strip("\n")))
        return
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        if not line.strip():
            at += 1
        elif (fence := block_marks.fence_of(line)) is not None:
            at = _fenced(lines, at, fence, page)
        elif (heading := block_marks.heading_of(line)) is not None:
            _heading(line[heading.start :].rstrip().rstrip("#").rstrip(), heading.level, page)
            at += 1
        elif block_marks.is_rule(line):
            page.out.append("<hr>\n")
            at += 1
        elif block_marks.inside_quote(line) is not None:
            at = _quoted(lines, at, depth, page)
        elif (item := block_marks.item_of(line)) is not None:
            at = _listed(lines, at, item, depth, page)
        elif (sides := _table_at(lines, at)) is not None:
            at = _tabled(lines, at, sides, page)
        elif at + 1 < end and (level := block_marks.underlined_level(lines[at + 1])):
            _heading(line.strip(), level, page)
            at += 2
        else:
            at = _paragraph(lines, at, page)


def _heading(words: str, level: int, page: _Page) -> None:
    tag = f"h{min(level + _TOP_HEADING - 1, 6)}"
    page.out.append(f'<{tag} dir="auto">{inline_html(words, page.references)}</{tag}>\n')


def _paragraph(lines: list[str], at: int, page: _Page) -> int:
    start = at
    at += 1
    while (
        at < len(lines)
        and lines[at].strip()
        and not block_marks.begins_block(lines[at])
        and _table_at(lines, at) is None
    ):
        at += 1
    words = "\n".join([line.strip() for line in lines[start:at]])
    page.out.append(f'<p dir="auto">{inline_html(words, page.references)}</p>\n')
    return at


def _fenced(lines: list[str], at: int, fence: block_marks.Fence, page: _Page) -> int:
    inside: list[str] = []
    at += 1
    while at < len(lines) and not fence.is_closed_by(lines[at]):
        line = lines[at]
        inside.append(line[min(fence.indent, len(line) - len(line.lstrip(" "))) :])
        at += 1
    page.out.append(code_html("\n".join(inside), fence.language))
    return at + 1


def _quoted(lines: list[str], at: int, depth: int, page: _Page) -> int:
    inside: list[str] = []
    while at < len(lines) and (line := block_marks.inside_quote(lines[at])) is not None:
        inside.append(line)
        at += 1
    page.out.append("<blockquote>\n")
    _blocks(inside, depth + 1, page)
    page.out.append("</blockquote>\n")
    return at


def _listed(lines: list[str], at: int, item: block_marks.Item | None, depth: int, page: _Page) -> int:
    assert item is not None
    kind, number = item.mark[-1], item.mark[:-1]
    tag = "ol" if number else "ul"
    page.out.append(f'<ol start="{int(number)}">\n' if number and int(number) != 1 else f"<{tag}>\n")
    while item is not None and item.mark[-1] == kind:
        at = _item(lines, at, item, depth, page)
        while at < len(lines) and not lines[at].strip():
            at += 1
        item = block_marks.item_of(lines[at]) if at < len(lines) else None
    page.out.append(f"</{tag}>\n")
    return at


def _item(lines: list[str], at: int, item: block_marks.Item, depth: int, page: _Page) -> int:
    """Writes one list item: the indented lines below its mark, and unindented ones that continue its paragraph."""
    inside = [lines[at][item.content :]]
    at += 1
    blank = 0
    while at < len(lines):
        line = lines[at]
        lead = len(line) - len(line.lstrip(" "))
        if lead == len(line):
            blank += 1
        elif lead >= item.needed:
            inside += [""] * blank
            inside.append(line[min(lead, item.content) :])
            blank = 0
        elif blank or block_marks.begins_block(line):
            break
        else:
            inside.append(line)
        at += 1
    page.out.append("<li>")
    box = block_marks.box_of(inside[0])
    if box is not None:
        inside[0] = box + inside[0][4:]
    _blocks(inside, depth + 1, page)
    page.out.append("</li>\n")
    return at


def _table_at(lines: list[str], at: int) -> list[block_marks.Side] | None:
    return block_marks.columns_of(lines[at], lines[at + 1]) if at + 1 < len(lines) else None


def _tabled(lines: list[str], at: int, sides: list[block_marks.Side], page: _Page) -> int:
    page.out.append('<div class="table" tabindex="0" role="region" aria-label="table"><table>\n<thead>')
    _row(lines[at], sides, "th", page)
    page.out.append("</thead>\n<tbody>\n")
    at += 2
    while at < len(lines) and "|" in lines[at]:
        _row(lines[at], sides, "td", page)
        at += 1
    page.out.append("</tbody></table></div>\n")
    return at


def _row(line: str, sides: list[block_marks.Side], tag: str, page: _Page) -> None:
    cells = zip(block_marks.cells_of(line), sides, strict=False)
    shown = [f"<{tag}{_CLASSES[side]}>{inline_html(cell, page.references)}</{tag}>" for cell, side in cells]
    page.out.append(f"<tr>{''.join(shown)}</tr>\n")
