"""The boundary to a provider: stream functions, their options and events, and assembling a message from the events.

Retries and fallbacks are in `reply`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from .cancel import CancellationToken
from .errors import AgentError, ErrorKind, StreamError
from .types import (
    AgentContext,
    AssistantBlock,
    AssistantMessage,
    Cost,
    ModelSpec,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from .values.checks import a_kind, check_options
from .values.data import encodable
from .values.nesting import DEEPEST, is_too_deep
from .values.value import Value, show


class StreamOptions(Value, frozen=True, kw_only=True):
    """The options of one call to a provider. The repr never shows the key, the headers or `extra`."""

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"api_key", "headers", "extra"})

    temperature: float | None = None
    max_tokens: int | None = None
    session_id: str | None = None
    transport: Literal["sse"] = "sse"
    """Replies come as server-sent events, or in the format that the provider uses instead. The only allowed value."""
    api_key: str | None = None
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that the model must call."""
    cache: Literal["auto", "none"] = "auto"
    headers: dict[str, str] = {}
    timeout: float | None = None
    extra: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the reply's text, an object. Only for stream functions whose `native_schema` accepts it."""
    web_search: bool = False
    """Whether the model may use its provider's web search, if the adapter supports it."""

    def __post_init__(self) -> None:
        if self.transport != "sse":
            raise ValueError(f"StreamOptions.transport is {self.transport!r}; it must be 'sse'")
        if self.cache not in ("auto", "none"):
            raise ValueError(f"StreamOptions.cache is {self.cache!r}; it must be 'auto' or 'none'")
        check_options(self)


# -- events --------------------------------------------------------------------------------------------------
# One is created for each delta, so the garbage collector does not track them; none can be part of a cycle.


class StreamStart(Value, frozen=True, tag_field="type", tag="stream_start", gc=False):
    """The provider began to answer."""


class TextStart(Value, frozen=True, tag_field="type", tag="text_start", gc=False):
    """A text block opens."""

    index: int


class TextDelta(Value, frozen=True, tag_field="type", tag="text_delta", gc=False):
    """A piece of text."""

    index: int
    delta: str


class TextEnd(Value, frozen=True, tag_field="type", tag="text_end", gc=False):
    """A text block closes."""

    index: int


class ThinkingStart(Value, frozen=True, tag_field="type", tag="thinking_start", gc=False):
    """A thinking block opens."""

    index: int


class ThinkingDelta(Value, frozen=True, tag_field="type", tag="thinking_delta", gc=False):
    """A piece of reasoning."""

    index: int
    delta: str


class ThinkingEnd(Value, frozen=True, tag_field="type", tag="thinking_end", gc=False):
    """A thinking block closes, with the provider's signature if it signs."""

    index: int
    signature: str | None = None


class ToolCallStart(Value, frozen=True, tag_field="type", tag="tool_call_start", gc=False):
    """A tool call opens."""

    index: int
    id: str
    name: str


class ToolCallDelta(Value, frozen=True, tag_field="type", tag="tool_call_delta", gc=False):
    """A piece of the call's arguments, as JSON text."""

    index: int
    delta: str


class ToolCallEnd(Value, frozen=True, tag_field="type", tag="tool_call_end", gc=False):
    """A tool call closes: its arguments are complete."""

    index: int


class StreamDone(Value, frozen=True, tag_field="type", tag="stream_done"):
    """The reply is complete. `served_model` and `response_id` are what the provider calls its model and its reply."""

    stop_reason: StopReason = StopReason.STOP
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    served_model: str | None = None
    response_id: str | None = None


class StreamFailed(Value, frozen=True, tag_field="type", tag="stream_failed"):
    """The reply failed; what was streamed is kept. `usage` and `cost` are what the provider had reported by then.

    If the kind is aborted, so is the stop reason.
    """

    message: str
    kind: ErrorKind = ErrorKind.STREAM
    stop_reason: StopReason = StopReason.ERROR
    retry_after: float | None = None
    usage: Usage | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        if self.kind == ErrorKind.ABORTED:
            force_setattr(self, "stop_reason", StopReason.ABORTED)


AssistantMessageDelta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
_Start: TypeAlias = TextStart | ThinkingStart | ToolCallStart
_End: TypeAlias = TextEnd | ThinkingEnd | ToolCallEnd
AssistantMessageEvent: TypeAlias = StreamStart | _Start | AssistantMessageDelta | _End | StreamDone | StreamFailed


