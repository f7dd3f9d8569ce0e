"""`BudgetGuard`: ends a case in flight that has used more than it may.

Owns the count over the runs of one case. Unlike `policies.Budget` it reserves nothing and knows no prices: it looks at
what was used, as the budget of a case is held against it afterwards.
"""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop

from .cases import CaseBudget

__all__ = ["BudgetGuard"]


class BudgetGuard:
    """A policy that stops a run when it exceeds `cost` (US dollars), `tokens` or `turns`.

    It looks before each turn and before each tool call, so that nothing is done on the strength of a reply that was
    too much. Several runs of one agent are counted together: give each case a guard of its own.
    """

    name = "budget_guard"

    def __init__(self, cost: float | None = None, tokens: int | None = None, turns: int | None = None) -> None:
        for what, limit in (("cost", cost), ("tokens", tokens), ("turns", turns)):
            if limit is not None and not limit >= 0:
                raise ValueError(f"BudgetGuard: {what} is {limit}; give a number that is not negative")
        self.cost = cost
        self.tokens = tokens
        self.turns = turns
        self._run = ""
        self._before = (0.0, 0, 0)
        self._now = (0.0, 0, 0)

    @classmethod
    def of(cls, budget: CaseBudget) -> BudgetGuard:
        """The guard of a case's budget; its seconds are kept by the runner."""
        return cls(budget.cost, budget.tokens, budget.turns)

    def __repr__(self) -> str:
        return f"BudgetGuard(cost={self.cost}, tokens={self.tokens}, turns={self.turns})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        self._look(ctx, ctx.turn_index)
        turns = self._before[2] + self._now[2]
        if self.turns is not None and turns >= self.turns:
            return Stop(f"{turns} of {self.turns} turns are used up")
        return self._exceeded()

    def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
        self._look(ctx, ctx.turn_index + 1)
        return self._exceeded()

    def post_turn(self, ctx: PolicyContext) -> Stop | None:
        self._look(ctx, ctx.turn_index + 1)
        return self._exceeded()

    def _look(self, ctx: PolicyContext | PreDispatchContext, turns: int) -> None:
        if ctx.run_id != self._run:
            before, now = self._before, self._now
            self._before = (before[0] + now[0], before[1] + now[1], before[2] + now[2])
            self._run = ctx.run_id
        self._now = (ctx.cost.total, ctx.usage.total, turns)

    def _exceeded(self) -> Stop | None:
        cost, tokens = self._before[0] + self._now[0], self._before[1] + self._now[1]
        if self.cost is not None and cost > self.cost:
            return Stop(f"${cost:.4f} of ${self.cost:.4f} are spent")
        if self.tokens is not None and tokens > self.tokens:
            return Stop(f"{tokens} of {self.tokens} tokens are used up")
        return None
