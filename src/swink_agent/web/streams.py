"""The events of one session for any number of readers, who do not delay each other. Events are kept for a while.

Owns the ids of events, how many are kept, and the frames of a server-sent event stream, but not the content of events.
Ids grow, also across restarts of the server. A reader that reconnects gets exactly the events that it missed, or a
`reset` if they are no longer kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from aiohttp import web

from .problems import Problem

MOST_EVENTS = 10_000
MOST_BYTES = 16 * 1024 * 1024
"""Most events and bytes that are kept when no run is active."""
MOST_UNSENT = 4 * 1024 * 1024
LONGEST_UNSENT = 10.0
"""A reader is disconnected if more than these bytes stay unsent for these seconds, or nothing is sent in them."""
_FRAME = 0.02
"""Seconds for which events are collected before readers get them, so that many deltas are one write."""
_TICK = 1.0
_BEAT = 15.0
_AT_ONCE = 256 * 1024
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class Event(NamedTuple):
    """An event of a stream: its id, its name, and its data as JSON in one line."""

    id: int
    name: str
    data: bytes

    @property
    def frame(self) -> bytes:
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self.id, self.name.encode(), self.data)


_GONE = Event(0, "", b"")


class EventLog:
    """The events of one session. Use it in the thread of one event loop only."""

    def __init__(self, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self.position = time.time_ns() // 1000
        """The id of the newest event. It starts at the time in microseconds, so that no id repeats after a restart."""
        self.is_closed = False
        self.size = 0
        """Bytes of all events so far, kept or not."""
        self._events: list[Event] = []
        self._frames: list[bytes] = []
        self._dropped = 0
        """The number of entries at the start of the list that are no longer kept."""
        self.kept_size = 0
        """Bytes of the events that are kept."""
        self._run: int | None = None
        self._listeners: set[Callable[[], None]] = set()
        self._taps: list[Callable[[Event], None]] = []
        self._is_due = False

    @property
    def first(self) -> int:
        """The position before the oldest event that is kept."""
        return self.position - (len(self._events) - self._dropped)

    def holds(self, position: int) -> bool:
        """Whether all events after this position are kept."""
        return self.first <= position <= self.position

    def append(self, name: str, data: bytes) -> int:
        """Adds an event and returns its id. Readers are notified within `_FRAME` seconds."""
        self.position += 1
        event = Event(self.position, name, data)
        frame = event.frame
        self._events.append(event)
        self._frames.append(frame)
        self.kept_size += len(frame)
        self.size += len(frame)
        self._trim()
        for tap in self._taps:
            tap(event)
        if not self._is_due and self._listeners:
            self._is_due = True
            asyncio.get_running_loop().call_later(_FRAME, self._tell)
        return self.position

    def begin_run(self) -> None:
        """Keeps everything from here on until `end_run`."""
        if self._run is None:
            self._run = self.position

    def end_run(self) -> None:
        self._run = None
        self._trim()

    def close(self) -> None:
        """Ends the stream of every reader once it has sent all events."""
        self.is_closed = True
        self._tell()

    def frames_after(self, position: int, most: int) -> tuple[list[bytes], int]:
        """Returns about `most` bytes of frames after a position that is kept, and the position after them."""
        start = len(self._frames) - (self.position - position)
        taken: list[bytes] = []
        size = 0
        for frame in self._frames[start : start + 4096]:
            taken.append(frame)
            size += len(frame)
            if size >= most:
                break
        return taken, position + len(taken)

    def frames_behind(self, position: int) -> list[bytes]:
        """Returns all frames after a position that is kept."""
        return self._frames[len(self._frames) - (self.position - position) :]

    def events_after(self, position: int) -> list[Event]:
        """Returns the events after a position that is kept."""
        return self._events[len(self._events) - (self.position - position) :]

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls the listener when there are new events; returns a function that removes it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def tap(self, listener: Callable[[Event], None]) -> None:
        """Calls the listener with each event as it is added. It must be quick, and cannot be removed."""
        self._taps.append(listener)

    @property
    def has_readers(self) -> bool:
        return bool(self._listeners)

    def _trim(self) -> None:
        while self._is_too_much and (self._run is None or self._events[self._dropped].id <= self._run):
            self.kept_size -= len(self._frames[self._dropped])
            self._events[self._dropped], self._frames[self._dropped] = _GONE, b""  # frees it before the list is cut
            self._dropped += 1
        if self._dropped > 1024 and self._dropped * 2 > len(self._events):
            del self._events[: self._dropped]
            del self._frames[: self._dropped]
            self._dropped = 0

    @property
    def _is_too_much(self) -> bool:
        kept = len(self._events) - self._dropped
        return kept > self._most_events or (self.kept_size > self._most_bytes and kept > 1)

    def _tell(self) -> None:
        self._is_due = False
        for listener in list(self._listeners):
            listener()


async def write_in_time(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Writes to a stream that does not come from an `EventLog`.

    If the client does not read for `LONGEST_UNSENT` seconds, ends the connection and raises `ConnectionError`.
    """
    try:
        for piece in _pieces(data):
            async with asyncio.timeout(LONGEST_UNSENT):
                await response.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # else the end of the answer would wait for the client too
        raise ConnectionResetError("the reader does not read") from None


