"""What a session's records say of its runs: what came from outside, what the model and the tools gave, what that made.

Owns the way from entries to runs and turns. Nothing is run here: who plays a recording to an agent is in `replay`, and
what the history is when a session goes on is in `fold`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

from swink_agent.core.journal import (
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    MessageSource,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    StopReason,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    extract_text,
)

__all__ = ["ANSWER", "Expected", "Record", "RecordedRun", "RecordedSession", "Turn", "read_runs"]

ANSWER = re.compile(r"final_answer_*")
"""The name of the library's own tool, by which structured output is given."""


_BY_THE_TOOL = frozenset({ToolOutcome.RAN, ToolOutcome.FAILED, ToolOutcome.INVALID})
"""How calls end of a tool that is there."""
_REMINDER = re.compile(f"Answer by calling the tool ({ANSWER.pattern}), not in text")


class Record(Protocol):
    """One record of a session: its number, and what it says."""

    @property
    def number(self) -> int: ...
    @property
    def entry(self) -> Any: ...


class RecordedSession(Protocol):
    """What can be replayed: a session, a loaded one, or anything else that kept a journal's entries."""

    @property
    def messages(self) -> Sequence[AgentMessage]: ...
    def records(self) -> Iterable[Record]: ...


class Expected(NamedTuple):
    """A message that a run added to the history."""

    message: AgentMessage
    source: MessageSource
    turn: int
    """Which turn of the run it belongs to; -1 for its prompts."""
    call: int | None = None
    is_known: bool = True
    """False for what a crash left half done: it is not compared."""


