"""Folds entries into a session's history, context, model, state, labels, notes and totals.

Pure: it accesses no files. Entries are added one by one, with their numbers, in order, and the fold can be read at any
time. The history is always valid: a call without a result gets one of these.

    outcome unknown     the call had started: what it did, and whether it still runs, is not known
    never ran           the call had not started

A call that waits for an answer has a pending result on record, and still waits after a crash. A later result replaces
the pending one. If only the start of the call is on record after the pending result, the outcome is unknown.

Owns the rules of the fold and of recovery. `answering` puts results in their places, and `sessions.session` records
recovered results when the session continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from swink_agent.core.run.pending import LOST, pending_calls
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    ModelSpec,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
)
from swink_agent.core.values.value import copy_json

from ..sessions.info import Problem, title_from
from .answering import AnsweredHistory, OpenCalls
from .records import LabelAdded, NoteAdded, RecordEntry, SessionStarted, Summary, TitleChanged

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


class Fold:
    """What the entries so far add up to."""

    def __init__(self) -> None:
        self._history = AnsweredHistory(self.recover)
        self._context: AnsweredHistory | None = None
        self._known: dict[int, AgentMessage] = {}
        self._started: set[tuple[int, int]] = set()
        """The calls that had started, as pairs: the number of the reply and the index of the call."""
        self._recovered: dict[tuple[int, int], ToolResultMessage] = {}
        self._orphans: set[int] = set()
        """Results without a place, because their call is missing."""
        self._bereft: set[int] = set()
        """Orphans whose call was recorded and is lost. Other orphans come from histories that an application gave."""
        self._made = 0
        self._usage, self._cost = Usage(), Cost()
        self._run_usage, self._run_cost = Usage(), Cost()
        self._delegated = set[tuple[int | None, int | None]]()
        """The calls of the current run whose delegates are counted: the reply, and the index in it."""
        self._uncounted: list[AssistantMessage] = []
        """Replies that are not in `_run_usage` yet. Most never are: the end of a run has the usage of all of it."""
        self._first = ""
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
        """Adds the next entry."""
        if at > self.updated and type(entry) not in _NO_USE:
            self.updated = at
        match entry:
            case MessageAdded():
                self._add_message(number, entry)
            case ToolStarted():
                self._start_call(entry.call)
            case MessageReplaced():
                self._replace(entry)
            case ContextReplaced():
                self._replace_context(number, entry)
            case HistoryCut():
                self._cut(number, entry)
            case ModelChanged():
                self.model = entry.model
            case StateChanged():
                self.state = entry.state
            case RunStarted():
                self._settle_run()
                self._delegated.clear()
            case RunEnded():
                self._usage, self._cost = self._usage + entry.usage, self._cost + entry.cost
                self._run_usage, self._run_cost = Usage(), Cost()
                self._uncounted.clear()
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

    def _start_call(self, call: int) -> None:
        batch = self._history.batch
        if batch is not None and 0 <= call < len(batch.calls):
            self._started.add((batch.reply, call))
            self._recovered.pop((batch.reply, call), None)  # made when the history was read before the start
            batch.start(call)
            if self._context is not None and self._context.batch is not None:
                self._context.batch.start(call)

    def _add_message(self, number: int, entry: MessageAdded) -> None:
        message, facts = entry.message, entry.facts
        self._known[number] = message
        self.has_messages = True
        if facts is not None and (facts.usage is not None or facts.cost is not None):
            # This is the usage of a delegate, which the end of the run does not count. A call that was deferred and
            # then cancelled has two results in one run.
            batch = self._history.batch
            key = (None if batch is None else batch.reply, entry.call)
            if key not in self._delegated:
                self._delegated.add(key)
                self._usage, self._cost = self._usage + (facts.usage or Usage()), self._cost + (facts.cost or Cost())
        if not self._history.add(number, message, entry.call):
            self._orphans.add(number)
            if entry.source == "result" and type(message) is ToolResultMessage:
                self._bereft.add(number)
            return
        if self._context is not None:
            self._context.add(number, message, entry.call)
        if type(message) is AssistantMessage:
            if entry.source == "reply":
                self._uncounted.append(message)
        elif not self._first and type(message) is UserMessage and (first := _start_of(message)):
            self._first = first

    def _replace(self, entry: MessageReplaced) -> None:
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
        if entry.report is not None:
            self._run_usage += entry.report.usage
            self._run_cost += entry.report.cost
        lane = AnsweredHistory(self.recover)
        lost = 0
        for part in entry.parts:
            if not isinstance(part, int):
                self._made -= 1
                if not lane.add(self._made, part):
                    lane.messages.append(part)  # a message that a transform made is always sent
                    lane.numbers.append(None)
                continue
            message = self._known.get(part)
            if message is None or not lane.add(part, message):
                lost += 1
        if lost:
            self.lost.append(f"{lost} of the messages that a compaction kept are lost (record {number})")
        # If nothing of it is left, the whole history is sent, and compacted again if needed.
        self._context = lane if len(lane) else None

    def _cut(self, number: int, entry: HistoryCut) -> None:
        before = self._history.all()[1]
        self._history, self._context = AnsweredHistory(self.recover), None
        lost = 0
        known: dict[int, AgentMessage] = {}
        for kept in entry.numbers:
            message = self._known.get(kept)
            if message is None:
                lost += 1
                continue
            known[kept] = message
            if self._history.add(kept, message):
                self._orphans.discard(kept)
                self._bereft.discard(kept)
            else:
                self._orphans.add(kept)
        if lost:
            self.lost.append(f"{lost} of the messages that a change of the history kept are lost (record {number})")
        # Messages that are no longer in the history are forgotten, except orphans, which may still get a place.
        for orphan in self._orphans:
            known.setdefault(orphan, self._known[orphan])
        self._known = known
        shared = _shared(before, self._history.all()[1])
        self.labels = [label for label in self.labels if label.position <= shared]  # labels of places that still exist
        self._find_first()

    def _find_first(self) -> None:
        self._first = ""
        for message in self._history.messages:
            if type(message) is UserMessage and (first := _start_of(message)):
                self._first = first
                return

    def _settle_run(self) -> None:
        """Counts usage that no `RunEnded` has counted: replies and compactions of a run that was cut off, and
        compactions on demand, which belong to no run."""
        self._count_replies()
        self._usage, self._cost = self._usage + self._run_usage, self._cost + self._run_cost
        self._run_usage, self._run_cost = Usage(), Cost()

    def _count_replies(self) -> None:
        for message in self._uncounted:
            self._run_usage += message.usage
            self._run_cost += message.cost
        self._uncounted.clear()

    def recover(self, batch: OpenCalls, index: int) -> ToolResultMessage:
        """Makes the result of a call that has none on record; the same object each time."""
        key = (batch.reply, index)
        made = self._recovered.get(key)
        if made is None:
            has_started = key in self._started
            reply = self._known.get(batch.reply)
            last = self._history.batch
            if self.is_in_use and last is not None and last.reply == batch.reply:
                words = RUNNING if has_started else WAITING
            else:
                words = LOST if has_started else NEVER_RAN
            made = self._recovered[key] = ToolResultMessage(
                batch.calls[index].id,
                words,
                is_error=True,
                tool_name=batch.calls[index].name,
                timestamp=reply.timestamp if isinstance(reply, AssistantMessage) else self.updated,
                outcome=ToolOutcome.LOST if has_started else ToolOutcome.NEVER_RAN,
            )
        return made

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many messages the history has, recovered results included."""
        return len(self._history)

    @property
    def usage(self) -> Usage:
        self._count_replies()
        return self._usage + self._run_usage

    @property
    def cost(self) -> Cost:
        self._count_replies()
        return self._cost + self._run_cost

    @property
    def first(self) -> str:
        """The start of the first user message that is neither a summary nor the output of a shell command."""
        return self._first

    @property
    def is_open(self) -> bool:
        """Whether a call waits for its result."""
        return self.open_reply is not None

    @property
    def open_reply(self) -> int | None:
        """The number of the entry that added the last reply, if a call of it waits for its result."""
        batch = self._history.batch
        return batch.reply if batch is not None and None in batch.results else None

    @property
    def pending(self) -> int:
        """How many calls wait for an answer."""
        return len(pending_calls(self._history.end()))

    def has_started(self, reply: int | None, call: int) -> bool:
        """Whether a call of a reply has started. `reply` is the number of the entry that added the reply."""
        return (reply, call) in self._started

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        return tuple(self._history.all()[0])

    @property
    def problems(self) -> list[Problem]:
        """The losses that the entries show."""
        orphans = [f"record {number} is a result whose call is lost" for number in sorted(self._bereft)]
        return [*map(Problem, self.lost), *map(Problem, orphans)]

    @property
    def context(self) -> tuple[AgentMessage, ...] | None:
        """The messages that the model is sent; `None` for the whole history."""
        return None if self._context is None else tuple(self._context.all()[0])

    def past(self) -> Past:
        """What an agent continues from. Every message must be on record: `sessions.session.past_of` ensures that."""
        messages, numbers = self._history.all()
        assert None not in numbers, "recovered results must be recorded first: past_of(journal) does that"
        return Past(
            messages=tuple(messages),
            numbers=tuple([number for number in numbers if number is not None]),
            context=self.context,
            model=self.model,
            state=copy_json(self.state),
        )

    def recovered(self) -> tuple[list[RecoveredResult], list[RecoveredResult]]:
        """The recovered results that are not on record: those inside the history, and those at its end."""
        batch = self._history.batch
        at_end = [] if batch is None else self._missing(batch)
        inside: list[RecoveredResult] = []
        if None in self._history.numbers:
            keys = {id(message): key for key, message in self._recovered.items()}
            for message, number in zip(self._history.messages, self._history.numbers, strict=True):
                if number is None and type(message) is ToolResultMessage:
                    inside.append(RecoveredResult(*keys[id(message)], message))
        return inside, at_end

    def _missing(self, batch: OpenCalls) -> list[RecoveredResult]:
        return [
            RecoveredResult(batch.reply, index, self.recover(batch, index))
            for index, result in enumerate(batch.results)
            if result is None
        ]

    @property
    def numbers(self) -> list[int | None]:
        """The number of each message's entry; `None` for recovered results."""
        return self._history.all()[1]

    def history_numbers(self, recorded: Mapping[int, int]) -> list[int]:
        """The numbers of the history's entries. `recorded` maps object ids of results recorded since to numbers."""
        return [recorded[id(message)] if number is None else number for number, message in self._history.on_record()]

    def context_parts(self, recorded: Mapping[int, int]) -> list[int | AgentMessage] | None:
        """The context as a `ContextReplaced` has it; `recorded` as for `history_numbers`."""
        if self._context is None:
            return None
        return [
            recorded.get(id(message), message) if number is None or number < 0 else number
            for number, message in self._context.on_record()
        ]


def _shared(before: Sequence[int | None], after: Sequence[int | None]) -> int:
    """How many messages two histories share at their start. A recovered result may have got its number since."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not None and old != new:
            return at
    return min(len(before), len(after))


def _start_of(message: UserMessage) -> str:
    return "" if message.origin in ("shell", "summary") else title_from(extract_text(message.content))
