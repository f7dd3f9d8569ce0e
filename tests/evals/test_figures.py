"""The figures of repeated attempts, checked by counting all possibilities."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent import Cost, Usage
from swink_agent.evals import Attempt, CaseResult, Score, Summary


def result_of(outcomes: list[bool], case_id: str = "a") -> CaseResult:
    scores = [{"x": Score(1.0 if passed else 0.25)} for passed in outcomes]
    return CaseResult(case_id, tuple([Attempt(number, score) for number, score in enumerate(scores, 1)]))


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_part_of_all_choices_of_k_that_hold_a_pass(outcomes: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(outcomes)))
    choices = list(combinations(outcomes, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert result_of(outcomes).pass_at(k) == pytest.approx(expected)


@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_the_mean_and_its_error_are_those_of_the_sample(outcomes: list[bool]) -> None:
    values = [1.0 if passed else 0.25 for passed in outcomes]
    result = result_of(outcomes)
    assert result.mean == pytest.approx(fmean(values))
    assert result.standard_error == pytest.approx(stdev(values) / len(values) ** 0.5)
    assert result.passed == all(outcomes)
    assert result.scores["x"].passed == all(outcomes)


def test_one_attempt_has_no_spread_and_none_has_nothing() -> None:
    assert (result_of([True]).standard_error, result_of([True]).pass_at(1)) == (0.0, 1.0)
    nothing = CaseResult("a")
    assert (nothing.passed, nothing.mean, nothing.scores, nothing.error) == (False, 0.0, {}, None)
    assert Summary().pass_rate == 0.0
    for k in (0, 2):
        with pytest.raises(ValueError, match="give 1 to 1"):
            result_of([True]).pass_at(k)


def test_an_error_makes_an_attempt_worth_nothing() -> None:
    attempt = Attempt(1, {"x": Score(1.0)}, error="the model failed")
    assert (attempt.passed, attempt.value) == (False, 0.0)


def test_usage_of_judges_is_in_the_sums() -> None:
    attempt = Attempt(1, {"judge": Score(1.0, cost=0.25, tokens=7)}, usage=Usage(total=3), cost=Cost(total=0.5))
    summary = Summary.of([CaseResult("a", (attempt, attempt)), result_of([False], "b")], 9.0)
    assert summary == Summary(total=2, passed=1, failed=1, cost=1.5, tokens=20, seconds=9.0)
