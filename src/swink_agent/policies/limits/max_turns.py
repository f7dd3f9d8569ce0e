"""`MaxTurns`: limits the turns of a run."""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, Stop
from swink_agent.core.values.checks import check_whole


class MaxTurns:
    """Stops a run before it asks the model for more than `turns` replies.

    A reply and its tool calls are one turn. Runs are counted separately, so agents can share the object.
    """

    name = "max_turns"
    own_run_only = True
    __slots__ = ("turns",)

    def __init__(self, turns: int) -> None:
        check_whole("MaxTurns: turns", turns)
        self.turns = turns

    def __repr__(self) -> str:
        return f"MaxTurns({self.turns})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        if ctx.turn_index < self.turns:
            return None
        had = "its one turn" if self.turns == 1 else f"its {self.turns} turns"
        return Stop(f"the run has had {had}; prompt again to continue")
