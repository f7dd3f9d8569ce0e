"""`StopsLater`: the base of policies whose stop takes effect after the turn."""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, Stop


class StopsLater:
    """The base of policies that first remove something from the turn, and then stop the run.

    After a turn a policy can either replace messages or stop the run. To do both, it replaces them now and stops in
    the next slot, before the model is asked again: `pre_turn` if a turn follows, else `post_loop`.
    """

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        self._stops: dict[str, str] = {}
        """The reasons of stops that have not taken effect yet, by the id of the run."""

    def _stop_later(self, ctx: PolicyContext, reason: str) -> None:
        self._stops[ctx.run_id] = reason

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        reason = self._stops.pop(ctx.run_id, None)
        return None if reason is None else Stop(reason)

    post_loop = pre_turn

    def run_over(self, run_id: str) -> None:
        """Forgets the stop of a run that ended in another way."""
        self._stops.pop(run_id, None)
