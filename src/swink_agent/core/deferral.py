"""Calls that wait for an answer, from one run to the next: how they are closed, and the turn that acts on answers.

    a run with answers      begins with the turn of the reply that made the calls (`AnsweredTurn`)
    any other run           rejects the waiting calls before anything else (`close_waiting`)
    injected meanwhile      messages of policies wait with the last call (`keep_injected`, `release_injected`)

The answered calls run, and their results replace the pending ones. The others keep waiting. The calls run exactly as
they were approved: `approve` is not asked again, but pre-dispatch policies are.

`run/pending` has the rules by which a history shows waiting calls; `dispatch` defers calls, and runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import to_builtins
from msgspec.json import decode as decode_json
from msgspec.structs import replace

from .approval import Approve, ApproveWith, Reject
from .approving import tell_answer
from .calls import CallState
from .dispatch import Batch
from .encoding.codec import encode_message
from .events import ToolExecutionEnd
from .run.pending import (
    LOST,
    Answer,
    Pending,
    WaitingCall,
    decoded_messages,
    pending_calls,
    unclosed_calls,
    waiting_calls,
)
from .run.state import Resumption, Run
from .tool import AgentToolResult
from .types import LLM_MESSAGES, AssistantMessage, ToolOutcome, ToolResultMessage
from .values.data import as_json_data

_CLOSED = "the conversation went on without an answer"
_MASKED = (
    "a secret in its arguments was masked when the conversation was stored, so what was approved cannot run; "
    "make the call again"
)
_NOT_A_DELEGATE = "it waited for a call inside a delegate, and this tool is not a delegate; make the call again"
_CHANGED = "a policy changed the arguments after they were approved"


def keep_injected(run: Run, results: tuple[ToolResultMessage, ...]) -> tuple[ToolResultMessage, ...]:
    """Keeps the messages of policies with the last waiting call: in the history, they would end the waiting. Returns
    the turn's results, with the changed result of that call if it is one of them.

    An application's own messages cannot be kept: their types are not known when they are read.
    """
    kept = [message for source, message in run.inbox.taken if source == "policy" and type(message) in LLM_MESSAGES]
    shown = kept if run.masks is None else run.entered_messages(kept)
    waiting = waiting_calls(run.transcript.history)[1]
    if not kept or not waiting:
        return results
    last = waiting[-1]
    pending = replace(last.pending, injected=(*last.pending.injected, *map(to_builtins, shown)))
    new = replace(last.result, details=pending.as_details())
    run.transcript.replace(last.result, new)
    run.inbox.taken = [(source, message) for source, message in run.inbox.taken if message not in kept]
    return tuple([new if result is last.result else result for result in results])


def release_injected(run: Run, waiting: Iterable[WaitingCall]) -> None:
    """Queues the messages that these calls kept, before messages that were injected since."""
    kept = [message for one in waiting for message in decoded_messages(one.pending.injected) or ()]
    run.inbox.taken[:0] = [("policy", message) for message in kept]


def close_waiting(run: Run) -> None:
    """Rejects the waiting calls, because another run begins. Records and reports this before anything else."""
    recorder = run.transcript.recorder
    reply, waiting = unclosed_calls(run.transcript.history)
    if reply is None:
        return
    for one in waiting:
        result = AgentToolResult.error(f"tool call rejected: {_CLOSED}")
        message = ToolResultMessage(
            one.call.id, result.content, True, tool_name=one.call.name, outcome=ToolOutcome.REJECTED
        )
        if recorder is not None:
            asked = "asked" if one.pending.kind == "approval" else None
            changed = None if one.pending.arguments == one.call.arguments else one.pending.arguments
            facts = recorder.call_facts(0.0, asked, reason=_CLOSED, is_started=False, arguments=changed)
            recorder.resolved(message, one.index, run.state, facts)
        run.transcript.take_place(one.position, one.result, message)
        run.emit(
            ToolExecutionEnd(
                one.call.id, one.call.name, result, True, ToolOutcome.REJECTED, _CLOSED, 0.0, one.pending.arguments
            )
        )
    run.resumption = Resumption(replaced_positions=tuple([one.position for one in waiting]))
    release_injected(run, waiting)


# -- the turn that acts on answers ---------------------------------------------------------------------------


class AnsweredTurn:
    """The turn of an earlier reply, with the answers to its calls."""

    def __init__(self, run: Run, resumption: Resumption) -> None:
        answers, resumption.answers = resumption.answers or {}, None
        self._run = run
        self._resumption = resumption
        reply, waiting = waiting_calls(run.transcript.history)
        assert reply is not None, "the answers were checked against this history"
        self.message: AssistantMessage = reply
        self.pending = pending_calls(run.transcript.history)
        self._answered: list[tuple[WaitingCall, dict[str, Answer]]] = []
        self._others: list[WaitingCall] = []
        for one in waiting:
            if own := _own(one, answers):
                self._answered.append((one, own))
            else:
                self._others.append(one)

    async def dispatch(self) -> tuple[tuple[ToolResultMessage, ...], bool]:
        """Acts on the answers; returns the results, in call order, and whether steering interrupted the calls.

        Steering also cancels the calls without an answer: the user continues without them.
        """
        run, resumption = self._run, self._resumption
        batch = _AnsweredBatch(run, self.message, self._answered, resumption)
        _, was_steered = await batch.results()
        resumption.delegate_answers.clear()  # of calls that did not run: a later call with the same id starts fresh
        if was_steered:
            batch.cancel_others(self._others)
        results: list[ToolResultMessage] = []
        for call, one in batch.waited.items():
            assert call.message is not None
            run.transcript.take_place(one.position, one.result, call.message)
            results.append(call.message)
        resumption.replaced_positions = tuple([one.position for one in batch.waited.values()])
        run.is_waiting = bool(waiting_calls(run.transcript.history)[1])
        release_injected(run, batch.waited.values())
        return tuple(results), was_steered


class _AnsweredBatch(Batch):
    """The answered calls. They run exactly as they were approved."""

    def __init__(
        self,
        run: Run,
        message: AssistantMessage,
        answered: list[tuple[WaitingCall, dict[str, Answer]]],
        resumption: Resumption,
    ) -> None:
        super().__init__(run, message, ())
        self._resumption = resumption
        self.waited: dict[CallState, WaitingCall] = {}
        self._answers: dict[CallState, dict[str, Answer]] = {}
        for one, answers in answered:
            self._answers[self._add(one)] = answers

    def _add(self, one: WaitingCall) -> CallState:
        call = self.add(one.index, one.call, as_json_data(one.pending.arguments))
        call.note = one.pending.note
        self.waited[call] = one
        return call

    def cancel_others(self, others: list[WaitingCall]) -> None:
        """Cancels the calls without an answer, because of steering."""
        for one in others:
            self.cancel(self._add(one), "steering")
        self.waited = dict(sorted(self.waited.items(), key=lambda item: item[1].index))

    async def prepare(self) -> None:
        """Reports the answers, and resolves the calls that do not run. The others are ready to run afterwards."""
        approved: list[tuple[CallState, Approve | ApproveWith]] = []
        for call, answers in self._answers.items():
            one = self.waited[call]
            answer = answers.get(call.id)
            if one.pending.kind == "delegate":
                self._go_on_inside(call, one, answers)
                continue
            if one.pending.kind == "approval":
                tell_answer(self.run, call, answer if isinstance(answer, (ApproveWith, Reject)) else Approve())
            match answer:
                case AgentToolResult():
                    self.resolve(call, answer, ToolOutcome.FAILED if answer.is_error else ToolOutcome.RAN)
                case Approve() | ApproveWith():
                    approved.append((call, answer))
                case _:
                    await self.act_on(call, answer if isinstance(answer, Reject) else Reject(), {})
        await self._screen_approved(approved)

    def _go_on_inside(self, call: CallState, one: WaitingCall, answers: dict[str, Answer]) -> None:
        """Passes the answers to the delegate, which the call continues from where it stopped."""
        if call.tool is None:
            self.refuse_unknown(call)
            return
        if getattr(call.tool, "is_delegate", False) is not True:  # a call of this tool was not approved
            self.refuse(call, f"tool call rejected: {_NOT_A_DELEGATE}", ToolOutcome.REJECTED, _NOT_A_DELEGATE)
            return
        inside = decoded_messages(one.pending.messages) or (), _inside(one, answers), one.pending.state
        self._resumption.delegate_answers[call.id] = inside

    def _record_starts(self, group: list[CallState]) -> None:
        """Also records, for a delegate in which calls keep waiting, the result that counts if the program ends inside
        it."""
        super()._record_starts(group)
        recorder, inside = self.run.transcript.recorder, self._resumption.delegate_answers
        if recorder is None:
            return
        for call in group:
            if call.id in inside:
                one = self.waited[call]
                kept = _if_it_ends_inside(one.pending, inside[call.id][1])
                if kept is not None:
                    message = replace(one.result, details=kept.as_details())
                    recorder.resolved(message, call.index, self.run.state)
                    recorder.forget(message)  # it is never part of this history: another result follows

    async def _screen_approved(self, approved: list[tuple[CallState, Approve | ApproveWith]]) -> None:
        """Shows approved calls to the pre-dispatch policies again, and gives them their grants."""
        snapshot = self.run.policy_context() if self.run.config.pre_dispatch_policies else None
        for call, answer in approved:
            pending = self.waited[call].pending
            if call.tool is None:
                self.refuse_unknown(call)
            elif isinstance(answer, Approve) and pending.is_masked:
                self.refuse(call, f"tool call rejected: {_MASKED}", ToolOutcome.REJECTED, _MASKED)
            elif isinstance(answer, Approve) and snapshot is not None:
                before, taken = call.arguments, len(self.run.inbox.taken)
                await self.screen_one(call, snapshot)
                del self.run.inbox.taken[taken:]  # the policies' messages for this call were kept when it was deferred
                if call.message is None and call.arguments is not before:
                    self.refuse(call, f"tool call rejected: {_CHANGED}", ToolOutcome.REJECTED, _CHANGED)
            if call.message is None and self.run.stopped_by is None:
                await self.act_on(call, answer, pending.scope)
            if self.run.stopped_by is not None:
                return


def _own(one: WaitingCall, answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Returns the answers for this call, or for the calls inside its delegate."""
    return {call.call_id: answers[call.call_id] for call in one.calls() if call.call_id in answers}


