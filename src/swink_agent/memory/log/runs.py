"""Finds the runs in a session's records, and describes each as a `RunRecord`.

A stored run turns its entries back into the events that it sent, and the core's `RunRecord` folds them: a run read from
disk equals the live run.

Owns the grouping of entries into runs and turns, and the data that a `RunRecord` does not keep because only a replay
needs it: replies and results before policies replaced them, the source of each message, the agent's state. `fold`
builds the history with which a session continues.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    CompactionReport,
    DelegateEvent,
    MessageEnd,
    MessagesInjected,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallDeferred,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnEndReason,
    TurnResumed,
    TurnStart,
    UsageAdded,
)
from swink_agent.core.journal import (
    CallFacts,
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    MessageSource,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.core.record import RunRecord
from swink_agent.core.run.pending import Pending, WaitingCall, unclosed_calls, waiting_calls
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import (
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Cost,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
)

from .answering import OpenCalls
from .fold import Fold


class Record(Protocol):
    """One record of a session: its number and its entry."""

    @property
    def number(self) -> int: ...
    @property
    def entry(self) -> Any: ...


class RecordedSession(Protocol):
    """An object that can be replayed: a session, a loaded session, or any other with the entries of a journal."""

    @property
    def messages(self) -> Sequence[AgentMessage]: ...
    def records(self) -> Iterable[Record]: ...


class DatedRecord(Record, Protocol):
    """One record, and when it was written, in milliseconds since the epoch."""

    @property
    def at(self) -> int: ...


class FoldedSession(Protocol):
    """A session that was read to its end."""

    @property
    def messages(self) -> Sequence[AgentMessage]: ...
    @property
    def fold(self) -> Fold: ...
    def records(self) -> Iterable[DatedRecord]: ...


class AddedMessage(NamedTuple):
    """A message that a run added to the history, as it is there now."""

    message: AgentMessage
    source: MessageSource
    turn: int
    """The index of its turn in the run; -1 for the prompts."""
    call: int | None = None
    """For a result, the index of its call in the reply."""
    is_known: bool = True
    """False if a crash left it unfinished: a replay does not compare it."""
    number: int | None = None
    """The number of its entry; `None` for a result that is not on record."""
    replaces: int | None = None
    """For a result that took the place of a pending one, its position in the history."""


class StoredTurn:
    """One reply, the messages that entered the history before it, and the results of its calls."""

    def __init__(self) -> None:
        self.injected: list[tuple[int, MessageSource, AgentMessage]] = []
        self.reply: AssistantMessage | None = None
        """As the model sent it, before policies replaced it."""
        self.reply_number = -1
        self.answers = OpenCalls(-1, ())
        """The calls of the reply, and their results as the tools returned them."""
        self.facts: dict[int, CallFacts] = {}
        self.started: dict[int, ToolStarted] = {}
        self.state: dict[str, Any] | None = None
        """The agent's state after the tools ran, if they changed it."""
        self.waiting: tuple[WaitingCall, ...] = ()
        """For the turn of an earlier reply, in a run that brings answers: the calls that waited."""

    def begin(self, number: int, reply: AssistantMessage, waiting: tuple[WaitingCall, ...] = ()) -> None:
        self.reply, self.reply_number, self.waiting = reply, number, waiting
        self.answers = OpenCalls(number, reply.tool_calls)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.answers.calls

    def result(self, index: int) -> ToolResultMessage | None:
        answer = self.answers.results[index]
        return None if answer is None else answer[1]

    def is_answered(self, index: int) -> bool:
        """Whether a call has a result here, or at least started."""
        return self.answers.results[index] is not None or index in self.started

    def messages(self, source: MessageSource) -> list[AgentMessage]:
        """The messages from this source that entered the history before the reply."""
        return [message for _, origin, message in self.injected if origin == source]


