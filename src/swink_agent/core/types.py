"""The data model: content blocks, messages, usage, models, results.

Defines every value that a history holds. The events of a streamed reply are in `stream`, those of a run in `events`,
and the JSON form of all of them in `codec`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr

from .approval import PendingCall
from .errors import AgentError, ErrorKind, PolicyStop, PolicyStopped, StreamError, StructuredOutputFailed
from .texts.markup import escape_html
from .values.checks import a_kind, is_not
from .values.data import as_json_data, encodable
from .values.value import Choice, Out_co, Value
from .values.words import no_attribute

# `gc=False` means that the garbage collector does not track values which cannot be part of a cycle: a history of a
# million messages costs it nothing. Their data is JSON that refuses changes, so it cannot refer to them. What a tool
# returns, and an application's own messages, may hold anything and are tracked.

# -- content blocks ------------------------------------------------------------------------------------------


class Text(Value, frozen=True, tag_field="type", tag="text", gc=False):
    """Plain text."""

    text: str


class Thinking(Value, frozen=True, tag_field="type", tag="thinking", gc=False):
    """Reasoning. `signature` proves that the provider wrote it, and must be sent back unchanged."""

    thinking: str
    signature: str | None = None


class ToolCall(Value, frozen=True, tag_field="type", tag="tool_call", gc=False):
    """A call that the model requests. `arguments` is a dict that refuses changes, so every reader can share it.

    `partial_json` is set if the arguments are not a JSON object: the reply was cut off inside them, or the model made a
    mistake. `arguments` is empty then.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    partial_json: str | None = None

    def __post_init__(self) -> None:
        arguments: Any = self.arguments
        if not isinstance(arguments, dict):
            raise is_not("ToolCall.arguments", arguments, "a dict")
        force_setattr(self, "arguments", as_json_data(arguments, cuts_deep=True))

    @property
    def is_incomplete(self) -> bool:
        """Whether the arguments are cut off or invalid; such a call never runs."""
        return self.partial_json is not None


class Base64Source(Value, frozen=True, tag_field="type", tag="base64", gc=False):
    """Data in the message itself."""

    media_type: str
    data: str


class UrlSource(Value, frozen=True, tag_field="type", tag="url", gc=False):
    """Something that the provider fetches."""

    url: str
    media_type: str | None = None


class FileSource(Value, frozen=True, tag_field="type", tag="file", gc=False):
    """A file on this machine. Adapters read it for the first request; if it is missing, they send a note.

    A `Path` becomes a string.
    """

    path: str
    media_type: str | None = None

    def __post_init__(self) -> None:
        if type(path := cast("Any", self.path)) is not str:
            given = path if isinstance(path, str) else getattr(path, "__fspath__", lambda: None)()
            if not isinstance(given, str):
                raise TypeError(f"FileSource.path is {a_kind(path)}; give a string or a Path")
            force_setattr(self, "path", str(given))


Source: TypeAlias = Base64Source | UrlSource | FileSource
_SOURCES = (Base64Source, UrlSource, FileSource)

# Older names, from versions in which only images had sources.
Base64Image = Base64Source
UrlImage = UrlSource
FileImage = FileSource
ImageSource: TypeAlias = Source


def _check_source(owner: str, source: object) -> None:
    if not isinstance(source, _SOURCES):
        raise TypeError(f"{owner}.source is {a_kind(source)}; give a Base64Source, UrlSource or FileSource")


class Image(Value, frozen=True, tag_field="type", tag="image", gc=False):
    """A picture, from one of the three sources."""

    source: Source

    def __post_init__(self) -> None:
        _check_source("Image", self.source)


