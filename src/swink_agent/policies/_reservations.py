"""What `Budget` sets aside for calls under way, and who waits for it to come back.

Owns one reservation: what it holds, on behalf of which task, and beneath which others. Sums are in `budget`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from swink_agent.core.types import ModelSpec

__all__ = ["Reservation", "reservations_above"]

_LINEAGE: ContextVar[tuple[Reservation, ...]] = ContextVar("swink_agent_reservations", default=())
"""The reservations under which this code runs: an agent inside a hook or tool of another one sees that one's."""


class Reservation:
    """What is set aside for one call, or is to be."""

    __slots__ = ("above", "cost", "input_tokens", "is_settled", "model", "output", "task", "tokens")

    def __init__(
        self, model: ModelSpec, input_tokens: int = 0, output: int = 0, cost: float = 0.0, *, is_settled: bool = False
    ) -> None:
        self.model = model
        self.input_tokens = input_tokens
        self.output = output
        self.tokens = input_tokens + output
        self.cost = cost
        self.is_settled = is_settled
        """Whether the turn's message was counted already: nothing is held any more, and nothing left to count."""
        self.above: tuple[Reservation, ...] = ()
        """Those that cannot come back before this call is made or refused: their runs wait for this one."""
        task = _current_task()
        self.task = None if task is None else weakref.ref(task)

    def is_abandoned(self, other: Reservation | None = None) -> bool:
        """Whether its run is over: a task drives one run at a time, and this one has ended or drives the other."""
        if self.task is None:
            return False
        task = self.task()
        if task is None or task.done() or task.get_loop().is_closed():
            return True
        return other is not None and other is not self and other.task is not None and other.task() is task


def reservations_above(wish: Reservation, alive: Iterable[Reservation]) -> tuple[Reservation, ...]:
    """Those of `alive` beneath which the wish is made. What is started from here on is beneath the wish as well."""
    held = set(alive)
    above = tuple([reservation for reservation in _LINEAGE.get() if reservation in held])
    _LINEAGE.set((*above, wish))
    return above


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop: somebody tries the policy by hand
        return None
