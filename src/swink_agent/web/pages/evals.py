"""The pages about evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from .markup import page_html

if TYPE_CHECKING:
    from ..site import Site


class EvalPages:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def table(self, request: web.Request) -> web.StreamResponse:
        await self._site.authorized(request, "read", None)
        return web.Response(text=page_html("/", "Evaluations", "<main id=main></main>", part="evals"), content_type="text/html")

    run = table
    case = compare = table
