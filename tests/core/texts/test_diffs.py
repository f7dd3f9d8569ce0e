"""The difference of two texts, line by line."""

from __future__ import annotations

import difflib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.core.texts.diffs import diff_lines

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


def test_texts_made_to_be_hard_to_compare_take_no_time() -> None:
    start = time.process_time()
    for count in (199, 999, 20_000):
        old = "\n".join(str(number % 2) for number in range(count))
        diff_lines(old, "\n".join(str(number // 2 % 2) for number in range(count)))
    assert time.process_time() - start < 5