class Turn:
    """One reply, what entered the history before it, and what its calls gave."""

    __slots__ = ("injected", "reply", "reply_number", "result_numbers", "results", "started", "state")

    def __init__(self) -> None:
        self.injected: list[tuple[int, MessageSource, AgentMessage]] = []
        self.reply: AssistantMessage | None = None
        """As the model gave it, whatever a policy made of it afterwards."""
        self.reply_number = -1
        self.results: dict[int, ToolResultMessage] = {}
        """As the tools gave them, by the index of their calls."""
        self.result_numbers: dict[int, int] = {}
        self.started: dict[int, ToolStarted] = {}
        self.state: dict[str, Any] | None = None
        """What the tools made of the agent's state, if they changed it."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return () if self.reply is None else self.reply.tool_calls

    def messages(self, source: MessageSource) -> list[AgentMessage]:
        """What entered before the reply from there."""
        return [message for _, origin, message in self.injected if origin == source]


class RecordedRun:
    """One run: what it began with, its turns, and how it ended, if it did."""

    __slots__ = ("before", "end", "prompts", "replaced", "start", "state", "turns")

    def __init__(self, start: int, before: tuple[AgentMessage, ...] | None, state: dict[str, Any] | None) -> None:
        self.start = start
        """How many messages there were before it."""
        self.before = before
        """The history to begin with; `None` for the one that the run before left."""
        self.state = state
        self.prompts: list[tuple[int, AgentMessage]] = []
        self.turns: list[Turn] = []
        self.replaced: dict[int, AgentMessage] = {}
        self.end: RunEnded | None = None

    @property
    def ends_early(self) -> bool:
        """Whether it may have ended where the agent would have gone on: a crash, an abort, a full disk."""
        return self.end is None or self.end.stop_reason in (StopReason.ABORTED, StopReason.ERROR)

    def is_lost(self, index: int, call: int) -> bool:
        """Whether this call has no result of its own, since the program ended."""
        result = self.turns[index].results.get(call)
        if result is None or result.outcome is ToolOutcome.LOST:
            return True
        # Where the run went on, the model was told why a call never ran, or what it was cancelled for.
        is_last = self.end is None and all(turn.reply is None for turn in self.turns[index + 1 :])
        return is_last and result.outcome in (ToolOutcome.NEVER_RAN, ToolOutcome.CANCELLED)

    # -- interruptions -----------------------------------------------------------------------------------------

    def was_cut_short(self, index: int, call: int) -> bool:
        """Whether the call came to no result of its own, since somebody spoke or ended it."""
        return self.is_lost(index, call) or self.turns[index].results[call].outcome is ToolOutcome.CANCELLED

    def interruption(self, index: int) -> Literal["steering", "abort"] | None:
        """What cut the calls of a turn short, if something did; `None` for a call that cancelled itself."""
        turn = self.turns[index]
        if any(self.is_lost(index, call) for call in range(len(turn.calls))):
            return "abort"
        if index + 1 == len(self.turns):
            return "abort" if self.ends_early else "steering"
        return "steering" if self.turns[index + 1].messages("steering") else None

    def is_steered_early(self, index: int) -> bool:
        """Whether the message that leads the next turn came while tools ran: before what a policy said after them."""
        if index + 1 == len(self.turns):
            return False
        following = self.turns[index + 1]
        sources = [source for _, source, _ in following.injected]
        if "steering" not in sources:
            return False
        return "policy" in sources[sources.index("steering") :]

    # -- what it came to ---------------------------------------------------------------------------------------

    def expected(self, found: Sequence[AgentMessage] = ()) -> list[tuple[int | None, Expected]]:
        """What the run added to the history, each with the number of its entry.

        A result that is nowhere on record is taken from `found`, the session's history, or made up.
        """
        added: list[tuple[int | None, Expected]] = [
            (number, Expected(self._now(number, message), "prompt", -1)) for number, message in self.prompts
        ]
        for index, turn in enumerate(self.turns):
            # Where the recording breaks off, more may have been about to enter, in whatever order.
            is_known = turn.reply is not None or self.end is not None
            for number, source, message in turn.injected:
                added.append((number, Expected(self._now(number, message), source, index, None, is_known)))
            if turn.reply is None:
                continue
            added.append((turn.reply_number, Expected(self._now(turn.reply_number, turn.reply), "reply", index)))
            for position, call in enumerate(turn.calls):
                number, result = turn.result_numbers.get(position), turn.results.get(position)
                if number is None or result is None:
                    message = _recovered(call, found, self.start + len(added))
                else:
                    message = self._now(number, result)
                is_known = not self.is_lost(index, position)
                added.append((number, Expected(message, "result", index, position, is_known)))
        return added

    def _now(self, number: int, message: AgentMessage) -> AgentMessage:
        return self.replaced.get(number, message)

    # -- structured output -------------------------------------------------------------------------------------

    def answer_tool(self, tool_names: Iterable[str]) -> str | None:
        """The tool by which the run was asked for a value, if it was: one that the agent itself does not have."""
        if self.end is not None and self.end.stopped_by is not None and ANSWER.fullmatch(self.end.stopped_by.policy):
            return self.end.stopped_by.policy
        own = set(tool_names)
        for turn in self.turns:
            for message in turn.messages("policy"):
                if isinstance(message, UserMessage) and (asked := _REMINDER.match(extract_text(message.content))):
                    return asked[1]
            for index, result in turn.results.items():
                if ANSWER.fullmatch(result.tool_name) is None or result.tool_name in own:
                    continue
                is_there = turn.calls[index].partial_json is None and result.outcome in _BY_THE_TOOL
                # When people are asked and calls started, those of tools that are not there have their results already.
                is_screened = turn.started or any(one.outcome is ToolOutcome.REJECTED for one in turn.results.values())
                if is_there or (is_screened and result.outcome is ToolOutcome.CANCELLED):
                    return result.tool_name
        return None

    def accepted(self, answer_tool: str) -> list[dict[str, Any]]:
        """The answers that were taken."""
        answers: list[dict[str, Any]] = []
        for turn in self.turns:
            for index, call in enumerate(turn.calls):
                result = turn.results.get(index)
                if call.name == answer_tool and result is not None and not result.is_error:
                    answers.append(arguments_of(turn, index))
        return answers

    def attempts(self, answer_tool: str) -> int:
        """How often the model tried, or spoke instead."""
        replies = [turn.reply for turn in self.turns if turn.reply is not None and not turn.reply.is_failed]
        return sum(
            not reply.tool_calls or any(call.name == answer_tool for call in reply.tool_calls) for reply in replies
        )


def arguments_of(turn: Turn, index: int) -> dict[str, Any]:
    """What the call was run with: the model's arguments, unless somebody changed them."""
    started = turn.started.get(index)
    changed = None if started is None else started.arguments
    return turn.calls[index].arguments if changed is None else changed


def _recovered(call: ToolCall, found: Sequence[AgentMessage], position: int) -> ToolResultMessage:
    there = found[position] if position < len(found) else None
    if isinstance(there, ToolResultMessage) and there.tool_call_id == call.id:
        return there
    return ToolResultMessage(
        call.id, "outcome unknown: it is not on record", True, tool_name=call.name, outcome=ToolOutcome.LOST
    )


# -- reading -------------------------------------------------------------------------------------------------


def read_runs(session: RecordedSession) -> tuple[list[RecordedRun], int]:
    """The runs in order, and how many messages there are where the history is longest."""
    reader = _Reader(tuple(session.messages))
    for record in session.records():
        reader.read(record.number, record.entry)
    reader.close_run()
    reader.measure()
    return reader.runs, reader.longest


