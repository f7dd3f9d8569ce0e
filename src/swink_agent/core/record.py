"""The record of a run, built from its events.

Everything else that reports on a run is a view of its record: headless output, the totals on the screen, evaluations,
replays, audit logs. A session gives the same records as the events (`Session.runs`).

Owns `RunRecord`, its parts, and the rules by which events become a record. It needs events only, and no agent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

from msgspec import field, structs

from .approval import Grant
from .errors import Aborted, ErrorKind
from .events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalEvent,
    ContextCompacted,
    DelegateEvent,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageUpdate,
    ModelFallback,
    RunKind,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallDeferred,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnEndReason,
    TurnResumed,
    TurnStart,
    UsageAdded,
)
from .exchanges import Exchange
from .tool import AgentToolResult
from .types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    PolicyStop,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
)
from .values.data import as_json_data
from .values.value import Value

CallApproval: TypeAlias = Literal["asked", "approved", "rejected"]


class CallRecord(Value, frozen=True):
    """One tool call. `outcome` and `result` are `None` while it is open; the outcome of a waiting call is `pending`.

    `arguments` are those that the tool got, or would have got. `reason` and `seconds` are those of `ToolExecutionEnd`.
    `usage` and `cost` are those of the delegate that the call ran, and of its delegates. Ids may recur in later turns.
    """

    whole_fields = frozenset({"reason"})

    id: str
    name: str
    arguments: dict[str, Any] = {}
    approval: CallApproval | None = None
    """`None` if no approval was needed."""
    note: str = ""
    grant: Grant | None = None
    """What was approved, for a call that started after an approval."""
    is_started: bool = False
    outcome: ToolOutcome | None = None
    reason: str = ""
    seconds: float | None = None
    result: AgentToolResult | None = None
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)


class TurnRecord(Value, frozen=True):
    """One reply, the messages that were injected before it, and its calls in the reply's order.

    Reply and results are those of the history. `reply` is `None` only if the record's events began in the middle of a
    turn that is not over. The first turn of a run that brings answers has the earlier reply and the calls that waited.
    """

    injected: tuple[AgentMessage, ...] = ()
    reply: AssistantMessage | None = None
    calls: tuple[CallRecord, ...] = ()


class _OpenTurn:
    """The current turn."""

    def __init__(self, injected: tuple[AgentMessage, ...], reply: AssistantMessage | None, place: int) -> None:
        self.injected = injected
        self.reply = reply
        self.place = place  # the position of the reply in the run's messages
        self.calls: list[CallRecord] = []
        self.by_id: dict[str, list[int]] = {}
        for call in () if reply is None else reply.tool_calls:
            self.add(CallRecord(call.id, call.name, call.arguments))

    def add(self, call: CallRecord) -> int:
        position = len(self.calls)
        self.calls.append(call)
        self.by_id.setdefault(call.id, []).append(position)
        return position

    @classmethod
    def resumed(cls, event: TurnResumed) -> _OpenTurn:
        """Opens the turn of an earlier reply, with the calls that waited. The reply is not among the run's messages."""
        turn = cls((), None, _ELSEWHERE)
        turn.reply = event.message
        for call in event.message.tool_calls:
            inner = [one for one in event.pending if one.delegates and one.call_id.startswith(f"{call.id}/")]
            for one in [one for one in event.pending if one.call_id == call.id and not one.delegates] or inner[:1]:
                asked = "asked" if one.kind == "approval" and not one.delegates else None
                arguments = call.arguments if one.delegates else one.arguments
                reason = "" if one.delegates else one.reason
                waiting = CallRecord(
                    call.id, call.name, as_json_data(arguments), asked, outcome=ToolOutcome.PENDING, reason=reason
                )
                turn.add(structs.replace(waiting, seconds=0.0))
        return turn

    def find(self, event: _CallEvent) -> int:
        """Returns the position of the event's call. Two calls of one reply may have the same id: then it is the first
        call that can have this event."""
        positions = self.by_id.get(event.call_id)
        if positions is None:  # the record's events began after the reply
            return self.add(CallRecord(event.call_id, event.name))
        if len(positions) == 1:
            return positions[0]
        open_calls = [position for position in positions if self.calls[position].outcome is None]
        for position in open_calls:
            call = self.calls[position]
            match event:
                case ToolApprovalRequested():
                    fits = call.approval is None
                case ToolApprovalResolved():
                    fits = call.approval == "asked"
                case ToolExecutionStart():
                    fits = not call.is_started and call.approval in (None, "approved")
                case ToolExecutionEnd() | DelegateEvent():
                    fits = call.is_started
                case ToolCallDeferred():
                    fits = call.approval in ("asked", None)
            if fits:
                return position
        return (open_calls or positions)[0]

    def take_results(self, results: Iterable[ToolResultMessage]) -> None:
        """Gives the calls their results from the history."""
        exchange = Exchange(calls=[ToolCall(call.id, call.name) for call in self.calls])
        for message in results:
            position = exchange.place(message)
            if position is not None:
                given = AgentToolResult(message.content, message.details, message.is_error)
                self.calls[position] = structs.replace(self.calls[position], outcome=message.outcome, result=given)

    def closed(self) -> TurnRecord:
        return TurnRecord(self.injected, self.reply, tuple(self.calls))


