"""Markdown as HTML: what a person or a model wrote, laid out as they meant it and unable to be anything else.

Owns the blocks (paragraphs, headings, lists, tables, quotes, fenced code); `inline` has what stands in a line. A safe
subset in time proportional to the length: nesting is bounded, HTML is text, and what is not understood is shown as it
is written. A text that is very long stays plain.
"""

from __future__ import annotations

import re
from html import escape

from .characters import visible
from .highlight import code_html
from .inline import inline_html

__all__ = ["LONGEST", "plain_html", "prose_html"]

LONGEST = 400_000
_DEEPEST = 8
_TOP_HEADING = 3  # above are the page's own
_MOST_COLUMNS = 40

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])(?:( +)|$)")
_QUOTE = re.compile(r" {0,3}> ?")
_COLUMNS = re.compile(r"[ \t|:-]*-[ \t|:-]*")
_BAR = re.compile(r"(?<!\\)\|")


def prose_html(text: str) -> str:
    """The text, which anyone may have written, as HTML."""
    shown = visible(text)
    if len(shown) > LONGEST:
        return plain_html(shown)
    out: list[str] = []
    _blocks([_untabbed(line) for line in shown.split("\n")], 0, out)
    return "".join(out)


def plain_html(shown: str) -> str:
    return f'<div class="plain">{escape(shown)}</div>\n'


def _untabbed(line: str) -> str:
    return line.expandtabs(4) if line[:1] == "\t" or line.lstrip(" ")[:1] == "\t" else line


def _blocks(lines: list[str], depth: int, out: list[str]) -> None:
    if depth > _DEEPEST:
        out.append(plain_html("\n".join(lines).strip("\n")))
        return
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        if not line.strip():
            at += 1
        elif (fence := _FENCE.fullmatch(line)) is not None:
            at = _fenced(lines, at, fence, out)
        elif (heading := _HEADING.match(line)) is not None:
            level = min(len(heading[1]) + _TOP_HEADING - 1, 6)
            words = line[heading.end() :].rstrip().rstrip("#").rstrip()
            out.append(f'<h{level} dir="auto">{inline_html(words)}</h{level}>\n')
            at += 1
        elif _RULE.fullmatch(line):
            out.append("<hr>\n")
            at += 1
        elif _QUOTE.match(line):
            at = _quoted(lines, at, depth, out)
        elif _ITEM.match(line):
            at = _listed(lines, at, depth, out)
        elif _is_table(lines, at):
            at = _tabled(lines, at, out)
        else:
            at = _paragraph(lines, at, out)


def _begins_block(line: str) -> bool:
    return bool(
        _FENCE.fullmatch(line)
        or _HEADING.match(line)
        or _QUOTE.match(line)
        or _ITEM.match(line)
        or _RULE.fullmatch(line)
    )


def _paragraph(lines: list[str], at: int, out: list[str]) -> int:
    start = at
    at += 1
    while at < len(lines) and lines[at].strip() and not _begins_block(lines[at]) and not _is_table(lines, at):
        at += 1
    words = "\n".join([line.strip() for line in lines[start:at]])
    out.append(f'<p dir="auto">{inline_html(words)}</p>\n')
    return at


def _fenced(lines: list[str], at: int, fence: re.Match[str], out: list[str]) -> int:
    indent, mark = len(fence[1]), fence[2]
    words = fence[3].split()
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")
    inside: list[str] = []
    at += 1
    while at < len(lines) and not closing.fullmatch(lines[at]):
        line = lines[at]
        inside.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
        at += 1
    out.append(code_html("\n".join(inside), words[0] if words else ""))
    return at + 1


def _quoted(lines: list[str], at: int, depth: int, out: list[str]) -> int:
    inside: list[str] = []
    while at < len(lines) and (mark := _QUOTE.match(lines[at])) is not None:
        inside.append(lines[at][mark.end() :])
        at += 1
    out.append("<blockquote>\n")
    _blocks(inside, depth + 1, out)
    out.append("</blockquote>\n")
    return at


def _listed(lines: list[str], at: int, depth: int, out: list[str]) -> int:
    first = _ITEM.match(lines[at])
    kind = "" if first is None else first[2][-1]
    number = "" if first is None else first[2][:-1]
    tag = "ol" if number else "ul"
    out.append(f'<ol start="{int(number)}">\n' if number and int(number) != 1 else f"<{tag}>\n")
    while at < len(lines):
        item = _ITEM.match(lines[at])
        if item is None or item[2][-1] != kind or _RULE.fullmatch(lines[at]):
            break
        at = _item(lines, at, item, depth, out)
        while at < len(lines) and not lines[at].strip():
            at += 1
    out.append(f"</{tag}>\n")
    return at


def _item(lines: list[str], at: int, item: re.Match[str], depth: int, out: list[str]) -> int:
    """One item: the lines that are indented beneath its mark, and those of its first paragraph that are not."""
    indent = len(item[1]) + 2
    spaces = len(item[3] or "")
    content = item.end() if spaces <= 4 else item.end() - spaces + 1
    inside = [lines[at][content:]]
    at += 1
    blank = 0
    while at < len(lines):
        line = lines[at]
        lead = len(line) - len(line.lstrip(" "))
        if lead == len(line):
            blank += 1
        elif lead >= indent:
            inside += [""] * blank
            inside.append(line[min(lead, content) :])
            blank = 0
        elif blank or _begins_block(line):
            break
        else:
            inside.append(line)
        at += 1
    out.append("<li>")
    box = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}.get(inside[0][:4])
    if box is not None:
        inside[0] = box + inside[0][4:]
    _blocks(inside, depth + 1, out)
    out.append("</li>\n")
    return at


def _is_table(lines: list[str], at: int) -> bool:
    if at + 1 >= len(lines) or "|" not in lines[at] or "|" not in lines[at + 1]:
        return False
    return _COLUMNS.fullmatch(lines[at + 1]) is not None and len(_cells(lines[at])) == len(_cells(lines[at + 1]))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(inner, maxsplit=_MOST_COLUMNS)]


def _tabled(lines: list[str], at: int, out: list[str]) -> int:
    sides = [_side(cell) for cell in _cells(lines[at + 1])]
    out.append('<div class="table" tabindex="0" role="region" aria-label="table"><table>\n<thead>')
    _row(_cells(lines[at]), sides, "th", out)
    out.append("</thead>\n<tbody>\n")
    at += 2
    while at < len(lines) and "|" in lines[at]:
        _row(_cells(lines[at]), sides, "td", out)
        at += 1
    out.append("</tbody></table></div>\n")
    return at


def _row(cells: list[str], sides: list[str], tag: str, out: list[str]) -> None:
    shown = [f"<{tag}{side}>{inline_html(cell)}</{tag}>" for cell, side in zip(cells, sides, strict=False)]
    out.append(f"<tr>{''.join(shown)}</tr>\n")


def _side(cell: str) -> str:
    if cell.endswith(":"):
        return ' class="centre"' if cell.startswith(":") else ' class="right"'
    return ""
