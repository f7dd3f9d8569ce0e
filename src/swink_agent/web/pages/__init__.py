"""The pages of the server, and its static files.

Owns the paths of pages, and what a person sees when a request is refused. Each page is a handler; `is_page` marks it,
so that the address with the token may lead to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from html import escape
from importlib.resources import files
from mimetypes import guess_type
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from aiohttp import web

from swink_agent.core.values.decoders import json_decoder
from swink_agent.memory import LoadedSession, SessionInfo
from swink_agent.rendering.blocks import entry_html
from swink_agent.rendering.turns import Entry, Reply, entries

from ..problems import Problem, invalid
from ..rooms import state_of
from ..routes.live import position_in, too_many
from ..routes.sessions import hits_of, listed
from ..streams import Event, Place, ShowFn
from .live import Live, shown_state
from .markup import base_of, home_html, html, listed_html, page_html, row_html, session_html, sidebar_html
from .questions import question_html

if TYPE_CHECKING:
    from ..rooms import Room
    from ..site import Site

_Handler: TypeAlias = "Callable[[web.Request], Awaitable[web.StreamResponse]]"
_STATIC = ("page.css", "page.js", "stream.js")
_LIST = "*"
_MOST_LISTED = 50
_MOST_SEARCHED = 2000
_MOST_HITS = 100
_MOST_FOUND = 40
_CODE = re.compile("`([^`]+)`")
_HOW = "<p>It is in the terminal in which <code>swink web</code> runs, and ends in <code>?token=…</code></p>"
_AT_ONCE = 40
"""Entries of a conversation that a page begins with, and that come with each step back."""


class _Change(msgspec.Struct, frozen=True):
    """A change of the list of sessions."""

    session: str = ""
    state: str = "idle"
    info: SessionInfo | None = None


_CHANGES = json_decoder(_Change)


def add_pages(app: web.Application, site: Site, prefix: str) -> None:
    """Adds the pages and the static files beneath a prefix."""
    pages = Pages(site)
    from .evals import EvalPages
    from .runs import RunPages

    runs, evals = RunPages(site), EvalPages(site)
    shown: list[tuple[str, _Handler]] = [
        ("/", pages.home),
        ("/sessions/{session}", pages.session),
        ("/runs", runs.table),
        ("/runs/{run}", runs.run),
        ("/evals", evals.table),
        ("/evals/compare", evals.compare),
        ("/evals/{run}", evals.run),
        ("/evals/{run}/cases/{case}", evals.case),
    ]
    for path, handler in shown:
        app.router.add_get(f"{prefix}{path}", _page(handler))
    app.router.add_get(f"{prefix}/parts/sessions", pages.listed)
    app.router.add_get(f"{prefix}/parts/sessions/{{session}}/earlier", pages.earlier)
    app.router.add_get(f"{prefix}/parts/events", pages.events)
    app.router.add_get(f"{prefix}/static/{{name}}", _static)


def _page(handler: _Handler) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    page.is_page = True  # pyright: ignore[reportFunctionMemberAccess]
    return page


class Pages:
    """The pages about sessions."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def home(self, request: web.Request) -> web.StreamResponse:
        await self._site.authorized(request, "read", None)
        base = base_of(request, "/")
        return html(home_html(base, await self._side(request, base)))

    async def session(self, request: web.Request) -> web.StreamResponse:
        session_id = request.match_info["session"]
        site = self._site
        await site.authorized(request, "read", session_id)
        base = base_of(request, f"/sessions/{session_id}")
        side = await self._side(request, base, session_id)
        loaded = await asyncio.to_thread(site.histories.load, session_id)
        room = site.rooms.of(loaded.id)
        room.show(loaded)
        live = self._live(room)
        is_live = live.is_running or len(loaded.messages) < live.end
        cut = min(live.first, len(loaded.messages)) if is_live else len(loaded.messages)
        running = live.html(False) if is_live else ""
        position = live.log.position
        questions = "".join([question_html(question) for question in room.questions.open])
        state = shown_state(await asyncio.to_thread(state_of, room, loaded, site.model))
        commands = await asyncio.to_thread(site.commands)

        def render() -> str:
            shown, first = _last(loaded, cut)
            return session_html(
                base, loaded.info, side, shown + running, questions, state,
                position=position, first=first, commands=commands,
            )  # fmt: skip

        return html(await asyncio.to_thread(render))

    async def earlier(self, request: web.Request) -> web.StreamResponse:
        """The messages before one that the page has."""
        session_id = request.match_info["session"]
        await self._site.authorized(request, "read", session_id)
        given = request.query.get("before", "")
        if not (given.isascii() and given.isdecimal() and len(given) < 12):
            raise invalid("before is the number of a message")
        loaded = await asyncio.to_thread(self._site.histories.load, session_id)
        shown, first = await asyncio.to_thread(_last, loaded, min(int(given), len(loaded.messages)))
        response = html(shown)
        response.headers["x-first"] = str(first)
        return response

    async def listed(self, request: web.Request) -> web.StreamResponse:
        await self._site.authorized(request, "read", None)
        base = base_of(request, "/parts/sessions")
        query = request.query.get("query", "").strip()[:1000]
        if query:
            return html(await self._found(request, base, query))
        return html(await self._list(request, base, request.query.get("current", ""), request.query.get("before", "")))

    async def events(self, request: web.Request) -> web.StreamResponse:
        """What changes on the pages of several sessions, in one stream: a browser has few connections.

        The list of sessions is there under the name `*`, which no session has.
        """
        site = self._site
        places: list[Place] = []
        rooms: list[Room] = []
        for part in [part for part in request.query.get("sessions", "").split(",") if part][:100]:
            name, _, given = part.partition(":")
            after = position_in(given) if given else -1
            if name == _LIST:
                if await site.may(request, "read", None):
                    places.append(Place(site.listed, after, _LIST, self._row_for(request)))
                    site.watch_list()
                continue
            await site.authorized(request, "read", name)
            try:
                room = site.rooms.of(await site.find(name))
            except Exception:  # deleted meanwhile; its page says so when it is read again
                continue
            rooms.append(room)
            places.append(Place(self._live(room).log, after, room.id))
        if not places:
            raise Problem(404, "not_found", "there is no such session")
        if site.readers.is_full:
            raise too_many()
        ends = [room.log.listen(_nothing) for room in rooms]  # so that the room is kept while a page reads it
        try:
            return await site.readers.serve_places(request, places)
        finally:
            for end in ends:
                end()

    def _row_for(self, request: web.Request) -> ShowFn:
        """Changes of the list as one reader sees them: of sessions that they may read."""
        base = base_of(request, "/parts/events")

        async def show(event: Event) -> Event | None:
            change = _CHANGES.decode(event.data)
            if change.session and not await self._site.may(request, "read", change.session):
                return None
            if change.info is None:
                return event
            row = {"session": change.session, "html": row_html(base, change.info, change.state)}
            return event._replace(data=msgspec.json.encode(row))

        return show

    def _live(self, room: Room) -> Live:
        if room.page is None:
            room.page = Live(room)
        return room.page

    async def _side(self, request: web.Request, base: str, current: str = "") -> str:
        position = self._site.listed.position  # before the list is read: what changes meanwhile comes again
        return sidebar_html(await self._list(request, base, current), position)

    def _state(self, session_id: str) -> str:
        room = self._site.rooms.find(session_id)
        return "idle" if room is None else room.word

    async def _list(self, request: web.Request, base: str, current: str = "", before: str = "") -> str:
        shown, more = await listed(self._site, request, _MOST_LISTED, before)
        return listed_html(base, shown, self._state, {}, current, more or "")

    async def _found(self, request: web.Request, base: str, query: str) -> str:
        site, wanted = self._site, query.casefold()
        found: dict[str, SessionInfo] = {}
        for info in await asyncio.to_thread(site.store.list, limit=_MOST_SEARCHED):
            if wanted in info.title.casefold() and await site.may(request, "read", info.id):
                found[info.id] = info
        hits = await hits_of(site, request, query, _MOST_HITS)
        snippets = {hit.session.id: hit.snippet for hit in reversed(hits)}
        found = {**found, **{hit.session.id: hit.session for hit in hits if hit.session.id not in found}}
        return listed_html(base, list(found.values())[:_MOST_FOUND], self._state, snippets)


