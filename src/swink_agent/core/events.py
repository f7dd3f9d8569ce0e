"""The events of a run, in the only order in which they can occur.

    AgentStart
      TurnStart
        MessagesInjected*  (ContextCompacted | UsageAdded)?  MessagesInjected?
        MessageStart
          (MessageUpdate | MessageRetry | ModelFallback | ContextCompacted | UsageAdded)*
        MessageEnd
        ToolApprovalRequested ToolApprovalResolved          per call that needs it
        ToolExecutionStart (ToolExecutionUpdate | ToolExecutionRetry | DelegateEvent)* ToolExecutionEnd
                                                            per call; a call that never started has the End alone
      TurnEnd
    AgentEnd

A call that waits for a later answer has a `ToolCallDeferred` instead of its remaining events: after the approval was
requested, before the tool starts, or, for a delegate, after it started. The first turn of a run that brings
answers begins with `TurnStart TurnResumed` instead of `TurnStart … MessageEnd`. Any other run that finds waiting calls
closes them: their `ToolExecutionEnd` follows `AgentStart`.

`TaskStarted` and `TaskEnded` may occur anywhere between `AgentStart` and `AgentEnd`. Between runs, the agent's
subscribers get them.

Events report everything that a run did; `record` folds them into a `RunRecord`. Their JSON form is in `codec`.
`swink_agent.testing.check_events` checks a sequence against this grammar.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import field

from .approval import PendingCall
from .stream import AssistantMessageDelta
from .types import (
    AgentMessage,
    AgentResult,
    AgentToolResult,
    AssistantMessage,
    Cost,
    ModelSpec,
    PolicyStop,
    ToolOutcome,
    ToolResultMessage,
    Usage,
)
from .values.value import Value

InjectionSource: TypeAlias = Literal["steering", "follow_up", "policy"]
RunKind: TypeAlias = Literal["prompt", "continue", "structured", "resume"]
"""How a run began: with prompts, from the existing history, with prompts and a schema for the answer, or with answers
to calls that waited (which has a `schema` if it must give a value)."""
DeferralKind: TypeAlias = Literal["approval", "external", "delegate"]
"""What a call waits for: an approval, a result from the application, or a call inside its delegate."""
UsageSource: TypeAlias = Literal["compaction", "overflow"]


class TurnEndReason(StrEnum):
    """Why a turn ended."""

    COMPLETE = "complete"
    TOOLS_EXECUTED = "tools_executed"
    STEERING_INTERRUPT = "steering_interrupt"
    ERROR = "error"
    ABORTED = "aborted"
    STOPPED = "stopped"
    """A policy stopped the run."""
    PENDING = "pending"
    """A call waits for an answer."""


class CompactionReport(Value, frozen=True, gc=False):
    """What the transforms removed from the context, and the usage of their own requests. Tokens are estimates."""

    dropped_count: int
    tokens_before: int
    tokens_after: int
    overflow: bool = False
    usage: Usage = field(default_factory=Usage)
    """The usage of requests for a summary; it is part of the run's usage."""
    cost: Cost = field(default_factory=Cost)
    has_summary: bool = False
    """Whether a new summary replaces the removed messages."""

    @property
    def is_told(self) -> bool:
        """Whether a `ContextCompacted` event reports it: messages were removed, or an overflow replaced them."""
        return self.dropped_count > 0 or self.overflow


class AgentStart(Value, frozen=True, tag_field="type", tag="agent_start"):
    """The run begins. `schema` is the caller's schema, or that of the caller's type."""

    run_id: str = ""
    kind: RunKind = "prompt"
    schema: dict[str, Any] | None = None
    prompts: tuple[AgentMessage, ...] = ()


class TurnStart(Value, frozen=True, tag_field="type", tag="turn_start", gc=False):
    """A turn begins: one reply and its tool calls."""

    turn_index: int


class TurnResumed(Value, frozen=True, tag_field="type", tag="turn_resumed"):
    """The turn continues an earlier reply, since answers came for its waiting calls. `pending` lists these calls."""

    message: AssistantMessage
    pending: tuple[PendingCall, ...]


class MessagesInjected(Value, frozen=True, tag_field="type", tag="messages_injected"):
    """Messages enter the context during the run."""

    messages: tuple[AgentMessage, ...]
    source: InjectionSource


class ContextCompacted(Value, frozen=True, tag_field="type", tag="context_compacted", gc=False):
    """The transforms shortened the context: fewer messages, or shorter ones."""

    report: CompactionReport


class UsageAdded(Value, frozen=True, tag_field="type", tag="usage_added", gc=False):
    """Usage that no other event reports. It is never zero.

    `compaction`: requests for a summary without a `ContextCompacted`. `overflow`: the attempt that overflowed, reported
    when the request is repeated.
    """

    usage: Usage
    cost: Cost = field(default_factory=Cost)
    source: UsageSource = "compaction"


class MessageStart(Value, frozen=True, tag_field="type", tag="message_start", gc=False):
    """The model is asked for a reply."""


class MessageUpdate(Value, frozen=True, tag_field="type", tag="message_update", gc=False):
    """A piece of the reply, as the provider sent it."""

    delta: AssistantMessageDelta


