"""Runs the tool calls of one reply as a batch, and returns a result for each call, in call order.

    screen     refuse calls that were cut off; ask the pre-dispatch policies about each call; refuse unknown tools
    approve    ask for approvals in call order, before any call runs
    run        group by group: validate the arguments, start all calls of a group, poll for steering as they finish
    leave      suspend the calls that wait for an answer, and give every other call without a result one with the reason

Owns the batch. Every call gets exactly one result, and one `ToolExecutionEnd` unless it stays deferred. `calls` has one
call and how its tool is run, `approving` asks for approval, `output` passes updates on, and `deferral` runs the calls
of a reply whose answers came later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Literal, TypeAlias

import msgspec

from .approval import Approve, ApproveWith, Defer, Grant, Reject, scope_as_approved
from .approving import Failed, decide, needs_approval, scope_of
from .calls import CallState, not_an_object, run_attempts
from .errors import as_agent_error
from .events import DeferralKind, ToolCallDeferred, ToolExecutionEnd, ToolExecutionStart
from .output import takes_long
from .policy import PolicyContext, PreDispatchContext, Skip
from .record import CallRecord
from .run.consulting import consult_before_dispatch
from .run.observer import observed
from .run.pending import Pending
from .run.state import Run
from .tool import AgentTool, AgentToolResult, ToolContext, as_result, error_result
from .types import (
    AssistantMessage,
    PolicyStop,
    StopReason,
    Text,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    extract_text,
)
from .values.data import as_json_data
from .values.nesting import too_deep
from .values.value import copy_json, is_same_json, show
from .waits import AFTER_ABORT, Interrupted

_OTHER_ACCESS = "the answer changed the access that was asked about; make the call again to ask for other access"
CUT_OFF = "the reply reached its length limit inside the arguments"

_Cancellation: TypeAlias = Literal["steering", "aborted", "tool"]
"""The reason of a cancelled call in events and records."""
_CANCELLED_TEXTS: dict[_Cancellation, str] = {
    "steering": "tool call cancelled: user requested steering interrupt",
    "aborted": "tool call cancelled: the run was aborted",
    "tool": "tool call cancelled from within",
}
"""The result that the model reads, by reason."""
_WAITING_TEXTS: dict[DeferralKind, str] = {
    "approval": "tool call waiting: it needs an approval, and has no answer yet",
    "external": "tool call waiting: its result is not there yet",
    "delegate": "tool call waiting: a call that it made has no answer yet",
}
"""The texts for a model that is asked nevertheless, for example by another program that has the history."""

GRACE = 0.05  # seconds that a running tool gets to finish by itself when steering or an abort interrupts its batch

log = logging.getLogger("swink_agent")


def dispatch(
    run: Run, message: AssistantMessage, calls: Sequence[ToolCall]
) -> Coroutine[Any, Any, tuple[tuple[ToolResultMessage, ...], bool]]:
    """Runs a message's calls; returns their results and whether steering interrupted them."""
    return Batch(run, message, calls).results()


