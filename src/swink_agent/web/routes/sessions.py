"""Routes about sessions that need no conversation: list, search, create, read, rename, delete, fork, export."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, structs

from swink_agent.core.encoding.codec import encode_message
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, ThinkingLevel
from swink_agent.memory import SearchHit, SessionInfo

from ..channels import state_of
from ..histories import masked_info
from ..problems import Problem, invalid
from ..questions import Question
from .asking import Asked, answered, read_format

if TYPE_CHECKING:
    from ..site import Site

_Limit = Annotated[int, Meta(ge=1, le=500)]
_Title = Annotated[str, Meta(max_length=1000)]
_FORMATS = {
    "markdown": ("text/markdown", "md"),
    "html": ("text/html", "html"),
    "json": ("application/json", "json"),
    "atif": ("application/json", "atif.json"),
}


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: _Limit = 50
    before: str = ""


class Sessions(msgspec.Struct, frozen=True):
    """Sessions, the newest first. `next` is for `before`; null at the end."""

    sessions: list[SessionInfo]
    next: str | None


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(max_length=1000)] = ""
    limit: _Limit = 20


class Hit(msgspec.Struct, frozen=True):
    """A message that matches a search."""

    session: SessionInfo
    position: int
    snippet: str


class Hits(msgspec.Struct, frozen=True):
    hits: list[Hit]


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: _Title = ""
    model: str | None = None
    thinking: ThinkingLevel | None = None
    metadata: dict[str, Any] = {}
    """JSON data about the session, which `authorize` gets, and which never changes."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: _Title | None = None
    model: str | None = None
    thinking: ThinkingLevel | None = None
    plan: bool | None = None


class QueuedText(msgspec.Struct, frozen=True):
    kind: str
    """`steer` or `follow_up`."""
    text: str


class SessionState(msgspec.Struct, frozen=True):
    """The fields of a session in addition to its `SessionInfo`."""

    state: str
    """`idle`, `running` or `waiting`."""
    position: int
    """The newest event of its stream. A stream `after` this position misses nothing."""
    questions: list[Question]
    queue: list[QueuedText]
    plan: bool
    fill: float
    """The used part of the model's window, from 0 to 1."""
    chosen: str
    """The model of the next run, if it is known."""
    thinking: str


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=0)] | None = None
    limit: _Limit = 50


class Messages(msgspec.Struct, frozen=True):
    """Messages in order. `first` is the index of the first of them, `total` the number in the session."""

    messages: list[AgentMessage]
    first: int
    total: int


