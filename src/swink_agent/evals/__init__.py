"""Evaluation: cases, an agent that runs on them, scores for what it did, and what a team does with them.

`load_set` reads a set of cases, an `EvalRunner` runs a real agent on each, evaluators score what it did, and an
`EvalStore` keeps the results. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cases import (
        CaseBudget,
        EvalCase,
        EvalSet,
        ExpectedCall,
        ExpectedFile,
        ExpectedTrajectory,
        JudgeRubric,
        ResponseCriteria,
        TrajectoryMatch,
    )
    from .comparing import Comparison, compare
    from .errors import EvalError, EvalSetError, EvalStoreError
    from .gate import Gate, GateResult
    from .reports import report
    from .types import (
        Attempt,
        CaseResult,
        EvalRun,
        EvalTask,
        Invocation,
        Progress,
        RunInfo,
        Score,
        StoredTrajectory,
        Summary,
        ToolCallRecord,
        Versions,
    )

_HOMES = {
    "Attempt": ".types",
    "CaseBudget": ".cases",
    "CaseResult": ".types",
    "Comparison": ".comparing",
    "EvalCase": ".cases",
    "EvalError": ".errors",
    "EvalRun": ".types",
    "EvalSet": ".cases",
    "EvalSetError": ".errors",
    "EvalStoreError": ".errors",
    "EvalTask": ".types",
    "ExpectedCall": ".cases",
    "ExpectedFile": ".cases",
    "ExpectedTrajectory": ".cases",
    "Gate": ".gate",
    "GateResult": ".gate",
    "Invocation": ".types",
    "JudgeRubric": ".cases",
    "Progress": ".types",
    "ResponseCriteria": ".cases",
    "RunInfo": ".types",
    "Score": ".types",
    "StoredTrajectory": ".types",
    "Summary": ".types",
    "ToolCallRecord": ".types",
    "TrajectoryMatch": ".cases",
    "Versions": ".types",
    "compare": ".comparing",
    "report": ".reports",
}

__all__ = [
    "Attempt",
    "CaseBudget",
    "CaseResult",
    "Comparison",
    "EvalCase",
    "EvalError",
    "EvalRun",
    "EvalSet",
    "EvalSetError",
    "EvalStoreError",
    "EvalTask",
    "ExpectedCall",
    "ExpectedFile",
    "ExpectedTrajectory",
    "Gate",
    "GateResult",
    "Invocation",
    "JudgeRubric",
    "Progress",
    "ResponseCriteria",
    "RunInfo",
    "Score",
    "StoredTrajectory",
    "Summary",
    "ToolCallRecord",
    "TrajectoryMatch",
    "Versions",
    "compare",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
