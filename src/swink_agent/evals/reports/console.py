"""The report for a terminal or a log: a line for each case, and why one failed beneath it.

Owns the layout. No colours and no control characters; lines are as long as they need to be.
"""

from __future__ import annotations

from swink_agent.evals.types import CaseResult, EvalRun
from swink_agent.rendering.characters import one_line

from .words import case_name, duration, headline, money, number, pass_words, reasons, run_facts, share, title_of

__all__ = ["console_report"]

_LONGEST_ID = 40
_LONGEST_REASON = 400
_IN_HEADLINE = frozenset({"Pass rate", "Cost", "Tokens", "Duration"})


def console_report(run: EvalRun) -> str:
    facts = [f"{name.lower()} {value}" for name, value in run_facts(run) if name not in _IN_HEADLINE]
    lines = [title_of(run), f"  {' · '.join(facts)}", ""]
    ids = [one_line(result.case_id, _LONGEST_ID) for result in run.results]
    width = max([len(case_id) for case_id in ids], default=0)
    for case_id, result in zip(ids, run.results, strict=True):
        lines += _case(case_id.ljust(width), result)
    summary = run.summary
    figures = [share(summary.pass_rate), money(summary.cost), f"{summary.tokens:,} tokens", duration(summary.seconds)]
    return "\n".join([*lines, *([""] if run.results else []), f"{headline(run)} ({', '.join(figures)})"]) + "\n"


def _case(case_id: str, result: CaseResult) -> list[str]:
    word = "passed" if result.passed else "FAILED"
    turns = sum(attempt.turns for attempt in result.attempts)
    figures = [
        number(result.mean),
        f"{turns} {'turn' if turns == 1 else 'turns'}",
        duration(result.seconds),
        *([money(result.cost)] if result.cost else []),
        *([case_name(result)] if case_name(result) else []),
    ]
    lines = [f"  {word}  {case_id}  {'  '.join(figures)}"]
    if several := pass_words(result):
        lines.append(f"          {several}")
    for attempt in result.attempts:
        prefix = f"attempt {attempt.number}, " if len(result.attempts) > 1 else ""
        for what, why in reasons(attempt):
            lines.append(f"          {prefix}{one_line(what, 60)}: {one_line(why, _LONGEST_REASON)}")
    return lines
