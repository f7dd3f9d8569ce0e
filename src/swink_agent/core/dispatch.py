"""One batch of tool calls, from the model's message to a result for each call, in call order.

    screen    calls cut off by the length limit; pre-dispatch policies over the whole batch; unknown tools
    approve   in call order, before anything runs
    execute   validate, then run group by group, all calls of a group at once; poll for steering as they finish

Owns the life of a batch. Every call gets exactly one result and one `ToolExecutionEnd`, whatever happens: what has
no result when the batch is left, for whatever reason, gets one that says why. Updates are relayed in `run/relay`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .approval import ApprovalMode, Approve, ApproveWith, Grant, ProposedCall, Reject
from .errors import ToolError
from .events import ToolApprovalRequested, ToolApprovalResolved, ToolExecutionEnd, ToolExecutionStart
from .policy import PolicyContext, PreDispatchContext, Skip
from .run.consulting import consult_before_dispatch
from .run.failures import as_agent_error
from .run.relay import masked_result, masked_unless_long
from .run.state import Run
from .run.supervisor import LAST_MOMENTS, Interrupted
from .run.tool_call import PendingCall, not_an_object
from .tool import AgentTool, AgentToolResult, ToolContext, as_result, error_result
from .types import AssistantMessage, PolicyStop, StopReason, Text, ToolCall, ToolOutcome, ToolResultMessage
from .values.value import copy_json, frozen_json, show

if TYPE_CHECKING:
    from .journal import Recorder

__all__ = ["STEERED", "dispatch"]

STEERED = "tool call cancelled: user requested steering interrupt"
ABORTED = "tool call cancelled: the run was aborted"
CUT_OFF = "tool call not run: the reply reached its length limit inside the arguments; send a shorter call"

GRACE = 0.05
"""Seconds that a running tool has to finish by itself when steering or an abort interrupts its batch."""

_ENABLED, _BYPASSED = ApprovalMode.ENABLED, ApprovalMode.BYPASSED
_RAN, _FAILED, _CANCELLED, _INVALID = ToolOutcome.RAN, ToolOutcome.FAILED, ToolOutcome.CANCELLED, ToolOutcome.INVALID
_SKIPPED = ToolOutcome.SKIPPED
_MESSAGE = attrgetter("message")

log = logging.getLogger("swink_agent")


async def dispatch(
    run: Run, message: AssistantMessage, calls: Sequence[ToolCall]
) -> tuple[tuple[ToolResultMessage, ...], bool]:
    """The results of a message's calls, and whether steering interrupted them."""
    batch = _Batch(run, message, calls)
    try:
        if batch.needs_screening:
            await batch.screen()
        if batch.needs_approval:
            await batch.approve()
        await batch.execute()
    except Interrupted:
        pass
    if batch.running or batch.unresolved:
        await batch.leave()
    return tuple(map(_MESSAGE, batch.calls)), batch.was_steered


