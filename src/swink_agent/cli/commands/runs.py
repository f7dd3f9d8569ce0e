"""`swink runs`: lists, shows, follows, answers, cancels, retries and removes durable runs.

Owns the commands and their words. The rows are in `screen.run_pages`, runs in `swink_agent.durable`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from swink_agent.app.errors import ApplicationError, ExitCode, UsageProblem
from swink_agent.app.runs.durable import durable_named, durable_problems, existing_at, store_option
from swink_agent.approvals.display import safe_display
from swink_agent.core.approval import PendingCall
from swink_agent.core.types import AssistantMessage

from ..screen.run_pages import fleet_rows, run_rows, runs_table
from ..screen.screen import is_live

if TYPE_CHECKING:
    from swink_agent.durable import Durable

T = TypeVar("T")
_STATUSES = click.Choice(["queued", "running", "waiting", "done", "failed", "cancelled"])
_REDRAWN = 1.0
"""Seconds between two pictures of --watch."""

_url = click.option("--url", help="The store: sqlite:///path or postgresql://… Default: the settings' durable.url.")
_app = click.option("--app", metavar="MODULE:NAME", help="A Durable of your own code, in place of --url.")
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
_id = click.argument("run_id", metavar="ID")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink runs                                      the newest runs
  swink runs list --status waiting --json
  swink runs --watch                              workers and runs, until Ctrl+C
  swink runs show order-17
  swink runs events order-17 --follow
  swink runs answer order-17 call_1 --approve --by ada
  swink runs cancel order-17 "the customer called"
  swink runs prune --days 7""",
)
@_url
@_app
@_json
@click.option("--watch", is_flag=True, help="Show workers and runs, again and again, until Ctrl+C.")
@click.pass_context
def runs(ctx: click.Context, url: str | None, app: str | None, as_json: bool, watch: bool) -> int | None:
    """List, follow, answer, cancel and retry durable runs."""
    ctx.obj = {"url": url, "app": app, "as_json": as_json}
    if ctx.invoked_subcommand is None:
        return ctx.invoke(list_runs, url=url, app=app, as_json=as_json, watch=watch)
    if watch:
        ctx.fail("--watch goes behind list: swink runs list --watch.")
    return None


def _use(ctx: click.Context, url: str | None, app: str | None, work: Callable[[Durable], Awaitable[T]]) -> T:
    """Does some work with the store that the options of the command, or of the group before it, name."""
    url, app = _given(ctx, url, app)
    if url is not None and app is not None:
        raise UsageProblem("--url and --app both name a store: give one of them")
    durable = existing_at(url) if app is None else durable_named(app, Path.cwd())

    async def worked() -> T:
        async with durable:
            return await work(durable)

    with durable_problems():
        return asyncio.run(worked())


def _given(ctx: click.Context, url: str | None, app: str | None) -> tuple[str | None, str | None]:
    """The options that name the store: those of the command, else those of the group before it."""
    before: dict[str, Any] = ctx.obj or {}
    return (url, app) if url or app else (before.get("url"), before.get("app"))


def _wants_json(ctx: click.Context, as_json: bool) -> bool:
    before: dict[str, Any] = ctx.obj or {}
    return as_json or bool(before.get("as_json"))


def _say_json(value: Any) -> None:
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


# -- looking -------------------------------------------------------------------------------------------------


@runs.command("list")
@click.option("--status", type=_STATUSES, help="Only these.")
@click.option("--agent", help="Only those of this agent.")
@click.option("--key", help="Only those with this key.")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="At most so many.")
@click.option("--watch", is_flag=True, help="Show workers and runs, again and again, until Ctrl+C.")
@_url
@_app
@_json
@click.pass_context
def list_runs(
    ctx: click.Context,
    status: Any = None,
    agent: str | None = None,
    key: str | None = None,
    limit: int = 50,
    watch: bool = False,
    url: str | None = None,
    app: str | None = None,
    as_json: bool = False,
) -> None:
    """List runs, the newest first."""
    if watch and _wants_json(ctx, as_json):
        raise UsageProblem("--watch is for people, --json for programs: give one of them")

    async def worked(durable: Durable) -> None:
        while watch:
            stats = await durable.stats()
            found = await durable.runs(status, agent, key, limit)
            picture = "\n".join([*fleet_rows(stats), "", runs_table(found)])
            click.echo(f"\x1b[H\x1b[J{picture}" if is_live(sys.stdout.isatty()) else f"{picture}\n")
            await asyncio.sleep(_REDRAWN)
        found = await durable.runs(status, agent, key, limit)
        if _wants_json(ctx, as_json):
            _say_json(found)
        elif found:
            click.echo(runs_table(found))
        else:
            click.echo(f"There is no such run in {durable.url}.", err=True)

    _use(ctx, url, app, worked)


@runs.command("show")
@_id
@_url
@_app
@_json
@click.pass_context
def show(ctx: click.Context, run_id: str, url: str | None, app: str | None, as_json: bool) -> None:
    """Show what is known of a run, and its last reply."""

    async def worked(durable: Durable) -> None:
        run = await durable.run(run_id)
        info = await run.info()
        if _wants_json(ctx, as_json):
            _say_json(info)
            return
        for row in run_rows(info, store_option(durable, _given(ctx, url, app)[1])):
            click.echo(row)
        replies = [message for message in (await run.load()).messages if isinstance(message, AssistantMessage)]
        if replies and replies[-1].text:
            click.echo(f"\n{safe_display(replies[-1].text, None)}")

    _use(ctx, url, app, worked)


