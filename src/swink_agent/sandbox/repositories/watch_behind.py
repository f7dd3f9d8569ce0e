"""Checks what a command left behind, outside of the event loop.

Owns the thread and limits the wait. A check that takes longer is still finished; the next command's result and
the log then report what it found.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from swink_agent.core.waits import WorkerThreads

from ..profile import SandboxProfile
from ..protected import exposed_paths
from .leftovers import Leftovers, Snapshot

_LOG = logging.getLogger("swink_agent.sandbox")
_PATIENCE_BEFORE = 5.0
_PATIENCE = 0.25

T = TypeVar("T")


@contextmanager
def judged(root: str) -> Generator[list[str]]:
    """Judges what the block makes in a folder as if a command had made it. Then the list has the reports."""
    profile = SandboxProfile(write=(root,))
    leftovers = Leftovers(profile, lambda: exposed_paths(profile))
    snapshot = leftovers.begin()
    told: list[str] = []
    try:
        yield told
    finally:
        told += leftovers.end(snapshot)


class WatchBehind:
    """Checks the write roots of one profile. The wait for a disk that does not answer is limited to a few seconds."""

    def __init__(self, profile: SandboxProfile) -> None:
        self._is_closed = False
        self._threads = WorkerThreads()
        """One thread checks before and after commands, unless a disk blocks it: no check waits for another."""
        self._finalizer = weakref.finalize(self, self._threads.close)
        self._leftovers = Leftovers(profile, lambda: exposed_paths(profile))
        self._late: list[str] = []

    async def begin(self) -> Snapshot | None:
        if not self._leftovers.is_needed:
            return None
        return self._leftovers.try_begin() or await self._within(_PATIENCE_BEFORE, self._leftovers.begin)

    async def end(self, snapshot: Snapshot, is_last: bool) -> list[str]:
        def look_now() -> None:
            for text in self._leftovers.end(snapshot, is_last=is_last):
                self._late.append(text)
                _LOG.warning("%s", text)

        if not self._leftovers.is_untouched(snapshot, is_last=is_last):
            await self._within(_PATIENCE, look_now)
        self._renew_threads()  # also if only the check before the command needed a thread
        found, self._late = self._late, []
        return found

    async def look_behind_later(self, snapshot: Snapshot, after: float) -> None:
        """Checks after `after` seconds. The next command's result reports what was found."""
        await asyncio.sleep(after)
        self._late = [*await self.end(snapshot, is_last=True), *self._late]

    def close(self) -> None:
        """Lets its threads end. Idempotent; a later check starts its own thread."""
        self._is_closed = True
        self._renew_threads()

    def _renew_threads(self) -> None:
        """Lets idle threads end."""
        if not self._threads.are_used:
            return
        self._finalizer()
        self._threads = WorkerThreads()
        self._finalizer = weakref.finalize(self, self._threads.close)

    async def _within(self, seconds: float, function: Callable[[], T]) -> T | None:
        threads = WorkerThreads(1) if self._is_closed else self._threads
        task = asyncio.ensure_future(threads.run(function))
        try:
            await asyncio.wait({task}, timeout=seconds)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            if self._is_closed:
                threads.close()
