"""Background commands: they run beside the conversation, until they end, are stopped, or their owner is closed.

Limits their number, keeps the output that was not read yet, and makes the reports for the model. One thread with its
own event loop serves them, as an agent may run in one event loop after another.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import ToolError
from swink_agent.core.events import TaskEnded, TaskStarted
from swink_agent.core.output import GAP
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import Text
from swink_agent.sandbox import SandboxedProcess, SandboxError

from .._bounded import OUTPUT_LIMIT, bound_text
from .._confined import in_thread
from .._sandbox_limits import hosts_refused, told_reached
from .._terminal import LiveText, clean
from .foreground import in_brackets
from .running import CommandEnd, RunningCommand, as_shown

if TYPE_CHECKING:
    from swink_agent.core.run.announcing import Announcer
    from swink_agent.core.secrets.redaction import Redactor, RedactorStream

MOST_TASKS = 8  # how many run at once
_MOST_KEPT = 1024 * 1024
_MOST_ENDED = 16
_MOST_NEWEST = 4096
_LOOK_BEHIND_AGAIN = 10.0
"""Seconds between checks for files of a running command that would run code later."""
_CLOSING = 3.0
"""Seconds that closing waits. After that, the thread ends the commands, or the kernel does when this process ends."""
_NOTE = 384
_FEW_SECONDS = 10

SpawnFn = Callable[[], Awaitable[SandboxedProcess]]


class NewOutput(NamedTuple):
    """The masked output of a background command since the last look, and how many bytes of it were left out."""

    text: str
    left_out: int


class BackgroundTask:
    """One background command. Every method is safe from any thread."""

    def __init__(self, task_id: str, command: str, timeout: float | None, redactor: Redactor | None) -> None:
        self.id = task_id
        self.command = command
        self.timeout = timeout
        self.end: CommandEnd | None = None
        """How it ended; `None` while it runs."""
        self.is_told = False
        """Whether the model knows that it ended."""
        self.is_seen = False
        """Whether the model has its last output."""
        self.problem = ""
        """Why it never began, if it did not."""
        self.process: SandboxedProcess | None = None
        self.stopped = CancellationToken()
        self.over = threading.Event()
        """Set when it is completely over."""
        self._began = time.monotonic()
        self._ended = 0.0
        self._redactor = redactor
        self._masking: RedactorStream | None = None if redactor is None else redactor.stream()
        self._lock = threading.Lock()
        self._live = LiveText(_MOST_KEPT // 2)
        self._tail = b""

    @property
    def is_running(self) -> bool:
        return self.end is None and not self.problem

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it; `None` while it runs, and if it was stopped."""
        return None if self.end is None else self.end.code

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (time.monotonic() if self.is_running else self._ended) - self._began

    @property
    def state(self) -> str:
        """`running`, or how it ended, in a few words."""
        if self.problem:
            return f"never began: {self.problem}"
        if self.end is None:
            return "running"
        if self.end.cause == "cancelled":
            return f"stopped: {self.end.gone()}"
        if self.end.cause == "timeout":
            return f"timed out after {self.timeout:g} s and {self.end.gone('was ')}"
        assert self.process is not None
        return self.end.told(self.process) or "exit code 0"

    @property
    def warnings(self) -> list[str]:
        """The sandbox's warnings about it."""
        return [] if self.process is None else [as_shown(warning)[:400] for warning in self.process.warnings]

    @property
    def newest(self) -> str:
        """The last lines that it printed, masked, for a person. Does not count as a look."""
        with self._lock:
            tail = self._tail
        text = clean(tail.decode("utf-8", "replace"))
        if len(tail) >= _MOST_NEWEST:
            text = text.partition("\n")[2]
        if self._redactor is None:
            return text
        if len(tail) >= _MOST_NEWEST:  # the missing part may end inside a secret
            text = self._redactor.after_a_cut(text)
        if self.is_running:
            text = text[: self._redactor.safe_length(text)]
        return self._redactor.redact(text)

    @property
    def last_line(self) -> str:
        """The last line that it printed, masked."""
        return next((line for line in reversed(self.newest.splitlines()) if line.strip()), "")

    def take(self) -> NewOutput:
        """The output since the last look. The beginning of a secret is held back until the rest arrives."""
        with self._lock:
            is_last = not self.is_running
            text = self._live.take(is_last=is_last)
            left_out, self._live.left_out = self._live.left_out, 0
            if left_out:
                text = text.removeprefix(GAP)
            if self._redactor is not None and self._masking is not None:
                if left_out:  # the missing part may begin or end inside a secret: neither half is shown
                    self._masking, text = self._redactor.stream(), self._redactor.after_a_cut(text)
                text = self._masking.feed(text) + (self._masking.finish() if is_last else "")
            return NewOutput(text, left_out)

    def stop(self) -> None:
        """Ends it, with all that it started. `over` is set soon after."""
        self.stopped.cancel()

    def hear(self, data: bytes) -> None:
        """Takes a piece of its output."""
        with self._lock:
            self._live.add(data)
            self._tail = (self._tail + data)[-_MOST_NEWEST:]

    def has_ended(self, end: CommandEnd | None, problem: str = "") -> None:
        with self._lock:
            self._ended = time.monotonic()
            self.end, self.problem = end, problem


