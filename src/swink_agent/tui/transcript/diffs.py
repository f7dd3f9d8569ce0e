"""Draws a change of a file: numbered, highlighted, with changed words marked, and side by side in wide windows.

Owns the look of a change. `rendering.texts.diffs` compares the texts; `highlighting` knows the languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from swink_agent.rendering.texts.diffs import DiffKind, diff_lines

from .highlighting import Highlighter, family_of_path
from .line import Line, Span, padded, plain, safe
from .wrapping import chopped, slice_spans

SIDE_BY_SIDE = 155
"""The least width in cells at which the two texts are shown side by side: in a window of 160 columns, marks before the
rows and the scrollbar take 5."""
ShownFn: TypeAlias = Callable[[str], str]
"""Escapes a line of a file for the terminal."""
_MOST_WORDS = 400
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


class _DiffLine(NamedTuple):
    """A line of one of the two texts."""

    number: int
    spans: tuple[Span, ...]
    is_changed: bool


class _DiffRow(NamedTuple):
    """A row of the side-by-side view: a line of each text, or only the header of a hunk."""

    left: _DiffLine | None
    right: _DiffLine | None
    hunk: str = ""


class Change:
    """A change of a file, which is compared once and can be drawn at any width."""

    __slots__ = ("_diff", "_new", "_old", "_path", "_shown")

    def __init__(self, path: str, old: str, new: str, *, shown: ShownFn = safe) -> None:
        self._path, self._old, self._new = path, old, new
        self._shown = shown
        self._diff: list[tuple[DiffKind, str]] | None = None

    def part(self, diff: Sequence[tuple[DiffKind, str]]) -> Change:
        """Returns a part of the change, such as one hunk, with these lines."""
        change = Change(self._path, self._old, self._new, shown=self._shown)
        change._diff = list(diff)
        return change

    def _compared(self) -> list[tuple[DiffKind, str]]:
        if self._diff is None:
            self._diff = diff_lines(self._old, self._new)
        return self._diff

    @property
    def text(self) -> str:
        """The text for searches: the new text of the file, or the old one if the file was deleted."""
        return self._new or self._old

    @property
    def size(self) -> int:
        return len(self._compared())

    @property
    def longest(self) -> int:
        return max([len(text) for _, text in self._compared()], default=0)

    @property
    def summary(self) -> str:
        """The numbers of added and removed lines, with their signs."""
        kinds = [kind for kind, _ in self._compared()]
        return f"+{kinds.count('added')} \u2212{kinds.count('removed')}"

    def lines(self, width: int, most: int | None = None) -> list[Line]:
        """Returns the change as lines of a width; with `most`, only that many lines of the diff."""
        pairs = _pairs(self._path, self._compared()[:most], self._shown)
        numbers = [half.number for pair in pairs for half in (pair.left, pair.right) if half is not None]
        digits = len(str(max(numbers, default=1)))
        is_whole = not self._old or not self._new  # a created or deleted file has only one side
        if width >= SIDE_BY_SIDE and not is_whole:
            return _side_by_side(pairs, digits, width)
        return _unified(pairs, digits, width)


# -- pairing lines -------------------------------------------------------------------------------------------------


def _pairs(path: str, diff: Sequence[tuple[DiffKind, str]], shown: ShownFn) -> list[_DiffRow]:
    name = family_of_path(path)
    before, after = Highlighter(name, "context"), Highlighter(name, "context")
    pairs: list[_DiffRow] = []
    removed: list[tuple[int, str]] = []
    added: list[tuple[int, str]] = []
    left, right = 1, 1
    for kind, raw in diff:
        if kind in ("context", "hunk"):
            _pair_up(removed, added, before, after, pairs)
        text = shown(raw)
        if kind == "hunk":
            found = _HUNK.match(raw)
            if found is not None:
                left, right = int(found[1]), int(found[2])
            # The lines between two hunks are unknown, so a comment that is still open cannot be recognized.
            before, after = Highlighter(name, "context"), Highlighter(name, "context")
            pairs.append(_DiffRow(None, None, text))
        elif kind == "removed":
            removed.append((left, text))
            left += 1
        elif kind == "added":
            added.append((right, text))
            right += 1
        else:
            spans = before.line(text)
            after.line(text)
            pairs.append(_DiffRow(_DiffLine(left, spans, is_changed=False), _DiffLine(right, spans, is_changed=False)))
            left, right = left + 1, right + 1
    _pair_up(removed, added, before, after, pairs)
    return pairs


def _pair_up(
    removed: list[tuple[int, str]],
    added: list[tuple[int, str]],
    before: Highlighter,
    after: Highlighter,
    pairs: list[_DiffRow],
) -> None:
    """Pairs a run of removed lines with the added lines that follow it, and clears both."""
    for number in range(max(len(removed), len(added))):
        old = removed[number] if number < len(removed) else None
        new = added[number] if number < len(added) else None
        marks = _changed_parts(old[1], new[1]) if old and new else None
        left = old and _DiffLine(old[0], _marked(before.line(old[1]), marks and marks[0], "removed"), is_changed=True)
        right = new and _DiffLine(new[0], _marked(after.line(new[1]), marks and marks[1], "added"), is_changed=True)
        pairs.append(_DiffRow(left, right))
    removed.clear()
    added.clear()


def _changed_parts(old: str, new: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Returns the ranges in which two lines differ, by words; `None` if they have little in common."""
    if len(old) > 2000 or len(new) > 2000:
        return None
    first, second = _TOKEN.findall(old)[:_MOST_WORDS], _TOKEN.findall(new)[:_MOST_WORDS]
    start, most = 0, min(len(first), len(second))
    while start < most and first[start] == second[start]:
        start += 1
    end = 0
    while end < most - start and first[-1 - end] == second[-1 - end]:
        end += 1
    head = len("".join(first[:start]))
    tail = len("".join(first[len(first) - end :])) if end else 0
    shared = len("".join(first[:start]).strip()) + tail
    if shared * 3 < max(len(old.strip()), len(new.strip())):
        return None
    return (head, len(old) - tail), (head, len(new) - tail)