class Document(Value, frozen=True, tag_field="type", tag="document", gc=False):
    """A PDF document, from one of the three sources. Raises `ValueError` for a source of another kind.

    `name` is shown to the model and to people. Without one, the name of the file or address is shown.
    """

    source: Source
    name: str = ""

    def __post_init__(self) -> None:
        source = self.source
        _check_source("Document", source)
        kind = source.media_type
        if kind is None:
            if type(source) is UrlSource and source.url[:5].lower() == "data:":
                kind = source.url[5:].partition(",")[0]
            elif type(source) is FileSource and (suffix := _suffix(source.path)) not in ("", ".pdf"):
                raise ValueError(
                    f"a document is a PDF, and the file ends in {suffix!r}: if it is a PDF, give "
                    "media_type='application/pdf'; put the text of other files into the prompt"
                )
        if kind is not None and kind.partition(";")[0].strip().lower() != PDF:
            raise ValueError(
                f"a document is a PDF ({PDF}), not {kind[:100] or 'of an unknown kind'!r}: put the text of other "
                "files into the prompt"
            )

    @property
    def shown_name(self) -> str:
        """Its name, else that of its file or address, else `document.pdf`: one line of at most 200 characters."""
        name, source = self.name.strip(), self.source
        if not name and type(source) is FileSource:
            name = source.path.rstrip("/").rpartition("/")[2]
        elif not name and type(source) is UrlSource and source.url[:5].lower() != "data:":
            name = source.url.partition("#")[0].partition("?")[0].rstrip("/").rpartition("/")[2]
        shown = "".join([letter if letter.isprintable() else " " for letter in name[:200]])
        return " ".join(shown.split()) or "document.pdf"


PDF = "application/pdf"


def _suffix(path: str) -> str:
    name = path.rstrip("/").rpartition("/")[2]
    return f".{name.rpartition('.')[2].lower()}" if "." in name.strip(".") else ""


class Extension(Value, frozen=True, tag_field="type", tag="extension", gc=False):
    """A block that this version does not know, or that an application defines; adapters send a note instead. Its data
    becomes JSON that refuses changes."""

    type_name: str
    data: Any = None

    def __post_init__(self) -> None:
        force_setattr(self, "data", as_json_data(self.data, cuts_deep=True))


UserBlock: TypeAlias = Text | Image | Document | Extension
AssistantBlock: TypeAlias = Text | Thinking | ToolCall | Extension
ContentBlock: TypeAlias = Text | Thinking | ToolCall | Image | Document | Extension

USER_BLOCKS = frozenset({Text, Image, Document, Extension})
_ASSISTANT_BLOCKS = frozenset({Text, Thinking, ToolCall, Extension})


def extract_text(blocks: Sequence[ContentBlock]) -> str:
    """Joins the text of all `Text` blocks and ignores the others."""
    return "".join([block.text for block in blocks if type(block) is Text])


def as_blocks(content: str | Sequence[Any], owner: str, allowed: frozenset[type]) -> tuple[Any, ...]:
    """Returns content as a tuple of blocks. Raises `TypeError` for a block that `owner` does not allow."""
    if isinstance(content, str):
        return (Text(encodable(content)),)
    if not isinstance(content, (tuple, list)):
        raise TypeError(f"{owner}.content is {a_kind(content)}; give a string or a list of blocks")
    for block in content:
        if type(block) not in allowed:
            names = sorted(kind.__name__ for kind in allowed)
            raise TypeError(f"{owner} cannot hold {a_kind(block)}; it holds {', '.join(names)}")
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
"""A tuple and not a set: hashing an enum member calls a Python function."""


class ToolOutcome(Choice):
    """How the result of a tool call came about."""

    RAN = "ran"
    FAILED = "failed"
    """The tool raised, or returned an error."""
    INVALID = "invalid"
    """The arguments do not fit the schema, or are not a JSON object."""
    UNKNOWN_TOOL = "unknown_tool"
    REJECTED = "rejected"
    """By a person, or by a rule that answers for one."""
    SKIPPED = "skipped"
    """By a policy."""
    CANCELLED = "cancelled"
    """By steering, an abort or the tool itself. The result is a note, or the error that the cancelled tool returned."""
    INCOMPLETE = "incomplete"
    """The reply was cut off inside the call."""
    LOST = "lost"
    """The program ended while the tool ran, so its effect is unknown."""
    NEVER_RAN = "never_ran"
    PENDING = "pending"
    """The call waits for an answer, which `resume` takes. The details of the result contain what it waits for."""


class _Amounts(Value, frozen=True, gc=False):
    # What usage and cost share: they have the same fields, in tokens and in money.

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        if other == type(self)():
            return self
        first: Any = self
        second: Any = other
        extra: dict[str, Any] = dict(first.extra)
        for key, value in second.extra.items():
            extra[key] = extra.get(key, 0) + value
        return type(first)(
            first.input + second.input,
            first.output + second.output,
            first.cache_read + second.cache_read,
            first.cache_write + second.cache_write,
            first.total + second.total,
            extra,
        )

    def merge(self, other: Self) -> Self:
        """The sum, field by field and key by key; the same as `+`."""
        return self + other


