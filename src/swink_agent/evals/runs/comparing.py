"""`compare`: what got better and worse between two runs, and whether that is more than chance.

The module is not called `compare`, because it would hide the function in the package. `gate` uses the comparison.
"""

from __future__ import annotations

from random import Random
from statistics import fmean

from swink_agent.core.values.value import Value

from ..types import CaseResult, EvalRun

_SEED = 20_240_229
_MOST_RESAMPLES, _LEAST_RESAMPLES = 10_000, 2_000
_DRAWS = 2_000_000  # the most cases that are drawn: very large sets need fewer samples
_TAIL = 0.025
_LEAST_CASES = 5  # with fewer cases, even if all changed in the same direction, chance cannot be excluded


class Comparison(Value, frozen=True, kw_only=True):
    """How the cases that both runs have changed.

    A case is better if more of its attempts pass or, if as many pass, its mean score is higher.
    """

    better: tuple[str, ...] = ()
    """Ids of cases, in the order of the second run."""
    worse: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    only_before: tuple[str, ...] = ()
    """Ids of cases that only one of the runs has measured: they are not in the figures."""
    only_after: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    """Cases of `better` that failed and pass now."""
    broken: tuple[str, ...] = ()
    """Cases of `worse` that passed and fail now."""
    difference: float = 0.0
    """The mean score of the second run minus that of the first, over the cases that both have."""
    low: float = 0.0
    """With `high`, the 95 % confidence interval of the difference."""
    high: float = 0.0
    is_significant: bool = False
    """Whether the difference is more than noise: 0 is outside of the interval, and there are enough cases."""
    cases: int = 0
    """The number of cases that both runs have."""


def compare(before: EvalRun, after: EvalRun) -> Comparison:
    """What changed from one run to another, by a paired bootstrap over the cases that both have.

    Each case is compared with itself, so that hard and easy cases do not add to the noise. The same runs give the same
    figures every time.
    """
    earlier = {result.case_id: result for result in before.results if result.is_measured}
    later = {result.case_id: result for result in after.results if result.is_measured}
    pairs = [(earlier[case_id], result) for case_id, result in later.items() if case_id in earlier]
    ranked = [(new, _standing(new), _standing(old), old) for old, new in pairs]
    better = [(old, new) for new, now, then, old in ranked if now > then]
    worse = [(old, new) for new, now, then, old in ranked if now < then]
    changes = [new.mean - old.mean for old, new in pairs]
    low, high = _interval(changes)
    return Comparison(
        better=tuple([new.case_id for _, new in better]),
        worse=tuple([new.case_id for _, new in worse]),
        same=tuple([new.case_id for new, now, then, _ in ranked if now == then]),
        only_before=tuple([case_id for case_id in earlier if case_id not in later]),
        only_after=tuple([case_id for case_id in later if case_id not in earlier]),
        fixed=tuple([new.case_id for old, new in better if new.passed and not old.passed]),
        broken=tuple([new.case_id for old, new in worse if old.passed and not new.passed]),
        difference=fmean(changes) if changes else 0.0,
        low=low,
        high=high,
        is_significant=len(pairs) >= _LEAST_CASES and (low > 0 or high < 0),
        cases=len(pairs),
    )


def _standing(result: CaseResult) -> tuple[float, float]:
    """The rank of a case: the share of its attempts that passed, then its mean score."""
    count = len(result.measured)
    passed = sum(attempt.passed for attempt in result.measured)
    return (passed / count if count else 0.0, round(result.mean, 12))


def _interval(changes: list[float]) -> tuple[float, float]:
    """The confidence interval of the mean change, by bootstrapping the cases."""
    count = len(changes)
    if not any(changes):
        return 0.0, 0.0
    resamples = max(_LEAST_RESAMPLES, min(_MOST_RESAMPLES, _DRAWS // count))
    draw = Random(_SEED).choices
    means = sorted([sum(draw(changes, k=count)) / count for _ in range(resamples)])
    last = resamples - 1
    return means[round(_TAIL * last)], means[round((1 - _TAIL) * last)]
