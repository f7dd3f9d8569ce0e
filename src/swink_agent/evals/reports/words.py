"""Figures and words for all reports.

Owns the format of shares, money and times, and the reasons why an attempt failed. Text of cases, models and tools
passes `one_line` or `visible` here or in the report; each report escapes for its format.
"""

from __future__ import annotations

import math

from swink_agent.evals.cases.cases import Verdict
from swink_agent.evals.errors import EvalStoreError
from swink_agent.evals.runs.comparing import Comparison
from swink_agent.evals.types import Attempt, CaseResult, EvalRun, Invocation, Summary
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.characters import one_line
from swink_agent.rendering.turns import moment


def title_of(run: EvalRun) -> str:
    return one_line(run.set_name, 120) or one_line(run.set_id, 120) or "unnamed"


def case_name(result: CaseResult) -> str:
    """The name of a case, if it is not its id."""
    name = one_line(result.name or ("" if result.case is None else result.case.name), 160)
    return "" if name == result.case_id else name


def headline(run: EvalRun) -> str:
    """The outcome of a run in one sentence, without a period."""
    summary = run.summary
    words = f"{summary.passed} of {summary.total} {'case' if summary.total == 1 else 'cases'} passed"
    if summary.not_measured:
        words += f", {summary.not_measured} not measured"
    if run.is_complete:
        return words
    return f"{words}; the run is not complete: the set has {max(run.cases, summary.total)} cases"


def run_facts(run: EvalRun) -> list[tuple[str, str]]:
    summary: Summary = run.summary
    models = sorted({attempt.versions.model for result in run.results for attempt in result.attempts} - {""})
    shown = ", ".join([one_line(model, 60) for model in models[:3]]) + (", …" if len(models) > 3 else "")
    facts = [
        ("Pass rate", pass_rate(summary)),
        ("Not measured", f"{summary.not_measured} of {summary.total}" if summary.not_measured else ""),
        ("Cost", dollars(summary.cost)),
        ("Tokens", f"{summary.tokens:,}"),
        ("Duration", duration(summary.seconds)),
        ("Model", shown),
        ("Variant", one_line(run.variant, 80)),
        ("Attempts", f"{run.repeat} for each case" if run.repeat > 1 else ""),
        ("Verdict", run.verdict.value if run.verdict is not Verdict.ALL else ""),
        ("Started", moment(run.created) if run.created else ""),
        ("Run", one_line(run.id)),
        ("Scored again from", one_line(run.origin)),
    ]
    return [(name, value) for name, value in facts if value]


def pass_rate(summary: Summary) -> str:
    if not summary.measured:
        return "none" if not summary.total else "none, as nothing was measured"
    low, high = share(summary.pass_rate_low), share(summary.pass_rate_high)
    return f"{share(summary.pass_rate)} (95 % interval: {low} to {high})"


def outcome(one: CaseResult | Attempt) -> str:
    if not one.is_measured:
        return "not measured"
    return "passed" if one.passed else "failed"


def tag_rows(summary: Summary) -> list[tuple[str, str, str, str]]:
    """The figures of each tag: its name, how many passed, the pass rate and the cost."""
    return [
        (one_line(tag, 60), f"{one.passed} of {one.total}", pass_rate(one), dollars(one.cost))
        for tag, one in sorted(summary.tags.items())
    ]


def pass_words(result: CaseResult) -> str:
    """The figures of several attempts: the mean with its error, and pass@k. Empty for a single one."""
    count = len(result.measured)
    if len(result.attempts) < 2 or not count:
        return ""
    passed = sum(attempt.passed for attempt in result.measured)
    if count < len(result.attempts):
        return f"{passed} of {count} measured attempts passed, {len(result.attempts) - count} not measured"
    chances = ", ".join([f"pass@{k} {share(result.pass_at(k))}" for k in sorted({1, count})])
    return f"{passed} of {count} attempts passed; mean {number(result.mean)} ± {result.standard_error:.2f}; {chances}"


def reasons(attempt: Attempt) -> list[tuple[str, str]]:
    """Why an attempt failed: pairs of what and why, the error first. Empty if it passed."""
    found = [] if attempt.error is None else [("error" if attempt.is_measured else "not measured", attempt.error)]
    for name, score in attempt.scores.items():
        if not score.passed:
            figures = f"{number(score.value)} is below {number(score.threshold)}"
            found.append((name, f"{figures}: {score.reason}" if score.reason else figures))
    if not found and not attempt.passed:
        found.append(("error", "nothing was scored"))
    return found


def difference_words(found: Comparison, cases: str = "cases") -> str:
    """How far two runs are apart, and whether that is more than chance."""
    interval = f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
    return f"mean score {interval} over {found.cases} {cases}: {_noise(found)}"


def _noise(found: Comparison) -> str:
    """Whether a difference may be chance."""
    if found.is_significant:
        return "more than noise"
    if not found.difference:
        return "the same"
    return "too few cases to tell it from noise" if found.low > 0 or found.high < 0 else "no more than noise"


def invocation_of(attempt: Attempt) -> tuple[Invocation, str]:
    """What the agent did; if that cannot be read, an empty invocation and the reason."""
    try:
        return attempt.invocation, ""
    except EvalStoreError as error:
        return Invocation(), str(error)


# -- figures -------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A score with two digits, never rounded up, so that it does not seem to reach a threshold."""
    return f"{math.floor(value * 100 + 1e-9) / 100:.2f}"


def share(part: float) -> str:
    """A share in percent, never rounded up."""
    return f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
