"""Matching calls with expectations: the largest number that one call each can meet."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.evals import ExpectedCall, ExpectedTrajectory, ToolCallRecord, TrajectoryMatch
from swink_agent.evals.scoring.matching import canonical, matched, trajectory_value

NAMES = st.sampled_from(["read", "write"])
ARGUMENTS: Any = st.sampled_from([{}, {"a": 1}, {"a": True}, {"a": 1.0}, {"a": "1"}, {"a": [1, None]}, {"b": {"c": 0}}])
MADE = st.lists(st.builds(ToolCallRecord, NAMES, ARGUMENTS), max_size=5)
EXPECTED = st.lists(st.builds(ExpectedCall, NAMES, st.one_of(st.none(), ARGUMENTS)), max_size=4)


def fits(expected: ExpectedCall, made: ToolCallRecord) -> bool:
    same = expected.arguments is None or canonical(expected.arguments) == canonical(made.arguments)
    return expected.name == made.name and same


def most_in_order(expected: list[ExpectedCall], made: list[ToolCallRecord]) -> int:
    for size in range(min(len(expected), len(made)), 0, -1):
        for wanted in combinations(expected, size):
            if any(all(map(fits, wanted, chosen)) for chosen in combinations(made, size)):
                return size
    return 0


def most_in_any_order(expected: list[ExpectedCall], made: list[ToolCallRecord]) -> int:
    for size in range(min(len(expected), len(made)), 0, -1):
        for wanted in combinations(expected, size):
            if any(all(map(fits, wanted, chosen)) for chosen in permutations(made, size)):
                return size
    return 0


@settings(max_examples=200)
@given(EXPECTED, MADE)
def test_no_better_match_exists(expected: list[ExpectedCall], made: list[ToolCallRecord]) -> None:
    assert matched(ExpectedTrajectory(expected), made) == most_in_order(expected, made)
    assert matched(ExpectedTrajectory(expected, "any_order"), made) == most_in_any_order(expected, made)


@settings(max_examples=100)
@given(EXPECTED, MADE)
def test_the_value_is_the_part_that_matched_and_extra_calls_fail_exact_alone(
    expected: list[ExpectedCall], made: list[ToolCallRecord]
) -> None:
    values = {match: trajectory_value(ExpectedTrajectory(expected, match), made) for match in TrajectoryMatch}
    assert all(0 <= value <= 1 for value in values.values())
    assert values[TrajectoryMatch.EXACT] <= values[TrajectoryMatch.IN_ORDER] <= values[TrajectoryMatch.ANY_ORDER]
    is_exact = len(expected) == len(made) and all(map(fits, expected, made))
    assert (values[TrajectoryMatch.EXACT] == 1) == is_exact
    whole = [ToolCallRecord(call.name, call.arguments or {}) for call in expected]
    assert all(trajectory_value(ExpectedTrajectory(expected, match), whole) == 1 for match in TrajectoryMatch)


def test_nothing_against_nothing_passes() -> None:
    for match in TrajectoryMatch:
        assert trajectory_value(ExpectedTrajectory([], match), []) == 1
    extra = [ToolCallRecord("read")]
    assert trajectory_value(ExpectedTrajectory([], "exact"), extra) == 0
    assert trajectory_value(ExpectedTrajectory([]), extra) == 1


def test_arguments_are_compared_as_json() -> None:
    def fit(expected: Any, made: Any) -> bool:
        return trajectory_value(ExpectedTrajectory([{"name": "t", "arguments": expected}]), [made]) == 1

    def made(arguments: dict[str, Any]) -> ToolCallRecord:
        return ToolCallRecord("t", arguments)

    assert not fit({"a": True}, made({"a": 1}))
    assert not fit({"a": 0}, made({"a": False}))
    assert not fit({"a": None}, made({}))
    assert not fit({}, made({"a": 1}))
    assert not fit({"a": [1, 2]}, made({"a": [2, 1]}))
    assert fit({"a": 1}, made({"a": 1.0}))
    assert fit({"a": {"b": 1, "c": [True]}}, made({"a": {"c": [True], "b": 1}}))
    assert fit({}, made({}))


def test_an_expectation_with_arguments_is_served_before_one_without() -> None:
    expected = ExpectedTrajectory([{"name": "t"}, {"name": "t", "arguments": {"a": 1}}], "any_order")
    assert matched(expected, [ToolCallRecord("t", {"a": 1}), ToolCallRecord("t")]) == 2
    assert matched(expected, [ToolCallRecord("t", {"a": 1})]) == 1
