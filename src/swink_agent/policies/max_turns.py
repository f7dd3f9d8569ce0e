"""`MaxTurns`: a run has so many turns and no more."""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, Stop

__all__ = ["MaxTurns"]


class MaxTurns:
    """Stops a run before it would ask the model for a reply more than `turns` times.

    A reply and its tool calls are one turn. Each run counts for itself, so the object can be shared.
    """

    name = "max_turns"
    __slots__ = ("turns",)

    def __init__(self, turns: int) -> None:
        if turns < 1:
            raise ValueError(f"MaxTurns({turns}) would let nothing run; give at least 1")
        self.turns = turns

    def __repr__(self) -> str:
        return f"MaxTurns({self.turns})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        if ctx.turn_index < self.turns:
            return None
        had = "its one turn" if self.turns == 1 else f"its {self.turns} turns"
        return Stop(f"the run has had {had}; prompt again to go on")
