"""The data model: content blocks, messages, usage, models, results.

Owns every value that lives in a history. Does not own what happens while a reply streams (`stream`), what a run
reports (`events`), or what all of it is as JSON (`codec`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr

from .errors import AgentError, ErrorKind, PolicyStopped, StreamError
from .values import hints
from .values.choice import Choice
from .values.value import Value, frozen_json

__all__ = [
    "LLM_MESSAGES",
    "AgentContext",
    "AgentMessage",
    "AgentResult",
    "AssistantBlock",
    "AssistantMessage",
    "Base64Image",
    "ContentBlock",
    "Cost",
    "CustomMessage",
    "Extension",
    "FileImage",
    "Image",
    "ImageSource",
    "LlmMessage",
    "ModelSpec",
    "PolicyStop",
    "StopReason",
    "Text",
    "Thinking",
    "ThinkingBudgets",
    "ThinkingLevel",
    "ToolCall",
    "ToolOutcome",
    "ToolResultMessage",
    "UrlImage",
    "Usage",
    "UserBlock",
    "UserMessage",
    "as_blocks",
    "as_messages",
    "extract_text",
]

# `gc=False` keeps values that cannot be part of a cycle out of the garbage collector's sight: a history of a million
# messages costs it nothing. Values that hold what an application gave (`details`, `data`) stay in it.
# Types are compared by `type(x) is T` where it is done for every message: these classes have no subclasses, and
# `isinstance` is five times slower when the answer is no. Content that is one block already, as it mostly is, stays.

# -- content blocks ------------------------------------------------------------------------------------------


class Text(Value, frozen=True, tag_field="type", tag="text", gc=False):
    """Plain text."""

    text: str


class Thinking(Value, frozen=True, tag_field="type", tag="thinking", gc=False):
    """Reasoning; `signature` is the provider's proof that it wrote it, to be sent back unchanged."""

    thinking: str
    signature: str | None = None


class ToolCall(Value, frozen=True, tag_field="type", tag="tool_call", gc=False):
    """A call that the model wants made. Its arguments are a dict that cannot be changed, whoever is shown them.

    `partial_json` is set when what the model sent as arguments is no JSON object: because the reply was cut off inside
    them, or because the model got it wrong. `arguments` is empty then.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    partial_json: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", frozen_json(self.arguments))

    @property
    def is_incomplete(self) -> bool:
        """Whether the arguments are not all there, or no arguments at all: such a call is never run."""
        return self.partial_json is not None


class Base64Image(Value, frozen=True, tag_field="type", tag="base64", gc=False):
    """Image data in the message itself."""

    media_type: str
    data: str


class UrlImage(Value, frozen=True, tag_field="type", tag="url", gc=False):
    """An image that the provider fetches."""

    url: str
    media_type: str | None = None


class FileImage(Value, frozen=True, tag_field="type", tag="file", gc=False):
    """An image file on this machine, read when a request is first made of it; if it is gone, a note takes its place."""

    path: str
    media_type: str | None = None


ImageSource: TypeAlias = Base64Image | UrlImage | FileImage


class Image(Value, frozen=True, tag_field="type", tag="image", gc=False):
    """A picture, from one of the three sources."""

    source: ImageSource

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.source), (Base64Image, UrlImage, FileImage)):
            raise TypeError(
                f"Image.source is a {type(self.source).__name__}; give a Base64Image, UrlImage or FileImage"
            )


class Extension(Value, frozen=True, tag_field="type", tag="extension"):
    """A block that this version does not know, or that an application defines; adapters send a note in its place."""

    type_name: str
    data: Any = None


UserBlock: TypeAlias = Text | Image | Extension
AssistantBlock: TypeAlias = Text | Thinking | ToolCall | Extension
ContentBlock: TypeAlias = Text | Thinking | ToolCall | Image | Extension

_USER_BLOCKS = frozenset({Text, Image, Extension})
_ASSISTANT_BLOCKS = frozenset({Text, Thinking, ToolCall, Extension})


def extract_text(blocks: Sequence[ContentBlock]) -> str:
    """The text of all `Text` blocks, joined; other blocks are passed over."""
    return "".join([block.text for block in blocks if type(block) is Text])


def as_blocks(content: str | Sequence[Any], owner: str, allowed: frozenset[type]) -> tuple[Any, ...]:
    """Content as a tuple of blocks that may stand in `owner`. Raises `TypeError` for any other."""
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, (tuple, list)):
        raise TypeError(f"{owner}.content is a {type(content).__name__}; give a string or a list of blocks")
    for block in content:
        if type(block) not in allowed:
            names = sorted(kind.__name__ for kind in allowed)
            raise TypeError(f"{owner} cannot hold a {type(block).__name__}; it holds {', '.join(names)}")
    return tuple(content)


# -- usage, cost, model --------------------------------------------------------------------------------------


class StopReason(Choice):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    ABORTED = "aborted"
    ERROR = "error"


FAILURES = (StopReason.ERROR, StopReason.ABORTED)
"""No set: hashing the member of an enum is a call of a Python function."""


class ToolOutcome(Choice):
    """How the result of a tool call came about."""

    RAN = "ran"
    FAILED = "failed"
    """The tool raised, or returned an error."""
    INVALID = "invalid"
    """The arguments do not fit the schema, or are no JSON object."""
    UNKNOWN_TOOL = "unknown_tool"
    REJECTED = "rejected"
    """By a person, or a rule that answers for one."""
    SKIPPED = "skipped"
    """By a policy."""
    CANCELLED = "cancelled"
    """By steering or an abort: it has no result, or an error with which the tool ended when it was told to."""
    INCOMPLETE = "incomplete"
    """The reply was cut off inside the call."""
    LOST = "lost"
    """The program ended while it ran: what it did is unknown."""
    NEVER_RAN = "never_ran"


_RAN = ToolOutcome.RAN


def _added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    if not second:
        return dict(first)
    total = dict(first)
    for key, value in second.items():
        total[key] = total.get(key, 0) + value
    return total


class Usage(Value, frozen=True, gc=False):
    """Tokens. `extra` holds what only some providers count, such as reasoning tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    extra: dict[str, int] = {}

    def __add__(self, other: Usage) -> Usage:
        if not (other.total or other.input or other.output or other.cache_read or other.cache_write or other.extra):
            return self
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.total + other.total,
            _added(self.extra, other.extra),
        )

    def merge(self, other: Usage) -> Usage:
        """The sum, field by field and key by key; the same as `+`."""
        return self + other


