"""Replacements in a text, and the message when one does not fit.

Edits are applied in order, each to the result of the one before, all or none. Each text must be found exactly once,
unless all occurrences are meant. Line ends do not matter for finding, and are kept. Suggestions for a text that was not
found are in `files/nearest`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from swink_agent.core.errors import ToolError

from .text import with_newlines

_PAIR = re.compile("\r\n")
_MOST_LINES_NAMED = 10
_MOST_TIMES_COUNTED = 1000
"""The most occurrences that are counted of a text that should be there once: overlapping ones can be very many."""
_MOST_REPLACEMENTS = 100_000
_LARGEST = 16 * 1024 * 1024
"""The most characters that edits may produce: the edits of one call can double a file again and again."""


class Edit(NamedTuple):
    """One replacement of one text by another."""

    old: str
    """The text to replace; empty to add new lines at the end, or before `line`."""
    new: str
    replace_all: bool = False
    line: int | None = None


def apply_edits(text: str, newline: str, edits: Sequence[Edit], path: str) -> tuple[str, str]:
    """The text with all edits applied, and a summary of where. Raises `ToolError` if one of them does not fit.

    New text gets the line end `newline`. `\\r\\n` and `\\n` are equal when searching, and stay as they are where
    nothing is replaced.
    """
    given = text
    lines: list[int] = []
    added: list[str] = []
    for number, edit in enumerate(edits, 1):
        which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        if edit.old:
            text, starts = _apply(text, newline, edit, which, path)
            lines += starts
        else:
            text, where = _insert(text, newline, edit, which, path)
            added.append(where)
        if len(lines) > _MOST_REPLACEMENTS:
            raise _too_much(which, f"more than {_MOST_REPLACEMENTS:,} replacements", path)
    if text == given:
        raise ToolError(f"the edits cancel each other out: {path} would stay as it is, nothing was changed")
    count = len(lines)
    replaced = [f"{count} replacement{'s' * (count != 1)}, {_places(lines)}"] if count else []
    return text, "; ".join([*replaced, *added[:_MOST_LINES_NAMED]])


def _insert(text: str, newline: str, edit: Edit, which: str, path: str) -> tuple[str, str]:
    """Adds new lines at the end of the text, or before one of its lines. The lines around them stay whole."""
    if not edit.new:
        raise ToolError(f"{which}old and new are both empty: there is nothing to change, and nothing was")
    if len(text) + len(edit.new) > max(_LARGEST, len(text)):
        raise _too_much(which, f"a file of more than {_LARGEST:,} characters", path)
    end = newline or "\n"
    new = with_newlines(edit.new, newline)
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    if edit.line is not None and edit.line <= count:
        new += "" if new.endswith("\n") else end
        at = _line_start(text, edit.line)
        return text[:at] + new + text[at:], _added("added", edit.line, new)
    if edit.line is not None and edit.line > count + 1:
        raise ToolError(
            f"{which}{path} has {count} line{'s' * (count != 1)}: there is no line {edit.line} to insert at; leave "
            "line out to add at the end. Nothing was changed"
        )
    if text.endswith("\n"):
        new += "" if new.endswith("\n") else end
    elif text and new.startswith(("\n", "\r\n")):
        at = new.index("\n") + 1  # it includes the end of the last line
        text, new = text + new[:at], new[at:]
    elif text:
        text += end
    return text + new, _added("added" if text else "wrote", count + 1, new)


def _line_start(text: str, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = text.index("\n", at) + 1
    return at


def _added(verb: str, first: int, new: str) -> str:
    last = first + new.count("\n") - new.endswith("\n")
    return f"{verb} line {first}" if last == first else f"{verb} lines {first}-{last}"


def _apply(text: str, newline: str, edit: Edit, which: str, path: str) -> tuple[str, list[int]]:
    plain = text.replace("\r\n", "\n")
    old, new = edit.old.replace("\r\n", "\n"), edit.new
    if old == new.replace("\r\n", "\n"):
        raise ToolError(f"{which}old and new are the same, so nothing was changed: new is the text as it should be")
    # For a text that must be unique, an overlapping second one counts too: `aa` is twice in `aaa`.
    most = _MOST_REPLACEMENTS if edit.replace_all else _MOST_TIMES_COUNTED
    starts = list(islice(_occurrences(plain, old, len(old) if edit.replace_all else 1), most + 1))
    if not starts:
        from .nearest import describe_nearest

        raise ToolError(f"{which}old was not found in {path}; nothing was changed. {describe_nearest(plain, old)}")
    lines = _line_numbers(plain, starts)
    if edit.line is not None and not edit.replace_all and lines.count(edit.line) == 1:
        starts, lines = [starts[lines.index(edit.line)]], [edit.line]
    if len(starts) > 1 and not edit.replace_all:
        times = f"more than {most:,}" if len(starts) > most else str(len(starts))
        raise ToolError(
            f"{which}old is found {times} times in {path}, {_places(lines)}; nothing was changed. Add lines "
            "around it to old and new, so that it fits once, say which line, or set replace_all"
        )
    if len(starts) > most:
        raise _too_much(which, f"more than {most:,} replacements", path)
    if len(text) + len(starts) * (len(new) - len(old)) > max(_LARGEST, len(text)):
        raise _too_much(which, f"a file of more than {_LARGEST:,} characters", path)
    return _splice(text, plain, starts, len(old), with_newlines(new, newline)), lines


def _too_much(which: str, what: str, path: str) -> ToolError:
    return ToolError(f"{which}that would be {what} in {path}; nothing was changed. Do it with a command, such as sed")


def _occurrences(text: str, old: str, step: int) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + step)


def _splice(text: str, plain: str, starts: Sequence[int], length: int, new: str) -> str:
    """Replaces in `text`, which has its original line ends, the occurrences that were found in `plain`."""
    # Where `plain` has a line end that is two characters in the text: each moves everything after it by one.
    pairs = [] if len(text) == len(plain) else [found.start() - i for i, found in enumerate(_PAIR.finditer(text))]
    pieces: list[str] = []
    end = 0
    for start in starts:
        pieces += (text[end : start + bisect_left(pairs, start)], new)
        end = start + length + bisect_left(pairs, start + length)
    pieces.append(text[end:])
    return "".join(pieces)


def _line_numbers(text: str, positions: Sequence[int]) -> list[int]:
    numbers: list[int] = []
    line, end = 1, 0
    for position in positions:
        line += text.count("\n", end, position)
        end = position
        numbers.append(line)
    return numbers


def _places(lines: Sequence[int]) -> str:
    shown = [str(line) for line in sorted(set(lines))]
    if len(shown) == 1:
        return f"at line {shown[0]}"
    if len(shown) > _MOST_LINES_NAMED:
        return f"at lines {', '.join(shown[:_MOST_LINES_NAMED])} and more"
    return f"at lines {', '.join(shown[:-1])} and {shown[-1]}"
