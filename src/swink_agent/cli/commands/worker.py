"""`swink worker` and `swink submit`: carry out and queue durable runs of an application's agents."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.runs.durable import durable_named, durable_problems, store_option
from swink_agent.app.runs.telling import number_of
from swink_agent.approvals.display import safe_display
from swink_agent.core.secrets.redaction import Redactor

from ..process.groups import Number
from ..prompt.reporter import Reporter
from ..screen.run_pages import pending_rows
from ..screen.screen import Screen, say_json, write_answer

if TYPE_CHECKING:
    from swink_agent.durable import Durable, RunInfo

_APP = click.argument("app", metavar="MODULE:NAME")


@click.command(
    epilog="""\b
Examples:
  swink worker app:durable
  swink worker path/to/app.py:durable --slots 32

\b
On SIGTERM or Ctrl+C each run ends its turn and is queued again.
A second signal ends the worker at once.""",
)
@_APP
@click.option("--slots", type=Number(1), default=8, show_default=True, help="The most runs at once.")
@click.option("--poll", type=float, default=0.5, show_default=True, help="Seconds between two checks for runs.")
@click.option(
    "--lease", type=float, default=30, show_default=True, help="Seconds after which others take over if this one hangs."
)
@click.option("--drain", type=float, default=30, show_default=True, help="Seconds for turns to end after a signal.")
def worker(app: str, slots: int, poll: float, lease: float, drain: float) -> int:
    """Carry out durable runs of an application's agents.

    MODULE:NAME is a Durable in your own code. The worker carries out runs of the agents that are registered there.
    Several workers, on one machine or many, share the runs of a store.
    """
    durable = durable_named(app, Path.cwd())
    if not durable.agents:
        raise UsageProblem(f"{safe_display(app, 80)} has no agents: register at least one with @durable.agent")
    Reporter(Screen(sys.stderr), Redactor()).hear_log()
    with durable_problems():
        asyncio.run(_work(durable, slots, poll, lease, drain))
    return int(ExitCode.DONE)


async def _work(durable: Durable, slots: int, poll: float, lease: float, drain: float) -> None:
    loop = asyncio.get_running_loop()
    is_told = is_hasty = False
    made = durable.worker(slots=slots, poll=poll, lease=lease, drain=drain)

    def abandon() -> None:
        nonlocal is_hasty
        is_hasty = True
        made.abandon()

    def stop() -> None:
        nonlocal is_told
        if is_told:
            abandon()
            return
        is_told = True
        made.drain()
        loop.call_later(drain, abandon)
        if made.running:
            runs = number_of(made.running, "run")
            click.echo(f"{made.id} waits for {runs} to end the turn; a second signal ends the worker at once", err=True)

    async with made:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        click.echo(f"{made.id} serves {', '.join(made.agents)}", err=True)
        await made.wait()
    await durable.close()
    if is_hasty:
        # An abandoned tool may still run in a thread, and Python would wait for it.
        sys.stderr.flush()
        os._exit(int(ExitCode.DONE))


@click.command(
    epilog="""\b
Examples:
  swink submit app:durable support "Refund order 17" --id order-17
  swink submit app:durable support - --wait < prompt.txt

\b
Exit codes with --wait: 0 done, 1 failed or cancelled, 4 not over in time, 5 waits for an answer.""",
)
@_APP
@click.argument("agent")
@click.argument("prompt")
@click.option("--id", "run_id", metavar="ID", help="The run's id: the same id is the same run. Default: a new one.")
@click.option("--key", default="", help="The key that limit_per_key counts, such as a customer.")
@click.option("--priority", type=int, default=0, show_default=True, help="0 comes first, 1000 last.")
@click.option("--after", metavar="ID", help="Continue the history of this run, which must be over.")
@click.option("--wait", is_flag=True, help="Wait until the run is over or waits, and print its answer.")
@click.option(
    "--timeout", type=Number(0, is_whole=False), metavar="SECONDS", help="Time limit of the wait. The run continues."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def submit(
    app: str,
    agent: str,
    prompt: str,
    run_id: str | None,
    key: str,
    priority: int,
    after: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Queue a durable run of an application's agent.

    Prints the run's id. MODULE:NAME is a Durable in your own code. PROMPT can be -, for stdin.
    """
    if timeout is not None and not wait:
        raise UsageProblem("--timeout needs --wait: without it the command does not wait")
    durable = durable_named(app, Path.cwd())
    text = sys.stdin.read() if prompt == "-" else prompt
    store = store_option(durable, app)

    async def submitted() -> int:
        async with durable:
            run = await durable.submit(agent, text, id=run_id, key=key, priority=priority, after=after)
            info = await run.info()
            if not wait:
                if as_json:
                    say_json(info)
                else:
                    click.echo(info.id)
                return int(ExitCode.DONE)
            click.echo(f"{run.id} is {info.status}", err=True)
            try:
                result = await run.result(timeout)
            except TimeoutError:
                info = await run.info()
                if as_json:
                    say_json(info)
                words = f"{run.id} is {info.status} after {timeout:g} s, and continues: swink runs show {run.id}{store}"
                click.echo(words, err=True)
                return int(ExitCode.LIMIT)
            return _told(await run.info(), result.text, store, as_json)

    with durable_problems():
        return asyncio.run(submitted())


def _told(info: RunInfo, text: str, store: str, as_json: bool) -> int:
    """Prints how the awaited run ended; returns the exit code."""
    if as_json:
        say_json({**msgspec.to_builtins(info), "text": text})
    elif info.status == "done":
        write_answer(text if text.endswith("\n") else f"{text}\n")
    if info.status == "waiting":
        for row in pending_rows(info, store):
            click.echo(row, err=True)
        return int(ExitCode.WAITING)
    if info.status != "done":
        click.echo(safe_display(f"the run {info.id} {info.status}: {info.error}", None), err=True)
    return int(ExitCode.DONE if info.status == "done" else ExitCode.FAILED)
