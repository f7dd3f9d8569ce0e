"""Routes about durable runs: their table, their records as they are written, answers, cancelling and retrying."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from swink_agent.core.approval import Approve, PendingCall, Reject
from swink_agent.core.errors import AgentError, NotPending
from swink_agent.core.tool import as_result
from swink_agent.durable.errors import DurableError, RunConflict, RunNotFound, RunOver, StoreUnavailable
from swink_agent.memory import SessionRecord
from swink_agent.memory.log.records import encode_line

from ..problems import Problem, invalid
from ..streams import write_in_time
from .asking import Asked, answered

if TYPE_CHECKING:
    from ..site import Site

_NO_STORE = "this server has no store of durable runs: start it with one (`SWINK_DURABLE_URL`, setting durable.url)"
_STATUSES: dict[type[AgentError], tuple[int, str]] = {
    RunNotFound: (404, "not_found"),
    RunConflict: (409, "conflict"),
    RunOver: (409, "over"),
    NotPending: (409, "not_pending"),
    StoreUnavailable: (503, "store_unavailable"),
}
_END = "end"
_LOOK, _BEAT = 1.0, 15.0
"""Seconds between two checks whether the reader has left, and between two signs of life."""


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: str = ""
    agent: str = ""
    key: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class Runs(msgspec.Struct, frozen=True):
    """Durable runs, the newest first."""

    runs: list[dict[str, Any]]


class NewRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: str
    prompt: str
    id: str | None = None
    key: str = ""
    priority: Annotated[int, Meta(ge=0, le=1000)] = 0
    metadata: dict[str, Any] = {}
    after: str | None = None


class RunAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    call: str
    choice: str
    """`approve`, `reject`, or `result` with the value of a call that runs outside."""
    reason: str = ""
    result: Any = None
    position: int | None = None
    """That of the waiting call; needed if its id occurs several times in the run."""


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


class Counted(msgspec.Struct, frozen=True):
    """Whether the request had an effect; false if another one came first."""

    counted: bool


class RunPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: str = ""


async def list_runs(asked: Asked) -> web.StreamResponse:
    wanted = asked.query
    with durable_errors():
        found = await durable_of(asked.site).runs(
            wanted.status or None, wanted.agent or None, wanted.key or None, limit=wanted.limit
        )
    return answered(Runs([msgspec.to_builtins(run) for run in found]))


async def submit(asked: Asked) -> web.StreamResponse:
    given = asked.body
    with durable_errors():
        run = await durable_of(asked.site).submit(
            given.agent,
            given.prompt,
            id=given.id,
            key=given.key,
            priority=given.priority,
            metadata=given.metadata,
            after=given.after,
        )
        info = await run.info()
    location = asked.site.path_of(asked.request, f"runs/{run.id}")
    return answered(msgspec.to_builtins(info), 201, {"location": location})


async def read(asked: Asked) -> web.StreamResponse:
    with durable_errors():
        run = await durable_of(asked.site).run(asked.name("run"))
        return answered(msgspec.to_builtins(await run.info()))


async def events(asked: Asked) -> web.StreamResponse:
    request, site = asked.request, asked.site
    given = request.headers.get("last-event-id", "").strip() or asked.query.after.strip()
    if given == _END:
        return web.Response(status=204)
    if given and not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise invalid(f"{given[:40]!r} is not a position")
    with durable_errors():
        run = await durable_of(asked.site).run(asked.name("run"))
    site.readers.refuse_if_full()
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-accel-buffering": "no"})
    records = aiter(run.events(after=int(given or 0)))
    with site.readers.counted():
        try:
            await response.prepare(request)
            await write_in_time(request, response, b"retry: 1000\n\n")
            await _follow(request, response, records)
        except ConnectionError:
            pass  # the reader has left, or does not read
        finally:
            await records.aclose()
    return response


async def _follow(request: web.Request, response: web.StreamResponse, records: AsyncGenerator[SessionRecord]) -> None:
    """Sends each record when it is written, until the run is over or the reader has left."""
    coming: asyncio.Future[SessionRecord] | None = None
    quiet = 0.0
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(records))
            done, _ = await asyncio.wait([coming], timeout=_LOOK)
            if not done:
                transport = request.transport
                if transport is None or transport.is_closing():
                    return
                quiet += _LOOK
                if quiet >= _BEAT:
                    quiet = 0.0
                    await write_in_time(request, response, b":\n\n")
                continue
            try:
                record = coming.result()
            except StopAsyncIteration:
                break
            coming, quiet = None, 0.0
            line = encode_line(record.number, record.at, record.entry).strip()
            name = str(getattr(type(record.entry).__struct_config__, "tag", None) or "record")
            await write_in_time(
                request, response, b"id: %d\nevent: %s\ndata: %s\n\n" % (record.number, name.encode(), line)
            )
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
    await write_in_time(request, response, b'id: end\nevent: end\ndata: {"type":"end"}\n\n')


async def answer(asked: Asked) -> web.StreamResponse:
    given = asked.body
    value: Any
    match given.choice:
        case "approve":
            value = Approve()
        case "reject":
            value = Reject(given.reason)
        case "result":
            value = as_result(given.result, given.call)
        case _:
            raise invalid(f"{given.choice[:40]!r} is not an answer: approve, reject or result")
    call = given.call if given.position is None else PendingCall(given.call, "", {}, position=given.position)
    with durable_errors():
        run = await durable_of(asked.site).run(asked.name("run"))
        try:
            return answered(Counted(await run.answer(call, value, by=asked.by)))
        except TypeError as error:
            raise invalid(str(error)) from None


async def cancel(asked: Asked) -> web.StreamResponse:
    with durable_errors():
        run = await durable_of(asked.site).run(asked.name("run"))
        return answered(Counted(await run.cancel(asked.body.reason)))


async def retry(asked: Asked) -> web.StreamResponse:
    with durable_errors():
        run = await durable_of(asked.site).run(asked.name("run"))
        await run.retry()
        return answered(msgspec.to_builtins(await run.info()))


def durable_of(site: Site) -> Any:
    """Returns the `Durable` that has the runs. Raises 501 if there is none."""
    durable = site.durable
    if durable is None:
        raise Problem(501, "no_durable", _NO_STORE)
    return durable


@contextmanager
def durable_errors() -> Generator[None]:
    """Turns the errors of durable runs into `Problem`."""
    try:
        yield
    except (DurableError, NotPending) as error:
        status, code = _STATUSES.get(type(error), (422, "invalid"))
        raise Problem(status, code, str(error)) from error
    except ValueError as error:
        raise invalid(str(error)) from error
