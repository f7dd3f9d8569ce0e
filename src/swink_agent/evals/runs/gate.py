"""`Gate`: limits that a run must keep before a release, and a baseline that it must not fall behind.

A check reports all violations at once, so that the user can fix them together.
"""

from __future__ import annotations

import math

from swink_agent.core.values.checks import check_number, check_whole, is_not
from swink_agent.core.values.value import Value

from ..reports.words import share
from ..types import EvalRun, Summary
from .comparing import compare


class GateResult(Value, frozen=True):
    """Whether a run passed, and all violations if it did not."""

    passed: bool
    violations: tuple[str, ...] = ()


class Gate(Value, frozen=True):
    """Limits that a run must keep; `None` is not checked.

    A run that is not complete, or has no cases, never passes. Raises `ValueError` for an impossible limit.
    """

    min_pass_rate: float | None = None
    """The share of cases that must pass, from 0 to 1."""
    max_cost: float | None = None
    """US dollars for the whole run, including judges."""
    max_seconds: float | None = None
    """For the whole run, by the clock."""
    baseline: EvalRun | None = None
    """A run that this one must not fall behind: no case that passed there may fail or be missing, and the scores must
    not be lower by more than noise."""
    min_pass_rate_low: float | None = None
    """What the lower end of the pass rate's 95 % confidence interval must reach, from 0 to 1."""
    max_not_measured: int = 0
    """The number of cases that may lack a verdict because the provider failed. They are not in the pass rate."""

    def __post_init__(self) -> None:
        for name in ("min_pass_rate", "min_pass_rate_low"):
            part = getattr(self, name)
            if part is None:
                continue
            check_number(name, part, "a share of the cases, or None")
            if not 0 <= part <= 1:
                raise ValueError(f"{name} must be a share of the cases, from 0 to 1, not {part:g}")
        check_whole("max_not_measured", self.max_not_measured, least=0)
        for name in ("max_cost", "max_seconds"):
            limit = getattr(self, name)
            if limit is None:
                continue
            check_number(name, limit, "a number, or None")
            if not 0 <= limit < math.inf:
                raise ValueError(f"{name} must be a number from 0 up, not {limit:g}")

        if self.baseline is not None and not isinstance(self.baseline, EvalRun):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("baseline", self.baseline, "an EvalRun, such as EvalStore.load gives, or None")

    def check(self, run: EvalRun) -> GateResult:
        """Checks a run against all limits."""
        violations = [*self._whole(run), *self._limits(run), *self._regressions(run)]
        return GateResult(not violations, tuple(violations))

    def _whole(self, run: EvalRun) -> list[str]:
        if not run.summary.total:
            return ["no case was run"]
        whole = max(run.cases, run.summary.total)
        done = f"the run is not complete: {run.summary.total} of {whole} cases are done"
        return [] if run.is_complete else [done]

    def _limits(self, run: EvalRun) -> list[str]:
        summary = run.summary
        violations: list[str] = []
        missing = summary.not_measured
        if missing > self.max_not_measured:
            were = "was" if missing == 1 else "were"
            cases = "case" if summary.total == 1 else "cases"
            told = f"{missing} of {summary.total} {cases} {were} not measured, because the provider failed"
            violations.append(f"{told}; at most {self.max_not_measured} are allowed")
        violations += self._rates(summary)
        if self.max_cost is not None and not summary.cost <= self.max_cost:
            violations.append(f"cost ${summary.cost:.4f} is above ${self.max_cost:.4f}")
        if self.max_seconds is not None and not summary.seconds <= self.max_seconds:
            violations.append(f"duration {summary.seconds:.1f} s is above {self.max_seconds:.1f} s")
        return violations

    def _rates(self, summary: Summary) -> list[str]:
        if summary.total and not summary.measured:
            is_told = summary.not_measured > self.max_not_measured
            wants_rate = bool(self.min_pass_rate or self.min_pass_rate_low)
            return ["no case was measured, so there is no pass rate"] if wants_rate and not is_told else []
        violations: list[str] = []
        if self.min_pass_rate is not None and not summary.pass_rate >= self.min_pass_rate:
            figures = f"{share(summary.pass_rate)} ({summary.passed} of {summary.measured})"
            violations.append(f"pass rate {figures} is below {share(self.min_pass_rate)}")
        low = summary.pass_rate_low
        if self.min_pass_rate_low is not None and not low >= self.min_pass_rate_low:
            told = f"pass rate {share(summary.pass_rate)} is only above {share(low)} with 95 % confidence"
            violations.append(f"{told}, which is below {share(self.min_pass_rate_low)}: run more cases")
        return violations

    def _regressions(self, run: EvalRun) -> list[str]:
        if self.baseline is None:
            return []
        if self.baseline.set_id != run.set_id:
            return [f"the baseline is of the set {self.baseline.set_id!r}, not of {run.set_id!r}"]
        found = compare(self.baseline, run)
        passed = {result.case_id for result in self.baseline.results if result.passed}
        violations = [
            f"case {result.case_id!r} passed in the baseline and fails now{f': {result.error}' if result.error else ''}"
            for result in run.results
            if result.case_id in passed and not result.passed and result.is_measured
        ]
        gone = [case_id for case_id in found.only_before if case_id in passed]
        violations += [f"case {case_id!r} passed in the baseline and was not run" for case_id in gone]
        if found.is_significant and found.difference < 0:
            interval = f"between {found.low:+.3f} and {found.high:+.3f}"
            violations.append(f"scores fell by {-found.difference:.3f} on average ({interval}), more than noise")
        return violations