class Usage(_Amounts, frozen=True, gc=False):
    """Tokens. `extra` holds counts that only some providers report, such as reasoning tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    extra: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        """All tokens: `total`, or the sum of the parts if that is more, as when a provider gives no total."""
        return max(self.total, self.input + self.output + self.cache_read + self.cache_write)


class Cost(_Amounts, frozen=True, gc=False):
    """Money, in the currency of the price table (US dollars)."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0
    extra: dict[str, float] = {}

    @property
    def amount(self) -> float:
        """The whole cost: `total`, or the sum of the parts if that is more, as when the caller gave no total."""
        return max(self.total, self.input + self.output + self.cache_read + self.cache_write)


class ThinkingLevel(Choice):
    """How much the model should reason."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    EXTRA_HIGH = "extra_high"


class ThinkingBudgets(Value, frozen=True):
    """Tokens for each thinking level, for providers that limit reasoning by tokens."""

    budgets: dict[ThinkingLevel, int] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "budgets", {ThinkingLevel(level): tokens for level, tokens in self.budgets.items()})

    def get(self, level: ThinkingLevel) -> int | None:
        return self.budgets.get(level)


class ModelSpec(Value, frozen=True, gc=False):
    """The model to ask, and how much it should think."""

    provider: str
    model_id: str
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    thinking_budgets: ThinkingBudgets | None = None

    def __post_init__(self) -> None:
        if type(self.thinking_level) is not ThinkingLevel:
            force_setattr(self, "thinking_level", ThinkingLevel(self.thinking_level))

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Parses `provider:model_id`; the id may contain more colons. Raises `ValueError` for anything else."""
        provider, colon, model_id = text.partition(":")
        if not (provider.strip() and colon and model_id.strip()):
            raise ValueError(f"{text!r} names no model: write provider:model, such as anthropic:claude-sonnet-4-6")
        return cls(provider.strip(), model_id.strip())

    def __str__(self) -> str:
        return f"{self.provider}:{self.model_id}"


# -- messages ------------------------------------------------------------------------------------------------


def _now() -> int:
    return time.time_ns() // 1_000_000


class _Message(Value, frozen=True, tag_field="role", gc=False):
    """The base of all messages. The type itself is the role, so there is no field for it."""

    @property
    def role(self) -> str:
        """The role as in JSON: `user`, `assistant`, `tool_result`, or one that an application defines."""
        return str(type(self).__struct_config__.tag)


class UserMessage(_Message, frozen=True, tag="user", gc=False, omit_defaults=True):
    """A message of the user, or of the application on the user's behalf."""

    content: tuple[UserBlock, ...]
    timestamp: int = field(default_factory=_now)
    origin: str | None = None
    """Where the text comes from, if the user did not write it. Models do not see this.

    `summary`: a model summarized earlier messages. `shell`: the output of a command that the user ran. Applications may
    use other values.
    """

    if TYPE_CHECKING:

        def __init__(
            self, content: str | Sequence[UserBlock], timestamp: int = ..., origin: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "content", as_blocks(self.content, "UserMessage", USER_BLOCKS))


class AssistantMessage(_Message, frozen=True, tag="assistant", gc=False):
    """One reply of a model: complete, failed or aborted."""

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
    served_model: str | None = None
    """The model that the provider says has answered."""
    response_id: str | None = None
    """The provider's id of this reply."""

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
            served_model: str | None = ...,
            response_id: str | None = ...,
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
        if len(content) == 1:  # the usual case among replies with calls
            return content if type(content[0]) is ToolCall else ()
        return tuple([block for block in content if type(block) is ToolCall])

    @property
    def is_failed(self) -> bool:
        """Whether the reply ended in an error or an abort."""
        return self.stop_reason in FAILURES


