"""A command within its call: updates while it runs, and the result at its end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.sandbox import SandboxedProcess, SandboxError

from .._bounded import OUTPUT_LIMIT
from .._confined import in_thread
from .._sandbox_limits import ONLY_READS, CommandLimits, LimitMet, told_reached
from .._terminal import LiveText, Output
from .running import CommandEnd, RunningCommand, as_shown

LONGEST_TIMEOUT = 600.0
_UPDATE_EVERY = 0.05
_QUICKLY_MASKED = 32 * 1024
_NOTE = 1024
_CONFIG_IS_HELD = re.compile(r"(?m)^(?:error|fatal): could not (?:write|lock) config file \S*\.git/")
_HOW_WITHOUT_CONFIG = (
    "a git setting was refused: commands may change only harmless ones, and none where the sandbox cannot check "
    "them first; give it to one command (git -c name=value), or ask the user to set it"
)


class ForegroundCommand:
    """One command of one call, which waits for its end."""

    def __init__(
        self,
        process: SandboxedProcess,
        ctx: ToolContext,
        timeout: float,
        most_output: int,
        limits: CommandLimits | None,
    ) -> None:
        """`limits`: those of its sandbox; `None` if it runs without one."""
        self._process = process
        self._ctx = ctx
        self._timeout = timeout
        self._most_output = most_output
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._output = Output()
        self._live = LiveText()
        self._timer: asyncio.TimerHandle | None = None
        self._next_update = 0.0

    async def run(self) -> AgentToolResult:
        """The result. On every way out, the command and all that it started have been told to end."""
        command = RunningCommand(self._process, self._hear, timeout=self._timeout, most_output=self._most_output)
        try:
            end = await command.run(self._ctx.cancel)
            self._update(is_last=True)
            return await self._result(end)
        except SandboxError as error:  # the sandbox was closed before the command began
            self._update(is_last=True)
            said = self._output.text(redactor=self._ctx.redactor).text
            return AgentToolResult.error(not_run(error) + (f"\n{said}" if said else ""))
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _hear(self, data: bytes) -> None:
        self._output.add(data)
        self._live.add(data)
        if self._timer is None:
            delay = max(0.0, self._next_update - self._loop.time())
            self._timer = self._loop.call_later(delay, self._update)

    def _update(self, *, is_last: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next_update = self._loop.time() + _UPDATE_EVERY
        text = self._live.take(is_last=is_last)
        if text:
            self._ctx.update(text)

    def _ending(self, end: CommandEnd) -> str:
        if end.cause == "timeout":
            advice = "give a longer timeout" if self._timeout < LONGEST_TIMEOUT else "do it in smaller steps"
            return f"timed out after {self._timeout:g} s and {end.gone('was ')}; {advice}"
        if end.cause == "flood":
            size = self._most_output / 1024 / 1024
            return f"ended, as it printed more than {size:g} MiB; send the output to a file"
        return end.told(self._process)

    async def _result(self, end: CommandEnd) -> AgentToolResult:
        ending, limits = self._ending(end), self._limits
        endings = [ending] if ending else []
        left = [as_shown(warning)[:400] for warning in self._process.warnings]
        endings += [f"sandbox: {text}" for text in left]
        reached = self._process.reached
        refused = [] if limits is None else limits.refused(reached)
        endings += [*told_reached(reached), *[f"sandbox: {limit}" for limit in refused]]
        room = OUTPUT_LIMIT - _NOTE - len(in_brackets(endings).encode()) - 1
        if self._output.total <= _QUICKLY_MASKED or end.cause == "cancelled":
            bounded = self._output.text(room, self._ctx.redactor)
        else:  # searching a long output for secrets takes a while
            bounded = await in_thread(self._ctx, lambda: self._output.text(room, self._ctx.redactor))
        text = bounded.text
        met: list[LimitMet] = []
        if limits is not None:
            if _CONFIG_IS_HELD.search(text) and not limits.is_reading:
                endings.append(_HOW_WITHOUT_CONFIG)
            if end.code is not None:
                met = limits.met(text, end.code, is_known=bool(refused))
            endings += [f"sandbox: {limit}" for limit in met]
            if limits.may_have_wanted_to_write(end.code) and not any(limit.kind == "write" for limit in met):
                endings.append(f"sandbox: {ONLY_READS}")
        kinds = [limit.as_json() for limit in (*refused, *met)]
        if endings:
            text += ("\n" if text and not text.endswith("\n") else "") + in_brackets(endings)
        details = {
            "exit_code": end.code,
            "signal": end.signal,
            "timed_out": end.cause == "timeout",
            "cancelled": end.cause == "cancelled",
            "duration": round(end.seconds, 3),
            "truncated": bounded.is_cut,
            **({"left_behind": left} if left else {}),
            **({"limits": kinds} if kinds else {}),
            **({"reached": [[each.host, each.port, each.allowed] for each in reached]} if reached else {}),
        }
        result = AgentToolResult.text if end.code == 0 else AgentToolResult.error
        return result(text or "[no output]\n[exit code 0]", details)


def in_brackets(endings: Sequence[str]) -> str:
    """How a command ended and what the sandbox reports, as lines after its output."""
    return "\n".join([f"[{ending}]" for ending in endings])


def not_run(error: SandboxError) -> str:
    """The result of a command that the sandbox did not start."""
    return f"the command was not run: {error}"
