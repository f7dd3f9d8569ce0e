"""Routes about evaluations: runs, reports, cases with their conversations, and the comparison of two."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from swink_agent.core.encoding.codec import encode_message
from swink_agent.evals import EvalRun, EvalStore, EvalStoreError
from swink_agent.evals.runs.comparing import Comparison
from swink_agent.evals.types import CaseResult, RunInfo

from ..problems import Problem, not_found
from .asking import Asked, answered, read_format

if TYPE_CHECKING:
    from ..site import Site

_FORMATS = {
    "console": ("text/plain", "txt"),
    "markdown": ("text/markdown", "md"),
    "json": ("application/json", "json"),
    "junit": ("application/xml", "xml"),
    "html": ("text/html", "html"),
}


class EvalRuns(msgspec.Struct, frozen=True):
    """Runs of evaluations, the newest first."""

    runs: list[RunInfo]


class ReportFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str = "markdown"


class Two(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    before: str
    after: str


async def list_runs(asked: Asked) -> web.StreamResponse:
    runs = await asyncio.to_thread(evals_of(asked.site).list)
    return answered(EvalRuns([msgspec.structs.replace(run, path="") for run in runs]))


async def read(asked: Asked) -> web.StreamResponse:
    run = await loaded(asked.site, asked.name("run"))
    document = await asyncio.to_thread(_document, run)
    return answered({**document.pop("run"), "summary": document["summary"], "results": document["results"]})


async def report(asked: Asked) -> web.StreamResponse:
    name = asked.query.format
    media_type, ending = read_format(name, _FORMATS)
    run = await loaded(asked.site, asked.name("run"))
    from swink_agent.evals import report as written

    text = await asyncio.to_thread(written, run, name)
    headers = {"content-disposition": f'attachment; filename="{run.id}.{ending}"'} if name == "html" else {}
    return web.Response(text=text, content_type=media_type, charset="utf-8", headers=headers)


async def case(asked: Asked) -> web.StreamResponse:
    wanted = asked.name("case")
    run, result = await loaded_case(asked.site, asked.name("run"), wanted)

    def read_case() -> dict[str, Any]:
        from swink_agent.evals.reports.words import invocation_of

        found = next(each for each in _document(run)["results"] if each["case_id"] == wanted)
        for attempt, shown in zip(result.attempts, found["attempts"], strict=True):
            invocation, _ = invocation_of(attempt)
            shown["messages"] = [msgspec.Raw(encode_message(message)) for message in invocation.messages]
        return found

    return answered(await asyncio.to_thread(read_case))


async def compare(asked: Asked) -> web.StreamResponse:
    before, after = await loaded(asked.site, asked.query.before), await loaded(asked.site, asked.query.after)
    from swink_agent.evals import compare as compared

    found: Comparison = await asyncio.to_thread(compared, before, after)
    return answered(found)


def evals_of(site: Site) -> EvalStore:
    """Returns the store of evaluations. Raises 501 if there is none."""
    store = site.evals
    if store is None:
        raise Problem(501, "no_evals", "this server has no evaluations")
    return store


async def loaded(site: Site, run_id: str) -> EvalRun:
    """Returns the run with this id, which is never used as a file path."""
    store = evals_of(site)

    def load() -> EvalRun:
        info = next((info for info in store.list() if info.id == run_id), None)
        if info is None:
            raise not_found(f"there is no evaluation {run_id[:60]!r}")
        try:
            return store.load(info)
        except EvalStoreError as error:
            raise Problem(422, "damaged", str(error)) from None

    return await asyncio.to_thread(load)


async def loaded_case(site: Site, run_id: str, case_id: str) -> tuple[EvalRun, CaseResult]:
    """Returns the run with this id, and its result of this case."""
    run = await loaded(site, run_id)
    result = next((each for each in run.results if each.case_id == case_id), None)
    if result is None:
        raise not_found(f"the run {run.id} has no case {case_id[:60]!r}")
    return run, result


def _document(run: EvalRun) -> dict[str, Any]:
    from swink_agent.evals import report as written

    return msgspec.json.decode(written(run, "json"))