class ToolResultMessage(_Message, frozen=True, tag="tool_result", gc=False):
    """The result of one tool call. `details` are for people and logs, and never sent to a model. They become JSON that
    refuses changes."""

    tool_call_id: str
    content: tuple[UserBlock, ...]
    is_error: bool = False
    details: Any = None
    tool_name: str = ""
    timestamp: int = field(default_factory=_now)
    outcome: ToolOutcome = ToolOutcome.RAN
    """Results without this field, as older sessions have them, count as `ran`."""

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
        if not (type(content) is tuple and len(content) == 1 and type(content[0]) in USER_BLOCKS):
            force_setattr(self, "content", as_blocks(content, "ToolResultMessage", USER_BLOCKS))
        force_setattr(self, "details", as_json_data(self.details, cuts_deep=True))


if TYPE_CHECKING:
    # Subclasses inherit `frozen`, but type checkers would require each of them to repeat it.
    class CustomMessage(Struct, tag_field="role"):
        """The base of an application's own messages."""

        @property
        def role(self) -> str: ...
else:

    class CustomMessage(_Message, frozen=True, gc=True):
        """The base of an application's own messages.

        `class Notice(CustomMessage, tag="notice"): text: str`. They are part of the history and never reach a provider
        unless `convert_to_llm` converts them.
        """


LlmMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage
AgentMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | CustomMessage
LLM_MESSAGES = frozenset({UserMessage, AssistantMessage, ToolResultMessage})


def is_blank(messages: Iterable[AgentMessage]) -> bool:
    """Whether the messages are empty: no messages, or only user messages without content.

    White space is not content. An image or a document is, and so is any message of another kind.
    """
    for message in messages:
        if type(message) is not UserMessage:
            return False
        for block in message.content:
            if type(block) is not Text or block.text.strip():
                return False
    return True


def as_prompts(given: str | AgentMessage | Sequence[str | AgentMessage]) -> tuple[AgentMessage, ...]:
    """Works like `as_messages`, and raises `ValueError` for a prompt without content."""
    messages = as_messages(given)
    if is_blank(messages):
        raise ValueError(
            "the prompt has no content: give text, an image or a document; continue_loop() runs without a prompt"
        )
    return messages


def as_messages(given: str | AgentMessage | Sequence[str | AgentMessage]) -> tuple[AgentMessage, ...]:
    """Converts a string, a message, or a list of either to messages. Raises `TypeError` for anything else."""
    if isinstance(given, str):
        return (UserMessage(given),)
    if type(given) in LLM_MESSAGES or isinstance(given, CustomMessage):
        return (cast("AgentMessage", given),)
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{a_kind(given)} is not a message; give a string, a message, or a list of them")
    messages: list[AgentMessage] = []
    for item in cast("Sequence[Any]", given):
        if type(item) in LLM_MESSAGES or isinstance(item, CustomMessage):
            messages.append(item)
        elif isinstance(item, str):
            messages.append(UserMessage(item))
        else:
            raise TypeError(f"{a_kind(item)} is not a message; give strings or messages")
    return tuple(messages)


# -- what a tool returns --------------------------------------------------------------------------------------


