"""The error of a server that cannot be used."""

from __future__ import annotations

from swink_agent.core.errors import AgentError


class McpError(AgentError):
    """A server could not be started or asked. The message has its name, the reason, and its last lines on stderr."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(f"MCP server {server}: {message}")
        self.server = server