class MessageRetry(Value, frozen=True, tag_field="type", tag="message_retry", gc=False):
    """Attempt number `attempt` failed and another follows in `delay` seconds: discard what was streamed so far.

    `usage` and `cost` are those of the failed attempt.
    """

    attempt: int
    error: str
    delay: float
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)


class ModelFallback(Value, frozen=True, tag_field="type", tag="model_fallback", gc=False):
    """The run switches to the next model: discard what was streamed so far.

    `usage` and `cost` are those of the last attempt, which failed.
    """

    from_model: ModelSpec
    to_model: ModelSpec
    error: str
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)


class MessageEnd(Value, frozen=True, tag_field="type", tag="message_end", gc=False):
    """The reply is complete, failed or aborted, and part of the history."""

    message: AssistantMessage


class ToolApprovalRequested(Value, frozen=True, tag_field="type", tag="tool_approval_requested", gc=False):
    """A call waits for approval. `scope` is the tool's statement of where and how it would act."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] = {}


class ToolApprovalResolved(Value, frozen=True, tag_field="type", tag="tool_approval_resolved", gc=False):
    """The call was approved or rejected. `reason` is that of a rejection; `note` is added to the result."""

    call_id: str
    name: str
    approved: bool
    reason: str = ""
    note: str = ""


class ToolCallDeferred(Value, frozen=True, tag_field="type", tag="tool_call_deferred", gc=False):
    """The call waits for an answer, and has a pending result. The rest of its batch runs.

    Steering, an abort or a policy that stops the run may still end it with the batch: then its `ToolExecutionEnd`
    follows.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    kind: DeferralKind
    reason: str = ""


class ToolExecutionStart(Value, frozen=True, tag_field="type", tag="tool_execution_start", gc=False):
    """A tool starts, with the arguments that it receives.

    `scope` is what was approved, or `None` if no approval was needed.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    scope: dict[str, Any] | None = None


class ToolExecutionUpdate(Value, frozen=True, tag_field="type", tag="tool_execution_update"):
    """A partial result from a tool that is running."""

    call_id: str
    name: str
    update: AgentToolResult


class ToolExecutionRetry(Value, frozen=True, tag_field="type", tag="tool_execution_retry", gc=False):
    """Attempt number `attempt` of a call failed, and the tool is called again in `delay` seconds."""

    call_id: str
    name: str
    attempt: int
    error: str
    delay: float


class ToolExecutionEnd(Value, frozen=True, tag_field="type", tag="tool_execution_end"):
    """A call has its result, whether it ran or not.

    `reason` is the bare cause of an outcome other than `ran`, without the sentence that the model reads: the words of a
    person or a policy, the error of the validation or the tool; `steering`, `aborted` or `tool` for a cancelled call.
    `seconds` is how long the tool ran, 0.0 if it never started. `arguments` is what the tool received, or would have
    received. Both are `None` in events of earlier versions.
    """

    call_id: str
    name: str
    result: AgentToolResult
    is_error: bool
    outcome: ToolOutcome = ToolOutcome.RAN
    reason: str = ""
    seconds: float | None = None
    arguments: dict[str, Any] | None = None


class DelegateEvent(Value, frozen=True, tag_field="type", tag="delegate_event"):
    """An event of a delegate, the agent that this call runs (`Agent.as_tool`). A call has the events of one whole run.

    The event of a delegate's own delegate is itself a `DelegateEvent`.
    """

    call_id: str
    name: str
    event: AgentEvent


class TaskStarted(Value, frozen=True, tag_field="type", tag="task_started", gc=False):
    """A command runs in the background, beyond the end of the call that started it."""

    id: str
    command: str


class TaskEnded(Value, frozen=True, tag_field="type", tag="task_ended", gc=False):
    """A background command and all its processes have ended. `exit_code` is `None` if it was stopped.

    It may end in a later run than it began, or between runs.
    """

    id: str
    exit_code: int | None = None


class TurnEnd(Value, frozen=True, tag_field="type", tag="turn_end"):
    """A turn ends. `message` is `None` if a policy stopped the turn before the request."""

    turn_index: int
    message: AssistantMessage | None
    tool_results: tuple[ToolResultMessage, ...]
    reason: TurnEndReason


class AgentEnd(Value, frozen=True, tag_field="type", tag="agent_end"):
    """The run ends; `messages` is everything that it added to the history.

    `result` is what the run returns, without its exception; `None` in events of earlier versions.
    """

    messages: tuple[AgentMessage, ...]
    stopped_by: PolicyStop | None = None
    result: AgentResult | None = None


_TurnEvent: TypeAlias = TurnStart | TurnResumed | MessagesInjected | ContextCompacted | UsageAdded | TurnEnd
_MessageEvent: TypeAlias = MessageStart | MessageUpdate | MessageRetry | ModelFallback | MessageEnd
ApprovalEvent: TypeAlias = ToolApprovalRequested | ToolApprovalResolved | ToolCallDeferred
_CallEvent: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolExecutionRetry | ToolExecutionEnd | DelegateEvent
AgentEvent: TypeAlias = (
    AgentStart | _TurnEvent | _MessageEvent | ApprovalEvent | _CallEvent | TaskStarted | TaskEnded | AgentEnd
)
