"""The pages about evaluations: all runs, one run with its reports, a case with its conversations, and a comparison.

The figures are those of the reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from swink_agent.evals import EvalRun
from swink_agent.evals.types import CaseResult, RunInfo
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.blocks import conversation_html
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.turns import entries, moment

from ..problems import Problem, invalid
from ..routes.evals import evals_of, loaded, loaded_case
from .markup import cell, html, link, page_html, table_html

if TYPE_CHECKING:
    from ..site import Site

_REPORTS = (("HTML", "html"), ("Markdown", "markdown"), ("JSON", "json"), ("JUnit", "junit"))


async def table_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    try:
        runs = await asyncio.to_thread(evals_of(site).list)
    except Problem as problem:
        if problem.code != "no_evals":
            raise
        runs = []
    return _html(base, "Evaluations", f"<h1>Evaluations</h1>\n{_table(base, runs)}{_choice(base, runs)}")


async def run_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    run = await loaded(site, request.match_info["run"])
    return _html(base, run.id, await asyncio.to_thread(_run, base, run))


async def case_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    run, result = await loaded_case(site, request.match_info["run"], request.match_info["case"])
    return _html(base, result.case_id, await asyncio.to_thread(_case, base, run, result))


async def comparison_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    before, after = request.query.get("before", ""), request.query.get("after", "")
    if not before or not after:
        raise invalid("choose two runs to compare: before and after")
    first, second = await loaded(site, before), await loaded(site, after)
    return _html(base, "Comparison", await asyncio.to_thread(_comparison, base, first, second))


def _html(base: str, title: str, body: str) -> web.Response:
    main = f'<main id="main" class="table">{body}</main>\n'
    return html(page_html(base, one_line(title, 160), main, part="evals"))


def _address(base: str, run_id: str, case: str = "") -> str:
    place = f"{base}evals/{quote(run_id, safe='')}"
    return f"{place}/cases/{quote(case, safe='')}" if case else place


def _table(base: str, runs: Sequence[RunInfo]) -> str:
    from swink_agent.evals.reports.words import share

    rows = [
        (
            link(_address(base, info.id), info.id),
            cell(info.set_name or info.set_id),
            moment(info.created),
            f"{info.cases:,}",
            "not complete" if info.summary is None else f"{info.summary.passed:,} ({share(info.summary.pass_rate)})",
            "" if info.summary is None else dollars(info.summary.cost),
        )
        for info in runs
    ]
    return table_html("Runs", ("Run", "Set", "Started", "Cases", "Passed", "Cost"), rows, "There are no evaluations.")


def _choice(base: str, runs: Sequence[RunInfo]) -> str:
    if len(runs) < 2:
        return ""

    def select(name: str, chosen: int) -> str:
        options = "".join(
            f'<option value="{escape(info.id)}"{" selected" if number == chosen else ""}>{escape(info.id)}</option>'
            for number, info in enumerate(runs)
        )
        return f'<label>{name.title()} <select name="{name}">{options}</select></label>'

    return (
        f'<form class="row" action="{base}evals/compare">{select("before", 1)}{select("after", 0)}'
        '<button class="main">Compare</button></form>\n'
    )


def _mark(passed: bool) -> str:
    return f'<span class="{"good" if passed else "bad"}">{"passed" if passed else "failed"}</span>'


def _run(base: str, run: EvalRun) -> str:
    from swink_agent.evals.reports.words import case_name, headline, run_facts, title_of

    facts = "".join([f"<div><dt>{escape(name)}</dt><dd>{cell(value)}</dd></div>\n" for name, value in run_facts(run)])
    reports = " · ".join(
        [
            f'<a href="{base}api/v1/evals/{quote(run.id, safe="")}/report?format={name}" download>{words}</a>'
            for words, name in _REPORTS
        ]
    )
    rows = [
        (
            link(_address(base, run.id, result.case_id), case_name(result) or result.case_id),
            cell(result.case_id),
            _mark(result.passed),
            f"{len(result.attempts):,}",
        )
        for result in run.results
    ]
    return (
        f'<header class="session"><h1 dir="auto">{escape(title_of(run))}</h1><p>{escape(headline(run))}</p>\n'
        f"<dl>{facts}</dl></header>\n<p>Report: {reports}</p>\n"
        f"{table_html('Cases', ('Case', 'Id', 'Result', 'Attempts'), rows, 'There are no results.')}"
    )


def _case(base: str, run: EvalRun, result: CaseResult) -> str:
    from swink_agent.evals.reports.words import case_name, invocation_of, number, reasons

    title = case_name(result) or result.case_id
    way = link(_address(base, run.id), run.id)
    out = [f'<p>{way}</p><h1 dir="auto">{cell(title)}</h1>\n<p>{_mark(result.passed)}</p>\n']
    for attempt in result.attempts:
        out.append(f'<section aria-label="Attempt {attempt.number}"><h2>Attempt {attempt.number}</h2>\n')
        rows = [(cell(name), number(score.value), _mark(score.passed)) for name, score in attempt.scores.items()]
        out.append(table_html(f"Scores of attempt {attempt.number}", ("Metric", "Score", "Result"), rows, "No scores."))
        for name, words in reasons(attempt):
            out.append(f'<p class="quiet" dir="auto">{escape(one_line(name, 80))}: {escape(visible(words))}</p>\n')
        invocation, _ = invocation_of(attempt)
        out.append(f'<div role="log" aria-label="Conversation of attempt {attempt.number}">\n')
        shown = list(entries(invocation.messages, (), ()))
        conversation_html(shown, out, model="", prefix=f"a{attempt.number}")
        out.append("</div></section>\n")
    return "".join(out)


def _comparison(base: str, before: EvalRun, after: EvalRun) -> str:
    from swink_agent.evals import compare
    from swink_agent.evals.reports.words import difference_words

    found = compare(before, after)
    groups = (
        ("Better", found.better),
        ("Worse", found.worse),
        ("Same", found.same),
        ("Only before", found.only_before),
        ("Only after", found.only_after),
    )
    known = {result.case_id for result in after.results}

    def linked(case: str) -> str:
        return link(_address(base, (after if case in known else before).id, case), case)

    rows = [(name, f"{len(cases):,}", "<br>".join(map(linked, cases))) for name, cases in groups if cases]
    return (
        f"<h1>Comparison</h1>\n<p>{link(_address(base, before.id), before.id)} and then "
        f"{link(_address(base, after.id), after.id)}: {difference_words(found)}.</p>\n"
        f"{table_html('Cases', ('Change', 'Cases', 'Which'), rows, 'The runs have no cases.')}"
    )