class BackgroundTasks:
    """The background commands of one tool. Safe for several threads and event loops. `close()` ends all of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may close them
        self._tasks: dict[str, BackgroundTask] = {}
        self._count = 0
        self._thread: _LoopThread | None = None
        self._is_closed = False

    @property
    def all(self) -> Sequence[BackgroundTask]:
        """The running commands, and those that ended last, in the order of their start."""
        with self._lock:
            return tuple(self._tasks.values())

    @property
    def running(self) -> Sequence[BackgroundTask]:
        return [task for task in self.all if task.is_running]

    @property
    def has_unseen(self) -> bool:
        """Whether one runs, or ended with output that the model has not asked for."""
        return not all(task.is_seen for task in self.all)

    def find(self, task_id: str) -> BackgroundTask:
        """The one with this id. Raises `ToolError`, which names the known ids."""
        with self._lock:
            task = self._tasks.get(task_id)
        if task is not None:
            return task
        known = [f"{each.id} ({'running' if each.is_running else 'ended'})" for each in self.all]
        there = f"there are {', '.join(known)}" if known else "none was started"
        raise ToolError(f"there is no background command {task_id!r}: {there}")

    def newly_ended(self) -> list[BackgroundTask]:
        """The ended commands that were not reported to the model yet. From now on they count as reported."""
        ended = [task for task in self.all if not task.is_running and not task.is_told]
        for task in ended:
            task.is_told = True
        return ended

    async def start(
        self,
        spawn: SpawnFn,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - of the command, not of this call
        redactor: Redactor | None = None,
        announcer: Announcer | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> BackgroundTask:
        """Starts a command, and returns when it runs. `spawn` is called in the event loop of background commands.

        `on_end` is called in a thread when the command and all that it started have ended. Raises `ToolError` if too
        many run, and any exception of `spawn`; then nothing runs.
        """
        task, thread = self._add(command, timeout, redactor)
        heard = None if announcer is None else weakref.ref(announcer)  # a task must not keep an agent alive
        starting = asyncio.run_coroutine_threadsafe(_begin(task, spawn, thread, heard, on_end), thread.loop)
        try:
            await asyncio.wrap_future(starting)
        except BaseException:
            task.stop()
            with self._lock:
                if task.process is None:
                    self._tasks.pop(task.id, None)
            raise
        return task

    def _add(
        self, command: str, timeout: float | None, redactor: Redactor | None
    ) -> tuple[BackgroundTask, _LoopThread]:
        with self._lock:
            if self._is_closed:
                raise ToolError("the command was not run: the tool was closed")
            running = [task.id for task in self._tasks.values() if task.is_running]
            if len(running) >= MOST_TASKS:
                raise ToolError(
                    f"the command was not run: {len(running)} background commands run already ({', '.join(running)}), "
                    "and no more may; end one with bash_stop"
                )
            ended = [task.id for task in self._tasks.values() if not task.is_running]
            for task_id in ended[: max(0, len(ended) - _MOST_ENDED)]:
                del self._tasks[task_id]
            self._count += 1
            task = self._tasks[f"b{self._count}"] = BackgroundTask(f"b{self._count}", command, timeout, redactor)
            if self._thread is None:
                self._thread = _LoopThread()
                weakref.finalize(self, self._thread.stop)
            return task, self._thread

    def stop_all(self) -> None:
        """Ends the running ones, and waits a few seconds for their end. More can be started afterwards."""
        running = self.running
        for task in running:
            task.stop()
        deadline = time.monotonic() + _CLOSING
        for task in running:
            task.over.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Ends all of them, and waits a few seconds for their end. Idempotent."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        self.stop_all()
        if thread is not None:
            thread.stop()


class _LoopThread:
    """A thread with an event loop. It must live as long as its commands: some back ends end them with it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.starting = asyncio.Lock()
        """Commands start one after the other, so that later ones find the network of the first."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = threading.Lock()
        threading.Thread(target=self._run, name="swink-background", daemon=True).start()

    def stop(self) -> None:
        """Lets the thread end. Idempotent. Any thread may call it, and the garbage collector."""
        if not self._is_stopping.acquire(blocking=False):
            return  # a second stop would interrupt the clean-up
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left, timeout=_CLOSING))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


async def _begin(
    task: BackgroundTask,
    spawn: SpawnFn,
    thread: _LoopThread,
    announcer: weakref.ref[Announcer] | None,
    on_end: Callable[[], None] | None,
) -> None:
    try:
        async with thread.starting:
            task.process = await spawn()
    except BaseException as error:
        task.has_ended(None, str(error) or type(error).__name__)
        task.over.set()
        raise
    _announce(announcer, TaskStarted(task.id, task.command))
    watching = asyncio.get_running_loop().create_task(_watch(task, task.process, announcer, on_end))
    thread.tasks.add(watching)
    watching.add_done_callback(thread.tasks.discard)


async def _watch(
    task: BackgroundTask,
    process: SandboxedProcess,
    announcer: weakref.ref[Announcer] | None,
    on_end: Callable[[], None] | None,
) -> None:
    looking = asyncio.get_running_loop().create_task(_look_behind(process))
    # The end if this is cancelled because the thread ends: the command was told to end with all that it started.
    end: CommandEnd | None = CommandEnd(None, "SIGKILL", "cancelled", is_gone=False, seconds=0.0)
    problem = ""
    try:
        command = RunningCommand(process, task.hear, timeout=task.timeout, is_urgent=False)
        end = await command.run(task.stopped)
    except SandboxError as error:
        end, problem = None, str(error)
    finally:
        looking.cancel()
        task.has_ended(end, problem)
        try:
            if on_end is not None:
                with suppress(RuntimeError):  # the interpreter ends: the store has recorded that the run is open
                    await asyncio.to_thread(on_end)
        finally:
            _announce(announcer, TaskEnded(task.id, task.exit_code))
            task.over.set()


async def _look_behind(process: SandboxedProcess) -> None:
    while True:
        await asyncio.sleep(_LOOK_BEHIND_AGAIN)
        await process.look_behind(is_last=False)


def _announce(announcer: weakref.ref[Announcer] | None, event: TaskStarted | TaskEnded) -> None:
    hearer = None if announcer is None else announcer()
    if hearer is not None:
        hearer.announce(event)


# -- reports for the model -----------------------------------------------------------------------------------


def started(task: BackgroundTask, details: dict[str, Any]) -> AgentToolResult:
    """The result of a call that started a background command, with these details."""
    return AgentToolResult.text(
        f'[{task.id} runs in the background: bash_output(id="{task.id}") gives its output, bash_stop(id="{task.id}") '
        "ends it]",
        {"task": task.id, **details},
    )


def with_ends(result: AgentToolResult, tasks: BackgroundTasks) -> AgentToolResult:
    """The result, with a line for each background command that ended and whose end the model does not know yet."""
    ended = tasks.newly_ended()
    if not ended:
        return result
    lines = [f'{task.id} ended: {task.state}; bash_output(id="{task.id}") has its last output' for task in ended]
    return AgentToolResult((*result.content, Text(in_brackets(lines))), result.details, result.is_error)


async def looked_at(task: BackgroundTask, ctx: ToolContext) -> AgentToolResult:
    """The output of a background command since the last look, and whether it runs."""
    is_running = task.is_running
    new = await in_thread(ctx, task.take)  # searching a long output for secrets takes a while
    if not is_running:
        task.is_told = task.is_seen = True
    ran = task.seconds
    state = f"running for {ran:,.{1 if ran < _FEW_SECONDS else 0}f} s" if is_running else task.state
    endings = [f"{task.id}: {state}"]
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
