"""The tools `bash_output` and `bash_stop`, and what a model is told about background commands.

The commands themselves are in `tasks`; `bash` starts them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text

from .._bounded import OUTPUT_LIMIT, bound_text
from .._sandbox_limits import hosts_refused, told_reached
from .foreground import in_brackets
from .tasks import BackgroundTask, BackgroundTasks

if TYPE_CHECKING:
    from ..shell import BashTool

__all__ = ["BashOutputTool", "BashStopTool", "started", "with_ends"]

_NOTE = 384
_STOPPING = 8.0
_FEW_SECONDS = 10
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
        return with_ends(await _looked_at(task), self._tasks)


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
        await asyncio.to_thread(task.over.wait, _STOPPING)
        return with_ends(await _looked_at(task), self._tasks)


def started(task: BackgroundTask, backend: str) -> AgentToolResult:
    """The result of a call that started a background command."""
    return AgentToolResult.text(
        f'[{task.id} runs in the background: bash_output(id="{task.id}") gives its output, bash_stop(id="{task.id}") '
        "ends it]",
        {"task": task.id, "sandbox": backend},
    )


def with_ends(result: AgentToolResult, tasks: BackgroundTasks) -> AgentToolResult:
    """The result, with a line for each background command that ended and whose end the model does not know yet."""
    ended = tasks.newly_ended()
    if not ended:
        return result
    lines = [f'{task.id} ended: {task.state}; bash_output(id="{task.id}") has its last output' for task in ended]
    return AgentToolResult((*result.content, Text(in_brackets(lines))), result.details, result.is_error)


async def _looked_at(task: BackgroundTask) -> AgentToolResult:
    is_running = task.is_running
    new = await asyncio.to_thread(task.take)  # searching a long output for secrets takes a while
    if not is_running:
        task.is_told = True
    endings = [f"{task.id}: {f'running for {_seconds(task.seconds)}' if is_running else task.state}"]
    endings += [f"sandbox: {text}" for text in task.warnings]
    reached = () if task.process is None else task.process.reached
    endings += [*told_reached(reached), *[f"sandbox: {limit}" for limit in hosts_refused(reached)]]
    bounded = bound_text(new.text, OUTPUT_LIMIT - _NOTE - len(in_brackets(endings).encode()))
    text = bounded.text or "[no new output]"
    if new.left_out:
        text = f"[… {new.left_out:,} bytes left out …]\n{bounded.text}"
    details = {
        "task": task.id,
        "running": is_running,
        "exit_code": None if is_running else task.exit_code,
        "left_out": new.left_out + bounded.left_out,
        **({"reached": [[each.host, each.port, each.allowed] for each in reached]} if reached else {}),
    }
    return AgentToolResult.text(text + ("" if text.endswith("\n") else "\n") + in_brackets(endings), details)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _FEW_SECONDS else f"{seconds:,.0f} s"
