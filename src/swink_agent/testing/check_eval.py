"""`assert_eval` runs a set of cases as a test, whose failure shows what went wrong in each case."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from swink_agent.core.cancel import running_loop
from swink_agent.evals.cases.cases import EvalCase, EvalSet
from swink_agent.evals.runs.executor import MakeAgentFn
from swink_agent.evals.scoring.evaluator import Evaluator, EvaluatorFn, EvaluatorRegistry
from swink_agent.evals.types import EvalRun

if TYPE_CHECKING:
    from swink_agent.evals import EvalRunner, Gate


def assert_eval(
    make_agent: MakeAgentFn,
    cases: EvalSet | EvalCase | str | os.PathLike[str],
    evaluators: Iterable[Evaluator | EvaluatorFn] | EvaluatorRegistry | None = None,
    *,
    min_pass_rate: float = 1.0,
    min_pass_rate_low: float | None = None,
    max_not_measured: int = 0,
    **options: Any,
) -> Any:
    """Runs a set, a case or the set in a file, and raises `AssertionError` if fewer than `min_pass_rate` of the cases
    pass, or if more than `max_not_measured` cases were not measured. `min_pass_rate_low` is the minimum for the lower
    end of the pass rate's interval. `options` are those of `EvalRunner`: `repeat`, `verdict`, `parallel` and so on.

    In an ordinary function it runs at once and returns the `EvalRun`. In an async test, where an event loop runs, it
    returns a coroutine: `run = await assert_eval(…)`.
    """
    __tracebackhide__ = True
    from swink_agent.evals import EvalRunner, Gate

    eval_set = _set_of(cases)
    gate = Gate(min_pass_rate=min_pass_rate, min_pass_rate_low=min_pass_rate_low, max_not_measured=max_not_measured)
    checking = _checked(EvalRunner(make_agent, evaluators, **options), eval_set, gate)
    return asyncio.run(checking) if running_loop() is None else checking


async def _checked(runner: EvalRunner, eval_set: EvalSet, gate: Gate) -> EvalRun:
    __tracebackhide__ = True
    from swink_agent.evals import report

    run = await runner.run(eval_set)
    verdict = gate.check(run)
    if not verdict.passed:
        raise AssertionError("\n".join([*verdict.violations, "", report(run)]).rstrip())
    return run


def _set_of(cases: EvalSet | EvalCase | str | os.PathLike[str]) -> EvalSet:
    from swink_agent.evals import load_set

    if isinstance(cases, EvalSet):
        return cases
    if isinstance(cases, EvalCase):
        return EvalSet("case", cases.name or cases.id, [cases])
    return load_set(cases)
