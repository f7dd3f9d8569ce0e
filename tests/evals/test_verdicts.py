"""From attempts to a verdict: repeats, attempts that were not measured, tags, and the interval of the pass rate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Cost
from swink_agent.core.errors import ErrorKind
from swink_agent.evals import (
    Attempt,
    AuditTrail,
    CaseResult,
    EvalCase,
    EvalRun,
    EvalRunner,
    EvalSet,
    EvalStore,
    Gate,
    Invocation,
    NotMeasured,
    Score,
    Summary,
    Verdict,
)
from swink_agent.testing import FakeClock, fail, scripted

RECORDED = Path(__file__).parent / "recorded" / "run-of-version-1.json"


def of(verdict: str, *values: float | None, threshold: float = 0.5) -> CaseResult:
    """A case with an attempt for each value; `None` is an error."""
    attempts = [
        Attempt(number, {"m": Score(value or 0.0, threshold)}, error="broken" if value is None else None)
        for number, value in enumerate(values, 1)
    ]
    return CaseResult("a", tuple(attempts), verdict=Verdict(verdict))


def exchange(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


# -- repeats -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("verdict", "values", "passed", "decisive"),
    [
        ("all", (1, 1, 1), True, 1),
        ("all", (1, 0, 1), False, 0),
        ("any", (0, 0, 1), True, 1),
        ("any", (0, 0.2, 0), False, 0.2),
        ("majority", (1, 1, 0), True, 1),
        ("majority", (1, 0), False, 0),
        ("majority", (1, 0, 0), False, 0),
        ("mean", (1, 0, 0.6), True, 1.6 / 3),
        ("mean", (1, 0, 0.4), False, 1.4 / 3),
        ("mean", (1, None), True, 0.5),
        ("mean", (0.9, None), False, 0.45),
        ("mean", (), False, None),
        ("any", (), False, None),
    ],
)
def test_a_verdict_says_how_many_attempts_have_to_pass(
    verdict: str, values: tuple[float | None, ...], passed: bool, decisive: float | None
) -> None:
    result = of(verdict, *values)
    assert result.passed is passed
    assert result.scores.get("m", Score(0)).value == pytest.approx(decisive or 0)


async def test_the_case_decides_then_the_run_then_the_set(tmp_path: Path) -> None:
    replies = iter(["yes", "no", "no"] * 3)

    def make(_case: EvalCase, _folder: Path) -> Agent:
        return Agent("test:m", stream_fn=scripted(next(replies)))

    def case(case_id: str, **more: Any) -> EvalCase:
        return EvalCase(case_id, case_id, ["?"], expected_response={"exact": "yes"}, **more)

    eval_set = EvalSet("s", "S", [case("own", verdict="any"), case("other")], verdict="any")
    store = EvalStore(tmp_path)
    run = await EvalRunner(make, repeat=3, parallel=1, store=store, verdict="majority").run(eval_set)
    assert [result.passed for result in run.results] == [True, False]
    assert (run.verdict, run.summary.passed) == (Verdict.MAJORITY, 1)
    again = store.load(run.id)
    assert ([result.passed for result in again.results], again.verdict) == ([True, False], Verdict.MAJORITY)
    assert AuditTrail.verify(again) == []
    replies = iter(["yes", "no", "no"] * 2)
    assert (await EvalRunner(make, repeat=3, parallel=1).run(eval_set)).summary.passed == 2
    with pytest.raises(ValueError, match="some"):
        EvalRunner(make, verdict="some")


async def test_a_verdict_that_was_changed_in_the_file_is_found_out(tmp_path: Path) -> None:
    eval_set = EvalSet("s", "S", [EvalCase("a", "A", ["?"], expected_response={"exact": "yes"})])
    run = await EvalRunner(
        lambda _case, _folder: Agent("t:m", stream_fn=scripted("no")), store=EvalStore(tmp_path), verdict="any"
    ).run(eval_set)
    exchange(Path(run.path), '"verdict":"any"', '"verdict":"all"')
    (problem,) = AuditTrail.verify(EvalStore(tmp_path).load(run.id))
    assert "verdict" in problem


# -- the provider's failures -----------------------------------------------------------------------------------


ASKED = EvalSet("s", "S", [EvalCase("a", "A", ["?"], expected_response={"exact": "yes"})])


def failing(*kinds: ErrorKind | str, then: str = "yes") -> Any:
    """A factory whose agents meet these failures, an agent each, and answer afterwards."""
    left = list(kinds)

    def make(_case: EvalCase, _folder: Path) -> Agent:
        said = [fail(left.pop(0), "overloaded")] * 9 if left else [then]
        return Agent("test:m", stream_fn=scripted(*said, cost=Cost(total=0.25)), sleep=FakeClock().sleep)

    return make


@pytest.mark.parametrize("kind", [ErrorKind.THROTTLED, ErrorKind.NETWORK])
async def test_provider_failures_are_repeated_and_not_counted_against_the_agent(kind: ErrorKind) -> None:
    clock = FakeClock()
    run = await EvalRunner(failing(kind, kind), sleep=clock.sleep).run(ASKED)
    (attempt,) = run.results[0].attempts
    assert (attempt.passed, attempt.tries, attempt.is_measured) == (True, 3, True)
    assert clock.sleeps == [5.0, 10.0]
    assert AuditTrail.verify(run) == []


async def test_lasting_failures_are_not_measured_and_neither_passed_nor_failed(tmp_path: Path) -> None:
    clock, store = FakeClock(), EvalStore(tmp_path)
    two = EvalSet("s", "S", [*ASKED.cases, EvalCase("b", "B", ["?"], expected_response={"exact": "yes"})])
    make = failing(*[ErrorKind.THROTTLED] * 4)
    run = store.load((await EvalRunner(make, sleep=clock.sleep, retries=3, parallel=1, store=store).run(two)).id)
    summary = run.summary
    assert (summary.total, summary.passed, summary.failed, summary.not_measured) == (2, 1, 0, 1)
    assert summary.pass_rate == 1.0
    first = run.results[0]
    assert (first.is_measured, first.passed, first.attempts[0].tries, first.attempts[0].scores) == (False, False, 4, {})
    assert clock.sleeps == [5.0, 10.0, 20.0]
    assert Gate(min_pass_rate=0.5).check(run).violations == (
        "1 of 2 cases was not measured, because the provider failed; at most 0 are allowed",
    )
    assert Gate(min_pass_rate=0.5, max_not_measured=1).check(run).passed
    assert AuditTrail.verify(run) == []


@pytest.mark.parametrize("kind", [ErrorKind.AUTH, ErrorKind.INVALID_REQUEST, ErrorKind.CONTENT_FILTERED])
async def test_other_errors_fail_the_case_at_once(kind: ErrorKind) -> None:
    clock = FakeClock()
    run = await EvalRunner(failing(kind), sleep=clock.sleep).run(ASKED)
    assert (run.summary.failed, run.summary.not_measured, clock.sleeps) == (1, 0, [])


async def test_an_attempt_of_several_that_is_not_measured_leaves_the_verdict_to_the_others() -> None:
    run = await EvalRunner(failing(ErrorKind.NETWORK), repeat=2, parallel=1, retries=0).run(ASKED)
    (result,) = run.results
    assert (result.passed, result.mean, result.pass_at(1), len(result.measured)) == (True, 1.0, 1.0, 1)


async def test_an_evaluator_that_cannot_score_says_nothing_about_the_agent() -> None:
    def broken(_case: EvalCase, _invocation: Invocation) -> Score:
        raise NotMeasured("the judge is overloaded")

    clock = FakeClock()
    run = await EvalRunner(failing(), [broken], retries=1, sleep=clock.sleep).run(ASKED)
    (attempt,) = run.results[0].attempts
    assert (attempt.is_measured, attempt.error, len(clock.sleeps)) == (False, "the judge is overloaded", 1)


async def test_when_a_run_goes_on_what_was_not_measured_is_made_again(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    two = EvalSet("s", "S", [*ASKED.cases, EvalCase("b", "B", ["?"], expected_response={"exact": "yes"})])

    class Died(BaseException):
        pass

    def make(case: EvalCase, _folder: Path) -> Agent:
        if case.id == "b":
            raise Died
        return Agent("test:m", stream_fn=scripted(*[fail(ErrorKind.THROTTLED, "busy")] * 9), sleep=FakeClock().sleep)

    with pytest.raises(Died):
        await EvalRunner(make, parallel=1, retries=0, store=store).run(two)
    assert not store.load(store.list("s")[0]).results[0].is_measured
    run = await EvalRunner(failing(), store=store).run(two, resume=True)
    assert (run.is_complete, run.summary.passed, run.summary.not_measured) == (True, 2, 0)
    assert AuditTrail.verify(store.load(run.id)) == []


# -- the interval ------------------------------------------------------------------------------------------------


def summary_of(passed: int, total: int, repeat: int = 1) -> Summary:
    return Summary.of(
        [
            CaseResult(f"c{n}", tuple([Attempt(k, {"m": Score(float(n < passed))}) for k in range(1, repeat + 1)]))
            for n in range(total)
        ]
    )


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),  # Wilson's, as tables have it
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (8, 10, 0.4902, 0.9433), (80, 100, 0.7112, 0.8666)],
)
def test_the_pass_rate_has_an_interval(passed: int, total: int, low: float, high: float) -> None:
    summary = summary_of(passed, total)
    assert (summary.pass_rate_low, summary.pass_rate_high) == (
        pytest.approx(low, abs=1e-4),
        pytest.approx(high, abs=1e-4),
    )


def test_repeats_of_a_case_are_not_further_observations() -> None:
    once, often = summary_of(8, 10), summary_of(8, 10, repeat=20)
    assert (once.pass_rate_low, once.pass_rate_high) == (often.pass_rate_low, often.pass_rate_high)


def test_a_gate_may_ask_for_the_lower_bound() -> None:
    run = EvalRun("r", "s", (), summary_of(10, 10))
    assert Gate(min_pass_rate=1.0).check(run).passed
    assert Gate(min_pass_rate_low=0.7).check(run).passed
    (problem,) = Gate(min_pass_rate_low=0.8).check(run).violations
    assert problem == "pass rate 100 % is only above 72.2 % with 95 % confidence, which is below 80 %: run more cases"
    with pytest.raises(ValueError, match="min_pass_rate_low"):
        Gate(min_pass_rate_low=2)


# -- tags ----------------------------------------------------------------------------------------------------


async def test_cases_have_tags_and_each_tag_has_figures(tmp_path: Path) -> None:
    def case(case_id: str, *tags: str) -> EvalCase:
        return EvalCase(case_id, case_id, ["?"], expected_response={"exact": case_id}, tags=tags)

    eval_set = EvalSet("s", "S", [case("yes", "quick", "sums"), case("no", "sums"), case("plain")])
    store = EvalStore(tmp_path)
    await EvalRunner(lambda _case, _folder: Agent("t:m", stream_fn=scripted("yes")), store=store).run(eval_set)
    summary = store.load(store.list("s")[0]).summary
    assert {tag: (one.total, one.passed) for tag, one in summary.tags.items()} == {"quick": (1, 1), "sums": (2, 1)}
    listed = store.list("s")[0].summary
    assert listed is not None
    assert listed.tags["sums"].pass_rate == 0.5
    assert [case.id for case in eval_set.tagged(["sums"], ["quick"]).cases] == ["no"]
    assert [case.id for case in eval_set.tagged(not_tags=["sums"]).cases] == ["plain"]
    with pytest.raises(ValueError, match="no case of 's' has the tag 'slow'; there are quick, sums"):
        eval_set.tagged(["slow"])
    with pytest.raises(ValueError, match="none of the excluded ones"):
        eval_set.tagged(["quick"], ["sums"])


@pytest.mark.parametrize("tag", ["", " x", "a,b", "a\nb", "x" * 61])
def test_a_tag_is_a_word(tag: str) -> None:
    with pytest.raises(ValueError, match="cannot be a tag"):
        EvalCase("a", "A", ["?"], tags=[tag])


# -- what earlier versions wrote ---------------------------------------------------------------------------------


def test_a_run_of_an_earlier_version_loads_and_is_as_it_was_recorded(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "old.json")
    run = EvalStore(tmp_path).load(tmp_path / "old.json")
    assert AuditTrail.verify(run) == []
    assert [(result.case_id, result.passed) for result in run.results] == [
        ("adds", True),
        ("fails", False),
        ("judged", True),
    ]
    assert (run.verdict, run.variant, run.origin) == (Verdict.ALL, "", "")
    text = (tmp_path / "old.json").read_text()
    assert json.loads(text)["set_digest"] == run.set_digest
    (tmp_path / "old.json").write_text(text.replace('"value":0.9', '"value":0.8', 1))
    assert AuditTrail.verify(EvalStore(tmp_path).load(tmp_path / "old.json"))
