"""What a run reports, in the only order that can happen.

    AgentStart
      TurnStart
        MessagesInjected*  ContextCompacted?  MessagesInjected?
        MessageStart
          (MessageUpdate | MessageRetry | ModelFallback | ContextCompacted)*
        MessageEnd
        ToolApprovalRequested ToolApprovalResolved          per call that needs it
        ToolExecutionStart ToolExecutionUpdate* ToolExecutionEnd   per call; a call that never started has the End alone
      TurnEnd
    AgentEnd

Owns the event types; what they are as JSON is in `codec`. `swink_agent.testing.check_events` holds a sequence against
this grammar.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from .stream import AssistantMessageDelta
from .tool import AgentToolResult
from .types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    ModelSpec,
    PolicyStop,
    ToolOutcome,
    ToolResultMessage,
    Usage,
)
from .values.value import Value

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "CompactionReport",
    "ContextCompacted",
    "MessageEnd",
    "MessageRetry",
    "MessageStart",
    "MessageUpdate",
    "MessagesInjected",
    "ModelFallback",
    "ToolApprovalRequested",
    "ToolApprovalResolved",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
]

_RAN = ToolOutcome.RAN

InjectionSource: TypeAlias = Literal["steering", "follow_up", "policy"]


class TurnEndReason(StrEnum):
    """Why a turn ended."""

    COMPLETE = "complete"
    TOOLS_EXECUTED = "tools_executed"
    STEERING_INTERRUPT = "steering_interrupt"
    ERROR = "error"
    ABORTED = "aborted"
    STOPPED = "stopped"
    """A policy said stop."""


class CompactionReport(Value, frozen=True, gc=False):
    """What the transforms took out of the context, and what they used for that themselves. Tokens are estimates."""

    dropped_count: int
    tokens_before: int
    tokens_after: int
    overflow: bool = False
    usage: Usage = Usage()
    """What the requests for a summary used, if there were any; it is in the run's own usage too."""
    cost: Cost = Cost()

    @property
    def is_told(self) -> bool:
        """Whether a `ContextCompacted` tells of it: messages went, or an overflow made others of them."""
        return self.dropped_count > 0 or self.overflow


class AgentStart(Value, frozen=True, tag_field="type", tag="agent_start", gc=False):
    """The run begins."""


class TurnStart(Value, frozen=True, tag_field="type", tag="turn_start", gc=False):
    """A turn begins: one reply and its tool calls."""

    turn_index: int


class MessagesInjected(Value, frozen=True, tag_field="type", tag="messages_injected"):
    """Messages that were not there when the run began enter the context."""

    messages: tuple[AgentMessage, ...]
    source: InjectionSource


class ContextCompacted(Value, frozen=True, tag_field="type", tag="context_compacted", gc=False):
    """The transforms made less of what is sent: fewer messages, or shorter ones."""

    report: CompactionReport


class MessageStart(Value, frozen=True, tag_field="type", tag="message_start", gc=False):
    """The model is asked for a reply."""


class MessageUpdate(Value, frozen=True, tag_field="type", tag="message_update", gc=False):
    """A piece of the reply, as the provider sent it."""

    delta: AssistantMessageDelta


class MessageRetry(Value, frozen=True, tag_field="type", tag="message_retry", gc=False):
    """Attempt number `attempt` failed and another follows in `delay` seconds: discard what was streamed so far."""

    attempt: int
    error: str
    delay: float


class ModelFallback(Value, frozen=True, tag_field="type", tag="model_fallback", gc=False):
    """One model was given up for the next: discard what was streamed so far."""

    from_model: ModelSpec
    to_model: ModelSpec
    error: str


class MessageEnd(Value, frozen=True, tag_field="type", tag="message_end", gc=False):
    """The reply is complete, failed or aborted, and in the history."""

    message: AssistantMessage


class ToolApprovalRequested(Value, frozen=True, tag_field="type", tag="tool_approval_requested", gc=False):
    """A call waits for approval."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolApprovalResolved(Value, frozen=True, tag_field="type", tag="tool_approval_resolved", gc=False):
    """The call was approved or not."""

    call_id: str
    name: str
    approved: bool


class ToolExecutionStart(Value, frozen=True, tag_field="type", tag="tool_execution_start", gc=False):
    """A tool starts, with the arguments that it really gets."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolExecutionUpdate(Value, frozen=True, tag_field="type", tag="tool_execution_update"):
    """A partial result from a tool that is running."""

    call_id: str
    name: str
    update: AgentToolResult


class ToolExecutionEnd(Value, frozen=True, tag_field="type", tag="tool_execution_end"):
    """A call has its result, whether it ran or not."""

    call_id: str
    name: str
    result: AgentToolResult
    is_error: bool
    outcome: ToolOutcome = _RAN


class TurnEnd(Value, frozen=True, tag_field="type", tag="turn_end"):
    """A turn is over. `message` is `None` when a policy stopped it before the model was asked."""

    turn_index: int
    message: AssistantMessage | None
    tool_results: tuple[ToolResultMessage, ...]
    reason: TurnEndReason


class AgentEnd(Value, frozen=True, tag_field="type", tag="agent_end"):
    """The run is over; `messages` is everything that it added to the history."""

    messages: tuple[AgentMessage, ...]
    stopped_by: PolicyStop | None = None


AgentEvent: TypeAlias = (
    AgentStart
    | TurnStart
    | MessagesInjected
    | ContextCompacted
    | MessageStart
    | MessageUpdate
    | MessageRetry
    | ModelFallback
    | MessageEnd
    | ToolApprovalRequested
    | ToolApprovalResolved
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | TurnEnd
    | AgentEnd
)
