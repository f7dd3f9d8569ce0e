"""What scores: the `Evaluator` protocol, and the registry that asks all that apply.

Owns the names, the choice that a case makes among them, and that one that fails is a failing metric and stops nothing.
The built-in ones are in `scorers` and `judge`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from .cases import EvalCase
from .types import Invocation, Score

__all__ = ["Evaluator", "EvaluatorFn", "EvaluatorRegistry", "is_ending"]

log = logging.getLogger("swink_agent")


@runtime_checkable
class Evaluator(Protocol):
    """Scores one thing about what an agent did. `evaluate` may be async; else it runs in a thread.

    One that is sync and quick may have `may_block(case, invocation)`, which says whether it needs that thread.
    """

    @property
    def name(self) -> str: ...

    def evaluate(self, case: EvalCase, invocation: Invocation, /) -> Score | None | Awaitable[Score | None]:
        """The score, or `None` if the case says nothing about it."""
        ...


EvaluatorFn: TypeAlias = Callable[[EvalCase, Invocation], Any]
"""A plain function in an evaluator's place: its `__name__` is the name, and a bool or a number will do for a score."""

E = TypeVar("E", bound=Evaluator | EvaluatorFn)


class _FunctionEvaluator:
    """A plain function as an evaluator."""

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
        """All that are built in; efficiency counts only where a case names it."""
        from .judge import JudgeEvaluator
        from .scorers import (
            BudgetEvaluator,
            EfficiencyEvaluator,
            FilesEvaluator,
            ResponseEvaluator,
            StructuredEvaluator,
            TrajectoryEvaluator,
        )

        registry = cls([TrajectoryEvaluator(), ResponseEvaluator(), StructuredEvaluator(), FilesEvaluator()])
        registry.register(BudgetEvaluator())
        registry.register(judge or JudgeEvaluator())
        registry.register(EfficiencyEvaluator(), on_request=True)
        return registry

    def register(self, evaluator: E, *, on_request: bool = False) -> E:
        """Adds one, and returns it: it may decorate a function. With `on_request`, only cases that name it have it.

        Raises `ValueError` if the name is taken, `TypeError` for what cannot score.
        """
        held: Any = evaluator
        if inspect.isclass(held):
            raise TypeError(f"{held.__name__} is a class; register one of its objects, {held.__name__}()")
        if not isinstance(held, Evaluator):
            if not callable(held):
                raise TypeError(f"{held!r} is no evaluator: it has no name and evaluate, and is no function")
            held = _FunctionEvaluator(held)
        if held.name in self._evaluators:
            raise ValueError(f"there is an evaluator {held.name!r} already; give this one another name")
        self._evaluators[held.name] = held
        self._may_block[held.name] = _may_block(held)
        if on_request:
            self._on_request.add(held.name)
        return evaluator

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
        """The scores of all that apply, by name; one that raises gives 0 with the reason."""
        names = [name for name in self._evaluators if name not in self._on_request]
        if case.evaluators is not None:
            names = list(dict.fromkeys(case.evaluators))
        # Those that may wait for something must not hold up other cases: all of a case in one thread.
        slow = [name for name in names if name in self and self._may_block[name](case, invocation)]
        answers = await asyncio.to_thread(self._sync_scores, slow, case, invocation) if slow else {}
        scores: dict[str, Score] = {}
        for name in names:
            if name not in self._evaluators:
                known = ", ".join(self._evaluators)
                scores[name] = Score(0.0, reason=f"there is no evaluator {name!r}; there are {known}")
                continue
            answer = answers[name] if name in answers else self[name].evaluate
            score = await _settled(name, answer, case, invocation)
            if score is not None:
                scores[name] = score
        return scores

    def _sync_scores(self, names: list[str], case: EvalCase, invocation: Invocation) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name in names:
            try:
                answers[name] = self[name].evaluate(case, invocation)
            except (Exception, asyncio.CancelledError) as error:
                answers[name] = _failed(name, error)
        return answers


def is_ending() -> bool:
    """Whether somebody cancelled the task that this is in; a cancellation beyond that leaked from what was called."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _may_block(evaluator: Evaluator) -> Callable[[EvalCase, Invocation], bool]:
    """Whether the evaluator may keep the event loop waiting; of those that do not say, all that are not async."""
    is_sync = not inspect.iscoroutinefunction(evaluator.evaluate)
    return getattr(evaluator, "may_block", lambda _case, _invocation: is_sync)


async def _settled(name: str, answer: Any, case: EvalCase, invocation: Invocation) -> Score | None:
    """The answer as a score. What takes time is waited for, and what fails is a score of 0."""
    try:
        if callable(answer):
            answer = answer(case, invocation)
        if inspect.isawaitable(answer):
            answer = await answer
        return _as_score(answer)
    except (Exception, asyncio.CancelledError) as error:
        if is_ending():
            raise
        return _failed(name, error)


def _as_score(answer: Any) -> Score | None:
    if answer is None or isinstance(answer, Score):
        return answer
    if isinstance(answer, (bool, int, float)):
        return Score(float(answer))
    raise TypeError(f"it answered with a {type(answer).__name__}, which is no Score")


def _failed(name: str, error: BaseException) -> Score:
    log.debug("the evaluator %s failed", name, exc_info=error)
    return Score(0.0, reason=f"the evaluator failed: {type(error).__name__}: {error}")
