"""The page of a case in the HTML report: its scores, what was expected, and what the agent said and did.

`rendering.blocks` draws the messages, as in an exported session. All other text is escaped here.
"""

from __future__ import annotations

from html import escape
from typing import Any, cast

import msgspec

from swink_agent.evals.types import Attempt, CaseResult, Score
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.blocks import conversation_html
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.highlight import code_html
from swink_agent.rendering.turns import entries, moment, usage_words
from swink_agent.rendering.values import pretty_json

from .charts import bar
from .words import case_name, duration, invocation_of, number, outcome, pass_words, reasons

_SHOWN_APART = frozenset({"id", "name", "user_messages"})


def place_of(index: int) -> str:
    """The anchor of a case's page."""
    return f"c{index + 1}"


def mark(word: str) -> str:
    """A sign for an outcome, with the word for screen readers."""
    return f'<span class="mark {kind_of(word)}" title="{word}"><span class="said">{word}</span></span>'


def kind_of(word: str) -> str:
    """The class of an outcome in the style sheet."""
    return word.replace(" ", "-")


def case_html(index: int, count: int, result: CaseResult, out: list[str]) -> None:
    """Adds the page of the case with this index among `count` cases."""
    place = place_of(index)
    title = case_name(result) or one_line(result.case_id, 160)
    out.append(f'<section class="case" id="{place}" aria-label="Case {index + 1}">\n{_way(index, count)}')
    out.append(f'<header class="case-head">{mark(outcome(result))}<div><h2 dir="auto">{escape(title)}</h2>')
    out.append(f'<p class="quiet"><code><bdi>{escape(one_line(result.case_id, 160))}</bdi></code></p></div></header>\n')
    if several := pass_words(result):
        out.append(f'<p class="several">{escape(several)}</p>\n')
    _expected(result, out)
    for attempt in result.attempts:
        _attempt(attempt, f"{place}a{attempt.number}", len(result.attempts) > 1, out)
    if not result.attempts:
        out.append('<p class="empty">No attempt was made.</p>\n')
    out.append("</section>\n")


def _way(index: int, count: int) -> str:
    links = ['<a href="#overview">All cases</a>']
    links.append(f'<a href="#{place_of(index - 1)}">Previous</a>' if index else "<span>Previous</span>")
    links.append(f'<a href="#{place_of(index + 1)}">Next</a>' if index + 1 < count else "<span>Next</span>")
    return f'<nav class="way" aria-label="Cases">{"".join(links)}<span>{index + 1} of {count}</span></nav>\n'


def _expected(result: CaseResult, out: list[str]) -> None:
    """Adds the fields of the case without its messages, which are in the conversation."""
    case = result.case
    if case is None:
        return
    plain: dict[str, Any] = msgspec.to_builtins(case, str_keys=True)
    said = {name: value for name, value in plain.items() if value and name not in _SHOWN_APART}
    if said:
        shown = code_html(visible(pretty_json(_without_nothing(said))), "json")
        out.append(
            f'<details class="data"><summary>What was expected</summary>\n<div class="inside">{shown}</div></details>\n'
        )


def _without_nothing(value: Any) -> Any:
    """The value without fields that are `None`. An empty list of calls has a meaning and stays."""
    if isinstance(value, list):
        return [_without_nothing(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    known = cast("dict[str, Any]", value)
    return {key: _without_nothing(item) for key, item in known.items() if item is not None}


def _attempt(attempt: Attempt, prefix: str, is_one_of_several: bool, out: list[str]) -> None:
    out.append(f'<section class="attempt" id="{prefix}">\n')
    if is_one_of_several:
        out.append(f'<h3 class="number">{mark(outcome(attempt))} Attempt {attempt.number}</h3>\n')
    errors = [why for what, why in reasons(attempt) if what in ("error", "not measured")]
    out.extend([f'<p class="failure" dir="auto">{escape(visible(why))}</p>\n' for why in errors])
    if attempt.scores:
        rows = "".join([_score(name, score) for name, score in attempt.scores.items()])
        out.append('<div class="table" tabindex="0" role="region" aria-label="scores">')
        out.append(f'<table class="scores">\n{rows}</table></div>\n')
    out.append(f'<ul class="facts">{_facts(attempt)}</ul>\n')
    invocation, problem = invocation_of(attempt)
    if problem:
        out.append(f'<p class="failure" dir="auto">{escape(visible(problem))}</p>\n')
    out.append('<div class="trajectory">\n')
    conversation_html(list(entries(invocation.messages, (), ())), out, model=attempt.versions.model, prefix=prefix)
    out.append("</div>\n</section>\n")


def _score(name: str, score: Score) -> str:
    kind = "passed" if score.passed else "failed"
    reason = f'<div class="reason" dir="auto">{escape(visible(score.reason))}</div>' if score.reason else ""
    return (
        f'<tr class="{kind}"><th>{mark(kind)} <bdi>{escape(one_line(name, 60))}</bdi></th>'
        f"<td>{bar(score.value, score.threshold)}</td>"
        f'<td class="right">{number(score.value)}<span class="quiet"> / {number(score.threshold)}</span></td>'
        f"<td>{reason}</td></tr>\n"
    )


def _facts(attempt: Attempt) -> str:
    facts = [
        one_line(attempt.versions.model, 80),
        f"{attempt.turns} {'turn' if attempt.turns == 1 else 'turns'}",
        f"{attempt.calls} {'call' if attempt.calls == 1 else 'calls'}",
        duration(attempt.seconds),
        usage_words(attempt.usage),
        dollars(attempt.total_cost) if attempt.total_cost else "",
        moment(attempt.started) if attempt.started else "",
    ]
    return "".join([f"<li><bdi>{escape(fact)}</bdi></li>" for fact in facts if fact])
