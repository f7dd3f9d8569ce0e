"""Comparing two runs: better, worse, and when that is more than noise."""

from __future__ import annotations

from swink_agent.evals import CaseResult, EvalRun, Score, compare

from .sample_runs import attempt, result, run_of


def run(*passes: bool, start: int = 0) -> EvalRun:
    return run_of(*[result(f"c{number}", "", passed) for number, passed in enumerate(passes, start)])


def scored(*values: float) -> EvalRun:
    results = [CaseResult(f"c{at}", (attempt({"judge": Score(value, 0.5)}),)) for at, value in enumerate(values)]
    return run_of(*results)


def test_a_run_does_not_differ_from_itself() -> None:
    found = compare(run(True, False, True), run(True, False, True))
    assert (found.better, found.worse, found.same) == ((), (), ("c0", "c1", "c2"))
    assert (found.difference, found.low, found.high, found.is_significant) == (0.0, 0.0, 0.0, False)


def test_cases_that_got_better_and_worse_are_named() -> None:
    found = compare(run(True, False, True, False), run(True, True, False, False))
    assert (found.better, found.worse) == (("c1",), ("c2",))
    assert (found.fixed, found.broken) == (("c1",), ("c2",))
    assert found.difference == 0.0


def test_cases_of_only_one_run_are_named_and_counted_nowhere() -> None:
    found = compare(run(True, True), run(False, True, start=1))
    assert (found.only_before, found.only_after) == (("c0",), ("c2",))
    assert (found.worse, found.cases) == (("c1",), 1)


def test_runs_with_nothing_in_common_have_no_difference() -> None:
    found = compare(run(True), run(True, start=1))
    assert (found.difference, found.is_significant, found.cases) == (0.0, False, 0)


def test_one_of_many_that_changed_is_noise() -> None:
    before, after = [True] * 20, [True] * 19 + [False]
    found = compare(run(*before), run(*after))
    assert found.worse == ("c19",)
    assert found.low < 0 == found.high
    assert not found.is_significant


def test_many_equal_changes_are_not_noise() -> None:
    found = compare(run(*[False] * 12, *[True] * 8), run(*[True] * 20))
    assert 0 < found.low < found.difference < found.high
    assert found.is_significant
    other = compare(run(*[True] * 20), run(*[False] * 12, *[True] * 8))
    assert other.high < 0
    assert other.is_significant


def test_as_many_changes_in_both_directions_are_noise() -> None:
    found = compare(run(*[True, False] * 10), run(*[False, True] * 10))
    assert found.low < 0 < found.high
    assert not found.is_significant


def test_too_few_cases_tell_nothing_however_they_went() -> None:
    assert not compare(run(*[False] * 4), run(*[True] * 4)).is_significant
    assert compare(run(*[False] * 5), run(*[True] * 5)).is_significant


def test_the_same_runs_give_the_same_figures() -> None:
    before, after = scored(*[0.1 * (at % 10) for at in range(40)]), scored(*[0.1 * (at % 7) for at in range(40)])
    first, second = compare(before, after), compare(before, after)
    assert first == second
    assert first.low < first.difference < first.high


def test_the_order_of_cases_does_not_matter() -> None:
    before, after = scored(*[0.1 * (at % 10) for at in range(30)]), scored(*[0.1 * (at % 7) for at in range(30)])
    turned = run_of(*reversed(before.results))
    assert compare(before, after) == compare(turned, after)


def test_a_score_that_fell_above_its_threshold_is_worse_and_broke_nothing() -> None:
    found = compare(scored(0.9), scored(0.7))
    assert (found.worse, found.broken) == (("c0",), ())


def test_a_case_of_which_more_attempts_pass_is_better() -> None:
    before, after = run_of(result("a", "", True, False, False)), run_of(result("a", "", True, True, False))
    assert compare(before, after).better == ("a",)


def test_pairing_finds_a_small_change_among_large_differences_between_cases() -> None:
    values = [0.05 * (at % 18) for at in range(60)]
    found = compare(scored(*values), scored(*[value + 0.02 + 0.01 * (at % 2) for at, value in enumerate(values)]))
    assert found.is_significant
    assert 0.02 < found.low <= found.high < 0.03
