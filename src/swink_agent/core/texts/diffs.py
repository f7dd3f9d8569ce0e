"""The difference between two texts as lines that were added, removed, or stand around those.

Owns the comparison, bounded in time however the texts were made, and how much stands around a change. Pure text,
nothing in it made safe: whoever shows it does that.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["DiffKind", "DiffPart", "diff_groups", "diff_lines"]

DiffKind: TypeAlias = Literal["added", "removed", "context", "hunk"]

_AROUND = 3
_MOST_COMPARED = 2000
_MOST_BLOCKS = 200
"""Parts of two texts that are recognised as the same: past that, what lies between is shown as replaced."""


def diff_lines(old: str, new: str, around: int = _AROUND) -> list[tuple[DiffKind, str]]:
    """The change as lines with their kinds; `hunk` lines (`@@ -1,3 +1,4 @@`) say where the lines below them stand.

    A text that was empty is all added, without a hunk. Nothing comes of two texts with the same lines.
    """
    before, after = _lines(old), _lines(new)
    if before == after:
        return []
    if not before:
        return [("added", line) for line in after]
    if not after:
        return [("removed", line) for line in before]
    found: list[tuple[DiffKind, str]] = []
    for group in diff_groups(before, after, around):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        found.append(("hunk", f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@"))
        for is_same, a1, a2, b1, b2 in group:
            if is_same:
                found.extend([("context", line) for line in before[a1:a2]])
            else:
                found.extend([("removed", line) for line in before[a1:a2]])
                found.extend([("added", line) for line in after[b1:b2]])
    return found


def diff_groups(before: list[str], after: list[str], around: int = _AROUND) -> list[list[DiffPart]]:
    """The hunks of a change between two lists of lines: the parts of each, with no more than so many lines around."""
    return [] if before == after else _grouped(_changes(before, after), around)


DiffPart: TypeAlias = "tuple[bool, int, int, int, int]"
"""Whether the lines are the same, and where they stand in either text."""


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _changes(before: list[str], after: list[str]) -> list[DiffPart]:
    """The parts of the two, in order. What is the same at both ends is taken off first: comparing is quadratic."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    stop_before, stop_after = len(before) - end, len(after) - end
    parts: list[DiffPart] = [(True, 0, start, 0, start)] if start else []
    parts += _compared(before[start:stop_before], after[start:stop_after], start)
    if end:
        parts.append((True, stop_before, len(before), stop_after, len(after)))
    return parts


def _compared(before: list[str], after: list[str], start: int) -> list[DiffPart]:
    if not before or not after or len(before) + len(after) > _MOST_COMPARED:
        return [(False, start, start + len(before), start, start + len(after))]
    from difflib import SequenceMatcher

    from .likeness import matching_blocks

    parts: list[DiffPart] = []
    at, to = start, start
    blocks = matching_blocks(SequenceMatcher(None, before, after), len(before), len(after), _MOST_BLOCKS)
    for i, j, size in [*blocks, (len(before), len(after), 0)]:
        a, b = start + i, start + j
        if at < a or to < b:
            parts.append((False, at, a, to, b))
        if size:
            parts.append((True, a, a + size, b, b + size))
        at, to = a + size, b + size
    return parts


def _grouped(parts: list[DiffPart], around: int) -> list[list[DiffPart]]:
    """The parts in hunks: of what is the same, no more than `around` lines before and after a change."""
    groups: list[list[DiffPart]] = [[]]
    for number, (is_same, i1, i2, j1, j2) in enumerate(parts):
        if not is_same:
            groups[-1].append((is_same, i1, i2, j1, j2))
            continue
        is_first, is_last, length = number == 0, number == len(parts) - 1, i2 - i1
        if is_first:
            kept = min(length, around)
            groups[-1].append((True, i2 - kept, i2, j2 - kept, j2))
        elif is_last:
            kept = min(length, around)
            groups[-1].append((True, i1, i1 + kept, j1, j1 + kept))
        elif length > 2 * around:
            groups[-1].append((True, i1, i1 + around, j1, j1 + around))
            groups.append([(True, i2 - around, i2, j2 - around, j2)])
        else:
            groups[-1].append((True, i1, i2, j1, j2))
    return groups


def _range(start: int, stop: int) -> str:
    """Lines as unified diffs count them."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
