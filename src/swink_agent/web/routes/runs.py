"""Routes about durable runs: their table, their records as they are written, answers, cancelling and trying again."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from swink_agent.core.approval import Approve, Reject
from swink_agent.core.errors import AgentError
from swink_agent.memory import SessionRecord
from swink_agent.memory.log.records import encode_line

from ..problems import Problem, invalid, not_found
from .asking import Asked, answered
from .live import too_many

_NO_STORE = "this server has no store of durable runs: start it with one (`SWINK_DURABLE_URL`, setting durable.url)"
_STATUSES = {
    "RunNotFound": (404, "not_found"),
    "RunConflict": (409, "conflict"),
    "RunOver": (409, "over"),
    "NotPending": (409, "not_pending"),
    "StoreUnavailable": (503, "store_unavailable"),
}
_END = "end"


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


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: str = ""


class Counted(msgspec.Struct, frozen=True):
    """Whether it had an effect: false if another was first."""

    counted: bool


class RunPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: str = ""


async def list_runs(asked: Asked) -> web.StreamResponse:
    wanted = asked.query
    with _Errors():
        found = await _durable(asked).runs(
            wanted.status or None, wanted.agent or None, wanted.key or None, limit=wanted.limit
        )
    return answered(Runs([msgspec.to_builtins(run) for run in found]))


async def submit(asked: Asked) -> web.StreamResponse:
    given = asked.body
    with _Errors():
        run = await _durable(asked).submit(
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
    with _Errors():
        run = await _durable(asked).run(asked.name("run"))
        return answered(msgspec.to_builtins(await run.info()))


async def events(asked: Asked) -> web.StreamResponse:
    request, site = asked.request, asked.site
    given = request.headers.get("last-event-id", "").strip() or asked.query.after.strip()
    if given == _END:
        return web.Response(status=204)
    if given and not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise invalid(f"{given[:40]!r} is not a position")
    with _Errors():
        run = await _durable(asked).run(asked.name("run"))
    if site.readers.is_full:
        raise too_many()
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-accel-buffering": "no"})
    with site.readers.counted():
        await response.prepare(request)
        await response.write(b"retry: 1000\n\n")
        record: SessionRecord
        async for record in run.events(after=int(given or 0)):
            line = encode_line(record.number, record.at, record.entry).strip()
            name = str(getattr(type(record.entry).__struct_config__, "tag", None) or "record")
            await response.write(b"id: %d\nevent: %s\ndata: %s\n\n" % (record.number, name.encode(), line))
        await response.write(b'id: end\nevent: end\ndata: {"type":"end"}\n\n')
    return response


async def answer(asked: Asked) -> web.StreamResponse:
    given = asked.body
    value: Any
    match given.choice:
        case "approve":
            value = Approve()
        case "reject":
            value = Reject(given.reason)
        case "result":
            value = given.result
        case _:
            raise invalid(f"{given.choice[:40]!r} is not an answer: approve, reject or result")
    with _Errors():
        run = await _durable(asked).run(asked.name("run"))
        try:
            return answered(Counted(await run.answer(given.call, value, by=asked.by)))
        except TypeError as error:
            raise invalid(str(error)) from None


async def cancel(asked: Asked) -> web.StreamResponse:
    with _Errors():
        run = await _durable(asked).run(asked.name("run"))
        return answered(Counted(await run.cancel(asked.body.reason)))


async def retry(asked: Asked) -> web.StreamResponse:
    with _Errors():
        run = await _durable(asked).run(asked.name("run"))
        await run.retry()
        return answered(msgspec.to_builtins(await run.info()))


def _durable(asked: Asked) -> Any:
    durable = asked.site.durable
    if durable is None:
        raise Problem(501, "no_durable", _NO_STORE)
    return durable


class _Errors:
    """Turns the errors of durable runs into answers. They are known by name: the extra may not be installed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, AgentError):
            status, code = _STATUSES.get(type(error).__name__, (422, "invalid"))
            raise (not_found(str(error)) if status == 404 else Problem(status, code, str(error))) from error
        if isinstance(error, ValueError):
            raise invalid(str(error)) from error
