"""Places in a draft as vim finds them: words, lines, characters in a line, texts in quotes and brackets.

Owns the motions and text objects. All of them step over whole characters as people see them, and a token is a word.
`vim` applies them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .draft import Draft

_KEYWORD = re.compile(r"\w")
_PAIRS = {"(": "()", ")": "()", "b": "()", "[": "[]", "]": "[]", "{": "{}", "}": "{}", "<": "<>", ">": "<>"}


class Range(NamedTuple):
    start: int
    end: int
    is_lines: bool = False


def snapped(draft: Draft, at: int) -> int:
    """Returns the beginning of the whole character at a place."""
    return at if at >= len(draft.text) else draft.before(draft.after(at))


def _kind(draft: Draft, at: int, is_big: bool) -> str:
    """Returns the class of a character: "" for a blank, "word", "signs", or a token itself, so that it is one word."""
    character = draft.text[at]
    if character in draft.tokens:
        return character
    if character.isspace():
        return ""
    return "word" if is_big or _KEYWORD.match(character) or not character.isprintable() else "signs"


def is_blank(draft: Draft, at: int) -> bool:
    return at >= len(draft.text) or draft.text[at].isspace()


def _is_empty_line(draft: Draft, at: int) -> bool:
    return draft.text[at] == "\n" and (at == 0 or draft.text[at - 1] == "\n")


def word_on(draft: Draft, at: int, is_big: bool) -> int:
    """Returns the beginning of the next word; an empty line counts as one."""
    length = len(draft.text)
    if at >= length:
        return length
    kind = _kind(draft, at, is_big)
    begun = at
    while kind and at < length and _kind(draft, at, is_big) == kind:
        at += 1
    while at < length and not _kind(draft, at, is_big):
        if at > begun and _is_empty_line(draft, at):
            break
        at += 1
    return at


def word_end(draft: Draft, at: int, is_big: bool) -> int:
    """Returns the last character of the word after a place."""
    length = len(draft.text)
    at = draft.after(at) if at >= 0 else 0
    while at < length and not _kind(draft, at, is_big):
        at += 1
    if at >= length:
        return max(length - 1, 0)
    kind = _kind(draft, at, is_big)
    while at + 1 < length and _kind(draft, at + 1, is_big) == kind:
        at += 1
    return snapped(draft, at)


def word_back(draft: Draft, at: int, is_big: bool) -> int:
    at -= 1
    while at > 0 and not _kind(draft, at, is_big):
        if _is_empty_line(draft, at):
            return at
        at -= 1
    if at <= 0:
        return 0
    kind = _kind(draft, at, is_big)
    while at > 0 and _kind(draft, at - 1, is_big) == kind:
        at -= 1
    return at


def left(draft: Draft, at: int, count: int) -> int:
    start = draft.line_start(at)
    for _ in range(count):
        if at <= start:
            break
        at = draft.before(at)
    return at


def right(draft: Draft, at: int, count: int) -> int:
    end = draft.line_end(at)
    for _ in range(count):
        if at >= end:
            break
        at = draft.after(at)
    return at


def characters(draft: Draft, start: int, end: int) -> list[int]:
    """Returns the beginnings of the whole characters in a part of a line."""
    places: list[int] = []
    while start < end:
        places.append(start)
        start = draft.after(start)
    return places


def first_mark(draft: Draft, start: int) -> int:
    """Returns the first character of a line that is not blank."""
    end = draft.line_end(start)
    at = start
    while at < end and draft.text[at] in " \t":
        at += 1
    return at


def vertical(draft: Draft, at: int, step: int) -> int:
    """Returns the same column `step` lines below, or above if negative; stops at the first or last line."""
    column = len(characters(draft, draft.line_start(at), at))
    for _ in range(abs(step)):
        if step > 0:
            end = draft.line_end(at)
            if end >= len(draft.text):
                break
            at = end + 1
        else:
            start = draft.line_start(at)
            if start == 0:
                break
            at = draft.line_start(start - 1)
    return right(draft, draft.line_start(at), column)


def lines_from(draft: Draft, at: int, more: int) -> Range:
    """Returns the line of a place and the `more` lines below it."""
    return Range(draft.line_start(at), draft.line_end(vertical(draft, at, more)), is_lines=True)


def found_in_line(draft: Draft, at: int, key: str, character: str, count: int, *, is_again: bool = False) -> int | None:
    """Returns the place of a character in the line for `f` and `F`, the place next to it for `t` and `T`, or `None`."""
    start, end = draft.line_start(at), draft.line_end(at)
    places = [place for place in characters(draft, start, end) if draft.text[place : draft.after(place)] == character]
    if key in "ft":
        skips = 1 if key == "t" and is_again else 0
        behind = [place for place in places if place > at and not (skips and place == draft.after(at))]
        if len(behind) < count:
            return None
        return behind[count - 1] if key == "f" else draft.before(behind[count - 1])
    skips = 1 if key == "T" and is_again else 0
    before = [place for place in reversed(places) if place < at and not (skips and draft.after(place) == at)]
    if len(before) < count:
        return None
    return before[count - 1] if key == "F" else draft.after(before[count - 1])


def text_object(draft: Draft, at: int, what: str) -> Range | None:
    """Returns the range of a text object: a word, or a text in quotes or brackets; `None` if none is found."""
    kind, sign = what[0], what[1]
    if sign in "wW":
        return _word_object(draft, at, is_big=sign == "W", is_around=kind == "a")
    found = _in_brackets(draft.text, at, *_PAIRS[sign]) if sign in _PAIRS else _in_quotes(draft, at, sign)
    if found is None:
        return None
    start, end = found
    return Range(start, end + 1) if kind == "a" else Range(start + 1, end)


def _word_object(draft: Draft, at: int, *, is_big: bool, is_around: bool) -> Range | None:
    first, last = draft.line_start(at), draft.line_end(at)
    if at >= last:
        return None
    kind = _kind(draft, at, is_big)
    start, end = at, at
    while start > first and _kind(draft, start - 1, is_big) == kind:
        start -= 1
    while end < last and _kind(draft, end, is_big) == kind:
        end += 1
    if is_around:
        behind = end
        while behind < last and bool(_kind(draft, behind, is_big)) != bool(kind):
            behind += 1
        if behind == end and kind:
            before = start
            while before > first and not _kind(draft, before - 1, is_big):
                before -= 1
            start = before if before > first else start  # the indentation of a line stays
        end = behind
    return Range(start, end)


def _in_brackets(text: str, at: int, opening: str, closing: str) -> tuple[int, int] | None:
    """Returns the places of the brackets around a place, or else of the next ones."""
    depth = 0
    start = at - 1 if text[at : at + 1] in ("", closing) else at
    while start >= 0 and (depth or text[start] != opening):
        depth += (text[start] == closing) - (text[start] == opening)
        start -= 1
    if start < 0:
        start = text.find(opening, at)
    depth = 0
    for end in range(start, len(text) if start >= 0 else start):
        depth += (text[end] == opening) - (text[end] == closing)
        if not depth:
            return start, end
    return None


def _in_quotes(draft: Draft, at: int, sign: str) -> tuple[int, int] | None:
    start, end = draft.line_start(at), draft.line_end(at)
    places = [place for place in range(start, end) if draft.text[place] == sign]
    for first, last in zip(places[::2], places[1::2], strict=False):
        if at <= last:
            return first, last
    return None
