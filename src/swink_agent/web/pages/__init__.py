"""The pages of the server, and its static files.

Owns the paths of pages, and what a person sees when a request is refused. Each page is a handler; `is_page` marks it,
so that the address with the token may lead to it.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from ..problems import Problem
    from ..site import Site

PAGES = ("/", "/sessions/{session}", "/runs", "/runs/{run}", "/evals", "/evals/{run}", "/evals/{run}/cases/{case}")


def add_pages(app: web.Application, site: Site, prefix: str) -> None:
    """Adds the pages and the static files beneath a prefix."""

    async def page(request: web.Request) -> web.StreamResponse:
        await site.authorized(request, "read", request.match_info.get("session"))
        return _html("Swink", "<main><h1>Swink</h1></main>")

    handler: Any = page
    handler.is_page = True
    for path in PAGES:
        app.router.add_get(f"{prefix}{path}", page)
    app.router.add_get(f"{prefix}/static/{{name}}", _static)


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    file = files(__package__ or __name__).joinpath("static", name)
    if "/" in name or name.startswith(".") or not file.is_file():
        raise web.HTTPNotFound
    kind = guess_type(name)[0] or "application/octet-stream"
    is_text = kind.startswith("text/")
    return web.Response(
        body=file.read_bytes(),
        content_type=kind,
        charset="utf-8" if is_text else None,
        headers={"cache-control": "private, no-cache"},
    )


def problem_page(site: Site, problem: Problem) -> web.StreamResponse:
    """What a person sees of a request that was refused."""
    document = problem.document
    body = f"<main><h1>{escape(document.title)}</h1><p>{escape(document.detail)}</p></main>"
    response = _html(document.title, body)
    response.set_status(problem.status)
    response.headers.update(problem.headers)
    return response


def _html(title: str, body: str) -> web.Response:
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title></head>\n<body>{body}</body>\n</html>\n"
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8")
