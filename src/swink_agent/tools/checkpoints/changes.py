"""Takes a checkpoint before each call that may change files, and one after it.

Calls that run at once are one change: the first takes the checkpoint before, the last the one after. While a background
command runs, changes between calls count as made by the run that started it: they cannot be distinguished from
changes by others. Checkpoints are still taken around the other calls, so each prompt can be taken back alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager

from swink_agent.core.tool import ToolContext

from .._confined import in_thread
from .checkpoint import CheckpointError, Owner
from .store import CheckpointStore

log = logging.getLogger("swink_agent")


class RecordedChanges:
    """The changes that tools make in some folders. Safe for several threads; all of it blocks."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._tasks: dict[str, list[str]] = {}  # the runs that started the background commands of each folder
        self._kept: set[str] = set()  # the folders whose last checkpoint could be kept

    def can_be_kept(self, roots: Sequence[str]) -> bool:
        """Whether changes of these folders can be taken back. Tries a checkpoint where that is not known."""
        with self._lock:
            for root in [root for root in roots if root not in self._kept and not self._running.get(root)]:
                try:
                    if tasks := self._tasks.get(root):
                        self._take(root, tasks[-1], "run", opens=tasks[-1] or True)
                    else:
                        self._take(root, "", "other", opens=False)
                except CheckpointError:
                    return False
        return True

    @contextmanager
    def during(self, roots: Sequence[str], run_id: str) -> Generator[None]:
        """Held while something may change these folders. Raises `CheckpointError`: then nothing may be changed."""
        self.begin(roots, run_id)
        try:
            yield
        finally:
            self.end(roots, run_id)

    @asynccontextmanager
    async def awaited(self, roots: Sequence[str], ctx: ToolContext) -> AsyncGenerator[None]:
        """The same for a call that awaits. A cancelled call does not wait for the checkpoint after it."""
        call = _OpenCall(self, roots, ctx.run_id)
        try:
            await in_thread(ctx, call.begin)
            yield
        except (asyncio.CancelledError, GeneratorExit):
            # Not a daemon: the program may be about to end, and must not before the checkpoint is on disk.
            threading.Thread(target=call.end, name="swink-checkpoint").start()
            raise
        except BaseException:
            await in_thread(ctx, call.end)
            raise
        await in_thread(ctx, call.end)

    def begin(self, roots: Sequence[str], run_id: str) -> None:
        """Begins a change: everything that changed before is not part of it. Raises `CheckpointError`."""
        with self._lock:
            for root in roots:
                if self._running.get(root):
                    continue
                if tasks := self._tasks.get(root):
                    self._take(root, tasks[-1], "run", opens=run_id or True)
                else:
                    self._take(root, run_id, "other", opens=True)
            for root in roots:
                self._running[root] = self._running.get(root, 0) + 1

    def end(self, roots: Sequence[str], run_id: str) -> None:
        """Ends a change: everything that changed since `begin` is the run's."""
        with self._lock:
            for root in roots:
                self._running[root] -= 1
                if not self._running[root]:
                    self._after_change(root, run_id)

    def begin_task(self, roots: Sequence[str], run_id: str) -> Callable[[], None]:
        """For a call, after `begin`, that starts a background command: changes from now on are the run's.

        Returns a function to call when the command and all that it started have ended. Calling it again does nothing.
        """
        with self._lock:
            for root in roots:
                self._tasks.setdefault(root, []).append(run_id)
        left = list(roots)

        def end() -> None:
            with self._lock:
                while left:
                    root = left.pop()
                    self._tasks[root].remove(run_id)
                    if not self._running.get(root):  # else the call that runs takes one
                        self._after_change(root, run_id)

        return end

    def _after_change(self, root: str, run_id: str) -> None:
        tasks = self._tasks.get(root)
        try:
            self._take(root, run_id, "run", opens=(tasks[-1] or True) if tasks else False)
        except CheckpointError as error:  # the next checkpoint that can be kept counts the change as the run's
            log.warning("no checkpoint of %s after a change: %s", root, error)

    def _take(self, root: str, run_id: str, owner: Owner, *, opens: bool | str) -> None:
        self._kept.discard(root)
        self.store.take(root, run_id, owner, opens=opens)
        self._kept.add(root)


class _OpenCall:
    """One awaited call. It may be cancelled while a thread still takes the first checkpoint."""

    def __init__(self, changes: RecordedChanges, roots: Sequence[str], run_id: str) -> None:
        self._changes = changes
        self._roots = roots
        self._run_id = run_id
        self._lock = threading.Lock()
        self._has_begun = self._is_over = False

    def begin(self) -> None:
        with self._lock:
            if not self._is_over:
                self._changes.begin(self._roots, self._run_id)
                self._has_begun = True

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            if self._has_begun:
                self._changes.end(self._roots, self._run_id)
