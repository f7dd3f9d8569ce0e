"""The protocol of a journal: a run's entries are recorded in order, then made durable.

    record      takes an entry and gives it its number; returns at once
    durable     returns when everything recorded so far will survive a crash, or raises the error that prevents it

A run waits for `durable` before it asks the model, before tools start, and before it returns. If `durable` raises, the
run ends at once. A journal may store entries in a file, a database or another process; how it does so, and how a
history is rebuilt from entries, is not defined here.

Owns the protocol, and the `Recorder`, which makes the entries of one agent. The entries are in `entries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from .entries import (
    CallFacts,
    ContextReplaced,
    HistoryCut,
    JournalEntry,
    MessageAdded,
    MessageReplaced,
    MessageSource,
    ModelChanged,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from .errors import AgentError
from .events import CompactionReport, RunKind
from .secrets.redaction import Redactor
from .types import AgentMessage, AgentResult, Document, Image, ModelSpec, ToolOutcome, ToolResultMessage
from .values.data import checked_json_data
from .values.value import Value


class Journal(Protocol):
    """Stores entries. One run at a time uses it, from one event loop; between runs, any thread may record.

    A journal may have an attribute `is_durable`: while it is true, runs do not wait for `durable`.
    """

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        """Takes the next entry and returns its number, which is greater than all earlier ones. Never blocks or raises.

        With a redactor, the journal masks its secrets in whatever it stores. Errors are raised by `durable`.
        """
        ...

    async def durable(self) -> None:
        """Returns when everything recorded so far would survive a crash. Raises the error that prevents it.

        It may also raise after it has written everything, if the run was cancelled or taken over by another process.
        Then the run ends at once: no model is asked, and no tool starts.
        """
        ...


class Past(Value, frozen=True, kw_only=True):
    """The state of an agent in a journal, to continue from."""

    messages: tuple[AgentMessage, ...] = ()
    numbers: tuple[int, ...] = ()
    """For each message, the number of the entry that added it."""
    context: tuple[AgentMessage, ...] | None = None
    """The messages that are sent to the model; `None` for the whole history."""
    model: ModelSpec | None = None
    state: dict[str, Any] = {}


class Recorder:
    """Records one agent in one journal."""

    __slots__ = ("_failure", "_model", "_numbers", "_record_in", "_state", "journal", "redactor")

    call_facts = CallFacts
    """For `dispatch`, which does not import this module if there is no journal."""

    def __init__(self, journal: Journal, past: Past | None = None) -> None:
        self.journal = journal
        self._record_in = journal.record
        self._failure: Exception | None = None
        self.redactor: Redactor | None = None
        past = Past() if past is None else past
        # By `id`: the history keeps its messages alive, so no other object gets the id of a message in use.
        self._numbers = {id(message): number for message, number in zip(past.messages, past.numbers, strict=True)}
        self._model = past.model
        self._state = _encoded(past.state)

    def _record(self, entry: JournalEntry) -> None:
        try:
            self._record_in(entry, self.redactor)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Stops recording: a journal that raised in `record` has a gap. `durable` raises the error."""
        self._failure, self._record_in = error, _record_nothing

    @property
    def is_durable(self) -> bool:
        """Whether `durable` would return at once."""
        return self._failure is None and getattr(self.journal, "is_durable", False)

    async def durable(self) -> None:
        """Returns when everything recorded so far is safe. Raises the error of the journal."""
        if self._failure is not None:
            raise self._failure
        await self.journal.durable()

    # -- messages ----------------------------------------------------------------------------------------------

    def added(self, messages: Iterable[AgentMessage], source: MessageSource) -> None:
        record = self._record_in  # here and below: faster than a method call
        try:
            for message in messages:
                self._numbers[id(message)] = record(MessageAdded(message, source), self.redactor)
        except Exception as error:
            self._give_up(error)

    def resolved(
        self, message: ToolResultMessage, call: int, state: Mapping[str, Any], facts: CallFacts | None = None
    ) -> None:
        """Records the result of a tool call, and the state after it. The result is already masked, except for the
        addresses of images and documents, which the model needs. Scope and arguments in the facts are not masked."""
        if state or self._state is not _NO_STATE:
            with suppress(AgentError):  # state that is not JSON is reported by `make_durable`
                self.state_is(state)
        record = self._record_in
        redactor = None
        if facts is not None and (facts.scope or facts.arguments):
            redactor = self.redactor
        if message.outcome is ToolOutcome.UNKNOWN_TOOL or message.outcome is ToolOutcome.PENDING:
            redactor = self.redactor  # the model made up the name; pending details are not masked yet
        if not _WITH_ADDRESSES.isdisjoint(map(type, message.content)):
            redactor = self.redactor
        try:
            self._numbers[id(message)] = record(MessageAdded(message, "result", call, facts), redactor)
        except Exception as error:
            self._give_up(error)

    def replaced(self, old: AgentMessage, new: AgentMessage) -> None:
        number = self._numbers.pop(id(old), None)
        if number is None:
            return
        self._record(MessageReplaced(number, new))
        self._numbers[id(new)] = number

    def forget(self, message: AgentMessage | None) -> None:
        """Notes that a message is no longer part of the history: another entry replaces it."""
        self._numbers.pop(id(message), None)

    def history_set(self, messages: Sequence[AgentMessage]) -> None:
        """Records that the application replaced the history. Messages of the old history are not written again.

        The change itself comes last: if not all new messages can be written, the old history stays.
        """
        numbers: dict[int, int] = {}
        order: list[int] = []
        record = self._record_in
        try:
            for message in messages:
                number = None if id(message) in numbers else self._numbers.get(id(message))  # given twice: two entries
                if number is None:
                    number = record(MessageAdded(message, "given"), self.redactor)
                numbers[id(message)] = number
                order.append(number)
        except Exception as error:
            self._give_up(error)
        self._record(HistoryCut(tuple(order)))
        self._numbers = numbers

    def context_replaced(self, messages: Iterable[AgentMessage], report: CompactionReport | None) -> None:
        parts = tuple([self._numbers.get(id(message), message) for message in messages])
        self._record(ContextReplaced(parts, report))

    # -- tools, model, state, runs -----------------------------------------------------------------------------

    def tool_started(
        self, call: int, call_id: str, name: str, arguments: dict[str, Any] | None, facts: CallFacts | None = None
    ) -> None:
        # Without arguments and facts, the entry only names a call of the reply: there is nothing to mask.
        record = self._record_in
        redactor = None if arguments is None and facts is None else self.redactor
        try:
            record(ToolStarted(call, call_id, name, arguments, facts), redactor)
        except Exception as error:
            self._give_up(error)

    def model_is(self, model: ModelSpec) -> None:
        if model != self._model:
            self._model = model
            self._record(ModelChanged(model))

    def state_is(self, state: Mapping[str, Any]) -> None:
        """Records the state if it has changed. Raises `AgentError` if it is not JSON."""
        if not state and self._state is _NO_STATE:
            return
        try:
            if _encoded(state) != self._state:
                kept = checked_json_data(dict(state))  # running tools may change it meanwhile
                self._state = _encoded(kept)
                self._record(StateChanged(kept))
        except RecursionError as error:
            raise AgentError("the agent's state cannot be recorded, since it is nested too deep") from error
        except (TypeError, ValueError) as error:
            raise AgentError(f"the agent's state cannot be recorded, since not all of it is JSON: {error}") from error

    def is_safe(self, state: Mapping[str, Any]) -> bool:
        """Whether everything so far is durable, so that there is nothing to wait for. Never raises."""
        if state or self._state is not _NO_STATE or self._failure is not None:
            return False
        return getattr(self.journal, "is_durable", False)

    def run_started(self, run_id: str, kind: RunKind = "prompt", schema: dict[str, Any] | None = None) -> None:
        self._record(RunStarted(run_id, kind, schema))

    def run_ended(self, run_id: str, result: AgentResult) -> None:
        self._record(
            RunEnded(
                run_id,
                result.stop_reason,
                result.usage,
                result.cost,
                result.error,
                result.stopped_by,
                result.error_kind,
                result.value,
                result.has_value,
            )
        )


_NO_STATE = b"{}"
_WITH_ADDRESSES = frozenset({Image, Document})


def _record_nothing(entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
    return 0


def _encoded(state: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(dict(state)) if state else _NO_STATE