def _nothing() -> None:
    pass


def _last(loaded: LoadedSession, end: int) -> tuple[str, int]:
    """The last entries before a message as HTML, and the number of messages before them."""
    messages = loaded.messages[:end]
    labels = [(label.text, label.position) for label in loaded.labels if label.position <= end]
    every = list(entries(messages, labels, ()))
    shown = every[-_AT_ONCE:]
    before = every[-_AT_ONCE - 1] if len(every) > _AT_ONCE else None
    out: list[str] = []
    model = str(loaded.info.model or "")
    for entry in shown:
        goes_on = isinstance(entry, Reply) and isinstance(before, Reply)
        entry_html(entry, out, goes_on=goes_on, model=model)
        before = entry
    first = 0 if len(every) <= _AT_ONCE else next((at for entry in shown if (at := _at(entry)) is not None), 0)
    return "".join(out), first


def _at(entry: Entry) -> int | None:
    return getattr(entry, "position", None)


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    if name not in _STATIC:
        raise web.HTTPNotFound
    data = files(__package__ or __name__).joinpath("static", name).read_bytes()
    if name == "page.css":  # what exports look like, and what pages have besides
        data = files("swink_agent.rendering").joinpath("page.css").read_bytes() + data
    kind = guess_type(name)[0] or "application/octet-stream"
    return web.Response(
        body=data,
        content_type=kind,
        charset="utf-8" if kind.startswith("text/") else None,
        headers={"cache-control": "private, no-cache"},
    )


def problem_page(site: Site, request: web.Request, problem: Problem) -> web.StreamResponse:
    """What a person sees of a request that was refused: with the ways back, if it is a person who has the cookie."""
    document = problem.document
    is_plain = problem.status in (401, 403, 421) or not site.access.is_keyed(request.path)
    detail = _CODE.sub(r"<code>\1</code>", escape(document.detail[:1].upper() + document.detail[1:]))
    body = f"<h1>{escape(document.title)}</h1><p>{detail}.</p>{_HOW if problem.code == 'token' else ''}"
    main = f'<main id="main" class="table">{body}</main>'
    response = html(page_html(f"{site.access.prefix}/", document.title, main, is_plain=is_plain))
    response.set_status(problem.status)
    response.headers.update(problem.headers)
    return response
