"""The pages about durable runs: their table, and one run with its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from .markup import page_html

if TYPE_CHECKING:
    from ..site import Site


class RunPages:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def table(self, request: web.Request) -> web.StreamResponse:
        await self._site.authorized(request, "operate", None)
        return web.Response(text=page_html("/", "Runs", "<main id=main></main>", part="runs"), content_type="text/html")

    run = table
