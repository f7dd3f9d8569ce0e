"""Calls that wait for an answer, in a run: they are deferred, or closed without an answer.

    defer       the call gets a pending result, which is recorded at once
    close       a run that brings no answers: what waits is rejected, before anything else

Owns these two. `core.pending` has the rules by which a history shows what waits; `resuming` acts on answers.
"""

from __future__ import annotations

from typing import Any

from ..events import DeferralKind, ToolCallDeferred, ToolExecutionEnd
from ..pending import Pending, unclosed_calls
from ..tool import AgentToolResult
from ..types import ToolOutcome, ToolResultMessage
from .state import Run
from .tool_call import CallState

__all__ = ["close_waiting", "defer", "keep_waiting"]

_REJECTED, _PENDING = ToolOutcome.REJECTED, ToolOutcome.PENDING
_TEXTS: dict[DeferralKind, str] = {
    "approval": "tool call waiting: it needs an approval, and has no answer yet",
    "external": "tool call waiting: its result is not there yet",
    "delegate": "tool call waiting: a call that it made has no answer yet",
}
"""What a model reads if it is asked nevertheless, for example by another program that has the history."""
_CLOSED = "the conversation went on without an answer"


# -- deferring -----------------------------------------------------------------------------------------------


def defer(run: Run, call: CallState, kind: DeferralKind, reason: str, scope: dict[str, Any]) -> None:
    """Lets a call wait, with the arguments as they are now."""
    reason, note = (run.redactor.redact(text) if text else "" for text in (reason, call.note))
    keep_waiting(run, call, Pending(kind, call.arguments, reason, scope, note=note))


def keep_waiting(run: Run, call: CallState, pending: Pending) -> None:
    """Gives a call its pending result, and records it. The arguments are masked on disk, but not in memory."""
    call.waiting = message = ToolResultMessage(
        call.id, _TEXTS[pending.kind], True, pending.as_details(), call.name, outcome=_PENDING
    )
    run.executing.discard(call.id)
    recorder = run.transcript.recorder
    if recorder is not None:
        recorder.resolved(message, call.index, run.state, call.facts(pending.reason, recorder.call_facts))
    if run.audience.all:
        run.emit(ToolCallDeferred(call.id, call.name, call.arguments, pending.kind, pending.reason))


# -- closing -------------------------------------------------------------------------------------------------


def close_waiting(run: Run) -> None:
    """Rejects what waits, because another run begins. Tells and records it before anything else."""
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
