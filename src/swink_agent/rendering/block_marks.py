"""Recognises Markdown blocks by the lines that begin them: headings, fences, rules, quotes, items and tables.

Owns these rules for all renderers: `prose` writes blocks as HTML, and the terminal UI writes rows while the text
streams in. Both read line by line and ask this module which block a line begins. It is a safe subset of Markdown: each
rule takes time proportional to the line, and a line that begins no block is part of a paragraph. `inline_marks` reads
the marks inside a line.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

DEEPEST = 8  # the deepest nesting of quotes and list items
_MOST_COLUMNS = 40

Side: TypeAlias = Literal["left", "right", "centre"]

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|--+)[ \t]*")
_DEFINITION = re.compile(
    r" {0,3}\[([^\[\]\\]{1,200}+)\]:[ \t]*+<?((?:https?://|mailto:)[^\s<>]{1,2000}+)>?"
    r"(?:[ \t]++(?:\"[^\"]*+\"|'[^']*+'|\([^()]*+\)))?[ \t]*+"
)
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])(?:( +)|$)")
_QUOTE = re.compile(r" {0,3}> ?")
_DELIMITER = re.compile(r"[ \t|:]*+-[ \t|:-]*+")  # possessive: a long row of dashes is scanned once
_BAR = re.compile(r"(?<!\\)\|")
_BOXES = {"[ ] ": "\u2610 ", "[x] ": "\u2611 ", "[X] ": "\u2611 "}


class Fence(NamedTuple):
    """The line that opens a fenced code block."""

    indent: int
    mark: str
    language: str  # the first word after the mark, or an empty string

    def is_closed_by(self, line: str) -> bool:
        indent = len(line) - len(line.lstrip(" "))
        mark = line.strip(" \t")
        return indent <= 3 and len(mark) >= len(self.mark) and not mark.strip(self.mark[0])


class Heading(NamedTuple):
    """A heading line."""

    level: int
    start: int  # the index at which its text begins


class Item(NamedTuple):
    """The first line of a list item."""

    mark: str
    """The bullet, or the number with its punctuation: `-`, `1.`"""
    needed: int  # the indentation that later lines need to belong to the item
    content: int  # the index at which its text begins


def fence_of(line: str) -> Fence | None:
    found = _FENCE.fullmatch(line)
    if found is None:
        return None
    words = found[3].split()
    return Fence(len(found[1]), found[2], words[0] if words else "")


def heading_of(line: str) -> Heading | None:
    found = _HEADING.match(line)
    return None if found is None else Heading(len(found[1]), found.end())


def underlined_level(line: str) -> int:
    """The level of the heading that this line makes of a paragraph of one line above it; 0 if it makes none."""
    if _UNDERLINE.fullmatch(line) is None:
        return 0
    return 1 if "=" in line else 2


def definition_of(line: str) -> tuple[str, str] | None:
    """The label and the address of a line such as `[label]: https://example.org "title"`."""
    found = _DEFINITION.fullmatch(line)
    return None if found is None else (folded(found[1]), found[2])


def folded(label: str) -> str:
    """The label of a link in the form in which labels are compared."""
    return " ".join(label.casefold().split())


def is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def inside_quote(line: str) -> str | None:
    """Returns the line without its quote mark, or `None` if it has no quote mark."""
    found = _QUOTE.match(line)
    return None if found is None else line[found.end() :]


def item_of(line: str) -> Item | None:
    """Returns the list item that the line begins. A horizontal rule such as `* * *` is not an item."""
    found = _ITEM.match(line)
    if found is None or is_rule(line):
        return None
    spaces = len(found[3] or "")
    content = found.end() if spaces <= 4 else found.end() - spaces + 1  # text that is indented further is code
    return Item(found[2], len(found[1]) + 2, content)


def box_of(text: str) -> str | None:
    """Returns the check box at the start of an item's text as a character and a space, to replace four characters."""
    return _BOXES.get(text[:4])


def begins_block(line: str) -> bool:
    """Whether the line begins another block and so ends a paragraph. Tables are not included: they need two lines."""
    return bool(
        _FENCE.fullmatch(line) or _HEADING.match(line) or _QUOTE.match(line) or _ITEM.match(line) or is_rule(line)
    )


def columns_of(header: str, delimiter: str) -> list[Side] | None:
    """Returns the alignment of each column, or `None` if the two lines do not begin a table."""
    if "|" not in header or "|" not in delimiter or _DELIMITER.fullmatch(delimiter) is None:
        return None
    marks = cells_of(delimiter)
    if len(marks) != len(cells_of(header)):
        return None
    return [("centre" if mark.startswith(":") else "right") if mark.endswith(":") else "left" for mark in marks]


def cells_of(line: str) -> list[str]:
    """Returns the text of each cell in a table row."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(inner, maxsplit=_MOST_COLUMNS)]
