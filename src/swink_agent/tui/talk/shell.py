"""`!command`: a shell command of the person's own, and what the model is told of it.

Owns the process and its end. It is not the agent's: nobody is asked and nothing confines it, as at any prompt of a
shell; and no tool can start one. It runs in the folder, in a process group of its own, reads nothing, and is ended when
it is stopped or the program is left. Of its output both ends are kept.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, Text, ToolOutcome, UserMessage

from ..transcript import ShellBlock, Transcript

__all__ = ["FROM_SHELL", "ShellCommand", "Shells", "is_from_shell", "shell_message"]

FROM_SHELL = "from the shell"
"""What such a message is labelled with."""

_MOST_KEPT = 60_000
"""Characters of output that are kept, half of them from its beginning."""
_MOST_TOLD = 20_000
_PIECE = 65_536
_PATIENCE = 0.5
"""Seconds between asking a command to end and ending it."""
_BEGIN, _END = "<user_shell_command>", "</user_shell_command>"


class ShellCommand:
    """One command, from its start to its end."""

    def __init__(
        self,
        command: str,
        folder: Path,
        transcript: Transcript,
        redactor: Redactor | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.command = command
        self._folder = folder
        self._redactor = redactor
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._was_stopped = False
        self._output = _HeadAndTail(_MOST_KEPT)
        self.block = ShellBlock(f"shell-{id(self):x}", "!", self._masked(command))
        transcript.add(self.block)

    async def run(self) -> UserMessage:
        """Runs to the end; gives what the model is told of it with the next prompt."""
        start = self._clock()
        self.block.begin()
        code: int | None = None
        try:
            code = await self._run()
        except OSError as error:
            self._output.add(f"the command cannot be run: {error.strerror or error}")
        except asyncio.CancelledError:
            self.stop()
            raise
        finally:
            self.kill()
            text = self._masked(self._output.text)
            told = text if code == 0 else f"{text.rstrip()}\n[{self._how(code)}]".lstrip()
            self.block.finish(
                ToolOutcome.CANCELLED if self._was_stopped else ToolOutcome.RAN,
                told,
                is_error=code != 0,
                details=None,
                seconds=self._clock() - start,
            )
        return shell_message(self._masked(self.command), told)

    async def _run(self) -> int:
        process = self._process = await asyncio.create_subprocess_shell(
            self.command,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            executable=_shell(),
        )
        if self._was_stopped:
            self.stop()
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        masked = None if self._redactor is None else self._redactor.stream()
        while piece := await process.stdout.read(_PIECE):
            text = decoder.decode(piece)
            self._output.add(text)
            if shown := text if masked is None else masked.feed(text):
                self.block.hear(shown)
        return await process.wait()

    def stop(self) -> None:
        """Asks the command to end, and ends it soon after."""
        self._was_stopped = True
        if self._process is not None:
            self._signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_PATIENCE, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        """Ends at once whatever is left of it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # all of it has ended

    def _how(self, code: int | None) -> str:
        if self._was_stopped:
            return "stopped by the user"
        if code is None:
            return "did not run"
        if code < 0:
            try:
                return f"ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"ended by signal {-code}"
        return f"exit code {code}"

    def _masked(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.redact(text)


class Shells:
    """The commands that a person runs, and what the model is yet to be told of them."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._running: list[ShellCommand] = []
        self._untold: list[UserMessage] = []

    @property
    def running(self) -> list[ShellBlock]:
        return [command.block for command in self._running]

    def run(self, command: str, folder: Path, redactor: Redactor | None) -> Coroutine[None, None, None]:
        """Shows a command at once; what is returned runs it, to its end."""
        shell = ShellCommand(command, folder, self._transcript, redactor)
        self._running.append(shell)

        async def work() -> None:
            try:
                self._untold.append(await shell.run())
            finally:
                self._running.remove(shell)

        return work()

    def take(self) -> list[UserMessage]:
        """What goes before the next prompt; it is told once."""
        taken, self._untold = self._untold, []
        return taken

    def put_back(self, messages: Iterable[AgentMessage]) -> None:
        """What was taken and then not told is told later."""
        self._untold = [*[message for message in messages if isinstance(message, UserMessage)], *self._untold]

    def forget(self) -> None:
        """Tells nothing of what was run so far."""
        self._untold = []

    def stop(self) -> None:
        for command in self._running:
            command.stop()

    def kill(self) -> None:
        for command in self._running:
            command.kill()


def shell_message(command: str, output: str) -> UserMessage:
    """What the model is told of a command that the person ran."""
    ends = _HeadAndTail(_MOST_TOLD)
    ends.add(output)
    text = f"{_BEGIN}\n$ {command}\n{ends.text.rstrip()}\n{_END}\nI ran this myself, for you to see."
    return UserMessage([Text(text)])


def is_from_shell(text: str) -> bool:
    """Whether the text of a message is what `shell_message` makes."""
    return text.startswith(f"{_BEGIN}\n")


class _HeadAndTail:
    """Text of which the beginning and the end are kept."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if text:
            tail = self._tail + text
            self._left_out += max(len(tail) - self._half, 0)
            self._tail = tail[-self._half :]

    @property
    def text(self) -> str:
        gap = f"\n… [{self._left_out:,} characters left out] …\n" if self._left_out else ""
        return f"{self._head}{gap}{self._tail}"


def _shell() -> str | None:
    """The person's own shell, where it is one that takes `-c`; else that of the system."""
    shell = os.environ.get("SHELL", "")
    known = os.path.basename(shell) in ("bash", "zsh", "sh", "dash", "ksh", "fish")
    return shell if known and os.path.isabs(shell) and os.access(shell, os.X_OK) else None
