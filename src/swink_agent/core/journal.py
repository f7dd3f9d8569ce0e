"""What a run records, and the protocol for it: entries are recorded in order, then made durable.

    record      takes an entry and gives it its number; returns at once
    durable     returns when everything recorded so far will survive a crash, or raises what refuses it

A run waits for `durable` before anyone relies on what was recorded: before the model is asked, before tools start, and
before it returns. A journal that refuses ends the run at once. How a journal stores entries (in a file, a database,
another process) and how a history is rebuilt from them is not known here.

Owns the entries, the protocol, and the `Recorder` that turns what happens to one agent into entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import field

from .errors import AgentError, ErrorKind
from .events import CompactionReport, RunKind
from .types import (
    AgentMessage,
    AgentResult,
    Cost,
    Document,
    Image,
    ModelSpec,
    PolicyStop,
    StopReason,
    ToolOutcome,
    ToolResultMessage,
    Usage,
)
from .values.value import Value, copy_json

if TYPE_CHECKING:
    from .secrets.redaction import Redactor

# Entries are not tracked by the garbage collector (`gc=False`): they hold no cycles, and a journal may keep many.

MessageSource: TypeAlias = Literal["given", "prompt", "steering", "follow_up", "policy", "reply", "result"]
"""Who added a message: the application (`given`), a prompt, a queue, a policy, the model, a tool."""


class CallFacts(Value, frozen=True, omit_defaults=True, gc=False):
    """What is known of a call in addition to its result: the fields of `ToolApprovalResolved` and `ToolExecutionEnd`.

    `scope` is that of the grant. `arguments` are there only if the call never started and they are not those of the
    reply: otherwise the entry of its start has them. `usage` and `cost` are those of the delegate that the call ran.
    """

    seconds: float | None = None
    approval: Literal["asked", "approved", "rejected"] | None = None
    """`asked` if the call waits for its answer."""
    note: str = ""
    scope: dict[str, Any] | None = None
    reason: str = ""
    is_started: bool = True
    arguments: dict[str, Any] | None = None
    usage: Usage | None = None
    cost: Cost | None = None


class MessageAdded(Value, frozen=True, tag="message", gc=False):
    """A message entered the history, at its end.

    Results are recorded as tools finish; in the history they are in the order of the calls of the reply before them,
    and `call` is the index of theirs. `facts` are there for results of this version.
    """

    message: AgentMessage
    source: MessageSource
    call: int | None = None
    facts: CallFacts | None = None


class MessageReplaced(Value, frozen=True, tag="replaced", gc=False):
    """Another message replaces the one that the entry `number` added."""

    number: int
    message: AgentMessage


class ToolStarted(Value, frozen=True, tag="tool_started", gc=False):
    """A tool is about to run: call number `call` of the last reply.

    `arguments` are there only if they are not those of the reply: a policy or a person changed them. `facts` are there
    only if the call was approved, so that this is known even if its result never comes.
    """

    call: int
    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    facts: CallFacts | None = None


class ContextReplaced(Value, frozen=True, tag="context", gc=False):
    """The transforms made another context, which is sent from now on.

    `parts` are the numbers of the entries that added its messages; a message that the transforms made stands as itself.
    None at all is the whole history. `report` says what the transforms used; a run's end has that in its own usage.
    """

    parts: tuple[int | AgentMessage, ...]
    report: CompactionReport | None = None


class HistoryCut(Value, frozen=True, tag="history", gc=False):
    """The history is, from now on, the messages of these entries, in this order; the context too."""

    numbers: tuple[int, ...]


class ModelChanged(Value, frozen=True, tag="model", gc=False):
    """The model that is asked from now on, and how much it is to think."""

    model: ModelSpec


class StateChanged(Value, frozen=True, tag="state", gc=False):
    """The agent's whole key-value store, as it is now."""

    state: dict[str, Any]


class RunStarted(Value, frozen=True, tag="run_started", gc=False):
    """A run began; entries up to its end belong to it. `schema` is the one that the caller gave for a value."""

    run_id: str
    kind: RunKind | None = None
    """`None` in entries of an earlier version."""
    schema: dict[str, Any] | None = None


class RunEnded(Value, frozen=True, tag="run_ended", gc=False):
    """How a run ended. Its usage and cost include attempts that were repeated, which are in no message."""

    run_id: str
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    error: str | None = None
    stopped_by: PolicyStop | None = None
    error_kind: ErrorKind | None = None
    value: Any = None
    has_value: bool = False


