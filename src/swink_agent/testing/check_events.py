"""Checks the events of a run against their grammar, and conversations for valid pairs. For your own agents too."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import TypeVar

import msgspec

from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalEvent,
    ContextCompacted,
    DelegateEvent,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    TaskEnded,
    TaskStarted,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallDeferred,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnEndReason,
    TurnResumed,
    TurnStart,
    UsageAdded,
)
from swink_agent.core.stream import AssistantMessageDelta, TextDelta, ThinkingDelta, ToolCallDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
)

_ToolEvent = ApprovalEvent | ToolExecutionStart | ToolExecutionUpdate | ToolExecutionRetry | ToolExecutionEnd
_LAST_REASONS = (TurnEndReason.ERROR, TurnEndReason.ABORTED, TurnEndReason.STOPPED, TurnEndReason.PENDING)
T = TypeVar("T")


def check_events(events: Iterable[AgentEvent], *, replaces_results: bool = False) -> None:
    """Raises `AssertionError`, which names the event, unless the events are one complete run in the right order.

    The events of a delegate must be one complete run too, between the start and the end of its call.
    `replaces_results`: a policy replaces tool results after a call's end, so the turn's results may differ.
    """
    checker = _Checker()
    checker.replaces_results = replaces_results
    position, event = -1, None
    for position, event in enumerate(events):
        checker.position = position
        checker.take(event)
    if not isinstance(event, AgentEnd):
        raise AssertionError(f"the run has no AgentEnd: {position + 1} events, the last is {event!r}")


class _Checker:
    """One run; `state` is new, run, turn, message, tools or over."""

    def __init__(self) -> None:
        self.position = 0
        self.replaces_results = False
        self.state = "new"
        self.turn_index = 0
        self.added: list[AgentMessage] = []
        self.pieces: list[AssistantMessageDelta] = []
        self.retries = 0
        self.message: AssistantMessage | None = None
        self.calls: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.results: dict[str, AgentToolResult] = {}
        self.delegates: dict[str, _Checker] = {}
        self.closed: list[str] = []
        self.is_resumed = self.has_failed_after_reply = False
        self.last_reason: TurnEndReason | None = None

    def need(self, event: AgentEvent, condition: object, problem: str) -> None:
        if not condition:
            raise AssertionError(f"event {self.position}, {event!r}: {problem} (in state {self.state!r})")

    def take(self, event: AgentEvent) -> None:
        state = self.state
        match event:
            case AgentStart() if state == "new":
                self.state = "run"
            case TurnStart() if state == "run":
                self.start_turn(event)
            case AgentEnd() if state == "run":
                self.end_run(event)
            case ToolExecutionEnd() if state == "run" and self.last_reason is None:
                self.need(event, event.outcome == ToolOutcome.REJECTED, "a call outside of a turn may only be rejected")
                self.closed.append(event.call_id)
            case TurnResumed() if state == "turn" and not self.turn_index and not self.added and not self.closed:
                self.resume_turn(event)
            case MessagesInjected() if state == "turn":
                self.need(event, event.messages, "no messages in it")
                self.added.extend(event.messages)
            case ContextCompacted() if state in ("turn", "message"):
                self.need(event, event.report.is_told, "it reports no change")
                self.need(event, event.report.overflow or state == "turn", "a compaction inside a message")
                self.pieces.clear()
            case UsageAdded() if state in ("turn", "message"):
                self.need(event, event.usage != Usage() or event.cost != Cost(), "it adds nothing")
                if event.source == "overflow":
                    self.pieces.clear()
            case MessageStart() if state == "turn":
                self.state = "message"
                self.pieces.clear()
                self.retries = 0
            case MessageUpdate() if state == "message":
                self.pieces.append(event.delta)
            case MessageRetry() if state == "message":
                self.retries += 1
                self.need(event, event.attempt == self.retries, f"attempt {self.retries} was next")
                self.pieces.clear()
            case ModelFallback() if state == "message":
                self.retries = 0
                self.pieces.clear()
            case MessageEnd() if state == "message":
                self.end_message(event)
            case TurnEnd() if state in ("turn", "tools"):
                self.end_turn(event)
            case TaskStarted() | TaskEnded() if state not in ("new", "over"):
                pass  # background commands are independent of the run
            case DelegateEvent() if state == "tools":
                self.take_delegate_event(event)
            case _ if state == "tools" and isinstance(event, _ToolEvent):
                self.take_tool_event(event)
            case _:
                self.need(event, False, "it cannot occur here")

    def start_turn(self, event: TurnStart) -> None:
        self.need(event, event.turn_index == self.turn_index, f"turn {self.turn_index} was next")
        self.need(event, self.last_reason not in _LAST_REASONS, f"a turn after one that ended {self.last_reason}")
        self.state, self.message, self.calls, self.is_resumed = "turn", None, {}, False
        self.delegates = {}

    def resume_turn(self, event: TurnResumed) -> None:
        """Takes the calls that waited. A call inside a delegate counts as the delegate's call: its id begins with that
        call's id."""
        known = {call.id: call for call in event.message.tool_calls}
        waiting: list[str] = []
        for one in event.pending:
            outer = [call_id for call_id in known if one.delegates and one.call_id.startswith(f"{call_id}/")]
            waiting.append(outer[0] if outer else one.call_id)
        self.need(event, waiting, "no call waited")
        self.need(event, known.keys() >= set(waiting), "a call waited that is not in the message")
        kinds = {one.call_id: one.kind for one in event.pending}
        self.calls = {call_id: "asked" if kinds.get(call_id) == "approval" else "waiting" for call_id in waiting}
        self.names = {call_id: known[call_id].name for call_id in waiting}
        self.results = {}
        self.state, self.message, self.is_resumed = "tools", event.message, True

    def end_message(self, event: MessageEnd) -> None:
        message = event.message
        streamed = self.streamed(TextDelta)
        self.need(event, message.text == streamed, f"its text is not what was streamed: {streamed!r}")
        thinking = "".join(block.thinking for block in message.content if isinstance(block, Thinking))
        self.need(event, thinking == self.streamed(ThinkingDelta), "its thinking is not what was streamed")
        for index, block in enumerate(message.content):
            if isinstance(block, ToolCall):
                arguments = self.streamed(ToolCallDelta, index)
                same = _arguments(arguments) == block.arguments or block.partial_json == arguments
                self.need(event, same, f"the arguments of {block.id!r} are not what was streamed: {arguments!r}")
        self.need(event, not (message.is_failed and message.tool_calls), "a failed message with tool calls")
        self.calls = {call.id: "known" for call in message.tool_calls}
        self.names = {call.id: call.name for call in message.tool_calls}
        self.results = {}
        self.need(event, len(self.calls) == len(message.tool_calls), "two calls with one id")
        self.state, self.message = "tools", message

    def streamed(self, kind: type, index: int | None = None) -> str:
        """Returns the streamed text of one kind, in one block or in all."""
        return "".join(piece.delta for piece in self.pieces if isinstance(piece, kind) and index in (None, piece.index))

    def take_tool_event(self, event: _ToolEvent) -> None:
        before = self.calls.get(event.call_id)
        self.need(event, event.name == self.names.get(event.call_id, event.name), "its call has another name")
        moves = {
            ToolApprovalRequested: ({"known"}, "asked"),
            ToolApprovalResolved: ({"asked"}, "answered"),
            ToolCallDeferred: ({"known", "asked", "approved", "started"}, "deferred"),
            ToolExecutionStart: ({"known", "approved", "waiting"}, "started"),
            ToolExecutionUpdate: ({"started"}, "started"),
            ToolExecutionRetry: ({"started"}, "started"),
            ToolExecutionEnd: ({"known", "asked", "approved", "rejected", "started", "deferred", "waiting"}, "ended"),
        }
        allowed, after = moves[type(event)]
        self.need(event, before in allowed, f"its call is {before or 'not in the message'}")
        if isinstance(event, ToolApprovalRequested):
            self.need(event, "started" not in self.calls.values(), "a tool has started already")
        if isinstance(event, ToolApprovalResolved):
            after = "approved" if event.approved else "rejected"
        if isinstance(event, ToolExecutionEnd):
            self.need(event, event.is_error == event.result.is_error, "is_error differs from the result's")
            is_given = self.is_resumed and before in ("waiting", "approved")
            is_good = event.is_error or before == "started" or is_given
            self.need(event, is_good, "a good result of a call that never started")
            if before in ("asked", "deferred"):
                refused = (ToolOutcome.INVALID, ToolOutcome.REJECTED, ToolOutcome.SKIPPED)
                unanswered = (*refused, ToolOutcome.CANCELLED, ToolOutcome.NEVER_RAN)
                self.need(event, event.outcome in unanswered, "an outcome of a call that has no answer")
            self.results[event.call_id] = event.result
            delegate = self.delegates.get(event.call_id)
            self.need(event, delegate is None or delegate.state == "over", "its delegate's run has no AgentEnd")
        self.calls[event.call_id] = after

    def take_delegate_event(self, event: DelegateEvent) -> None:
        before = self.calls.get(event.call_id)
        self.need(event, before == "started", f"its call is {before or 'not in the message'}")
        self.need(event, event.name == self.names[event.call_id], "its call has another name")
        checker = self.delegates.setdefault(event.call_id, _Checker())
        checker.position, checker.replaces_results = self.position, self.replaces_results
        checker.take(event.event)

    def end_turn(self, event: TurnEnd) -> None:
        self.need(event, event.turn_index == self.turn_index, f"turn {self.turn_index} is open")
        results = [result.tool_call_id for result in event.tool_results]
        if self.state == "turn":
            stopped = event.message is None and event.reason == TurnEndReason.STOPPED
            self.need(event, stopped, "no message, and no policy stopped it")
        else:
            self.check_message(event)
        waiting = {"deferred", "asked", "waiting"} if self.is_resumed else {"deferred"}
        done = {"ended", *waiting}
        self.need(event, all(state in done for state in self.calls.values()), f"open calls: {self.calls}")
        resolved = [call_id for call_id, state in self.calls.items() if state in ("ended", "deferred")]
        self.need(event, results == resolved, f"results {results} for calls {resolved}")
        is_pending = any(state in waiting for state in self.calls.values())
        if event.reason == TurnEndReason.PENDING or event.reason not in _LAST_REASONS:
            self.need(event, is_pending == (event.reason == TurnEndReason.PENDING), f"waiting calls: {self.calls}")
        for result in () if self.replaces_results else event.tool_results:
            if self.calls[result.tool_call_id] == "deferred":
                self.need(event, result.outcome == ToolOutcome.PENDING, f"{result.tool_call_id!r} does not wait")
                continue
            ended = self.results[result.tool_call_id]
            same = (result.content, result.is_error) == (ended.content, ended.is_error)
            self.need(event, same, f"the result of {result.tool_call_id!r} is not that of its end")
        self.added.extend([event.message] if event.message and not self.is_resumed else [])
        self.added.extend(event.tool_results)
        self.state, self.last_reason, self.turn_index = "run", event.reason, self.turn_index + 1

    def check_message(self, event: TurnEnd) -> None:
        message, ended = event.message, self.message
        self.need(event, message is not None and ended is not None, "the turn has lost its message")
        if message is None or ended is None:
            return
        self.need(event, message.tool_calls == ended.tool_calls, "another message than the one that ended")
        match event.reason:
            case TurnEndReason.COMPLETE:
                self.need(event, not self.calls and not ended.is_failed, "it is not complete")
            case TurnEndReason.TOOLS_EXECUTED | TurnEndReason.STEERING_INTERRUPT | TurnEndReason.PENDING:
                self.need(event, self.calls, "there were no tools")
            case TurnEndReason.ERROR:
                # A policy that fails after a turn ends the run, and the turn's message stays as it is.
                self.has_failed_after_reply = not self.is_resumed and ended.stop_reason != StopReason.ERROR
            case _:
                self.need(event, ended.stop_reason != StopReason.ERROR, "its message has an error")

    def end_run(self, event: AgentEnd) -> None:
        begin = [getattr(message, "tool_call_id", None) for message in event.messages[: len(self.closed)]]
        self.need(event, begin == self.closed, "its messages do not begin with the results of the closed calls")
        tail = list(event.messages[len(event.messages) - len(self.added) :])
        self.need(event, tail == self.added, "its messages are not those that the turns added")
        is_failed = event.result is None or event.result.error is not None
        self.need(event, is_failed or not self.has_failed_after_reply, "its last turn failed, and its result did not")
        is_stopped = event.stopped_by is not None
        self.need(
            event, not is_stopped or self.last_reason != TurnEndReason.ABORTED, "stopped by a policy, and aborted too"
        )
        is_explained = is_stopped or self.last_reason != TurnEndReason.STOPPED
        self.need(event, is_explained, "its last turn was stopped, but not by a policy")
        self.state = "over"


