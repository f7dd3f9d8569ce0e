"""Routes about the server itself: its version, folder and model, the models to choose, and the OpenAPI document."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from .asking import Asked, answered


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The server: its version, the folder that it works in, and the model of new sessions."""

    version: str
    folder: str
    model: str | None


class Model(msgspec.Struct, frozen=True):
    """A model that can be chosen."""

    model: str
    """The provider's and the model's name, as a session's `model` takes it."""
    name: str
    detail: str = ""


class Models(msgspec.Struct, frozen=True):
    """The models that can be chosen, those with a key first."""

    models: list[Model]


async def info(asked: Asked) -> web.StreamResponse:
    from swink_agent import __version__

    site = asked.site
    model = await asyncio.to_thread(site.model)
    return answered(Info(version=__version__, folder=site.folder, model=model))


async def models(asked: Asked) -> web.StreamResponse:
    found = await asyncio.to_thread(asked.site.models)
    return answered(Models([Model(key, label, detail) for key, label, detail in found]))


async def openapi(asked: Asked) -> web.StreamResponse:
    from ..openapi import document

    return answered(document(asked.routes))
