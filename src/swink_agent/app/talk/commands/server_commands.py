"""`/mcp`: shows the MCP servers with their states and tools, and restarts one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.telling import number_of
from swink_agent.core.machine.extras import MissingExtra
from swink_agent.mcp import McpError
from swink_agent.rendering.escaping import safe_line

from ..front import PickItem, PreviewLine

if TYPE_CHECKING:
    from swink_agent.app.agent.servers import McpServers, ServerStatus

    from ..conversation import Conversation

_CHOICES = (("restart", "restart it"), ("no", "leave it"))
_STATES = {
    "waiting": "starts with the next prompt",
    "starting": "is starting",
    "ended": "ended; the next call starts it",
}
_SHOWN_TOOLS = 60


async def show_servers(conversation: Conversation, rest: str) -> None:
    """`/mcp [restart NAME]`: lists the servers, with their tools beside them, and restarts one."""
    opened = conversation.opened
    servers = None if opened is None else opened.made.servers
    if opened is None or servers is None:
        conversation.notice("no MCP server is in use: [mcp.servers.NAME] in the settings names one")
        return
    word, _, name = rest.partition(" ")
    if word and word != "restart":
        raise UsageProblem("/mcp shows the servers, and /mcp restart NAME restarts one")
    if not word:
        found = {item.name: item for item in servers.statuses()}
        items = [PickItem(item.name, item.name, _summary(item)) for item in found.values()]

        async def preview(key: str) -> Sequence[PreviewLine]:
            return _lines(opened.redactor.redact_value(found[key]))

        picked = await conversation.front.pick("MCP servers", items, preview)
        if picked is None:
            return
        if await conversation.front.confirm(f"{picked}: {_summary(found[picked])}", _CHOICES, "no") != "restart":
            return
        name = picked
    await _restart(conversation, servers, name.strip())


async def _restart(conversation: Conversation, servers: McpServers, name: str) -> None:
    try:
        await servers.restart(name)
    except (McpError, MissingExtra) as error:
        conversation.notice(str(error), "error")
        return
    status = next(item for item in servers.statuses() if item.name == name)
    conversation.notice(f"the MCP server {name} was restarted: {_summary(status)}")


def _summary(item: ServerStatus) -> str:
    tools = f", {number_of(len(item.tools), 'tool')}" if item.state == "running" else ""
    problem = f": {safe_line(item.problem.partition(chr(10))[0], 120)}" if item.problem else ""
    return f"{_STATES.get(item.state, item.state)}{tools}{problem}"


def _lines(item: ServerStatus) -> list[PreviewLine]:
    """The preview of a server in the list."""
    lines = [PreviewLine(safe_line(item.target, 400), is_dim=True)]
    lines += [PreviewLine(safe_line(line, 400)) for line in item.problem.splitlines()]
    lines += [PreviewLine(f"! {safe_line(warning, 400)}", is_dim=True) for warning in item.warnings]
    for tool in item.tools[:_SHOWN_TOOLS]:
        lines.append(PreviewLine(f"{tool.name}  {safe_line(tool.description.partition(chr(10))[0], 200)}"))
    if len(item.tools) > _SHOWN_TOOLS:
        lines.append(PreviewLine(f"… and {len(item.tools) - _SHOWN_TOOLS} more", is_dim=True))
    return lines