class _Reader:
    """Takes entries one by one. What is missing or out of place costs that entry, never the rest."""

    def __init__(self, found: Sequence[AgentMessage]) -> None:
        self.runs: list[RecordedRun] = []
        self.history: list[tuple[int | None, AgentMessage]] = []
        self.longest = 0
        self._found = found
        self._run: RecordedRun | None = None
        self._state: dict[str, Any] | None = None
        self._known: dict[int, AgentMessage] = {}
        self._is_set = True
        """Whether the history is another than the last run left, as far as an agent that is replayed knows."""
        self._has_just_ended = False

    def read(self, number: int, entry: Any) -> None:
        match entry:
            case RunStarted():
                self.close_run()
                self._open_run()
            case RunEnded():
                if self._run is not None:
                    self._run.end = entry
                    self.close_run()
                    self._has_just_ended = True
                    return
            case MessageAdded(source="given"):
                self.close_run()
                self._add(number, entry.message)
                self._is_set = True
            case MessageAdded(source="result") if self._run is None:
                self._recover(number, entry)
            case MessageAdded():
                self._message(self._run or self._open_run(), number, entry)
            case MessageReplaced():
                self._replace(entry)
            case ToolStarted():
                if (turn := self._turn()) is not None:
                    turn.started.setdefault(entry.call, entry)
            case StateChanged():
                self._change_state(entry.state)
            case HistoryCut():
                self.close_run()
                self.history = [(kept, self._known[kept]) for kept in entry.numbers if kept in self._known]
                self._is_set = True
            case _:
                pass  # models, contexts, titles: they change no message
        self._has_just_ended = False

    def measure(self) -> None:
        """Takes the history as one that somebody had: between runs it may be half of another."""
        self.longest = max(self.longest, len(self.history))

    def _open_run(self) -> RecordedRun:
        self.measure()
        before = tuple([message for _, message in self.history]) if self._is_set else None
        self._run = RecordedRun(len(self.history), before, self._state)
        self._state, self._is_set = None, False
        return self._run

    def close_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        self.runs.append(run)
        for number, expected in run.expected(self._found):
            self._add(number, expected.message)
            self._is_set = self._is_set or not expected.is_known
        self._is_set = self._is_set or run.ends_early
        self.measure()

    def _add(self, number: int | None, message: AgentMessage) -> None:
        self.history.append((number, message))
        if number is not None:
            self._known[number] = message

    def _recover(self, number: int, entry: MessageAdded) -> None:
        """A result that stands for one which no run has left: of a call in a history that was given or cut, that is new
        to it; else it is in its place already."""
        replies = [at for at, (_, message) in enumerate(self.history) if isinstance(message, AssistantMessage)]
        if not replies or not isinstance(entry.message, ToolResultMessage):
            return
        turn, first = Turn(), replies[-1] + 1
        turn.reply = cast("AssistantMessage", self.history[replies[-1]][1])
        for at, (_, message) in enumerate(self.history[first:]):
            if isinstance(message, ToolResultMessage):
                _place(turn, at, message, None)
        there = set(turn.results)
        _place(turn, number, entry.message, entry.call)
        for index in turn.results.keys() - there:
            self._add(number, entry.message)
            self.history.insert(first + sum(other < index for other in there), self.history.pop())

    def _turn(self) -> Turn | None:
        return self._run.turns[-1] if self._run is not None and self._run.turns else None

    def _message(self, run: RecordedRun, number: int, entry: MessageAdded) -> None:
        message, turn = entry.message, self._turn()
        if entry.source == "prompt":
            run.prompts.append((number, message))
        elif entry.source == "result":
            if turn is not None and isinstance(message, ToolResultMessage):
                _place(turn, number, message, entry.call)
        else:
            if turn is None or turn.reply is not None:
                turn = Turn()
                run.turns.append(turn)
            if entry.source != "reply":
                turn.injected.append((number, entry.source, message))
            elif isinstance(message, AssistantMessage):
                turn.reply, turn.reply_number = message, number

    def _replace(self, entry: MessageReplaced) -> None:
        if self._run is not None:
            self._run.replaced[entry.number] = entry.message

    def _change_state(self, state: dict[str, Any]) -> None:
        turn = self._turn()
        if turn is not None and turn.reply is not None:
            turn.state = state
        elif self._run is not None:
            self._run.state = state  # it is written when the model is asked, and was so before
        else:
            self._state = state
            if self._has_just_ended and self.runs[-1].turns:
                self.runs[-1].turns[-1].state = state  # the last of a run is written behind its end


def _place(turn: Turn, number: int, message: ToolResultMessage, call: int | None) -> None:
    calls = turn.calls
    free = [index for index in range(len(calls)) if index not in turn.results]
    wanted = free if call is None else [index for index in free if index == call]
    for index in wanted:
        if calls[index].id == message.tool_call_id:
            turn.results[index], turn.result_numbers[index] = message, number
            return