class StreamFn(Protocol):
    """The only boundary to a provider: any callable with this signature, usually an async generator function.

    It does not raise for a failure of the provider: it ends with `StreamFailed`. It may have a method
    `native_schema(model, schema, has_tools)`, which returns whether `StreamOptions.output_schema` can make replies fit
    this JSON Schema, even with tools if `has_tools`. Without it, structured values come through a tool. A method
    `searches_web(model, has_tools)` returns whether it supports `StreamOptions.web_search`.
    """

    def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]: ...


# -- the system prompt ---------------------------------------------------------------------------------------


def prompt_text(value: object) -> str:
    """Returns the system prompt as text that every provider accepts. If it is a function, calls it.

    The loop resolves the prompt before a request; this serves stream functions that are used without the loop. Raises
    `StreamError` if the prompt is not a string and does not return one.
    """
    if callable(value):
        value = value()
    if isinstance(value, str):
        return encodable(value)
    if inspect.iscoroutine(value):
        value.close()  # it cannot be awaited here; closing it avoids Python's warning
    given = "nothing" if value is None else f"a value of the type {type(value).__name__}"
    raise StreamError(
        f"the system prompt gave {given}: it must be a string, or a function that returns one",
        kind=ErrorKind.INVALID_REQUEST,
    )


async def resolved_prompt(context: AgentContext) -> str:
    """Works like `prompt_text` for a function that may be async. Raises `StreamError` for whatever it raises."""
    prompt = cast("Any", context.system_prompt)
    if isinstance(prompt, str):
        return prompt
    try:
        value = prompt() if callable(prompt) else prompt
        return prompt_text(await value if inspect.isawaitable(value) else value)
    except AgentError:
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        raise StreamError(f"the system prompt failed: {what}", kind=ErrorKind.INVALID_REQUEST) from error


# -- assembly ------------------------------------------------------------------------------------------------


# Enum members are slow to look up and to hash in Python 3.11.
_LENGTH, _ERROR, _ABORTED = StopReason.LENGTH, StopReason.ERROR, StopReason.ABORTED
_NO_USAGE, _NO_COST = Usage(), Cost()
_WHOLE, _NUMBERS = frozenset({int}), frozenset({int, float})
_KINDS = frozenset(ErrorKind)


_Action: TypeAlias = "tuple[Callable[[MessageAssembler, type, Any], str | None], type]"
_DELTAS = frozenset({TextDelta, ThinkingDelta, ToolCallDelta})


class _OpenBlock(msgspec.Struct, gc=False):
    """A block that is being streamed. Its fragments are collected in a list and joined once."""

    kind: type
    call: ToolCallStart | None = None
    is_open: bool = True
    fragments: list[str] = []
    signature: str | None = None
    arguments: dict[str, Any] | None = None