@runs.command("events")
@_id
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only records behind this number.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is over.")
@_url
@_app
@_json
@click.pass_context
def events(
    ctx: click.Context, run_id: str, after: int, follow: bool, url: str | None, app: str | None, as_json: bool
) -> None:
    """Print the records of a run, one JSON line each, as in a session's file."""
    from swink_agent.memory.log.records import encode_line

    async def worked(durable: Durable) -> None:
        run = await durable.run(run_id)
        async for record in run.events(after=after, follow=follow):
            line = encode_line(record.number, record.at, record.entry).decode()
            click.echo(line.rstrip("\n"))

    _use(ctx, url, app, worked)


@runs.command("stats")
@_url
@_app
@_json
@click.pass_context
def stats(ctx: click.Context, url: str | None, app: str | None, as_json: bool) -> None:
    """Show how many runs there are, how long the oldest waits, and the workers."""
    found = _use(ctx, url, app, lambda durable: durable.stats())
    if _wants_json(ctx, as_json):
        _say_json(found)
    else:
        click.echo("\n".join(fleet_rows(found)))


# -- acting --------------------------------------------------------------------------------------------------


@runs.command("answer")
@_id
@click.argument("call_id", metavar="CALL")
@click.option("--approve", is_flag=True, help="Run the call as it is.")
@click.option("--reject", metavar="REASON", help="Do not run it; the model reads the reason.")
@click.option("--with", "changed", metavar="JSON", help="Run the call with these arguments instead.")
@click.option("--result", metavar="TEXT", help="The result of a call that is carried out elsewhere.")
@click.option("--at", type=click.IntRange(min=1), metavar="NUMBER", help="The record that asks, if ids recur.")
@click.option("--by", default="", metavar="NAME", help="Who answers; it is on record.")
@_url
@_app
@_json
@click.pass_context
def answer(
    ctx: click.Context,
    run_id: str,
    call_id: str,
    approve: bool,
    reject: str | None,
    changed: str | None,
    result: str | None,
    at: int | None,
    by: str,
    url: str | None,
    app: str | None,
    as_json: bool,
) -> int:
    """Answer a call that waits. Of two answers the first counts; exit code 1 if another came first.

    `swink runs show ID` names the calls that wait, with what to type. Some models give several calls the same id: then
    --at says which one is meant.
    """
    given = _answer(approve, reject, changed, result)
    call = call_id if at is None else PendingCall(call_id, "", {}, position=at)

    async def worked(durable: Durable) -> bool:
        return await (await durable.run(run_id)).answer(call, given, by=by)

    counts = _use(ctx, url, app, worked)
    if _wants_json(ctx, as_json):
        _say_json({"id": run_id, "call": call_id, "counts": counts})
    elif not counts:
        raise ApplicationError(f"{safe_display(call_id, 80)} was answered before; that answer counts")
    return int(ExitCode.DONE if counts else ExitCode.FAILED)


def _answer(approve: bool, reject: str | None, changed: str | None, result: str | None) -> Any:
    from swink_agent.core.approval import Approve, ApproveWith, Reject
    from swink_agent.core.tool import AgentToolResult

    if sum([approve, reject is not None, changed is not None, result is not None]) != 1:
        raise UsageProblem("give one answer: --approve, --reject REASON, --with JSON or --result TEXT")
    if reject is not None:
        return Reject(reject)
    if result is not None:
        return AgentToolResult.text(result)
    if changed is None:
        return Approve()
    try:
        arguments: object = json.loads(changed)
    except ValueError as error:
        raise UsageProblem(f"--with is not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise UsageProblem("--with must be a JSON object: the call's arguments")
    return ApproveWith(arguments)  # pyright: ignore[reportUnknownArgumentType]


@runs.command("cancel")
@_id
@click.argument("reason", default="")
@_url
@_app
@_json
@click.pass_context
def cancel(ctx: click.Context, run_id: str, reason: str, url: str | None, app: str | None, as_json: bool) -> int:
    """Cancel a run, for good. Exit code 1 if it was over."""

    async def worked(durable: Durable) -> bool:
        return await (await durable.run(run_id)).cancel(reason)

    is_cancelled = _use(ctx, url, app, worked)
    if _wants_json(ctx, as_json):
        _say_json({"id": run_id, "cancelled": is_cancelled})
    elif not is_cancelled:
        raise ApplicationError(f"the run {safe_display(run_id, 128)} was over before")
    return int(ExitCode.DONE if is_cancelled else ExitCode.FAILED)


@runs.command("retry")
@_id
@_url
@_app
@_json
@click.pass_context
def retry(ctx: click.Context, run_id: str, url: str | None, app: str | None, as_json: bool) -> None:
    """Put a run that failed back where it stopped."""

    async def worked(durable: Durable) -> Any:
        run = await durable.run(run_id)
        await run.retry()
        return await run.info()

    info = _use(ctx, url, app, worked)
    if _wants_json(ctx, as_json):
        _say_json(info)


@runs.command("prune")
@click.option("--days", type=click.FloatRange(min=0), required=True, help="Those that have been over for so long.")
@_url
@_app
@_json
@click.pass_context
def prune(ctx: click.Context, days: float, url: str | None, app: str | None, as_json: bool) -> None:
    """Delete runs that are over."""
    count = _use(ctx, url, app, lambda durable: durable.prune(days))
    if _wants_json(ctx, as_json):
        _say_json({"deleted": count})
    else:
        click.echo(f"{count:,} runs were deleted.")
