"""Evaluation: cases, an agent that runs on them, scores for what it did, and what a team does with them.

`load_set` reads a set of cases, an `EvalRunner` runs a real agent on each, evaluators score what it did, an `EvalStore`
keeps the results, and an `AuditTrail` says whether they are as they were. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .audit import AuditTrail
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
    from .codec import decode_attempt, decode_task, encode_attempt, encode_task
    from .collector import TrajectoryCollector
    from .comparing import Comparison, compare
    from .errors import EvalError, EvalSetError, EvalStoreError
    from .evaluator import Evaluator, EvaluatorRegistry
    from .executor import CaseExecutor, Executor, Subject
    from .gate import Gate, GateResult
    from .guard import BudgetGuard
    from .judge import JudgeEvaluator
    from .loading import case_schema, load_set
    from .reports import report
    from .runner import EvalRunner
    from .scorers import (
        BudgetEvaluator,
        EfficiencyEvaluator,
        FilesEvaluator,
        ResponseEvaluator,
        StructuredEvaluator,
        TrajectoryEvaluator,
    )
    from .scripting import Script, ScriptedCall, ScriptedModel, ScriptedReply, load_script
    from .store import EvalStore
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
    "AuditTrail": ".audit",
    "BudgetEvaluator": ".scorers",
    "BudgetGuard": ".guard",
    "CaseBudget": ".cases",
    "CaseExecutor": ".executor",
    "CaseResult": ".types",
    "Comparison": ".comparing",
    "EfficiencyEvaluator": ".scorers",
    "EvalCase": ".cases",
    "EvalError": ".errors",
    "EvalRun": ".types",
    "EvalRunner": ".runner",
    "EvalSet": ".cases",
    "EvalSetError": ".errors",
    "EvalStore": ".store",
    "EvalStoreError": ".errors",
    "EvalTask": ".types",
    "Evaluator": ".evaluator",
    "EvaluatorRegistry": ".evaluator",
    "Executor": ".executor",
    "ExpectedCall": ".cases",
    "ExpectedFile": ".cases",
    "ExpectedTrajectory": ".cases",
    "FilesEvaluator": ".scorers",
    "Gate": ".gate",
    "GateResult": ".gate",
    "Invocation": ".types",
    "JudgeEvaluator": ".judge",
    "JudgeRubric": ".cases",
    "Progress": ".types",
    "ResponseCriteria": ".cases",
    "ResponseEvaluator": ".scorers",
    "RunInfo": ".types",
    "Score": ".types",
    "Script": ".scripting",
    "ScriptedCall": ".scripting",
    "ScriptedModel": ".scripting",
    "ScriptedReply": ".scripting",
    "StoredTrajectory": ".types",
    "StructuredEvaluator": ".scorers",
    "Subject": ".executor",
    "Summary": ".types",
    "ToolCallRecord": ".types",
    "TrajectoryCollector": ".collector",
    "TrajectoryEvaluator": ".scorers",
    "TrajectoryMatch": ".cases",
    "Versions": ".types",
    "case_schema": ".loading",
    "compare": ".comparing",
    "decode_attempt": ".codec",
    "decode_task": ".codec",
    "encode_attempt": ".codec",
    "encode_task": ".codec",
    "load_script": ".scripting",
    "load_set": ".loading",
    "report": ".reports",
}

__all__ = [
    "Attempt",
    "AuditTrail",
    "BudgetEvaluator",
    "BudgetGuard",
    "CaseBudget",
    "CaseExecutor",
    "CaseResult",
    "Comparison",
    "EfficiencyEvaluator",
    "EvalCase",
    "EvalError",
    "EvalRun",
    "EvalRunner",
    "EvalSet",
    "EvalSetError",
    "EvalStore",
    "EvalStoreError",
    "EvalTask",
    "Evaluator",
    "EvaluatorRegistry",
    "Executor",
    "ExpectedCall",
    "ExpectedFile",
    "ExpectedTrajectory",
    "FilesEvaluator",
    "Gate",
    "GateResult",
    "Invocation",
    "JudgeEvaluator",
    "JudgeRubric",
    "Progress",
    "ResponseCriteria",
    "ResponseEvaluator",
    "RunInfo",
    "Score",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "StoredTrajectory",
    "StructuredEvaluator",
    "Subject",
    "Summary",
    "ToolCallRecord",
    "TrajectoryCollector",
    "TrajectoryEvaluator",
    "TrajectoryMatch",
    "Versions",
    "case_schema",
    "compare",
    "decode_attempt",
    "decode_task",
    "encode_attempt",
    "encode_task",
    "load_script",
    "load_set",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