class At(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: Annotated[int, Meta(ge=0)] | None = None


class Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str = "markdown"


async def list_sessions(asked: Asked) -> web.StreamResponse:
    return answered(Sessions(*await listed(asked.site, asked.request, asked.query.limit, asked.query.before)))


async def listed(site: Site, request: web.Request, most: int, before: str = "") -> tuple[list[SessionInfo], str | None]:
    """Returns the newest sessions after `before` that the user may read, and the `before` for more, or `None`."""
    found: list[SessionInfo] = []
    is_behind = not before
    limit = most * 2 + 2 if before else most + 1  # usually enough if the user may read all sessions
    seen = 0
    while True:
        infos = await asyncio.to_thread(site.store.list, limit=limit)
        for one in infos[seen:]:
            if is_behind and await site.may(request, "read", one):
                found.append(masked_info(one, site.redactor))
                if len(found) > most:
                    break
            is_behind = is_behind or one.id == before
        if len(found) > most or len(infos) < limit:
            break
        seen, limit = len(infos), limit * 8
    if not is_behind:
        raise invalid(f"there is no session {before[:60]!r} to continue the list from")
    return found[:most], found[most - 1].id if len(found) > most else None


async def search(asked: Asked) -> web.StreamResponse:
    wanted = asked.query
    found = await hits_of(asked.site, asked.request, wanted.query, wanted.limit)
    return answered(Hits([Hit(hit.session, hit.position, hit.snippet) for hit in found]))


async def hits_of(site: Site, request: web.Request, query: str, most: int) -> list[SearchHit]:
    """Returns the messages that match, of sessions that the user may read."""
    if not query.strip():
        return []
    limit = most
    allowed: dict[str, bool] = {}
    while True:
        found = await asyncio.to_thread(site.store.search, query, limit)
        for hit in found:
            if hit.session.id not in allowed:
                allowed[hit.session.id] = await site.may(request, "read", hit.session)
        shown = [hit for hit in found if allowed[hit.session.id]]
        if len(shown) >= most or len(found) < limit:
            return [_masked(hit, site.redactor) for hit in shown[:most]]
        limit *= 8  # too many hits were in other users' sessions


def _masked(hit: SearchHit, redactor: Redactor) -> SearchHit:
    return structs.replace(hit, session=masked_info(hit.session, redactor), snippet=redactor.redact(hit.snippet))


async def create(asked: Asked) -> web.StreamResponse:
    wanted = asked.body
    made = asked.site.create(wanted.title, wanted.model, wanted.thinking, by=asked.by, metadata=wanted.metadata)
    session_id = await made
    return await _session(asked, session_id, 201)


async def read(asked: Asked) -> web.StreamResponse:
    return await _session(asked, await asked.site.find(asked.session))


async def _session(asked: Asked, session_id: str, status: int = 200) -> web.StreamResponse:
    """Answers with the session and its state."""
    site = asked.site
    loaded = await asyncio.to_thread(site.histories.load, session_id)
    channel = site.channels.find(session_id) or site.channels.of(session_id)
    channel.show(loaded)
    state = await asyncio.to_thread(state_of, channel, loaded, site.model)
    more = SessionState(
        state=state.state,
        position=channel.log.position,
        questions=channel.questions.open,
        queue=[QueuedText(**queued) for queued in state.queue],
        plan=state.plan,
        fill=state.fill,
        chosen=state.model,
        thinking=state.thinking,
    )
    headers = {"location": site.path_of(asked.request, f"sessions/{session_id}")} if status == 201 else None
    return answered({**msgspec.to_builtins(loaded.info), **msgspec.to_builtins(more)}, status, headers)


async def change(asked: Asked) -> web.StreamResponse:
    wanted, channel = asked.body, await asked.channel()
    async with channel.opening:
        if wanted.model is not None or wanted.thinking is not None or wanted.plan is not None:
            if channel.is_busy:
                raise Problem(409, "running", "the model and the mode can only change between runs")
            talk = await channel.opened(asked.by, to_run=False)
            channel.questions.close_offers()
            if wanted.model is not None or wanted.thinking is not None:
                thinking = None if wanted.thinking is None else str(wanted.thinking)
                await talk.set_model(wanted.model, thinking)
                if (journal := talk.agent.journal) is not None:
                    await journal.durable()  # the answer is read from the disk
            if wanted.plan is not None:
                await talk.set_plan(wanted.plan)
        if wanted.title is not None:  # last, so that the title stays if another change is refused
            await asked.site.rename(channel, wanted.title)
    return await _session(asked, channel.id)


async def delete(asked: Asked) -> web.StreamResponse:
    channel = await asked.channel()
    async with channel.opening:
        if channel.is_busy:
            raise Problem(409, "running", "a run of this session is active: stop it first")
        await asked.site.delete(channel)
    return web.Response(status=204)


async def messages(asked: Asked) -> web.StreamResponse:
    loaded = await asyncio.to_thread(asked.site.histories.load, asked.session)
    every = loaded.messages
    wanted = asked.query
    end = len(every) if wanted.before is None else min(wanted.before, len(every))
    first = max(end - wanted.limit, 0)
    shown = [msgspec.Raw(encode_message(message)) for message in every[first:end]]
    return answered({"messages": shown, "first": first, "total": len(every)})


async def fork(asked: Asked) -> web.StreamResponse:
    site = asked.site
    session_id = await site.find(asked.session)
    if not await site.may(asked.request, "write", None):
        raise Problem(403, "forbidden", "you may not create sessions here")
    try:
        forked = await site.fork(session_id, asked.body.at)
    except ValueError as error:
        raise invalid(str(error)) from None
    return await _session(asked, forked, 201)


async def export(asked: Asked) -> web.StreamResponse:
    media_type, ending = read_format(asked.query.format, _FORMATS)
    session_id = await asked.site.find(asked.session)
    text = await asyncio.to_thread(asked.site.store.export, session_id, asked.query.format)
    headers = {"content-disposition": f'attachment; filename="{session_id}.{ending}"'}
    return web.Response(text=text, content_type=media_type, charset="utf-8", headers=headers)
