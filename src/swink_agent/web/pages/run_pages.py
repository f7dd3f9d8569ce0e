"""The pages about durable runs: their table, and one run with its waiting calls and its conversation.

The page's script loads a page again when its run has changed.
"""

from __future__ import annotations

import asyncio
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from swink_agent.app.runs.telling import age
from swink_agent.durable.info import RunInfo
from swink_agent.memory import LoadedSession
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.blocks import conversation_html
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.highlight import code_html
from swink_agent.rendering.turns import entries, moment
from swink_agent.rendering.values import pretty_json

from ..problems import Problem
from ..routes.runs import durable_errors, durable_of
from .markup import ALERT, cell, html, link, page_html, table_html

if TYPE_CHECKING:
    from ..site import Site

_MOST = 200
_HEADS = ("Run", "Agent", "Status", "Worker", "Cost", "Age", "Waits")


async def table_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    try:
        with durable_errors():
            found = await durable_of(site).runs(limit=_MOST)
        shown = _table(base, found)
    except Problem as problem:
        if problem.code != "no_durable":
            raise
        shown = f'<p class="empty">{escape(problem.detail)}</p>\n'
    body = f'<main id="main" class="table" data-again="3"><h1>Runs</h1>\n{shown}</main>\n'
    return html(page_html(base, "Runs", body, part="runs"))


async def run_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    with durable_errors():
        run = await durable_of(site).run(request.match_info["run"])
        info: RunInfo = await run.info()
        session: LoadedSession = await run.load()
    shown = await asyncio.to_thread(_run, info, session)
    data = f'data-run="{escape(info.id)}" data-position="{info.position}" data-over="{"yes" if info.is_over else ""}"'
    again = "" if info.is_over else ' data-again="3"'
    body = f'<main id="main" class="table" {data}{again}>{shown}</main>\n{ALERT}'
    return html(page_html(base, f"Run {one_line(info.id, 80)}", body, part="runs"))


def _cost(info: RunInfo) -> str:
    return dollars(info.cost)


def _table(base: str, runs: list[RunInfo]) -> str:
    rows = [
        (
            link(f"{base}runs/{quote(info.id, safe='')}", info.id),
            cell(info.agent),
            f'<span class="status {info.status}">{info.status}</span>',
            cell(info.worker),
            cell(_cost(info)),
            age(info.created),
            cell(", ".join([call.name for call in info.pending])),
        )
        for info in runs
    ]
    return table_html("Runs", _HEADS, rows, "There are no runs.")


def _run(info: RunInfo, session: LoadedSession) -> str:
    facts = [
        ("Agent", info.agent),
        ("Status", info.status),
        ("Worker", info.worker),
        ("Attempts", f"{info.attempts:,}"),
        ("Tokens", f"{info.tokens:,}"),
        ("Cost", _cost(info)),
        ("Submitted", moment(info.created)),
        ("Last change", moment(info.updated)),
    ]
    rows = "".join(f"<div><dt>{name}</dt><dd>{cell(value)}</dd></div>\n" for name, value in facts if value)
    out = [f'<header class="session"><h1>Run {cell(info.id)}</h1>\n<dl>{rows}</dl></header>\n']
    if info.error:
        out.append(f'<p class="failure" dir="auto">{escape(visible(info.error))}</p>\n')
    if not info.is_over:
        out.append('<p><button type="button" data-operate="cancel">Cancel run</button></p>\n')
    elif info.status == "failed":
        out.append('<p><button type="button" data-operate="retry">Retry run</button></p>\n')
    for number, call in enumerate(info.pending):
        place = f"p{number}"
        answers = '<button type="button" class="main" data-answer="approve">Approve</button>'
        field = '<label>Reason <input name="reason" autocomplete="off"></label>'
        no = '<button type="button" data-answer="reject">Reject</button>'
        if call.kind == "external":
            answers = '<button type="button" class="main" data-answer="result">Send result</button>'
            field = '<label>Result (JSON) <input name="result" autocomplete="off"></label>'
        out.append(
            f'<section class="question" role="group" aria-labelledby="{place}" data-call="{escape(call.call_id)}"'
            f' data-position="{call.position}">'
            f'<h2 id="{place}">{cell(call.name)} waits</h2>\n'
            f"<p>{escape(visible(call.reason))}</p>\n{code_html(visible(pretty_json(call.arguments)), 'json')}"
            f'<form class="answers">{field}{answers}{no}</form></section>\n'
        )
    out.append('<section role="log" aria-label="Conversation">\n')
    conversation_html(list(entries(session.messages, (), ())), out, model=str(session.info.model or ""))
    out.append("</section>\n")
    return "".join(out)
