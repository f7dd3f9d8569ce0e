"""The `bash` tool: a command in the workspace folder, confined by the sandbox.

Checks and starts commands. `commands` follows them while they run, `swink_agent.sandbox` confines them, and
`approvals` decides which of them run without a question.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from swink_agent.core.approval import READS_ONLY, UNKEPT
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

from . import _confined
from ._sandbox_limits import Asking, CommandLimits
from .access import ACCESS_SCHEMA, Access, CommandAccess, HeldSandbox
from .checkpoints.changes import RecordedChanges
from .checkpoints.checkpoint import CheckpointError
from .commands.foreground import LONGEST_TIMEOUT, ForegroundCommand, not_run
from .commands.running import as_shown
from .commands.tasks import BackgroundTasks, started, with_ends
from .workspace.workspace import Workspace

_LONGEST_COMMAND = 100_000
_MOST_OUTPUT = 64 * 1024 * 1024


class BashTool:
    """Runs shell commands in a folder.

    `root` is the folder, or the `Workspace` that other tools share. Only the user chooses `sandbox`; nothing that a
    model sends can change it. "auto" lets a command write to the folder and its own temporary one, without network,
    with the back end that works here. A profile or an open sandbox gives other limits. "off" lets a command do all that
    the user can. The sandbox also hides and protects what the workspace does; an open one that does not is a
    `ValueError`. If no sandbox works, the tool refuses. `timeout`, in seconds, is for calls that give none. With
    `changes`, checkpoints of the folder and of those in `also` are taken around each command that may change something.

    A call whose grant has `reads_only` runs in a second sandbox of the same kind, which can only read: it writes to its
    own temporary folder alone, and has no network but its own. No checkpoint is taken for it.

    Each call starts anew in the folder, reads nothing from stdin, and ends with everything that it started: on exit,
    timeout and cancellation. While it runs it reports updates, at most 20 a second, each with the text that is new
    since the last. With `background`, the call returns when the command runs; `tasks` has it, and `BashOutputTool` and
    `BashStopTool` are for the model. Safe for concurrent calls. `close()` ends background commands and closes the
    sandboxes that the tool opened; a given sandbox stays open.
    """

    name = "bash"
    label = "Shell"
    requires_approval = True

    def __init__(
        self,
        root: str | os.PathLike[str] | Workspace,
        sandbox: _confined.SandboxChoice = "auto",
        *,
        timeout: float = 30.0,
        most_output: int = _MOST_OUTPUT,
        open_sandbox: _confined.OpenSandboxFn | None = None,
        changes: RecordedChanges | None = None,
        also: str | Sequence[str] = (),
    ) -> None:
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"timeout is {timeout}; give seconds, more than 0 and at most {LONGEST_TIMEOUT:g}")
        choice = _confined.check_choice(sandbox)
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
        self._source = _confined.SandboxSource(choice, profile, open_sandbox)
        self._reading = _confined.ReadingSource(self._source, open_sandbox)
        is_confined = choice != "off" and not (isinstance(choice, Sandbox) and choice.backend == "off")
        self._access = CommandAccess(self._root, profile, is_confined=is_confined, open_sandbox=open_sandbox)
        self._is_unkept = False
        """Whether the last checkpoint before a command could not be kept."""
        self.tasks = BackgroundTasks()
        """The background commands, for `BashOutputTool`, `BashStopTool` and user interfaces."""
        self.description = _description(self._shell[0], choice, profile, self._root, timeout)
        self.parameters_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command or script to run."},
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": LONGEST_TIMEOUT,
                    "description": (
                        f"Seconds until it is ended, at most {LONGEST_TIMEOUT:g}; {timeout:g} unless given, none in "
                        "the background."
                    ),
                },
                "background": {
                    "type": "boolean",
                    "description": "Whether it runs on beside the conversation, like a server: the result has its id, "
                    "for bash_output and bash_stop.",
                },
                "write": {
                    "type": "boolean",
                    "description": "Whether it changes files of the workspace. Without it, a command may be run so "
                    "that it can only read.",
                },
                **(ACCESS_SCHEMA if is_confined else {}),
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
        """Ends every running command, with the sandboxes that were opened for them. Idempotent."""
        self.tasks.close()
        self._access.close()
        self._reading.close()
        self._source.close()

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Where a command would run: `folder`, `backend`, and `sandbox`, the fingerprint of its profile.

        `reads_only` is added if the command does not ask to write and can run in a sandbox that can only read; the
        grant decides whether it does. With access, `access` is its normal form, and `walls` the fingerprint of the
        usual sandbox. `unkept` is added if checkpoints are wanted and none can be kept.

        The first call opens the sandbox, as only a trial shows which one will be used: do not call it in an event loop.
        Raises `ToolError` for a call that would be refused, so that the user is not asked about it.
        """
        problem = self._problem(arguments)
        if problem is not None:
            raise ToolError(problem)
        try:
            usual, access = self._source.get(), self._access.asked(arguments)
            scope = self._scope(usual, access)
        except SandboxError as error:
            raise ToolError(not_run(error)) from error
        if access is None and not arguments.get("write") and usual.backend in _confined.CONFINING:
            scope = {**scope, READS_ONLY: True}
        return {**scope, UNKEPT: True} if self._has_no_checkpoint(is_reading=READS_ONLY in scope) else scope

    def _has_no_checkpoint(self, *, is_reading: bool) -> bool:
        """Whether no checkpoint can be kept. For a command that may only read, none is tried unless the last failed."""
        changes = self._changes
        if changes is None or (is_reading and not self._is_unkept):
            return False
        self._is_unkept = not changes.can_be_kept(self._recorded)
        return self._is_unkept

    def _scope(self, sandbox: Sandbox, access: Access | None) -> dict[str, Any]:
        scope = {"folder": as_shown(self._root), "sandbox": sandbox.fingerprint, "backend": sandbox.backend}
        return scope if access is None else {**scope, **self._access.scope(access, sandbox)}

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Runs the command and returns its output. Anything but exit code 0 is an error result."""
        problem = self._problem(arguments)
        if problem is not None:
            return AgentToolResult.error(problem)
        if self._changes is None or _reads_only(ctx):
            return await self._run(arguments, ctx)
        try:
            async with self._changes.awaited(self._recorded_of(arguments), ctx):
                return await self._run(arguments, ctx)
        except CheckpointError as error:
            self._is_unkept = True
            return AgentToolResult.error(f"the command was not run: {error}")

    def _recorded_of(self, arguments: dict[str, Any]) -> list[str]:
        """The folders that the command may write: checkpoints are taken of these."""
        access = self._access.asked(arguments)
        written = () if access is None else access.write
        return [*self._recorded, *(path for path in written if not any(is_beneath(path, o) for o in self._recorded))]

    async def _run(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        held: HeldSandbox | None = None
        try:
            usual = self._source.opened or await _confined.in_thread(ctx, self._source.get)
            access = self._access.asked(arguments)
            sandbox = usual
            if access is not None:
                self._refuse(arguments, ctx, usual)  # before anything is opened
                held = await _confined.in_thread(ctx, lambda: self._access.hold(access, usual))
                sandbox = held.sandbox
            elif _reads_only(ctx) and usual.backend in _confined.CONFINING:
                sandbox = self._reading.opened or await _confined.in_thread(ctx, self._reading.get)
            call = _Call(arguments, ctx, usual, access, sandbox, held)
            if arguments.get("background"):
                held = None  # the task releases it
                result = await self._start_task(call)
            else:
                result = await self._wait_for(call)
        except ToolError as error:
            return AgentToolResult.error(str(error))
        except SandboxError as error:
            return AgentToolResult.error(not_run(error))
        except OSError as error:
            return AgentToolResult.error(f"the command could not be started: {error.strerror or error}")
        finally:
            if held is not None:
                held.release()
        notes: list[str] = []
        if access is not None and access.leaves_sandbox:
            notes.append("[it ran without the sandbox]")
        if (placeholder := holds_placeholder(arguments["command"])) is not None:  # a model may mistake it for the value
            notes.append(f"[{placeholder} was passed on as these very letters: commands are not given masked values]")
        if not notes:
            return result
        return AgentToolResult((*result.content, *map(Text, notes)), result.details, result.is_error)

    async def _spawn(self, call: _Call, *, background: bool = False) -> SandboxedProcess:
        """Starts the command. Raises `ToolError` if it is refused after all."""
        self._refuse(call.arguments, call.ctx, call.usual)
        line = [*self._shell, call.arguments["command"]]
        if background:
            return await call.sandbox.spawn(line, cwd=self._root, background=True)
        return await call.sandbox.spawn(line, cwd=self._root)

    async def _wait_for(self, call: _Call) -> AgentToolResult:
        process = await self._spawn(call)
        timeout = float(call.arguments.get("timeout", self._timeout))
        asking = Asking({} if call.access is None else call.access.as_json(), self._can_ask)
        profile = call.usual.profile if call.is_reading else call.sandbox.profile
        text = call.arguments["command"]
        limits = CommandLimits(profile, self._root, asking, text, call.is_reading)
        is_off = call.sandbox.backend == "off"
        command = ForegroundCommand(process, call.ctx, timeout, self._most_output, None if is_off else limits)
        result = with_ends(await command.run(), self.tasks)
        return replace(result, details={**(result.details or {}), **_how_it_ran(call)})

    async def _start_task(self, call: _Call) -> AgentToolResult:
        ctx = call.ctx
        ends: list[Callable[[], None]] = []
        if self._changes and not _reads_only(ctx):
            ends.append(self._changes.begin_task(self._recorded_of(call.arguments), ctx.run_id))
        if call.held is not None:
            ends.append(call.held.release)

        def on_end() -> None:
            for end in ends:
                end()

        timeout = call.arguments.get("timeout")
        try:
            task = await self.tasks.start(
                lambda: self._spawn(call, background=True),
                call.arguments["command"],
                timeout=None if timeout is None else float(timeout),
                redactor=ctx.redactor,
                announcer=ctx.announcer,
                on_end=on_end,
            )
        except BaseException:
            on_end()  # the checkpoint is taken at the end of this call
            raise
        return started(task, _how_it_ran(call))

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
        for name in ("background", "write"):
            if not isinstance(arguments.get(name, False), bool):
                return f"{name} is {arguments[name]!r}: give true or false"
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST_TIMEOUT:
            return f"timeout is {timeout!r}: give seconds, more than 0 and at most {LONGEST_TIMEOUT:g}"
        try:
            self._access.asked(arguments)
        except ToolError as error:
            return str(error)
        return None

    def _can_ask(self, access: dict[str, Any]) -> bool:
        """Whether a command may ask for this access."""
        try:
            return self._access.asked({"access": access, "reason": "what it met"}) is not None
        except ToolError:
            return False

    def _refuse(self, arguments: dict[str, Any], ctx: ToolContext, usual: Sandbox) -> None:
        """Raises `ToolError` for a call that must no longer run. Nothing is awaited between this and the spawn.

        The access is checked again: a link may lead elsewhere by now.
        """
        if ctx.cancel.is_cancelled:
            raise ToolError("the command was cancelled before it began")
        access = self._access.asked(arguments)
        grant = ctx.grant
        if access is not None and grant is None:
            raise ToolError("the command was not run: its access was not approved; leave access out")
        scope = self._scope(usual, access)
        if grant is not None and not grant.covers(self.name, arguments, scope):
            raise ToolError(
                "the command was not run: its text, folder, access or sandbox is not what was approved; call it again "
                "to have it approved as it is now"
            )
        if _identity(self._root) != self._identity:
            raise ToolError(f"the command was not run: {self._root} is no longer the folder that the user gave")


class _Call(NamedTuple):
    """A call that is about to run: the usual sandbox, which its approval names, and the one that it runs in."""

    arguments: dict[str, Any]
    ctx: ToolContext
    usual: Sandbox
    access: Access | None
    sandbox: Sandbox
    held: HeldSandbox | None
    """The wider sandbox, if it has access: it is released when the command has ended."""

    @property
    def is_reading(self) -> bool:
        """Whether it runs in the sandbox that can only read."""
        return self.sandbox is not self.usual and self.held is None


def _reads_only(ctx: ToolContext) -> bool:
    return ctx.grant is not None and ctx.grant.reads_only


def _how_it_ran(call: _Call) -> dict[str, Any]:
    """The details of a result that tell in which sandbox the command ran, and whether it was known to only read."""
    return {"sandbox": call.sandbox.backend, **({READS_ONLY: True} if _reads_only(call.ctx) else {})}


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _profile(choice: _confined.SandboxChoice, root: str, workspace: Workspace | None) -> SandboxProfile:
    """The profile of the choice, with the workspace's hidden and protected paths. Raises `ValueError` if an open
    sandbox lacks them."""
    if isinstance(choice, Sandbox):
        if workspace is not None and choice.backend != "off":
            _confined.refuse_without_paths_of(workspace, choice.profile)
        return choice.profile
    if choice == "off":
        return SandboxProfile()
    profile = choice if isinstance(choice, SandboxProfile) else SandboxProfile(write=(root, *repository_folders(root)))
    return profile if workspace is None else _confined.with_paths_of(workspace, profile)


def _shell_program(writable: Sequence[str]) -> list[str]:
    """The shell and its options, looked up once and outside the folders that a model writes to."""
    bash = find_program("bash", outside=writable)
    if bash is not None:
        return [bash, "--noprofile", "--norc", "-c", "--"]
    return [find_program("sh", outside=writable) or "/bin/sh", "-c", "--"]


def _description(
    shell: str, choice: _confined.SandboxChoice, profile: SandboxProfile, root: str, timeout: float
) -> str:
    kind = "a bash command" if os.path.basename(shell) == "bash" else "a command in sh (there is no bash here)"
    if choice == "off" or (isinstance(choice, Sandbox) and choice.backend == "off"):
        limits = ""
    else:
        network = "" if profile.network else " There is no network."
        if profile.hosts:
            network = (
                f" Of the network only {', '.join(profile.hosts)} can be reached, through the proxy in HTTPS_PROXY."
            )
        others = "".join(f", in {folder}" for folder in profile.write if folder != root)
        limits = f" Files can be written only in the workspace{others} and in $TMPDIR.{network}"
        limits += " Set write if the command changes files of the workspace: without it, it may be able to read only."
        limits += " The user can allow a command more, if it asks with access."
        ours = [os.path.relpath(path, root) for path in profile.own_programs()]
        if ours:
            limits += f" {', '.join(dict.fromkeys(ours))} cannot be changed, as this program runs from there."
    return (
        f"Runs {kind} in the workspace folder and returns what it prints, stdout and stderr together. Each call "
        f"starts anew in that folder: cd and variables do not last, and nothing can be typed in.{limits} What it "
        f"leaves in the background is ended with it: for a server or a watcher, set background. It has {timeout:g} "
        f"seconds unless timeout says otherwise."
    )
