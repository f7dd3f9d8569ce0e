"""Grids, rescoring, and judges that compare two answers."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from swink_agent import Agent, AssistantMessage, Cost, PolicyStop, StopReason, UserMessage, extract_text
from swink_agent.core.errors import ErrorKind
from swink_agent.evals import (
    Attempt,
    AuditTrail,
    CaseResult,
    EvalCase,
    EvalGrid,
    EvalRun,
    EvalRunner,
    EvalSet,
    EvalStore,
    EvalStoreError,
    EvaluatorRegistry,
    Invocation,
    JudgeEvaluator,
    NotMeasured,
    PairwiseJudge,
    Score,
    ToolCallRecord,
    Verdict,
    report,
    rescore,
)
from swink_agent.evals.reports import FORMATS
from swink_agent.testing import assert_eval, fail, scripted, stall

RECORDED = Path(__file__).parent / "recorded" / "run-of-version-1.json"
SET = EvalSet(
    "s",
    "Sums",
    [
        EvalCase(f"c{number}", f"Case {number}", ["?"], expected_response={"exact": str(number)}, tags=["sums"])
        for number in range(6)
    ],
)


def right(case: EvalCase, _folder: Path) -> Agent:
    return Agent("test:right", stream_fn=scripted(case.id[1:]))


def wrong(_case: EvalCase, _folder: Path) -> Agent:
    return Agent("test:wrong", stream_fn=scripted("0"))


# -- grids ---------------------------------------------------------------------------------------------------


async def test_several_agents_run_one_set_and_are_kept_side_by_side(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    grid = await EvalRunner({"small": wrong, "large": right}, store=store).run_grid(SET)
    assert grid.variants == ("small", "large")
    assert [run.summary.passed for run in grid.runs] == [1, 6]
    assert {run.set_digest for run in grid.runs} == {SET.digest}
    loaded = store.load_grid(grid.id)
    assert [(run.variant, run.grid, AuditTrail.verify(run)) for run in loaded.runs] == [
        ("small", grid.id, []),
        ("large", grid.id, []),
    ]
    assert loaded["large"].summary.passed == 6
    with pytest.raises(KeyError):
        loaded["other"]
    with pytest.raises(EvalStoreError, match="no grid"):
        store.load_grid("nothing")


async def test_a_grid_needs_names_and_a_run_needs_one_agent() -> None:
    with pytest.raises(ValueError, match="run_grid"):
        await EvalRunner({"a": right}).run(SET)
    with pytest.raises(ValueError, match="names"):
        await EvalRunner(right).run_grid(SET)
    for name in ("", "a\nb"):
        with pytest.raises(ValueError, match="variant"):
            EvalRunner({name: right})
    with pytest.raises(ValueError, match="at least one"):
        EvalRunner({})


async def test_a_grid_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    made: list[str] = []

    def counted(case: EvalCase, folder: Path) -> Agent:
        made.append(case.id)
        return right(case, folder)

    def dying(case: EvalCase, folder: Path) -> Agent:
        if case.id == "c3":
            raise Died
        return right(case, folder)

    store = EvalStore(tmp_path)
    with pytest.raises(Died):
        await EvalRunner({"a": counted, "b": dying}, store=store, parallel=1).run_grid(SET)
    assert len(made) == 6
    resumed: list[str] = []

    def going_on(case: EvalCase, folder: Path) -> Agent:
        resumed.append(case.id)
        return right(case, folder)

    grid = await EvalRunner({"a": counted, "b": going_on}, store=store, parallel=1).run_grid(SET, resume=True)
    assert (len(made), resumed) == (6, ["c3", "c4", "c5"])
    assert [run.summary.passed for run in grid.runs] == [6, 6]
    assert len(store.list("s")) == 2
    again = await EvalRunner({"a": counted, "b": going_on}, store=store).run_grid(SET, resume=True)
    assert again.id != grid.id


@pytest.mark.parametrize("format_name", FORMATS)
async def test_reports_show_variants_side_by_side_with_their_differences(format_name: Any) -> None:
    grid = await EvalRunner({"small": wrong, "large <b>": right}).run_grid(SET)
    text = report(grid, format_name)
    if format_name == "json":
        document = json.loads(text)
        assert [(one["variant"], one["summary"]["passed"]) for one in document["variants"]] == [
            ("small", 1),
            ("large <b>", 6),
        ]
        (found,) = document["comparisons"]
        assert (found["before"], found["after"], len(found["fixed"])) == ("small", "large <b>", 5)
        assert found["low"] < found["difference"] < found["high"]
        return
    if format_name == "junit":
        suites = ElementTree.fromstring(text)
        assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
            ("Sums [small]", "5"),
            ("Sums [large <b>]", "0"),
        ]
        return
    assert "mean score +0.833 (" in text
    assert "1 of 6" in text
    assert "6 of 6" in text
    assert text.index("small") < text.index("large")
    assert "5 better, 0 worse" in text
    if format_name == "html":
        assert "<b>" not in text
        assert text.count('<section class="case"') == 12


# -- scoring again -----------------------------------------------------------------------------------------------


def brief(_case: EvalCase, invocation: Invocation) -> bool:
    return len(invocation.response) < 5


async def test_a_run_is_scored_again_without_running_anything(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    run = await EvalRunner(wrong, store=store).run(SET)
    scored = await rescore(run, [brief], store=store)
    assert (scored.origin, scored.id != run.id, scored.summary.passed) == (run.id, True, 6)
    assert [list(result.scores) for result in scored.results] == [["brief"]] * 6
    loaded = store.load(scored.id)
    assert (loaded.origin, AuditTrail.verify(loaded), AuditTrail.verify(store.load(run.id))) == (run.id, [], [])
    assert loaded.results[0].attempts[0].invocation.response == "0"
    assert len(store.list("s")) == 2


async def test_a_case_may_expect_something_else_but_not_ask_something_else(tmp_path: Path) -> None:
    run = await EvalRunner(wrong).run(SET)
    kinder = EvalSet("s", "S", [EvalCase(c.id, c.name, ["?"], expected_response={"regex": "."}) for c in SET.cases])
    assert (await rescore(run, eval_set=kinder)).summary.passed == 6
    other = EvalSet("s", "S", [EvalCase(c.id, c.name, ["!"], expected_response={"regex": "."}) for c in SET.cases])
    with pytest.raises(ValueError, match="has other messages now"):
        await rescore(run, eval_set=other)
    with pytest.raises(ValueError, match="no case 'c1'"):
        await rescore(run, eval_set=EvalSet("s", "S", [kinder.cases[0]]))


async def test_scores_that_cannot_be_made_again_are_kept(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "old.json")
    run = EvalStore(tmp_path).load(tmp_path / "old.json")
    scored = await rescore(run)
    assert scored.result("adds").scores["files"] == run.result("adds").scores["files"]
    assert scored.result("judged").scores["judge"] == run.result("judged").scores["judge"]
    assert scored.summary.passed == run.summary.passed
    votes = scripted(*['{"score": 0.1, "reasoning": "No."}'] * 6)
    stricter = await rescore(run, EvaluatorRegistry.standard(JudgeEvaluator("t:judge", 3, votes)), verdict="any")
    assert stricter.result("judged").scores["judge"].value == 0.1
    assert (stricter.verdict, len(votes.requests)) == (Verdict.ANY, 6)


@pytest.mark.parametrize(
    ("arguments", "schema", "value"),
    [
        ({"n": 3}, {"required": ["n"]}, 1.0),
        ({"n": 3}, {"required": ["m"]}, 0.0),
        ({"value": [3]}, {"type": "array"}, 1.0),
    ],
)
async def test_a_value_of_an_earlier_version_is_in_the_call_that_gave_it(
    arguments: dict[str, Any], schema: dict[str, Any], value: float
) -> None:
    case = EvalCase("a", "A", ["?"], expected_response={"schema": schema})
    calls = (
        ToolCallRecord("final_answer", {"n": "wrong"}, is_error=True),
        ToolCallRecord("final_answer", arguments, "accepted"),
    )
    messages = (UserMessage("?"), AssistantMessage("", stop_reason=StopReason.TOOL_USE))
    stop = PolicyStop("final_answer", "the answer was given")
    did = Invocation(messages, 2, calls, stopped_by=stop)
    attempt = AuditTrail.sealed("s", "a", Attempt(1, {"structured": Score(1.0)}, trajectory=did, case=case))
    whole = await EvalRunner(wrong).run(EvalSet("s", "S", [case]))
    run = replace(whole, results=(CaseResult("a", (attempt,)),), chain="")
    scored = await rescore(replace(run, chain=AuditTrail.chain_of_run(run)))
    assert scored.result("a").scores["structured"].value == value
    assert not scored.result("a").attempts[0].invocation.has_value  # what is on record stays as it was


async def test_scoring_again_asks_exactly_the_evaluators_that_a_case_names() -> None:
    run = await EvalRunner(wrong, [brief]).run(EvalSet("s", "S", [EvalCase("a", "A", ["?"])]))
    none = EvalSet("s", "S", [EvalCase("a", "A", ["?"], evaluators=[])])
    scored = await rescore(run, [brief], eval_set=none)
    assert scored.result("a").scores == {}
    assert "no evaluator applies" in str(scored.result("a").error)


async def test_a_score_that_the_case_no_longer_asks_for_is_not_kept(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "old.json")
    run = EvalStore(tmp_path).load(tmp_path / "old.json")
    known = [result.case for result in run.results if result.case is not None]
    fewer = EvalSet(run.set_id, "S", [replace(case, evaluators=("budget",)) for case in known])
    scored = await rescore(run, eval_set=fewer)
    assert run.result("judged").scores.keys() >= {"judge"}
    assert scored.result("judged").scores.keys() <= {"budget"}


async def test_a_run_that_was_changed_is_not_scored_again(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(RECORDED.read_text().replace("Right.", "Wrong.", 1))
    with pytest.raises(EvalStoreError, match="not as it was recorded"):
        await rescore(EvalStore(tmp_path).load(tmp_path / "old.json"))


# -- judges ------------------------------------------------------------------------------------------------------


def vote(score: float) -> str:
    return json.dumps({"score": score, "reasoning": "so"})


async def test_several_rubrics_have_weights_and_may_have_thresholds() -> None:
    case = EvalCase(
        "a",
        "A",
        ["?"],
        judge={
            "rubrics": [
                {"name": "facts", "rubric": "Is it true?", "weight": 3, "threshold": 0.6},
                {"name": "tone", "rubric": "Is it kind?"},
            ],
            "threshold": 0.4,
        },
    )

    def judge(_context: Any) -> str:
        return vote(0.5 if "true" in extract_text(_context.messages[-1].content) else 0.9)

    stream = scripted(judge, judge)
    registry = EvaluatorRegistry([JudgeEvaluator("t:j", 1, stream)])
    scores = await registry.evaluate(case, Invocation(response="yes"))
    assert list(scores) == ["judge", "judge.facts"]
    assert scores["judge"].value == pytest.approx((3 * 0.5 + 0.9) / 4)
    assert (scores["judge"].passed, scores["judge.facts"].passed) == (True, False)


@pytest.mark.parametrize(
    "judge",
    [
        {},
        {"rubric": "a", "rubrics": [{"name": "x", "rubric": "b"}]},
        {"rubrics": [{"name": "x", "rubric": "b"}, {"name": "x", "rubric": "c"}]},
        {"rubrics": [{"name": "x", "rubric": " "}]},
        {"rubrics": [{"name": "x", "rubric": "b", "weight": 0}]},
    ],
)
def test_rubrics_that_cannot_be_are_refused(judge: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rubric|weight"):
        EvalCase("a", "A", ["?"], judge=judge)


async def test_a_judge_whose_provider_fails_says_nothing_about_the_agent() -> None:
    case = EvalCase("a", "A", ["?"], judge={"rubric": "Good?"})
    down = scripted(*[fail(ErrorKind.AUTH, "no key")] * 3)
    score = await JudgeEvaluator("t:j", 1, down).evaluate(case, Invocation())
    assert isinstance(score, Score)
    throttled = scripted(*[fail(ErrorKind.THROTTLED, "down", retry_after=0.0)] * 99)
    with pytest.raises(NotMeasured, match="t:j could not be asked"):
        await JudgeEvaluator("t:j", 1, throttled).evaluate(case, Invocation())


async def test_a_difference_over_few_cases_is_not_called_noise() -> None:
    few = EvalSet("s", "S", SET.cases[1:4])
    told = report(await EvalRunner({"right": right, "wrong": wrong}).run_grid(few))
    assert "mean score -1.000 (-1.000 to -1.000) over 3 cases: too few cases to tell it from noise" in told


async def pairwise(*answers: str) -> Any:
    one = EvalSet("s", "S", SET.cases[:1])
    before, after = await EvalRunner(wrong).run(one), await EvalRunner(right).run(one)
    said = [json.dumps({"reasoning": "r", "winner": answer}) for answer in answers]
    stream = scripted(*said, cost=Cost(total=0.25))
    return await PairwiseJudge("t:j", stream).compare(before, after), stream


@pytest.mark.parametrize(
    ("answers", "winner", "rate"),
    [
        (("second", "first"), "after", 1.0),
        (("first", "second"), "before", 0.0),
        (("first", "first"), "tie", 0.5),
        (("tie", "tie"), "tie", 0.5),
    ],
)
async def test_two_answers_are_judged_in_both_orders(answers: tuple[str, ...], winner: str, rate: float) -> None:
    found, stream = await pairwise(*answers)
    (pair,) = found.pairs
    assert (pair.winner, found.win_rate, len(stream.requests)) == (winner, rate, 2)


async def test_each_question_about_a_pair_has_a_marker_of_its_own() -> None:
    one = EvalSet("s", "S", SET.cases[:1])
    before, after = await EvalRunner(wrong).run(one), await EvalRunner(right).run(one)
    markers = ["=== a ===", "=== b ==="]
    stream = scripted(*[json.dumps({"reasoning": "r", "winner": "tie"})] * 2)
    await PairwiseJudge("t:j", stream, new_marker=iter(markers).__next__).compare(before, after)
    told = [str(request.context.system_prompt) for request in stream.requests]
    assert [[marker in text for text in told].count(True) for marker in markers] == [1, 1]


async def test_an_unreadable_answer_of_the_judge_is_not_a_verdict() -> None:
    found, _ = await pairwise("nobody", "nobody", "nobody", "nobody")
    assert (found.pairs, found.not_judged, found.win_rate) == ((), ("c0",), 0.5)
    assert found.cost == 1.0  # four answers were paid for


async def test_a_judge_whose_provider_fails_halfway_keeps_the_pairs_that_were_judged() -> None:
    two = EvalSet("s", "S", SET.cases[:2])
    before, after = await EvalRunner(wrong).run(two), await EvalRunner(right).run(two)

    def judge(request: Any) -> Any:
        is_first = "Case 0" in extract_text(request.messages[-1].content)
        down = fail(ErrorKind.THROTTLED, "down", retry_after=0.0)
        return json.dumps({"reasoning": "r", "winner": "tie"}) if is_first else down

    asked = [replace(case, user_messages=(case.name,)) for case in two.cases]
    runs = [
        replace(
            run,
            results=tuple(
                [
                    replace(one, attempts=(replace(one.attempts[0], case=case),))
                    for one, case in zip(run.results, asked, strict=True)
                ]
            ),
        )
        for run in (before, after)
    ]
    found = await PairwiseJudge("t:j", scripted(*[judge] * 99)).compare(*runs)
    assert ([pair.case_id for pair in found.pairs], found.not_judged) == (["c0"], ("c1",))


async def test_a_judge_that_cannot_be_asked_leaves_nothing_running() -> None:
    one = EvalSet("s", "S", SET.cases[:3])
    before, after = await EvalRunner(wrong).run(one), await EvalRunner(right).run(one)
    tasks = asyncio.all_tasks()
    throttled = [fail(ErrorKind.THROTTLED, "down", retry_after=0.0)] * 999
    with pytest.raises(NotMeasured, match="t:j could not be asked"):
        await PairwiseJudge("t:j", scripted(*throttled)).compare(before, after)
    assert asyncio.all_tasks() == tasks
    with pytest.raises(NotMeasured, match="t:j could not be asked: no key"):
        await PairwiseJudge("t:j", scripted(*[fail(ErrorKind.AUTH, "no key")] * 99)).compare(before, after)
    rubrics = [{"name": "a", "rubric": "Is it kind?"}, {"name": "b", "rubric": "Is it right?"}]

    def judge(request: Any) -> Any:
        return stall() if "right" in extract_text(request.messages[-1].content) else throttled[0]

    case = EvalCase("a", "A", ["?"], judge={"rubrics": rubrics})
    with pytest.raises(NotMeasured):
        await JudgeEvaluator("t:j", 2, scripted(*[judge] * 99)).evaluate(case, Invocation())
    assert asyncio.all_tasks() == tasks


# -- assert_eval -------------------------------------------------------------------------------------------------


def test_a_set_is_a_test() -> None:
    assert assert_eval(right, SET).summary.passed == 6
    assert assert_eval(right, SET.cases[2], repeat=2, verdict="any").summary.total == 1
    with pytest.raises(AssertionError) as caught:
        assert_eval(wrong, SET, min_pass_rate=0.5)
    told = str(caught.value)
    assert "pass rate 16.6 % (1 of 6) is below 50 %" in told
    assert "FAILED  c1" in told
    assert "expected exactly '1', the reply is '0'" in told


def test_a_failing_set_is_told_without_the_way_it_was_run() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_eval(wrong, SET)
    assert caught.value.__context__ is None


def test_a_set_as_a_test_may_ask_for_the_lower_bound_and_allow_what_was_not_measured() -> None:
    assert assert_eval(right, SET, min_pass_rate_low=0.5).summary.passed == 6
    with pytest.raises(AssertionError, match=r"only above 60.9 % with 95 % confidence, which is below 90 %"):
        assert_eval(right, SET, min_pass_rate_low=0.9)

    def throttled(case: EvalCase, folder: Path) -> Agent:
        return Agent("t:m", stream_fn=scripted(*[fail("throttled")] * 4), sleep=lambda seconds: asyncio.sleep(0))

    def mostly(case: EvalCase, folder: Path) -> Agent:
        return throttled(case, folder) if case.id == "c0" else right(case, folder)

    assert assert_eval(mostly, SET, retries=0, max_not_measured=1).summary.not_measured == 1
    with pytest.raises(AssertionError) as caught:
        assert_eval(throttled, SET.cases[0], retries=0)
    told = str(caught.value)
    assert told.startswith("1 of 1 case was not measured, because the provider failed; at most 0 are allowed\n\n")
    assert "0 %" not in told
    with pytest.raises(AssertionError, match=r"^no case was measured, so there is no pass rate"):
        assert_eval(throttled, SET.cases[0], retries=0, max_not_measured=1)


@pytest.mark.parametrize(
    "wrong_factory", ["agents:right", None, {"a": "agents:right"}, Agent("t:m", stream_fn=scripted())]
)
def test_a_function_that_makes_no_agents_is_refused_before_anything_runs(wrong_factory: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="make_agent"):
        EvalRunner(wrong_factory)


async def test_a_set_is_an_async_test_too(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,user_messages,expected_response.exact\nc1,?,1\n")
    assert (await assert_eval(right, tmp_path / "s.csv")).summary.passed == 1
    with pytest.raises(AssertionError, match="FAILED  c1"):
        await assert_eval(wrong, SET)


def test_a_grid_of_stored_runs_is_made_by_hand() -> None:
    grid = EvalGrid("g", [EvalRun("one", "s"), EvalRun("two", "s")])
    assert grid.variants == ("one", "two")
    assert "two against one" in report(grid)
    assert [line for line in report(grid).splitlines() if line != line.rstrip()] == []