JournalEntry: TypeAlias = (
    MessageAdded
    | MessageReplaced
    | ToolStarted
    | ContextReplaced
    | HistoryCut
    | ModelChanged
    | StateChanged
    | RunStarted
    | RunEnded
)


class Journal(Protocol):
    """Stores entries. One run at a time uses it, from one event loop; between runs, any thread may record.

    One that has an attribute `is_durable` is not waited for while that is true. One that has a method `settle` may hold
    a reply back until its tools start: `settle`, which never raises, is called before the run waits for anything else.
    """

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry, after all before it, and returns its number, greater than theirs. Never blocks or raises.

        With a redactor, no secret that it knows reaches what the journal keeps. What goes wrong is for `durable`.
        """
        ...

    async def durable(self) -> None:
        """Returns when everything recorded so far would be there after a crash. Raises what keeps it from that.

        It may also raise after it has written everything: a journal whose run was cancelled elsewhere, or taken over,
        refuses what would come next. The run ends at once: no model is asked, and no tool starts.
        """
        ...


class Past(Value, frozen=True, kw_only=True):
    """What a journal has of an agent, to continue from."""

    messages: tuple[AgentMessage, ...] = ()
    numbers: tuple[int, ...] = ()
    """Of each message, the number of the entry that added it."""
    context: tuple[AgentMessage, ...] | None = None
    """What the model is sent of them; `None` for all."""
    model: ModelSpec | None = None
    state: dict[str, Any] = {}


class Recorder:
    """Turns what happens to one agent into entries of one journal."""

    __slots__ = ("_failure", "_model", "_numbers", "_record_in", "_state", "journal", "redactor")

    call_facts = CallFacts
    """For `dispatch`, which does not import this module if there is no journal."""

    def __init__(self, journal: Journal, past: Past | None = None) -> None:
        self.journal = journal
        self._record_in = journal.record
        self._failure: Exception | None = None
        self.redactor: Redactor | None = None
        past = Past() if past is None else past
        # By identity: the history keeps its messages alive, so an id stays theirs while it is in use.
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
        """Returns when everything recorded so far is safe. Raises what keeps the journal from that."""
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
        """Records the result of a tool call, and the state after it. The result is masked except for the addresses of
        images and documents, which the model needs; the facts have the scope and the arguments unmasked."""
        if state or self._state is not _NO_STATE:
            with suppress(AgentError):  # state that is not JSON is reported by `make_durable`
                self.state_is(state)
        record = self._record_in
        redactor = None
        if facts is not None and (facts.scope or facts.arguments):
            redactor = self.redactor
        if message.outcome is _UNKNOWN_TOOL or message.outcome is _PENDING:
            redactor = self.redactor  # the name is the model's, and may be anything; what waits is not masked yet
        for block in message.content:
            if type(block) in _WITH_ADDRESSES:
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
        """Notes that a message is no longer part of the history: another entry has taken its place."""
        self._numbers.pop(id(message), None)

    def history_set(self, messages: Sequence[AgentMessage]) -> None:
        """The application gave the agent another history: what it shares with the old one is not written again.

        The change itself comes last: if not all new messages can be written, the old history stays.
        """
        numbers: dict[int, int] = {}
        order: list[int] = []
        record = self._record_in
        try:
            for message in messages:
                number = None if id(message) in numbers else self._numbers.get(id(message))  # one message twice has two
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
        # Without arguments and facts it names a tool and a call of the reply before it: there is nothing to mask.
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
            encoded = _encoded(state)
            if encoded != self._state:
                now = copy_json(dict(state))  # running tools may change it meanwhile
                encoded = _encoded(now)
                changed = decoded_state(encoded, now)
                self._state = encoded
                self._record(StateChanged(changed))
        except RecursionError as error:
            raise AgentError("the agent's state cannot be recorded, since it is nested too deep") from error
        except (TypeError, ValueError, UnicodeError) as error:
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
_UNKNOWN_TOOL, _PENDING = ToolOutcome.UNKNOWN_TOOL, ToolOutcome.PENDING
_WITH_ADDRESSES = frozenset({Image, Document})


def _record_nothing(entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
    return 0


def _encoded(state: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(dict(state)) if state else _NO_STATE


def decoded_state(encoded: bytes, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state as it will be read. Raises `TypeError` if that differs; a tuple may become a list."""
    read = msgspec.json.decode(encoded)
    for key, value in state.items():
        if read.get(key) != value and read.get(key) != _with_lists(value):
            raise TypeError(f"{key!r} would come back as something else")
    return read


def _with_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_lists(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value
