"""The difference of two texts, line by line."""

from __future__ import annotations

import difflib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.rendering.texts.diffs import LineComparison, diff_groups, diff_lines

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "long line"]), max_size=30).map("\n".join)


def applied(old: str, new: str) -> tuple[list[str], list[str]]:
    """What the lines of a diff with everything around say that the two texts are."""
    lines = diff_lines(old, new, around=10_000)
    before = [line for kind, line in lines if kind in ("context", "removed")]
    return before, [line for kind, line in lines if kind in ("context", "added")]


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_from_it(old: str, new: str) -> None:
    before, after = ([] if not text else text.removesuffix("\n").split("\n") for text in (old, new))
    if before != after:
        assert applied(old, new) == (before, after)
    else:
        assert diff_lines(old, new) == []


@pytest.mark.slow
@given(TEXTS.filter(bool), TEXTS.filter(bool))
def test_hunks_are_counted_as_unified_diffs_do(old: str, new: str) -> None:
    marks = {"added": "+", "removed": "-", "context": " ", "hunk": ""}
    lines = [marks[kind] + line for kind, line in diff_lines(old, new)]
    if any(line.startswith("@@") for line in lines):
        stripped = [text.removesuffix("\n").split("\n") for text in (old, new)]
        known = list(difflib.unified_diff(*stripped, n=3, lineterm=""))[2:]
        assert [line for line in lines if line.startswith("@@")] or known == []
        removed, added = (sum(line[:1] == mark for line in lines) for mark in "-+")
        assert removed - added == len(stripped[0]) - len(stripped[1])


def distance(before: list[str], after: list[str]) -> int:
    """The fewest lines that must be removed and added, found by the table of all prefixes."""
    row = list(range(len(after) + 1))
    for i, line in enumerate(before, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(after, 1):
            last, row[j] = row[j], last if line == other else 1 + min(row[j], row[j - 1])
    return row[-1]


LINES = st.lists(st.sampled_from("abcde"), max_size=25)


@pytest.mark.slow
@given(LINES, LINES)
def test_small_texts_have_the_smallest_difference(before: list[str], after: list[str]) -> None:
    shared = sum(size for _, _, size in LineComparison(before, after).blocks())
    assert len(before) + len(after) - 2 * shared == distance(before, after)


def check(before: list[str], after: list[str]) -> tuple[int, int]:
    """Holds the parts against the texts; returns the lines that count as changed, and the steps that it took."""
    comparison = LineComparison(before, after)
    at = to = changed = 0
    for a, b, size in [*comparison.blocks(), (len(before), len(after), 0)]:
        assert a >= at
        assert b >= to
        assert before[a : a + size] == after[b : b + size]
        changed += a - at + b - to
        at, to = a + size, b + size
    assert comparison.steps <= comparison.most_steps * 2
    return changed, comparison.steps


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


@pytest.mark.parametrize("count", [1_500, 10_000, 100_000])
def test_two_changes_far_apart_are_two_hunks(count: int) -> None:
    before, after = numbered(count), numbered(count)
    after[2:2] = ["import json"]
    after[-5] = "json.dumps(x)"
    assert len(diff_groups(before, after)) == 2
    changed, steps = check(before, after)
    assert changed == 3
    assert steps < 8 * count


@pytest.mark.sweep
def test_a_quarter_of_all_lines_changed() -> None:
    before = numbered(960)
    after = [f"changed {number}" if number % 4 == 0 else line for number, line in enumerate(before)]
    assert check(before, after)[0] == 480
    assert sum(kind == "added" for kind, _ in diff_lines("\n".join(before), "\n".join(after))) == 240


def test_many_changes_among_lines_that_repeat() -> None:
    before = ["{", "}", ""] * 2_000
    after = [line for number, line in enumerate(before) if number % 50]
    assert check(before, after)[0] == 120


def test_more_changes_than_are_looked_for_are_divided_at_lines_that_stand_once() -> None:
    before = numbered(30_000)
    after = [f"changed {number}" if number % 10 == 0 else line for number, line in enumerate(before)]
    changed, steps = check(before, after)
    assert changed == 6_000
    assert steps < 40 * len(before)


HARD: dict[str, tuple[list[str], list[str]]] = {
    "two lines in another rhythm": (
        [str(number % 2) for number in range(20_000)],
        [str(number // 2 % 2) for number in range(20_000)],
    ),
    "turned round": (numbered(20_000), numbered(20_000)[::-1]),
    "nothing alike": (numbered(20_000), [f"other {number}" for number in range(20_000)]),
    "three lines without order": (
        [str(number * number % 7 % 3) for number in range(20_000)],
        [str(number * number * number % 11 % 3) for number in range(20_000)],
    ),
    "one line and many": (["a"] * 50_000, ["b", "a"] * 10_000),
    "halves exchanged": (numbered(20_000), numbered(20_000)[10_000:] + numbered(10_000)),
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("what", HARD)
def test_texts_made_to_be_hard_take_a_bounded_number_of_steps(what: str) -> None:
    before, after = HARD[what]
    changed, steps = check(before, after)
    assert steps < 500_000 + 24 * (len(before) + len(after))
    if what == "halves exchanged":
        assert changed == 20_000


@pytest.mark.sweep
def test_texts_made_to_be_hard_to_compare_take_no_time() -> None:
    start = time.process_time()
    for count in (199, 999, 20_000):
        old = "\n".join(str(number % 2) for number in range(count))
        diff_lines(old, "\n".join(str(number // 2 % 2) for number in range(count)))
    assert time.process_time() - start < 5