def _inside(one: WaitingCall, answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Returns these answers by the ids that the calls have inside the delegate."""
    return {call_id.removeprefix(f"{one.call.id}/"): answer for call_id, answer in answers.items()}


def _if_it_ends_inside(pending: Pending, answers: Mapping[str, Answer]) -> Pending | None:
    """Returns the pending state of a delegate if the program ends while the delegate acts on these answers.

    Approved calls may have run, so their results are lost. Calls without an answer wait. Returns `None` if all calls
    are answered: the delegate then asks its model and may do anything, so the call of the delegate itself is lost.
    """
    messages = list(decoded_messages(pending.messages) or ())
    waits_on = False
    for one in waiting_calls(messages)[1]:
        own = _own(one, answers)
        if not own:
            waits_on = True
            continue
        kept = _if_it_ends_inside(one.pending, _inside(one, own)) if one.pending.kind == "delegate" else None
        if kept is not None:
            waits_on = True
            messages[one.position] = replace(one.result, details=kept.as_details())
        elif one.pending.kind == "delegate" or isinstance(own[one.call.id], (Approve, ApproveWith)):
            messages[one.position] = ToolResultMessage(
                one.call.id, LOST, True, tool_name=one.call.name, outcome=ToolOutcome.LOST
            )
    if not waits_on:
        return None
    return replace(pending, messages=tuple([decode_json(encode_message(message)) for message in messages]))