def _arguments(text: str) -> object:
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except msgspec.DecodeError:
        return None


async def collect(stream: AsyncIterable[T]) -> list[T]:
    """Returns all items of a stream: of a run, or of a stream function."""
    return [item async for item in stream]


def names(events: Iterable[object]) -> list[str]:
    """Returns the names of the events' types, to compare their order."""
    return [type(event).__name__ for event in events]


def check_conversation(messages: Sequence[AgentMessage]) -> None:
    """Raises `AssertionError` unless every call has exactly one result, directly after it, and every result a call.

    It also refuses an empty assistant message, a message that is not for models, and a failed reply at the end, since
    the model is asked for that reply again.
    """
    expected: list[str] = []
    for position, message in enumerate(messages):
        where = f"message {position} of {len(messages)}, {message!r}"
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id not in expected:
                raise AssertionError(f"{where}: it answers no call (open: {expected})")
            expected.remove(message.tool_call_id)
            continue
        if expected:
            raise AssertionError(f"{where}: it comes before the results of {expected}")
        if isinstance(message, AssistantMessage):
            if not any(_says_something(block) for block in message.content):
                raise AssertionError(f"{where}: it has no content")
            expected = [call.id for call in message.tool_calls]
        elif not isinstance(message, UserMessage):
            raise AssertionError(f"{where}: it is not a message for a model")
    if expected:
        raise AssertionError(f"the conversation ends before the results of {expected}")
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage) and last.is_failed:
        raise AssertionError(f"the conversation ends with a reply that failed: {last!r}")


def _says_something(block: object) -> bool:
    if isinstance(block, Text):
        return bool(block.text.strip())
    return not isinstance(block, Thinking) or block.signature is not None
