"""Folds the records of a session, once, into its runs, its history and all that follows from them.

Pure: it accesses no files. Entries are added one by one, with their numbers, in order, and the fold can be read at any
time. The history is always valid: a call without a result gets one of these.

    outcome unknown     the call had started: what it did, and whether it still runs, is not known
    never ran           the call had not started

A call that waits for an answer has a pending result on record, and still waits after a crash. A later result replaces
the pending one. If only the start of the call is on record after the pending result, the outcome is unknown.

Owns the rules of the fold and of recovery. `runs` describes each run, `core.exchanges` says which result answers which
call, and `sessions.session` records recovered results when the session continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from swink_agent.core.exchanges import Exchange, is_empty
from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    Past,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.core.run.pending import LOST, WaitingCall, pending_calls, unclosed_calls, waiting_calls
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    ModelSpec,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.value import copy_json

from ..sessions.info import Problem, title_from
from .records import (
    LabelAdded,
    NoteAdded,
    RecordEntry,
    SessionRecord,
    SessionStarted,
    Summary,
    TitleChanged,
    UnknownMessage,
)
from .runs import ClosedCall, StoredResult, StoredRun, StoredTurn

_NO_USE = frozenset({TitleChanged, Summary})
"""Records that do not count as a use of the session."""
NEVER_RAN = "never ran: this tool call had not started when the program ended."
RUNNING = (
    "outcome unknown: this tool call had started, and its result was not there yet when the session was read, while "
    "another process had it open: the call may still be running, or have ended since."
)
WAITING = (
    "never ran: this tool call had not started when the session was read, while another process had it open: it may "
    "still start."
)


class RecoveredResult(NamedTuple):
    """A result that is not on record. It was made because its call had none."""

    reply: int
    """The number of the entry that added the reply."""
    call: int
    message: ToolResultMessage


class StoredExchange(Exchange):
    """An exchange on record, with the numbers of its messages' entries."""

    __slots__ = ("number", "numbers")

    def __init__(self, reply: AssistantMessage | None = None, number: int = -1) -> None:
        super().__init__(reply)
        self.number = number
        """Of the reply."""
        self.numbers: list[int | None] = [None] * len(self.results)
        """Of the results, then of the other messages."""

    @property
    def all_numbers(self) -> list[int | None]:
        """Those of its messages, in order; `None` for results that it lacks."""
        return self.numbers if self.reply is None else [self.number, *self.numbers]

    def replace(self, number: int, message: AgentMessage) -> bool:
        """Replaces the message of an entry by another of its kind; returns whether it is here."""
        if number == self.number and isinstance(message, AssistantMessage):
            self.reply = message
            if len(message.tool_calls) == len(self.calls):
                self.calls = message.tool_calls
        elif number in self.numbers:
            position, answers = self.numbers.index(number), len(self.results)
            if position >= answers:
                self.others[position - answers] = message
            elif isinstance(message, ToolResultMessage):
                self.results[position] = message
        return number == self.number or number in self.numbers


