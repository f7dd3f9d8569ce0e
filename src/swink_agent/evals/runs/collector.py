"""`TrajectoryCollector`: what an agent did with a case, as a view of the `RunRecord`s of its runs.

Owns what a record does not have: the duration of a run by the clock, and several runs as one `Invocation`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from swink_agent.core.events import AgentEnd, AgentEvent, AgentStart, MessageStart
from swink_agent.core.record import CallRecord, RunRecord
from swink_agent.core.types import AssistantMessage, Cost, StopReason, ToolOutcome, Usage, extract_text

from ..types import Invocation, ToolCallRecord


class TrajectoryCollector:
    """Collects the events of an agent, over one run or several: `agent.subscribe(collector)`."""

    def __init__(self, folder: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._records: list[RunRecord] = []
        self._turns = 0
        self._seconds = 0.0
        self._started: float | None = None

    def __call__(self, event: AgentEvent) -> None:
        # A compaction between two runs comes after the end of a record, which would ignore it.
        if not self._records or type(event) is AgentStart or self._records[-1].is_over:
            self._records.append(RunRecord())
        self._records[-1].feed(event)
        match event:
            case AgentStart():
                self._started = self._clock()
            case MessageStart():
                self._turns += 1
            case AgentEnd() if self._started is not None:
                self._seconds += self._clock() - self._started
                self._started = None
            case _:
                pass

    def invocation(self) -> Invocation:
        """What was collected so far."""
        messages = [message for record in self._records for message in record.messages]
        turns = [turn for record in self._records for turn in record.turns]
        reply = next((message for message in reversed(messages) if type(message) is AssistantMessage), None)
        reason = StopReason.STOP if reply is None else reply.stop_reason
        last = next((record for record in reversed(self._records) if record.turns or record.is_over), RunRecord())
        given = next((record for record in reversed(self._records) if record.has_value), last)
        return Invocation(
            messages=messages,
            turns=self._turns,
            tool_calls=[_tool_call(call, number) for number, turn in enumerate(turns, 1) for call in turn.calls],
            response="" if reply is None else reply.text,
            usage=sum((record.total_usage for record in self._records), Usage()),
            cost=sum((record.total_cost for record in self._records), Cost()),
            seconds=self._seconds + (0.0 if self._started is None else self._clock() - self._started),
            stop_reason=last.stop_reason or reason,
            error=last.error,
            folder=self._folder,
            stopped_by=last.stopped_by,
            error_kind=last.error_kind,
            value=given.value,
            has_value=given.has_value,
        )


def _tool_call(call: CallRecord, turn: int) -> ToolCallRecord:
    return ToolCallRecord(
        name=call.name,
        arguments=call.arguments,
        result="" if call.result is None else extract_text(call.result.content),
        seconds=call.seconds or 0.0,
        is_error=call.result is not None and call.result.is_error,
        outcome=call.outcome or (ToolOutcome.LOST if call.is_started else ToolOutcome.NEVER_RAN),
        call_id=call.id,
        turn=turn,
    )