class StoredRun:
    """One run: its start, its turns, and its end, if it has one."""

    def __init__(self, start: int, before: tuple[AgentMessage, ...] | None, state: dict[str, Any] | None) -> None:
        self.start = start
        """How many messages the history had before the run."""
        self.before = before
        """The history to begin with; `None` for the one that the previous run left."""
        self.state = state
        self.closed: list[tuple[int, WaitingCall, ToolResultMessage, CallFacts | None]] = []
        """The calls that waited, and that this run closed before anything else."""
        self.prompts: list[tuple[int, AgentMessage]] = []
        self.turns: list[StoredTurn] = []
        self.replaced: dict[int, AgentMessage] = {}
        self.reports: list[CompactionReport] = []
        self.started: RunStarted | None = None
        self.end: RunEnded | None = None
        self.added: list[AddedMessage] = []
        """What the run added to the history. Complete once all of its entries are read."""

    @property
    def ends_early(self) -> bool:
        """Whether it may have ended where the agent would have continued: a crash, an abort, a full disk."""
        return self.end is None or self.end.stop_reason in (StopReason.ABORTED, StopReason.ERROR)

    def is_lost(self, index: int, call: int) -> bool:
        """Whether the result of a call of this turn was lost because the program ended."""
        result = self.turns[index].result(call)
        if result is None or result.outcome is ToolOutcome.LOST:
            return True
        # If the run continued, its next messages show why the call never ran or was cancelled.
        is_last = self.end is None and all(turn.reply is None for turn in self.turns[index + 1 :])
        return is_last and result.outcome in (ToolOutcome.NEVER_RAN, ToolOutcome.CANCELLED)

    def close(self, found: Sequence[AgentMessage]) -> None:
        """Lists what the run added. A result that is not on record is taken from `found`, the session's history, or
        made up."""
        self.added = [
            AddedMessage(self._now(number, message), "result", -1, one.index, number=number, replaces=one.position)
            for number, one, message, _ in self.closed
        ]
        self.added += [
            AddedMessage(self._now(number, one), "prompt", -1, number=number) for number, one in self.prompts
        ]
        for index, turn in enumerate(self.turns):
            if turn.waiting:
                self._close_resumed(index, turn, found)
                continue
            # Where the recording breaks off, other messages may have been about to enter, in any order.
            is_known = turn.reply is not None or self.end is not None
            self.added += [
                AddedMessage(self._now(number, message), source, index, None, is_known, number)
                for number, source, message in turn.injected
            ]
            if turn.reply is None:
                continue
            reply = self._now(turn.reply_number, turn.reply)
            self.added.append(AddedMessage(reply, "reply", index, number=turn.reply_number))
            for position, call in enumerate(turn.calls):
                at = self.start + sum(one.replaces is None for one in self.added)
                number, message = self._result_of(turn, position, call, found, at)
                is_known = not self.is_lost(index, position)
                self.added.append(AddedMessage(message, "result", index, position, is_known, number))

    def _close_resumed(self, index: int, turn: StoredTurn, found: Sequence[AgentMessage]) -> None:
        """Lists the results that took the places of pending ones. A call that only started has lost its result."""
        for one in turn.waiting:
            if not turn.is_answered(one.index):
                continue  # it still waits
            number, message = self._result_of(turn, one.index, one.call, found, one.position)
            is_known = not self.is_lost(index, one.index)
            self.added.append(AddedMessage(message, "result", index, one.index, is_known, number, one.position))

    def _result_of(
        self, turn: StoredTurn, index: int, call: ToolCall, found: Sequence[AgentMessage], at: int
    ) -> tuple[int | None, AgentMessage]:
        answer = turn.answers.results[index]
        return (None, _recovered(call, found, at)) if answer is None else (answer[0], self._now(*answer))

    def _now(self, number: int, message: AgentMessage) -> AgentMessage:
        return self.replaced.get(number, message)

    # -- the record ----------------------------------------------------------------------------------------------

    @cached_property
    def record(self) -> RunRecord:
        """The record of the run. It is not over if the run broke off."""
        return RunRecord.of(self._events())

    def _events(self) -> Generator[AgentEvent]:
        prompts = tuple([one.message for one in self.added if one.source == "prompt"])
        start = self.started or RunStarted(
            "", "prompt" if prompts else "continue"
        )  # the record of the start may be lost
        yield AgentStart(start.run_id, start.kind, start.schema, prompts)
        for _, one, message, facts in self.closed:
            result = AgentToolResult(message.content, message.details, message.is_error)
            reason = "" if facts is None else facts.reason
            yield ToolExecutionEnd(one.call.id, one.call.name, result, True, message.outcome, reason, 0.0)
        if self.end is None:  # otherwise the end has the usage of the whole run
            for report in self.reports:
                yield UsageAdded(report.usage, report.cost)
        for index, turn in enumerate(self.turns):
            yield from self._turn_events(index, turn, [one for one in self.added if one.turn == index])
        if self.end is not None:
            yield self._end_event(self.end)

    def _turn_events(self, index: int, turn: StoredTurn, added: Sequence[AddedMessage]) -> Generator[AgentEvent]:
        yield TurnStart(index)
        for one in added:
            if one.source in ("steering", "follow_up", "policy"):
                yield MessagesInjected((one.message,), one.source)
        if turn.reply is None:
            if self.end is not None:
                yield TurnEnd(index, None, (), TurnEndReason.STOPPED)
            return
        if turn.waiting:
            yield TurnResumed(turn.reply, tuple([call for one in turn.waiting for call in one.calls()]))
        else:
            yield MessageEnd(turn.reply)
        results: list[ToolResultMessage] = []
        for one in added:
            if one.call is not None and isinstance(one.message, ToolResultMessage):
                yield from _call_events(turn, one.call, one.message)
                results.append(one.message)
        reply = self._now(turn.reply_number, turn.reply)
        assert isinstance(reply, AssistantMessage)
        yield TurnEnd(index, reply, tuple(results), TurnEndReason.TOOLS_EXECUTED if results else TurnEndReason.COMPLETE)

    def _end_event(self, end: RunEnded) -> AgentEnd:
        messages = tuple([one.message for one in self.added])
        usage, cost = Usage(), Cost()
        for turn in self.turns:  # in the order of the calls, as the run added them up
            for index in range(len(turn.calls)):
                if (facts := turn.facts.get(index)) is not None:
                    usage, cost = usage + (facts.usage or Usage()), cost + (facts.cost or Cost())
        result = AgentResult(
            messages=messages,
            stop_reason=end.stop_reason,
            usage=end.usage,
            cost=end.cost,
            error=end.error,
            stopped_by=end.stopped_by,
            error_kind=end.error_kind,
            value=end.value,
            has_value=end.has_value,
            delegated_usage=usage,
            delegated_cost=cost,
        )
        return AgentEnd(messages, end.stopped_by, result)


