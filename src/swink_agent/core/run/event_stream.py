"""A run as an async iterator of events, with a limit on how far the run may be ahead of its reader.

A `Channel` connects a run and its reader, which iterates an `EventStream`. The run is in `loop`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

from ..agent.subscriptions import Subscriptions
from ..cancel import CancellationToken, call_in, current_task, running_loop
from ..errors import Aborted
from ..events import AgentEvent
from ..types import AgentResult

if TYPE_CHECKING:
    from .relay import Relay

_MOST_EVENTS = 256
_HALF = _MOST_EVENTS // 2
_ABSENCE = 0.03  # seconds after which a reader that was cancelled, and asked for no event since, has left


class Channel:
    """Passes events from a run to its reader. Both are in one event loop, so it needs no locks.

    The run continues without a task switch until the channel is full; the reader takes waiting events without one.
    """

    __slots__ = (
        *("_absent", "_has_left", "_readers", "backlog", "branches", "events", "is_closed", "most"),
        *("on_demand", "subscriptions", "was_read", "writers"),
    )

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


class _Reading(AsyncIterator[AgentEvent]):
    """One `async for` over a stream.

    Python drops this object when the loop is left in any way, even if other code still holds the stream, the task or
    the exception. That is how the run learns that its reader has left.
    """

    __slots__ = ("_channel", "_stream")

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._channel = stream.channel

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self

    async def __anext__(self) -> AgentEvent:
        channel = self._channel
        if events := channel.events:
            # The same as `take`, without a call: this is done for every delta.
            channel.was_read = True
            event = events.popleft()
            if channel.writers and len(events) <= _HALF:
                channel.wake_writers()
            return event
        # `__del__` reports that the loop was left, so the reader need not be known.
        return await self._stream.next_event(None)

    def __del__(self) -> None:
        self._stream.leave()


class EventStream(AsyncIterator[AgentEvent]):
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
        drive: Callable[[Channel], Coroutine[Any, Any, AgentResult]],
        cancel: CancellationToken,
        on_unstarted: Callable[[], None] | None = None,
        subscriptions: Subscriptions | None = None,
    ) -> None:
        self._channel = Channel(subscriptions)
        self._cancel = cancel
        self._drive: Callable[[Channel], Coroutine[Any, Any, AgentResult]] | None = drive
        """Starts the run. Then it is dropped with the run's inputs, as a stream may be kept after its end."""
        self._on_unstarted = on_unstarted
        self._task: asyncio.Task[AgentResult] | None = None
        self._reads = 0
        if running_loop() is not None:
            self._start()

    def _start(self) -> asyncio.Task[AgentResult]:
        if self._task is None:
            from .supervisor import new_task  # on use: an agent may be made long before it runs

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

    async def result(self) -> AgentResult:
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

    async def __aenter__(self) -> EventStream:
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


def unheard(*_: object) -> None:
    """Does nothing."""