class Cost(Value, frozen=True, gc=False):
    """Money, in the currency of the price table (US dollars)."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0
    extra: dict[str, float] = {}

    def __add__(self, other: Cost) -> Cost:
        if not (other.total or other.input or other.output or other.cache_read or other.cache_write or other.extra):
            return self
        return Cost(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.total + other.total,
            _added(self.extra, other.extra),
        )

    def merge(self, other: Cost) -> Cost:
        """The sum, field by field and key by key; the same as `+`."""
        return self + other


class ThinkingLevel(Choice):
    """How much reasoning to ask of the model."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    EXTRA_HIGH = "extra_high"


class ThinkingBudgets(Value, frozen=True):
    """Tokens per thinking level, where a provider counts reasoning in tokens."""

    budgets: dict[ThinkingLevel, int] = {}

    def get(self, level: ThinkingLevel) -> int | None:
        return self.budgets.get(level)


class ModelSpec(Value, frozen=True, gc=False):
    """Which model to ask, and how hard it should think."""

    provider: str
    model_id: str
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    thinking_budgets: ThinkingBudgets | None = None

    def __post_init__(self) -> None:
        if type(self.thinking_level) is not ThinkingLevel:
            force_setattr(self, "thinking_level", ThinkingLevel(self.thinking_level))

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """`provider:model_id`; the model's own name may hold further colons. Raises `ValueError` for anything else."""
        provider, colon, model_id = text.partition(":")
        if not (provider.strip() and colon and model_id.strip()):
            raise ValueError(f"{text!r} names no model: write provider:model, such as anthropic:claude-sonnet-4-6")
        return cls(provider.strip(), model_id.strip())

    def __str__(self) -> str:
        return f"{self.provider}:{self.model_id}"


# -- messages ------------------------------------------------------------------------------------------------


def _now() -> int:
    return time.time_ns() // 1_000_000


class UserMessage(Value, frozen=True, tag_field="role", tag="user", gc=False):
    """What a person, or the application for them, says."""

    content: tuple[UserBlock, ...]
    timestamp: int = field(default_factory=_now)

    if TYPE_CHECKING:

        def __init__(self, content: str | Sequence[UserBlock], timestamp: int = ...) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "content", as_blocks(self.content, "UserMessage", _USER_BLOCKS))