def _call_events(turn: StoredTurn, index: int, message: ToolResultMessage) -> Generator[AgentEvent]:
    call, started = turn.calls[index], turn.started.get(index)
    at_start = None if started is None else started.facts  # the only facts of a call without a result
    facts = turn.facts.get(index) or at_start or CallFacts(is_started=started is not None)
    changed = facts.arguments if started is None or started.arguments is None else started.arguments
    arguments = call.arguments if changed is None else changed
    if facts.approval is not None and not turn.waiting:
        yield ToolApprovalRequested(call.id, call.name, arguments)
    if facts.approval in ("approved", "rejected"):
        is_approved = facts.approval == "approved"
        yield ToolApprovalResolved(call.id, call.name, is_approved, "" if is_approved else facts.reason, facts.note)
    if facts.is_started and started is not None:
        yield ToolExecutionStart(call.id, call.name, arguments, facts.scope)
    if facts.usage is not None or facts.cost is not None:  # the only thing that a session keeps of a delegate
        spent = UsageAdded(facts.usage or Usage(), facts.cost or Cost())
        yield DelegateEvent(call.id, call.name, spent)
    pending = Pending.of(message)
    if pending is not None:
        yield ToolCallDeferred(call.id, call.name, arguments, pending.kind, facts.reason)
        return
    result = AgentToolResult(message.content, message.details, message.is_error)
    yield ToolExecutionEnd(
        call.id, call.name, result, message.is_error, message.outcome, facts.reason, facts.seconds, arguments
    )


def _recovered(call: ToolCall, found: Sequence[AgentMessage], position: int) -> ToolResultMessage:
    there = found[position] if position < len(found) else None
    if isinstance(there, ToolResultMessage) and there.tool_call_id == call.id:
        return there
    return ToolResultMessage(
        call.id, "outcome unknown: it is not on record", True, tool_name=call.name, outcome=ToolOutcome.LOST
    )


# -- reading -------------------------------------------------------------------------------------------------


def run_records(session: RecordedSession) -> tuple[RunRecord, ...]:
    """One record for each run, in order. A run that broke off is not over."""
    return tuple([run.record for run in read_runs(session)[0]])


def read_runs(session: RecordedSession) -> tuple[list[StoredRun], int]:
    """The runs in order, and how many messages the history has where it is longest."""
    reader = _Reader(tuple(session.messages))
    for record in session.records():
        reader.read(record.number, record.entry)
        reader.fold.add(record.number, record.entry)
    reader.close_run()
    return reader.runs, max(reader.longest, reader.fold.count)


class MessageRun(NamedTuple):
    """The run in which a message entered the history. `at` is in milliseconds since the epoch."""

    run_id: str
    at: int


