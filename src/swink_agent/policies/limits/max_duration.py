"""`MaxDuration`: limits the time of a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop
from swink_agent.core.values.checks import check_number, is_function, is_not


class MaxDuration:
    """Stops a run that has taken more than `seconds`, before it asks the model or runs tools again.

    It checks between steps and interrupts none: a step that is running when the time is up finishes first. To
    interrupt it, call `agent.abort()` from a timer, or give streams and tools their own timeouts. The time of each run
    begins with its first turn, so agents can share the object.
    """

    name = "max_duration"
    on_every_request = True
    """Consulted again before each retry of a request: retries take time."""

    __slots__ = ("_clock", "_started", "seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        check_number("MaxDuration: seconds", seconds, "a number of seconds")
        if not is_function(clock):
            raise is_not("MaxDuration: clock", clock, "a function")
        if not seconds > 0:
            raise ValueError(f"MaxDuration({seconds}) would let nothing run; give more than 0 seconds")
        self.seconds = seconds
        self._clock = clock
        self._started = dict[str, float]()

    def __repr__(self) -> str:
        return f"MaxDuration({self.seconds})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        if ctx.turn_index == 0 and ctx.message is None:  # with a message, this is a retry
            self._started[ctx.run_id] = self._clock()
        return self._verdict(ctx)

    def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
        return self._verdict(ctx)

    def run_over(self, run_id: str) -> None:
        """Forgets the start of a run."""
        self._started.pop(run_id, None)

    def _verdict(self, ctx: PolicyContext | PreDispatchContext) -> Stop | None:
        started = self._started.get(ctx.run_id)
        if started is None:  # the policy was given for one slot only
            self._started[ctx.run_id] = self._clock()
            return None
        passed = self._clock() - started
        if passed <= self.seconds:
            return None
        return Stop(f"the run has taken {passed:.1f} s of the {self.seconds:g} s it had; prompt again to continue")
