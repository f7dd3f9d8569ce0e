"""The `bash` tool: a command in the workspace folder, confined by the sandbox.

Owns the run of one command: its limits, its updates, and that no process of it is left behind. Confinement is in
`swink_agent.sandbox`; which commands may run without a question is decided by the approval.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
import signal
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swink_agent.approvals.commands.shell_words import NotPlain, program_names
from swink_agent.approvals.scopes import UNKEPT, as_approved
from swink_agent.core.errors import ToolError
from swink_agent.core.secrets.placeholders import holds_placeholder
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text
from swink_agent.core.values.several import several_paths
from swink_agent.sandbox import (
    Sandbox,
    SandboxedProcess,
    SandboxError,
    SandboxProfile,
    find_program,
    repository_folders,
)
from swink_agent.sandbox.profile import is_beneath

from ._bounded import OUTPUT_LIMIT
from ._confined import (
    OpenSandboxFn,
    SandboxChoice,
    SandboxSource,
    check_choice,
    default_opener,
    in_thread,
    refuse_open_walls,
    with_walls_of,
)
from ._sandbox_limits import limits_met
from ._terminal import LiveText, Output
from .checkpoints.changes import RecordedChanges
from .checkpoints.checkpoint import CheckpointError
from .workspace.wall import Workspace

__all__ = ["BashTool"]

LONGEST_TIMEOUT = 600.0
_LONGEST_COMMAND = 100_000
_MOST_OUTPUT = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_UPDATE_EVERY = 0.05
_QUICKLY_MASKED = 32 * 1024
_CONFIG_IS_HELD = re.compile(r"(?m)^(?:error|fatal): could not (?:write|lock) config file \S*\.git/")
_HOW_WITHOUT_CONFIG = (
    "a setting of git's was refused: commands change harmless ones alone, and none where the sandbox cannot look at "
    "them first; give it to one command (git -c name=value), or ask the user to set it"
)
_ASKS_FOR_PROGRAMS = re.compile(r"\b(which|type|command)\b")
_NOTE = 384
_DRAIN = 0.5
"""Seconds for reading what a command left in the pipe, once everything that could write to it has ended."""
_DRAIN_CANCELLED = 0.02
_LOOK = 0.5
"""Seconds for checking what a command left behind. If that takes longer, it is finished and reported later."""


class BashTool:
    """Runs shell commands in a folder.

    `root` is the folder, or the `Workspace` that other tools share. `sandbox` is the user's choice alone; nothing that
    a model sends can change it: "auto" lets a command write to the folder and its own temporary one, without network,
    with the back end that works here; a profile or an open sandbox says how; "off" lets it do all that the user can.
    The sandbox also hides and protects what the workspace does; an open one that does not is a `ValueError`. If no
    sandbox works, the tool refuses. `timeout`, in seconds, is for calls that give none. With `changes`, checkpoints of
    the folder and of those in `also` are taken around each command that may change something.

    Each call starts anew in the folder, reads nothing from stdin, and ends with everything that it started: on exit,
    timeout and cancellation. While it runs it reports updates, at most 20 a second, each with the text that is new
    since the last. Safe for concurrent calls. `close()` ends what it opened; a given sandbox stays open.
    """

    name = "bash"
    label = "Shell"
    requires_approval = True

    def __init__(
        self,
        root: str | os.PathLike[str] | Workspace,
        sandbox: SandboxChoice = "auto",
        *,
        timeout: float = 30.0,
        most_output: int = _MOST_OUTPUT,
        open_sandbox: OpenSandboxFn | None = None,
        changes: RecordedChanges | None = None,
        also: str | Sequence[str] = (),
    ) -> None:
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"timeout is {timeout}; give seconds, more than 0 and at most {LONGEST_TIMEOUT:g}")
        choice = check_choice(sandbox)
        self._root = os.path.realpath(root.root if isinstance(root, Workspace) else root)
        self._identity = _identity(self._root)
        if self._identity is None:
            raise NotADirectoryError(errno.ENOTDIR, "the root of a shell is a folder that exists", self._root)
        self._timeout = timeout
        self._most_output = most_output
        self._changes = changes
        self._recorded = [self._root, *map(os.path.realpath, several_paths(also, "BashTool(also=…)"))]
        profile = _profile(choice, self._root, root if isinstance(root, Workspace) else None)
        self._shell = _shell_program([self._root, *profile.write])
        self._source = SandboxSource(choice, profile, open_sandbox or default_opener(choice))
        self.description = _description(self._shell[0], choice, profile, self._root, timeout)
        self.parameters_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command or script to run."},
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": LONGEST_TIMEOUT,
                    "description": f"Seconds until it is ended; {timeout:g} unless given.",
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<tool bash in {self._root}>"

    @property
    def root(self) -> Path:
        """The folder that commands start in."""
        return Path(self._root)

    def close(self) -> None:
        """Ends every running command, with the sandbox that was opened for them. Idempotent."""
        self._source.close()

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Where a command would run: `folder`, `backend`, and `sandbox`, the fingerprint of its profile.

        `unkept` is added where checkpoints are wanted and none can be kept.
        The first call opens the sandbox, as only a trial tells which one will be used: do not call it in an event loop.
        Raises `ToolError` for a call that would be refused, so that the user is not asked about it.
        """
        problem = self._problem(arguments)
        if problem is not None:
            raise ToolError(problem)
        try:
            scope = self._scope(self._source.get())
        except SandboxError as error:
            raise ToolError(_not_run(error)) from error
        changes = self._changes
        if changes is None or self._only_reads(arguments["command"]) or changes.can_be_kept(self._recorded):
            return scope
        return {**scope, UNKEPT: True}

    def _only_reads(self, command: str) -> bool:
        """Whether no checkpoint is taken for the command, so that none need be tried either."""
        from swink_agent.approvals.commands.rules import CommandRules  # on use: loads the table of programs

        return CommandRules.standard().decide(command, folder=self._root).verdict == "allow"

    def _scope(self, sandbox: Sandbox) -> dict[str, Any]:
        return {"folder": _as_json(self._root), "sandbox": sandbox.fingerprint, "backend": sandbox.backend}

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Runs the command and returns its output. Anything but exit code 0 is an error result."""
        problem = self._problem(arguments)
        if problem is not None:
            return AgentToolResult.error(problem)
        if self._changes is None or (ctx.grant is not None and ctx.grant.reads_only):
            return await self._run(arguments, ctx)
        try:
            async with self._changes.awaited(self._recorded, ctx):
                return await self._run(arguments, ctx)
        except CheckpointError as error:
            return AgentToolResult.error(f"the command was not run: {error}")

    async def _run(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        try:
            sandbox = self._source.opened or await in_thread(ctx, self._source.get)
            refusal = self._refusal(arguments, ctx, sandbox)
            if refusal is not None:
                return AgentToolResult.error(refusal)
            command, environment = arguments["command"], None
            if ctx.grant is not None and ctx.grant.reads_only:
                command, environment = self._with_programs_from_outside(command, sandbox)
            process = await sandbox.spawn([*self._shell, command], cwd=self._root, environment=environment)
        except SandboxError as error:
            return AgentToolResult.error(_not_run(error))
        except OSError as error:
            return AgentToolResult.error(f"the command could not be started: {error.strerror or error}")
        timeout = float(arguments.get("timeout", self._timeout))
        result = await _Command(process, ctx, timeout, self._most_output, sandbox, self._root).run()
        return _with_note(result, holds_placeholder(arguments["command"]))

    def _with_programs_from_outside(self, command: str, sandbox: Sandbox) -> tuple[str, dict[str, str] | None]:
        """The command, and variables, with which bash finds no program that a command may have written.

        Rules allow it because its programs are the system's. A program of the same name may have been added since, or
        while it runs. If the command asks which programs there are, `PATH` stays and bash is told where its own ones
        are.
        """
        written = [self._root, *sandbox.profile.write]
        folders = sandbox.profile.environment.get("PATH", os.defpath).split(os.pathsep)
        outside = [folder for folder in folders if os.path.isabs(folder) and not _lies_in(folder, written)]
        path = {"PATH": os.pathsep.join(outside)}
        if os.path.basename(self._shell[0]) != "bash" or not _ASKS_FOR_PROGRAMS.search(command):
            return command, path
        try:
            names = program_names(command)
        except NotPlain:
            return command, path
        found = [(find_program(name, outside=written, folders=outside) or f"/dev/null/{name}", name) for name in names]
        told = "".join(f"hash -p {shlex.quote(place)} {shlex.quote(name)}; " for place, name in found)
        return told + command, None

    def _problem(self, arguments: dict[str, Any]) -> str | None:
        command, timeout = arguments.get("command"), arguments.get("timeout", self._timeout)
        if not isinstance(command, str) or not command.strip():
            return "the command is empty: give one to run"
        if "\0" in command:
            return "the command holds a NUL character, which no command can: leave it out"
        try:
            size = len(command.encode())
        except UnicodeEncodeError:
            return "the command holds half of a character (a lone surrogate): write it as UTF-8"
        if size > _LONGEST_COMMAND:
            return (
                f"the command has {size:,} bytes, more than the {_LONGEST_COMMAND:,} that can be run: "
                "write it to a file with write_file, and run that"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST_TIMEOUT:
            return f"timeout is {timeout!r}: give seconds, more than 0 and at most {LONGEST_TIMEOUT:g}"
        return None

    def _refusal(self, arguments: dict[str, Any], ctx: ToolContext, sandbox: Sandbox) -> str | None:
        """Why the call is not run after all. Checked directly before the spawn, with nothing awaited in between."""
        if ctx.cancel.is_cancelled:
            return "the command was cancelled before it began"
        grant = ctx.grant
        scope = self._scope(sandbox)
        if grant is not None and not grant.covers(self.name, arguments, as_approved(scope, grant.scope)):
            return (
                "the command was not run: its text, folder or sandbox is not what was approved; call it again to "
                "have it approved as it is now"
            )
        if _identity(self._root) != self._identity:
            return f"the command was not run: {self._root} is no longer the folder that the user gave"
        return None


class _Command:
    """One running command: reads its output, and ends it when its time is over."""

    def __init__(
        self,
        process: SandboxedProcess,
        ctx: ToolContext,
        timeout: float,
        most_output: int,
        sandbox: Sandbox,
        folder: str,
    ) -> None:
        self._process = process
        self._ctx = ctx
        self._timeout = timeout
        self._most_output = most_output
        self._sandbox = sandbox
        self._backend = sandbox.backend
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._output = Output()
        self._live = LiveText()
        self._flooded: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._next_update = 0.0
        self._is_gone = False

    async def run(self) -> AgentToolResult:
        """The result. However this is left, the command and all that it started have been told to end."""
        started = self._loop.time()
        reading = self._loop.create_task(self._read())
        exiting = self._loop.create_task(self._process.wait(look=False))
        cancelled = self._loop.create_task(self._ctx.cancel.wait())
        try:
            await asyncio.wait(
                {exiting, cancelled, self._flooded}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED
            )
            duration = self._loop.time() - started
            is_cancelled = cancelled.done() and not exiting.done()
            # What a command left in the background is ended with it, which closes the pipe.
            self._process.kill()
            has_exited = exiting.done()
            await asyncio.wait({reading}, timeout=_DRAIN_CANCELLED if is_cancelled else _DRAIN)
            if not exiting.done():
                await asyncio.wait({exiting}, timeout=_DRAIN_CANCELLED if is_cancelled else _DRAIN)
            self._is_gone = exiting.done() and not self._process.left_behind
            looking = self._loop.create_task(self._process.look_behind())
            await asyncio.wait({looking}, timeout=_DRAIN_CANCELLED if is_cancelled else _LOOK)
            self._update(is_last=True)
            try:
                code = exiting.result() if has_exited else None
            except SandboxError as error:  # the sandbox was closed before the command began
                said = self._output.text(redactor=self._ctx.redactor).text
                return AgentToolResult.error(_not_run(error) + (f"\n{said}" if said else ""))
            return await self._result(code, is_cancelled, duration)
        finally:
            self._process.kill()
            if self._timer is not None:
                self._timer.cancel()
            for task in (reading, exiting, cancelled):
                task.cancel()
            await asyncio.gather(reading, exiting, cancelled, return_exceptions=True)

    async def _read(self) -> None:
        while data := await self._process.output.read(_CHUNK):
            self._output.add(data)
            self._live.add(data)
            if self._timer is None:
                delay = max(0.0, self._next_update - self._loop.time())
                self._timer = self._loop.call_later(delay, self._update)
            if self._output.total > self._most_output and not self._flooded.done():
                self._flooded.set_result(None)
            await asyncio.sleep(0)  # a stream that always has data would keep the others waiting

    def _update(self, *, is_last: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next_update = self._loop.time() + _UPDATE_EVERY
        text = self._live.take(is_last=is_last)
        if text:
            self._ctx.update(text)

    def _end(self, was: str = "") -> str:
        """What is known about the command's end by now."""
        if self._is_gone:
            return f"{was}ended with everything that it started"
        return f"{was}told to end, but something of it is still held by the system"

    async def _result(self, code: int | None, is_cancelled: bool, duration: float) -> AgentToolResult:
        timed_out = code is None and not is_cancelled and not self._flooded.done()
        name = _signal_name(code)
        code = 128 - code if code is not None and code < 0 else code  # as a shell reports it, in any sandbox
        endings: list[str] = []
        if is_cancelled:
            endings.append(f"cancelled: {self._end()}")
        elif timed_out:
            advice = "give a longer timeout" if self._timeout < LONGEST_TIMEOUT else "do it in smaller steps"
            endings.append(f"timed out after {self._timeout:g} s and {self._end('was ')}; {advice}")
        elif code is None:
            size = self._most_output / 1024 / 1024
            endings.append(f"ended, as it printed more than {size:g} MiB; send the output to a file")
        elif self._process.ended_because:
            endings.append(f"ended by the sandbox, as {self._process.ended_because}")
        elif name is not None:
            endings.append(f"exit code {code}: killed by {name}")
        elif code:  # above 128 it may mean a signal, or be the program's own number: git has 128 and 129
            endings.append(f"exit code {code}")
        left = [_as_json(warning)[:400] for warning in self._process.warnings]
        endings += [f"sandbox: {text}" for text in left]
        room = OUTPUT_LIMIT - _NOTE - len(_in_brackets(endings).encode()) - 1
        if self._output.total <= _QUICKLY_MASKED or is_cancelled:
            bounded = self._output.text(room, self._ctx.redactor)
        else:  # searching a long output for secrets takes a while
            bounded = await in_thread(self._ctx, lambda: self._output.text(room, self._ctx.redactor))
        text = bounded.text
        if self._backend != "off" and _CONFIG_IS_HELD.search(text):
            endings.append(_HOW_WITHOUT_CONFIG)
        walls = limits_met(text, self._sandbox.profile, self._folder) if code and self._backend != "off" else []
        endings += [f"sandbox: {wall}" for wall in walls]
        if endings:
            text += ("\n" if text and not text.endswith("\n") else "") + _in_brackets(endings)
        details = {
            "exit_code": code,
            "signal": "SIGKILL" if code is None else name,
            "timed_out": timed_out,
            "cancelled": is_cancelled,
            "duration": round(duration, 3),
            "truncated": bounded.is_cut,
            "sandbox": self._backend,
            **({"left_behind": left} if left else {}),
            **({"walls": walls} if walls else {}),
        }
        result = AgentToolResult.text if code == 0 else AgentToolResult.error
        return result(text or "[no output]\n[exit code 0]", details)


