"""The report as JSON, for programs: the figures, the scores and what the agent did.

Owns its layout, which `docs/evals.md` describes. It does not contain whole messages: the stored run does.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from swink_agent.core.values.value import Value
from swink_agent.evals.types import Attempt, CaseResult, EvalGrid, EvalRun, Score, Summary
from swink_agent.rendering.values import pretty_json

from .words import invocation_of

FORMAT, GRID_FORMAT, VERSION = "swink-agent-eval-report", "swink-agent-eval-grid", 1


def json_report(run: EvalRun) -> str:
    return _text({"format": FORMAT, "version": VERSION, **_run(run)})


def json_grid(grid: EvalGrid) -> str:
    """Several runs: `variants` has the report of each, `comparisons` compares each with the first."""
    from swink_agent.evals.runs.comparing import compare

    document: dict[str, Any] = {
        "format": GRID_FORMAT,
        "version": VERSION,
        "grid": grid.id,
        "variants": [{"variant": name, **_run(run)} for name, run in zip(grid.variants, grid.runs, strict=True)],
        "comparisons": [
            {"before": grid.variants[0], "after": name, **msgspec.to_builtins(compare(grid.runs[0], run))}
            for name, run in list(zip(grid.variants, grid.runs, strict=True))[1:]
        ],
    }
    return _text(document)


def _run(run: EvalRun) -> dict[str, Any]:
    names = ("id", "set_id", "set_name", "created", "cases", "repeat", "is_complete", "verdict", "variant", "origin")
    return {
        "run": _fields(run, *names),
        "summary": _summary(run.summary),
        "results": [_result(result) for result in run.results],
    }


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(summary),
        **_fields(summary, "pass_rate", "pass_rate_low", "pass_rate_high"),
        "tags": {tag: _summary(one) for tag, one in summary.tags.items()},
    }


def _fields(value: Value, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _text(document: dict[str, Any]) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    except UnicodeEncodeError:  # a lone surrogate in a text of a model: ASCII JSON can represent it
        plain = json.dumps(document, default=pretty_json)
        # A number that JSON does not have becomes null.
        return json.dumps(json.loads(plain, parse_constant=lambda _: None), indent=2) + "\n"


def _result(result: CaseResult) -> dict[str, Any]:
    return {
        **_fields(result, "case_id", "name", "passed", "error", "mean", "standard_error"),
        "pass_at": {str(k): result.pass_at(k) for k in range(1, len(result.measured) + 1)},
        **_fields(result, "is_measured", "verdict", "tags", "cost", "tokens", "seconds"),
        "scores": _scores(result.scores),
        "attempts": [_attempt(attempt) for attempt in result.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    invocation, problem = invocation_of(attempt)
    did: dict[str, Any] = {"trajectory_error": problem} if problem else {}
    return {
        **_fields(attempt, "number", "passed", "is_measured", "tries", "error", "value"),
        "scores": _scores(attempt.scores),
        "turns": attempt.turns,
        "cost": attempt.total_cost,
        "tokens": attempt.total_tokens,
        **_fields(attempt, "seconds", "started", "stop_reason"),
        "versions": msgspec.to_builtins(attempt.versions),
        "response": invocation.response,
        "tool_calls": [
            {"name": call.name, "arguments": _plain(call.arguments)}
            | _fields(call, "result", "seconds", "is_error", "outcome", "turn")
            for call in invocation.tool_calls
        ],
        **did,
    }


def _scores(scores: dict[str, Score]) -> dict[str, Any]:
    return {name: {**msgspec.to_builtins(score), "passed": score.passed} for name, score in scores.items()}


def _plain(value: object) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return pretty_json(value)