def _pieces(data: bytes) -> Iterator[bytes]:
    """Divides data, so that a connection never holds much of it, and a slow one is seen to make progress."""
    return (data[start : start + _AT_ONCE] for start in range(0, len(data), _AT_ONCE))


class Readers:
    """All open streams of a server. Limits their number, and closes those whose clients do not read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[_Reader] = set()
        self._others = 0
        self._ticking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum([reader.is_there for reader in self._open]) + self._others  # the next tick ends those that have left

    def refuse_if_full(self) -> None:
        """Raises 503 if no more streams may be open."""
        if len(self) >= self._most:
            again = {"retry-after": "5"}
            raise Problem(503, "too_many", "too many streams are open: close one, or try again", again)

    async def serve(self, request: web.Request, places: Sequence[Place]) -> web.StreamResponse:
        """Sends the events after these places, in one stream. Raises 503 if too many streams are open."""
        self.refuse_if_full()
        reader = _Reader(request, places)
        self._open.add(reader)
        self._tick_soon()
        unlisten = [place.log.listen(reader.on_change) for place in places]
        response = web.StreamResponse(headers=_HEADERS)
        try:
            await response.prepare(request)
            await reader.write(response, b"".join([b"retry: 1000\n\n", *[place.first() for place in places]]))
            await reader.run(response)
        except ConnectionError:
            pass  # the reader has left, or was closed because it did not read
        finally:
            for end in unlisten:
                end()
            self._open.discard(reader)
        return response

    @contextmanager
    def counted(self) -> Generator[None]:
        """Counts a stream that does not come from an `EventLog`."""
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1

    def _tick_soon(self) -> None:
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        now = time.monotonic()
        for reader in list(self._open):
            reader.tick(now)
        if self._open:
            self._tick_soon()

    def close(self) -> None:
        """Ends the timer; the streams end with their logs."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None


ShowFn: TypeAlias = Callable[[Event], Awaitable[Event | None]]
"""Returns an event in the form for one reader; `None` if the reader must not get it."""


