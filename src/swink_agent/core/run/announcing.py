"""Emits the events of work that a call left running.

During a run they are among its events; between runs, only the agent's subscribers get them. They may come from any
thread, and are emitted in the event loop of the last run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ..cancel import call_in
from ..events import TaskEnded, TaskStarted

TaskEvent: TypeAlias = TaskStarted | TaskEnded


class Announcer:
    """Takes events of work that outlives its tool call. An agent has one, for all of its runs and their delegates.

    If the event loop is closed, events wait for the next run and follow its `AgentStart`.
    """

    __slots__ = ("__weakref__", "_emit", "_home", "_notify", "_waiting")

    def __init__(self, notify: Callable[[TaskEvent], None]) -> None:
        self._notify = notify
        self._emit = notify
        self._home: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[TaskEvent] = deque()

    def begin(self, emit: Callable[[TaskEvent], None], loop: asyncio.AbstractEventLoop) -> None:
        """Notes that a run begins in this event loop, and how it emits events. Its `AgentStart` must be emitted before
        the event loop does anything else."""
        self._emit = emit
        self._home = loop
        if self._waiting:
            self._home.call_soon(self._tell)

    def end(self) -> None:
        """Notes that the run is over. Nothing else may have happened since its `AgentEnd`."""
        self._emit = self._notify

    def announce(self, event: TaskEvent) -> None:
        """Emits the event soon, in the order of the calls. Safe from any thread, at any time."""
        self._waiting.append(event)
        if self._home is not None:
            call_in(self._home, self._tell)

    def _tell(self) -> None:
        home = self._home
        if home is not None and home is not asyncio.get_running_loop():  # the agent runs elsewhere by now
            call_in(home, self._tell)
            return
        while self._waiting:
            self._emit(self._waiting.popleft())
