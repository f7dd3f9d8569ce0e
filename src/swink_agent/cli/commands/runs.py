"""`swink runs`: lists, shows, follows, answers, cancels, retries and removes durable runs.

The rows are formatted in `screen.run_pages`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from swink_agent.app.errors import ApplicationError, ExitCode, UsageProblem
from swink_agent.app.runs.durable import durable_named, durable_problems, existing_at, store_option
from swink_agent.app.runs.telling import number_of
from swink_agent.approvals.display import safe_display
from swink_agent.core.approval import Approve, ApproveWith, PendingCall, Reject
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AssistantMessage

from ..process.groups import Group, Number
from ..screen.run_pages import fleet_rows, run_rows, runs_table
from ..screen.screen import confirm, is_live, say_json

if TYPE_CHECKING:
    from swink_agent.durable import Durable

T = TypeVar("T")
_STATUSES = click.Choice(["queued", "running", "waiting", "done", "failed", "cancelled"])
_REDRAWN = 1.0
"""Seconds between two updates of --watch."""

_id = click.argument("run_id", metavar="ID")


class _Store:
    """The store that the options of the command, else of its group, name; and whether to print JSON."""

    def __init__(self, before: _Store | None, url: str | None, app: str | None, as_json: bool) -> None:
        if before is not None and not url and not app:
            url, app = before.url, before.app
        self.url: str | None = url
        self.app: str | None = app
        self.wants_json: bool = as_json or (before is not None and before.wants_json)

    def use(self, work: Callable[[Durable], Awaitable[T]]) -> T:
        """Opens the store, does the work with it, and closes it."""
        if self.url is not None and self.app is not None:
            raise UsageProblem("--url and --app both name a store: leave one out")
        durable = existing_at(self.url) if self.app is None else durable_named(self.app, Path.cwd())

        async def worked() -> T:
            async with durable:
                return await work(durable)

        with durable_problems():
            return asyncio.run(worked())

    def said(self, value: Any) -> bool:
        """Prints the value if JSON is wanted, and returns whether it is."""
        if self.wants_json:
            say_json(value)
        return self.wants_json


def _with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that name the store, as one `_Store`."""

    @click.option(
        "--url", help="The store: sqlite:///path, or postgresql://… without a password. Default: durable.url."
    )
    @click.option("--app", metavar="MODULE:NAME", help="A Durable in your own code, instead of --url.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.pass_context
    @wraps(command)
    def with_store(ctx: click.Context, url: str | None, app: str | None, as_json: bool, **options: Any) -> Any:
        ctx.obj = _Store(ctx.obj, url, app, as_json)
        return command(ctx.obj, **options)

    return with_store


@click.group(
    cls=Group,
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
@click.option("--watch", is_flag=True, help="Show workers and runs, updated until Ctrl+C.")
@_with_store
@click.pass_context
def runs(ctx: click.Context, store: _Store, watch: bool) -> None:
    """List, follow, answer, cancel and retry durable runs."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_runs, watch=watch)
    elif watch:
        ctx.fail("--watch goes after list: swink runs list --watch.")


# -- looking -------------------------------------------------------------------------------------------------


@runs.command("list")
@click.option("--status", type=_STATUSES, help="Only runs with this status.")
@click.option("--agent", help="Only runs of this agent.")
@click.option("--key", help="Only runs with this key.")
@click.option("--limit", type=Number(0), default=50, show_default=True, help="The most runs to list.")
@click.option("--watch", is_flag=True, help="Show workers and runs, updated until Ctrl+C.")
@_with_store
def list_runs(store: _Store, status: Any, agent: str | None, key: str | None, limit: int, watch: bool) -> None:
    """List runs, the newest first."""
    if watch and store.wants_json:
        raise UsageProblem("--watch is for people, --json for programs: leave one out")

    async def worked(durable: Durable) -> None:
        while watch:
            stats = await durable.stats()
            found = await durable.runs(status, agent, key, limit)
            picture = "\n".join([*fleet_rows(stats), "", runs_table(found)])
            click.echo(f"\x1b[H\x1b[J{picture}" if is_live(sys.stdout.isatty()) else f"{picture}\n")
            await asyncio.sleep(_REDRAWN)
        found = await durable.runs(status, agent, key, limit)
        if store.said(found):
            return
        if found:
            click.echo(runs_table(found))
        else:
            click.echo(f"There is no such run in {durable.url}.", err=True)

    store.use(worked)


@runs.command("show")
@_id
@_with_store
def show(store: _Store, run_id: str) -> None:
    """Show the facts about a run, and its last reply."""

    async def worked(durable: Durable) -> None:
        run = await durable.run(run_id)
        info = await run.info()
        if store.said(info):
            return
        for row in run_rows(info, store_option(durable, store.app)):
            click.echo(row)
        replies = [message for message in (await run.load()).messages if isinstance(message, AssistantMessage)]
        if replies and replies[-1].text:
            click.echo(f"\n{safe_display(replies[-1].text, None)}")

    store.use(worked)


@runs.command("events")
@_id
@click.option("--after", type=Number(0), default=0, help="Only records after this number.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run is over.")
@_with_store
def events(store: _Store, run_id: str, after: int, follow: bool) -> None:
    """Print the records of a run, one JSON line each, as in a session's file."""
    from swink_agent.memory.log.records import encode_line

    async def worked(durable: Durable) -> None:
        run = await durable.run(run_id)
        async for record in run.events(after=after, follow=follow):
            line = encode_line(record.number, record.at, record.entry).decode()
            click.echo(line.rstrip("\n"))

    store.use(worked)


@runs.command("stats")
@_with_store
def stats(store: _Store) -> None:
    """Show the number of runs, how long the oldest waits, and the workers."""
    found = store.use(lambda durable: durable.stats())
    if not store.said(found):
        click.echo("\n".join(fleet_rows(found)))


# -- acting --------------------------------------------------------------------------------------------------


@runs.command("answer")
@_id
@click.argument("call_id", metavar="CALL")
@click.option("--approve", is_flag=True, help="Run the call as it is.")
@click.option("--reject", metavar="REASON", help="Do not run it; the model reads the reason.")
@click.option("--with", "changed", metavar="JSON", help="Run the call with these arguments instead.")
@click.option("--result", metavar="TEXT", help="The result of a call that is carried out elsewhere.")
@click.option("--at", type=Number(1), metavar="NUMBER", help="Number of the asking record, if ids recur.")
@click.option("--by", default="", metavar="NAME", help="Your name, which is recorded.")
@_with_store
def answer(store: _Store, run_id: str, call_id: str, at: int | None, by: str, **answers: Any) -> int:
    """Answer a call that waits. Only the first answer counts; exit code 1 if there was one before.

    `swink runs show ID` lists the calls that wait, with the command to type. Some models give several calls the same
    id: then --at chooses one.
    """
    given = _answer(**answers)
    call = call_id if at is None else PendingCall(call_id, "", {}, position=at)

    async def worked(durable: Durable) -> bool:
        return await (await durable.run(run_id)).answer(call, given, by=by)

    counts = store.use(worked)
    if not store.said({"id": run_id, "call": call_id, "counts": counts}) and not counts:
        raise ApplicationError(f"{safe_display(call_id, 80)} was already answered; the first answer counts")
    return int(ExitCode.DONE if counts else ExitCode.FAILED)


def _answer(approve: bool, reject: str | None, changed: str | None, result: str | None) -> Any:
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
@_with_store
def cancel(store: _Store, run_id: str, reason: str) -> int:
    """Cancel a run. It cannot be retried. Exit code 1 if it was already over."""

    async def worked(durable: Durable) -> bool:
        return await (await durable.run(run_id)).cancel(reason)

    is_cancelled = store.use(worked)
    if not store.said({"id": run_id, "cancelled": is_cancelled}) and not is_cancelled:
        raise ApplicationError(f"the run {safe_display(run_id, 128)} was already over")
    return int(ExitCode.DONE if is_cancelled else ExitCode.FAILED)


@runs.command("retry")
@_id
@_with_store
def retry(store: _Store, run_id: str) -> None:
    """Queue a failed run again, to continue where it stopped."""

    async def worked(durable: Durable) -> Any:
        run = await durable.run(run_id)
        await run.retry()
        return await run.info()

    store.said(store.use(worked))


@runs.command("prune")
@click.option(
    "--days", type=Number(0, is_whole=False), required=True, help="Runs that ended at least this many days ago."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_with_store
def prune(store: _Store, days: float, yes: bool) -> None:
    """Delete runs that are over. Asks at a terminal."""
    if not yes and not store.wants_json and sys.stdin.isatty():
        confirm(f"Delete all runs that ended at least {days:g} days ago?", "delete them")
    count = store.use(lambda durable: durable.prune(days))
    if not store.said({"deleted": count}):
        click.echo(f"{number_of(count, 'run')} {'was' if count == 1 else 'were'} deleted.")