class Place:
    """The place of a reader in a log: after a position, or at the end for `None` or a position that is not kept.

    With a name, each event is wrapped together with this name. `show` is for named places.
    """

    def __init__(self, log: EventLog, position: int | None, name: str = "", show: ShowFn | None = None) -> None:
        self.log = log
        self.name = name
        self._show = show
        self.is_kept = position is None or log.holds(position)
        self.position = position if position is not None and self.is_kept else log.position
        self.taken = log.size - sum([len(frame) for frame in log.frames_behind(self.position)])
        """The size of the log up to this place."""
        self.is_behind = self.position < log.position
        """Whether the reader still gets events that it missed."""

    @property
    def is_unread(self) -> bool:
        return self.position != self.log.position

    @property
    def unsent(self) -> int:
        """Bytes that were added and not taken yet."""
        return self.log.size - self.taken

    def first(self) -> bytes:
        """Returns the first frames: a `reset` if the position was not kept, else nothing."""
        return b"" if self.is_kept else self._framed([Event(self.log.position, "reset", b'{"type":"reset"}')])

    async def next(self) -> bytes:
        """Returns the next frames; empty if there are none. Raises `ConnectionError` if they are no longer kept."""
        log = self.log
        if self.position == log.position:
            self.is_behind = False
            return b""
        if not log.holds(self.position):
            raise ConnectionAbortedError("the reader was too slow: its next events are no longer kept")
        before = self.position
        frames, self.position = log.frames_after(self.position, _AT_ONCE)
        chunk = b"".join(frames)
        self.taken += len(chunk)
        if not self.name:
            return chunk
        events = log.events_after(before)[: len(frames)]
        if self._show is not None:
            events = [shown for event in events if (shown := await self._show(event)) is not None]
        return self._framed(events)

    def _framed(self, events: Sequence[Event]) -> bytes:
        if not self.name:
            return b"".join([event.frame for event in events])
        wrapped = b'data: {"session":"%s","id":%d,"event":"%s","data":%s}\n\n'
        name = self.name.encode()
        return b"".join([wrapped % (name, event.id, event.name.encode(), event.data) for event in events])


class _Reader:
    """One open stream: its places in the logs, and whether the client reads it."""

    def __init__(self, request: web.Request, places: Sequence[Place]) -> None:
        self._request = request
        self._places = places
        self._wake = asyncio.Event()
        self._is_over = False
        self._sent = 0
        self._due = 0
        """The bytes that are taken from the logs and not yet sent."""
        self._progress = (0, time.monotonic())
        """The bytes that have left this process, and when that number last changed."""
        self._had_little = time.monotonic()
        """When the reader last had few unsent bytes."""
        self._written_at = time.monotonic()
        self._beats = False

    def on_change(self) -> None:
        self._wake.set()

    @property
    def _unsent(self) -> int:
        """Bytes that wait for a reader that was up to date. One that still catches up takes as long as it needs."""
        if any(place.is_behind for place in self._places):
            return 0
        return sum([place.unsent for place in self._places]) + self._due + self._buffered

    @property
    def _buffered(self) -> int:
        transport = self._request.transport
        return transport.get_write_buffer_size() if transport is not None and self.is_there else 0

    @property
    def is_there(self) -> bool:
        """Whether its connection is open."""
        transport = self._request.transport
        return transport is not None and not transport.is_closing()

    def tick(self, now: float) -> None:
        """Closes the stream if the client has left or does not read; else sends a sign of life if it is due."""
        if not self.is_there:
            self.close()
            return
        gone = self._sent - self._buffered
        if gone != self._progress[0] or not self._buffered:
            self._progress = (gone, now)
        if self._unsent <= MOST_UNSENT:
            self._had_little = now
        if now - min(self._progress[1], self._had_little) >= LONGEST_UNSENT:
            self.close()
        if now - self._written_at >= _BEAT:
            self._beats = True
            self._wake.set()

    def close(self) -> None:
        """Ends the connection at once, without sending the rest."""
        self._is_over = True
        transport = self._request.transport
        if transport is not None:
            transport.abort()
        self._wake.set()

    async def run(self, response: web.StreamResponse) -> None:
        while not self._is_over:
            self._wake.clear()
            chunk = b"".join([await place.next() for place in self._places])
            if chunk:
                await self.write(response, chunk)
            if chunk or any(place.is_unread for place in self._places):
                continue
            if all(place.log.is_closed for place in self._places):
                return
            if self._beats:
                self._beats = False
                await self.write(response, b":\n\n")
            await self._wake.wait()

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        self._due = len(data)
        for piece in _pieces(data):
            self._due -= len(piece)
            self._sent += len(piece)
            self._written_at = time.monotonic()
            await response.write(piece)
