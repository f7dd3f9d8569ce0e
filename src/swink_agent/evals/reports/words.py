"""The figures and words that every report uses.

Owns how shares, money and times are written, and why an attempt failed. Text of cases, models and tools passes
`one_line` or `visible` here or where it is laid out; escaping is each format's own.
"""

from __future__ import annotations

import math

from swink_agent.evals.errors import EvalStoreError
from swink_agent.evals.types import Attempt, CaseResult, EvalRun, Invocation, Summary
from swink_agent.rendering.characters import one_line
from swink_agent.rendering.turns import moment

__all__ = [
    "case_name",
    "duration",
    "headline",
    "invocation_of",
    "money",
    "number",
    "pass_words",
    "reasons",
    "run_facts",
    "share",
    "title_of",
]


def title_of(run: EvalRun) -> str:
    """What the run is called: the set's name, or its id."""
    return one_line(run.set_name, 120) or one_line(run.set_id, 120) or "unnamed"


def case_name(result: CaseResult) -> str:
    """What a case is called besides its id, if anything else."""
    name = one_line(result.name or ("" if result.case is None else result.case.name), 160)
    return "" if name == result.case_id else name


def headline(run: EvalRun) -> str:
    """How it went, in a sentence without its end."""
    summary = run.summary
    words = f"{summary.passed} of {summary.total} {_cases(summary.total)} passed"
    if run.is_complete:
        return words
    return f"{words}; the run is not complete: the set has {max(run.cases, summary.total)} cases"


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


def run_facts(run: EvalRun) -> list[tuple[str, str]]:
    """What else there is to say of a run, as names and values."""
    summary: Summary = run.summary
    models = sorted({attempt.versions.model for result in run.results for attempt in result.attempts} - {""})
    shown = ", ".join([one_line(model, 60) for model in models[:3]]) + (", …" if len(models) > 3 else "")
    facts = [
        ("Pass rate", share(summary.pass_rate)),
        ("Cost", money(summary.cost)),
        ("Tokens", f"{summary.tokens:,}"),
        ("Duration", duration(summary.seconds)),
        ("Model", shown),
        ("Attempts", f"{run.repeat} for each case" if run.repeat > 1 else ""),
        ("Started", moment(run.created) if run.created else ""),
        ("Run", one_line(run.id)),
    ]
    return [(name, value) for name, value in facts if value]


def pass_words(result: CaseResult) -> str:
    """What several attempts tell: the mean with its error, and how likely one of so many passes."""
    count = len(result.attempts)
    if count < 2:
        return ""
    passed = sum(attempt.passed for attempt in result.attempts)
    chances = ", ".join([f"pass@{k} {share(result.pass_at(k))}" for k in sorted({1, count})])
    return f"{passed} of {count} attempts passed; mean {number(result.mean)} ± {result.standard_error:.2f}; {chances}"


def reasons(attempt: Attempt) -> list[tuple[str, str]]:
    """Why an attempt failed: pairs of what and why, the error first. Of one that passed, nothing."""
    found = [] if attempt.error is None else [("error", attempt.error)]
    for name, score in attempt.scores.items():
        if not score.passed:
            figures = f"{number(score.value)} is below {number(score.threshold)}"
            found.append((name, f"{figures}: {score.reason}" if score.reason else figures))
    if not found and not attempt.passed:
        found.append(("error", "nothing was scored"))
    return found


def invocation_of(attempt: Attempt) -> tuple[Invocation, str]:
    """What the agent did, and why that cannot be read where it cannot."""
    try:
        return attempt.invocation, ""
    except EvalStoreError as error:
        return Invocation(), f"the trajectory cannot be read: {error}"


# -- figures -------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A score with two digits, never rounded up to a threshold that it misses."""
    return f"{math.floor(value * 100 + 1e-9) / 100:.2f}"


def share(part: float) -> str:
    """A part of the whole in percent; neither nothing nor all is said of what is not."""
    return f"{math.floor(part * 1000 + 1e-9) / 10:g} %"


def money(dollars: float) -> str:
    """Money with as many digits as tell something."""
    if not math.isfinite(dollars):
        return "unknown"
    return f"${dollars:,.2f}" if abs(dollars) >= 1 or not dollars else f"${dollars:.4f}"


def duration(seconds: float) -> str:
    """A time as people say it."""
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
