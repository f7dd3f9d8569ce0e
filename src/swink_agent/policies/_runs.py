"""What a policy remembers of runs that are going on.

Owns the forgetting: a policy is not told when a run ends, so what it remembers is bounded, and a run's first turn
finds nothing of an earlier run with the same id.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop

__all__ = ["DelayedStops", "RunMemory"]

_MOST_RUNS = 4096
T = TypeVar("T")


class RunMemory(Generic[T]):
    """One value for each run, by the run's id. Safe from any thread."""

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
                self._values.move_to_end(ctx.run_id)  # who runs long is not forgotten for it
            return value

    def pop(self, ctx: PolicyContext | PreDispatchContext) -> T | None:
        if not self._values:  # as it is for nearly all policies at nearly all times
            return None
        with self._lock:
            return self._values.pop(ctx.run_id, None)


class DelayedStops:
    """Stops for runs whose turn is still to be cleaned of what they are stopped for.

    After a turn a policy can either replace what is in it or stop the run. One that wants both replaces now, and
    stops in the slot that comes next, before the model is asked again: `pre_turn` if a turn follows, else
    `post_loop`.
    """

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        self._stops = RunMemory[tuple[int, str]]()

    def put(self, ctx: PolicyContext, reason: str) -> None:
        """Remembers, after a turn, that the run is to stop."""
        self._stops.put(ctx, (ctx.turn_index, reason))

    def take(self, ctx: PolicyContext) -> Stop | None:
        """The stop that is due, if one is."""
        stop = self._stops.pop(ctx)
        if stop is None:
            return None
        turn, reason = stop
        # A run that ended otherwise leaves its stop behind; the next run with its id starts from turn 0.
        return Stop(reason) if ctx.turn_index == turn + 1 else None
