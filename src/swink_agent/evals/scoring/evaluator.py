"""The `Evaluator` protocol, and the registry that asks all evaluators that apply to a case.

An evaluator that raises gives a score of 0; the others still run. The built-in evaluators are in `scorers` and `judge`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from numbers import Real
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from swink_agent.core.cancel import is_cancelled
from swink_agent.core.values.checks import a_kind, check_text

from ..cases.cases import EvalCase
from ..errors import NotMeasured
from ..types import Invocation, Score, Scored

log = logging.getLogger("swink_agent")


@runtime_checkable
class Evaluator(Protocol):
    """Scores one aspect of what an agent did. `evaluate` may be async; else it runs in a thread.

    A quick sync evaluator may have `may_block(case, invocation)`, which returns whether it needs that thread.
    """

    @property
    def name(self) -> str: ...

    def evaluate(self, case: EvalCase, invocation: Invocation, /) -> Scored | Awaitable[Scored]:
        """The score, or `None` if the evaluator does not apply to the case. A dict has several scores: `""` is the
        evaluator's score, and `part` is the score `name.part`."""
        ...


EvaluatorFn: TypeAlias = Callable[[EvalCase, Invocation], Any]
"""A function instead of an evaluator: its `__name__` is the name, and it may return a bool or a number as score."""

E = TypeVar("E", bound=Evaluator | EvaluatorFn)


class _FunctionEvaluator:
    def __init__(self, function: EvaluatorFn) -> None:
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.evaluate = function

    def __repr__(self) -> str:
        return f"<evaluator {self.name}>"


class EvaluatorRegistry:
    """Evaluators by name, in the order in which they were registered."""

    def __init__(self, evaluators: Iterable[Evaluator | EvaluatorFn] = ()) -> None:
        self._evaluators: dict[str, Evaluator] = {}
        self._on_request: set[str] = set()
        self._may_block: dict[str, Callable[[EvalCase, Invocation], bool]] = {}
        for evaluator in evaluators:
            self.register(evaluator)

    @classmethod
    def standard(cls, judge: Evaluator | None = None) -> EvaluatorRegistry:
        """The built-in evaluators. Efficiency is used only if a case names it."""
        from . import scorers
        from .judge import JudgeEvaluator

        registry = cls([scorers.TrajectoryEvaluator(), scorers.ResponseEvaluator(), scorers.StructuredEvaluator()])
        for evaluator in (scorers.FilesEvaluator(), scorers.BudgetEvaluator(), judge or JudgeEvaluator()):
            registry.register(evaluator)
        registry.register(scorers.EfficiencyEvaluator(), on_request=True)
        return registry

    def register(self, evaluator: E, *, on_request: bool = False) -> E:
        """Adds an evaluator and returns it, so that it can decorate a function. With `on_request`, it is used only for
        cases that name it.

        Raises `ValueError` if the name is taken, `TypeError` for an object that is not an evaluator.
        """
        held: Any = evaluator
        if inspect.isclass(held):
            raise TypeError(f"{held.__name__} is a class; register one of its objects, {held.__name__}()")
        if not isinstance(held, Evaluator):
            if not callable(held):
                raise TypeError(f"{held!r} is not an evaluator: give an object with name and evaluate, or a function")
            held = _FunctionEvaluator(held)
        check_text(f"the name of the evaluator {type(evaluator).__name__}", held.name)
        if held.name in self._evaluators:
            raise ValueError(f"there is an evaluator {held.name!r} already; give this one another name")
        self._evaluators[held.name] = held
        self._may_block[held.name] = _may_block(held)
        if on_request:
            self._on_request.add(held.name)
        return evaluator

    @property
    def usual(self) -> tuple[str, ...]:
        """The names of the evaluators that are used for every case."""
        return tuple([name for name in self._evaluators if name not in self._on_request])

    def __iter__(self) -> Iterator[str]:
        return iter(self._evaluators)

    def __len__(self) -> int:
        return len(self._evaluators)

    def __contains__(self, name: object) -> bool:
        return name in self._evaluators

    def __getitem__(self, name: str) -> Evaluator:
        return self._evaluators[name]

    def __repr__(self) -> str:
        return f"EvaluatorRegistry({', '.join(self._evaluators)})"

    async def evaluate(self, case: EvalCase, invocation: Invocation) -> dict[str, Score]:
        """The scores of all evaluators that apply, by name. One that raises gives 0 with the reason.

        Raises `NotMeasured` if an evaluator does: then the attempt says nothing about the agent.
        """
        names = self.usual if case.evaluators is None else tuple(dict.fromkeys(case.evaluators))
        # Evaluators that may block must not delay other cases: they run in one thread per case.
        slow = [name for name in names if name in self and self._may_block[name](case, invocation)]
        answers = await asyncio.to_thread(self._sync_scores, slow, case, invocation) if slow else {}
        scores: dict[str, Score] = {}
        for name in names:
            if name not in self._evaluators:
                known = ", ".join(self._evaluators)
                scores[name] = Score(0.0, reason=f"there is no evaluator {name!r}; there are {known}")
                continue
            answer = answers[name] if name in answers else self[name].evaluate
            scores |= await _settled(name, answer, case, invocation)
        return scores

    def _sync_scores(self, names: list[str], case: EvalCase, invocation: Invocation) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name in names:
            try:
                answers[name] = self[name].evaluate(case, invocation)
            except NotMeasured:
                raise
            except (Exception, asyncio.CancelledError) as error:
                answers[name] = _failed(name, error)
        return answers


def _may_block(evaluator: Evaluator) -> Callable[[EvalCase, Invocation], bool]:
    """The evaluator's `may_block`. Without one, it may block unless it is async."""
    is_sync = not inspect.iscoroutinefunction(evaluator.evaluate)
    return getattr(evaluator, "may_block", lambda _case, _invocation: is_sync)


async def _settled(name: str, answer: Any, case: EvalCase, invocation: Invocation) -> dict[str, Score]:
    """The answer as scores: awaits it if necessary, and turns an error into a score of 0."""
    try:
        if callable(answer):
            answer = answer(case, invocation)
        if inspect.isawaitable(answer):
            answer = await answer
        return _as_scores(name, answer)
    except (Exception, asyncio.CancelledError) as error:
        if is_cancelled() or isinstance(error, NotMeasured):
            raise
        return {name: _failed(name, error)}


def _as_scores(name: str, answer: Any) -> dict[str, Score]:
    parts = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {} if answer is None else {"": answer}
    scores: dict[str, Score] = {}
    for part, one in parts.items():
        score = Score(float(one)) if isinstance(one, Real) else one
        if not isinstance(score, Score):
            raise TypeError(f"it returned {a_kind(score)}, not a Score")
        scores[f"{name}.{part}" if part else name] = score
    return scores


def _failed(name: str, error: BaseException) -> Score:
    log.debug("the evaluator %s failed", name, exc_info=error)
    return Score(0.0, reason=f"the evaluator failed: {type(error).__name__}: {error}")
