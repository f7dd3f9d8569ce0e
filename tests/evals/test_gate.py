"""The gate: every limit, all violations at once, and no pass for what was not run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from swink_agent.evals import CaseResult, EvalRun, Gate, GateResult, Score

from .sample_runs import attempt, result, run_of


def run(*passes: bool, seconds: float = 2.0) -> EvalRun:
    return run_of(*[result(f"c{at}", "", passed) for at, passed in enumerate(passes)], seconds=seconds)


def test_a_run_within_its_limits_passes() -> None:
    gate = Gate(min_pass_rate=0.5, max_cost=0.1, max_seconds=2.0, baseline=run(True, False))
    assert gate.check(run(True, False)) == GateResult(True, ())


def test_all_violations_are_named_at_once() -> None:
    gate = Gate(min_pass_rate=0.9, max_cost=0.01, max_seconds=1.5, baseline=run(True, True, True, True))
    checked = gate.check(run(True, False, True))
    assert checked == GateResult(
        False,
        (
            "pass rate 66.6 % (2 of 3) is below 90 %",
            "cost $0.0180 is above $0.0100",
            "duration 2.0 s is above 1.5 s",
            "case 'c1' passed in the baseline and fails now",
            "case 'c3' passed in the baseline and was not run",
        ),
    )


def test_a_limit_that_is_just_reached_is_kept() -> None:
    reached = run(True, True, False)
    assert Gate(min_pass_rate=2 / 3).check(reached).passed
    assert Gate(max_cost=reached.summary.cost, max_seconds=reached.summary.seconds).check(reached).passed
    assert not Gate(min_pass_rate=0.6667).check(run(True, True, False)).passed


def test_a_gate_without_limits_passes_whole_runs_alone() -> None:
    assert Gate().check(run(False)).passed
    assert Gate().check(EvalRun("r", "s")).violations == ("no case was run",)
    part = structs.replace(run(True), cases=4, is_complete=False)
    assert Gate().check(part).violations == ("the run is not complete: 1 of 4 cases are done",)


def test_a_case_that_failed_before_may_go_on_failing_and_a_new_one_may_fail() -> None:
    baseline = run(True, False)
    assert Gate(baseline=baseline).check(run(True, False, False)).passed


def test_an_error_is_told_with_the_case_that_it_broke() -> None:
    broken = CaseResult("c0", (attempt({}, error="overloaded"),))
    checked = Gate(baseline=run(True)).check(run_of(broken))
    assert checked.violations == ("case 'c0' passed in the baseline and fails now: overloaded",)


def test_scores_that_fell_beyond_noise_are_a_regression_though_cases_pass() -> None:
    def scored(value: float) -> EvalRun:
        return run_of(*[CaseResult(f"c{at}", (attempt({"judge": Score(value, 0.5)}),)) for at in range(10)])

    assert Gate(baseline=scored(0.9)).check(scored(0.6)).violations == (
        "scores fell by 0.300 on average (between -0.300 and -0.300), more than noise",
    )
    assert Gate(baseline=scored(0.6)).check(scored(0.9)).passed


def test_a_baseline_of_another_set_is_refused() -> None:
    other = structs.replace(run(True), set_id="another")
    assert Gate(baseline=other).check(run(True)).violations == (
        "the baseline is of the set 'another', not of 'settings'",
    )


def test_costs_that_are_not_numbers_do_not_pass_for_cheap() -> None:
    odd = run(True)
    odd = structs.replace(odd, summary=structs.replace(odd.summary, cost=float("nan")))
    assert not Gate(max_cost=1.0).check(odd).passed


@pytest.mark.parametrize(
    "limits", [{"min_pass_rate": 1.1}, {"min_pass_rate": -0.1}, {"max_cost": -1.0}, {"max_seconds": float("nan")}]
)
def test_a_limit_that_cannot_be_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Gate(**limits)  # pyright: ignore[reportArgumentType]


@pytest.mark.table
@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"min_pass_rate": "0.9"}, "^min_pass_rate must be a share of the cases, or None, not a str$"),
        ({"max_cost": "1"}, "^max_cost must be a number, or None, not a str$"),
        ({"max_seconds": True}, "^max_seconds must be a number, or None, not a bool$"),
        ({"max_not_measured": 0.5}, "^max_not_measured must be a whole number, not a float$"),
        ({"baseline": "last.json"}, "^baseline must be an EvalRun, such as EvalStore.load gives, or None, not a str$"),
    ],
)
def test_a_limit_of_the_wrong_kind_is_refused(limits: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        Gate(**limits)