def message_runs(loaded: FoldedSession) -> list[MessageRun | None]:
    """One for each message of the history; `None` for a message that no run of this session added."""
    times = {record.number: record.at for record in loaded.records()}
    found: dict[int | None, MessageRun] = {}
    for run in read_runs(loaded)[0]:
        if run.started is not None:
            for one in run.added:
                if one.number is not None:
                    found[one.number] = MessageRun(run.started.run_id, times[one.number])
    return [found.get(number) for number in loaded.fold.numbers]


class _Reader:
    """Reads entries one by one. An entry that is missing or out of place does not affect the others."""

    def __init__(self, found: Sequence[AgentMessage]) -> None:
        self.runs: list[StoredRun] = []
        self.fold = Fold()
        """The fold of the entries before the one that is read."""
        self.longest = 0
        self._found = found
        self._run: StoredRun | None = None
        self._state: dict[str, Any] | None = None
        self._is_set = True
        """Whether the history differs from the one that the previous run leaves in a replaying agent."""
        self._has_just_ended = False

    def read(self, number: int, entry: Any) -> None:
        match entry:
            case RunStarted():
                self.close_run()
                self._open_run().started = entry
                if entry.kind == "resume":
                    self._resume(self._run)
            case RunEnded():
                if self._run is not None:
                    self._run.end = entry
                    self.close_run()
                    self._has_just_ended = True
                    return
            case MessageAdded(source="given") | HistoryCut():
                self.close_run()
                self._is_set = True
            case MessageAdded(source="result") if self._run is None:
                pass  # a result that was lost: it is in its place in the history
            case MessageAdded():
                self._message(self._run or self._open_run(), number, entry)
            case MessageReplaced():
                if self._run is not None:
                    self._run.replaced[entry.number] = entry.message
            case ContextReplaced():
                if self._run is not None and entry.report is not None:
                    self._run.reports.append(entry.report)
            case ToolStarted():
                if (turn := self._turn()) is not None:
                    turn.started.setdefault(entry.call, entry)
            case StateChanged():
                self._change_state(entry.state)
            case _:
                pass  # models, titles and the like change no message
        self._has_just_ended = False

    def _open_run(self) -> StoredRun:
        before = self.fold.messages if self._is_set else None
        self.longest = max(self.longest, self.fold.count)
        self._run = StoredRun(self.fold.count, before, self._state)
        self._state, self._is_set = None, False
        return self._run

    def close_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        self.runs.append(run)
        run.close(self._found)
        self._is_set = self._is_set or run.ends_early or not all(one.is_known for one in run.added)
        self.longest = max(self.longest, self.fold.count)

    def _resume(self, run: StoredRun | None) -> None:
        """Begins a run that brings answers. Its first turn is that of the reply whose calls wait."""
        messages = self.fold.messages
        reply, waiting = waiting_calls(messages)
        if run is not None and reply is not None:
            turn = StoredTurn()
            place = next(at for at in range(len(messages) - 1, -1, -1) if messages[at] is reply)
            turn.begin(self.fold.numbers[place] or -1, reply, waiting)
            run.turns.append(turn)

    def _close_call(self, run: StoredRun, number: int, message: ToolResultMessage, entry: MessageAdded) -> None:
        """Takes the result of a call that waited before this run."""
        for one in unclosed_calls(self.fold.messages)[1]:
            if one.index == entry.call and one.call.id == message.tool_call_id:
                run.closed.append((number, one, message, entry.facts))

    def _turn(self) -> StoredTurn | None:
        return self._run.turns[-1] if self._run is not None and self._run.turns else None

    def _message(self, run: StoredRun, number: int, entry: MessageAdded) -> None:
        message, turn = entry.message, self._turn()
        if entry.source == "prompt":
            run.prompts.append((number, message))
        elif entry.source == "result":
            if turn is None and isinstance(message, ToolResultMessage):
                self._close_call(run, number, message, entry)
            elif turn is not None and isinstance(message, ToolResultMessage):
                index = turn.answers.place(number, message, entry.call)
                if index is not None and entry.facts is not None:
                    turn.facts[index] = entry.facts
        else:
            if turn is None or turn.reply is not None:
                turn = StoredTurn()
                run.turns.append(turn)
            if entry.source != "reply":
                turn.injected.append((number, entry.source, message))
            elif isinstance(message, AssistantMessage):
                turn.begin(number, message)

    def _change_state(self, state: dict[str, Any]) -> None:
        turn = self._turn()
        if turn is not None and turn.reply is not None:
            turn.state = state
        elif self._run is not None:
            self._run.state = state  # recorded when the model is called, but valid from the start of the run
        else:
            self._state = state
            if self._has_just_ended and self.runs[-1].turns:
                self.runs[-1].turns[-1].state = state  # the last change of a run is recorded after its end
