"""One running command: its output is read, and it ends with everything that it started.

Shared by commands within a call (`foreground`) and background commands (`tasks`), which use the output and report the
end to the model.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Literal, NamedTuple

from swink_agent.core.cancel import CancellationToken, call_in
from swink_agent.sandbox import SandboxedProcess

_CHUNK = 64 * 1024
_DRAIN = 0.5
"""Seconds for reading the rest of the output, once every process that could write to the pipe has ended."""
_DRAIN_CANCELLED = 0.02


class CommandEnd(NamedTuple):
    """How a command ended."""

    code: int | None
    """The exit code as a shell reports it, in any sandbox; `None` if the command was ended here."""
    signal: str | None
    cause: Literal["exit", "cancelled", "timeout", "flood", "sandbox"]
    """`flood`: it printed too much. `sandbox`: the sandbox ended it, for the reason in `process.ended_because`."""
    is_gone: bool
    """Whether everything that it started is known to have ended."""
    seconds: float

    def told(self, process: SandboxedProcess) -> str:
        """The end in a few words; empty for exit code 0. The caller adds its limits for `timeout` and `flood`."""
        match self.cause:
            case "cancelled":
                return f"cancelled: {self.gone()}"
            case "sandbox":
                return f"ended by the sandbox, as {process.ended_because}"
            case "exit" if self.signal is not None:
                return f"exit code {self.code}: killed by {self.signal}"
            case "exit" if self.code:  # above 128 it may mean a signal, or be the program's own number: git has 128
                return f"exit code {self.code}"
            case _:
                return ""

    def gone(self, was: str = "") -> str:
        """Whether the command has ended with everything that it started, in words."""
        if self.is_gone:
            return f"{was}ended with everything that it started"
        return f"{was}told to end, but something of it is still held by the system"


class RunningCommand:
    """Reads the output of a process until it ends. `hear` gets each piece; `total` counts the bytes."""

    def __init__(
        self,
        process: SandboxedProcess,
        hear: Callable[[bytes], None],
        *,
        timeout: float | None,
        most_output: int | None = None,
        is_urgent: bool = True,
    ) -> None:
        """`is_urgent`: after a cancellation, `run` waits only a moment for the command to end."""
        self.process = process
        self.total = 0
        self._hear = hear
        self._timeout = timeout
        self._most_output = most_output
        self._is_urgent = is_urgent
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._is_flood = False

    async def run(self, cancel: CancellationToken) -> CommandEnd:
        """How it ended. On every way out, the command and all that it started have been told to end.

        Raises `SandboxError` if the sandbox was closed before it began.
        """
        process, exited = self.process, self.process.exited
        started = self._loop.time()
        reading = self._loop.create_task(self._read())
        exited.add_done_callback(self._stop)
        key = cancel.add_callback(lambda: call_in(self._loop, self._stop))
        timer = None if self._timeout is None else self._loop.call_later(self._timeout, self._stop)
        try:
            await self._over
            seconds = self._loop.time() - started
            has_exited = exited.done()
            is_cancelled = cancel.is_cancelled and not has_exited
            is_urgent = is_cancelled and self._is_urgent
            # Processes that the command left in the background end with it, which closes the pipe.
            process.kill()
            drain = _DRAIN_CANCELLED if is_urgent else _DRAIN
            if not reading.done():
                await asyncio.wait({reading}, timeout=drain)
            if not exited.done():
                await asyncio.wait({exited}, timeout=drain)
            is_gone = exited.done() and not process.left_behind
            if is_urgent:
                await asyncio.wait({self._loop.create_task(process.look_behind())}, timeout=_DRAIN_CANCELLED)
            else:
                await process.look_behind()
            return self._end(exited.result() if has_exited else None, is_cancelled, is_gone, seconds)
        except asyncio.CancelledError:
            process.kill()
            # The files that it left behind are still checked, and findings are logged.
            await asyncio.wait({self._loop.create_task(self._look_behind_at_end())}, timeout=_DRAIN_CANCELLED)
            raise
        finally:
            process.kill()
            exited.remove_done_callback(self._stop)
            cancel.remove_callback(key)
            if timer is not None:
                timer.cancel()
            if not reading.done():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _look_behind_at_end(self) -> None:
        await asyncio.wait({self.process.exited}, timeout=_DRAIN)
        await self.process.look_behind()

    def _stop(self, _: object = None) -> None:
        """Ends the wait for the command: it has exited, or is to be ended."""
        if not self._over.done():
            self._over.set_result(None)

    async def _read(self) -> None:
        while data := await self.process.output.read(_CHUNK):
            self.total += len(data)
            self._hear(data)
            if self._most_output is not None and self.total > self._most_output and not self._is_flood:
                self._is_flood = True
                self._stop()
            await asyncio.sleep(0)  # a stream that always has data would block the event loop

    def _end(self, code: int | None, is_cancelled: bool, is_gone: bool, seconds: float) -> CommandEnd:
        if is_cancelled:
            return CommandEnd(None, "SIGKILL", "cancelled", is_gone, seconds)
        if code is None:
            return CommandEnd(None, "SIGKILL", "flood" if self._is_flood else "timeout", is_gone, seconds)
        cause = "sandbox" if self.process.ended_because else "exit"
        return CommandEnd(128 - code if code < 0 else code, _signal_name(code), cause, is_gone, seconds)


def as_shown(text: str) -> str:
    """Text of the system, such as a path, without bytes that JSON cannot have."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _signal_name(code: int) -> str | None:
    """The signal that a negative exit code means."""
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