class Batch:
    """The calls of one reply while they are processed."""

    def __init__(self, run: Run, message: AssistantMessage, calls: Sequence[ToolCall]) -> None:
        self.run = run
        self.supervisor = run.supervisor
        self.calls: list[CallState] = []
        self.unresolved: dict[CallState, None] = {}  # the calls that have no result yet
        run.records_of_calls = self.records
        self.was_steered = False
        self.running: dict[CallState, None] = {}  # calls that have started and were not passed to `_finish` yet
        self._queued: list[CallState] = []  # calls of this group that have not started
        self._finished: list[CallState] = []  # calls that have ended and have no result yet
        self._steering_deadline: float | None = None
        for index, block in enumerate(calls):
            call = self.add(index, block, block.arguments)
            if block.partial_json is None:
                continue
            if message.stop_reason == StopReason.LENGTH:
                text = f"tool call not run: {CUT_OFF}; send a shorter call"
                self.refuse(call, text, ToolOutcome.INCOMPLETE, CUT_OFF)
            else:
                self.refuse_invalid(call, not_an_object(block.partial_json))

    def add(self, index: int, block: ToolCall, arguments: dict[str, Any]) -> CallState:
        """Adds a call, which will run with these arguments."""
        toolbox = self.run.toolbox
        call = CallState(
            self.run, toolbox.by_name.get(block.name), index, block.id, block.name, block.arguments, arguments
        )
        if toolbox.options and block.name in toolbox.options:
            call.options = toolbox.options[block.name]
        self.calls.append(call)
        self.unresolved[call] = None
        return call

    async def results(self) -> tuple[tuple[ToolResultMessage, ...], bool]:
        """Runs the calls, group by group; returns their results and whether steering interrupted them."""
        run = self.run
        try:
            await self.prepare()
            for group in await self._groups():
                if self.was_steered or run.is_interrupted or run.refusal is not None or run.error is not None:
                    break
                await self._run_group(group)
        except Interrupted:
            pass
        await self.leave()
        run.accounts.settle([call.spent for call in self.calls])
        return tuple([call.message for call in self.calls if call.message is not None]), self.was_steered

    async def prepare(self) -> None:
        """Refuses the calls that must not run. The others are ready to run afterwards."""
        await self.screen()
        await self.approve()

    def records(self) -> tuple[CallRecord, ...]:
        """What is known of the calls so far, for policies."""
        return tuple([call.record() for call in self.calls])

    def resolve(
        self, call: CallState, result: AgentToolResult, outcome: ToolOutcome, reason: str | None = None
    ) -> None:
        """Gives the call its only result, with secrets masked. `reason` defaults to the text of an error result."""
        run, recorder = self.run, self.run.transcript.recorder
        if call.began is not None and call.ended is None:
            # The task was cancelled before it began. Stop its clock here, so that event and record agree.
            call.ended = monotonic()
        if result is not call.masked:
            result = run.entered_result(result)
        if reason is None:
            reason = extract_text(result.content) if result.is_error else ""
        elif reason:
            reason = run.entered(reason)
        call.reason = reason
        if call.note:
            note = run.entered_result(AgentToolResult((Text(f"\n{call.note}"),)))
            result = msgspec.structs.replace(result, content=(*result.content, *note.content))
        call.message = message = ToolResultMessage(
            call.id, result.content, result.is_error, result.details, call.name, outcome=outcome
        )
        del self.unresolved[call]
        run.executing.pop(call.id, None)
        if call.has_slot:
            self._free_slot(call)
        if call.waiting is not None:  # it was deferred, then ended by steering, an abort or a failing journal
            if recorder is not None:
                recorder.forget(call.waiting)
            call.waiting = None
        if recorder is not None:
            recorder.resolved(message, call.index, run.state, call.facts(reason, recorder.call_facts))
        run.emit(
            ToolExecutionEnd(call.id, call.name, result, result.is_error, outcome, reason, call.seconds, call.arguments)
        )

    def _free_slot(self, call: CallState) -> None:
        call.has_slot = False
        if call.tool is not None:
            self.run.slots.leave(call.tool, (self.run.id, call.id))

    def refuse(self, call: CallState, why: str, outcome: ToolOutcome, reason: str | None = None) -> None:
        """Gives a call that was not completed the error result `why`; `reason` is the bare cause."""
        self.resolve(call, AgentToolResult.error(why), outcome, reason)

    def refuse_invalid(self, call: CallState, problem: str) -> None:
        self.refuse(call, f"invalid arguments for {call.name}: {problem}", ToolOutcome.INVALID, problem)

    def cancel(self, call: CallState, why: _Cancellation) -> None:
        self.refuse(call, _CANCELLED_TEXTS[why], ToolOutcome.CANCELLED, why)

    async def leave(self) -> None:
        """Ends running calls, and gives every call without a result one: a deferred call its pending result, any other
        call a result with the reason. A stop, steering or an abort also ends the deferred calls."""
        if not self.unresolved:
            return
        self._leave_queue()
        await self._end_running()
        stop = self.run.stopped_by
        if stop is None and self.run.error is None and not self.supervisor.is_interrupted:
            await self._suspend([call for call in self.unresolved if call.waiting is not None])
        for call in list(self.unresolved):
            if self.supervisor.is_interrupted:
                self.cancel(call, "aborted")
            elif (error := self.run.error) is not None:
                self.refuse(call, f"tool call not run: {error}", ToolOutcome.NEVER_RAN, str(error))
            elif stop is None:
                self.cancel(call, "steering")
            else:
                text = f"tool call not run: policy {stop.policy} stopped the run"
                self.refuse(call, f"{text}: {stop.reason}" if stop.reason else text, ToolOutcome.SKIPPED, stop.reason)

    # -- screening -----------------------------------------------------------------------------------------------

    async def screen(self) -> None:
        """Shows every call to the pre-dispatch policies, before any call is approved."""
        if self.run.config.pre_dispatch_policies:
            snapshot = self.run.policy_context()
            for call in list(self.unresolved):
                await self.screen_one(call, snapshot)
                if self.run.stopped_by is not None:
                    return
        for call in list(self.unresolved):
            if call.tool is None:
                self.refuse_unknown(call)

    def refuse_unknown(self, call: CallState) -> None:
        names = ", ".join(self.run.toolbox) or "none"
        problem = f"unknown tool {show(call.name)}"
        self.refuse(call, f"{problem}; available: {names}", ToolOutcome.UNKNOWN_TOOL, problem)

    async def screen_one(self, call: CallState, snapshot: PolicyContext) -> None:
        shown = copy_json(call.arguments)  # a policy may change them in place
        context = PreDispatchContext(snapshot, call.id, call.name, shown, self.run.is_ours(call.name))
        verdict, messages = await consult_before_dispatch(self.run, context)
        self.run.inbox.add("policy", messages)
        match verdict:
            case None:
                try:
                    if not is_same_json(context.arguments, call.arguments):
                        call.arguments = as_json_data(context.arguments)
                except (ValueError, RecursionError):
                    problem = f"a policy set arguments that are {too_deep()}"
                    self.refuse(call, f"tool call skipped: {problem}", ToolOutcome.SKIPPED, problem)
            case PolicyStop():
                self.run.stopped_by = verdict
            case Skip():
                self.refuse(call, f"tool call skipped: {verdict.reason}", ToolOutcome.SKIPPED, verdict.reason)

    # -- approval ------------------------------------------------------------------------------------------------

    async def approve(self) -> None:
        """Asks about the calls that need approval, one after another, before any call runs."""
        run = self.run
        for call in list(self.unresolved):
            if run.stopped_by is not None or run.error is not None or self.supervisor.is_interrupted:
                return
            if not needs_approval(run, call):
                continue
            decision = await decide(run, call, self.context_for(call), self.make_durable)
            if decision is None:
                return
            if isinstance(decision, Failed):
                self.resolve(call, decision.result, ToolOutcome.FAILED)
            elif isinstance(decision.answer, Defer):
                self.defer(call, "approval", decision.answer.reason, decision.scope)
            else:
                await self.act_on(call, decision.answer, decision.scope)

    async def act_on(self, call: CallState, answer: Approve | ApproveWith | Reject, scope: dict[str, Any]) -> None:
        """Rejects the call, or gives it the grant with which it runs."""
        if isinstance(answer, Reject):
            text = f"tool call rejected: {answer.reason}" if answer.reason else "tool call rejected"
            self.refuse(call, text, ToolOutcome.REJECTED, answer.reason)
            return
        granted: dict[str, Any] | Failed = scope
        if isinstance(answer, ApproveWith):
            call.arguments, call.note = answer.arguments, answer.note
            if self.run.config.pre_dispatch_policies:
                await self.screen_one(call, self.run.policy_context())
            if call.message is not None:
                return
            granted = await scope_of(self.run, call)
            if isinstance(granted, Failed):
                self.resolve(call, granted.result, ToolOutcome.FAILED)
                return
            if not is_same_json(granted.get("access"), scope.get("access")):
                self.refuse(call, f"tool call rejected: {_OTHER_ACCESS}", ToolOutcome.REJECTED, _OTHER_ACCESS)
                return
        call.grant = Grant(call.name, call.arguments, scope_as_approved(granted, answer))

    # -- deferral ------------------------------------------------------------------------------------------------

    def defer(self, call: CallState, kind: DeferralKind, reason: str = "", scope: dict[str, Any] | None = None) -> None:
        """Lets a call wait for an answer, unless its arguments are invalid."""
        problem = self.run.toolbox.problems(call.name, call.arguments)
        if problem is not None:
            self.refuse_invalid(call, problem)
            return
        reason, note = (self.run.entered(text) if text else "" for text in (reason, call.note))
        self._keep_waiting(call, Pending(kind, call.arguments, reason, scope or {}, note=note))

    def _keep_waiting(self, call: CallState, pending: Pending) -> None:
        """Gives a call its pending result, and records it. The arguments are masked on disk, but not in memory."""
        run, recorder = self.run, self.run.transcript.recorder
        call.waiting = message = ToolResultMessage(
            call.id, _WAITING_TEXTS[pending.kind], True, pending.as_details(), call.name, outcome=ToolOutcome.PENDING
        )
        run.executing.pop(call.id, None)
        if recorder is not None:
            recorder.resolved(message, call.index, run.state, call.facts(pending.reason, recorder.call_facts))
        run.emit(ToolCallDeferred(call.id, call.name, call.arguments, pending.kind, pending.reason))

    async def _suspend(self, deferred: list[CallState]) -> None:
        """Gives the deferred calls their pending results, unless steering or an abort interrupts."""
        run = self.run
        if not deferred:
            return
        if not self.was_steered:
            with suppress(Interrupted):
                self.was_steered = await run.inbox.poll("steering")
        if self.was_steered or self.supervisor.is_interrupted:
            return
        for call in deferred:
            call.message = call.waiting
            del self.unresolved[call]
        run.is_waiting = True

    # -- execution -----------------------------------------------------------------------------------------------

    async def _groups(self) -> list[list[CallState]]:
        """Returns the calls to run, in groups that run one after another: none if a policy stopped the run. Calls that
        the application runs are deferred."""
        if self.run.stopped_by is not None or self.run.error is not None:
            return []
        ready = [call for call in self.unresolved if call.waiting is None]
        external = [call for call in ready if call.options.external]
        if external and await self.make_durable():
            for call in external:
                self.defer(call, "external")
            ready = [call for call in ready if call not in external]
        strategy = self.run.config.tool_execution
        if strategy == "concurrent" or not ready:
            return [ready]
        if isinstance(strategy, str):
            return [[call] for call in ready]
        try:
            calls = [ToolCall(call.id, call.name, call.arguments) for call in ready]
            groups = [list(group) for group in await self.supervisor.call(strategy.partition, calls)]
            if sorted(index for group in groups for index in group) != list(range(len(ready))):
                raise ValueError(f"{groups} does not hold each index from 0 to {len(ready) - 1} once")
        except Exception as error:
            log.exception("the tool execution strategy failed: no call of the batch is run")
            for call in ready:
                problem = f"tool execution strategy: {error}"
                self.refuse(call, f"tool call not run: {problem}", ToolOutcome.NEVER_RAN, problem)
            return []
        return [[ready[index] for index in group] for group in groups]

    async def _run_group(self, group: list[CallState]) -> None:
        """Runs the calls of a group until all of them have ended, or the run is interrupted."""
        self._queued = group
        await self._start_queued()
        while self.running or self._queued:
            await self.supervisor.until(self._has_changes, self._steering_deadline)
            if self.supervisor.is_interrupted:
                return
            await self._take_changes()
            if self._queued:
                await self._start_queued()

    async def _start_queued(self) -> None:
        """Starts the queued calls that may start now. The others wait until fewer calls of their tools run."""
        if self.run.error is not None:  # a mask failed, which ends the run
            self._leave_queue()
            return
        queued, self._queued = self._queued, []
        valid: list[CallState] = []
        for call in queued:
            if not self._may_run(call):
                self._queued.append(call)
            elif self._is_valid(call):
                valid.append(call)
        if self._queued:
            self.run.slots.tell(self._look_again)
        if not valid:
            return
        self._record_starts(valid)
        if not await self.make_durable():
            self._leave_queue()
            return
        for call in valid:
            self._start(call)

    def _may_run(self, call: CallState) -> bool:
        """Whether the call may start now. If its tool limits concurrent calls, takes a slot for it."""
        most = call.options.max_concurrent
        if most is None or call.tool is None or call.has_slot:
            return True
        if not self.run.slots.has_room(call.tool, most, self.run.callers):
            return False
        self.run.slots.enter(call.tool, (self.run.id, call.id))
        call.has_slot = True
        return True

    def _look_again(self) -> bool:
        """Takes a free slot for each call that may start now; returns whether a call still waits for one."""
        may_run = [self._may_run(call) for call in self._queued]
        if any(may_run):
            self.supervisor.wake()
        return not all(may_run)

    def _leave_queue(self) -> None:
        """Empties the queue and frees the slots of its calls."""
        queued, self._queued = self._queued, []
        for call in queued:
            if call.has_slot:
                self._free_slot(call)

    def _is_valid(self, call: CallState) -> bool:
        """Whether the arguments fit the schema. Refuses the call if not."""
        problem = self.run.toolbox.problems(call.name, call.arguments)
        if problem is not None:
            self.refuse_invalid(call, problem)
        return problem is None

    def _record_starts(self, group: list[CallState]) -> None:
        """Records that these calls start, before any of them does."""
        recorder = self.run.transcript.recorder
        if recorder is None:
            return
        for call in group:
            changed = None if call.arguments == call.asked else call.arguments
            facts = None if call.approval is None else call.approval_facts(recorder.call_facts)
            recorder.tool_started(call.index, call.id, call.name, changed, facts)

    async def make_durable(self) -> bool:
        """Waits until everything so far is durable: before a call starts, and before a question that may be answered
        elsewhere. If that fails, refuses the calls that do not run yet and returns `False`."""
        run, recorder = self.run, self.run.transcript.recorder
        if recorder is None or recorder.is_safe(run.state):
            return True
        try:
            await run.make_durable()
        except Exception as error:
            run.refusal = as_agent_error(error, "the journal")
            for call in list(self.unresolved):
                if call.context is None:  # calls that run already get their own results
                    self.refuse(call, f"tool call not run: {run.refusal}", ToolOutcome.NEVER_RAN, str(run.refusal))
            return False
        return True

    def _start(self, call: CallState) -> None:
        """Starts a call whose arguments are valid."""
        run, tool = self.run, call.tool
        if tool is None or self.supervisor.is_interrupted:
            return
        run.executing[call.id] = None
        call.began = monotonic()
        scope = None if call.grant is None else call.grant.scope
        run.emit(ToolExecutionStart(call.id, call.name, call.arguments, scope))
        if self.supervisor.is_interrupted:
            return  # a subscriber aborted the run
        call.context = context = self.context_for(call, call.report)
        self.running[call] = None
        work = self._invoke(call, tool, context)
        call.task = self.supervisor.spawn(observed(run.observers, context, work) if run.observers else work)

    def context_for(self, call: CallState, on_update: Callable[[AgentToolResult], None] | None = None) -> ToolContext:
        run = self.run
        return ToolContext(
            call.id,
            run.cancel,
            run.state,
            run.config.execution_root,
            on_update,
            grant=call.grant,
            run_id=run.id,
            conversation=run.transcript,
            run=run,
            deps=run.setup.deps,
            turn_index=run.turn_index,
        )

    async def _invoke(self, call: CallState, tool: AgentTool, context: ToolContext) -> None:
        """Runs the tool; whatever it raises becomes an error result, `SystemExit` included."""
        try:
            result = as_result(await run_attempts(self.run, call, tool, context), tool.name)
            if takes_long(result):
                result = await self.run.threads.run(partial(self.run.entered_result, result))
            else:
                result = self.run.entered_result(result)
            call.given = call.masked = result
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            call.waits_for = _waits_for(error)
            call.given = error_result(error)
        finally:
            call.ended = monotonic()
            self._finished.append(call)
            self.supervisor.wake()

    def _has_changes(self) -> bool:
        """Whether a tool has finished, steering is queued, a queued call has a slot, or delayed updates fit."""
        if self._finished or (not self.was_steered and self.run.inbox.has_steering):
            return True
        if any(call.has_slot for call in self._queued):
            return True
        channel = self.run.channel
        return channel is not None and bool(channel.backlog) and channel.has_room()

    async def _take_changes(self) -> None:
        """Handles calls that have ended, delayed updates that now fit the channel, and steering with its deadline."""
        run = self.run
        while self._finished:
            self._finish(self._finished.pop(0))
            await self._look_for_steering()
        for relay in () if run.channel is None else list(run.channel.backlog):
            relay.pump()
        if run.inbox.has_steering:
            await self._look_for_steering()
        if self._steering_deadline is not None and self.supervisor.loop.time() >= self._steering_deadline:
            self._steering_deadline = None
            late = [call for call in self.running if not call.finishes_when_steered]
            await self._stop(late, "steering", self.supervisor.loop.time() + GRACE)
        if run.channel is not None and run.channel.is_full:
            await self.supervisor.until(run.channel.has_room)

    async def _look_for_steering(self) -> None:
        if not self.was_steered and await self.run.inbox.poll("steering"):
            self._steer()

    def _steer(self) -> None:
        """Cancels the tokens of running calls, except those of tools that finish when steered."""
        self.was_steered = True
        self._leave_queue()
        self._steering_deadline = self.supervisor.loop.time() + GRACE
        for call in self.running:
            if not call.finishes_when_steered:
                call.call_off()

    async def _end_running(self) -> None:
        """Ends running calls after an abort: a tool that uses its token gets time to end by itself."""
        late = [call for call in self.running if not call.is_done]
        listening = [call for call in late if call.is_listening]
        for call in late:
            if call not in listening and call.task is not None:
                call.task.cancel()
        if listening:
            deadline = self.supervisor.deadline - AFTER_ABORT + GRACE
            await self.supervisor.until(lambda: all(call.is_done for call in listening), deadline, after_abort=True)
        stopped = [call for call in late if call not in listening or not call.is_done]
        await self._stop([*stopped, *[call for call in self.running if call not in stopped]], "aborted", late=stopped)

    async def _stop(
        self,
        calls: list[CallState],
        why: _Cancellation,
        deadline: float | None = None,
        late: list[CallState] | None = None,
    ) -> None:
        """Ends calls by force. A call that had not finished gets a cancelled result, whatever it returns."""
        if late is None:
            late = [call for call in calls if not call.is_done]
        # A delegate ends by its cancelled token, without force, so that its events and usage are complete.
        delegates = [call for call in late if call.context in self.run.accounts.live]
        await self.supervisor.outlast([call.task for call in delegates if call.task is not None])
        forced = [call.task for call in late if call not in delegates and call.task is not None]
        await self.supervisor.stop(forced, deadline)
        for call in calls:
            self._finish(call, why if call in late else None)

    def _finish(self, call: CallState, forced: _Cancellation | None = None) -> None:
        """Gives a finished call its own result, unless it was ended by force."""
        context = call.context
        if context is None:
            return  # it was stopped, and has its result
        del self.running[call]
        call.close()
        call.spent = self.run.accounts.spent_by(context)
        result, task = call.given, call.task
        if call.waits_for is not None and forced is None:
            if call.has_slot:
                self._free_slot(call)
            self._keep_waiting(call, call.waits_for)
            return
        if result is None or forced is not None or (task is not None and task.cancelled()):
            is_aborted = self.supervisor.is_interrupted
            self.cancel(call, forced or ("aborted" if is_aborted else "steering" if self.was_steered else "tool"))
            return
        if not result.is_error:
            self.resolve(call, result, ToolOutcome.RAN, "")
            return
        outcome, reason = ToolOutcome.FAILED, None
        if context.has_invalid_arguments and not call.has_timed_out:
            outcome = ToolOutcome.INVALID
        elif context.is_called_off and not call.has_timed_out:  # it saw the cancellation, and returned its own error
            outcome, reason = ToolOutcome.CANCELLED, "aborted" if self.supervisor.is_interrupted else "steering"
        self.resolve(call, result, outcome, reason)


def _waits_for(error: BaseException) -> Pending | None:
    """Returns what a delegate waits for, if its error holds that. Errors of other tools may use the same name."""
    waits_for = error.__dict__.get("waits_for")
    if waits_for is None:
        return None
    return waits_for if type(waits_for) is Pending else None
