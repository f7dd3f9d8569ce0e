"""Calls that wait for an answer, in a run: they are deferred, or closed without an answer.

    defer       the call gets a pending result, which is recorded at once
    close       a run without answers rejects the waiting calls before anything else

`pending` has the rules by which a history shows waiting calls; `resuming` acts on answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs, to_builtins

from ..events import DeferralKind, ToolCallDeferred, ToolExecutionEnd
from ..tool import AgentToolResult
from ..types import LLM_MESSAGES, ToolOutcome, ToolResultMessage
from .pending import Pending, WaitingCall, decoded_messages, unclosed_calls, waiting_calls
from .state import Run
from .tool_call import CallState

_REJECTED, _PENDING = ToolOutcome.REJECTED, ToolOutcome.PENDING
_TEXTS: dict[DeferralKind, str] = {
    "approval": "tool call waiting: it needs an approval, and has no answer yet",
    "external": "tool call waiting: its result is not there yet",
    "delegate": "tool call waiting: a call that it made has no answer yet",
}
"""The texts for a model that is asked nevertheless, for example by another program that has the history."""
_CLOSED = "the conversation went on without an answer"


def defer(run: Run, call: CallState, kind: DeferralKind, reason: str, scope: dict[str, Any]) -> None:
    """Lets a call wait, with the arguments as they are now."""
    reason, note = (run.redactor.redact(text) if text else "" for text in (reason, call.note))
    keep_waiting(run, call, Pending(kind, call.arguments, reason, scope, note=note))


def keep_waiting(run: Run, call: CallState, pending: Pending) -> None:
    """Gives a call its pending result, and records it. The arguments are masked on disk, but not in memory."""
    call.waiting = message = ToolResultMessage(
        call.id, _TEXTS[pending.kind], True, pending.as_details(), call.name, outcome=_PENDING
    )
    run.executing.pop(call.id, None)
    recorder = run.transcript.recorder
    if recorder is not None:
        recorder.resolved(message, call.index, run.state, call.facts(pending.reason, recorder.call_facts))
    if run.audience.all:
        run.emit(ToolCallDeferred(call.id, call.name, call.arguments, pending.kind, pending.reason))


def keep_injected(run: Run, results: tuple[ToolResultMessage, ...]) -> tuple[ToolResultMessage, ...]:
    """Keeps the messages of policies with the last waiting call: in the history, they would end the waiting. Returns
    the turn's results, with the changed result of that call if it is one of them.

    An application's own messages cannot be kept: their types are not known when they are read.
    """
    kept = [message for source, message in run.pending if source == "policy" and type(message) in LLM_MESSAGES]
    waiting = waiting_calls(run.transcript.history)[1]
    if not kept or not waiting:
        return results
    last = waiting[-1]
    pending = structs.replace(last.pending, injected=(*last.pending.injected, *map(to_builtins, kept)))
    new = structs.replace(last.result, details=pending.as_details())
    run.transcript.replace(last.result, new)
    run.pending = [(source, message) for source, message in run.pending if message not in kept]
    return tuple([new if result is last.result else result for result in results])


def release_injected(run: Run, waiting: Iterable[WaitingCall]) -> None:
    """Queues the messages that these calls kept, before messages that were injected since."""
    kept = [message for one in waiting for message in decoded_messages(one.pending.injected) or ()]
    run.pending[:0] = [("policy", message) for message in kept]


def close_waiting(run: Run) -> None:
    """Rejects the waiting calls, because another run begins. Records and reports this before anything else."""
    recorder = run.transcript.recorder
    reply, waiting = unclosed_calls(run.transcript.history)
    if reply is None:
        return
    for one in waiting:
        result = AgentToolResult.error(f"tool call rejected: {_CLOSED}")
        message = ToolResultMessage(one.call.id, result.content, True, tool_name=one.call.name, outcome=_REJECTED)
        if recorder is not None:
            asked = "asked" if one.pending.kind == "approval" else None
            changed = None if one.pending.arguments == one.call.arguments else one.pending.arguments
            facts = recorder.call_facts(0.0, asked, reason=_CLOSED, is_started=False, arguments=changed)
            recorder.resolved(message, one.index, run.state, facts)
        run.transcript.take_place(one.position, one.result, message)
        if run.audience.all:
            run.emit(
                ToolExecutionEnd(
                    one.call.id, one.call.name, result, True, _REJECTED, _CLOSED, 0.0, one.pending.arguments
                )
            )
    run.places = tuple([one.position for one in waiting])
    release_injected(run, waiting)
