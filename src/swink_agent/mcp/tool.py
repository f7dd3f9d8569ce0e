"""A server's tool as an agent sees it. The server's connection makes the call itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from swink_agent.core.cancel import is_cancelled
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext

from .listing import ToolDefinition

PATIENCE = 5.0  # seconds in which a server's event loop must begin a call from another event loop


class Serving(Protocol):
    """What a tool needs of its server."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def trust_annotations(self) -> bool: ...
    def definition(self, true_name: str, /) -> ToolDefinition | None: ...
    async def connected(self) -> None: ...
    async def call(self, true_name: str, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult: ...


class McpTool:
    """A tool of an MCP server.

    Name, description and schema are those with which it was listed. An approval is for the server's present definition:
    `approval_scope` has its digest, and a call that was approved for another definition does not run.
    """

    def __init__(self, server: Serving, name: str, definition: ToolDefinition) -> None:
        self._server = server
        self._definition = definition
        self.name = name
        self.true_name = definition.name
        self.label = definition.title
        self.description = definition.description
        self.parameters_schema = definition.schema

    def __repr__(self) -> str:
        return f"<MCP tool {self.name}>"

    @property
    def server(self) -> str:
        """The name of its server."""
        return self._server.name

    @property
    def requires_approval(self) -> bool:
        return self._asks(self._server.definition(self.true_name) or self._definition)

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The facts that an approval is bound to: the server, the true name and a digest of the tool's definition."""
        return self._scope(self._now())

    def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        """Refuses a call if the server was closed, so that the user is not asked about it."""
        if self._server.state == "closed":
            return AgentToolResult.error(f"the MCP server {self.server} is not running")
        return None

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        """Calls the tool. If the server has ended, starts it again first. Any event loop may call this."""
        loop, here = self._server.loop, asyncio.get_running_loop()
        if loop is None or loop is here or loop.is_closed():
            return await self._called(arguments, ctx)
        is_begun = asyncio.Event()

        async def there() -> AgentToolResult:
            with suppress(RuntimeError):  # the waiting event loop was closed
                here.call_soon_threadsafe(is_begun.set)
            return await self._called(arguments, ctx)

        running = asyncio.run_coroutine_threadsafe(there(), loop)
        try:
            async with asyncio.timeout(PATIENCE):
                await is_begun.wait()
        except TimeoutError:
            raise ToolError(
                f"{self.name} was not called: the event loop of the MCP server {self.server} is blocked. "
                "Where a server is open, use `await agent.prompt(…)` instead of `agent.prompt_sync(…)`."
            ) from None
        finally:
            if not is_begun.is_set():
                running.cancel()
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            why = "its event loop ended during the call"
            raise ToolError(f"the MCP server {self.server} ended: {why}") from None

    async def _called(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        await self._server.connected()
        now = self._now()
        if ctx.grant is None:
            is_same = self._asks(self._definition) or not self._asks(now)
        else:
            is_same = ctx.grant.covers(self.name, arguments, self._scope(now))
        if not is_same:
            raise ToolError(f"{self.name} was not called: the server changed the tool after it was approved")
        return await self._server.call(self.true_name, arguments, ctx)

    def _now(self) -> ToolDefinition:
        definition = self._server.definition(self.true_name)
        if definition is None:
            raise ToolError(f"the MCP server {self.server} no longer offers {self.true_name}")
        return definition

    def _asks(self, definition: ToolDefinition) -> bool:
        return not (self._server.trust_annotations and definition.reads_only)

    def _scope(self, definition: ToolDefinition) -> dict[str, Any]:
        return {"server": self.server, "tool": self.true_name, "definition": definition.digest}
