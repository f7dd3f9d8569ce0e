"""`!command`: runs a shell command for the user, and reports it to the model with the next prompt.

Such a command is not a tool: it needs no approval, runs outside the sandbox as in any shell, and no tool can start one.
It runs in the working folder, in its own process group, without input. It is killed when the user stops it or the
program ends. What it leaves in the background (`server &`) runs on, and its later output is dropped. If the output is
long, only its beginning and end are kept.
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
from swink_agent.sandbox import find_program

from .front import ShownCommand, View

FROM_SHELL = "from the shell"
"""The label of such a message in the transcript."""

_MOST_KEPT = 60_000
"""The most characters of output to keep, half of them from its beginning."""
_MOST_REPORTED = 20_000
_PIPE = 65_536
"""The most bytes that a pipe holds, so one read takes all that an ended command wrote."""
_PATIENCE = 0.5
"""Seconds between asking a command to end and killing it."""


class ShellCommand:
    """One command: its process, its output and how it is shown."""

    def __init__(
        self,
        command: str,
        folder: Path,
        view: View,
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
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._masking = None if redactor is None else redactor.stream()
        self._pipe: int | None = None
        self._is_over = False
        self._shown: ShownCommand = view.show_command(self._masked(command))

    async def run(self) -> UserMessage:
        """Runs the command to its end; returns the message that reports it to the model."""
        start = self._clock()
        self._shown.begin()
        code: int | None = None
        try:
            code = await self._run()
        except OSError as error:
            self._output.add(f"the command cannot be run: {error.strerror or error}")
        except asyncio.CancelledError:
            self.stop()
            raise
        finally:
            self._is_over = True
            if self._was_stopped:
                self.kill()
            text = self._masked(self._output.text)
            report = text if code == 0 else f"{text.rstrip()}\n[{self._ending(code)}]".lstrip()
            self._shown.finish(
                ToolOutcome.CANCELLED if self._was_stopped else ToolOutcome.RAN,
                report,
                is_error=code != 0,
                details=None,
                seconds=self._clock() - start,
            )
        return shell_message(self._masked(self.command), report)

    async def _run(self) -> int:
        self._pipe, end = os.pipe()
        os.set_blocking(self._pipe, False)
        asyncio.get_running_loop().add_reader(self._pipe, self._read)
        try:
            process = self._process = await asyncio.create_subprocess_shell(
                self.command,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=end,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                executable=_shell(str(self._folder)),
            )
        finally:
            os.close(end)
        if self._was_stopped:
            self.stop()
        code = await process.wait()
        self._read()
        return code

    def _read(self) -> None:
        """Takes what is in the pipe, which processes in the background may keep open after the command has ended."""
        if self._pipe is None:
            return
        try:
            piece = os.read(self._pipe, _PIPE)
        except BlockingIOError:
            return
        if not piece:
            self.close()
        elif not self._is_over:
            text = self._decoder.decode(piece)
            self._output.add(text)
            if shown := text if self._masking is None else self._masking.feed(text):
                self._shown.hear(shown)

    @property
    def may_write(self) -> bool:
        """Whether the command, or what it left in the background, still has the pipe for its output."""
        return self._pipe is not None

    def close(self) -> None:
        """Reads no more output."""
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    def stop(self) -> None:
        """Asks the command to end, and kills it soon after."""
        self._was_stopped = True
        if self._process is not None:
            self._signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_PATIENCE, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # all its processes have ended

    def _ending(self, code: int | None) -> str:
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
    """The user's commands, and the messages that report them and are still to be sent to the model."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._running: list[ShellCommand] = []
        self._left: list[ShellCommand] = []
        """Ended commands whose processes in the background still have the pipe."""
        self._unsent: list[UserMessage] = []

    def run(self, command: str, folder: Path, redactor: Redactor | None) -> Coroutine[None, None, None]:
        """Shows a command at once; returns the coroutine that runs it."""
        shell = ShellCommand(command, folder, self._view, redactor)
        self._running.append(shell)

        async def work() -> None:
            try:
                self._unsent.append(await shell.run())
            finally:
                self._running.remove(shell)
                self._left = [command for command in (*self._left, shell) if command.may_write]

        return work()

    def take(self) -> list[UserMessage]:
        """Returns the messages to send before the next prompt, and removes them."""
        taken, self._unsent = self._unsent, []
        return taken

    def put_back(self, messages: Iterable[AgentMessage]) -> None:
        """Keeps messages that were taken but not sent for the next prompt."""
        self._unsent = [*[message for message in messages if isinstance(message, UserMessage)], *self._unsent]

    def forget(self) -> None:
        """Drops the messages, so that the model does not get them."""
        self._unsent = []

    def stop(self) -> None:
        for command in self._running:
            command.stop()

    def kill(self) -> None:
        """Kills the commands that run, and reads no more from what earlier ones left in the background."""
        for command in self._running:
            command.kill()
        for command in self._left:
            command.close()


def shell_message(command: str, output: str) -> UserMessage:
    ends = _HeadAndTail(_MOST_REPORTED)
    ends.add(output)
    shown = f"$ {command}\n{ends.text.rstrip()}"
    text = f"<user_shell_command>\n{shown}\n</user_shell_command>\nI ran this myself, for you to see."
    return UserMessage([Text(text)], origin="shell")


class _HeadAndTail:
    """Keeps the beginning and the end of a text."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._head = self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        free = self._half - len(self._head)
        if free > 0:
            self._head += text[:free]
            text = text[free:]
        if text:
            tail = self._tail + text
            self._left_out += max(len(tail) - self._half, 0)
            self._tail = tail[-self._half :]

    @property
    def text(self) -> str:
        gap = f"\n… [{self._left_out:,} characters left out] …\n" if self._left_out else ""
        return f"{self._head}{gap}{self._tail}"


def _shell(folder: str) -> str | None:
    """Returns the user's shell if it is known to take `-c` and is outside the folder; `None` for the system's."""
    place, name = os.path.split(os.environ.get("SHELL", ""))
    known = name in ("bash", "zsh", "sh", "dash", "ksh", "fish")
    return find_program(name, folders=[place], outside=[folder]) if known else None
