"""The evaluators that need no model."""

from __future__ import annotations

import os
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Cost, Usage
from swink_agent.core.types import PolicyStop
from swink_agent.evals import (
    BudgetEvaluator,
    EfficiencyEvaluator,
    EvalCase,
    EvalRunner,
    EvalSet,
    Evaluator,
    EvaluatorRegistry,
    FilesEvaluator,
    Invocation,
    ResponseEvaluator,
    Score,
    StructuredEvaluator,
    ToolCallRecord,
    TrajectoryEvaluator,
)
from swink_agent.evals.scoring.matching import found_within, is_quick
from swink_agent.testing import scripted


class OwnFloat(float):
    """As the floats of numpy."""


def case(**fields: Any) -> EvalCase:
    return EvalCase("a", "A", ["hi"], **fields)


def score_of(evaluator: Any, given: EvalCase, invocation: Invocation) -> Score:
    score = evaluator.evaluate(given, invocation)
    assert isinstance(score, Score)
    return score


def test_a_score_passes_when_it_reaches_its_threshold() -> None:
    assert Score(1.0).passed
    assert not Score(0.99).passed
    assert Score(0.5, 0.5).passed
    for wrong in ((1.1,), (-0.1,), (float("nan"),), (0.5, 2.0)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            Score(*wrong)


def test_a_score_is_plain_whatever_kind_of_number_it_was_made_from() -> None:
    for given, value in ((True, 1.0), (False, 0.0), (1, 1.0), (Fraction(1, 2), 0.5), (OwnFloat(0.5), 0.5)):
        score = Score(given)  # type: ignore[arg-type]
        assert (score.value, type(score.value)) == (value, float)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"value": "1"}, "^a score's value must be a number, not a str$"),
        ({"value": 1.0, "threshold": None}, "^a score's threshold must be a number, not a NoneType$"),
        ({"value": 1.0, "reason": None}, "^a score's reason must be a string, not a NoneType$"),
        ({"value": 1.0, "tokens": 1.5}, "^a score's tokens must be a whole number, not a float$"),
    )
    for arguments, told in wrong:
        with pytest.raises(TypeError, match=told):
            Score(**arguments)
    with pytest.raises(ValueError, match="cost must be an amount"):
        Score(1.0, cost=float("nan"))


async def test_a_score_from_a_bool_or_with_a_wrong_reason_leaves_the_attempt_as_it_was() -> None:
    def is_short(_case: EvalCase, invocation: Invocation) -> Score:
        return Score(len(invocation.response) < 9)

    def unexplained(_case: EvalCase, _invocation: Invocation) -> Score:
        return Score(1.0, reason=None)  # type: ignore[arg-type]

    def share(_case: EvalCase, _invocation: Invocation) -> Any:
        return Fraction(1, 2)

    runner = EvalRunner(lambda _case, _folder: Agent("test:m", stream_fn=scripted("3")), [is_short, unexplained, share])
    (result,) = (await runner.run(EvalSet("sums", "Sums", [case()]))).results
    assert result.error is None
    assert result.attempts[0].invocation.response == "3"
    assert {name: score.value for name, score in result.scores.items()} == {
        "is_short": 1.0,
        "unexplained": 0.0,
        "share": 0.5,
    }
    assert result.scores["unexplained"].reason.endswith("a score's reason must be a string, not a NoneType")


def test_aspects_that_a_case_leaves_open_are_not_scored() -> None:
    registry = EvaluatorRegistry.standard()
    for name in ("trajectory", "response", "structured", "files", "budget", "efficiency"):
        assert registry[name].evaluate(case(), Invocation(response="x")) is None, name
        assert isinstance(registry[name], Evaluator)


def test_the_calls_that_were_expected_are_looked_for() -> None:
    given = case(expected_trajectory={"calls": [{"name": "a"}, {"name": "b"}]})
    score = score_of(TrajectoryEvaluator(), given, Invocation(tool_calls=[ToolCallRecord("a"), ToolCallRecord("c")]))
    assert (score.value, score.passed) == (0.5, False)
    assert "expected a, b; made a{}, c{}" in score.reason


