"""The tools `bash_output` and `bash_stop`, for the background commands that `bash` starts."""

from __future__ import annotations

from typing import Any

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext

from .._confined import in_thread
from ..shell import BashTool
from .task_results import looked_at, with_ends

_STOPPING = 8.0
_ID = {"type": "string", "minLength": 1, "description": "The id that bash returned."}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": _ID},
    "required": ["id"],
    "additionalProperties": False,
}


class BashOutputTool:
    """Gives what a background command of a `BashTool` printed since the last look, and whether it runs.

    Needs no approval: it starts nothing and reads nothing else.
    """

    name = "bash_output"
    label = "Output"
    requires_approval = False
    description = "Returns what a background command printed since the last look, and whether it runs or its exit code."
    parameters_schema = _SCHEMA

    def __init__(self, bash: BashTool) -> None:
        self._tasks = bash.tasks

    def __repr__(self) -> str:
        return "<tool bash_output>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """The new output. An id that is not known is an error result, which names those there are."""
        try:
            task = self._tasks.find(arguments["id"])
        except ToolError as error:
            return AgentToolResult.error(str(error))
        return with_ends(await looked_at(task, ctx), self._tasks)


class BashStopTool:
    """Ends a background command of a `BashTool`, with all that it started, and gives its last output.

    Needs no approval: it ends nothing but what `bash` started.
    """

    name = "bash_stop"
    label = "Stop"
    requires_approval = False
    description = "Ends a background command, with all that it started; returns what it printed since the last look."
    parameters_schema = _SCHEMA

    def __init__(self, bash: BashTool) -> None:
        self._tasks = bash.tasks

    def __repr__(self) -> str:
        return "<tool bash_stop>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """The last output. An id that is not known is an error result, which names those there are."""
        try:
            task = self._tasks.find(arguments["id"])
        except ToolError as error:
            return AgentToolResult.error(str(error))
        task.stop()
        await in_thread(ctx, lambda: task.over.wait(_STOPPING))
        return with_ends(await looked_at(task, ctx), self._tasks)