class Line:
    """A growing list of messages in which every call has a result, in order, however the messages arrive."""

    def __init__(self, recover: Callable[[StoredExchange, int], ToolResultMessage]) -> None:
        self._recover = recover
        """Makes the result of a call that has none."""
        self._messages: list[AgentMessage] = []
        """Those of all exchanges but the last one."""
        self._numbers: list[int | None] = []
        self.last = StoredExchange()
        self.incomplete: list[StoredExchange] = []
        """Earlier exchanges that lack results."""

    @property
    def count(self) -> int:
        """How many messages it has, recovered results included."""
        return self.start_of_last + (self.last.reply is not None) + len(self.last.results) + len(self.last.others)

    @property
    def start_of_last(self) -> int:
        return len(self._messages)

    @property
    def is_open(self) -> bool:
        """Whether results of the last reply can still come at once: no message follows it."""
        return not self.last.others

    def add(self, number: int, message: AgentMessage) -> bool:
        """Adds a message; returns whether it has a place."""
        if type(message) is ToolResultMessage:
            return self.place(number, message) is not None
        if type(message) is UnknownMessage and message.data.get("role") == "tool_result":
            return False  # another version wrote it: its place is unknown, and other results may still come
        if type(message) is AssistantMessage and not is_empty(message):
            if None in self.last.results:
                self.incomplete.append(self.last)
            self._messages += self.end
            self._numbers += self.last.all_numbers
            self.last = StoredExchange(message, number)
        else:
            self.append(number, message)
        return True

    def append(self, number: int, message: AgentMessage) -> None:
        """Adds a message that answers no call."""
        self.last.others.append(message)
        self.last.numbers.append(number)

    def place(
        self, number: int, result: ToolResultMessage, call: int | None = None, *, has_started: bool = False
    ) -> int | None:
        """Puts a result with its call, and returns the index of the call; `None` if it answers none.

        A late result of a run takes the place of a pending one, or is that of a call that had started. Others come late
        only in histories that an application gives: without the number of the call.
        """
        last = self.last
        if call is not None and not self.is_open and not has_started and last.find(result, call) in last.missing:
            return None
        index = last.place(result, call)
        if index is not None:
            last.numbers[index] = number
        return index

    def start(self, call: int) -> None:
        """Notes that a call of the last reply starts: a pending result no longer holds."""
        if 0 <= call < len(self.last.results) and self.last.is_pending(call):
            self.last.results[call] = self.last.numbers[call] = None

    def replace(self, number: int, message: AgentMessage) -> None:
        if not self.last.replace(number, message) and number in self._numbers:
            position = self._numbers.index(number)
            if type(message) is type(self._messages[position]):
                self._messages[position] = message

    def numbered(self, *, ends_open: bool = False) -> list[tuple[int | None, AgentMessage]]:
        """The messages with their numbers; `None` for recovered results.

        With `ends_open`, calls that can still get a result at once have none.
        """
        found = list(zip(self._numbers, self._messages, strict=True))
        recovered = self.is_open and ends_open
        last = zip(self.last.all_numbers, self.end, strict=True)
        return found + [one for one in last if one[0] is not None or not recovered]

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        return (*self._messages, *self.end)

    @property
    def end(self) -> list[AgentMessage]:
        """The messages of the last exchange."""
        last = self.last
        results = [self._recover(last, at) if one is None else one for at, one in enumerate(last.results)]
        return [*([] if last.reply is None else [last.reply]), *results, *last.others]


