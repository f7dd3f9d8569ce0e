"""What a session records of an agent, as values: one entry for each thing that happened.

The protocol of whoever stores them, and the `Recorder`, which makes them, are in `journal`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import field

from .errors import ErrorKind
from .events import CompactionReport, RunKind
from .types import AgentMessage, Cost, ModelSpec, PolicyStop, StopReason, Usage
from .values.value import Value

# Entries are not tracked by the garbage collector (`gc=False`): they hold no cycles, and a journal may keep many.

MessageSource: TypeAlias = Literal["given", "prompt", "steering", "follow_up", "policy", "reply", "result"]
"""Who added a message: the application (`given`), a prompt, a queue, a policy, the model, a tool."""


class CallFacts(Value, frozen=True, omit_defaults=True, gc=False):
    """Facts about a call in addition to its result: the fields of `ToolApprovalResolved` and `ToolExecutionEnd`.

    `scope` is that of the grant. `arguments` is set only if the call never started and they differ from the reply's;
    `ToolStarted` has those of a started call. `usage` and `cost` are those of the delegate that the call ran.
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


class MessageAdded(Value, frozen=True, tag="message", omit_defaults=True, gc=False):
    """A message entered the history, at its end.

    Results are recorded as tools finish, but the history has them in call order: `call` is the index of the call in its
    reply. Results of this version have `facts`.
    """

    message: AgentMessage
    source: MessageSource
    call: int | None = None
    facts: CallFacts | None = None


class MessageReplaced(Value, frozen=True, tag="replaced", gc=False):
    """Another message replaces the one that the entry `number` added."""

    number: int
    message: AgentMessage


class ToolStarted(Value, frozen=True, tag="tool_started", omit_defaults=True, gc=False):
    """A tool is about to run: call number `call` of the last reply.

    `arguments` is set only if a policy or a person changed those of the reply. `facts` is set only if the call was
    approved, so that the approval is known even if the result never comes.
    """

    call: int
    call_id: str
    name: str
    arguments: dict[str, Any] | None = None
    facts: CallFacts | None = None


class ContextReplaced(Value, frozen=True, tag="context", gc=False):
    """The transforms made another context, which is sent from now on.

    `parts` has the number of the entry that added each message, or the message itself if a transform made it. Empty
    `parts` mean the whole history. `report` has the usage of the transforms; in a run, `RunEnded` includes it.
    """

    parts: tuple[int | AgentMessage, ...]
    report: CompactionReport | None = None


class HistoryCut(Value, frozen=True, tag="history", gc=False):
    """From now on, history and context are the messages of these entries, in this order."""

    numbers: tuple[int, ...]


class ModelChanged(Value, frozen=True, tag="model", gc=False):
    """The model that is asked from now on, with its thinking level."""

    model: ModelSpec


class StateChanged(Value, frozen=True, tag="state", gc=False):
    """The agent's whole key-value store, as it is now."""

    state: dict[str, Any]


class RunStarted(Value, frozen=True, tag="run_started", gc=False):
    """A run began; entries up to its end belong to it. `schema` is that of the value that the run must give."""

    run_id: str
    kind: RunKind = "prompt"
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
