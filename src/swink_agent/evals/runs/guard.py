"""`BudgetGuard`: ends a case that uses more than its budget while it runs.

Adds up the runs of one case; what a run has used so far is in the policy's context. Unlike `policies.Budget`, the guard
reserves nothing and knows no prices: it looks at what was used, as `BudgetEvaluator` does afterwards.
"""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop

from ..cases.cases import CaseBudget

__all__ = ["BudgetGuard"]


class BudgetGuard:
    """A policy that stops a run when it exceeds `cost` (US dollars), `tokens` or `turns`.

    It checks before each turn and before each tool call, so that no tool runs because of a reply that exceeded the
    budget. Several runs of one agent are counted together: give each case its own guard.
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
        self._earlier = self._total = (0.0, 0, 0)
        """US dollars, tokens and turns: of the runs before this one, and of all."""

    @classmethod
    def of(cls, budget: CaseBudget) -> BudgetGuard:
        """The guard for a case's budget. Its seconds are checked by the runner."""
        return cls(budget.cost, budget.tokens, budget.turns)

    def __repr__(self) -> str:
        return f"BudgetGuard(cost={self.cost}, tokens={self.tokens}, turns={self.turns})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        self._count(ctx, ctx.turn_index)
        turns = self._total[2]
        if self.turns is not None and turns >= self.turns:
            return Stop(f"{turns} of {self.turns} turns are used up")
        return self._exceeded()

    def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
        self._count(ctx, ctx.turn_index + 1)
        return self._exceeded()

    def post_turn(self, ctx: PolicyContext) -> Stop | None:
        self._count(ctx, ctx.turn_index + 1)
        return self._exceeded()

    def _count(self, ctx: PolicyContext | PreDispatchContext, turns: int) -> None:
        if ctx.run_id != self._run:
            self._run, self._earlier = ctx.run_id, self._total
        earlier = self._earlier
        self._total = (earlier[0] + ctx.cost.amount, earlier[1] + ctx.usage.tokens, earlier[2] + turns)

    def _exceeded(self) -> Stop | None:
        cost, tokens, _ = self._total
        if self.cost is not None and cost > self.cost:
            return Stop(f"${cost:.4f} of ${self.cost:.4f} are spent")
        if self.tokens is not None and tokens > self.tokens:
            return Stop(f"{tokens} of {self.tokens} tokens are used up")
        return None
