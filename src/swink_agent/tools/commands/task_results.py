"""What a model is told about background commands: that one runs, what it printed, and that it ended."""

from __future__ import annotations

from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text

from .._bounded import OUTPUT_LIMIT, bound_text
from .._confined import in_thread
from .._sandbox_limits import hosts_refused, told_reached
from .foreground import in_brackets
from .tasks import BackgroundTask, BackgroundTasks

_NOTE = 384
_FEW_SECONDS = 10


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


async def looked_at(task: BackgroundTask, ctx: ToolContext) -> AgentToolResult:
    """What a background command printed since the last look, and whether it runs."""
    is_running = task.is_running
    new = await in_thread(ctx, task.take)  # searching a long output for secrets takes a while
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
