"""The report for a terminal or a log: a line for each case, followed by the reasons if it failed.

It has no colours and no control characters, and does not wrap lines.
"""

from __future__ import annotations

from swink_agent.evals.types import CaseResult, EvalRun
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.characters import one_line

from . import words

_LONGEST_ID = 40
_LONGEST_REASON = 400
_IN_HEADLINE = frozenset({"Cost", "Tokens", "Duration"})


def console_report(run: EvalRun) -> str:
    facts = [f"{name.lower()} {value}" for name, value in words.run_facts(run) if name not in _IN_HEADLINE]
    lines = [words.title_of(run), f"  {' · '.join(facts)}", ""]
    ids = [one_line(result.case_id, _LONGEST_ID) for result in run.results]
    width = max([len(case_id) for case_id in ids], default=0)
    for case_id, result in zip(ids, run.results, strict=True):
        lines += _case(case_id.ljust(width), result)
    summary = run.summary
    if summary.tags:
        lines += ["", "  by tag", *[f"    {tag}: {passed}, {rate}" for tag, passed, rate, _ in words.tag_rows(summary)]]
    rate = [words.share(summary.pass_rate)] if summary.measured else []
    figures = [*rate, dollars(summary.cost), f"{summary.tokens:,} tokens", words.duration(summary.seconds)]
    return "\n".join([*lines, *([""] if run.results else []), f"{words.headline(run)} ({', '.join(figures)})"]) + "\n"


def _case(case_id: str, result: CaseResult) -> list[str]:
    word = {"passed": "passed", "failed": "FAILED"}.get(words.outcome(result), "------")
    turns = sum(attempt.turns for attempt in result.attempts)
    figures = [
        *([words.number(result.mean)] if result.is_measured else []),
        f"{turns} {'turn' if turns == 1 else 'turns'}",
        words.duration(result.seconds),
        *([dollars(result.cost)] if result.cost else []),
        *([words.case_name(result)] if words.case_name(result) else []),
    ]
    lines = [f"  {word}  {case_id}  {'  '.join(figures)}"]
    if not result.is_measured:
        lines.append("          not measured: the provider failed, which says nothing about the agent")
    if several := words.pass_words(result):
        lines.append(f"          {several}")
    for attempt in result.attempts:
        prefix = f"attempt {attempt.number}, " if len(result.attempts) > 1 else ""
        for what, why in words.reasons(attempt):
            lines.append(f"          {prefix}{one_line(what, 60)}: {one_line(why, _LONGEST_REASON)}")
    return lines
