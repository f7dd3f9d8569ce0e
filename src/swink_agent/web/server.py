"""The server as an aiohttp application: checks, routes and pages around a `Site`.

Owns the order in which a request is checked and how every error is answered. `app` is for applications with their own
agents, `application` for any site.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from swink_agent.adapters.kit.server_log import quoted
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.checks import check_methods, check_switch, is_not
from swink_agent.core.values.several import several_texts
from swink_agent.memory import JsonlSessionStore, SessionStore

from .access import CHANGING, Access, is_host, is_origin
from .channels import SessionChannel
from .embedded import AgentTalk, MakeAgentFn
from .problems import Problem, problem_of
from .routes.asking import Asked, Route, read_body, read_query
from .routes.runs import durable_of
from .routes.table import ROUTES
from .site import API, AuthorizeFn, Site
from .talks import Talk

if TYPE_CHECKING:
    from swink_agent.evals import EvalStore

log = logging.getLogger("swink_agent")

MAX_UPLOAD = 20 * 1024 * 1024
MAX_READERS = 512
_AGUI = "/agui"
_STORE = ("a SessionStore", "create", "open", "load")
_DURABLE = ("a Durable", "submit", "runs")
_EVALS = ("an EvalStore", "list", "load")
SITE: web.AppKey[Site] = web.AppKey("site", Site)
_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def app(
    make_agent: MakeAgentFn,
    *,
    authorize: AuthorizeFn,
    store: SessionStore | None = None,
    durable: Any = None,
    evals: EvalStore | None = None,
    page: bool = True,
    hosts: str | Collection[str] = (),
    origins: str | Collection[str] = (),
    max_upload: int = MAX_UPLOAD,
    max_readers: int = MAX_READERS,
) -> web.Application:
    """Returns the pages and routes of `swink web` for an application's own agents, also usable as a sub-application.

    `make_agent(context)` returns the agent for each run, compaction and resumption of a session, for the user who sent
    it. `authorize(request, action, session)` returns the name of the user, or `None` to refuse; actions are `read`,
    `write`, `answer`, `delete`, `operate`, and the session is a `SessionInfo` (`None` for lists and new ones).
    `owned_by(login)` is a ready one.
    Requests must be sent to a loopback name of this machine or to one of `hosts`; pages of `origins` may send them too.
    """
    for name, function in (("make_agent", make_agent), ("authorize", authorize)):
        if not callable(function):
            raise is_not(name, function, "a function")
    parts = (("store", store, _STORE), ("durable", durable, _DURABLE), ("evals", evals, _EVALS))
    for name, part, (what, *methods) in parts:
        if part is not None:
            check_methods(name, part, f"{what}, or None", *methods)
    check_switch("page", page)
    names, sites = several_texts(hosts, "app(hosts=…)"), several_texts(origins, "app(origins=…)")
    for host in names:
        if not is_host(host):
            raise ValueError(f"hosts must be names such as 'example.org' or 'example.org:443', not {host[:60]!r}")
    for origin in sites:
        if not is_origin(origin):
            raise ValueError(f"origins must be addresses such as 'https://example.org', not {origin[:60]!r}")
    for name, most in (("max_upload", max_upload), ("max_readers", max_readers)):
        if not isinstance(most, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not(name, most, "a number")
        if not most > 0:
            raise ValueError(f"{name} must be 1 or more, not {most}")
    sessions = JsonlSessionStore() if store is None else store

    async def open_talk(channel: SessionChannel, by: str) -> Talk:
        return await AgentTalk.open(channel, sessions, make_agent, by)

    site = Site(
        access=Access(hosts=names, origins=sites),
        authorize=authorize,
        store=sessions,
        open_talk=open_talk,
        redactor=Redactor(),
        durable=lambda: durable,
        evals=evals,
        max_upload=max_upload,
        max_readers=max_readers,
    )
    return application(site, page=page)


def application(site: Site, *, page: bool = True) -> web.Application:
    """Returns the application of a site, which it closes when it shuts down."""
    made = web.Application(middlewares=[_checked], client_max_size=site.max_upload)
    made[SITE] = site
    prefixes = ["", site.access.prefix] if site.access.key else [""]
    for prefix in prefixes:
        for route in ROUTES:
            made.router.add_route(route.method, f"{prefix}{API}/{route.path}", _handler(site, route))
        made.router.add_get(f"{prefix}/health", _healthy)
        _add_agui(made, site, prefix)
    if page:
        from .pages import add_pages

        for prefix in prefixes:
            add_pages(made, site, prefix)
        if site.access.key:
            made.router.add_get(site.access.prefix, _to_front)
    made.on_response_prepare.append(site.access.add_headers)
    made.on_shutdown.append(_closed)
    return made


async def _closed(made: web.Application) -> None:
    await made[SITE].close()


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _to_front(request: web.Request) -> web.Response:
    raise web.HTTPSeeOther(f"{request.path}/")


_healthy.is_open = True  # pyright: ignore[reportFunctionMemberAccess]


def _add_agui(made: web.Application, site: Site, prefix: str) -> None:
    async def run(request: web.Request) -> web.StreamResponse:
        from .agui import serve

        return await serve(site, request)

    made.router.add_post(f"{prefix}{_AGUI}", run)


def _handler(site: Site, route: Route) -> _Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        by = await site.authorized(request, route.action, request.match_info.get("session"))
        if route.action == "operate":
            durable_of(site)  # refuses before the query and the body are read
        query = read_query(request, route.query)
        body = None if route.body is None else await read_body(request, route.body)
        return await route.handle(Asked(site, request, by, query, body, ROUTES))

    return handle


# -- every request -----------------------------------------------------------------------------------------------


@web.middleware
async def _checked(request: web.Request, handler: _Handler) -> web.StreamResponse:
    site = request.app[SITE]
    try:
        return await _answer(site, request, handler)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except web.HTTPException as error:
        if error.status < 400:
            raise
        problem = _of_http(error)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            told = site.access.masked("".join(traceback.format_exception(error)))
            log.error("a request failed in the server itself: %s\n%s", type(error).__name__, told)
            problem = Problem(500, "failed", "the server failed; its log has the reason")
    return _refused(site, request, problem)


async def _answer(site: Site, request: web.Request, handler: _Handler) -> web.StreamResponse:
    access = site.access
    access.check_host(request)
    access.check_origin(request)
    if _is(request, "is_open"):
        return await handler(request)
    if (preflight := access.preflight(request)) is not None:
        return preflight
    if access.token is not None and request.method == "GET" and _is(request, "is_page"):
        if "token" in request.query:
            if access.is_token(request.query["token"]):
                return access.entered(request)
            raise Problem(401, "token", "the token in this address is wrong: use the one that `swink web` printed last")
        if "code" in request.query:
            if access.takes_code(request.query["code"]):
                return access.entered_once(request)
            raise Problem(401, "token", "this page led here once: open the address that `swink web` printed")
    access.check_token(request, is_keyed=access.is_keyed(request.path))
    if request.method in CHANGING:  # a change is completed even if the client leaves
        return await _to_its_end(handler(request))
    return await handler(request)


async def _to_its_end(work: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # the client may have left
    return await asyncio.shield(task)


def _is(request: web.Request, mark: str) -> bool:
    """Whether the handler of a request has a mark: `is_open` if it needs no token, `is_page` if it returns a page."""
    return getattr(request.match_info.handler, mark, False)


def _of_http(error: web.HTTPException) -> Problem:
    allow = error.headers.get("allow")
    codes = {404: "not_found", 405: "method", 413: "too_large", 417: "expectation"}
    words = {404: "there is nothing here", 405: "this path does not take that method", 413: "the body is too large"}
    return Problem(
        error.status,
        codes.get(error.status, "refused"),
        words.get(error.status, error.reason.lower()),
        {"allow": allow} if allow else None,
    )


def _refused(site: Site, request: web.Request, problem: Problem) -> web.StreamResponse:
    if problem.status in (401, 403, 421):
        where = f"{quoted(request.method)} {quoted(site.access.masked(request.path))}"
        log.info("refused %s from %s with %d: %s", where, request.remote or "somewhere", problem.status, problem.code)
    if "/api/" in request.path or request.path.endswith(_AGUI):  # for programs; all other paths are pages
        return problem.response()
    from .pages import problem_page

    return problem_page(site, request, problem)
