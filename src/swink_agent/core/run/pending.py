"""Calls that wait for an answer: how a history shows them, and which answers fit.

A waiting call has a result with `outcome=pending`. The details of that result hold everything about the wait, so any
copy of a history, even one from a file, shows which calls wait.

    a call waits          until a user or assistant message follows its result
    a later result        of the same call replaces the pending one
    damaged details       the call cannot be answered, and does not prevent answers to other calls

Owns these rules and the details. `dispatch` defers calls, and `deferral` acts on answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..approval import Approve, ApproveWith, PendingCall, Reject
from ..encoding.codec import decode_message
from ..errors import NotPending
from ..events import DeferralKind
from ..exchanges import last_exchange
from ..tool import AgentToolResult, Toolbox
from ..types import AgentMessage, AssistantMessage, Text, ToolCall, ToolOutcome, ToolResultMessage
from ..values.checks import a_kind, is_not
from ..values.data import as_json, as_json_data
from ..values.decoders import json_decoder
from ..values.value import Value

Answer: TypeAlias = Approve | ApproveWith | Reject | bool | AgentToolResult
"""An answer that `resume` takes: an approval, a rejection, or the result of a call that the application ran."""

LOST = (
    "outcome unknown: this tool call had started, and its result was never recorded. It may have done all of its work, "
    "some of it, or none: look before you repeat it."
)
"""The result that the model reads for a call that a crash interrupted."""


class Pending(Value, frozen=True, omit_defaults=True):
    """The details of a pending result: what the call waits for."""

    kind: DeferralKind
    arguments: dict[str, Any]  # the arguments to run with, after changes by policies
    reason: str = ""
    scope: dict[str, Any] = {}
    is_masked: bool = False
    """Whether a secret was masked when it was stored. Then the arguments are not the approved ones, and cannot run."""
    note: str = ""
    """A text for the model after the result, if an approval changed the arguments of an external call."""
    messages: tuple[Any, ...] = ()  # the messages of a delegate, in which a call waits
    state: dict[str, Any] = {}  # the state of that delegate
    injected: tuple[Any, ...] = ()
    """Messages that policies injected meanwhile. They enter the conversation when no call waits."""

    def as_details(self) -> dict[str, Any]:
        return as_json_data(msgspec.json.decode(as_json(self)))

    @classmethod
    def of(cls, result: ToolResultMessage) -> Pending | None:
        """Decodes the details of a pending result; returns `None` for any other result, and for invalid details."""
        if result.outcome is not ToolOutcome.PENDING:
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
    inner: tuple[PendingCall, ...] = ()  # the calls that wait inside its delegate, with their ids there

    def calls(self) -> tuple[PendingCall, ...]:
        """Returns the call itself, or the calls that wait inside its delegate."""
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
    """Decodes the messages that a pending result keeps; returns `None` if one of them is not a message."""
    if not messages:
        return ()
    try:
        return tuple([decode_message(msgspec.json.encode(message)) for message in messages])
    except (TypeError, ValueError, RecursionError):
        return None


def pending_calls(messages: Sequence[AgentMessage]) -> tuple[PendingCall, ...]:
    """Returns the calls of a history that wait for an answer, in call order."""
    return tuple([call for waiting in waiting_calls(messages)[1] for call in waiting.calls()])


def waiting_calls(messages: Sequence[AgentMessage]) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    """Returns the reply whose calls wait, and those calls; `None` and nothing if no call waits."""
    reply, found = _unanswered(messages, passes_users=False)
    waiting = tuple([one for call in found if (one := _answerable(call)) is not None])
    return (reply if waiting else None), waiting


def unclosed_calls(messages: Sequence[AgentMessage]) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    """Works like `waiting_calls`, but includes calls that stopped waiting because a user message follows, and calls
    that cannot be answered. Does not look inside delegates."""
    return _unanswered(messages, passes_users=True)


def _unanswered(
    messages: Sequence[AgentMessage], *, passes_users: bool
) -> tuple[AssistantMessage | None, tuple[WaitingCall, ...]]:
    last = last_exchange(messages)
    if not last.pending or (last.is_left and not passes_users):
        return None, ()
    found: list[WaitingCall] = []
    for index in last.pending:
        result = last.results[index]
        assert result is not None
        if (pending := Pending.of(result)) is not None:
            position = next(at for at in range(len(messages) - 1, -1, -1) if messages[at] is result)
            found.append(WaitingCall(last.calls[index], index, position, result, pending))
    return (last.reply if found else None), tuple(found)


def _answerable(one: WaitingCall) -> WaitingCall | None:
    """Returns the call, with the calls that wait inside its delegate; `None` if it cannot be answered."""
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

    Raises `ValueError` for no answers or an ambiguous id, `NotPending` for an id that does not wait, and `TypeError`
    for an answer that does not fit its call. Then none of the answers counts.
    """
    if not isinstance(cast("object", answers), Mapping):
        raise TypeError(f"answers must be a mapping from call ids to answers, not {a_kind(answers)}")
    if not answers:
        raise ValueError("there are no answers: give a mapping from the ids of waiting calls to their answers")
    calls = pending_calls(messages)
    waiting = {call.call_id: call for call in calls}
    if len(waiting) < len(calls):  # ids may contain slashes, so two joined ids may be equal
        counts = Counter([call.call_id for call in calls])
        if doubled := [call_id for call_id in answers if counts[call_id] > 1]:
            raise ValueError(
                f"two calls wait under the id {doubled[0]!r}: it is unclear which one the answer is for, so neither "
                "can be answered; prompt() rejects both and continues"
            )
    unknown = [call_id for call_id in answers if call_id not in waiting]
    if unknown:
        raise NotPending(unknown)
    return {call_id: checked_answer(answer, waiting[call_id]) for call_id, answer in answers.items()}


def check_new_arguments(
    answers: Mapping[str, Answer], messages: Sequence[AgentMessage], tools: Toolbox | object
) -> None:
    """Raises `ValueError` for an `ApproveWith` whose arguments the schema of the tool refuses. Tools that a function of
    the turn makes are not known yet."""
    for call in pending_calls(messages):
        answer = answers.get(call.call_id)
        if not isinstance(answer, ApproveWith):
            continue
        box: object = tools
        for name in call.delegates:
            tool = box.by_name.get(name) if isinstance(box, Toolbox) else None
            inside = getattr(tool, "tools_inside", None)
            box = None if inside is None else inside()
        if isinstance(box, Toolbox) and call.name in box.by_name:
            problem = box.problems(call.name, answer.arguments)
            if problem is not None:
                raise ValueError(f"the arguments for the call {call.call_id!r} of {call.name} do not fit: {problem}")


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
            f"{which} is external, so its answer must be an AgentToolResult or Reject, not {type(answer).__name__}"
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
                return ApproveWith(as_json_data(answer.arguments), answer.note)
            except ValueError as error:
                raise TypeError(f"the arguments for {which} are {error}") from None
        case _:
            raise TypeError(
                f"{which} waits for Approve, ApproveWith, Reject, a bool or an AgentToolResult: "
                f"not {type(answer).__name__}"
            )
