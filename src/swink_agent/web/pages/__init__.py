"""The pages of the server, and its static files.

Owns the paths of pages, and the page for a refused request. `is_page` marks the handler of a page, which may be opened
with the token in its address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from html import escape
from importlib.resources import files
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from aiohttp import web

from swink_agent.core.values.decoders import json_decoder
from swink_agent.memory import SessionInfo
from swink_agent.rendering.blocks import entry_html
from swink_agent.rendering.turns import Label, Note, Reply, entries

from ..channels import state_of
from ..histories import History, masked_info
from ..problems import Problem, invalid
from ..routes.asking import Action
from ..routes.live import position_in
from ..routes.sessions import hits_of, listed
from ..streams import Event, Place, ShowFn
from .live_run import Live, shown_state
from .markup import base_of, home_html, html, listed_html, page_html, row_html, session_html, sidebar_html
from .question_form import question_html

if TYPE_CHECKING:
    from ..channels import SessionChannel
    from ..site import Site

_PageFn: TypeAlias = "Callable[[Site, web.Request, str], Awaitable[web.StreamResponse]]"
"""Returns a page; the text is the path of the first page."""
_STATIC = ("page.css", "page.js", "stream.js")
_LIST = "*"
_MOST_LISTED = 50
_MOST_SEARCHED = 2000
_MOST_HITS = 100
_MOST_FOUND = 40
_CODE = re.compile("`([^`]+)`")
_HOW = "<p>It is in the terminal in which <code>swink web</code> runs, and ends in <code>?token=…</code></p>"
_AT_ONCE = 40
"""The number of entries that a page shows at first, and that each step back adds."""


class _Change(msgspec.Struct, frozen=True):
    """A change of the list of sessions."""

    session: str = ""
    state: str = "idle"
    info: SessionInfo | None = None


_CHANGES = json_decoder(_Change)


def add_pages(app: web.Application, site: Site, prefix: str) -> None:
    """Adds the pages and the static files under a prefix."""
    from . import eval_pages, run_pages

    shown: list[tuple[str, Action, _PageFn]] = [
        ("/", "read", _home_page),
        ("/sessions/{session}", "read", _session_page),
        ("/runs", "operate", run_pages.table_page),
        ("/runs/{run}", "operate", run_pages.run_page),
        ("/evals", "read", eval_pages.table_page),
        ("/evals/compare", "read", eval_pages.comparison_page),
        ("/evals/{run}", "read", eval_pages.run_page),
        ("/evals/{run}/cases/{case}", "read", eval_pages.case_page),
    ]
    for path, action, handler in shown:
        page = _handler(site, path, action, handler)
        page.is_page = True  # pyright: ignore[reportFunctionMemberAccess]
        app.router.add_get(f"{prefix}{path}", page)
    for path, handler in (("", _list_part), ("/{session}/earlier", _earlier_part)):
        path = f"/parts/sessions{path}"
        app.router.add_get(f"{prefix}{path}", _handler(site, path, "read", handler))
    app.router.add_get(f"{prefix}/parts/events", partial(_events_part, site))
    app.router.add_get(f"{prefix}/static/{{name}}", _static)


def _handler(site: Site, path: str, action: Action, page: _PageFn) -> Callable[[web.Request], Any]:
    """Returns a handler that authorizes the request, and calls the page with the path of the first page."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await site.authorized(request, action, request.match_info.get("session"))
        return await page(site, request, base_of(request, path.format_map(request.match_info)))

    return handle


# -- the pages about sessions --------------------------------------------------------------------------------


async def _home_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    return html(home_html(base, await _side(site, request, base)))


