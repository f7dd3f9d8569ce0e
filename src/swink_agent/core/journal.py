"""What a run writes down, and the one protocol by which it does: entries are recorded in order, then made durable.

    record      takes an entry and gives it its number; returns at once
    durable     returns when everything recorded so far will survive a crash, or raises what refuses it

A run waits for `durable` before anyone relies on what was recorded: before the model is asked, before tools start, and
before it returns. A journal that refuses ends the run at once. What a journal is made of (a file, a database, another
process) is not known here, and neither is how a history is made of entries again.

Owns the entries, the protocol, and the `Recorder` that turns what happens to one agent into entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import msgspec

from .errors import AgentError
from .events import CompactionReport
from .types import (
    AgentMessage,
    AgentResult,
    Cost,
    Image,
    ModelSpec,
    PolicyStop,
    StopReason,
    ToolResultMessage,
    Usage,
)
from .values.value import Value, copy_json

if TYPE_CHECKING:
    from .secrets.redaction import Redactor

__all__ = [
    "ContextReplaced",
    "HistoryCut",
    "Journal",
    "JournalEntry",
    "MessageAdded",
    "MessageReplaced",
    "MessageSource",
    "ModelChanged",
    "Past",
    "Recorder",
    "RunEnded",
    "RunStarted",
    "StateChanged",
    "ToolStarted",
    "decoded_state",
]

# Entries are not tracked by the garbage collector (`gc=False`): they hold no cycles, and a journal may keep many.

MessageSource: TypeAlias = Literal["given", "prompt", "steering", "follow_up", "policy", "reply", "result"]
"""Who added a message: the application (`given`), a prompt, a queue, a policy, the model, a tool."""


class MessageAdded(Value, frozen=True, tag="message", gc=False):
    """A message entered the history, at its end.

    Results are recorded as tools finish: in the history they stand in the order of the calls of the reply before them,
    and `call` is the index of theirs.
    """

    message: AgentMessage
    source: MessageSource
    call: int | None = None


class MessageReplaced(Value, frozen=True, tag="replaced", gc=False):
    """Another message stands in the place of the one that the entry `number` added."""

    number: int
    message: AgentMessage


class ToolStarted(Value, frozen=True, tag="tool_started", gc=False):
    """A tool is about to run: call number `call` of the last reply.

    `arguments` are there only if they are not those of the reply: a policy or a person changed them.
    """

    call: int
    call_id: str
    name: str
    arguments: dict[str, Any] | None = None


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
    """A run began; entries up to its end belong to it."""

    run_id: str


class RunEnded(Value, frozen=True, tag="run_ended", gc=False):
    """How a run ended. Its usage and cost include attempts that were repeated, which are in no message."""

    run_id: str
    stop_reason: StopReason
    usage: Usage = Usage()
    cost: Cost = Cost()
    error: str | None = None
    stopped_by: PolicyStop | None = None


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
    """Where entries go. One run at a time uses it, from one event loop; between runs, any thread may record.

    One that has an attribute `is_durable` is not waited for while that is true.
    """

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry, after all before it, and returns its number, greater than theirs. Never blocks or raises.

        With a redactor, no secret that it knows reaches what the journal keeps. What goes wrong is for `durable`.
        """
        ...

    async def durable(self) -> None:
        """Returns when everything recorded so far would be there after a crash. Raises what keeps it from that."""
        ...


class Past(Value, frozen=True, kw_only=True):
    """What a journal holds of an agent, to go on from."""

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
        """A journal that raised where it was to record, against its word, has a gap: it is given nothing more, and who
        waits is told."""
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
        record = self._record_in  # here and below: what is looked up as a method takes longer
        try:
            for message in messages:
                self._numbers[id(message)] = record(MessageAdded(message, source), self.redactor)
        except Exception as error:
            self._give_up(error)

    def resolved(self, message: ToolResultMessage, call: int, state: Mapping[str, Any]) -> None:
        """A tool call has its result, and has made this of the state. No secret is left in it but in the addresses of
        pictures, which a model is sent."""
        if state or self._state is not _NO_STATE:
            with suppress(AgentError):  # what is no JSON is told when somebody waits for it
                self.state_is(state)
        record = self._record_in
        redactor = None
        for block in message.content:
            if type(block) is Image:
                redactor = self.redactor
        try:
            self._numbers[id(message)] = record(MessageAdded(message, "result", call), redactor)
        except Exception as error:
            self._give_up(error)

    def replaced(self, old: AgentMessage, new: AgentMessage) -> None:
        number = self._numbers.pop(id(old), None)
        if number is None:
            return
        self._record(MessageReplaced(number, new))
        self._numbers[id(new)] = number

    def history_set(self, messages: Sequence[AgentMessage]) -> None:
        """The application gave the agent another history: what it shares with the old one is not written again.

        The change itself comes last: whoever cannot write all that is new still has the old history.
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

    def tool_started(self, call: int, call_id: str, name: str, arguments: dict[str, Any] | None) -> None:
        # Without arguments it names a tool and a call of the reply before it: there is nothing in it to mask.
        record = self._record_in
        try:
            record(ToolStarted(call, call_id, name, arguments), None if arguments is None else self.redactor)
        except Exception as error:
            self._give_up(error)

    def model_is(self, model: ModelSpec) -> None:
        if model != self._model:
            self._model = model
            self._record(ModelChanged(model))

    def state_is(self, state: Mapping[str, Any]) -> None:
        """Records the state if it has changed. Raises `AgentError` if it is no JSON."""
        if not state and self._state is _NO_STATE:
            return
        try:
            encoded = _encoded(state)
            if encoded != self._state:
                now = copy_json(dict(state))  # tools that still run may change it meanwhile
                encoded = _encoded(now)
                changed = decoded_state(encoded, now)
                self._state = encoded
                self._record(StateChanged(changed))
        except RecursionError as error:
            raise AgentError("the agent's state cannot be recorded, since it is nested too deep") from error
        except (TypeError, ValueError, UnicodeError) as error:
            raise AgentError(f"the agent's state cannot be recorded, since not all of it is JSON: {error}") from error

    def is_safe(self, state: Mapping[str, Any]) -> bool:
        """Whether all that happened is known to be safe, so that there is nothing to wait for. Never raises."""
        if state or self._state is not _NO_STATE or self._failure is not None:
            return False
        return getattr(self.journal, "is_durable", False)

    def run_started(self, run_id: str) -> None:
        self._record(RunStarted(run_id))

    def run_ended(self, run_id: str, result: AgentResult) -> None:
        self._record(RunEnded(run_id, result.stop_reason, result.usage, result.cost, result.error, result.stopped_by))


_NO_STATE = b"{}"


def _record_nothing(entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
    return 0


def _encoded(state: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(dict(state)) if state else _NO_STATE


def decoded_state(encoded: bytes, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as it will be read. Raises `TypeError` if that is another than it was; a tuple may become a list."""
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
