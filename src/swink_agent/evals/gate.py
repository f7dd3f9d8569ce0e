"""What a run has to reach before a release: limits, and a run that it may not fall behind.

Owns the verdict and its words, all of them: whoever mends one violation should not meet the next only then. Exit codes
are the command line's.
"""

from __future__ import annotations

import math

from swink_agent.core.values.value import Value

from .comparing import compare
from .types import EvalRun

__all__ = ["Gate", "GateResult"]


class GateResult(Value, frozen=True):
    """Whether a run passed, and everything that kept it from passing."""

    passed: bool
    violations: tuple[str, ...] = ()


class Gate(Value, frozen=True):
    """Limits that a run has to keep; what is not given is not looked at.

    A run that is not complete never passes, and neither does one of no cases: what was not tried is not known to work.
    Raises `ValueError` for a limit that cannot be.
    """

    min_pass_rate: float | None = None
    """The part of the cases that have to pass, from 0 to 1."""
    max_cost: float | None = None
    """US dollars for the whole run, judges included."""
    max_seconds: float | None = None
    """For the whole run, by the clock on the wall."""
    baseline: EvalRun | None = None
    """A run that this one may not fall behind: no case that passed there may fail or be missing, and the scores may
    not be lower by more than noise."""

    def __post_init__(self) -> None:
        if self.min_pass_rate is not None and not 0 <= self.min_pass_rate <= 1:
            raise ValueError(f"min_pass_rate is a part of the cases, from 0 to 1, not {self.min_pass_rate:g}")
        for name in ("max_cost", "max_seconds"):
            limit = getattr(self, name)
            if limit is not None and not 0 <= limit < math.inf:
                raise ValueError(f"{name} is a number from 0 up, not {limit:g}")

    def check(self, run: EvalRun) -> GateResult:
        """Holds a run against the limits, all of them."""
        violations = [*self._whole(run), *self._limits(run), *self._regressions(run)]
        return GateResult(not violations, tuple(violations))

    def _whole(self, run: EvalRun) -> list[str]:
        if not run.summary.total:
            return ["no case was run"]
        if not run.is_complete:
            return [
                f"the run is not complete: {run.summary.total} of {max(run.cases, run.summary.total)} cases are done"
            ]
        return []

    def _limits(self, run: EvalRun) -> list[str]:
        summary = run.summary
        violations: list[str] = []
        if self.min_pass_rate is not None and not summary.pass_rate >= self.min_pass_rate:
            figures = f"{_share(summary.pass_rate)} ({summary.passed} of {summary.total})"
            violations.append(f"pass rate {figures} is below {_share(self.min_pass_rate)}")
        if self.max_cost is not None and not summary.cost <= self.max_cost:
            violations.append(f"cost ${summary.cost:.4f} is above ${self.max_cost:.4f}")
        if self.max_seconds is not None and not summary.seconds <= self.max_seconds:
            violations.append(f"duration {summary.seconds:.1f} s is above {self.max_seconds:.1f} s")
        return violations

    def _regressions(self, run: EvalRun) -> list[str]:
        if self.baseline is None:
            return []
        if self.baseline.set_id != run.set_id:
            return [f"the baseline is of the set {self.baseline.set_id!r}, not of {run.set_id!r}"]
        found = compare(self.baseline, run)
        passed = {result.case_id for result in self.baseline.results if result.passed}
        violations = [
            f"case {result.case_id!r} passed in the baseline and fails now{_why(result.error)}"
            for result in run.results
            if result.case_id in passed and not result.passed
        ]
        violations += [
            f"case {case_id!r} passed in the baseline and was not run"
            for case_id in found.only_before
            if case_id in passed
        ]
        if found.is_significant and found.difference < 0:
            interval = f"between {found.low:+.3f} and {found.high:+.3f}"
            violations.append(f"scores fell by {-found.difference:.3f} on average ({interval}), more than noise")
        return violations


def _share(part: float) -> str:
    """A part of the whole in percent, never rounded up to what it is not."""
    return f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


def _why(error: str | None) -> str:
    return f": {error}" if error else ""