class Fold:
    """What the entries so far add up to."""

    def __init__(self) -> None:
        self.runs: list[StoredRun] = []
        self._run: StoredRun | None = None
        """The run to which entries belong now."""
        self._just_ended: StoredRun | None = None
        """The run whose end was the last entry."""
        self._is_set = True
        """Whether the history differs from the one that the previous run leaves in a replaying agent."""
        self._next_state: dict[str, Any] | None = None
        """The state that was set between runs."""
        self._history = Line(self.recover)
        self._context: Line | None = None
        self._known: dict[int, AgentMessage] = {}
        self._started: set[tuple[int, int]] = set()
        """The calls that had started, as pairs: the number of the reply and the index of the call."""
        self._recovered: dict[tuple[int, int], ToolResultMessage] = {}
        self._lost_calls: set[int] = set()
        """Results in the log whose reply was damaged. Results without a call that an application gave are not
        damage."""
        self._made = 0
        self._usage, self._cost = Usage(), Cost()
        """Without the current run's."""
        self.first = ""
        """The start of the first user message that is neither a summary nor the output of a shell command."""
        self.start: SessionStarted | None = None
        self.has_messages = False
        """Whether a message was ever added."""
        self.title = ""
        self.updated = 0
        self.model: ModelSpec | None = None
        self.state: dict[str, Any] = {}
        self.labels: list[LabelAdded] = []
        self.notes: list[NoteAdded] = []
        self.note_positions: list[int] = []
        """How many messages there were when each note was added."""
        self.is_in_use = False
        """Whether a process is writing the session, so that the last calls may still get their results."""
        self.lost: list[str] = []

    # -- adding ------------------------------------------------------------------------------------------------

    def add(self, number: int, entry: RecordEntry, at: int = 0) -> None:
        """Adds the next entry. One that is missing or out of place does not affect the others."""
        if at > self.updated and type(entry) not in _NO_USE:
            self.updated = at
        ended, self._just_ended = self._just_ended, None
        match entry:
            case MessageAdded():
                self._add_message(number, entry)
            case ToolStarted():
                self._start_call(entry)
            case MessageReplaced():
                self._replace(entry)
            case ContextReplaced():
                self._replace_context(number, entry)
            case HistoryCut():
                self._cut(number, entry)
            case ModelChanged():
                self.model = entry.model
            case StateChanged():
                self._change_state(entry.state, ended)
            case RunStarted():
                self._begin_run(entry)
            case RunEnded():
                self._end_run(entry)
            case SessionStarted():
                self.start = entry
                self.title = self.title or entry.title
            case TitleChanged():
                self.title = entry.title
            case LabelAdded():
                self.labels.append(entry)
            case NoteAdded():
                self.notes.append(entry)
                self.note_positions.append(self.count)
            case _:
                pass  # unknown records are ignored

    # -- the runs ----------------------------------------------------------------------------------------------

    def _open_run(self) -> StoredRun:
        self._run = run = StoredRun(self.count, self._recovered_result, is_set=self._is_set, state=self._next_state)
        self.runs.append(run)
        self._is_set, self._next_state = False, None
        return run

    def _leave_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._count(*run.spent)
            self._is_set = self._is_set or run.ends_early or run.has_lost_results

    def _begin_run(self, entry: RunStarted) -> None:
        self._leave_run()
        run = self._open_run()
        run.started = entry
        if entry.kind == "resume":
            reply, waiting = waiting_calls(self._history.end)
            if reply is not None:
                run.turns.append(StoredTurn(reply, self._history.last.number, self._placed(waiting)))

    def _placed(self, waiting: Sequence[WaitingCall]) -> tuple[WaitingCall, ...]:
        """The calls of the last exchange, with their positions in the whole history."""
        start = self._history.start_of_last
        return tuple([structs.replace(one, position=start + one.position) for one in waiting])

    def _end_run(self, entry: RunEnded) -> None:
        self._just_ended = self._run
        if self._run is None:
            self._count(entry.usage, entry.cost)
        else:
            self._run.end = entry
            self._leave_run()

    def forget_runs(self) -> None:
        """Forgets the runs so far, but not what they did to the history."""
        self.runs.clear()

    def _count(self, usage: Usage, cost: Cost) -> None:
        self._usage, self._cost = self._usage + usage, self._cost + cost

    def _change_state(self, state: dict[str, Any], ended: StoredRun | None) -> None:
        self.state = state
        run = self._run
        if run is not None and run.turn is not None and run.turn.reply is not None:
            run.turn.state = state
        elif run is not None:
            run.state = state  # recorded when the model is called, but valid from the start of the run
        else:
            self._next_state = state
            if ended is not None and ended.turn is not None:
                ended.turn.state = state  # the last change of a run is recorded after its end

    # -- messages ----------------------------------------------------------------------------------------------

    def _add_message(self, number: int, entry: MessageAdded) -> None:
        message = entry.message
        self._known[number] = message
        self.has_messages = True
        if entry.source == "result" and isinstance(message, ToolResultMessage):
            self._add_result(number, message, entry)
            return
        if entry.source == "given":
            self._leave_run()
            self._is_set = True
            if entry.call is not None:
                return  # a recovered result: the change of the history that follows it has its place
        elif entry.source != "result":  # one of a kind that is not known
            (self._run or self._open_run()).take(number, message, entry.source)
        if self._history.add(number, message) and self._context is not None:
            self._context.add(number, message)
        if not self.first and type(message) is UserMessage:
            self.first = _start_of(message)

    def _add_result(self, number: int, message: ToolResultMessage, entry: MessageAdded) -> None:
        run, last = self._run, self._history.last
        turn = None if run is None else run.turn
        closes = () if run is None or turn is not None else self._placed(unclosed_calls(self._history.end)[1])
        has_started = entry.call is not None and (last.number, entry.call) in self._started
        index = self._history.place(number, message, entry.call, has_started=has_started)
        result = StoredResult(number, message, entry.facts)
        if run is not None:
            run.closed += [ClosedCall(one, result) for one in closes if one.index == index]
            run.take_result(index if turn is not None and turn.number == last.number else None, result)
        if index is None:
            self._lost_calls.add(number)
        elif self._context is not None:
            self._context.place(number, message, entry.call, has_started=has_started)

    def _start_call(self, entry: ToolStarted) -> None:
        if self._run is not None and self._run.turn is not None:
            self._run.turn.started.setdefault(entry.call, entry)
        last, call = self._history.last, entry.call
        if 0 <= call < len(last.calls) and not last.is_left:
            self._started.add((last.number, call))
            self._recovered.pop((last.number, call), None)  # made when the history was read before the start
            self._history.start(call)
            if self._context is not None and self._context.last.number == last.number:
                self._context.start(call)

    def _replace(self, entry: MessageReplaced) -> None:
        if self._run is not None:
            self._run.replaced[entry.number] = entry.message
        if entry.number not in self._known:
            self.lost.append(f"a message that was replaced is lost (record {entry.number})")
            return
        self._known[entry.number] = entry.message
        self._history.replace(entry.number, entry.message)
        if self._context is not None:
            self._context.replace(entry.number, entry.message)
        if type(entry.message) is UserMessage:
            self._find_first()

    def _replace_context(self, number: int, entry: ContextReplaced) -> None:
        if entry.report is not None and self._run is not None:
            self._run.uncounted.append(entry.report)
        elif entry.report is not None:  # a compaction on demand
            self._count(entry.report.usage, entry.report.cost)
        line = Line(self.recover)
        lost = 0
        for part in entry.parts:
            if not isinstance(part, int):
                self._made -= 1
                if not line.add(self._made, part):
                    line.append(self._made, part)  # a message that a transform made is always sent
                continue
            message = self._known.get(part)
            if message is None or not line.add(part, message):
                lost += 1
        if lost:
            self.lost.append(f"{lost} of the messages that a compaction kept are lost (record {number})")
        # If nothing of it is left, the whole history is sent, and compacted again if needed.
        self._context = line if line.count else None

    def _cut(self, number: int, entry: HistoryCut) -> None:
        self._leave_run()
        self._is_set = True
        before = self.numbers
        self._history, self._context = Line(self.recover), None
        lost = 0
        placed: set[int] = set()
        for kept in entry.numbers:
            message = self._known.get(kept)
            if message is None:
                lost += 1
            elif self._history.add(kept, message):
                placed.add(kept)
        # Messages that are in no history are forgotten: nothing names them again.
        self._known = {kept: self._known[kept] for kept in entry.numbers if kept in self._known}
        if lost:
            self.lost.append(f"{lost} of the messages that a change of the history kept are lost (record {number})")
        self._lost_calls -= placed
        shared = _shared(before, self.numbers)
        self.labels = [label for label in self.labels if label.position <= shared]  # labels of places that still exist
        self._find_first()

    def _find_first(self) -> None:
        users = (message for message in self._history.messages if type(message) is UserMessage)
        self.first = next((first for message in users if (first := _start_of(message))), "")

    def recover(self, exchange: StoredExchange, index: int) -> ToolResultMessage:
        """Makes the result of a call that has none on record; the same object each time."""
        timestamp = self.updated if exchange.reply is None else exchange.reply.timestamp
        return self._made_for(exchange.number, index, exchange.calls[index], timestamp)

    def _made_for(self, reply: int, index: int, call: ToolCall, timestamp: int) -> ToolResultMessage:
        made = self._recovered.get((reply, index))
        if made is None:
            has_started = (reply, index) in self._started
            if self.is_in_use and self._history.is_open and self._history.last.number == reply:
                words = RUNNING if has_started else WAITING
            else:
                words = LOST if has_started else NEVER_RAN
            outcome = ToolOutcome.LOST if has_started else ToolOutcome.NEVER_RAN
            made = ToolResultMessage(call.id, words, True, tool_name=call.name, timestamp=timestamp, outcome=outcome)
            self._recovered[reply, index] = made
        return made

    def _recovered_result(self, reply: int, index: int, call: ToolCall) -> ToolResultMessage:
        """The result that a call without one in its run has in the history now, or would have."""
        numbered = self._history.numbered()
        place = next((at for at, (number, _) in enumerate(numbered, 1) if number == reply), len(numbered)) + index
        there = numbered[place][1] if place < len(numbered) else None
        if isinstance(there, ToolResultMessage) and there.tool_call_id == call.id:
            return there
        return self._made_for(reply, index, call, self.updated)

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many messages the history has, recovered results included."""
        return self._history.count

    @property
    def usage(self) -> Usage:
        return self._usage if self._run is None else self._usage + self._run.spent[0]

    @property
    def cost(self) -> Cost:
        return self._cost if self._run is None else self._cost + self._run.spent[1]

    @property
    def open_reply(self) -> int | None:
        """The number of the entry that added the last reply, if a call of it waits for its result."""
        return self._history.last.number if self._history.is_open and self._history.last.missing else None

    @property
    def pending(self) -> int:
        """How many calls wait for an answer."""
        return len(pending_calls(self._history.end))

    def has_started(self, reply: int | None, call: int) -> bool:
        """Whether a call of a reply has started. `reply` is the number of the entry that added the reply."""
        return (reply, call) in self._started

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        return self._history.messages

    @property
    def numbers(self) -> list[int | None]:
        """The number of each message's entry; `None` for recovered results."""
        return [number for number, _ in self._history.numbered()]

    @property
    def context(self) -> tuple[AgentMessage, ...] | None:
        """The messages that the model is sent; `None` for the whole history."""
        return None if self._context is None else self._context.messages

    @property
    def problems(self) -> list[Problem]:
        """The losses that the entries show."""
        orphans = [f"record {number} is a result whose call is lost" for number in sorted(self._lost_calls)]
        return [*map(Problem, self.lost), *map(Problem, orphans)]

    def past(self) -> Past:
        """What an agent continues from. Every message must be on record: `sessions.session.past_of` ensures that."""
        numbers = self.numbers
        assert None not in numbers, "recovered results must be recorded first: past_of(journal) does that"
        return Past(
            messages=self.messages,
            numbers=tuple([number for number in numbers if number is not None]),
            context=self.context,
            model=self.model,
            state=copy_json(self.state),
        )

    def recovered(self) -> tuple[list[RecoveredResult], list[RecoveredResult]]:
        """The recovered results that are not on record: those inside the history, and those at its end."""
        history = self._history
        *inside, at_end = map(self._missing_of, (*history.incomplete, history.last))
        if not history.is_open:
            inside, at_end = [*inside, at_end], []
        return [one for some in inside for one in some], at_end

    def _missing_of(self, exchange: StoredExchange) -> list[RecoveredResult]:
        made = [(index, self.recover(exchange, index)) for index in exchange.missing]
        return [RecoveredResult(exchange.number, index, message) for index, message in made]

    def history_numbers(self, recorded: Mapping[int, int]) -> list[int]:
        """The numbers of the history's entries. `recorded` maps object ids of results recorded since to numbers."""
        on_record = self._history.numbered(ends_open=True)
        return [recorded[id(message)] if number is None else number for number, message in on_record]

    def context_parts(self, recorded: Mapping[int, int]) -> list[int | AgentMessage] | None:
        """The context as a `ContextReplaced` has it; `recorded` as for `history_numbers`."""
        if self._context is None:
            return None
        return [
            recorded.get(id(message), message) if number is None or number < 0 else number
            for number, message in self._context.numbered(ends_open=True)
        ]


class MessageRun(NamedTuple):
    """The run in which a message entered the history. `at` is in milliseconds since the epoch."""

    run_id: str
    at: int


class FoldedSession(Protocol):
    """A session that was read to its end."""

    @property
    def fold(self) -> Fold: ...
    def records(self) -> Sequence[SessionRecord]: ...


def message_runs(loaded: FoldedSession) -> list[MessageRun | None]:
    """One for each message of the history; `None` for a message that no run of this session added."""
    times = {record.number: record.at for record in loaded.records()}
    found: dict[int | None, MessageRun] = {}
    for run in loaded.fold.runs:
        if run.started is not None:
            for one in run.added:
                if one.number is not None:
                    found[one.number] = MessageRun(run.started.run_id, times[one.number])
    return [found.get(number) for number in loaded.fold.numbers]


def _shared(before: Sequence[int | None], after: Sequence[int | None]) -> int:
    """How many messages two histories share at their start. A recovered result may have got its number since."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not None and old != new:
            return at
    return min(len(before), len(after))


def _start_of(message: UserMessage) -> str:
    return "" if message.origin in ("shell", "summary") else title_from(extract_text(message.content))
