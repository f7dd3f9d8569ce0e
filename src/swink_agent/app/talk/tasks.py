"""Background tasks of a conversation, and the gate that delays prompts and commands of the user.

Without the gate, a prompt that is sent while one agent replaces another would go to the old agent, whose session is
being closed, and the user could not stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any


class SendGate:
    """A gate that is shut at first. `open` ends this first wait; `shut` shuts the gate during a `with` block."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._holders = 1

    @property
    def is_open(self) -> bool:
        return not self._holders

    def open(self) -> None:
        """Ends one wait: the first one, when the agent is ready or could not be created, or that of a `shut` block."""
        self._holders = max(self._holders - 1, 0)
        if self.is_open:
            self._open.set()

    @contextmanager
    def shut(self) -> Generator[None]:
        """Keeps the gate shut during a `with` block; such blocks may overlap."""
        self._holders += 1
        self._open.clear()
        try:
            yield
        finally:
            self.open()

    async def passed(self) -> None:
        """Returns when the gate is open; it stays open until the caller awaits something else."""
        while not self.is_open:
            await self._open.wait()


class Beside:
    """The background tasks of a conversation. `on_error` gets the type of an unexpected error, not its text."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task. After `end`, nothing starts: a run that is stopped by the end may still ask for work."""
        if self._is_over:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the rest continues
        """Returns when all current tasks have ended, or after `timeout` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def end(self, patience: float) -> None:
        """Cancels all tasks, for good, and waits at most `patience` seconds for their end."""
        self._is_over = True
        for task in list(self._tasks):
            task.cancel()
        await self.wait(patience)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(f"this is a bug in swink ({type(error).__name__}). The conversation goes on")
