"""The report in Markdown: for a pull request, or the summary page of a build.

It has the figures, a table of the cases, and the reasons of failures. Text of cases and models is escaped or fenced, so
that it cannot pass for the report's own.
"""

from __future__ import annotations

from swink_agent.evals.types import Attempt, CaseResult, EvalRun
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.tame import code_span, escaped, fenced

from . import words

MARKS = {"passed": "✅", "failed": "❌", "not measured": "⚪"}

_LONGEST_REASON = 1000
_LONGEST_RESPONSE = 4000


def markdown_report(run: EvalRun) -> str:
    parts = [f"# {escaped(words.title_of(run))}", f"**{escaped(words.headline(run))}.**"]
    parts.append("\n".join([f"- {name}: {escaped(value)}" for name, value in words.run_facts(run)]))
    if run.results:
        parts.append(_table(run))
    if run.summary.tags:
        rows = ["| Tag | Passed | Pass rate | Cost |", "|---|--:|--:|--:|"]
        rows += [f"| {' | '.join([escaped(cell) for cell in row])} |" for row in words.tag_rows(run.summary)]
        parts.append("\n".join(rows))
    failed = [result for result in run.results if not result.passed]
    if failed:
        parts.append("## What failed")
        for result in failed:
            parts += _failure(result)
    return "\n\n".join(parts) + "\n"


def _table(run: EvalRun) -> str:
    rows = ["| | Case | Name | Score | Turns | Time | Cost |", "|---|---|---|--:|--:|--:|--:|"]
    for result in run.results:
        cells = [
            MARKS[words.outcome(result)],
            code_cell(result.case_id),
            escaped(words.case_name(result)),
            words.number(result.mean),
            str(sum(attempt.turns for attempt in result.attempts)),
            words.duration(result.seconds),
            dollars(result.cost),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def code_cell(case_id: str) -> str:
    """Code in a table, where a bar must be escaped: it would end the cell."""
    return code_span(one_line(case_id, 80)).replace("|", "\\|")


def _failure(result: CaseResult) -> list[str]:
    parts = [
        f"### {escaped(one_line(result.case_id, 80))}",
        escaped(words.case_name(result)),
        escaped(words.pass_words(result)),
    ]
    for attempt in result.attempts:
        parts += _attempt(attempt, several=len(result.attempts) > 1)
    if not result.attempts:
        parts.append("No attempt was made.")
    return [part for part in parts if part]


def _attempt(attempt: Attempt, *, several: bool) -> list[str]:
    found = words.reasons(attempt)
    if not found:
        return []
    lines = [f"- **{escaped(one_line(what, 60))}**: {escaped(one_line(why, _LONGEST_REASON))}" for what, why in found]
    parts = [f"Attempt {attempt.number}:"] if several else []
    parts.append("\n".join(lines))
    invocation, problem = words.invocation_of(attempt)
    if problem:
        parts.append(escaped(one_line(problem, _LONGEST_REASON)))
    elif invocation.response.strip():
        shown = visible(invocation.response)
        cut = shown if len(shown) <= _LONGEST_RESPONSE else f"{shown[:_LONGEST_RESPONSE]}…"
        parts += ["The reply:", fenced(cut)]
    return parts
