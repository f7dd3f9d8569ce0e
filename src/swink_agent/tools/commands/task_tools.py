"""The tools `bash_output` and `bash_stop`, for the background commands that `bash` starts."""

from __future__ import annotations

from typing import Any

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext

from .._confined import in_thread
from ..shell import BashTool
from .tasks import BackgroundTask, looked_at, with_ends

_STOPPING = 8.0
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string", "minLength": 1, "description": "The id that bash returned."}},
    "required": ["id"],
    "additionalProperties": False,
}


class _TaskTool:
    """A tool about one background command of a `BashTool`. Needs no approval."""

    name = ""
    requires_approval = False
    parameters_schema = _SCHEMA

    def __init__(self, bash: BashTool) -> None:
        self._tasks = bash.tasks

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """The new output. An unknown id is an error result, which names the known ones."""
        try:
            task = self._tasks.find(arguments["id"])
        except ToolError as error:
            return AgentToolResult.error(str(error))
        await self._act(task, ctx)
        return with_ends(await looked_at(task, ctx), self._tasks)

    async def _act(self, task: BackgroundTask, ctx: ToolContext) -> None:
        """Runs before the output is taken."""


class BashOutputTool(_TaskTool):
    """Returns the output of a background command since the last look, and whether it runs. It reads nothing else."""

    name = "bash_output"
    label = "Output"
    description = "Returns what a background command printed since the last look, and whether it runs or its exit code."


class BashStopTool(_TaskTool):
    """Ends a background command and all that it started, and returns its last output. It ends nothing else."""

    name = "bash_stop"
    label = "Stop"
    description = "Ends a background command, with all that it started; returns what it printed since the last look."

    async def _act(self, task: BackgroundTask, ctx: ToolContext) -> None:
        task.stop()
        await in_thread(ctx, lambda: task.over.wait(_STOPPING))
