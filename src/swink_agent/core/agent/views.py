"""A run as a stream of its text, or of its structured value, for readers that need nothing else.

The stream of events is in `run/event_stream`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, cast

from ..events import AgentEvent, MessageEnd, MessageRetry, MessageStart, MessageUpdate, ModelFallback
from ..run.event_stream import EventStream
from ..stream import MessageAssembler, TextDelta, ToolCallDelta
from ..types import AgentResult
from ..values.partial_json import PartialJson

if TYPE_CHECKING:
    from .structured import StructuredOutput, StructuredResult

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
ViewFn: TypeAlias = Callable[[AgentEvent, MessageAssembler | None, Callable[[Any], None]], None]
"""Gets each event and the reply that is being streamed, and pushes the items for the reader."""

_RESTARTS = (MessageStart, MessageRetry, ModelFallback)


class _View(AsyncIterator[P], Generic[P, R]):
    """A run's stream of items other than events. Leaving it early cancels the run, as with `EventStream`."""

    __slots__ = ("_events",)

    def __init__(self, events: EventStream) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[P]:
        return _Reading(self, self._events.__aiter__())

    async def __anext__(self) -> P:
        return await self.next_of(self._events)

    async def next_of(self, events: AsyncIterator[AgentEvent]) -> P:
        """Returns the next item. At the end, raises the error that ended the run, if there was one."""
        try:
            return cast("P", await events.__anext__())
        except StopAsyncIteration:
            await self._check_end()
            raise

    async def _check_end(self) -> None:
        await self.result()

    async def result(self) -> R:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Cancels the run if it is not over, and waits for its end."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Reading(AsyncIterator[P], Generic[P]):
    """One `async for` over a view. When the loop is left, Python drops it, and with it the iterator over the events."""

    __slots__ = ("_events", "_view")

    def __init__(self, view: _View[P, Any], events: AsyncIterator[AgentEvent]) -> None:
        self._view = view
        self._events = events

    def __aiter__(self) -> AsyncIterator[P]:
        return self

    async def __anext__(self) -> P:
        return await self._view.next_of(self._events)


class TextStream(_View[str, AgentResult]):
    """The text of a run, piece by piece as the model sends it, and the run's result.

    The end of the iteration raises the error that ended the run, if there was one. The replies of all turns are one
    text, with a blank line between them. When a request is repeated after text was sent, repeated text is left out; if
    the new reply differs, all of it follows on a new line.
    """

    __slots__ = ()

    async def _check_end(self) -> None:
        (await self._events.result()).raise_for_error()

    async def result(self) -> AgentResult:
        """Waits for the end of the run and returns its result. Discards the text if nothing was read before."""
        return await self._events.result()


class ValueStream(_View[Any, "StructuredResult[T]"], Generic[T]):
    """A structured value as it grows, as JSON data, and the result with the whole value.

    A partial value need not fit the schema: properties are missing, and strings are cut off. When the model tries
    again, it starts over. A value of more than 10,000 characters comes after each hundredth of its length.
    The end of the iteration raises what `result` raises.
    """

    __slots__ = ("_request",)

    def __init__(self, events: EventStream, request: StructuredOutput) -> None:
        super().__init__(events)
        self._request = request

    async def result(self) -> StructuredResult[T]:
        """Waits for the end of the run and returns the value. Raises what `structured_output` raises."""
        return self._request.result_of(await self._events.result())


def view_of_text() -> ViewFn:
    """Makes the view that pushes the pieces of text, without text that a repeated request repeats."""
    given: list[str] = []  # the text of this reply that the reader has
    repeated: str | None = None  # the text of a repeated request so far, as long as the reader already has it
    gap = ""

    def view(event: AgentEvent, reply: MessageAssembler | None, push: Callable[[Any], None]) -> None:
        nonlocal given, repeated, gap
        if type(event) is MessageUpdate:
            if type(event.delta) is not TextDelta or not event.delta.delta:
                return
            piece = event.delta.delta
            if repeated is not None:
                had, repeated = "".join(given), repeated + piece
                if had.startswith(repeated):
                    return
                piece = repeated.removeprefix(had) if repeated.startswith(had) else "\n" + repeated
                given, repeated = [repeated], None
            else:
                given.append(piece)
            push(gap + piece)
            gap = ""
        elif type(event) is MessageRetry or type(event) is ModelFallback:
            repeated = "" if given else None
        elif type(event) is MessageEnd:
            if repeated and repeated != "".join(given) and not event.message.is_failed:
                push("\n" + repeated)  # the reply is shorter than the text that the reader has
            gap = "\n\n" if given else gap
            given, repeated = [], None

    return view


def view_of_value(request: StructuredOutput) -> ViewFn:
    """Makes the view that pushes the value so far whenever it has grown; a long one, by a hundredth of its length."""
    partial, index = PartialJson(), -1
    last: Any = PartialJson  # equal to no value

    def view(event: AgentEvent, reply: MessageAssembler | None, push: Callable[[Any], None]) -> None:
        nonlocal partial, index, last
        if isinstance(event, _RESTARTS):
            partial, index, last = PartialJson(), -1, PartialJson
        if type(event) is not MessageUpdate or reply is None:
            return
        delta = event.delta
        if type(delta) is ToolCallDelta:
            if reply.called(delta.index) != request.name:
                return
            if delta.index != index:
                partial, index = PartialJson(), delta.index
        elif type(delta) is not TextDelta or not request.is_native:
            return
        if partial.feed(delta.delta):
            try:
                value = partial.value()
                value = value["value"] if request.is_wrapped else value
            except (ValueError, LookupError, TypeError):
                return  # nothing of the value has come yet, or it is not JSON
            if value != last:
                last = value
                push(value)

    return view
