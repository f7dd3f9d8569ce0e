"""The user's hooks: programs that run when a run starts, waits or ends, and before and after a tool.

A hook before a tool decides: the call runs only if the hook ends with exit code 0. The others only observe: if one
fails, a warning is logged. The settings of hooks are in `settings.hook_tables`, their processes in `own_program`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from swink_agent.core.agent.agent import Agent
from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    DelegateEvent,
    MessageUpdate,
    ToolCallDeferred,
    ToolExecutionEnd,
)
from swink_agent.core.policy import PolicyContext, PreDispatchContext, Skip
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import StopReason, ToolOutcome, UserMessage, extract_text
from swink_agent.core.values.value import Value

from ..settings.hook_tables import HookEvent, HookSettings
from .own_program import OwnProgram, ProgramEnd

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalQuestion, AskFn

_AT_ONCE = 8
"""Programs that run at the same time. Others wait for their turn, and their timeout has not begun."""
_MOST_TEXT = 64 * 1024
"""Characters of a result, a prompt or an answer that a hook gets. Arguments are never cut: a hook decides on them."""
_MOST_SHOWN = 2_000
"""Characters of a hook's output in a result or a warning."""
_RUNNING = frozenset({ToolOutcome.RAN, ToolOutcome.FAILED, ToolOutcome.CANCELLED})

log = logging.getLogger("swink_agent.hooks")