_CallEvent: TypeAlias = ApprovalEvent | ToolExecutionStart | ToolExecutionEnd | DelegateEvent
_ELSEWHERE = -2  # the place of a reply that an earlier run added
_PASSED_OVER = frozenset({MessageUpdate, ToolExecutionUpdate})
"""Streamed events: most events are such, and a record keeps nothing of them."""
_PUBLIC = (
    *("run_id", "kind", "schema", "prompts", "turns", "messages", "usage", "cost", "total_usage", "total_cost"),
    *("stop_reason", "error", "error_kind", "stopped_by", "value", "has_value", "is_over"),
)


class RunRecord:
    """The record of one run, as far as its events have been fed. Readable at any time, from any thread.

        record = RunRecord()
        with agent.subscribe(record.feed):
            await agent.prompt("…")

    `feed` takes constant time. It accepts a run from its middle, ignores events that it does not know and those that
    come after `AgentEnd`, and raises `ValueError` for a second `AgentStart`: one record is one run. The values that a
    record returns never change. Records are compared by value, and can be pickled.
    """

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin(AgentStart())
        self._has_start = self._is_before_turns = False

    def _begin(self, start: AgentStart) -> None:
        self._start = start if start.schema is None else structs.replace(start, schema=as_json_data(start.schema))
        self._has_start = True
        self._closed: list[TurnRecord] = []
        self._open: _OpenTurn | None = None
        self._is_before_turns = True
        self._injected: tuple[AgentMessage, ...] = ()  # the messages before a reply that has not come yet
        self._messages: list[AgentMessage] = list(start.prompts)
        self._usage, self._cost = Usage(), Cost()
        self._delegated = (Usage(), Cost())  # used by the delegates of turns that have ended
        self._last_reason: TurnEndReason | None = None
        self._end: AgentEnd | None = None

    @classmethod
    def of(cls, events: Iterable[AgentEvent]) -> RunRecord:
        """Makes the record of these events."""
        record = cls()
        for event in events:
            record.feed(event)
        return record

    @classmethod
    def of_turns(
        cls,
        start: AgentStart,
        turns: Iterable[TurnRecord],
        messages: Iterable[AgentMessage],
        spent: tuple[Usage, Cost],
        end: AgentEnd | None,
    ) -> RunRecord:
        """Makes the record of a run whose turns are known: equal to that of its events.

        `messages` and `spent` are those of the events; the end, if there is one, has its own.
        """
        record = cls()
        record._begin(start)
        record._closed, record._messages = list(turns), list(messages)
        record._usage, record._cost = spent
        for turn in record._closed:
            record._delegated = with_delegates(record._delegated, turn.calls)
        record._end = end
        return record

    # -- feeding -------------------------------------------------------------------------------------------------

    def feed(self, event: AgentEvent) -> None:
        """Takes the next event. Raises `ValueError` for the start of another run."""
        if type(event) in _PASSED_OVER:
            return
        with self._lock:
            if type(event) is AgentStart:
                if self._has_start:
                    raise ValueError("a RunRecord holds one run, and this event starts another: make a new record")
                self._begin(event)
            elif self._end is None:
                self._take(event)

    def _take(self, event: AgentEvent) -> None:
        match event:
            case TurnStart():
                self._injected = ()
                self._is_before_turns = False
            case MessagesInjected(messages=messages):
                self._injected += messages
                self._messages.extend(messages)
            case MessageEnd(message=message):
                self._count(message.usage, message.cost)
                self._reply(message)
            case ToolApprovalRequested():
                self._update(event, approval="asked", arguments=as_json_data(event.arguments))
            case ToolApprovalResolved():
                self._update(event, approval="approved" if event.approved else "rejected", note=event.note)
            case TurnResumed():
                self._open = _OpenTurn.resumed(event)
            case ToolCallDeferred():
                arguments = as_json_data(event.arguments)
                self._update(event, outcome=ToolOutcome.PENDING, reason=event.reason, seconds=0.0, arguments=arguments)
            case ToolExecutionEnd() if self._is_before_turns:
                pass  # this run closes a call that an earlier run left waiting: `AgentEnd` has the result
            case ToolExecutionStart():
                arguments = as_json_data(event.arguments)
                grant = None if event.scope is None else Grant(event.name, arguments, as_json_data(event.scope))
                self._update(event, is_started=True, arguments=arguments, grant=grant, outcome=None)
            case ToolExecutionEnd():
                known: dict[str, Any] = {}
                if event.arguments is not None:
                    known["arguments"] = as_json_data(event.arguments)
                known |= {"outcome": event.outcome, "reason": event.reason, "seconds": event.seconds}
                self._update(event, result=event.result, **known)
            case TurnEnd():
                self._end_turn(event)
            case MessageRetry() | ModelFallback() | UsageAdded():
                self._count(event.usage, event.cost)
            case ContextCompacted(report=report):
                self._count(report.usage, report.cost)
            case DelegateEvent():
                self._take_delegate(event)
            case AgentEnd():
                self._close_turn()
                self._end = event
            case _:  # an event with nothing to keep, an event of a later version, or not an event
                _refuse_undecoded(event)

    def _count(self, usage: Usage, cost: Cost) -> None:
        self._usage += usage
        self._cost += cost

    def _take_delegate(self, event: DelegateEvent) -> None:
        """Adds the usage of a delegate to the call that runs it. The delegate's `AgentEnd` has the final totals."""
        inner = event.event
        if type(inner) is AgentEnd and inner.result is not None:
            self._update(event, usage=inner.result.total_usage, cost=inner.result.total_cost)
        elif (spent := _spent(inner)) is not None:
            call = self._update(event)
            self._update(event, usage=call.usage + spent[0], cost=call.cost + spent[1])

    def _reply(self, message: AssistantMessage) -> None:
        self._close_turn()
        self._open = _OpenTurn(self._injected, message, len(self._messages))
        self._injected = ()
        self._messages.append(message)

    def _update(self, event: _CallEvent, **fields: Any) -> CallRecord:
        if self._open is None:  # the record's events began after the reply
            self._open = _OpenTurn(self._injected, None, -1)
            self._injected = ()
        position = self._open.find(event)
        call = self._open.calls[position] = structs.replace(self._open.calls[position], **fields)
        return call

    def _end_turn(self, event: TurnEnd) -> None:
        """Closes the turn with the reply and the results of the history: policies may have replaced them."""
        self._last_reason = event.reason
        if event.message is None:
            self._injected = ()
            return
        turn = self._open
        if turn is None or turn.reply is None:
            known = [] if turn is None else turn.calls
            self._open = None
            self._reply(event.message)
            turn = self._open
            assert turn is not None
            for call in known:
                if call.id in turn.by_id:
                    turn.calls[turn.by_id[call.id][0]] = call
        elif turn.place == _ELSEWHERE:
            turn.reply = event.message
        else:
            turn.reply = self._messages[turn.place] = event.message
        turn.take_results(event.tool_results)
        self._messages.extend(event.tool_results)
        self._close_turn()

    def _close_turn(self) -> None:
        if self._open is not None:
            self._closed.append(self._open.closed())
            self._delegated = with_delegates(self._delegated, self._open.calls)
            self._open = None

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._start.run_id

    @property
    def kind(self) -> RunKind:
        """How the run began: `prompt`, `continue`, `structured` or `resume`."""
        return self._start.kind

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the value that the run must give, if any."""
        return self._start.schema

    @property
    def prompts(self) -> tuple[AgentMessage, ...]:
        return self._start.prompts

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """The turns with a reply. A turn that a policy stopped before its request is not among them."""
        with self._lock:
            return self._all_turns()

    def _all_turns(self) -> tuple[TurnRecord, ...]:
        return (*self._closed, *([] if self._open is None else [self._open.closed()]))

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls of all turns."""
        return tuple([call for turn in self.turns for call in turn.calls])

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The messages that the run added to the history. Results are among them once their turn has ended."""
        with self._lock:
            return tuple(self._messages) if self._end is None else self._end.messages

    @property
    def text(self) -> str:
        """The text of the last reply, or an empty string."""
        reply = self._last_reply()
        return "" if reply is None else reply.text

    @property
    def usage(self) -> Usage:
        """The usage of all requests of the run, failed ones and those for summaries included, without delegates."""
        with self._lock:
            result = None if self._end is None else self._end.result
            return self._usage if result is None else result.usage

    @property
    def cost(self) -> Cost:
        with self._lock:
            result = None if self._end is None else self._end.result
            return self._cost if result is None else result.cost

    @property
    def total_usage(self) -> Usage:
        """The usage of the run and of its delegates, to any depth."""
        return self._total()[0]

    @property
    def total_cost(self) -> Cost:
        """The cost of the run and of its delegates, to any depth."""
        return self._total()[1]

    def _total(self) -> tuple[Usage, Cost]:
        with self._lock:
            result = None if self._end is None else self._end.result
            if result is not None:
                return result.total_usage, result.total_cost
            usage, cost = with_delegates(self._delegated, () if self._open is None else self._open.calls)
            return self._usage + usage, self._cost + cost

    @property
    def is_over(self) -> bool:
        return self._end is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """`None` during the run."""
        return self._ending()[0]

    @property
    def error(self) -> str | None:
        return self._ending()[1]

    @property
    def error_kind(self) -> ErrorKind | None:
        return self._ending()[2]

    @property
    def stopped_by(self) -> PolicyStop | None:
        end = self._end
        return None if end is None else end.stopped_by

    @property
    def value(self) -> Any:
        """The structured output as JSON, if there is one (`has_value`)."""
        end = self._end
        return None if end is None or end.result is None else end.result.value

    @property
    def has_value(self) -> bool:
        end = self._end
        return end is not None and end.result is not None and end.result.has_value

    def _last_reply(self) -> AssistantMessage | None:
        for message in reversed(self.messages):
            if type(message) is AssistantMessage:
                return message
        return None

    def _ending(self) -> tuple[StopReason | None, str | None, ErrorKind | None]:
        """Returns the stop reason, the error and its kind: those of the result, else of the last turn or reply."""
        end = self._end
        if end is None:
            return None, None, None
        if end.result is not None:
            return end.result.stop_reason, end.result.error, end.result.error_kind
        reply = self._last_reply()
        if reply is not None and reply.is_failed:
            return reply.stop_reason, reply.error_message, reply.error_kind
        if self._last_reason is TurnEndReason.ABORTED:
            return StopReason.ABORTED, str(Aborted()), ErrorKind.ABORTED
        return StopReason.STOP if reply is None else reply.stop_reason, None, None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _PUBLIC)

    def __repr__(self) -> str:
        state = f"over: {self.stop_reason}" if self.is_over else "not over"
        return f"<RunRecord {self.run_id or 'without id'}, turns: {len(self.turns)}, {state}>"

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name != "_lock"}
            # An open turn is saved as a closed turn and its place; `__setstate__` opens it again.
            place = None if self._open is None else self._open.place
            return {**state, "_closed": list(self._all_turns()), "_open": place, "_messages": list(self._messages)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        for name, value in state.items():
            setattr(self, name, value)
        place = state["_open"]
        if place is not None:
            closed = self._closed.pop()
            self._open = _OpenTurn(closed.injected, closed.reply, place)
            self._open.calls, self._open.by_id = [], {}
            for call in closed.calls:
                self._open.add(call)


_NO_USAGE, _NO_COST = Usage(), Cost()


def _spent(event: AgentEvent) -> tuple[Usage, Cost] | None:
    """Returns the usage and cost that an event of a delegate, at any depth, reports; `None` if it reports none."""
    while type(event) is DelegateEvent:
        event = event.event
    match event:
        case MessageEnd(message=source) | ContextCompacted(report=source):
            return source.usage, source.cost
        case MessageRetry() | ModelFallback() | UsageAdded():
            return event.usage, event.cost
        case _:
            return None


def with_delegates(spent: tuple[Usage, Cost], calls: Iterable[CallRecord]) -> tuple[Usage, Cost]:
    """Adds the usage and cost of the delegates of these calls."""
    usage, cost = spent
    for call in calls:
        if call.usage != _NO_USAGE or call.cost != _NO_COST:
            usage, cost = usage + call.usage, cost + call.cost
    return usage, cost


def _refuse_undecoded(event: object) -> None:
    """Raises `TypeError` for JSON instead of an event: ignoring it would give an empty record."""
    if event is None or isinstance(event, (bytes, bytearray, str, dict)):
        kind = type(cast("object", event)).__name__
        raise TypeError(f"a RunRecord takes events, and this is of the type {kind}: decode it with decode_event")
