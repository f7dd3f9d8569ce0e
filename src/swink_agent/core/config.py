"""The configuration of a run, and the types of its hooks.

Owns names and defaults. `loop`, `reply` and `dispatch` call the hooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

from msgspec import field
from msgspec.structs import force_setattr

from .approval import ApprovalMode, ApproveFn
from .context.context import default_convert_to_llm
from .policy import MaskingPolicy, PostLoopPolicy, PostTurnPolicy, PreDispatchPolicy, PreTurnPolicy
from .retry import DefaultRetryStrategy, RetryStrategy
from .secrets.redaction import Redactor
from .stream import StreamFn, StreamOptions
from .types import AgentMessage, LlmMessage, ModelSpec, ToolCall
from .values.checks import check_hooks, check_strategy, check_whole, checked_lists, is_not
from .values.value import WithDeps

ConvertToLlmFn: TypeAlias = Callable[[AgentMessage], LlmMessage | None | Awaitable[LlmMessage | None]]
"""Called once for each message. Returns the message to send, or `None` to send nothing."""

TransformContextFn: TypeAlias = Callable[
    [list[AgentMessage], bool], Sequence[AgentMessage] | None | Awaitable[Sequence[AgentMessage] | None]
]
"""Takes a copy of the messages, and `overflow`. Returns the messages to send from now on, or `None` for no change."""

GetApiKeyFn: TypeAlias = Callable[[str], str | None | Awaitable[str | None]]
"""Returns the key for a provider. Called before each request, so that short-lived keys are not stale."""

SleepFn: TypeAlias = Callable[[float], Awaitable[None]]


class MessageProvider(Protocol):
    """Provides steering and follow-up messages.

    If a provider also has `put_back(source, messages)`, it gets back messages that were polled but did not enter the
    context.
    """

    def poll_steering(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]: ...

    def poll_follow_up(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]: ...


class ToolExecutionStrategy(Protocol):
    """Decides which calls of a batch run together."""

    def partition(self, calls: Sequence[ToolCall], /) -> Sequence[Sequence[int]] | Awaitable[Sequence[Sequence[int]]]:
        """Returns groups of indices into `calls`, each index once. Groups run one after another."""
        ...


ToolExecution: TypeAlias = Literal["concurrent", "sequential"] | ToolExecutionStrategy


class AgentLoopConfig(WithDeps, frozen=True, kw_only=True):
    """Everything that a run needs except its messages. Hooks may be plain or async functions."""

    model: ModelSpec
    stream_fn: StreamFn
    stream_options: StreamOptions = field(default_factory=StreamOptions)
    retry_strategy: RetryStrategy = field(default_factory=DefaultRetryStrategy)
    fallbacks: Sequence[tuple[ModelSpec, StreamFn]] = ()

    convert_to_llm: ConvertToLlmFn = default_convert_to_llm
    async_transform_context: TransformContextFn | None = None
    transform_context: TransformContextFn | None = None
    get_api_key: GetApiKeyFn | None = None
    message_provider: MessageProvider | None = None

    pre_turn_policies: Sequence[PreTurnPolicy] = ()
    pre_dispatch_policies: Sequence[PreDispatchPolicy] = ()
    post_turn_policies: Sequence[PostTurnPolicy] = ()
    post_loop_policies: Sequence[PostLoopPolicy] = ()

    masks: Sequence[MaskingPolicy] = ()
    """The policies that mask what enters the run."""

    approve: ApproveFn | None = None
    approval_mode: ApprovalMode = ApprovalMode.WHERE_REQUIRED
    tool_execution: ToolExecution = "concurrent"

    state: MutableMapping[str, Any] | None = None
    """The key-value store that tools write and policies read; `None` for a new one in each run."""
    deps: Any = None
    """The dependencies that the application gives to its tools, system prompt and policies."""
    execution_root: Path | None = None
    """The folder in which tools work."""
    max_turns: int | None = None
    """The most turns of a run that ask a model; `None` for no limit. Each delegate counts its own."""
    redactor: Redactor | None = None
    """Masks secrets in tool results, updates and errors; `None` for one that knows the secrets of the environment."""
    sleep: SleepFn = asyncio.sleep
    """How to wait before a retry. Tests may use the `sleep` of a fake clock."""

    @property
    def has_transform(self) -> bool:
        """Whether there is a transform of the context."""
        return self.async_transform_context is not None or self.transform_context is not None

    def __post_init__(self) -> None:
        if type(self.approval_mode) is not ApprovalMode:
            force_setattr(self, "approval_mode", ApprovalMode(self.approval_mode))
        if not isinstance(model := cast("object", self.model), ModelSpec):
            raise is_not("model", model, "a ModelSpec")
        if self.max_turns is not None:
            check_whole("max_turns", self.max_turns)
        check_hooks(self)
        check_strategy(self.tool_execution)
        for name, several in checked_lists(self).items():
            force_setattr(self, name, several)
