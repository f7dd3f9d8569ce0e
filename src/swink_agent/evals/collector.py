"""From events to what an evaluator looks at: `TrajectoryCollector`.

Owns what is remembered of a run. What the agent's own account says beyond its events (the use of replies that were
tried again) is added by who runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ContextCompacted,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    PolicyStop,
    StopReason,
    ToolOutcome,
    Usage,
    extract_text,
)

from .types import Invocation, ToolCallRecord

__all__ = ["TrajectoryCollector"]


class TrajectoryCollector:
    """Called with each event of an agent, `agent.subscribe(collector)`, over one run or several."""

    def __init__(self, folder: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._messages: list[AgentMessage] = []
        self._current: list[AgentMessage] = []
        """Of a run that has not ended: without the prompts, which are known at its end."""
        self._calls: list[ToolCallRecord] = []
        self._open: dict[str, int] = {}
        """The calls of this turn: their ids, with their places among all calls."""
        self._starts: dict[str, float] = {}
        self._turns = 0
        self._usage, self._cost = Usage(), Cost()
        self._seconds = 0.0
        self._started: float | None = None
        self._last: AssistantMessage | None = None
        self._stopped_by: PolicyStop | None = None

    def __call__(self, event: AgentEvent) -> None:
        if type(event) is MessageUpdate:
            return  # most are, and the message at their end has it all
        match event:
            case AgentStart():
                self._started = self._clock()
                self._stopped_by = None
            case MessageStart():
                self._turns += 1
            case MessageEnd():
                self._replied(event.message)
            case ToolExecutionStart():
                self._starts[event.call_id] = self._clock()
                self._update(event.call_id, event.name, arguments=event.arguments)
            case ToolExecutionEnd():
                started = self._starts.pop(event.call_id, None)
                self._update(
                    event.call_id,
                    event.name,
                    result=extract_text(event.result.content),
                    is_error=event.is_error,
                    outcome=event.outcome,
                    seconds=0.0 if started is None else self._clock() - started,
                )
            case TurnEnd():
                self._current.extend(event.tool_results)
            case ContextCompacted():
                self._usage += event.report.usage
                self._cost += event.report.cost
            case AgentEnd():
                self._messages.extend(event.messages)
                self._current.clear()
                self._stopped_by = event.stopped_by
                if self._started is not None:
                    self._seconds += self._clock() - self._started
                    self._started = None
            case _:
                pass

    def invocation(self) -> Invocation:
        """What was collected so far."""
        last = self._last
        running = 0.0 if self._started is None else self._clock() - self._started
        return Invocation(
            messages=(*self._messages, *self._current),
            turns=self._turns,
            tool_calls=self._calls,
            response="" if last is None else last.text,
            usage=self._usage,
            cost=self._cost,
            seconds=self._seconds + running,
            stop_reason=StopReason.STOP if last is None else last.stop_reason,
            error=None if last is None or not last.is_failed else last.error_message or last.stop_reason.value,
            folder=self._folder,
            stopped_by=self._stopped_by,
        )

    def _replied(self, message: AssistantMessage) -> None:
        self._last = message
        self._current.append(message)
        self._usage += message.usage
        self._cost += message.cost
        self._open.clear()
        for call in message.tool_calls:
            self._open[call.id] = len(self._calls)
            self._calls.append(
                ToolCallRecord(
                    call.name,
                    call.arguments,
                    outcome=ToolOutcome.NEVER_RAN,
                    call_id=call.id,
                    turn=self._turns,
                )
            )

    def _update(self, call_id: str, name: str, **fields: Any) -> None:
        position = self._open.get(call_id)
        if position is None:  # events without the reply that the call stands in
            position = self._open[call_id] = len(self._calls)
            self._calls.append(ToolCallRecord(name, call_id=call_id, turn=self._turns))
        self._calls[position] = replace(self._calls[position], **fields)