def _with_note(result: AgentToolResult, placeholder: str | None) -> AgentToolResult:
    """The result, with a note on what a placeholder in a command is: a model may take it for the value."""
    if placeholder is None:
        return result
    note = f"[{placeholder} was passed on as these very letters: commands are not given masked values]"
    return AgentToolResult((*result.content, Text(note)), result.details, result.is_error)


def _in_brackets(endings: Sequence[str]) -> str:
    """How a command ended and what the sandbox reports, as lines behind its output."""
    return "\n".join([f"[{ending}]" for ending in endings])


def _not_run(error: SandboxError) -> str:
    return f"the command was not run: {error}"


def _signal_name(code: int | None) -> str | None:
    """The signal that a negative exit code means."""
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _lies_in(folder: str, others: list[str]) -> bool:
    spellings = (os.path.normpath(folder), os.path.realpath(folder))
    return any(is_beneath(path, other) for path in spellings for other in others)


def _as_json(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _profile(choice: SandboxChoice, root: str, workspace: Workspace | None) -> SandboxProfile:
    """The profile of the choice, with what the workspace hides and protects. Raises `ValueError` if an open sandbox
    differs."""
    if isinstance(choice, Sandbox):
        if workspace is not None and choice.backend != "off":
            refuse_open_walls(workspace, choice.profile)
        return choice.profile
    if choice == "off":
        return SandboxProfile()
    profile = choice if isinstance(choice, SandboxProfile) else SandboxProfile(write=(root, *repository_folders(root)))
    return profile if workspace is None else with_walls_of(workspace, profile)


def _shell_program(writable: Sequence[str]) -> list[str]:
    """The shell and its options, looked up once and outside the folders that a model writes to."""
    bash = find_program("bash", outside=writable)
    if bash is not None:
        return [bash, "--noprofile", "--norc", "-c", "--"]
    return [find_program("sh", outside=writable) or "/bin/sh", "-c", "--"]


def _description(shell: str, choice: SandboxChoice, profile: SandboxProfile, root: str, timeout: float) -> str:
    kind = "a bash command" if os.path.basename(shell) == "bash" else "a command in sh (there is no bash here)"
    if choice == "off" or (isinstance(choice, Sandbox) and choice.backend == "off"):
        walls = ""
    else:
        network = "" if profile.network else " There is no network."
        others = "".join(f", in {folder}" for folder in profile.write if folder != root)
        walls = f" Files can be written only in the workspace{others} and in $TMPDIR.{network}"
        ours = [os.path.relpath(path, root) for path in profile.own_programs()]
        if ours:
            walls += f" {', '.join(dict.fromkeys(ours))} cannot be changed, as this program runs from there."
    return (
        f"Runs {kind} in the workspace folder and returns what it prints, stdout and stderr together. Each call "
        f"starts anew in that folder: cd and variables do not last, and nothing can be typed in.{walls} What it leaves "
        f"in the background is ended with it. It has {timeout:g} seconds unless timeout says otherwise."
    )