async def _session_page(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    session_id = request.match_info["session"]
    side = await _side(site, request, base, session_id)
    loaded = await asyncio.to_thread(site.histories.load, session_id)
    channel = site.channels.of(loaded.id)
    channel.show(loaded)
    live = _live(channel)
    is_live = live.is_running or len(loaded.messages) < live.end
    cut = min(live.first, len(loaded.messages)) if is_live else len(loaded.messages)
    running = live.html() if is_live else ""
    position = live.log.position
    questions = "".join([question_html(question) for question in channel.questions.open])
    state = shown_state(await asyncio.to_thread(state_of, channel, loaded, site.model))
    commands = await asyncio.to_thread(site.commands)

    def render() -> str:
        shown, first = _last(loaded, cut)
        return session_html(
            base, loaded.info, side, shown + running, questions, state,
            position=position, first=first, commands=commands,
        )  # fmt: skip

    return html(await asyncio.to_thread(render))


async def _earlier_part(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    """Answers with the messages before the first one of the page."""
    given = request.query.get("before", "")
    if not (given.isascii() and given.isdecimal() and len(given) < 12):
        raise invalid("before must be the number of a message")
    loaded = await asyncio.to_thread(site.histories.load, request.match_info["session"])
    shown, first = await asyncio.to_thread(_last, loaded, min(int(given), len(loaded.messages)))
    response = html(shown)
    response.headers["x-first"] = str(first)
    return response


async def _list_part(site: Site, request: web.Request, base: str) -> web.StreamResponse:
    query = request.query.get("query", "").strip()[:1000]
    if query:
        return html(await _found(site, request, base, query))
    return html(await _list(site, request, base, request.query.get("current", ""), request.query.get("before", "")))


async def _events_part(site: Site, request: web.Request) -> web.StreamResponse:
    """Sends the changes of several sessions' pages in one stream, because a browser has few connections.

    The name `*`, which no session has, is the list of sessions.
    """
    places: list[Place] = []
    channels: list[SessionChannel] = []
    for part in [part for part in request.query.get("sessions", "").split(",") if part][:100]:
        name, _, given = part.partition(":")
        after = position_in(given) if given else -1
        if name == _LIST:
            if await site.may(request, "read", None):
                places.append(Place(site.listed, after, _LIST, _row_for(site, request)))
                site.watch_list()
            continue
        if not await site.may(request, "read", name):  # no longer: the pages of other sessions go on
            continue
        try:
            channel = site.channels.of(await site.find(name))
        except Exception:  # deleted meanwhile; its page reports that when it is loaded again
            continue
        channels.append(channel)
        places.append(Place(_live(channel).log, after, channel.id))
    if not places:
        raise Problem(404, "not_found", "there is no such session")
    ends = [
        channel.log.listen(lambda: None) for channel in channels
    ]  # so that the channel is kept while a page reads it
    try:
        return await site.readers.serve(request, places)
    finally:
        for end in ends:
            end()


def _row_for(site: Site, request: web.Request) -> ShowFn:
    """Returns a function that shows one reader the changes of the list, only for sessions that they may read."""
    base = base_of(request, "/parts/events")

    async def show(event: Event) -> Event | None:
        change = _CHANGES.decode(event.data)
        if change.session and not await site.may(request, "read", change.session):
            return None
        if change.info is None:
            return event
        row = {"session": change.session, "html": row_html(base, change.info, change.state)}
        return event._replace(data=msgspec.json.encode(row))

    return show


def _live(channel: SessionChannel) -> Live:
    if channel.page is None:
        channel.page = Live(channel)
    return channel.page


async def _side(site: Site, request: web.Request, base: str, current: str = "") -> str:
    position = site.listed.position  # before the list is read, so that no change is missed
    return sidebar_html(await _list(site, request, base, current), position)


async def _list(site: Site, request: web.Request, base: str, current: str = "", before: str = "") -> str:
    shown, more = await listed(site, request, _MOST_LISTED, before)
    return listed_html(base, shown, site.channels.word, {}, current, more or "")


async def _found(site: Site, request: web.Request, base: str, query: str) -> str:
    wanted = query.casefold()
    found: dict[str, SessionInfo] = {}
    for info in await asyncio.to_thread(site.store.list, limit=_MOST_SEARCHED):
        if wanted in info.title.casefold() and await site.may(request, "read", info):
            found[info.id] = masked_info(info, site.redactor)
    hits = await hits_of(site, request, query, _MOST_HITS)
    snippets = {hit.session.id: hit.snippet for hit in reversed(hits)}
    found = {**found, **{hit.session.id: hit.session for hit in hits if hit.session.id not in found}}
    return listed_html(base, list(found.values())[:_MOST_FOUND], site.channels.word, snippets)


def _last(loaded: History, end: int) -> tuple[str, int]:
    """Returns the last entries before a message as HTML, and the number of messages before them."""
    messages = loaded.messages[:end]
    labels = [label for label in loaded.labels if label[1] <= end]
    every = list(entries(messages, labels, ()))
    shown = every[-_AT_ONCE:]
    before = every[-_AT_ONCE - 1] if len(every) > _AT_ONCE else None
    out: list[str] = []
    model = str(loaded.info.model or "")
    for entry in shown:
        goes_on = isinstance(entry, Reply) and isinstance(before, Reply)
        entry_html(entry, out, goes_on=goes_on, model=model)
        before = entry
    places = [entry.position for entry in shown if not isinstance(entry, Label | Note)]
    return "".join(out), places[0] if len(every) > _AT_ONCE and places else 0


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    if name not in _STATIC:
        raise web.HTTPNotFound
    data = files(__package__ or __name__).joinpath("static", name).read_bytes()
    if name == "page.css":  # the style of exports, then the additions of the pages
        data = files("swink_agent.rendering").joinpath("page.css").read_bytes() + data
    kind = guess_type(name)[0] or "application/octet-stream"
    return web.Response(
        body=data,
        content_type=kind,
        charset="utf-8" if kind.startswith("text/") else None,
        headers={"cache-control": "private, no-cache"},
    )


def problem_page(site: Site, request: web.Request, problem: Problem) -> web.StreamResponse:
    """Returns the page for a refused request. A visitor with the cookie also gets links back."""
    document = problem.document
    is_plain = problem.status in (401, 403, 421) or not site.access.is_keyed(request.path)
    detail = _CODE.sub(r"<code>\1</code>", escape(document.detail[:1].upper() + document.detail[1:]))
    body = f"<h1>{escape(document.title)}</h1><p>{detail}.</p>{_HOW if problem.code == 'token' else ''}"
    main = f'<main id="main" class="table">{body}</main>'
    response = html(page_html(f"{site.access.prefix}/", document.title, main, is_plain=is_plain))
    response.set_status(problem.status)
    response.headers.update(problem.headers)
    return response
