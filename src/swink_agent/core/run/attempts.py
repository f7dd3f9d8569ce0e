"""Runs the call of a tool that has a time limit or retries, attempt by attempt.

`dispatch` runs all other calls directly, and gives every call its result.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..errors import ToolError
from ..events import ToolExecutionRetry
from ..tool import AgentTool, ToolContext, ToolOptions
from ..values.value import copy_json
from .state import Run
from .tool_call import CallState

_LAST_WORDS = 0.05  # seconds that a tool gets to end after its time is up

log = logging.getLogger("swink_agent")


async def run_attempts(run: Run, call: CallState, tool: AgentTool, context: ToolContext, options: ToolOptions) -> Any:
    """Returns the tool's result, or raises the error of its last attempt."""
    attempt = 0
    while True:
        attempt += 1
        try:
            if options.timeout is None:
                return await _attempt(tool, call, context)
            return await _within(options.timeout, run, call, tool, context)
        except ToolError as error:
            if error.retry_after is None or attempt > options.retries or call.context is None:
                raise
            delay = max(0.0, error.retry_after)
            if run.audience.all:
                run.emit(ToolExecutionRetry(call.id, call.name, attempt, run.redactor.redact(str(error)), delay))
            await run.config.sleep(delay)


async def _within(seconds: float, run: Run, call: CallState, tool: AgentTool, context: ToolContext) -> Any:
    """Waits for the tool. When the time is up, cancels it and raises a `ToolError`."""
    task = run.supervisor.spawn(_attempt(tool, call, context))
    task.add_done_callback(_heard)
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))  # the run waits for this, as long as it waits for any tool that it stops
        raise
    if task.done():
        return task.result()
    call.has_timed_out = True
    if context.is_listening:
        context.cancel.cancel()
    task.cancel()
    is_delegate = run.delegations is not None and context in run.delegations.live  # it always ends soon, and in order
    await asyncio.wait((task,), timeout=None if is_delegate else _LAST_WORDS)
    problem = f"{call.name} timed out after {seconds:g} s"
    if getattr(tool, "runs_in_thread", False):
        raise ToolError(f"{problem}; it runs in a thread, and may still be running")
    if not task.done():
        log.warning("a tool did not end when its time was up; the run continues without it")
    raise ToolError(problem)


async def _attempt(tool: AgentTool, call: CallState, context: ToolContext) -> Any:
    return await tool.execute(copy_json(call.arguments), context)


def _heard(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
