"""A clock that a test controls."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class FakeClock:
    """A clock for `Agent(sleep=clock.sleep)` and for anything else that takes a sleep or time function.

    By default a sleep ends after one turn of the event loop and moves the clock forward. With `auto=False` it lasts
    until `advance` reaches its end.
    """

    def __init__(self, start: float = 0.0, *, auto: bool = True) -> None:
        self.now = start
        self.auto = auto
        self.sleeps: list[float] = []
        """The length of every sleep, in order."""
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self.auto:
            await asyncio.sleep(0)
            self.now += seconds
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Moves the clock forward, wakes each sleeper at its time, and lets it run."""
        end = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)
        self.now = end
