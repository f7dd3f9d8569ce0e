"""The MCP servers of the settings: started together when a run first needs tools, ended with the agent.

If a server fails, the log gets a warning, which every front end shows, and the run continues without that server.
Starting and stopping a single server is in `mcp.server`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from swink_agent.core.texts.likeness import which_name
from swink_agent.core.tool import AgentTool
from swink_agent.core.values.value import Value
from swink_agent.mcp import McpError, McpServer, McpTool

from ..errors import UsageProblem
from ..settings.mcp_servers import ServerSettings

log = logging.getLogger("swink_agent.mcp")


class ServerStatus(Value, frozen=True):
    """One server, to be shown."""

    name: str
    state: str
    """disabled, unusable, waiting (for the first run), or a state of `McpServer`."""
    target: str
    problem: str = ""
    tools: tuple[McpTool, ...] = ()
    warnings: tuple[str, ...] = ()


def server_of(settings: ServerSettings, *, folder: Path, hidden: Sequence[str] = ()) -> McpServer:
    """The server that the settings describe, for an agent in a folder. Nothing starts."""
    names = ("name", "start_timeout", "timeout", "trust_annotations")
    common: dict[str, Any] = {name: getattr(settings, name) for name in names}
    if settings.url:
        return McpServer.http(settings.url, headers=settings.headers, **common)
    return McpServer.stdio(
        settings.command,
        *settings.args,
        env=settings.env,
        cwd=folder if settings.cwd is None else folder / Path(settings.cwd).expanduser(),
        sandbox=settings.sandbox,
        network=settings.network,
        write=settings.write,
        hidden=hidden,
        **common,
    )


class McpServers:
    """The servers of one conversation. All of its methods but `close_soon` belong to one event loop."""

    def __init__(self, settings: Sequence[ServerSettings], *, folder: Path, hidden: Sequence[str] = ()) -> None:
        self.settings = tuple(settings)
        usable = [item for item in settings if item.enabled and not item.problem]
        self._servers = {item.name: server_of(item, folder=folder, hidden=hidden) for item in usable}
        self._wanted = {item.name: item.tools for item in usable}
        self._opening: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: set[str] = set()
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self.settings)

    async def tools(self) -> list[McpTool]:
        """The current tools of all running servers. Starts the servers if they were not started before."""
        if self._is_closed:
            return []
        # An abort of the run does not abort the start, which the next run then finds done.
        await asyncio.shield(self.begin())
        await asyncio.gather(*[server.settled() for server in self._servers.values()])
        found: dict[str, McpTool] = {}
        for tool in [tool for name in self._servers for tool in self._tools_of(name)]:
            is_first = found.setdefault(tool.name, tool) is tool
            if not is_first and (told := f"{tool.server} {tool.name}") not in self._told:
                self._told.add(told)
                why = f"because one of another server is called {tool.name} too"
                log.warning("MCP server %s: its tool %s is left out, %s", tool.server, tool.label, why)
        return list(found.values())

    def tools_beside(self, own: Sequence[AgentTool], is_denied: Callable[[str], bool]) -> ToolsWithServers:
        return ToolsWithServers(own, self, is_denied)

    def begin(self) -> asyncio.Task[None]:
        """Starts all servers at once, unless they were started before. The task ends when each runs or has failed."""
        if self._opening is None:
            self._loop = asyncio.get_running_loop()
            self._opening = self._loop.create_task(self._open_all())
        return self._opening

    async def restart(self, name: str) -> None:
        """Restarts one server. Raises `McpError`, `MissingExtra`, or `UsageProblem` for an unknown name."""
        server = self._servers.get(name)
        if server is None:
            raise UsageProblem(f"no MCP server is called {name[:40]!r}; {which_name(name, self._servers)}")
        await asyncio.shield(self.begin())
        await server.restart()

    def statuses(self) -> list[ServerStatus]:
        """Every server of the settings, used or not."""
        return [self._status(item) for item in self.settings]

    async def close(self) -> None:
        """Ends every server. Idempotent."""
        self._is_closed = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await asyncio.gather(*[server.close() for server in self._servers.values()])

    def close_soon(self) -> None:
        """Ends every server, without waiting. Any thread, and a signal handler, may call it."""
        loop = self._loop
        if not self._is_closed and loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._begin_closing)

    def _begin_closing(self) -> None:
        self._closing = asyncio.create_task(self.close())

    async def _open_all(self) -> None:
        await asyncio.gather(*[self._open(server) for server in self._servers.values()])

    async def _open(self, server: McpServer) -> None:
        try:
            await server.open()
        except Exception as error:  # also `MissingExtra`: the run continues without the server
            log.warning("%s", error if isinstance(error, McpError) else f"MCP server {server.name}: {error}")
            return
        for warning in server.warnings[:5]:
            log.warning("MCP server %s: %s", server.name, warning)

    def _tools_of(self, name: str) -> list[McpTool]:
        server, wanted = self._servers[name], self._wanted[name]
        if wanted is None:
            return server.tools()
        there = [tool for tool in wanted if server.definition(tool) is not None]
        missing = [tool for tool in wanted if tool not in there]
        if missing and server.state == "running" and name not in self._told:
            self._told.add(name)
            log.warning("MCP server %s: it does not offer %s, listed in the settings", name, ", ".join(missing))
        return server.tools(only=there)

    def _status(self, item: ServerSettings) -> ServerStatus:
        if not item.enabled:
            return ServerStatus(item.name, "disabled", item.target)
        if item.problem:
            return ServerStatus(item.name, "unusable", item.target, item.problem)
        server = self._servers[item.name]
        if self._opening is None:
            return ServerStatus(item.name, "waiting", item.target)
        tools = tuple(self._tools_of(item.name))
        state = "starting" if server.state == "closed" and not self._opening.done() else server.state
        return ServerStatus(item.name, state, item.target, server.problem, tools, server.warnings)


class ToolsWithServers:
    """Returns the tools for each turn: the agent's own, and the current tools of the servers."""

    def __init__(self, own: Sequence[AgentTool], servers: McpServers, is_denied: Callable[[str], bool]) -> None:
        self.known = tuple(own)
        """The tools before the first turn."""
        self._servers = servers
        self._is_denied = is_denied

    async def __call__(self) -> list[AgentTool]:
        offered = [tool for tool in await self._servers.tools() if not self._is_denied(tool.name)]
        return [*self.known, *offered]
