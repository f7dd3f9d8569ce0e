"""Makes sure that an agent has at most one run at a time.

Owns the right to run, from the moment a caller claims it to the end of the run, and the order of runs that wait for an
aborted run to end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..cancel import CancellationToken, Signal, running_loop
from ..errors import Aborted, AlreadyRunning


def _never() -> bool:
    return False


class Claim:
    """The right to one run of an agent."""

    __slots__ = ("_lock", "is_left", "is_over", "loop", "made_idle", "predecessor", "token")

    def __init__(self, predecessor: Claim | None, lock: AbstractContextManager[object]) -> None:
        self.token = CancellationToken(lock=lock)
        self._lock = lock
        self.made_idle: Signal | None = None  # the signal of `idle`, once it has been read
        self.is_over = False  # whether the run is over, for code that holds the lock of the claims
        self.is_left: Callable[[], bool] = _never
        """Whether the reader of the run's events has left: the token is cancelled a moment later."""
        self.predecessor = predecessor  # the aborted or abandoned run that has not ended yet; this one starts after it
        self.loop = running_loop()  # `None` for a stream that was made outside of an event loop, until it is read

    @property
    def idle(self) -> Signal:
        """Set when the run is over. Made on first use: few runs are waited for in this way."""
        with self._lock:
            if self.made_idle is None:
                self.made_idle = Signal()
                if self.is_over:
                    self.made_idle.set()
            return self.made_idle

    @property
    def is_ending(self) -> bool:
        return self.token.is_cancelled or self.is_left()

    @property
    def is_gone(self) -> bool:
        """Whether its run will never report its end: the event loop is closed, or it was aborted before it started."""
        return self.is_ending if self.loop is None else self.loop.is_closed()

    def last_before(self) -> Claim | None:
        """Returns the nearest earlier run that is not over, if there is one."""
        before = self.predecessor
        while before is not None and (before.is_over or before.is_gone):
            before = before.predecessor
        return before

    async def wait_for_predecessors(self) -> None:
        """Waits until the aborted and abandoned runs before this one have ended."""
        while (before := self.last_before()) is not None:
            await before.idle.wait()
        self.predecessor = None


class Claims:
    """The claims of one agent. Every method is safe from any thread."""

    __slots__ = ("_latest", "lock")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may drop a stream, which releases its claim, while the lock is held.
        self.lock = threading.RLock()
        self._latest: Claim | None = None

    @property
    def current(self) -> Claim | None:
        """The claim of the run in progress, or of the one that will follow it."""
        claim = self._latest
        return None if claim is None or claim.is_gone else claim

    def take(self, blocked: asyncio.AbstractEventLoop | None = None) -> Claim:
        """Claims the next run. If another run is ending, the next one starts after it.

        `blocked` is an event loop that the caller blocks until then. Raises `AlreadyRunning` during a run, and if a run
        must end in the blocked loop.
        """
        with self.lock:
            before = self.current
            if before is not None and not before.is_ending:
                raise AlreadyRunning
            other = before if blocked is not None else None
            while other is not None:
                if other.loop is blocked:
                    raise AlreadyRunning("the aborted run still ends in this event loop: await wait_for_idle() first")
                other = other.last_before()
            claim = self._latest = Claim(before, self.lock)
            return claim

    def begin(self, claim: Claim) -> None:
        """Starts a claimed run in this event loop.

        Raises `Aborted` for a stream that was aborted before it was read, if another run took its place.
        """
        with self.lock:
            if claim.loop is None and self._latest is not claim:
                raise Aborted
            claim.loop = asyncio.get_running_loop()

    def release(self, claim: Claim) -> None:
        """Ends a claim. If its run was cancelled while it waited, the run that it waited for is current again."""
        with self.lock:
            claim.is_over = True
            if self._latest is claim:
                self._latest = claim.last_before()
        if claim.made_idle is not None:
            claim.made_idle.set()

    def abort(self) -> None:
        """Cancels the current run, if there is one."""
        claim = self._latest
        if claim is not None:
            claim.token.cancel()
