"""Values that a policy keeps per run, and stops that take effect after the turn.

A policy that is given for one slot does not learn when a run is over, so the number of remembered runs is bounded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop

_MOST_RUNS = 4096
T = TypeVar("T")


class RunMemory(Generic[T]):
    """One value for each of the latest runs, by the run's id. Thread-safe."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, ctx: PolicyContext | PreDispatchContext, value: T) -> None:
        with self._lock:
            self._values[ctx.run_id] = value
            self._values.move_to_end(ctx.run_id)
            while len(self._values) > _MOST_RUNS:
                self._values.popitem(last=False)

    def get(self, ctx: PolicyContext | PreDispatchContext) -> T | None:
        with self._lock:
            value = self._values.get(ctx.run_id)
            if value is not None:
                self._values.move_to_end(ctx.run_id)  # a long run must not be dropped
            return value

    def pop(self, ctx: PolicyContext | PreDispatchContext) -> T | None:
        if not self._values:  # nearly always
            return None
        with self._lock:
            return self._values.pop(ctx.run_id, None)


class StopsLater:
    """The base of policies that first remove something from the turn, and then stop the run.

    After a turn a policy can either replace messages or stop the run. To do both, it replaces them now and stops in
    the next slot, before the model is asked again: `pre_turn` if a turn follows, else `post_loop`.
    """

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        self._stops = RunMemory[tuple[int, str]]()

    def _stop_later(self, ctx: PolicyContext, reason: str) -> None:
        self._stops.put(ctx, (ctx.turn_index, reason))

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        stop = self._stops.pop(ctx)
        # A stop of a run that ended in another way may be left; a new run with the same id starts at turn 0.
        return Stop(stop[1]) if stop is not None and ctx.turn_index == stop[0] + 1 else None

    post_loop = pre_turn