@pytest.mark.table
@pytest.mark.parametrize(
    ("criteria", "response", "passes"),
    [
        ({"exact": "42"}, "42", True),
        ({"exact": "42"}, "42.", False),
        ({"contains": "42"}, "It is 42.", True),
        ({"contains": "42"}, "It is 43.", False),
        ({"regex": r"^\d+$"}, "42", True),
        ({"regex": r"\d"}, "It is 42.", True),
        ({"regex": r"^\d+$"}, "It is 42.", False),
        ({"schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', True),
        ({"schema": {"type": "object", "required": ["a"]}}, '```json\n{"a": 1}\n```', True),
        ({"schema": {"type": "object", "required": ["a"]}}, 'Here:\r\n```json\r\n{\r\n"a": 1}\r\n```\r\nDone.', True),
        ({"schema": {"type": "object", "required": ["a"]}}, '```\n{"b": 1}\n```\n````json\n{"a": "```"}\n````', True),
        ({"schema": {"type": "object", "required": ["a"]}}, '```\n{"a": 1}\n```\n```\n{"b": 1}\n```', False),
        ({"schema": {"type": "object", "required": ["a"]}}, 'The result: ```json\n{"a": 1}', False),
        ({"schema": {"type": "object", "required": ["a"]}}, '{"a": "```"}', True),
        ({"schema": {"type": "object", "required": ["a"]}}, '{"b": 1}', False),
        ({"schema": {"type": "object"}}, "It is {}.", False),
        ({"schema": {"type": "integer"}}, "true", False),
    ],
)
def test_a_reply_is_what_was_expected_or_not(criteria: dict[str, Any], response: str, passes: bool) -> None:
    given = case(expected_response=criteria)
    score = score_of(ResponseEvaluator(), given, Invocation(response=response))
    assert score.passed is passes
    assert passes or response[:10] in score.reason or "schema" in score.reason


def test_a_value_that_was_given_by_a_call_is_held_to_the_schema() -> None:
    given = case(expected_response={"schema": {"type": "object", "required": ["a"]}})
    right, wrong = (Invocation(value=value, has_value=True) for value in ({"a": 1}, {"b": 1}))
    assert score_of(StructuredEvaluator(), given, right).passed
    assert not score_of(StructuredEvaluator(), given, wrong).passed
    assert ResponseEvaluator().evaluate(given, right) is None
    as_text = Invocation(value=[1], has_value=True, response='{"value": [1]}')
    assert ResponseEvaluator().evaluate(given, as_text) is None
    namesake = Invocation(tool_calls=[ToolCallRecord("final_answer", {"a": 1}, "accepted")], response="done")
    assert not score_of(StructuredEvaluator(), given, namesake).passed


@pytest.mark.sweep
def test_a_pattern_without_end_fails_in_limited_time() -> None:
    start = time.monotonic()
    given = case(expected_response={"regex": r"^(a+)+$"})
    score = score_of(ResponseEvaluator(), given, Invocation(response="a" * 40 + "!"))
    assert not score.passed
    assert "simpler" in score.reason
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "pattern",
    [r"(a|aa)+$", r"(a*)*b", r"(?:a+)+b", r"a*a*a*a*a*a*a*b", r"(.)\1(a+)+b", "(?x)(a+) #\n+b", "(?ix:(a+) #\n+b)"],
)
def test_slow_patterns_are_not_searched_here(pattern: str) -> None:
    assert not is_quick(pattern, 100)


def test_a_search_elsewhere_finds_the_same() -> None:
    assert is_quick(r"done \d+", 500)
    assert found_within(r"(ab)+c", "xx ababc")
    assert not found_within(r"(ab)+d", "xx ababc")
    assert found_within(r"(é|ü)+", "grün \ud800")


def test_a_budget_is_kept_or_missed_by_so_much() -> None:
    used = Invocation(turns=4, usage=Usage(total=200), cost=Cost(total=0.5), seconds=2.0)
    kept = score_of(BudgetEvaluator(), case(budget={"turns": 4, "tokens": 200, "cost": 0.5, "seconds": 2}), used)
    assert kept == Score(1.0, reason="within budget")
    missed = score_of(BudgetEvaluator(), case(budget={"turns": 2, "tokens": 150, "cost": 1}), used)
    assert (missed.value, missed.passed) == (0.5, False)
    assert missed.reason == "exceeded: tokens 200 of 150, turns 4 of 2"


@pytest.mark.parametrize(
    ("calls", "turns", "ideal", "value"),
    [
        ([("a", {})], 1, None, 1.0),
        ([("a", {}), ("a", {})], 2, None, 0.6 * 0.5 + 0.4 * 0.5),
        ([("a", {"n": 1}), ("a", {"n": 2})], 1, None, 1.0),
        ([("a", {"n": 1}), ("a", {"n": True})], 4, None, 0.6 + 0.4 * 0.5),
        ([("a", {}), ("b", {})], 4, 3, 0.6 + 0.4 * 0.75),
    ],
)
def test_efficiency_is_what_was_new_and_how_many_turns_it_took(
    calls: list[tuple[str, dict[str, Any]]], turns: int, ideal: int | None, value: float
) -> None:
    given = case(budget={"turns": ideal} if ideal else None)
    invocation = Invocation(tool_calls=[ToolCallRecord(*call) for call in calls], turns=turns)
    assert score_of(EfficiencyEvaluator(), given, invocation).value == pytest.approx(value)


def test_files_are_looked_for_where_the_agent_worked(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("hello\n")
    (tmp_path / "b.bin").write_bytes(b"\xff")
    given = case(
        expected_files=[
            {"path": "sub/a.txt", "content": "hello\n"},
            {"path": "sub/a.txt", "regex": "^hel+o"},
            {"path": "b.bin"},
            {"path": "b.bin", "content": "x"},
            {"path": "missing.txt"},
            {"path": "sub"},
            {"path": "sub/a.txt", "content": "hello"},
            {"path": "sub/a.txt", "regex": "bye"},
        ]
    )
    score = score_of(FilesEvaluator(), given, Invocation(folder=tmp_path))
    assert score.value == pytest.approx(3 / 8)
    assert score.reason.split("; ") == [
        "b.bin: not UTF-8 text",
        "missing.txt: no such file or directory",
        "sub: not a file",
        "sub/a.txt: expected 'hello', found 'hello\\n'",
        "sub/a.txt: nothing matches 'bye', found 'hello\\n'",
    ]


def test_a_case_that_its_guard_ended_did_not_keep_to_its_budget() -> None:
    """The guard ends it before the turn too many, which is then in no figure."""
    given = case(budget={"turns": 2})
    ended = PolicyStop("budget_guard", "2 of 2 turns are used up")
    score = score_of(BudgetEvaluator(), given, Invocation(turns=2, stopped_by=ended))
    assert (round(score.value, 3), score.reason) == (0.667, "exceeded: turns, ended by its guard after 2 of 2")
    assert score_of(BudgetEvaluator(), given, Invocation(turns=2)).passed
    assert score_of(BudgetEvaluator(), given, Invocation(turns=2, stopped_by=PolicyStop("other", ""))).passed
    assert score_of(BudgetEvaluator(), given, Invocation(turns=1, stopped_by=ended)).passed


def test_a_link_out_of_the_folder_and_a_pipe_are_not_files(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    given = case(expected_files=[{"path": "link", "content": "secret"}, {"path": "up/secret"}, {"path": "pipe"}])
    score = score_of(FilesEvaluator(), given, Invocation(folder=folder))
    assert score.value == 0
    assert score.reason.count("a link out of the folder") == 2


def test_a_link_instead_of_the_folder_itself_leads_nowhere(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "case"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    folder.symlink_to(elsewhere)
    given = case(expected_files=[{"path": "secret", "content": "nothing"}])
    score = score_of(FilesEvaluator(), given, Invocation(folder=folder))
    assert (score.value, score.reason) == (0, "secret: a link out of the folder")


def test_a_link_that_stays_in_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("hello")
    (tmp_path / "link").symlink_to("sub/a.txt")
    (tmp_path / "here").symlink_to(".")
    given = case(expected_files=[{"path": "link", "content": "hello"}, {"path": "here"}])
    score = score_of(FilesEvaluator(), given, Invocation(folder=tmp_path))
    assert (score.value, score.reason) == (0.5, "here: not a file")


def test_a_file_that_becomes_a_link_while_it_is_looked_at_is_not_followed(tmp_path: Path) -> None:
    """A process that the agent left behind exchanges the file all the time; what is outside is never read."""
    folder = tmp_path / "case"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    target, spare, link = folder / "a.txt", folder / "spare", folder / "link"
    target.write_text("inside")
    is_over = threading.Event()

    def exchange() -> None:
        while not is_over.is_set():
            link.symlink_to(tmp_path / "secret")
            os.replace(link, target)
            spare.write_text("inside")
            os.replace(spare, target)

    swapper = threading.Thread(target=exchange)
    swapper.start()
    try:
        given = case(expected_files=[{"path": "a.txt", "content": "secret"}])
        scores = [score_of(FilesEvaluator(), given, Invocation(folder=folder)) for _ in range(1000)]
    finally:
        is_over.set()
        swapper.join()
    assert {score.value for score in scores} == {0.0}


# -- the registry ----------------------------------------------------------------------------------------------------


def says_hello(_case: EvalCase, invocation: Invocation) -> bool:
    return invocation.response == "hello"


async def slow(_case: EvalCase, _invocation: Invocation) -> Score:
    return Score(0.25, 0.2, "as it goes")


def breaks(_case: EvalCase, _invocation: Invocation) -> Score:
    raise RuntimeError("no idea")


def has_nothing_to_say(_case: EvalCase, _invocation: Invocation) -> None:
    return None


def talks(_case: EvalCase, _invocation: Invocation) -> str:
    return "well"


async def test_functions_count_under_their_names_and_what_fails_stops_nothing() -> None:
    registry = EvaluatorRegistry([says_hello, slow, breaks, has_nothing_to_say, talks, ResponseEvaluator()])
    scores = await registry.evaluate(case(expected_response={"exact": "hello"}), Invocation(response="hello"))
    assert {name: score.value for name, score in scores.items()} == {
        "says_hello": 1.0,
        "slow": 0.25,
        "breaks": 0.0,
        "talks": 0.0,
        "response": 1.0,
    }
    assert scores["breaks"].reason == "the evaluator failed: RuntimeError: no idea"
    assert "not a Score" in scores["talks"].reason


async def test_a_case_chooses_among_the_evaluators() -> None:
    registry = EvaluatorRegistry.standard()
    calls = [ToolCallRecord("a")]
    given = case(expected_response={"exact": "x"}, budget={"turns": 1}, evaluators=["efficiency", "budget", "colour"])
    scores = await registry.evaluate(given, Invocation(turns=1, tool_calls=calls, response="y"))
    assert {name: score.passed for name, score in scores.items()} == {
        "efficiency": True,
        "budget": True,
        "colour": False,
    }
    assert "there is no evaluator 'colour'" in scores["colour"].reason
    unrestricted = await registry.evaluate(case(budget={"turns": 1}), Invocation(turns=1, tool_calls=calls))
    assert list(unrestricted) == ["budget"]


def test_a_name_is_taken_once() -> None:
    registry = EvaluatorRegistry([says_hello])
    with pytest.raises(ValueError, match="already"):
        registry.register(says_hello)
    with pytest.raises(TypeError, match=r"TrajectoryEvaluator\(\)"):
        registry.register(TrajectoryEvaluator)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="not an evaluator"):
        registry.register(3)  # pyright: ignore[reportArgumentType]

    @registry.register
    def own(_case: EvalCase, _invocation: Invocation) -> Score:
        return Score(1.0)

    assert list(registry) == ["says_hello", "own"]
    assert own(case(), Invocation()).passed


@pytest.mark.parametrize(
    ("budget", "usage", "cost"),
    [({"cost": 0.1}, Usage(), Cost(input=0.25)), ({"tokens": 100}, Usage(cache_read=500), Cost())],
)
def test_a_budget_counts_parts_without_a_total(budget: Any, usage: Usage, cost: Cost) -> None:
    score = score_of(BudgetEvaluator(), case(budget=budget), Invocation(usage=usage, cost=cost))
    assert score.value < 0.5
