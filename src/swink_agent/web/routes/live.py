"""Routes that act on a conversation: prompt, steer, follow up, abort, answer, command, upload; and its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from swink_agent.app.talk.queue import QueuedKind

from ..channels import SessionChannel
from ..problems import Problem, invalid
from ..streams import Place
from .asking import Asked, answered, read_bytes

_MOST_AT_ONCE = 100


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    attachments: Annotated[list[str], Meta(max_length=20)] = []


class Accepted(msgspec.Struct, frozen=True):
    """The requested work has begun. Its events come after `position`."""

    position: int


class Returned(msgspec.Struct, frozen=True):
    """The texts that were queued and are not sent."""

    returned: list[str]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    choice: str
    reason: Annotated[str, Meta(max_length=10_000)] = ""
    hunks: list[int] | None = None


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    line: str


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body without fields, which may be left out."""


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: str = ""


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sessions: str


async def prompt(asked: Asked) -> web.StreamResponse:
    site, given = asked.site, asked.body
    channel = await asked.channel()
    _refuse_empty(given)
    async with channel.opening:
        if channel.is_busy:
            raise Problem(409, "running", "a run of this session is active: steer it, or queue a follow-up")
        files = site.uploads.paths(channel.id, given.attachments)
        talk = await channel.opened(asked.by)
        position = channel.log.position
        channel.questions.close_offers()
        await talk.prompt(given.text, files)
    site.list_state(channel)  # the first prompt is its title
    await site.channels.close_idle()
    return answered(Accepted(position), 202)


async def steer(asked: Asked) -> web.StreamResponse:
    return await _add(asked, "steer")


async def follow_up(asked: Asked) -> web.StreamResponse:
    return await _add(asked, "follow_up")


async def _add(asked: Asked, kind: QueuedKind) -> web.StreamResponse:
    given, channel = asked.body, await asked.channel()
    _refuse_empty(given)
    talk = channel.talk
    if talk is None or not talk.is_running:
        raise Problem(409, "not_running", "no run of this session is active: send a prompt")
    position = channel.log.position
    await talk.add(kind, given.text, asked.site.uploads.paths(channel.id, given.attachments))
    return answered(Accepted(position), 202)


def _refuse_empty(given: Prompt) -> None:
    if not given.text.strip() and not given.attachments:
        raise invalid("a message needs a text, or something attached")


async def abort(asked: Asked) -> web.StreamResponse:
    channel = await asked.channel()
    channel.questions.close_offers()
    return answered(Returned([] if channel.talk is None else await channel.talk.stop()))


async def answer(asked: Asked) -> web.StreamResponse:
    given, channel = asked.body, await asked.channel()
    async with _taken_up(channel, given.question, asked.by):
        channel.questions.answer(given.question, given.choice, given.reason, given.hunks, asked.by)
    return answered({"question": given.question, "choice": given.choice, "by": asked.by})


@asynccontextmanager
async def _taken_up(channel: SessionChannel, question: str, by: str) -> AsyncGenerator[None]:
    """Opens the session again for an offer, which stays while the session is let go; a run holds its session."""
    if not channel.questions.is_offer(question):
        yield
        return
    async with channel.opening:
        await channel.opened(by)  # closes the offer if another program has changed the session
        yield


async def command(asked: Asked) -> web.StreamResponse:
    line = asked.body.line.strip()
    if not line.startswith(("/", "#")):
        raise invalid("a command begins with /; shell commands run only in a terminal")
    channel = await asked.channel()
    async with channel.opening:
        talk = await channel.opened(asked.by)
        position = channel.log.position
        channel.questions.close_offers()
        await talk.command(line)
    return answered(Accepted(position), 202)


async def upload(asked: Asked) -> web.StreamResponse:
    site = asked.site
    session_id = await site.find(asked.session)
    data = await read_bytes(asked.request, site.max_upload)
    return answered(await asyncio.to_thread(site.uploads.keep, session_id, data), 201)


async def events(asked: Asked) -> web.StreamResponse:
    channel, seen = await asked.channel(), asked.request.headers.get("last-event-id", "").strip()
    return await asked.site.readers.serve(
        asked.request, [Place(channel.log, position_in(seen or asked.query.after.strip()))]
    )


async def all_events(asked: Asked) -> web.StreamResponse:
    site = asked.site
    places: list[Place] = []
    for part in [part for part in asked.query.sessions.split(",") if part][:_MOST_AT_ONCE]:
        name, _, after = part.partition(":")
        await site.authorized(asked.request, "read", name)
        session_id = await site.find(name)
        places.append(Place(site.channels.of(session_id).log, position_in(after), session_id))
    if not places:
        raise invalid("name the sessions, each with its position: sessions=ID:POSITION,ID:POSITION")
    return await site.readers.serve(asked.request, places)


def position_in(given: str) -> int | None:
    """Returns the position that a reader gave; `None` if it gave none."""
    if not given:
        return None
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 20 else -1  # -1 is never kept
