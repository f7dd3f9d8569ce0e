"""AG-UI."""

from __future__ import annotations

from aiohttp import web

from .problems import Problem
from .site import Site


async def serve(site: Site, request: web.Request) -> web.StreamResponse:
    raise Problem(501, "no_agui", "soon")
