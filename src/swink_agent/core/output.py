"""All that leaves a run: its events, their subscribers, the stream of them, and what partial results of tools become.

    Subscriptions    callbacks that see each event, in order
    Channel          connects a run and its reader, with a limit on how far the run may be ahead
    EventStream      the events of one run as an async iterator, and its result
    TextStream, ValueStream    the text of a run, or its structured value, for readers that need nothing else
    Relay            passes the partial results of a running tool on

The results of tools are masked here too. The run is in `loop`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from .agent.structured import StructuredOutput, StructuredResult
from .cancel import CancellationToken, call_in, current_task, running_loop
from .errors import Aborted
from .events import (
    AgentEvent,
    MessageEnd,
    MessageRetry,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    ToolExecutionUpdate,
)
from .run.observer import RunObserver, has_own_for_each_run
from .secrets.masking import masked
from .secrets.masks import MaskedLines, PolicyMasks
from .secrets.redaction import Redactor, RedactorStream
from .stream import MessageAssembler, TextDelta, ToolCallDelta
from .types import AgentResult, AgentToolResult, Extension, Text, UserBlock, extract_text
from .values.checks import is_not
from .values.data import as_json_data, encodable
from .values.partial_json import PartialJson
from .values.value import FrozenDict, FrozenList, Out_co
from .waits import Supervisor, new_task

log = logging.getLogger("swink_agent")

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
ViewFn: TypeAlias = Callable[[AgentEvent, MessageAssembler | None, Callable[[Any], None]], None]
"""Gets each event and the reply that is being streamed, and pushes the items for the reader."""

_RESTARTS = (MessageStart, MessageRetry, ModelFallback)

_MOST_EVENTS = 256
_HALF = _MOST_EVENTS // 2
_ABSENCE = 0.03  # seconds after which a reader that was cancelled, and asked for no event since, has left

GAP = "[…]"  # replaces text that an update omits
_MOST_UPDATES = 32
_MOST_CHARACTERS = 64 * 1024
_LONG = 64 * 1024
_NUMBERS: frozenset[Any] = frozenset({int, float, bool, type(None)})
_TEXTS: frozenset[Any] = frozenset({str, bytes, bytearray})
_LISTS: frozenset[Any] = frozenset({list, tuple, set, frozenset, FrozenList})
_OBJECTS: frozenset[Any] = frozenset({dict, FrozenDict})
# Masking a short text, or another value, takes as long as masking so many characters of a long text.
_PER_TEXT, _PER_VALUE = 100, 8
_SURELY_REPEATED = 8
"""If an update begins with the whole last one, and that has this many characters, the tool repeats a growing text."""


# -- subscribers ---------------------------------------------------------------------------------------------


class Subscription:
    """A callback's registration. Ends with `unsubscribe()`, or with a `with` block."""

    __slots__ = ("_end", "callback")

    def __init__(self, callback: Callable[[AgentEvent], object], end: Callable[[Subscription], None]) -> None:
        self.callback = callback
        self._end = end

    def unsubscribe(self) -> None:
        """Ends it, after the event that is being delivered. Safe from any thread, and more than once."""
        self._end(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()


class Subscriptions:
    """An agent's subscriptions, and its observers, whose `on_event` is among them.

    `lock` guards changes: any thread may make one.
    """

    __slots__ = ("_lock", "all", "observers")

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self.all: tuple[Subscription, ...] = ()  # a change during a dispatch makes a new tuple
        self.observers: tuple[RunObserver, ...] = ()

    def add(self, callback: Callable[[AgentEvent], object]) -> Subscription:
        """Raises `TypeError` for a callback that is not a function, or would have to be awaited."""
        if not callable(cast("object", callback)):
            raise is_not("callback", callback, "a function")
        if any(inspect.iscoroutinefunction(function) for function in (callback, callback.__call__)):
            raise TypeError("a subscriber is a plain function; read prompt_stream() to handle events in async code")
        subscription = Subscription(callback, self._remove)
        with self._lock:
            self.all = (*self.all, subscription)
        return subscription

    def observe(self, observer: RunObserver) -> Subscription:
        """Adds an observer until its subscription ends.

        Raises `TypeError` for anything else, and `ValueError` if the agent already has an equal one.
        """
        if isinstance(cast("object", observer), type) or not hasattr(observer, "on_event"):
            raise is_not("observer", observer, "a RunObserver")

        def end(subscription: Subscription) -> None:
            self._remove(subscription)
            with self._lock:
                self.observers = tuple([item for item in self.observers if item is not observer])

        subscription = Subscription(observer.on_event, end)
        with self._lock:
            if observer in self.observers:
                raise ValueError("this observer observes the agent already")
            self.observers = (*self.observers, observer)
            if not has_own_for_each_run(observer):
                self.all = (*self.all, subscription)
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self.all = tuple([item for item in self.all if item is not subscription])

    def notify(self, event: AgentEvent) -> None:
        """Calls every subscriber."""
        for subscription in self.all:
            try:
                subscription.callback(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # even a CancelledError: the subscriber raised it, and the run was not cancelled
                log.exception("a subscriber failed on %s and is removed", type(event).__name__)
                subscription.unsubscribe()


# -- the channel between a run and its reader ----------------------------------------------------------------


class Channel:
    """Passes events from a run to its reader. Both are in one event loop, so it needs no locks.

    The run continues without a task switch until the channel is full; the reader takes waiting events without one.
    """

    def __init__(self, subscriptions: Subscriptions | None = None) -> None:
        self.subscriptions = Subscriptions(nullcontext()) if subscriptions is None else subscriptions
        """They see each event before the reader does."""
        self.events: deque[AgentEvent] = deque()
        self.most: float = _MOST_EVENTS  # with this many events the channel is full
        self.is_closed = False
        self.was_read = False
        self.on_demand: Callable[[], None] = unheard  # called when the reader has taken all events and asks for more
        self._readers: list[asyncio.Future[None]] = []  # the readers that wait for an event, usually one
        self.writers: list[asyncio.Future[None]] = []  # the runs that wait for room: the run itself, or its delegates
        self.backlog: dict[Relay, None] = {}  # the relays of running tools with updates that did not fit
        self.branches: tuple[Channel, ...] = ()  # the channels of the delegates that are running
        self._has_left = False
        self._absent: asyncio.Task[Any] | None = None  # a reader that was cancelled and has not asked again

    # -- the run's side ----------------------------------------------------------------------------------------

    def push(self, event: AgentEvent) -> None:
        """Adds an event. Never blocks; code that pushes many checks `is_full` and awaits `room`."""
        if self.subscriptions.all:
            self.subscriptions.notify(event)
        self.events.append(event)
        if self._readers:
            self._wake_readers()

    def put(self, item: Any) -> None:
        """Adds an item that the reader gets in place of events. Subscribers do not get it."""
        self.events.append(item)
        if self._readers:
            self._wake_readers()

    @property
    def is_unbounded(self) -> bool:
        return self.most == inf

    @property
    def is_full(self) -> bool:
        return len(self.events) >= self.most

    def has_room(self) -> bool:
        return not self.is_full

    def is_caught_up(self) -> bool:
        """Whether the reader has handled all events and waits for the next one."""
        return self.is_unbounded or bool(self._readers)

    async def room(self) -> None:
        """Waits until the channel is not full."""
        while self.is_full:
            writer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.writers.append(writer)
            try:
                await writer
            finally:
                if writer in self.writers:
                    self.writers.remove(writer)

    def close(self) -> None:
        self.is_closed = True
        self._wake_readers()

    def _wake_readers(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    # -- the reader's side -------------------------------------------------------------------------------------

    def take(self) -> AgentEvent:
        self.was_read = True
        event = self.events.popleft()
        if self.writers and len(self.events) <= _HALF:
            self.wake_writers()
        return event

    def is_left(self) -> bool:
        """Whether the reader has left: `leave` was called, or its task ended after it was cancelled."""
        return self._has_left or (self._absent is not None and self._absent.done())

    def leave(self) -> None:
        """Notes that the reader has left. Takes no lock: the garbage collector may call it anywhere."""
        self._has_left = True

    def miss(self, reader: asyncio.Task[Any] | None) -> None:
        """Notes that the reader was cancelled while it waited. It may ask again."""
        self._absent = reader

    async def more(self) -> bool:
        """Waits for an event; returns `False` if there will be none."""
        self._absent = None
        while not self.events:
            if self.is_closed:
                return False
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            self.wake_writers()
            self._demand()
            try:
                await reader
            finally:
                if reader in self._readers:
                    self._readers.remove(reader)
        return True

    def lift_bound(self) -> None:
        """Lets the run continue whether or not anyone reads."""
        for channel in (self, *self.branches):
            channel.most = inf
        self.wake_writers()
        self._demand()

    def _demand(self) -> None:
        self.on_demand()
        for branch in self.branches:
            branch.on_demand()

    def wake_writers(self) -> None:
        """Lets the runs that wait for room continue."""
        writers, self.writers = self.writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)


class Branch(Channel):
    """The channel of a delegate: its events go to the reader of the caller's channel, which sets the pace for both."""

    __slots__ = ("_trunk",)

    def __init__(self, channel: Channel) -> None:
        trunk: Channel = getattr(channel, "_trunk", channel)
        super().__init__(trunk.subscriptions)
        self.events, self.most = trunk.events, trunk.most
        self._trunk = trunk
        self._trunk.branches = (*self._trunk.branches, self)

    def detach(self) -> None:
        """Separates it from the caller's channel, since the delegate's run is over."""
        self._trunk.branches = tuple([branch for branch in self._trunk.branches if branch is not self])

    def is_caught_up(self) -> bool:
        return self._trunk.is_caught_up()

    async def room(self) -> None:
        await self._trunk.room()


def unheard(*_: object) -> None:
    """Does nothing."""


# -- the stream of events ------------------------------------------------------------------------------------


class _Reading(AsyncIterator[AgentEvent]):
    """One `async for` over a stream.

    Python drops this object when the loop is left in any way, even if other code still holds the stream, the task or
    the exception. That is how the run learns that its reader has left.
    """

    __slots__ = ("_channel", "_stream")

    def __init__(self, stream: EventStream[Any]) -> None:
        self._stream = stream
        self._channel = stream.channel

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self

    async def __anext__(self) -> AgentEvent:
        # `__del__` reports that the loop was left, so the reader need not be known.
        return await self._stream.next_event(None)

    def __del__(self) -> None:
        self._stream.leave()


class EventStream(AsyncIterator[AgentEvent], Generic[Out_co]):
    """The events of one run, live, and its result.

    The run starts at once if an event loop is running, else when the first event is asked for. It is at most a few
    hundred events ahead of the reader, and neither runs tools nor starts another turn before the reader has handled
    the message or the turn before.

    Leaving early cancels the run: leaving an `async for` by `break`, `return`, an exception or the cancellation of its
    task, leaving an `async with`, or dropping the stream. To be able to pause, ask for the events one by one with
    `anext(stream)`.
    """

    __slots__ = ("__weakref__", "_cancel", "_channel", "_drive", "_on_unstarted", "_reads", "_task")

    def __init__(
        self,
        drive: Callable[[Channel], Coroutine[Any, Any, AgentResult[Any]]],
        cancel: CancellationToken,
        on_unstarted: Callable[[], None] | None = None,
        subscriptions: Subscriptions | None = None,
    ) -> None:
        self._channel = Channel(subscriptions)
        self._cancel = cancel
        self._drive: Callable[[Channel], Coroutine[Any, Any, AgentResult[Any]]] | None = drive
        """Starts the run. Then it is dropped with the run's inputs, as a stream may be kept after its end."""
        self._on_unstarted = on_unstarted
        self._task: asyncio.Task[AgentResult[Any]] | None = None
        self._reads = 0
        if running_loop() is not None:
            self._start()

    def _start(self) -> asyncio.Task[AgentResult[Any]]:
        if self._task is None:
            assert self._drive is not None
            self._task = new_task(asyncio.get_running_loop(), self._drive(self._channel))
            self._drive = None
            channel = self._channel  # not self: the run must not keep its reader alive
            on_unstarted = self._on_unstarted

            def end(_: object) -> None:
                channel.close()
                if on_unstarted is not None:
                    on_unstarted()  # for a task that was cancelled before its first step

            self._task.add_done_callback(end)
        return self._task

    @property
    def channel(self) -> Channel:
        """The channel of the events. It does not refer to the stream: the run must not keep its reader alive."""
        return self._channel

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return _Reading(self)

    def __anext__(self) -> Coroutine[Any, Any, AgentEvent]:
        # The task is looked up here and not in the coroutine, which `asyncio.wait_for` may wrap into another task.
        return self.next_event(None if self._channel.events else current_task())

    async def next_event(self, reader: asyncio.Task[Any] | None) -> AgentEvent:
        """Returns the next event. If the task `reader` ends, the reader has left."""
        channel = self._channel
        if channel.events:
            return channel.take()
        if self._task is None and channel.is_closed:
            raise StopAsyncIteration
        task = self._start()
        self._reads += 1
        try:
            has_more = await channel.more()
        except asyncio.CancelledError:
            # A reader that was given a time limit may come back for more; one that was cancelled does not.
            channel.miss(reader)
            task.get_loop().call_later(_ABSENCE, self._leave_unless_read, self._reads, reader)
            raise
        if has_more:
            return channel.take()
        if self._task is not None and not self._task.cancelled():
            self._task.result()  # a bug in the library is raised here, not swallowed
        raise StopAsyncIteration

    async def result(self) -> AgentResult[Out_co]:
        """Waits for the end of the run and returns its result. Discards the events if nothing was read before."""
        if self._task is None and self._channel.is_closed:
            raise Aborted
        task = self._start()
        if not self._channel.was_read:
            self._channel.events = deque(maxlen=0)
        self._channel.lift_bound()
        return await asyncio.shield(task)

    def leave(self) -> None:
        """Cancels the run if it is not over. Does not wait; the garbage collector may call it anywhere."""
        if self._task is not None and not self._task.done():
            self._channel.leave()
            # Not here: the collector may run while this thread holds the token's lock.
            call_in(self._task.get_loop(), self._cancel.cancel)

    def _leave_unless_read(self, reads: int, reader: asyncio.Task[Any] | None) -> None:
        is_cancelled = reader is None or reader.done() or reader.cancelling() > 0
        if is_cancelled and self._reads == reads and not self._channel.is_unbounded:
            self.leave()

    async def aclose(self) -> None:
        """Cancels the run if it is not over, and waits for its end."""
        self._cancel.cancel()
        if self._task is None:
            self._abandon_unstarted()
            return
        self._channel.lift_bound()
        await asyncio.wait([self._task])
        self._channel.events.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is None:
            self._abandon_unstarted()
        else:
            self.leave()

    def _abandon_unstarted(self) -> None:
        self._channel.close()
        self._drive = None
        if self._on_unstarted is not None:
            self._on_unstarted()
            self._on_unstarted = None


# -- streams of text and values ------------------------------------------------------------------------------


class _View(AsyncIterator[P], Generic[P, R]):
    """A run's stream of items other than events. Leaving it early cancels the run, as with `EventStream`."""

    __slots__ = ("_events",)

    def __init__(self, events: EventStream) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[P]:
        return _ViewReading(self, self._events.__aiter__())

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


class _ViewReading(AsyncIterator[P], Generic[P]):
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


# -- partial results of tools --------------------------------------------------------------------------------


class Reporting(Protocol):
    """What a relay needs of its run."""

    @property
    def supervisor(self) -> Supervisor: ...
    @property
    def channel(self) -> Channel | None: ...
    @property
    def emit(self) -> Callable[[AgentEvent], None]: ...
    @property
    def executing(self) -> Collection[str]: ...
    @property
    def redactor(self) -> Redactor: ...
    @property
    def masks(self) -> PolicyMasks | None: ...
    def entered_result(self, result: AgentToolResult, /) -> AgentToolResult: ...
    def entered_text(self, feed: Callable[[], str], /) -> str: ...


class Relay:
    """The updates of one call, in order; if there are too many, the last ones are joined."""

    __slots__ = (
        *("_buffer", "_call_id", "_is_closed", "_is_scheduled", "_last_text", "_lines", "_lock", "_name", "_run"),
        "_text",
    )

    def __init__(self, call_id: str, name: str, run: Reporting) -> None:
        self._call_id = call_id
        self._name = name
        self._run = run
        self._buffer: deque[AgentToolResult] = deque()
        self._lock = threading.Lock()
        self._text: RedactorStream | None = None
        self._lines: MaskedLines | None = None
        self._last_text = ""
        self._is_scheduled = False
        self._is_closed = False

    def post(self, update: AgentToolResult) -> None:
        """Takes an update, from any thread; ignores it after the call has ended."""
        with self._lock:
            if self._is_closed:
                return
            if len(self._buffer) < _MOST_UPDATES:
                self._buffer.append(update)
            else:
                self._buffer[-1] = joined(self._buffer[-1], update)
            if self._is_scheduled:
                return
            is_here = running_loop() is self._run.supervisor.loop
            self._is_scheduled = not is_here
        if is_here:
            self.pump()
        else:
            call_in(self._run.supervisor.loop, self._pump_scheduled)

    def _pump_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Emits updates until the channel is full."""
        if self._call_id not in self._run.executing:  # a thread reported while its call ended
            self._buffer.clear()
        channel = self._run.channel
        while self._buffer and not (channel is not None and channel.is_full):
            self._emit_first()
        if channel is not None:
            if self._buffer:
                channel.backlog[self] = None
            else:
                channel.backlog.pop(self, None)

    def close(self) -> None:
        """Emits the rest, even if the channel is full: it must come before the call's end."""
        with self._lock:
            self._is_closed = True
        while self._buffer:
            self._emit_first()
        if self._run.channel is not None:
            self._run.channel.backlog.pop(self, None)
        if self._text is not None and (rest := self._rest(self._text)):
            self._emit(AgentToolResult.text(rest))

    def _rest(self, text: RedactorStream) -> str:
        """Returns the text that was kept back, masked."""
        lines = self._lines
        last = "" if lines is None else self._run.entered_text(lines.finish)
        return (text.feed(last) if last else "") + text.finish()

    def _emit_first(self) -> None:
        with self._lock:
            update = self._buffer.popleft()
        update = self._masked(update)
        if update.content or update.details is not None:
            self._emit(update)

    def _emit(self, update: AgentToolResult) -> None:
        self._run.emit(ToolExecutionUpdate(self._call_id, self._name, update))

    def _masked(self, update: AgentToolResult) -> AgentToolResult:
        """Masks secrets in the update; keeps the end of its text back if a secret may begin there."""
        text = extract_text(update.content)
        if self._text is None or (len(self._last_text) >= _SURELY_REPEATED and text.startswith(self._last_text)):
            self._text = self._run.redactor.stream()  # a tool that repeats its whole text needs nothing kept back
            self._lines = None if self._run.masks is None else MaskedLines(self._run.masks)
        self._last_text = text
        if (lines := self._lines) is not None:
            text = self._run.entered_text(partial(lines.feed, text))
        shown = self._text.feed(text) if GAP not in text else self._fed_around_gaps(text)
        others = [block for block in update.content if not isinstance(block, Text)]
        rest = self._run.entered_result(AgentToolResult(others, update.details, update.is_error))
        return replace(rest, content=(Text(encodable(shown)), *rest.content)) if shown else rest

    def _fed_around_gaps(self, text: str) -> str:
        """Masks secrets in the text, and the remains of secrets next to omitted text."""
        stream = self._text or self._run.redactor.stream()
        before, *others = text.split(GAP)
        shown = [stream.feed(before)]
        for after in others:
            stream = self._text = self._run.redactor.stream()  # drops the text that was kept back
            shown += (GAP, stream.feed(self._run.redactor.after_a_cut(after)))
        return "".join(shown)


def joined(first: AgentToolResult, second: AgentToolResult) -> AgentToolResult:
    """Joins two updates; keeps the end of a very long text."""
    text = extract_text(first.content) + extract_text(second.content)
    if len(text) > _MOST_CHARACTERS:
        text = GAP + text[-_MOST_CHARACTERS:]
    others: list[UserBlock] = [block for block in (*first.content, *second.content) if not isinstance(block, Text)]
    content = [*([Text(text)] if text else []), *others[-_MOST_UPDATES:]]
    return AgentToolResult(content, second.details if second.details is not None else first.details, second.is_error)


# -- the results of tools as a run keeps them ----------------------------------------------------------------


class Entering:
    """Masks what enters a run: what its model reads, and everyone else. Its texts become such as can be sent. The
    addresses of images and documents stay, since a masked one would not work."""

    __slots__ = ("_redactor", "redact_value")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.redact_value = redactor.redact_value

    def redact(self, text: str) -> str:
        return self._redactor.redact(encodable(text))

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        return self._redactor.redact_texts([encodable(text) for text in texts])

    def redact_address(self, address: str) -> str:
        return address


class EnteringMasked:
    """The same for a run with masks of policies, which come first."""

    __slots__ = ("_masks", "_redactor")

    def __init__(self, redactor: Redactor, masks: PolicyMasks) -> None:
        self._redactor = redactor
        self._masks = masks

    def redact(self, text: str) -> str:
        return self._redactor.redact(self._masks.redact(text))

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        return self._redactor.redact_texts(self._masks.redact_texts(texts))

    def redact_value(self, value: T) -> T:
        return self._redactor.redact_value(self._masks.redact_value(value))

    def redact_address(self, address: str) -> str:
        return address


def taken(redactor: Redactor, result: AgentToolResult, masks: PolicyMasks | None = None) -> AgentToolResult:
    """Returns the result as the run keeps it: its data is JSON, its text can be sent, and its secrets are masked.
    Raises `PolicyFailed` if a mask fails."""
    details = as_json_data(result.details, cuts_deep=True)
    if details is not result.details:
        result = AgentToolResult(result.content, details, result.is_error)
    return masked(result, Entering(redactor) if masks is None else EnteringMasked(redactor, masks))


def takes_long(result: AgentToolResult) -> bool:
    """Whether `taken` would block the event loop, since there is much text or data in the result."""
    size = 0
    values: list[Any] = [*result.content, result.details]
    for value in values:  # the list grows meanwhile
        kind: Any = cast("Any", type(value))
        if kind is Text:
            size += _PER_TEXT + len(value.text)
        elif kind in _NUMBERS:
            size += _PER_VALUE
        elif kind in _TEXTS:
            size += _PER_TEXT + len(value)
        elif kind is Extension:
            values.append(value.data)
        elif kind in _LISTS or kind in _OBJECTS:
            size += _PER_VALUE * len(value)
            if size <= _LONG:
                values += value
                values += value.values() if kind in _OBJECTS else ()
        else:
            size += _PER_TEXT
        if size > _LONG:
            return True
    return False
