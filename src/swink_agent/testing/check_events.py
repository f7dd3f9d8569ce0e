"""A checker that knows the grammar of a run's events and nothing about how a run works.

Use it on the events of your own agents: a sequence that it accepts is one that every consumer can rely on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ContextCompacted,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)
from swink_agent.core.stream import TextDelta
from swink_agent.core.types import AgentMessage, AssistantMessage, StopReason

__all__ = ["check_events"]

_ToolEvent = ToolApprovalRequested | ToolApprovalResolved | ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd
_LAST_REASONS = (TurnEndReason.ERROR, TurnEndReason.ABORTED, TurnEndReason.STOPPED)


def check_events(events: Iterable[AgentEvent]) -> None:
    """Raises `AssertionError`, naming the event, unless the events are those of one complete run in order."""
    checker = _Checker()
    position, event = -1, None
    for position, event in enumerate(events):
        checker.position = position
        checker.take(event)
    if not isinstance(event, AgentEnd):
        raise AssertionError(f"the run has no AgentEnd: {position + 1} events, the last is {event!r}")


class _Checker:
    """One run; `state` is where it stands: new, run, turn, message, tools or over."""

    def __init__(self) -> None:
        self.position = 0
        self.state = "new"
        self.turn_index = 0
        self.added: list[AgentMessage] = []
        self.text: list[str] = []
        self.message: AssistantMessage | None = None
        self.calls: dict[str, str] = {}
        self.last_reason: TurnEndReason | None = None

    def fail(self, event: AgentEvent, problem: str) -> NoReturn:
        raise AssertionError(f"event {self.position}, {event!r}: {problem} (in state {self.state!r})")

    def need(self, event: AgentEvent, condition: object, problem: str) -> None:
        if not condition:
            self.fail(event, problem)

    def take(self, event: AgentEvent) -> None:
        state = self.state
        match event:
            case AgentStart() if state == "new":
                self.state = "run"
            case TurnStart() if state == "run":
                self.start_turn(event)
            case AgentEnd() if state == "run":
                self.end_run(event)
            case MessagesInjected() if state == "turn":
                self.need(event, event.messages, "no messages in it")
                self.added.extend(event.messages)
            case ContextCompacted() if state in ("turn", "message"):
                self.need(event, event.report.dropped_count > 0, "nothing was dropped")
                self.need(event, event.report.overflow or state == "turn", "a compaction inside a message")
                self.text.clear()
            case MessageStart() if state == "turn":
                self.state = "message"
                self.text.clear()
            case MessageUpdate() if state == "message":
                if isinstance(event.delta, TextDelta):
                    self.text.append(event.delta.delta)
            case MessageRetry() | ModelFallback() if state == "message":
                self.text.clear()
            case MessageEnd() if state == "message":
                self.end_message(event)
            case TurnEnd() if state in ("turn", "tools"):
                self.end_turn(event)
            case _ if state == "tools" and isinstance(event, _ToolEvent):
                self.take_tool_event(event)
            case _:
                self.fail(event, "it cannot stand here")

    def start_turn(self, event: TurnStart) -> None:
        self.need(event, event.turn_index == self.turn_index, f"turn {self.turn_index} was next")
        self.need(event, self.last_reason not in _LAST_REASONS, f"a turn after one that ended {self.last_reason}")
        self.state, self.message, self.calls = "turn", None, {}

    def end_message(self, event: MessageEnd) -> None:
        message = event.message
        streamed = "".join(self.text)
        self.need(event, message.text == streamed, f"its text is not what was streamed: {streamed!r}")
        self.need(event, not (message.is_failed and message.tool_calls), "a failed message with tool calls")
        self.calls = {call.id: "known" for call in message.tool_calls}
        self.need(event, len(self.calls) == len(message.tool_calls), "two calls with one id")
        self.state, self.message = "tools", message

    def take_tool_event(self, event: _ToolEvent) -> None:
        before = self.calls.get(event.call_id)
        moves = {
            ToolApprovalRequested: ({"known"}, "asked"),
            ToolApprovalResolved: ({"asked"}, "answered"),
            ToolExecutionStart: ({"known", "approved"}, "started"),
            ToolExecutionUpdate: ({"started"}, "started"),
            ToolExecutionEnd: ({"known", "approved", "rejected", "started"}, "ended"),
        }
        allowed, after = moves[type(event)]
        self.need(event, before in allowed, f"its call is {before or 'not in the message'}")
        if isinstance(event, ToolApprovalResolved):
            after = "approved" if event.approved else "rejected"
        if isinstance(event, ToolExecutionEnd):
            self.need(event, event.is_error == event.result.is_error, "is_error differs from the result's")
        self.calls[event.call_id] = after

    def end_turn(self, event: TurnEnd) -> None:
        self.need(event, event.turn_index == self.turn_index, f"turn {self.turn_index} was on")
        results = [result.tool_call_id for result in event.tool_results]
        if self.state == "turn":
            stopped = event.message is None and event.reason == TurnEndReason.STOPPED
            self.need(event, stopped, "no message, and no policy stopped it")
        else:
            self.check_message(event)
        self.need(event, all(state == "ended" for state in self.calls.values()), f"open calls: {self.calls}")
        self.need(event, results == list(self.calls), f"results {results} for calls {list(self.calls)}")
        self.added.extend([event.message] if event.message else [])
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
            case TurnEndReason.TOOLS_EXECUTED | TurnEndReason.STEERING_INTERRUPT:
                self.need(event, self.calls, "there were no tools")
            case TurnEndReason.ERROR:
                self.need(event, ended.stop_reason == StopReason.ERROR, "its message has no error")
            case _:
                self.need(event, ended.stop_reason != StopReason.ERROR, "its message has an error")

    def end_run(self, event: AgentEnd) -> None:
        tail = list(event.messages[len(event.messages) - len(self.added) :])
        self.need(event, tail == self.added, "its messages are not those that the turns added")
        self.need(
            event,
            event.stopped_by is None or self.last_reason not in (TurnEndReason.ERROR, TurnEndReason.ABORTED),
            "stopped by a policy, and failed too",
        )
        self.state = "over"
