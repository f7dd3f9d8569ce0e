"""Partial results on their way from a running tool to the event stream.

Owns a bounded buffer for one call: a tool that reports faster than the reader reads has its updates joined, and
never fills memory or waits. Tools may report from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

from .cancel import call_in
from .events import ToolExecutionUpdate
from .tool import AgentToolResult
from .types import Text, UserBlock, extract_text

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Relay"]

_MOST_UPDATES = 32
_MOST_CHARACTERS = 64 * 1024


class Relay:
    """The updates of one call, in order; the last ones joined where there are too many."""

    __slots__ = ("_backlog", "_buffer", "_call_id", "_is_closed", "_is_scheduled", "_lock", "_name", "_run")

    def __init__(self, call_id: str, name: str, run: Run, backlog: set[Relay]) -> None:
        self._call_id = call_id
        self._name = name
        self._run = run
        self._backlog = backlog
        self._buffer: deque[AgentToolResult] = deque()
        self._lock = threading.Lock()
        self._is_scheduled = False
        self._is_closed = False

    def post(self, update: AgentToolResult) -> None:
        """Takes an update, from any thread; after the call has ended, nothing is taken."""
        with self._lock:
            if self._is_closed:
                return
            if len(self._buffer) < _MOST_UPDATES:
                self._buffer.append(update)
            else:
                self._buffer[-1] = joined(self._buffer[-1], update)
            if self._is_scheduled:
                return
            is_here = _running_loop() is self._run.supervisor.loop
            self._is_scheduled = not is_here
        if is_here:
            self.pump()
        else:
            call_in(self._run.supervisor.loop, self._pump_scheduled)

    def _pump_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Emits what there is room for."""
        channel = self._run.channel
        while self._buffer and not (channel is not None and channel.is_full):
            self._emit_first()
        if self._buffer:
            self._backlog.add(self)
        else:
            self._backlog.discard(self)

    def close(self) -> None:
        """Emits the rest, room or not, so that it comes before the call's end."""
        with self._lock:
            self._is_closed = True
        while self._buffer:
            self._emit_first()
        self._backlog.discard(self)

    def _emit_first(self) -> None:
        with self._lock:
            update = self._buffer.popleft()
        self._run.emit(ToolExecutionUpdate(self._call_id, self._name, update))


def joined(first: AgentToolResult, second: AgentToolResult) -> AgentToolResult:
    """One update that says what both said; of very much text, the end."""
    text = extract_text(first.content) + extract_text(second.content)
    if len(text) > _MOST_CHARACTERS:
        text = "[…]" + text[-_MOST_CHARACTERS:]
    others: list[UserBlock] = [block for block in (*first.content, *second.content) if not isinstance(block, Text)]
    content = [*([Text(text)] if text else []), *others[-_MOST_UPDATES:]]
    return AgentToolResult(content, second.details if second.details is not None else first.details, second.is_error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