class _Batch:
    __slots__ = (
        "_finished",
        "_steering_deadline",
        "calls",
        "needs_approval",
        "needs_screening",
        "redactor",
        "run",
        "running",
        "supervisor",
        "unresolved",
        "was_steered",
    )

    def __init__(self, run: Run, message: AssistantMessage, calls: Sequence[ToolCall]) -> None:
        self.run = run
        self.supervisor = run.supervisor
        self.redactor = run.redactor
        self.calls: list[PendingCall] = []
        self.was_steered = False
        self.unresolved: dict[PendingCall, None] = {}
        self.running: dict[PendingCall, None] = {}
        self._finished: list[PendingCall] = []
        self._steering_deadline: float | None = None
        # What most batches do not need is not even begun: a coroutine costs as much as the look that makes it
        # unnecessary.
        self.needs_screening = bool(run.config.pre_dispatch_policies)
        is_all_asked = run.config.approval_mode == _ENABLED
        self.needs_approval = False
        find = run.toolbox.find
        for index, block in enumerate(calls):
            tool = find(block.name)
            call = PendingCall(run, tool, index, block.id, block.name, block.arguments, block.arguments)
            self.calls.append(call)
            self.unresolved[call] = None
            if tool is None:
                self.needs_screening = True
            elif is_all_asked or getattr(tool, "requires_approval", False):
                self.needs_approval = True  # or so it seems: each call is looked at in its turn
            if block.partial_json is not None:
                if message.stop_reason == StopReason.LENGTH:
                    self._refuse(call, CUT_OFF, ToolOutcome.INCOMPLETE)
                else:
                    self._refuse(call, not_an_object(block.name, block.partial_json), _INVALID)

    def _resolve(self, call: PendingCall, result: AgentToolResult, outcome: ToolOutcome) -> None:
        """Gives the call its one result, in which no secret is left."""
        run = self.run
        if call.note:
            result = msgspec.structs.replace(result, content=(*result.content, Text(f"\n{call.note}")))
        if result is not call.masked:
            result = masked_result(self.redactor, result)
        call.message = message = ToolResultMessage(
            call.id, result.content, result.is_error, result.details, call.name, outcome=outcome
        )
        del self.unresolved[call]
        run.executing.discard(call.id)
        if run.transcript.recorder is not None:
            run.transcript.recorder.resolved(message, call.index, run.state)
        if run.audience.all:
            run.emit(ToolExecutionEnd(call.id, call.name, result, result.is_error, outcome))

    def _refuse(self, call: PendingCall, why: str, outcome: ToolOutcome) -> None:
        """Gives a call that did not come to a result of its own one that says why."""
        self._resolve(call, AgentToolResult.error(why), outcome)

    async def leave(self) -> None:
        """Ends what still runs, and gives every call that has no result one that says why."""
        if self.running:
            await self._end_running()
        is_stopped = self.run.stopped_by is not None and not self.supervisor.is_interrupted
        for call in list(self.unresolved):
            self._refuse(call, self._why_not_run(), ToolOutcome.SKIPPED if is_stopped else _CANCELLED)

    def _why_not_run(self) -> str:
        stop = self.run.stopped_by
        if self.supervisor.is_interrupted:
            return ABORTED
        if stop is None:
            return STEERED
        text = f"tool call not run: policy {stop.policy} stopped the run"
        return f"{text}: {stop.reason}" if stop.reason else text

    # -- screening -----------------------------------------------------------------------------------------------

    async def screen(self) -> None:
        """Every call passes the pre-dispatch policies before any is put up for approval."""
        if self.run.config.pre_dispatch_policies:
            snapshot = self.run.policy_context()
            for call in list(self.unresolved):
                await self._screen_one(call, snapshot)
                if self.run.stopped_by is not None:
                    return
        for call in list(self.unresolved):
            if call.tool is None:
                names = ", ".join(self.run.toolbox) or "none"
                self._refuse(call, f"unknown tool {show(call.name)}; available: {names}", ToolOutcome.UNKNOWN_TOOL)

    async def _screen_one(self, call: PendingCall, snapshot: PolicyContext) -> None:
        is_ours = call.name in self.run.unasked_tools
        context = PreDispatchContext(snapshot, call.id, call.name, copy_json(call.arguments), is_ours)
        verdict, messages = await consult_before_dispatch(
            self.run.config.pre_dispatch_policies, context, self.supervisor
        )
        self.run.queue("policy", messages)
        match verdict:
            case None:  # by far the most, so it is asked first
                arguments = _frozen(context.arguments)
                if arguments is None:
                    self._refuse(call, "tool call skipped: a policy set arguments that hold themselves", _SKIPPED)
                else:
                    call.arguments = arguments
            case PolicyStop():
                self.run.stopped_by = verdict
            case Skip():
                self._refuse(call, f"tool call skipped: {verdict.reason}", ToolOutcome.SKIPPED)

    # -- approval ------------------------------------------------------------------------------------------------

    async def approve(self) -> None:
        for call in list(self.unresolved):
            if self.run.stopped_by is not None or self.supervisor.is_interrupted:
                return
            if not self._needs_approval(call) or await self._is_foreseen(call):
                continue
            scope = await self._scope(call)
            if scope is None:
                continue
            self.run.emit(ToolApprovalRequested(call.id, call.name, copy_json(call.arguments)))
            answer = Reject("the run was aborted")
            try:
                answer = await self._ask(call, scope)
            finally:
                approved = not isinstance(answer, Reject)
                self.run.emit(ToolApprovalResolved(call.id, call.name, approved))
            if isinstance(answer, Reject):
                text = f"tool call rejected: {answer.reason}" if answer.reason else "tool call rejected"
                self._refuse(call, text, ToolOutcome.REJECTED)
                continue
            if isinstance(answer, ApproveWith):
                call.arguments, call.note = answer.arguments, answer.note
                if self.run.config.pre_dispatch_policies:
                    await self._screen_one(call, self.run.policy_context())
                scope = None if call.message is not None else await self._scope(call)
            if scope is not None:
                call.grant = Grant(call.name, call.arguments, scope)

    async def _is_foreseen(self, call: PendingCall) -> bool:
        """Whether the tool says that the call would be refused, and gave it that result: then nobody is asked."""
        foresee = getattr(call.tool, "foresee", None)
        if foresee is None or self.run.toolbox.problems(call.name, call.arguments) is not None:
            return False
        arguments, context = copy_json(call.arguments), self._context_for(call)
        try:
            refusal = await self.supervisor.wait(self.run.threads.run(lambda: foresee(arguments, context)))
        except ToolError as error:
            refusal = error_result(error)
        except Exception:  # it may not happen at all: what is wrong with it will be told in its place
            log.debug("%s could not say whether it would act", call.name, exc_info=True)
            return False
        if refusal is not None:
            self._resolve(call, refusal, _FAILED)
        return refusal is not None

    async def _scope(self, call: PendingCall) -> dict[str, Any] | None:
        """Where and how the tool says that it would act; `None` if it says that it would not, and has its result.

        It may look at files or try a sandbox out, so it is asked in a thread. One that fails to say is given a scope
        that nothing it does will match.
        """
        scope_of = getattr(call.tool, "approval_scope", None)
        if scope_of is None:
            return {}
        arguments = copy_json(call.arguments)
        try:
            return copy_json(await self.supervisor.wait(self.run.threads.run(lambda: scope_of(arguments))))
        except ToolError as error:
            self._resolve(call, error_result(error), _FAILED)
            return None
        except Exception as error:
            log.debug("%s could not say where it would act", call.name, exc_info=True)
            return {"unknown": type(error).__name__}

    def _needs_approval(self, call: PendingCall) -> bool:
        mode = self.run.config.approval_mode
        is_asked_for = mode == _ENABLED or getattr(call.tool, "requires_approval", False)
        return bool(is_asked_for) and mode != _BYPASSED and call.name not in self.run.unasked_tools

    async def _ask(self, call: PendingCall, scope: dict[str, Any]) -> Approve | ApproveWith | Reject:
        """The answer, in which anything but a clear yes is a no."""
        if self.supervisor.is_interrupted:
            return Reject("the run was aborted")
        if self.run.config.approve is None:
            return Reject("it needs approval and there is nobody to ask: give the agent an approve callback")
        request = ProposedCall(call.id, call.name, copy_json(call.arguments), copy_json(scope))
        try:
            answer: object = await self.supervisor.ask(self.run.config.approve, request)
        except Exception as error:
            log.exception("the approval callback failed: the call of %s is rejected", call.name)
            return Reject(f"the approval callback failed: {type(error).__name__}")
        match answer:
            case Approve() | Reject():
                return answer
            case ApproveWith() if isinstance(cast("object", answer.arguments), dict):
                arguments = _frozen(answer.arguments)
                if arguments is None:
                    return Reject("the approval callback answered arguments that hold themselves")
                return ApproveWith(arguments, answer.note if isinstance(cast("object", answer.note), str) else "")
            case True:
                return Approve()
            case False:
                return Reject()
            case _:
                return Reject(f"the approval callback answered {type(answer).__name__}, which is no approval")

    # -- execution -----------------------------------------------------------------------------------------------

    async def execute(self) -> None:
        run, supervisor = self.run, self.supervisor
        if run.stopped_by is not None:
            return
        ready = list(self.unresolved)
        groups = [ready] if run.config.tool_execution == "concurrent" else await self._groups(ready)
        if groups is None:
            return
        for group in groups:
            if self.was_steered or supervisor.is_interrupted:
                return
            recorder = run.transcript.recorder
            if recorder is not None:
                self._record_starts(group, recorder)
                if not recorder.is_safe(run.state) and not await self._may_start():
                    return
            is_alone = len(group) == 1  # else they all start before the first of them does anything
            for call in group:
                self._start(call, is_alone)
            if is_alone and self._finished and not supervisor.is_interrupted:
                self._finish(self._finished.pop())  # it ended at once: there is nothing to wait for
                if (run.has_to_poll or run.steering) and await run.poll("steering"):
                    self._steer()
            if self.running:
                await self._wait_for_running()

    def _record_starts(self, group: list[PendingCall], recorder: Recorder) -> None:
        """Has it on record that these calls start, before any of them does."""
        toolbox = self.run.toolbox
        for call in group:
            if call.tool is not None and toolbox.problems(call.name, call.arguments) is None:
                call.is_checked = True
                arguments = call.arguments
                changed = None if arguments is call.asked or arguments == call.asked else arguments
                recorder.tool_started(call.index, call.id, call.name, changed)

    async def _may_start(self) -> bool:
        """Waits until what is on record is safe; refuses what is left if that fails."""
        run = self.run
        try:
            await run.make_durable()
        except Exception as error:
            run.refusal = as_agent_error(error, "the journal")
            for call in list(self.unresolved):
                self._refuse(call, f"tool call not run: {run.refusal}", ToolOutcome.NEVER_RAN)
            return False
        return True

    async def _groups(self, ready: list[PendingCall]) -> list[list[PendingCall]] | None:
        """The calls in the groups that the strategy makes; `None` if it made nonsense, and every call an error."""
        strategy = self.run.config.tool_execution
        if isinstance(strategy, str):
            return [[call] for call in ready]
        try:
            calls = [ToolCall(call.id, call.name, copy_json(call.arguments)) for call in ready]
            groups = [list(group) for group in await self.supervisor.ask(strategy.partition, calls)]
            if sorted(index for group in groups for index in group) != list(range(len(ready))):
                raise ValueError(f"{groups} does not hold each index from 0 to {len(ready) - 1} once")
        except Exception as error:
            log.exception("the tool execution strategy failed: no call of the batch is run")
            for call in ready:
                self._refuse(call, f"tool call not run: tool execution strategy: {error}", ToolOutcome.NEVER_RAN)
            return None
        return [[ready[index] for index in group] for group in groups]

    def _start(self, call: PendingCall, is_alone: bool) -> None:
        """Starts a call whose arguments are valid."""
        run, tool = self.run, call.tool
        if tool is None or self.supervisor.is_interrupted:
            return
        problem = None if call.is_checked else run.toolbox.problems(call.name, call.arguments)
        if problem is not None:
            self._refuse(call, problem, _INVALID)
            return
        run.executing.add(call.id)
        if run.audience.all:
            run.emit(ToolExecutionStart(call.id, call.name, copy_json(call.arguments)))
            if self.supervisor.is_interrupted:
                return  # whoever saw the start called it off
        call.context = context = self._context_for(call, call.report)
        self.running[call] = None
        work = self._invoke(call, tool, context)
        call.task = self.supervisor.begin(work) if is_alone else self.supervisor.spawn(work)
        if call.task is not None and self._finished:
            call.given = None  # it came to its end at once, but not well: its task is yet to say so

    def _context_for(
        self, call: PendingCall, on_update: Callable[[AgentToolResult], None] | None = None
    ) -> ToolContext:
        run = self.run
        return ToolContext(
            call.id,
            run.cancel,
            run.state,
            run.config.execution_root,
            on_update,
            run.threads,
            call.grant,
            run.id,
            run.transcript,
            self.redactor,
        )

    async def _invoke(self, call: PendingCall, tool: AgentTool, context: ToolContext) -> None:
        """Gets the tool's result; whatever it raises is an error result, an attempt to end the program included."""
        try:
            given = await tool.execute(copy_json(call.arguments), context)
            result = given if type(given) is AgentToolResult else as_result(given, tool.name)
            masked = masked_unless_long(self.redactor, result)
            if masked is None:  # looking through it for secrets here would keep everything else waiting
                masked = await self.run.threads.run(lambda: masked_result(self.redactor, result))
            call.given = call.masked = masked
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            call.given = error_result(error)
        finally:
            self._finished.append(call)
            self.supervisor.wake()

    async def _wait_for_running(self) -> None:
        """Takes results as they come, until nothing runs or the run is aborted.

        Steering is polled after each result, and whenever it is known to wait.
        """
        while self.running:
            if not self._finished:
                await self.supervisor.park(self._has_news, self._steering_deadline)
            if self.supervisor.is_interrupted:
                return
            if self.run.backlog:
                for relay in list(self.run.backlog):
                    relay.pump()
            while self._finished:
                self._finish(self._finished.pop(0))
                may_be_steered = not self.was_steered and (self.run.has_to_poll or self.run.steering)
                if may_be_steered and await self.run.poll("steering"):
                    self._steer()
            if not self.was_steered and self.run.steering and await self.run.poll("steering"):
                self._steer()
            if self._steering_deadline is not None and self.supervisor.loop.time() >= self._steering_deadline:
                self._steering_deadline = None
                late = [call for call in self.running if not call.finishes_when_steered]
                await self._stop(late, STEERED, self.supervisor.loop.time() + GRACE)
            if self.run.channel is not None and self.run.channel.is_full:
                await self.supervisor.park(self.run.channel.has_room)

    def _has_news(self) -> bool:
        """Whether a tool has finished, steering waits, or there is room again for updates that found none."""
        if self._finished or (not self.was_steered and self.run.steering):
            return True
        channel = self.run.channel
        return bool(self.run.backlog and channel is not None and channel.has_room())

    def _steer(self) -> None:
        """Asks what is running to come to an end; tools that finish when steered are left alone."""
        self.was_steered = True
        self._steering_deadline = self.supervisor.loop.time() + GRACE
        for call in self.running:
            if not call.finishes_when_steered:
                call.call_off()

    async def _end_running(self) -> None:
        """An abort: a tool that listens for it has a moment to end by itself, the others are stopped at once."""
        late = [call for call in self.running if not call.is_done]
        listening = [call for call in late if call.is_listening]
        for call in late:
            if call not in listening and call.task is not None:
                call.task.cancel()
        if listening:
            until = self.supervisor.deadline - LAST_MOMENTS + GRACE
            await self.supervisor.park(lambda: all(call.is_done for call in listening), until, through_interrupt=True)
        stopped = [call for call in late if call not in listening or not call.is_done]
        await self._stop([*stopped, *[call for call in self.running if call not in stopped]], ABORTED, late=stopped)

    async def _stop(
        self,
        calls: list[PendingCall],
        why: str,
        until: float | None = None,
        late: list[PendingCall] | None = None,
    ) -> None:
        """Ends calls by force: one that had not finished by itself has no say in its result."""
        if late is None:
            late = [call for call in calls if not call.is_done]
        await self.supervisor.stop([call.task for call in late if call.task is not None], until)
        for call in calls:
            self._finish(call, why if call in late else None)

    def _finish(self, call: PendingCall, forced: str | None = None) -> None:
        """Takes what a call that is over came to, unless it was ended by force."""
        if call not in self.running:
            return  # it was stopped, and came to its end after all
        del self.running[call]
        context = call.context
        call.close()
        result, task = call.given, call.task
        if result is None or forced is not None or (task is not None and task.cancelled()):
            why = STEERED if self.was_steered else "tool call cancelled from within"
            self._refuse(call, forced or why, _CANCELLED)
            return
        self._resolve(call, result, _RAN if not result.is_error else _outcome_of_error(context))


def _outcome_of_error(context: ToolContext | None) -> ToolOutcome:
    """What became of a call whose tool ended by itself, with an error."""
    if context is not None and context.has_invalid_arguments:
        return _INVALID
    return _CANCELLED if context is not None and context.is_called_off else _FAILED


def _frozen(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """A copy that nobody can change; `None` if there is no end to it."""
    try:
        return frozen_json(arguments)
    except RecursionError:
        return None
