"""The calls and the usage of a delegate so far, collected from its events.

Every front end shows them under the call that runs the delegate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from swink_agent.core import events
from swink_agent.core.events import AgentEvent, DelegateEvent, MessageUpdate, ToolExecutionUpdate
from swink_agent.core.record import RunRecord
from swink_agent.rendering.amounts import dollars

from ..runs import telling

CallStatus: TypeAlias = Literal["asking", "running", "done", "failed"]
DescribeFn: TypeAlias = Callable[[str, dict[str, Any]], tuple[str, str]]
"""The name and the arguments of a call in a few words each, masked."""


def is_streamed(event: AgentEvent) -> bool:
    """Whether the event of a delegate, at any depth, is a piece of text."""
    while type(event) is DelegateEvent:
        event = event.event
    return type(event) in (MessageUpdate, ToolExecutionUpdate)


class DelegateCall:
    """One call of a delegate, with the calls of the delegate that it runs itself."""

    __slots__ = ("calls", "id", "name", "seconds", "status", "summary")

    def __init__(self, call_id: str, name: str, summary: str) -> None:
        self.id = call_id
        self.name = name
        self.summary = summary
        self.status: CallStatus = "running"
        self.seconds: float | None = None
        self.calls: list[DelegateCall] = []

    @property
    def is_open(self) -> bool:
        return self.status in ("asking", "running")


class DelegateProgress:
    """The run of one delegate. Feed it with all events of that run but pieces of text."""

    __slots__ = ("_record", "calls", "is_over")

    def __init__(self) -> None:
        self.calls: list[DelegateCall] = []
        self.is_over = False
        self._record = RunRecord()

    def feed(self, event: AgentEvent, describe: DescribeFn) -> None:
        self._record.feed(event)
        self.is_over = isinstance(event, events.AgentEnd)
        _take(self.calls, event, describe)

    @property
    def counted(self) -> str:
        """The number of calls, the tokens and the cost, in a few words."""
        parts = [telling.number_of(sum([1 for _ in self.every()]), "call")]
        if tokens := self._record.total_usage.tokens:
            parts.append(telling.tokens(tokens))
        if spent := self._record.total_cost.amount:
            parts.append(dollars(spent))
        return " \u00b7 ".join(parts)

    def newest(self) -> DelegateCall | None:
        """The innermost and newest call that runs; a call that waits for the user has priority."""
        running = [call for call, _ in self.every() if call.is_open]
        asking = [call for call in running if call.status == "asking"]
        return (asking or running or [None])[-1]

    def every(self) -> Iterator[tuple[DelegateCall, int]]:
        """All calls in their order, each with its depth in nested delegates."""
        return _every(self.calls, 0)


def _every(calls: list[DelegateCall], depth: int) -> Iterator[tuple[DelegateCall, int]]:
    for call in calls:
        yield call, depth
        yield from _every(call.calls, depth + 1)


def _take(calls: list[DelegateCall], event: AgentEvent, describe: DescribeFn) -> None:
    """Adds an event to the calls of a delegate, or to those of its delegates."""
    asked, answered = events.ToolApprovalRequested, events.ToolApprovalResolved
    if not isinstance(event, (DelegateEvent, asked, answered, events.ToolExecutionStart, events.ToolExecutionEnd)):
        return
    call = next((call for call in calls if call.id == event.call_id and call.is_open), None)
    if isinstance(event, DelegateEvent):
        if call is not None:
            _take(call.calls, event.event, describe)
        return
    if call is None:
        arguments = event.arguments if not isinstance(event, answered) else None
        call = DelegateCall(event.call_id, *describe(event.name, arguments or {}))
        calls.append(call)
    match event:
        case events.ToolApprovalRequested():
            call.status = "asking"
        case events.ToolApprovalResolved() | events.ToolExecutionStart():
            call.status = "running"
        case events.ToolExecutionEnd():
            call.status, call.seconds = "failed" if event.is_error else "done", event.seconds
