"""A scripted model: the parts of a reply, and a stream function that plays them, by the rules of `StreamFn`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import ErrorKind
from swink_agent.core.stream import (
    AssistantMessageEvent,
    StreamDone,
    StreamFailed,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from swink_agent.core.types import (
    AgentContext,
    AssistantMessage,
    Cost,
    LlmMessage,
    ModelSpec,
    OfferedTool,
    StopReason,
    Usage,
)
from swink_agent.core.values.value import Value


class Part(Value, frozen=True):
    """A piece of a scripted reply. `a + b` is one reply with both."""

    def __add__(self, other: Part | Sequence[Part]) -> list[Part]:
        return [self, *_parts(other)]

    def __radd__(self, other: Sequence[Part]) -> list[Part]:
        return [*other, self]


class Speech(Part, frozen=True):
    """Text or thinking."""

    kind: Literal["text", "thinking"]
    content: str
    deltas: int | None = None
    signature: str | None = None
    is_cut: bool = False


class Call(Part, frozen=True):
    """A tool call."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    deltas: int | None = None
    is_cut: bool = False

    def with_id(self, call_id: str) -> Call:
        """Returns the same call with the given id."""
        return msgspec.structs.replace(self, id=call_id)


class Failure(Part, frozen=True):
    """The end of a reply that fails."""

    kind: ErrorKind
    message: str
    retry_after: float | None = None
    usage: Usage | None = None
    cost: Cost | None = None


class Stall(Part, frozen=True):
    """Waits until the call is cancelled."""


class ModelRequest(Value, frozen=True):
    """One request to a scripted model, as it was at that moment."""

    model: ModelSpec
    context: AgentContext
    options: StreamOptions

    @property
    def messages(self) -> Sequence[LlmMessage]:
        return cast("Sequence[LlmMessage]", self.context.messages)  # the loop has removed all other messages

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        return tuple(self.context.tools)

    @property
    def turn(self) -> int:
        """How many replies the messages have."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)


ReplyParts: TypeAlias = str | Part | Sequence[Part]
"""The content of one reply, which a function in a script returns too."""
Reply: TypeAlias = ReplyParts | Callable[[ModelRequest], ReplyParts]
"""What `scripted` accepts for each request."""


def text(content: str, *, deltas: int | None = None) -> Speech:
    """Makes text, streamed in `deltas` pieces."""
    return Speech("text", content, deltas)


def think(content: str, *, signature: str | None = None, deltas: int | None = None) -> Speech:
    """Makes reasoning, with the signature that some providers add."""
    return Speech("thinking", content, deltas, signature)


def call(name: str, /, **arguments: Any) -> Call:
    """Makes a tool call with these arguments, and an id that is unique in the script."""
    return Call(name, arguments)


def fail(
    kind: ErrorKind | str,
    message: str | None = None,
    *,
    retry_after: float | None = None,
    usage: Usage | None = None,
    cost: Cost | None = None,
) -> Failure:
    """Makes a failure of the given kind; the parts before it are streamed first."""
    return Failure(ErrorKind(kind), message or f"scripted {ErrorKind(kind).value} failure", retry_after, usage, cost)


def truncated(*parts: str | Part) -> list[Part]:
    """Makes a reply that the length limit cuts off inside its last part: half of a text, or of a call's arguments."""
    whole = reply(*parts)
    if not whole or not isinstance(whole[-1], (Speech, Call)):
        raise TypeError("truncated() cuts its last part, which must be a text, a think or a call")
    return [*whole[:-1], msgspec.structs.replace(whole[-1], is_cut=True)]


def stall() -> Stall:
    """Waits after the parts before it until the call is cancelled."""
    return Stall()


def reply(*parts: str | Part) -> list[Part]:
    """Joins several parts to one reply; a list works as well."""
    return _parts(parts)


def scripted(
    *replies: Reply,
    deltas: int = 1,
    usage: Usage | None = None,
    cost: Cost | None = None,
    suspend: bool = False,
    native_schema: bool = False,
    served_model: str | None = None,
) -> ScriptedStream:
    """Makes a stream function that gives these replies, one for each request.

    A reply is a part, a list of parts, a string, or a function from the `ModelRequest` to one of these. One function
    alone is a model without memory: it is asked for every reply, for ever, also by many runs at once, and no request is
    kept. `deltas` is the number of pieces for each text and each call's arguments, every reply has `usage`, `cost` and
    `served_model`, and `suspend` gives the event loop a turn before every event, as a network would. With
    `native_schema`, the model gives structured values as text, not by a tool.
    """
    counted = usage or Usage(), cost or Cost()
    stream = ScriptedStream(replies, deltas=deltas, counted=counted, suspend=suspend, served_model=served_model)
    stream.has_native_schema = native_schema
    return stream