def _marked(spans: tuple[Span, ...], part: tuple[int, int] | None, kind: str) -> tuple[Span, ...]:
    """Adds the role of a kind of change to the spans, and a stronger one to a part of them."""

    def with_role(some: Sequence[Span], role: str) -> list[Span]:
        return [span._replace(role=f"{span.role}+{role}") for span in some]

    if part is None or part[0] >= part[1]:
        return tuple(with_role(spans, kind))
    start, end = part
    return (
        *with_role(slice_spans(spans, 0, start), kind),
        *with_role(slice_spans(spans, start, end), f"{kind}.word"),
        *with_role(slice_spans(spans, end, len(plain(spans))), kind),
    )


# -- drawing -------------------------------------------------------------------------------------------------------


def _hunk_line(hunk: str, width: int) -> Line:
    return Line((Span(hunk[:width], "hunk"),), hunk)


def _unified(pairs: Sequence[_DiffRow], digits: int, width: int) -> list[Line]:
    lines: list[Line] = []
    at = 0
    while at < len(pairs):
        pair = pairs[at]
        if pair.hunk:
            lines.append(_hunk_line(pair.hunk, width))
            at += 1
            continue
        run = at
        while run < len(pairs) and not pairs[run].hunk and _is_changed(pairs[run]):
            run += 1
        if run == at:
            half = pair.right or pair.left
            if half is not None:
                _put(lines, half, "context", digits, width)
            at += 1
            continue
        for some in pairs[at:run]:
            if some.left is not None:
                _put(lines, some.left, "removed", digits, width)
        for some in pairs[at:run]:
            if some.right is not None:
                _put(lines, some.right, "added", digits, width)
        at = run
    return lines


def _is_changed(pair: _DiffRow) -> bool:
    half = pair.left or pair.right
    return half is not None and half.is_changed


_SIGNS = {"context": " ", "removed": "-", "added": "+"}


def _put(lines: list[Line], half: _DiffLine, kind: str, digits: int, width: int) -> None:
    room = width - digits - 3
    for number, row in enumerate(chopped(half.spans, room)):
        gutter = _gutter(half.number if not number else None, kind, digits)
        spans = (*gutter, *row)
        drawn = padded(spans, width, kind) if kind != "context" else tuple(spans)
        text = plain(row)
        copied = f"{_SIGNS[kind]}{text}" if not number else text
        lines.append(Line(drawn, copied, "" if number else None, digits + 2))


def _gutter(number: int | None, kind: str, digits: int) -> tuple[Span, ...]:
    shown = f"{'' if number is None else number:>{digits}} "
    sign = _SIGNS[kind] if number is not None else " "
    if kind == "context":
        return (Span(shown, "number"), Span(f"{sign} ", "context"))
    return (Span(shown, f"number+{kind}"), Span(f"{sign} ", f"{kind}.sign"))


def _side_by_side(pairs: Sequence[_DiffRow], digits: int, width: int) -> list[Line]:
    half_width = (width - 1) // 2
    room = half_width - digits - 3
    lines: list[Line] = []
    for pair in pairs:
        if pair.hunk:
            lines.append(_hunk_line(pair.hunk, width))
            continue
        left = _column(pair.left, "removed", digits, room, half_width)
        right = _column(pair.right, "added", digits, room, half_width)
        blank = (Span(" " * half_width, "context"),)
        text = plain((pair.right or pair.left or _DiffLine(0, (), is_changed=False)).spans)
        for number in range(max(len(left), len(right))):
            one = left[number] if number < len(left) else blank
            other = right[number] if number < len(right) else blank
            copied = text if not number else ""
            lines.append(Line((*one, Span("\u2502", "rule"), *other), copied, "" if number else None))
    return lines


def _column(half: _DiffLine | None, changed: str, digits: int, room: int, width: int) -> list[tuple[Span, ...]]:
    if half is None:
        return []
    kind = changed if half.is_changed else "context"
    rows: list[tuple[Span, ...]] = []
    for number, row in enumerate(chopped(half.spans, room)):
        gutter = _gutter(half.number if not number else None, kind, digits)
        rows.append(padded((*gutter, *row), width, kind))
    return rows
