"""The report as JSON: the figures, the scores and what the agent did, for programs.

Owns its layout, which `docs/evals.md` describes. Whole messages are not in it: they are in the stored run.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from swink_agent.evals.types import Attempt, CaseResult, EvalRun, Score, ToolCallRecord
from swink_agent.rendering.values import pretty_json

from .words import invocation_of

__all__ = ["FORMAT", "VERSION", "json_report"]

FORMAT, VERSION = "swink-agent-eval-report", 1


def json_report(run: EvalRun) -> str:
    summary = run.summary
    document = {
        "format": FORMAT,
        "version": VERSION,
        "run": {
            "id": run.id,
            "set_id": run.set_id,
            "set_name": run.set_name,
            "created": run.created,
            "cases": run.cases,
            "repeat": run.repeat,
            "is_complete": run.is_complete,
        },
        "summary": {**msgspec.to_builtins(summary), "pass_rate": summary.pass_rate},
        "results": [_result(result) for result in run.results],
    }
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    except UnicodeEncodeError:  # half a character, in what a model said: JSON can say that in ASCII
        return (
            json.dumps(json.loads(json.dumps(document, default=pretty_json), parse_constant=_nothing), indent=2) + "\n"
        )


def _nothing(_: str) -> None:
    """What stands for a number that JSON has not."""


def _result(result: CaseResult) -> dict[str, Any]:
    count = len(result.attempts)
    return {
        "case_id": result.case_id,
        "name": result.name,
        "passed": result.passed,
        "error": result.error,
        "mean": result.mean,
        "standard_error": result.standard_error,
        "pass_at": {str(k): result.pass_at(k) for k in range(1, count + 1)},
        "cost": result.cost,
        "tokens": result.tokens,
        "seconds": result.seconds,
        "scores": _scores(result.scores),
        "attempts": [_attempt(attempt) for attempt in result.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    invocation, problem = invocation_of(attempt)
    did: dict[str, Any] = {"trajectory_error": problem} if problem else {}
    return {
        "number": attempt.number,
        "passed": attempt.passed,
        "error": attempt.error,
        "value": attempt.value,
        "scores": _scores(attempt.scores),
        "turns": attempt.turns,
        "cost": attempt.total_cost,
        "tokens": attempt.total_tokens,
        "seconds": attempt.seconds,
        "started": attempt.started,
        "stop_reason": attempt.stop_reason,
        "versions": msgspec.to_builtins(attempt.versions),
        "response": invocation.response,
        "tool_calls": [_call(call) for call in invocation.tool_calls],
        **did,
    }


def _scores(scores: dict[str, Score]) -> dict[str, Any]:
    return {name: {**msgspec.to_builtins(score), "passed": score.passed} for name, score in scores.items()}


def _call(call: ToolCallRecord) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": _plain(call.arguments),
        "result": call.result,
        "seconds": call.seconds,
        "is_error": call.is_error,
        "outcome": call.outcome,
        "turn": call.turn,
    }


def _plain(value: object) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return pretty_json(value)