class MessageAssembler:
    """Folds the stream events of one attempt into an `AssistantMessage`, in linear time.

    It is strict: one start comes first; a new block's index is the number of blocks so far; deltas and ends name an
    open block of their kind; one terminal event comes last; at `StreamDone`, only tool calls may be open, and only if
    the stop reason is `length`. `feed` never raises: after a broken sequence, `message()` returns an error message of
    kind `stream`.
    """

    def __init__(self, model: ModelSpec) -> None:
        self.model = model
        self.failure: StreamFailed | None = None
        """The failure that the provider or the assembler reported, if any."""
        self.is_finished = False
        """Whether the reply ended: by its terminal event, or by a failure."""
        self.is_broken = False
        """Whether the event sequence was wrong; a retry would not help."""
        self._accepts = _FIRST  # the handler of each kind of event that may come now
        self._blocks: list[_OpenBlock] = []
        self._call_ids: set[str] | None = None
        self._terminal: StreamDone | None = None
        # What the provider reported, which counts even if the reply fails.
        self._usage: Usage | None = None
        self._cost: Cost | None = None

    def feed(self, event: AssistantMessageEvent) -> bool:
        """Processes the next event; returns whether it is a delta that was added to its block."""
        kind: type = type(event)
        take, block_kind = self._accepts.get(kind) or _MISPLACED
        try:
            problem = take(self, block_kind, event)
        except Exception as error:  # the event holds a value of a wrong type
            problem = f"{kind.__name__} that cannot be read: {error}"
        if problem is None:
            return kind in _DELTAS and not self.is_finished
        self._break(problem)
        return False

    def fail(self, failure: StreamFailed) -> None:
        """Ends the reply as failed, for a reason that the stream did not report."""
        usage = failure.usage if type(failure.usage) is Usage and _adds_up(failure.usage) else None
        cost = failure.cost if type(failure.cost) is Cost and _adds_up(failure.cost) else None
        is_odd = usage is not failure.usage or cost is not failure.cost or type(failure.message) is not str
        if is_odd or failure.kind not in _KINDS:
            failure = StreamFailed(str(failure.message), ErrorKind.STREAM, StopReason.ERROR, usage=usage, cost=cost)
        self._usage, self._cost = usage or self._usage, cost or self._cost
        self.failure = failure
        self._end()

    def _end(self) -> None:
        self.is_finished = True
        self._accepts = _NONE

    def _break(self, problem: str) -> None:
        self.is_broken = True
        self.fail(StreamFailed(f"broken event sequence: {problem}", ErrorKind.STREAM))

    def _misplaced(self, _: type, event: object) -> str | None:
        """Returns what is wrong with an event that is not allowed here."""
        kind = type(event)
        if self.is_finished:
            return None if self.is_broken else f"{kind.__name__} after the terminal event"
        if kind not in _ALL:
            return f"a {kind.__name__}, which is not a stream event"
        return f"{kind.__name__} before StreamStart"

    def _start(self, _: type, event: StreamStart) -> str | None:
        if self._accepts is _ALL:
            return "a second StreamStart"
        self._accepts = _ALL
        return None

    def _take_failure(self, _: type, event: StreamFailed) -> None:
        self.fail(event)

    def _add(self, block_kind: type, event: AssistantMessageDelta) -> str | None:
        index, delta = event.index, event.delta
        block = self._blocks[index] if type(index) is int and 0 <= index < len(self._blocks) else None
        if block is None or block.kind is not block_kind or not block.is_open:
            return f"{type(event).__name__} for block {index}, which is not an open {block_kind.__name__}"
        if not isinstance(delta, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a stream may send anything
            return f"{type(event).__name__} whose delta is {a_kind(delta)}"
        block.fragments.append(delta)
        return None

    def _begin(self, block_kind: type, event: Any) -> str | None:
        index, blocks = event.index, self._blocks
        if type(index) is not int or index != len(blocks):
            return f"block {index} opened when {len(blocks)} was next"
        if block_kind is ToolCall:
            if type(event.id) is not str or type(event.name) is not str:
                return "a tool call whose id or name is not a string"
            if blocks:  # most replies have one block, and their ids need no check
                if self._call_ids is None:
                    self._call_ids = {block.call.id for block in blocks if block.call is not None}
                if event.id in self._call_ids:
                    return f"two tool calls with the id {event.id!r}"
                self._call_ids.add(event.id)
        block = _OpenBlock(block_kind, event if block_kind is ToolCall else None)
        blocks.append(block)
        return None

    def _close(self, block_kind: type, event: Any) -> str | None:
        index = event.index
        block = self._blocks[index] if type(index) is int and 0 <= index < len(self._blocks) else None
        if block is None or block.kind is not block_kind or not block.is_open:
            return f"end of block {index}, which is not an open {block_kind.__name__}"
        if block_kind is Thinking:
            if event.signature is not None and type(event.signature) is not str:
                return "a signature that is not a string"
            block.signature = event.signature
        elif block_kind is ToolCall:
            block.arguments = _parsed("".join(block.fragments))
        block.is_open = False
        return None

    def _finish(self, _: type, done: StreamDone) -> str | None:
        reason = done.stop_reason
        if type(reason) is not StopReason or type(done.usage) is not Usage or type(done.cost) is not Cost:
            given = ", ".join([a_kind(part) for part in (reason, done.usage, done.cost)])
            return f"a StreamDone takes a StopReason, a Usage and a Cost, and this one has {given}"
        for name in (done.served_model, done.response_id):
            if name is not None and type(name) is not str:
                return f"a StreamDone whose served_model or response_id is {a_kind(name)}, not a string"
        is_empty = done.usage == _NO_USAGE and done.cost == _NO_COST
        if not is_empty and not (_adds_up(done.usage) and _adds_up(done.cost)):
            return f"a StreamDone whose usage or cost does not consist of numbers: {show((done.usage, done.cost))}"
        self._usage, self._cost = done.usage, done.cost
        if reason is _ERROR or reason is _ABORTED:
            kind = ErrorKind.ABORTED if done.stop_reason == StopReason.ABORTED else ErrorKind.STREAM
            text = f"the stream ended with stop reason {done.stop_reason}"
            self.fail(StreamFailed(text, kind, usage=done.usage, cost=done.cost))
            return None
        for index, block in enumerate(self._blocks):
            if block.is_open and (reason is not _LENGTH or block.kind is not ToolCall):
                return f"StreamDone while block {index} is open"
        self._terminal = done
        self._end()
        return None

    ALL: ClassVar[dict[type, _Action]] = {
        StreamStart: (_start, object),
        TextStart: (_begin, Text),
        TextDelta: (_add, Text),
        TextEnd: (_close, Text),
        ThinkingStart: (_begin, Thinking),
        ThinkingDelta: (_add, Thinking),
        ThinkingEnd: (_close, Thinking),
        ToolCallStart: (_begin, ToolCall),
        ToolCallDelta: (_add, ToolCall),
        ToolCallEnd: (_close, ToolCall),
        StreamDone: (_finish, object),
        StreamFailed: (_take_failure, object),
    }
    FIRST: ClassVar[dict[type, _Action]] = {StreamStart: ALL[StreamStart], StreamFailed: ALL[StreamFailed]}
    NONE: ClassVar[dict[type, _Action]] = {}
    MISPLACED: ClassVar[Any] = (_misplaced, object)

    def called(self, index: int) -> str | None:
        """Returns the name of the tool that this block calls; `None` if the block is not a call."""
        call = self._blocks[index].call
        return None if call is None else call.name

    def snapshot(self) -> AssistantMessage:
        """Returns the message so far, open blocks included."""
        content, model, done = tuple(map(_block, self._blocks)), self.model, self._terminal
        if done is None:
            return AssistantMessage(content, model.provider, model.model_id)
        return AssistantMessage(
            content,
            model.provider,
            model.model_id,
            done.usage,
            done.cost,
            done.stop_reason,
            served_model=done.served_model,
            response_id=done.response_id,
        )

    def message(self) -> AssistantMessage:
        """Returns the message after the stream ended. A stream without a terminal event is a broken sequence."""
        if not self.is_finished:
            self._break("the stream ended without StreamDone or StreamFailed")
        if self.failure is None:
            return self.snapshot()
        return self.failed(self.failure)

    def failed(self, failure: StreamFailed) -> AssistantMessage:
        """Returns the message of a failed reply: it keeps text and thinking, and drops tool calls, which never ran."""
        is_abort = failure.stop_reason == StopReason.ABORTED
        blocks = tuple([_block(block) for block in self._blocks if block.kind is not ToolCall and block.fragments])
        return AssistantMessage(
            blocks,
            self.model.provider,
            self.model.model_id,
            stop_reason=StopReason.ABORTED if is_abort else StopReason.ERROR,
            error_message=failure.message,
            error_kind=ErrorKind.ABORTED if is_abort else failure.kind,
            usage=failure.usage or self._usage or Usage(),
            cost=failure.cost or self._cost or Cost(),
        )


# Class attributes are slow to look up on an instance in Python 3.11.
_ALL, _FIRST, _NONE = MessageAssembler.ALL, MessageAssembler.FIRST, MessageAssembler.NONE
_MISPLACED: _Action = MessageAssembler.MISPLACED


def _adds_up(amounts: Usage | Cost) -> bool:
    """Whether all of it is numbers, which are whole in a usage."""
    extra = amounts.extra
    if type(extra) is not dict or not all(type(name) is str for name in extra):
        return False
    numbers = [amounts.input, amounts.output, amounts.cache_read, amounts.cache_write, amounts.total, *extra.values()]
    kinds = _WHOLE if type(amounts) is Usage else _NUMBERS
    return kinds.issuperset(map(type, numbers))


def _block(block: _OpenBlock) -> AssistantBlock:
    call, arguments = block.call, block.arguments
    if call is not None and arguments is not None:
        return ToolCall(call.id, call.name, arguments)
    text = "".join(block.fragments)
    if call is not None:
        return ToolCall(call.id, call.name, {}, text)
    return Text(text) if block.kind is Text else Thinking(text, block.signature)


_decode = msgspec.json.Decoder().decode
_SHALLOW = 256  # up to this many characters, JSON cannot be nested too deep: each level takes two


def _parsed(text: str) -> dict[str, Any] | None:
    """Returns the arguments, `{}` for an empty text, or `None` if the text is not a JSON object or nested too deep."""
    try:
        value: Any = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None if text.strip() else {}
    if len(text) > _SHALLOW and text.count("{") + text.count("[") > DEEPEST and is_too_deep(value):
        return None
    return value if type(value) is dict else None  # pyright: ignore[reportUnknownVariableType]