class Hooks:
    """The hooks of one agent. All methods but `close` belong to the event loop of its runs."""

    def __init__(
        self,
        settings: Sequence[HookSettings],
        *,
        folder: Path,
        redactor: Redactor,
        outside: Callable[[], Sequence[str]],
    ) -> None:
        """`outside` returns the folders that commands may write to: no hook is started from there."""
        self._settings = tuple(settings)
        self._folder = folder
        self._redactor = redactor
        self._outside = outside
        self._session_of: Callable[[], str | None] = lambda: None
        self.run_id = ""
        """The run that questions belong to. Empty between runs."""
        self._is_watching = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="swink-hook")
        self._running: set[OwnProgram] = set()
        self._observing: dict[asyncio.Task[None], HookEvent] = {}
        self._is_taken_over = False

    def policy(self) -> HookPolicy:
        """The policy that lets hooks decide about calls, and lets a run wait for them."""
        return HookPolicy(self)

    def watch(self, agent: Agent) -> None:
        """From now on, runs the observing hooks for every run of the agent."""
        self._is_watching = True
        self._session_of = lambda: getattr(agent.journal, "id", None)
        agent.subscribe(_Watch(self, is_main=True).on_event)

    def watch_call(self, agent: Agent) -> None:
        """Runs the hooks after tools for an agent that makes one call on behalf of another program."""
        self._is_watching = True
        agent.subscribe(_Watch(self, is_main=False).on_event)

    def telling(self, ask: AskFn) -> AskFn:
        """Returns an `ask` that starts the hooks for `waits`, and asks without waiting for them."""

        def tell_and_ask(question: ApprovalQuestion) -> Any:
            request = question.request
            self.observe("waits", self.run_id, request.delegates, **_call(request), reason=question.why)
            return ask(question)

        return tell_and_ask

    async def finish(self, seconds: float | None = None) -> None:
        """Waits for the observing hooks. If a limit is given, hooks that run longer are stopped."""
        late = set(self._observing)
        if late:
            _, late = await asyncio.wait(late, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def close(self) -> None:
        """Kills every program that still runs, unless they were taken over.

        Safe to call again, from any thread and from a signal handler.
        """
        if self._is_taken_over:
            return
        for process in list(self._running):
            process.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def take_over(self, other: Hooks) -> None:
        """Takes over the running hooks of the conversation's last agent, which will be closed. Call before any run.

        Hooks that wait for their turn still run. From now on only this object stops them.
        """
        self._threads.shutdown(wait=False)
        self._threads, self._running, self._observing = other._threads, other._running, other._observing
        other._is_taken_over = True

    # -- running ---------------------------------------------------------------------------------------------------

    def wanted(self, event: HookEvent, tool: str = "") -> list[HookSettings]:
        return [hook for hook in self._settings if hook.is_for(event, tool)]

    def observe(self, event: HookEvent, run_id: str, delegates: Sequence[str], **told: Any) -> None:
        """Runs the hooks for an event, one after the other, while the run continues."""
        wanted = self.wanted(event, told.get("tool", "")) if self._is_watching else []
        if wanted:
            task = asyncio.get_running_loop().create_task(self._observe(wanted, event, run_id, delegates, told))
            self._observing[task] = event
            task.add_done_callback(lambda done: self._observing.pop(done, None))

    def pending(self, event: HookEvent) -> list[asyncio.Task[None]]:
        return [task for task, which in self._observing.items() if which == event]

    def give_up(self) -> None:
        """Kills the hooks that observe the aborted run. Hooks for the end of earlier runs continue."""
        for task, event in self._observing.items():
            if event != "run_end":
                task.cancel()

    async def _observe(
        self, wanted: list[HookSettings], event: HookEvent, run_id: str, delegates: Sequence[str], told: dict[str, Any]
    ) -> None:
        for hook in wanted:
            try:
                problem = await self.run(hook, run_id, delegates, told)
            except Exception as error:  # for instance, its input cannot be written as JSON
                problem = HookProblem(f"it was not run: {type(error).__name__}: {error}")
            if problem is not None:
                log.warning("hook %s (%s): %s", hook.name, event, problem.sentence)

    async def run(
        self, hook: HookSettings, run_id: str, delegates: Sequence[str], told: dict[str, Any]
    ) -> HookProblem | None:
        """Runs one hook to its end; returns the problem, if any. Cancelling it kills the program."""
        process = OwnProgram(hook.argv, timeout=hook.timeout, outside=self._outside)
        common = {
            "event": hook.event,
            "hook": hook.name,
            "folder": str(self._folder),
            "session": self._session_of(),
            "run_id": run_id or None,
            "delegates": list(delegates),
        }

        def work() -> ProgramEnd:
            self._running.add(process)
            try:
                return process.run(msgspec.json.encode({**common, **self._redactor.redact_value(told)}) + b"\n")
            finally:
                self._running.discard(process)

        try:
            working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError:  # closed meanwhile
            return HookProblem("it was not started: swink is ending")
        try:
            end = await asyncio.shield(working)
        except asyncio.CancelledError:
            process.give_up()
            working.cancel()
            raise
        except OSError as error:
            return HookProblem(f"{hook.command[0]} could not be started: {error.strerror or error}")
        if end.code is None:
            return HookProblem(f"it did not end within {hook.timeout:g} seconds and was stopped")
        if end.code == 0:
            return None
        how = f"exit code {end.code}" if end.code > 0 else f"signal {-end.code}"
        return HookProblem(f"it ended with {how}", _cut(end.text, _MOST_SHOWN), is_answer=end.code > 0)


class HookProblem(Value, frozen=True):
    """How a hook ended without exit code 0, in our words, and its output."""

    how: str
    text: str = ""
    is_answer: bool = False
    """Whether the hook ended by itself."""

    @property
    def sentence(self) -> str:
        return f"{self.how}: {self.text}" if self.text else self.how


class HookPolicy:
    """Lets the hooks before a tool decide, and makes the run wait for the hooks at its start and after tools."""

    name = "hooks"

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def pre_turn(self, ctx: PolicyContext) -> Awaitable[None] | None:
        """The first request waits for the hooks at the start."""
        return _all(self._hooks.pending("run_start"))

    def pre_dispatch(self, ctx: PreDispatchContext) -> Awaitable[Skip | None] | None:
        wanted = [] if ctx.is_final_answer else self._hooks.wanted("before_tool", ctx.name)
        return self._decide(wanted, ctx) if wanted else None

    def post_turn(self, ctx: PolicyContext) -> Awaitable[None] | None:
        """The next request waits for the hooks after tools: they may change files."""
        return _all(self._hooks.pending("after_tool"))

    async def _decide(self, wanted: list[HookSettings], ctx: PreDispatchContext) -> Skip | None:
        told = _call(ctx)
        for hook in wanted:
            problem = await self._hooks.run(hook, ctx.run_id, ctx.delegates, told)
            if problem is None:
                continue
            if problem.is_answer:
                return Skip(f"the hook {hook.name} refused it: {problem.text or problem.how}")
            log.warning("hook %s (before_tool): %s", hook.name, problem.sentence)
            return Skip(f"the hook {hook.name} must allow it and did not: {problem.sentence}")
        return None


class _Watch:
    """Follows the events of one agent, and of its delegates."""

    def __init__(self, hooks: Hooks, *, is_main: bool) -> None:
        self._hooks = hooks
        self._is_main = is_main
        self._runs: dict[tuple[str, ...], str] = {}
        """The ids of the current runs, by the chain of calls that leads to each."""

    def on_event(self, event: AgentEvent) -> None:
        if type(event) is MessageUpdate:  # by far the most frequent
            return
        try:
            self._take(event, (), ())
        except Exception:
            log.exception("the hooks of an event were not run")

    def _take(self, event: AgentEvent, calls: tuple[str, ...], delegates: tuple[str, ...]) -> None:
        hooks, is_whole_run = self._hooks, self._is_main and not calls
        match event:
            case DelegateEvent():
                self._take(event.event, (*calls, event.call_id), (*delegates, event.name))
            case AgentStart():
                self._runs[calls] = event.run_id
                if is_whole_run:
                    hooks.run_id = event.run_id
                    prompts = [message for message in event.prompts if isinstance(message, UserMessage)]
                    text = "\n".join(extract_text(message.content) for message in prompts)
                    hooks.observe("run_start", event.run_id, (), kind=event.kind, prompt=_cut(text, _MOST_TEXT))
            case ToolCallDeferred() if event.kind == "external":
                hooks.observe("waits", self._runs.get(calls, ""), delegates, **_call(event), reason=event.reason)
            case ToolExecutionEnd() if event.outcome in _RUNNING and event.seconds:
                facts = {name: getattr(event, name) for name in ("reason", "seconds", "is_error")}
                text = _cut(extract_text(event.result.content), _MOST_TEXT)
                told = {**_call(event), "outcome": str(event.outcome), **facts, "result": text}
                hooks.observe("after_tool", self._runs.get(calls, ""), delegates, **told)
            case AgentEnd():
                run_id = self._runs.pop(calls, "")
                if is_whole_run:
                    hooks.run_id = ""
                    self._ended(event, run_id)
            case _:
                pass

    def _ended(self, event: AgentEnd, run_id: str) -> None:
        result, told = event.result, {}
        if result is not None:
            if result.stop_reason is StopReason.ABORTED:
                self._hooks.give_up()
            told = {
                "stop_reason": str(result.stop_reason),
                "stopped_by": None if event.stopped_by is None else msgspec.to_builtins(event.stopped_by),
                "error": result.error,
                "text": _cut(result.text, _MOST_TEXT),
                "usage": msgspec.to_builtins(result.total_usage),
                "cost": result.total_cost.amount,
                "pending": [_call(call) for call in result.pending],
            }
        self._hooks.observe("run_end", run_id, (), **told)


def _call(call: Any) -> dict[str, Any]:
    """The input of every hook about a call: the tool, the id of the call and its arguments."""
    return {"tool": call.name, "call_id": call.call_id, "arguments": call.arguments}


def _all(tasks: Sequence[asyncio.Task[None]]) -> Awaitable[None] | None:
    async def wait() -> None:
        await asyncio.wait(tasks)

    return wait() if tasks else None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"