class AgentToolResult(Value, frozen=True):
    """What a tool returns: content for the model, and `details` for people and logs."""

    content: tuple[UserBlock, ...] = ()
    details: Any = None
    is_error: bool = False

    if TYPE_CHECKING:

        def __init__(
            self, content: str | Sequence[UserBlock] = ..., details: Any = ..., is_error: bool = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        content: tuple[Any, ...] = self.content
        if not (type(content) is tuple and len(content) == 1 and type(content[0]) in USER_BLOCKS):
            force_setattr(self, "content", as_blocks(content, "AgentToolResult", USER_BLOCKS))

    @classmethod
    def text(cls, text: str, details: Any = None) -> AgentToolResult:
        """Makes a result of one text."""
        return cls((Text(text),), details)

    @classmethod
    def error(cls, text: str, details: Any = None) -> AgentToolResult:
        """Makes an error result: the model reads the text and may try again."""
        return cls((Text(text),), details, True)


# -- context and result --------------------------------------------------------------------------------------


class OfferedTool(Protocol):
    """What a model is told about a tool. How it runs is in `tool.AgentTool`."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters_schema(self) -> dict[str, Any]: ...


class AgentContext(Value, frozen=True):
    """The input of one turn. It is a snapshot: later changes do not affect it."""

    system_prompt: str | Callable[..., Any] = ""
    messages: Sequence[AgentMessage] = ()
    tools: Sequence[OfferedTool] = ()

    if TYPE_CHECKING:  # `agent_loop` takes functions of the turn; a request holds their results

        def __init__(
            self,
            system_prompt: str | Callable[..., Any] = ...,
            messages: Sequence[AgentMessage] = ...,
            tools: Iterable[OfferedTool] | Callable[..., Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.messages, list):
            force_setattr(self, "messages", tuple(self.messages))
        if isinstance(self.tools, list):
            force_setattr(self, "tools", tuple(self.tools))


class AgentResult(Value, Generic[Out_co], frozen=True):
    """How a run ended, its output, and every message that it added to the history."""

    hidden_fields = frozenset({"history", "output_fn"})
    whole_fields = frozenset({"error"})

    messages: tuple[AgentMessage, ...]
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    error: str | None = None
    exception: AgentError | None = None
    stopped_by: PolicyStop | None = None
    error_kind: ErrorKind | None = None
    value: Any = None
    """The structured output as JSON data, before its conversion to the caller's type."""
    has_value: bool = False
    pending: tuple[PendingCall, ...] = ()
    """The calls that wait for an answer; `resume` takes the answers."""
    delegated_usage: Usage = field(default_factory=Usage)
    """The usage of the run's delegates, and of theirs: see `Agent.as_tool`."""
    delegated_cost: Cost = field(default_factory=Cost)
    history: tuple[AgentMessage, ...] = ()
    """The whole history at the end of the run: what it began from, with results in the places of pending ones, and the
    messages that it added. Give it to the next run as `messages`. It is not part of JSON, of events and of equality."""
    output_fn: Callable[[], Any] | None = None
    """Returns the converted value, if the run was to give one."""

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, AgentResult) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__ if name not in self.hidden_fields])

    @property
    def total_usage(self) -> Usage:
        """The usage of the run and of its delegates, to any depth."""
        return self.usage + self.delegated_usage

    @property
    def total_cost(self) -> Cost:
        """The cost of the run and of its delegates, to any depth."""
        return self.cost + self.delegated_cost

    @property
    def output(self) -> Out_co:
        """The value that the run was to give, converted to its type; the text of the last reply if it was to give none.

        Raises what `raise_for_error` raises, and `StructuredOutputFailed` for a run that waits for an answer.
        """
        self.raise_for_error()
        if self.pending:
            names = ", ".join([call.name for call in self.pending])
            raise StructuredOutputFailed(0, f"the run waits for an answer about these calls: {names}")
        if self.output_fn is not None:
            return self.output_fn()
        return cast("Out_co", self.value if self.has_value else self.text)

    @property
    def text(self) -> str:
        """The text of the last assistant message, or an empty string."""
        for message in reversed(self.messages):
            if type(message) is AssistantMessage:
                return message.text
        return ""

    if not TYPE_CHECKING:  # checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Gives `rich` values, which it quotes, instead of text that it would read as markup."""
        return list(self._shown().items())

    def _repr_html_(self) -> str:
        """Shows the reply in a notebook, as escaped plain text with a line of facts below it."""
        shown = self._shown()
        text = escape_html(str(shown.pop("text", "")))
        facts = " · ".join(f"{name} {value}" for name, value in shown.items())
        return f'<div style="white-space: pre-wrap">{text}</div><small>{escape_html(facts)}</small>'

    def _shown(self) -> dict[str, Any]:
        """The facts that notebooks and `rich` show, the most important first."""
        shown: dict[str, Any] = {"text": self.text, "stop_reason": str(self.stop_reason)}
        if tokens := self.total_usage.tokens:
            shown["tokens"] = tokens
        if amount := self.total_cost.amount:
            shown["cost"] = round(amount, 6)
        if self.error is not None:
            shown["error"] = self.error
        if self.stopped_by is not None:
            shown["stopped_by"] = f"{self.stopped_by.policy}: {self.stopped_by.reason}"
        if self.pending:
            shown["pending"] = ", ".join(call.name for call in self.pending)
        return shown

    def raise_for_error(self) -> Self:
        """Raises the error that ended the run, including `Aborted` and `PolicyStopped`; else returns the result."""
        if self.exception is not None:
            raise self.exception
        if self.error is not None:
            raise StreamError(self.error)
        if self.stopped_by is not None:
            raise PolicyStopped(self.stopped_by.policy, self.stopped_by.reason)
        return self
