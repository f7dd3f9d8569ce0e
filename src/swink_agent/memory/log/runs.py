"""One run of a session, as its records say, and its `RunRecord`.

Owns runs and their turns: exchanges and facts, and the data that a `RunRecord` does not keep because only a replay
needs it: replies and results before policies replaced them, the source of each message, the agent's state. `fold` fills
them from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from swink_agent.core.approval import Grant
from swink_agent.core.events import AgentEnd, AgentStart, CompactionReport
from swink_agent.core.journal import CallFacts, MessageSource, RunEnded, RunStarted, ToolStarted
from swink_agent.core.record import CallRecord, RunRecord, TurnRecord, with_delegates
from swink_agent.core.run.pending import WaitingCall
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
from swink_agent.core.values.data import as_json_data


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


class StoredResult(NamedTuple):
    """A result as its tool returned it, before policies replaced it."""

    number: int
    message: ToolResultMessage
    facts: CallFacts | None


class ClosedCall(NamedTuple):
    """A call that waited, and that a run closed before anything else."""

    waiting: WaitingCall
    result: StoredResult


class StoredTurn:
    """One reply, the messages that entered the history before it, and the results of its calls."""

    def __init__(
        self, reply: AssistantMessage | None = None, number: int = -1, waiting: tuple[WaitingCall, ...] = ()
    ) -> None:
        self.injected: list[tuple[int, MessageSource, AgentMessage]] = []
        self.reply = reply
        """As the model sent it, before policies replaced it."""
        self.number = number
        """The number of the entry that added the reply."""
        self.waiting = waiting
        """For the turn of an earlier reply, in a run that brings answers: the calls that waited."""
        self.results: dict[int, StoredResult] = {}
        """By the index of the call."""
        self.started: dict[int, ToolStarted] = {}
        self.state: dict[str, Any] | None = None
        """The agent's state after the tools ran, if they changed it."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return () if self.reply is None else self.reply.tool_calls

    def result(self, index: int) -> ToolResultMessage | None:
        return self.results[index].message if index in self.results else None

    def is_answered(self, index: int) -> bool:
        """Whether a call has a result here, or at least started."""
        return index in self.results or index in self.started

    @property
    def own(self) -> list[int]:
        """The calls that ended in this turn. The others of a turn with answers still wait."""
        if self.waiting:
            return [one.index for one in self.waiting if self.is_answered(one.index)]
        return list(range(len(self.calls)))

    def messages(self, source: MessageSource) -> list[AgentMessage]:
        """The messages from this source that entered the history before the reply."""
        return [message for _, origin, message in self.injected if origin == source]

    # -- the record ----------------------------------------------------------------------------------------------

    def record(
        self, reply: AssistantMessage, injected: Sequence[AddedMessage], results: Sequence[AddedMessage]
    ) -> TurnRecord:
        """The record of the turn, with the reply and the messages of the history."""
        calls = {one.index: _waiting_record(one) for one in self.waiting} or {
            index: CallRecord(call.id, call.name, call.arguments) for index, call in enumerate(self.calls)
        }
        for one in results:
            if one.call is not None and isinstance(one.message, ToolResultMessage):
                calls[one.call] = self._call_record(one.call, calls[one.call], one.message)
        return TurnRecord(tuple([one.message for one in injected]), reply, tuple(calls.values()))

    def _call_record(self, index: int, known: CallRecord, message: ToolResultMessage) -> CallRecord:
        call, start = self.calls[index], self.started.get(index)
        at_start = None if start is None else start.facts  # the only facts of a call without a result
        known_facts = self.results[index].facts if index in self.results else None
        facts = known_facts or at_start or CallFacts(is_started=start is not None)
        changed = facts.arguments if start is None or start.arguments is None else start.arguments
        arguments = as_json_data(call.arguments if changed is None else changed)
        is_decided, is_started = facts.approval in ("approved", "rejected"), facts.is_started and start is not None
        has_grant = is_started and facts.scope is not None
        return CallRecord(
            id=call.id,
            name=call.name,
            arguments=arguments,
            approval=facts.approval if is_decided or not self.waiting else known.approval,
            note=facts.note if is_decided else "",
            grant=Grant(call.name, arguments, as_json_data(facts.scope)) if has_grant else None,
            is_started=is_started,
            outcome=message.outcome,
            reason=facts.reason,
            seconds=0.0 if message.outcome is ToolOutcome.PENDING else facts.seconds,
            result=AgentToolResult(message.content, message.details, message.is_error),
            usage=facts.usage or Usage(),
            cost=facts.cost or Cost(),
        )