class AssistantMessage(Value, frozen=True, tag_field="role", tag="assistant", gc=False):
    """One reply of a model, finished, failed or aborted."""

    whole_fields = frozenset({"error_message"})

    content: tuple[AssistantBlock, ...]
    provider: str = ""
    model_id: str = ""
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    stop_reason: StopReason = StopReason.STOP
    error_message: str | None = None
    error_kind: ErrorKind | None = None
    timestamp: int = field(default_factory=_now)

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | Sequence[AssistantBlock],
            provider: str = ...,
            model_id: str = ...,
            usage: Usage = ...,
            cost: Cost = ...,
            stop_reason: StopReason = ...,
            error_message: str | None = ...,
            error_kind: ErrorKind | None = ...,
            timestamp: int = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        content: tuple[Any, ...] = self.content
        if not (type(content) is tuple and len(content) == 1 and type(content[0]) in _ASSISTANT_BLOCKS):
            force_setattr(self, "content", as_blocks(content, "AssistantMessage", _ASSISTANT_BLOCKS))

    @property
    def text(self) -> str:
        return extract_text(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        content: tuple[Any, ...] = self.content
        if len(content) == 1:  # as in most replies that call something
            return content if type(content[0]) is ToolCall else ()
        return tuple([block for block in content if type(block) is ToolCall])

    @property
    def is_failed(self) -> bool:
        """Whether the reply ended in an error or an abort."""
        return self.stop_reason in FAILURES


class ToolResultMessage(Value, frozen=True, tag_field="role", tag="tool_result"):
    """The result of one tool call. `details` are for people and logs and are never sent to a model."""

    tool_call_id: str
    content: tuple[UserBlock, ...]
    is_error: bool = False
    details: Any = None
    tool_name: str = ""
    timestamp: int = field(default_factory=_now)
    outcome: ToolOutcome = _RAN
    """How it came about; a result that says nothing of it ran."""

    if TYPE_CHECKING:

        def __init__(
            self,
            tool_call_id: str,
            content: str | Sequence[UserBlock],
            is_error: bool = ...,
            details: Any = ...,
            tool_name: str = ...,
            timestamp: int = ...,
            outcome: ToolOutcome = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        content: tuple[Any, ...] = self.content
        if not (type(content) is tuple and len(content) == 1 and type(content[0]) in _USER_BLOCKS):
            force_setattr(self, "content", as_blocks(content, "ToolResultMessage", _USER_BLOCKS))


if TYPE_CHECKING:
    # Subclasses inherit being frozen, but type checkers want each to say so again; they are spared that here.
    class CustomMessage(Struct, tag_field="role"):
        """The base of an application's own messages."""
else:

    class CustomMessage(Value, frozen=True, tag_field="role"):
        """The base of an application's own messages.

        `class Notice(CustomMessage, tag="notice"): text: str`. They live in the history and never reach a provider
        unless `convert_to_llm` makes something of them.
        """


LlmMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
AgentMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | CustomMessage
LLM_MESSAGES = frozenset({UserMessage, AssistantMessage, ToolResultMessage})


def as_messages(given: str | AgentMessage | Sequence[str | AgentMessage]) -> tuple[AgentMessage, ...]:
    """Messages from what a person would pass: a string, a message, or a list of either. Raises `TypeError`."""
    if isinstance(given, str):
        return (UserMessage(given),)
    if type(given) in LLM_MESSAGES or isinstance(given, CustomMessage):
        return (cast("AgentMessage", given),)
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"a {type(given).__name__} is no message; give a string, a message, or a list of them")
    messages: list[AgentMessage] = []
    for item in cast("Sequence[Any]", given):
        if type(item) in LLM_MESSAGES or isinstance(item, CustomMessage):
            messages.append(item)
        elif isinstance(item, str):
            messages.append(UserMessage(item))
        else:
            raise TypeError(f"a {type(item).__name__} is no message; give strings or messages")
    return tuple(messages)


# -- context and result --------------------------------------------------------------------------------------


class AgentContext(Value, frozen=True):
    """What one turn starts from. A snapshot: nothing that happens later changes it."""

    system_prompt: str | Callable[[], str] = ""
    messages: Sequence[AgentMessage] = ()
    tools: Sequence[hints.AgentTool] = ()

    def __post_init__(self) -> None:
        if isinstance(self.messages, list):
            force_setattr(self, "messages", tuple(self.messages))
        if isinstance(self.tools, list):
            force_setattr(self, "tools", tuple(self.tools))


class PolicyStop(Value, frozen=True, gc=False):
    """Which policy ended the run, and why."""

    whole_fields = frozenset({"reason"})

    policy: str
    reason: str


class AgentResult(Value, frozen=True):
    """How a run ended, with every message that it added to the history."""

    whole_fields = frozenset({"error"})

    messages: tuple[AgentMessage, ...]
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    error: str | None = None
    exception: AgentError | None = None
    stopped_by: PolicyStop | None = None

    @property
    def text(self) -> str:
        """The text of the last assistant message, or nothing."""
        for message in reversed(self.messages):
            if type(message) is AssistantMessage:
                return message.text
        return ""

    def raise_for_error(self) -> AgentResult:
        """Raises what ended the run, be it an error, `Aborted` or `PolicyStopped`; else returns the result itself."""
        if self.exception is not None:
            raise self.exception
        if self.error is not None:
            raise StreamError(self.error)
        if self.stopped_by is not None:
            raise PolicyStopped(self.stopped_by.policy, self.stopped_by.reason)
        return self
