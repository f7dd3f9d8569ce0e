"""What is done beside the one piece of work that there can be: commands, questions, prompts on their way.

Owns the tasks for as long as the conversation is open. A mistake in one ends that one, and is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Beside"]


class Beside:
    """Tasks of a conversation. `on_error` hears of a mistake of ours, without what it quotes."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - what is left then goes on
        """Returns when all that goes on now has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def end(self, patience: float) -> None:
        """Ends all of it, and waits for that so many seconds."""
        for task in list(self._tasks):
            task.cancel()
        await self.wait(patience)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(f"that failed, and should not have: {type(error).__name__}")
