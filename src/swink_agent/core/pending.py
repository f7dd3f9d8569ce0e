"""Calls that wait for an answer: how a history shows them, and which answers fit.

A call that waits has a result with `outcome=pending` in its place, and the details of that result say all there is to
know: what it waits for, and what was asked. So any copy of a history, also one from a file, shows what waits.

    a call waits          while no user or assistant message stands behind its result
    a later result        of the same call takes the place of a pending one, wherever it stands behind it
    damaged details       no one can answer the call; the next run that brings no answers closes it, as any other

Owns these rules and the details. `dispatch` defers calls and acts on answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from .approval import Approve, ApproveWith, PendingCall, Reject
from .checks import is_not
from .errors import NotPending
from .events import DeferralKind
from .tool import AgentToolResult
from .types import AgentMessage, AssistantMessage, Text, ToolCall, ToolOutcome, ToolResultMessage, UserMessage
from .values.decoders import json_decoder
from .values.value import Value, frozen_json

Answer: TypeAlias = Approve | ApproveWith | Reject | bool | AgentToolResult
"""What `resume` takes for a call: an approval or rejection of a question, or the result of an external call."""

LOST = (
    "outcome unknown: this tool call had started, and its result was never recorded. It may have done all of its work, "
    "some of it, or none: look before you repeat it."
)
"""What the model reads about a call that a crash interrupted."""

_PENDING = ToolOutcome.PENDING


class Pending(Value, frozen=True, omit_defaults=True):
    """The details of a pending result: what the call waits for."""

    kind: DeferralKind
    arguments: dict[str, Any]  # what would run, as policies left it
    reason: str = ""
    scope: dict[str, Any] = {}
    is_masked: bool = False
    """Whether a secret was masked when it was stored: then it is not what was approved, and cannot run."""
    note: str = ""
    """What the model reads after the result: an approval changed the arguments of a call that runs outside."""
    messages: tuple[Any, ...] = ()  # the messages of a delegate, in which a call waits
    state: dict[str, Any] = {}  # the state of that delegate
    injected: tuple[Any, ...] = ()
    """What policies injected meanwhile. It enters the conversation when nothing waits."""

    def as_details(self) -> dict[str, Any]:
        if self.messages or self.injected:  # lists, as JSON has them, so that what is read equals what was written
            return frozen_json(msgspec.json.decode(msgspec.json.encode(self)))
        return frozen_json(cast("dict[str, Any]", msgspec.to_builtins(self)))

    @classmethod
    def of(cls, result: ToolResultMessage) -> Pending | None:
        """Reads the details of a pending result; `None` for any other result, and for details that are not these."""
        if result.outcome is not _PENDING:
            return None
        try:
            return json_decoder(cls).decode(msgspec.json.encode(result.details))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return None


class WaitingCall(msgspec.Struct, frozen=True):
    """A call of the last reply that has a pending result."""

    call: ToolCall
    index: int  # among the calls of the reply
    position: int  # of the pending result in the history
    result: ToolResultMessage
    pending: Pending
    inner: tuple[PendingCall, ...] = ()  # what waits inside its delegate, as the delegate names it

    def calls(self) -> tuple[PendingCall, ...]:
        """Returns what waits: the call itself, or the calls that wait inside its delegate."""
        pending = self.pending
        if pending.kind != "delegate":
            call = self.call
            return (PendingCall(call.id, call.name, pending.arguments, pending.kind, pending.reason, pending.scope),)
        found: list[PendingCall] = []
        for inner in self.inner:
            way, call_id = (self.call.name, *inner.delegates), f"{self.call.id}/{inner.call_id}"
            found.append(msgspec.structs.replace(inner, call_id=call_id, delegates=way))
        return tuple(found)


def decoded_messages(messages: Sequence[Any]) -> tuple[AgentMessage, ...] | None:
    """Returns messages that a pending result keeps; `None` if one of them is not a message."""
    if not messages:
        return ()
    from .codec import decode_message  # on use: few pending results keep messages

    try:
        return tuple([decode_message(msgspec.json.encode(message)) for message in messages])
    except (TypeError, ValueError, RecursionError):
        return None


def pending_calls(messages: Sequence[AgentMessage]) -> tuple[PendingCall, ...]:
    """Returns the calls of a history that wait for an answer, in call order."""
    return tuple([call for waiting in waiting_calls(messages)[1] for call in waiting.calls()])


def waiting_calls(messages: Sequence[AgentMessage]) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    """Returns the reply whose calls wait, and those calls; `None` and nothing if no call waits."""
    if not messages or type(messages[-1]) is AssistantMessage:  # after most runs
        return None, ()
    reply, found = _find(messages, passes_users=False)
    waiting = tuple([one for call in found if (one := _answerable(call)) is not None])
    return (reply if waiting else None), waiting


def unclosed_calls(messages: Sequence[AgentMessage]) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    """The same, but includes calls that stopped waiting because a user message stands behind them, and those that
    no one can answer. What waits inside delegates is not looked up."""
    if not messages or type(messages[-1]) is AssistantMessage:
        return None, ()
    return _find(messages, passes_users=True)


def _find(
    messages: Sequence[AgentMessage], *, passes_users: bool
) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    results: list[tuple[int, ToolResultMessage]] = []
    position = len(messages)
    for message in reversed(messages):
        position -= 1
        if type(message) is ToolResultMessage:
            results.append((position, message))
        elif type(message) is UserMessage and not passes_users:
            return None, ()
        elif type(message) is AssistantMessage:
            found = _waiting_in(message, results[::-1])
            return (message if found else None), found
    return None, ()


def _waiting_in(reply: AssistantMessage, results: Sequence[tuple[int, ToolResultMessage]]) -> tuple[WaitingCall, ...]:
    by_id: dict[str, tuple[int, ToolResultMessage]] = {}
    for position, result in results:
        first = by_id.get(result.tool_call_id)
        if first is None:
            by_id[result.tool_call_id] = position, result
        elif first[1].outcome is _PENDING:
            by_id[result.tool_call_id] = first[0], result
    found: list[WaitingCall] = []
    for index, call in enumerate(reply.tool_calls):
        there = by_id.pop(call.id, None)  # a second call with the same id does not wait
        pending = None if there is None else Pending.of(there[1])
        if there is not None and pending is not None:
            found.append(WaitingCall(call, index, *there, pending))
    return tuple(found)


def _answerable(one: WaitingCall) -> WaitingCall | None:
    """Returns the call with what waits inside it; `None` if nothing does, or if what the result keeps is damaged."""
    pending = one.pending
    if decoded_messages(pending.injected) is None:
        return None
    if pending.kind != "delegate":
        return one
    try:
        inner = pending_calls(decoded_messages(pending.messages) or ())
    except RecursionError:
        return None
    return msgspec.structs.replace(one, inner=inner) if inner else None


def checked_answers(answers: Mapping[str, Answer], messages: Sequence[AgentMessage]) -> dict[str, Answer]:
    """Returns the answers, with `Approve` and `Reject` in place of bools.

    Raises `ValueError` for no answers at all, `NotPending` for an id that does not wait, and `TypeError` for an answer
    that does not fit its call. Then none of the answers counts.
    """
    if not isinstance(cast("object", answers), Mapping):
        raise TypeError(f"answers must be a mapping from call ids to answers, not a {type(answers).__name__}")
    if not answers:
        raise ValueError("there are no answers: give a mapping from the ids of waiting calls to their answers")
    calls = pending_calls(messages)
    waiting = {call.call_id: call for call in calls}
    if len(waiting) < len(calls):  # ids may hold slashes, so two ways may have the same name
        counts = Counter([call.call_id for call in calls])
        if doubled := [call_id for call_id in answers if counts[call_id] > 1]:
            raise ValueError(
                f"two calls wait under the id {doubled[0]!r}: it does not say which one the answer is for, so neither "
                "can be answered; prompt() rejects both and goes on"
            )
    unknown = [call_id for call_id in answers if call_id not in waiting]
    if unknown:
        raise NotPending(unknown)
    return {call_id: checked_answer(answer, waiting[call_id]) for call_id, answer in answers.items()}


def checked_answer(answer: object, call: PendingCall) -> Answer:
    """Returns the answer, with `Approve` or `Reject` in place of a bool. Raises `TypeError` if it does not fit."""
    which = f"the call {call.call_id!r} of {call.name}"
    if isinstance(answer, AgentToolResult):
        for block in answer.content:
            if isinstance(block, Text) and not isinstance(cast("object", block.text), str):
                raise is_not(f"a text in the result for {which}", block.text, "a string")
        return answer
    if call.kind == "external":
        if isinstance(answer, Reject):
            return answer
        if answer is False:
            return Reject()
        raise TypeError(
            f"{which} runs outside, so its answer is an AgentToolResult, or Reject: not {type(answer).__name__}"
        )
    match answer:
        case bool():
            return Approve() if answer else Reject()
        case Approve() | Reject():
            return answer
        case ApproveWith():
            if not isinstance(cast("object", answer.arguments), dict):
                raise is_not(f"ApproveWith.arguments for {which}", answer.arguments, "a dict")
            if not isinstance(cast("object", answer.note), str):
                raise is_not(f"ApproveWith.note for {which}", answer.note, "a string")
            try:
                return ApproveWith(frozen_json(answer.arguments), answer.note)
            except RecursionError:
                raise TypeError(f"the arguments for {which} contain themselves") from None
        case _:
            raise TypeError(
                f"{which} waits for Approve, ApproveWith, Reject, a bool or an AgentToolResult: "
                f"not {type(answer).__name__}"
            )
