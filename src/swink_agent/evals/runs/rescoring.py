"""`rescore`: scores a stored run again, with other evaluators, expectations or another verdict.

No agent runs, and no model is asked except a judge.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable

from msgspec.structs import replace

from swink_agent.core.secrets.redaction import Redactor

from ..cases.cases import EvalCase, EvalSet, Verdict
from ..errors import EvalStoreError, NotMeasured
from ..scoring.evaluator import Evaluator, EvaluatorFn, EvaluatorRegistry
from ..types import Attempt, CaseResult, EvalRun, Invocation, Score, Summary
from .audit_chain import AuditTrail
from .executor import NOTHING_APPLIES
from .store import EvalStore, case_result, new_run_id

_OLD_ANSWER_TOOL = re.compile(r"final_answer_*")
"""The names of the tool that took structured values, before results had them."""


async def rescore(
    run: EvalRun,
    evaluators: Iterable[Evaluator | EvaluatorFn] | EvaluatorRegistry | None = None,
    *,
    eval_set: EvalSet | None = None,
    store: EvalStore | None = None,
    verdict: Verdict | str | None = None,
    parallel: int = 4,
    redactor: Redactor | None = None,
) -> EvalRun:
    """Scores the attempts of a run again; returns a new run, whose `origin` is the id of the old one.

    `evaluators` are as for `EvalRunner`. `eval_set` has the cases with the new expectations; by default the cases are
    as they were run. An evaluator that cannot score again keeps its score if the case expects the same: `files` if the
    folder was deleted, `judge` if there is no model. Cost and time of the agents stay in the figures. With a `store`,
    the new run is saved there.

    Raises `EvalStoreError` if a trajectory cannot be read or the run was changed after it was recorded, and
    `ValueError` for an `eval_set` that lacks a case of the run, or has other messages in it.
    """
    problems = AuditTrail.verify(run)
    if problems:
        raise EvalStoreError(f"is not as it was recorded: {problems[0]}", path=run.path)
    registry = EvaluatorRegistry.standard() if evaluators is None else evaluators
    if not isinstance(registry, EvaluatorRegistry):
        registry = EvaluatorRegistry(registry)
    cases = _cases(run, eval_set)
    created = time.time_ns() // 1_000_000
    of_set = None if eval_set is None else eval_set.verdict
    chosen = of_set or run.verdict if verdict is None else Verdict(verdict)
    limit = asyncio.Semaphore(parallel)

    async def scored(result: CaseResult, attempt: Attempt) -> Attempt:
        async with limit:
            again = await _scored(attempt, cases.get(result.case_id), registry)
        if redactor is not None:
            again = replace(again, scores=redactor.redact_value(again.scores))
        again = AuditTrail.sealed(run.set_id, result.case_id, replace(again, chain=()))
        # A trajectory on disk is read again when it is written: not all of them are kept in memory.
        return replace(again, trajectory=attempt.trajectory)

    results: list[CaseResult] = []
    for result in run.results:
        attempts = await asyncio.gather(*[scored(result, attempt) for attempt in result.attempts])
        results.append(case_result(result.case_id, attempts, result.name, chosen))
    new = replace(
        run,
        id=new_run_id(created),
        results=tuple(results),
        summary=Summary.of(results, run.summary.seconds),
        set_digest=run.set_digest if eval_set is None else eval_set.digest,
        created=created,
        verdict=chosen,
        origin=run.id,
        grid="",
        path="",
        chain="",
    )
    new = replace(new, chain=AuditTrail.chain_of_run(new))
    if store is None:
        return new
    path = await asyncio.to_thread(store.save, new)
    return await asyncio.to_thread(store.load, path)


def _cases(run: EvalRun, eval_set: EvalSet | None) -> dict[str, EvalCase]:
    if eval_set is None:
        return {result.case_id: result.case for result in run.results if result.case is not None}
    cases = {case.id: case for case in eval_set.cases}
    for result in run.results:
        case = cases.get(result.case_id)
        if case is None:
            raise ValueError(f"the set {eval_set.id!r} has no case {result.case_id!r}, which the run has")
        asked = result.case
        if asked is not None and asked.user_messages != case.user_messages:
            told = f"the case {case.id!r} has other messages now, so the old attempts cannot be scored by it"
            raise ValueError(f"{told}; run it again")
    return cases


async def _scored(attempt: Attempt, case: EvalCase | None, registry: EvaluatorRegistry) -> Attempt:
    invocation = await asyncio.to_thread(lambda: attempt.invocation)
    if not attempt.is_measured and invocation.error is not None:
        return attempt  # the provider failed: nothing to score
    if case is None:
        raise EvalStoreError(f"attempt {attempt.number} does not contain its case; score it with its set")
    if invocation.error is not None and not invocation.messages:
        return replace(attempt, case=case)  # there was no agent
    if invocation.folder is not None and not invocation.folder.is_dir():
        invocation = replace(invocation, folder=None)
    invocation = _with_old_value(invocation, case)
    asked = registry.usual if case.evaluators is None else case.evaluators
    kept = _kept(attempt, case, registry, asked, has_folder=invocation.folder is not None)
    left = [name for name in asked if name not in kept]
    try:
        fresh = await registry.evaluate(replace(case, evaluators=tuple(left)), invocation)
    except NotMeasured as problem:
        return replace(attempt, scores={}, error=str(problem), is_measured=False, case=case)
    scores = {name: score for names in kept.values() for name, score in names.items()} | fresh
    error = invocation.error if invocation.error is not None or scores else NOTHING_APPLIES
    return replace(attempt, scores=scores, error=error, is_measured=True, case=case)


def _with_old_value(invocation: Invocation, case: EvalCase) -> Invocation:
    """Returns the invocation with its structured value, which earlier versions stored only as the call that gave it.

    The tool that took the value ended such a run as a policy.
    """
    stop = invocation.stopped_by
    if invocation.has_value or stop is None or _OLD_ANSWER_TOOL.fullmatch(stop.policy) is None:
        return invocation
    given = [call.arguments for call in invocation.tool_calls if call.name == stop.policy and not call.is_error]
    if not given:
        return invocation
    schema = {} if case.expected_response is None else case.expected_response.schema or {}
    is_wrapped = set(given[-1]) == {"value"} and "value" not in schema.get("properties", ())
    return replace(invocation, value=given[-1]["value"] if is_wrapped else given[-1], has_value=True)


def _kept(
    attempt: Attempt, case: EvalCase, registry: EvaluatorRegistry, asked: Iterable[str], *, has_folder: bool
) -> dict[str, dict[str, Score]]:
    """The scores of these evaluators that cannot be computed again and are still valid, by evaluator."""
    before = attempt.case
    kept: dict[str, dict[str, Score]] = {}
    if before is None:
        return kept
    for name in asked:
        if name not in registry:
            continue
        evaluator = registry[name]
        lacks_folder = bool(getattr(evaluator, "needs_folder", False)) and not has_folder
        lacks_model = name == "judge" and getattr(evaluator, "model", "") is None
        is_same = before.expected_files == case.expected_files if lacks_folder else before.judge == case.judge
        if (lacks_folder or lacks_model) and is_same:
            old = {key: score for key, score in attempt.scores.items() if key.partition(".")[0] == name}
            if old:
                kept[name] = old
    return kept
