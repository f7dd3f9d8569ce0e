"""Which of its tools the standard agent offers in a turn.

`bash_output` and `bash_stop` are about background commands: without one, a small model calls them for want of a better
idea, and every model reads their descriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swink_agent.core.tool import AgentTool

from ..settings.definitions import TOOLS_OF_BASH

if TYPE_CHECKING:
    from swink_agent.tools.commands.tasks import BackgroundTasks

    from .servers import ToolsWithServers


class OfferedTools:
    """Returns the tools for each turn, those for background commands only while there is one to use them on."""

    def __init__(self, tools: Sequence[AgentTool] | ToolsWithServers, tasks: BackgroundTasks) -> None:
        self.known = tuple(tools) if isinstance(tools, Sequence) else tools.known
        """All tools, for lists of them before the first turn."""
        self._tools = tools
        self._tasks = tasks

    async def __call__(self) -> list[AgentTool]:
        tools = self._tools if isinstance(self._tools, Sequence) else await self._tools()
        is_used = self._tasks.has_unseen
        return [tool for tool in tools if is_used or tool.name not in TOOLS_OF_BASH]
