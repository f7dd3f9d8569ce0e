"""The difference between two texts: added and removed lines, with some lines around them.

The comparison takes bounded time for any texts. The lines are not escaped: the caller does that before showing them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from typing import Literal, TypeAlias

from swink_agent.core.texts.likeness import Block as _Block
from swink_agent.core.texts.likeness import joined_blocks

DiffKind: TypeAlias = Literal["added", "removed", "context", "hunk"]

_AROUND = 3
_MOST_DIFFERENCES = 300  # the smallest diff is searched for up to twice this number of differences
_STEPS, _STEPS_A_LINE = 250_000, 12
"""The steps after which a comparison stops searching: a fixed number, and a number for each line."""

_Box: TypeAlias = tuple[int, int, int, int]


def diff_lines(old: str, new: str, around: int = _AROUND) -> list[tuple[DiffKind, str]]:
    """Returns the change as lines with their kinds; a `hunk` line (`@@ -1,3 +1,4 @@`) locates the next lines.

    If one of the texts is empty, there is no hunk. Two texts with the same lines give an empty list.
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
    """Returns the hunks of a change between two lists of lines, each with at most `around` unchanged lines around."""
    return [] if before == after else _grouped(_changes(before, after), around)


DiffPart: TypeAlias = "tuple[bool, int, int, int, int]"
"""Whether the lines are the same, and their range in each text."""


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _changes(before: list[str], after: list[str]) -> list[DiffPart]:
    """Returns the parts of the two texts in order, equal and different ones in turn."""
    parts: list[DiffPart] = []
    at, to = 0, 0
    for a, b, size in [*LineComparison(before, after).blocks(), (len(before), len(after), 0)]:
        if at < a or to < b:
            parts.append((False, at, a, to, b))
        if size:
            parts.append((True, a, a + size, b, b + size))
        at, to = a + size, b + size
    return parts


class LineComparison:
    """Finds the lines that two texts share, in order, at a cost proportional to the differences.

    It is Myers' algorithm in linear space. Texts that differ a lot are divided at lines that each of them has once.
    `steps` counts the work: after `most_steps`, all lines between two shared parts count as replaced.
    """

    def __init__(self, before: list[str], after: list[str]) -> None:
        numbers: dict[str, int] = {}
        self._a = [numbers.setdefault(line, len(numbers)) for line in before]
        self._b = [numbers.setdefault(line, len(numbers)) for line in after]
        self.most_steps = _STEPS + _STEPS_A_LINE * (len(before) + len(after))
        self.steps = 0

    def blocks(self) -> list[_Block]:
        """Returns the shared blocks: their position in the first and in the second text, and their length."""
        a, b = self._a, self._b
        found: list[_Block] = []
        boxes = [(0, len(a), 0, len(b))]
        while boxes:
            a1, a2, b1, b2 = boxes.pop()
            start, most = 0, min(a2 - a1, b2 - b1)
            while start < most and a[a1 + start] == b[b1 + start]:
                start += 1
            end = 0
            while end < most - start and a[a2 - 1 - end] == b[b2 - 1 - end]:
                end += 1
            self.steps += start + end
            if start:
                found.append((a1, b1, start))
            if end:
                found.append((a2 - end, b2 - end, end))
            a1, a2, b1, b2 = a1 + start, a2 - end, b1 + start, b2 - end
            if a1 < a2 and b1 < b2 and self.steps < self.most_steps:
                boxes += self._divided(a1, a2, b1, b2)
        return joined_blocks(sorted(found))

    def _divided(self, a1: int, a2: int, b1: int, b2: int) -> list[_Box]:
        """Divides the box along a path with few differences; returns no boxes if the texts share no lines in it."""
        self.steps += a2 - a1 + b2 - b1
        if set(self._a[a1:a2]).isdisjoint(self._b[b1:b2]):
            return []
        x, y, is_middle = self._middle(a1, a2, b1, b2)
        if is_middle:
            return [(a1, x, b1, y), (x, a2, y, b2)]
        anchors = self._anchors(a1, a2, b1, b2)
        if not anchors:
            return [(a1, x, b1, y), (x, a2, y, b2)]
        corners = [(a1, b1), *anchors, (a2, b2)]
        return [(i1, i2, j1, j2) for (i1, j1), (i2, j2) in pairwise(corners)]

    def _middle(self, a1: int, a2: int, b1: int, b2: int) -> tuple[int, int, bool]:
        """Returns the middle of a path with the fewest differences or, if that is too far, the farthest point found."""
        a, b = self._a[a1:a2], self._b[b1:b2]
        n, m = len(a), len(b)
        delta = n - m
        forward, backward = {1: 0}, {1: 0}
        ways = ((True, forward, backward, a, b), (False, backward, forward, a[::-1], b[::-1]))
        walked = 0
        for d in range(_MOST_DIFFERENCES + 1):
            diagonals = range(-(d - 2 * max(0, d - m)), d - 2 * max(0, d - n) + 1, 2)
            for is_forward, mine, other, before, after in ways:
                may_meet = (delta % 2 == 1) is is_forward
                for k in diagonals:
                    if k == -d or (k != d and mine.get(k - 1, -1) < mine.get(k + 1, -1)):
                        x = mine[k + 1]
                    else:
                        x = mine[k - 1] + 1
                    begin, y = x, x - k
                    while x < n and y < m and before[x] == after[y]:
                        x, y = x + 1, y + 1
                    walked += x - begin + 1
                    mine[k] = x
                    if may_meet and abs(delta - k) <= d - is_forward and x + other.get(delta - k, -1) >= n:
                        self.steps += walked
                        return (a1 + x, b1 + y, True) if is_forward else (a2 - x, b2 - y, True)
            if self.steps + walked >= self.most_steps:
                break
        self.steps += walked
        x, y = max(((x, x - k) for k, x in forward.items() if 0 <= x - k <= m and x <= n), key=sum)
        return a1 + x, b1 + y, False

    def _anchors(self, a1: int, a2: int, b1: int, b2: int) -> list[tuple[int, int]]:
        """Returns the positions of lines that occur once in each text: the longest series in the same order in both."""
        a, b = self._a, self._b
        self.steps += 2 * (a2 - a1 + b2 - b1)
        in_a, in_b = Counter(a[a1:a2]), Counter(b[b1:b2])
        places = {line: j for j, line in enumerate(b[b1:b2], b1) if in_b[line] == 1}
        pairs = [(i, places[line]) for i, line in enumerate(a[a1:a2], a1) if in_a[line] == 1 and line in places]
        # The longest increasing subsequence, each element with the one before it.
        ends: list[int] = []
        tails: list[int] = []
        previous: list[int] = []
        for number, (_, j) in enumerate(pairs):
            row = bisect_left(ends, j)
            previous.append(tails[row - 1] if row else -1)
            ends[row : row + 1] = [j]
            tails[row : row + 1] = [number]
        chosen: list[tuple[int, int]] = []
        number = tails[-1] if tails else -1
        while number >= 0:
            chosen.append(pairs[number])
            number = previous[number]
        return [corner for corner in reversed(chosen) if corner != (a1, b1)]


def _grouped(parts: list[DiffPart], around: int) -> list[list[DiffPart]]:
    """Groups the parts into hunks, with at most `around` unchanged lines before and after a change."""
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
    """Formats a range of lines as in unified diffs."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
