"""`swink mcp`: lists and tests the MCP servers of the settings, and serves the agent's own tools."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import click

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.agent.servers import server_of
from swink_agent.app.errors import ApplicationError, ExitCode, NoModel, UsageProblem
from swink_agent.app.runs.sessions import WantedSession
from swink_agent.app.settings.mcp_servers import ServerSettings
from swink_agent.approvals.display import safe_display
from swink_agent.core.types import ModelSpec
from swink_agent.mcp import McpError

from ..process.groups import Group, offered, picks
from ..process.interrupts import ended_by_signal
from ..prompt.reporter import Reporter
from ..root import options_of_prompt
from ..screen.screen import Screen, say_json, table


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink mcp list                      the servers in the settings; starts none
  swink mcp test time                 starts one, lists its tools, ends it
  swink mcp serve --approve all       serves the agent's tools over stdin and stdout""",
)
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """List and test MCP servers; serve the agent's tools as one.

    A server is a table [mcp.servers.NAME] in the settings, with command and args, or url and headers.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_servers)


_CLOSING = 3.0
"""Seconds that hooks have to end after the last call."""


@options_of_prompt("cwd")
@mcp.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def list_servers(as_json: bool = False, cwd: str | None = None) -> None:
    """List the servers. Starts nothing."""
    opening = Opening(OpeningOptions(cwd=cwd))
    redact = opening.credentials.redactor().redact
    found, _ = opening.settings.servers()
    rows = [
        {
            "name": item.name,
            "transport": item.transport,
            "target": redact(item.target),
            "source": item.source,
            "enabled": item.enabled,
            "problem": item.problem or None,
        }
        for item in found
    ]
    if as_json:
        say_json(rows)
        return
    if not rows:
        click.echo("There is no MCP server: [mcp.servers.NAME] in the settings adds one.", err=True)
        return
    cells = [
        [item.name, item.transport, redact(item.target), item.problem or ("" if item.enabled else "disabled")]
        for item in found
    ]
    click.echo(table([["NAME", "TRANSPORT", "TARGET", ""], *cells], whole=[0]))


@options_of_prompt("cwd")
@mcp.command("test")
@click.argument("name", shell_complete=offered("mcp_servers"))
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def test_server(name: str, as_json: bool, cwd: str | None) -> int:
    """Start one server, list its tools and end it. Exit code 1 if it fails."""
    opening = Opening(OpeningOptions(cwd=cwd))
    found, secrets = opening.settings.servers()
    chosen = next((item for item in found if item.name == name), None)
    if chosen is None:
        from swink_agent.core.texts.likeness import which_name

        hint = which_name(name, [item.name for item in found])
        raise UsageProblem(f"no MCP server is called {safe_display(name, 40)!r}; {hint}")
    if chosen.problem:
        raise ApplicationError(f"the MCP server {name} cannot be used ({chosen.source}): {chosen.problem}")
    redactor = opening.credentials.redactor()
    for secret in secrets:
        redactor.register(secret)
    tools, warnings = asyncio.run(_tried(chosen, opening))
    if as_json:
        click.echo(redactor.redact(json.dumps({"tools": tools, "warnings": warnings}, indent=2)))
        return int(ExitCode.DONE)
    rows = [[tool["name"], tool["description"].partition("\n")[0]] for tool in tools]
    click.echo(redactor.redact(table(rows, whole=[0])) if rows else "It offers no tools.")
    for warning in warnings:
        click.echo(f"warning: {safe_display(redactor.redact(warning), None)}", err=True)
    return int(ExitCode.DONE)


async def _tried(chosen: ServerSettings, opening: Opening) -> tuple[list[dict[str, str]], list[str]]:
    try:
        async with server_of(chosen, folder=opening.folder) as server:
            offered = [tool for tool in server.tools() if chosen.tools is None or tool.true_name in chosen.tools]
            return [{"name": tool.name, "description": tool.description} for tool in offered], list(server.warnings)
    except McpError as error:
        raise ApplicationError(str(error)) from error


@options_of_prompt("allow", "deny", "tools", "cwd")
@mcp.command("serve")
@picks("--approve", "none ask smart all", "Which calls may run. Calls that would need a question are refused.")
def serve(
    approve: str | None, allow: tuple[str, ...], deny: tuple[str, ...], tools: str | None, cwd: str | None
) -> int:
    """Offer the agent's tools, and the agent itself, to an MCP client over stdin and stdout.

    Runs until stdin ends. You are never asked about a call: calls that the rules do not allow are refused.
    """
    flags: dict[str, Any] = {"approve": approve, "allow": list(allow) or None, "deny": list(deny) or None}
    options = OpeningOptions(flags={**flags, "tools": tools}, cwd=cwd, uses_servers=False)
    return asyncio.run(_serve(Opening(options)))


async def _serve(opening: Opening) -> int:
    from swink_agent.app.agent.served import ServedAgent
    from swink_agent.mcp import serve_stdio

    session = opening.session(WantedSession(is_kept=False))
    redactor = opening.redactor(session)
    reporter = Reporter(Screen(sys.stderr), redactor)
    reporter.hear_log()
    has_model = True
    try:
        made = await asyncio.to_thread(opening.agent, session, redactor)
    except NoModel as error:
        has_model = False
        reporter.warn(f"the tool agent cannot answer: {error}")
        made = opening.agent(session, redactor, model=ModelSpec("none", "none"), stream_fn=_no_model)
    for warning in made.warnings:
        reporter.warn(warning)
    ended = ended_by_signal()
    with made:
        tools = [tool for tool in made.agent.tools if tool.name != "task" or has_model]
        served = made.agent.replaced(tools=[*tools, ServedAgent(opening)])
        watch = None if made.hooks is None else made.hooks.watch_call
        serving = asyncio.create_task(serve_stdio(served, redactor=redactor, watch=watch))
        stopping = asyncio.create_task(ended.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        await made.finish(_CLOSING)
    if (problem := await asyncio.to_thread(opening.telemetry.close)) is not None:
        reporter.warn(problem)
    if not serving.done():
        # A thread waits for the next line of stdin, and only that line would end it.
        os._exit(int(ExitCode.INTERRUPTED))
    stopping.cancel()
    serving.result()
    return int(ExitCode.DONE)


def _no_model(*_: Any) -> Any:
    raise NoModel("there is no model")
