"""Limits how many calls of a tool run at once, in a run and its delegates.

`dispatch` keeps the calls that wait for their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from ..tool import AgentTool

RunningCall: TypeAlias = tuple[str, str]
"""The ids of a run and of one of its calls."""


class Slots:
    """The running calls of tools with `max_concurrent`. A run and all its delegates share one object."""

    __slots__ = ("_running", "_waiters")

    def __init__(self) -> None:
        self._running: dict[int, tuple[AgentTool, list[RunningCall]]] = {}
        """Keyed by the `id()` of the tool, which the entry keeps alive."""
        self._waiters: list[Callable[[], bool]] = []

    def has_room(self, tool: AgentTool, most: int, way: Collection[RunningCall]) -> bool:
        """Whether one more call may run. The calls on the `way` to it, through delegates, do not count: they wait for
        it, so counting them would block both."""
        running = self._running.get(id(tool))
        return running is None or sum(call not in way for call in running[1]) < most

    def enter(self, tool: AgentTool, call: RunningCall) -> None:
        self._running.setdefault(id(tool), (tool, []))[1].append(call)

    def leave(self, tool: AgentTool, call: RunningCall) -> None:
        """Frees the slot, and calls the waiters."""
        self._running[id(tool)][1].remove(call)
        self._waiters = [wake for wake in self._waiters if wake()]

    def tell(self, wake: Callable[[], bool]) -> None:
        """Calls `wake` whenever a slot becomes free, until it returns false because no call waits. The waiter that was
        added first is called first, and may take the slot at once."""
        if wake not in self._waiters:
            self._waiters.append(wake)