class ScriptedStream:
    """The stream function that `scripted` makes. `requests` lists the requests to a script."""

    model = ModelSpec("scripted", "model")
    """Its name as a model."""

    def __init__(
        self,
        replies: Sequence[Reply],
        *,
        deltas: int,
        counted: tuple[Usage, Cost],
        suspend: bool,
        served_model: str | None,
    ) -> None:
        if deltas < 1:
            raise ValueError(f"deltas is {deltas}; it must be at least 1")
        self.requests: list[ModelRequest] = []
        self.has_native_schema = False
        """Whether the model takes the JSON Schema of its reply, as some providers do."""
        self._deltas = deltas
        self._counted = counted
        self._served_model = served_model
        self._suspend = suspend
        self._ids = count(1)
        # Converted now, so that an error in the script is raised where it was written, and requests are fast.
        self._replies = [item if callable(item) else list(self._events(_parts(item))) for item in replies]
        self._function = replies[0] if len(replies) == 1 and callable(replies[0]) else None

    def __repr__(self) -> str:
        if self._function is not None:
            return f"<scripted model {getattr(self._function, '__name__', 'of a function')}>"
        return f"<scripted stream, {len(self.requests)} of {len(self._replies)} replies given>"

    @property
    def is_finished(self) -> bool:
        """Whether every reply has been given."""
        return self._function is None and len(self.requests) >= len(self._replies)

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        return self.has_native_schema

    async def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        request = ModelRequest(model, context, options)
        reply = self._function
        if reply is None:
            position = len(self.requests)
            self.requests.append(request)
            if position >= len(self._replies):
                yield StreamFailed(
                    f"the script has {len(self._replies)} replies and this is request {position + 1}",
                    ErrorKind.INVALID_REQUEST,
                )
                return
            reply = self._replies[position]
        for event in self._events(_parts(reply(request))) if callable(reply) else reply:
            if self._suspend:
                await asyncio.sleep(0)
            if event is None:
                await cancel.wait()
                return
            yield event

    def _events(self, parts: Sequence[Part]) -> Iterator[AssistantMessageEvent | None]:
        """Yields the events of a reply, and `None` where it stalls."""
        yield StreamStart()
        reason = StopReason.STOP
        for index, part in enumerate(parts):
            match part:
                case Speech():
                    yield from self._speech(index, part)
                case Call():
                    yield from self._call(index, part)
                    reason = StopReason.TOOL_USE
                case Failure():
                    yield StreamFailed(
                        part.message, part.kind, retry_after=part.retry_after, usage=part.usage, cost=part.cost
                    )
                    return
                case _:
                    yield None
        if parts and getattr(parts[-1], "is_cut", False):
            reason = StopReason.LENGTH
        yield StreamDone(reason, *self._counted, self._served_model)

    def _speech(self, index: int, part: Speech) -> Iterator[AssistantMessageEvent]:
        content = part.content[: len(part.content) // 2] if part.is_cut else part.content
        is_text = part.kind == "text"
        yield TextStart(index) if is_text else ThinkingStart(index)
        for piece in _pieces(content, part.deltas or self._deltas):
            yield TextDelta(index, piece) if is_text else ThinkingDelta(index, piece)
        yield TextEnd(index) if is_text else ThinkingEnd(index, part.signature)

    def _call(self, index: int, part: Call) -> Iterator[AssistantMessageEvent]:
        arguments = msgspec.json.encode(part.arguments).decode()
        if part.is_cut:
            arguments = arguments[: max(1, len(arguments) // 2)]
        yield ToolCallStart(index, part.id or f"call_{next(self._ids)}", part.name)
        for piece in _pieces(arguments, part.deltas or self._deltas):
            yield ToolCallDelta(index, piece)
        if not part.is_cut:
            yield ToolCallEnd(index)


def _parts(given: str | Part | Sequence[str | Part]) -> list[Part]:
    if isinstance(given, str):
        return [text(given)]
    if isinstance(given, Part):
        return [given]
    return [part for item in given for part in _parts(item)]


def _pieces(content: str, wanted: int) -> Iterator[str]:
    """Divides the content into exactly `wanted` pieces of similar size; some are empty if it is shorter."""
    size, larger = divmod(len(content), wanted)
    start = 0
    for position in range(wanted):
        end = start + size + (position < larger)
        yield content[start:end]
        start = end