def _waiting_record(one: WaitingCall) -> CallRecord:
    """The record of a call that waited for the answers that this run brings."""
    call, pending = one.call, one.pending
    is_inside = pending.kind == "delegate"
    return CallRecord(
        call.id,
        call.name,
        as_json_data(call.arguments if is_inside else pending.arguments),
        "asked" if pending.kind == "approval" else None,
        outcome=ToolOutcome.PENDING,
        reason="" if is_inside else pending.reason,
        seconds=0.0,
    )


class StoredRun:
    """One run: its start, its turns, and its end, if it has one."""

    def __init__(
        self,
        start: int,
        recovered: Callable[[int, int, ToolCall], ToolResultMessage],
        *,
        is_set: bool,
        state: dict[str, Any] | None,
    ) -> None:
        self.start = start
        """How many messages the history had before the run."""
        self.is_set = is_set
        """Whether that history differs from the one that the previous run leaves in a replaying agent."""
        self.state = state
        self._recovered = recovered
        """Returns the result that a call without one in this run has in the history."""
        self.closed: list[ClosedCall] = []
        """The calls that waited, and that this run closed before anything else."""
        self.prompts: list[tuple[int, AgentMessage]] = []
        self.turns: list[StoredTurn] = []
        self.replaced: dict[int, AgentMessage] = {}
        self.uncounted: list[AssistantMessage | CompactionReport] = []
        """Replies and compactions that are not in `_counted` yet. Most never are: the end has the usage of the run."""
        self._counted = (Usage(), Cost())
        self._delegated = (Usage(), Cost())
        """Those of delegates."""
        self.started: RunStarted | None = None
        self.end: RunEnded | None = None

    def take(self, number: int, message: AgentMessage, source: MessageSource) -> None:
        """Takes a message that is not a result."""
        if source == "prompt":
            self.prompts.append((number, message))
            return
        turn = self.turn
        if turn is None or turn.reply is not None:
            turn = StoredTurn()
            self.turns.append(turn)
        if source != "reply":
            turn.injected.append((number, source, message))
        elif isinstance(message, AssistantMessage):
            turn.reply, turn.number = message, number
            self.uncounted.append(message)

    def take_result(self, index: int | None, result: StoredResult) -> None:
        """Takes the result of a call of the last turn; one without an index is only counted.

        A call that was deferred and then cancelled has two results. One that was made after a crash has no facts.
        """
        known = None if index is None else self.turns[-1].results.get(index)
        facts, earlier = result.facts, None if known is None else known.facts
        if facts is not None and (earlier is None or earlier.usage is None):
            usage, cost = self._delegated
            self._delegated = usage + (facts.usage or Usage()), cost + (facts.cost or Cost())
        if index is not None:
            self.turns[-1].results[index] = result if facts is not None else result._replace(facts=earlier)

    @property
    def turn(self) -> StoredTurn | None:
        """The last turn."""
        return self.turns[-1] if self.turns else None

    @property
    def ends_early(self) -> bool:
        """Whether it may have ended where the agent would have continued: a crash, an abort, a full disk."""
        return self.end is None or self.end.stop_reason in (StopReason.ABORTED, StopReason.ERROR)

    @property
    def has_lost_results(self) -> bool:
        return any(self.is_lost(index, call) for index, turn in enumerate(self.turns) for call in turn.own)

    def is_lost(self, index: int, call: int) -> bool:
        """Whether the result of a call of this turn was lost because the program ended."""
        result = self.turns[index].result(call)
        if result is None or result.outcome is ToolOutcome.LOST:
            return True
        # If the run continued, its next messages show why the call never ran or was cancelled.
        is_last = self.end is None and all(turn.reply is None for turn in self.turns[index + 1 :])
        return is_last and result.outcome in (ToolOutcome.NEVER_RAN, ToolOutcome.CANCELLED)

    @property
    def counted(self) -> tuple[Usage, Cost]:
        """The usage and cost of replies and compactions so far."""
        for one in self.uncounted:
            self._counted = self._counted[0] + one.usage, self._counted[1] + one.cost
        self.uncounted.clear()
        return self._counted

    @property
    def spent(self) -> tuple[Usage, Cost]:
        """The usage and cost of the run and its delegates, so far."""
        usage, cost = self.counted if self.end is None else (self.end.usage, self.end.cost)
        return usage + self._delegated[0], cost + self._delegated[1]

    # -- what it added -------------------------------------------------------------------------------------------

    @cached_property
    def added(self) -> list[AddedMessage]:
        """What the run added to the history. Complete once all of its entries are read."""
        added = [
            AddedMessage(self._now(*result[:2]), "result", -1, one.index, number=result.number, replaces=one.position)
            for one, result in self.closed
        ]
        added += [AddedMessage(self._now(number, one), "prompt", -1, number=number) for number, one in self.prompts]
        for index, turn in enumerate(self.turns):
            added += self._added_by(index, turn)
        return added

    def _added_by(self, index: int, turn: StoredTurn) -> list[AddedMessage]:
        # Where the recording breaks off, other messages may have been about to enter, in any order.
        is_known = turn.reply is not None or self.end is not None
        added = [
            AddedMessage(self._now(number, message), source, index, None, is_known, number)
            for number, source, message in turn.injected
        ]
        if turn.reply is not None and not turn.waiting:
            added.append(AddedMessage(self._reply(turn, turn.reply), "reply", index, number=turn.number))
        positions = {one.index: one.position for one in turn.waiting}
        for call in turn.own:
            result = turn.results.get(call)
            number = None if result is None else result.number
            message = self._recovered(turn.number, call, turn.calls[call]) if result is None else self._now(*result[:2])
            is_known = not self.is_lost(index, call)
            added.append(AddedMessage(message, "result", index, call, is_known, number, positions.get(call)))
        return added

    def _now(self, number: int, message: AgentMessage) -> AgentMessage:
        return self.replaced.get(number, message)

    def _reply(self, turn: StoredTurn, reply: AssistantMessage) -> AssistantMessage:
        now = self._now(turn.number, reply)
        return now if isinstance(now, AssistantMessage) else reply

    # -- the record ----------------------------------------------------------------------------------------------

    @cached_property
    def record(self) -> RunRecord:
        """The record of the run. It is not over if the run broke off."""
        prompts = tuple([one.message for one in self.added if one.source == "prompt"])
        # The record of the start may be lost.
        start = self.started or RunStarted("", "prompt" if prompts else "continue")
        turns: list[TurnRecord] = []
        for index, turn in enumerate(self.turns):
            if turn.reply is not None:
                own = self._added_by(index, turn)
                injected = [one for one in own if one.source in ("steering", "follow_up", "policy")]
                turns.append(
                    turn.record(self._reply(turn, turn.reply), injected, [one for one in own if one.call is not None])
                )
        begun = AgentStart(start.run_id, start.kind, start.schema, prompts)
        told = [one.message for one in self.added if one.turn >= 0 or one.source == "prompt"]
        return RunRecord.of_turns(begun, turns, told, self.counted, self._agent_end(turns))

    def _agent_end(self, turns: Sequence[TurnRecord]) -> AgentEnd | None:
        end = self.end
        if end is None:
            return None
        messages = tuple([one.message for one in self.added])
        delegated = with_delegates((Usage(), Cost()), [call for turn in turns for call in turn.calls])
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
            delegated_usage=delegated[0],
            delegated_cost=delegated[1],
        )
        return AgentEnd(messages, end.stopped_by, result)
