"""`BudgetGuard`: ends a case that uses more than its budget while it runs.

Adds up the replies in the runs of one case, those of delegates included. Unlike `policies.Budget`, the guard reserves
nothing and knows no prices: it counts the actual use, as `BudgetEvaluator` does afterwards.
"""

from __future__ import annotations

from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop
from swink_agent.core.types import AssistantMessage
from swink_agent.core.values.checks import check_number

from ..cases.cases import CaseBudget


class BudgetGuard:
    """A policy that stops a run when it exceeds `cost` (US dollars), `tokens` or `turns`.

    It checks before each request and before each tool call, so that no tool runs because of a reply that exceeded the
    budget. Several runs of one agent are counted together: give each case its own guard. The cost and tokens of
    delegates count, and they are stopped too; their turns do not count.
    """

    name = "budget_guard"
    on_every_request = True
    """Consulted before each request, also of delegates and transforms, see `PreTurnPolicy`."""

    def __init__(self, cost: float | None = None, tokens: int | None = None, turns: int | None = None) -> None:
        for what, limit in (("cost", cost), ("tokens", tokens), ("turns", turns)):
            if limit is None:
                continue
            check_number(f"BudgetGuard.{what}", limit, "a number, or None")
            if not limit >= 0:
                raise ValueError(f"BudgetGuard: {what} is {limit}; give a number that is not negative")
        self.cost = cost
        self.tokens = tokens
        self.turns = turns
        self._spent, self._tokens = 0.0, 0
        self._asking = set[str]()  # runs that made a request and have no counted reply yet
        self._run = ""  # the outermost run at the moment: its turns count
        self._earlier = self._turns = 0  # turns of the runs before this one, and of all

    @classmethod
    def of(cls, budget: CaseBudget) -> BudgetGuard:
        """The guard for a case's budget. Its seconds are checked by the runner."""
        return cls(budget.cost, budget.tokens, budget.turns)

    def __repr__(self) -> str:
        return f"BudgetGuard(cost={self.cost}, tokens={self.tokens}, turns={self.turns})"

    def pre_turn(self, ctx: PolicyContext) -> Stop | None:
        if ctx.message is not None:  # a request that failed and will be repeated
            self._count(ctx.run_id, ctx.message)
        counts = self._count_turns(ctx.run_id, ctx.turn_index)
        if counts and self.turns is not None and self._turns >= self.turns:
            return Stop(f"{self._turns} of {self.turns} turns are used up")
        stop = self._exceeded()
        if stop is None:
            self._asking.add(ctx.run_id)
        return stop

    def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
        self._count_turns(ctx.run_id, ctx.turn_index + 1)
        if ctx.run_id in self._asking:
            reply = next((message for message in reversed(ctx.messages) if isinstance(message, AssistantMessage)), None)
            self._count(ctx.run_id, reply)
        return self._exceeded()

    def post_turn(self, ctx: PolicyContext) -> Stop | None:
        self._count_turns(ctx.run_id, ctx.turn_index + 1)
        self._count(ctx.run_id, ctx.message)
        return self._exceeded()

    def run_over(self, run_id: str) -> None:
        """Forgets the run, but not its usage."""
        self._asking.discard(run_id)
        if run_id == self._run:
            self._run, self._earlier = "", self._turns

    def _count(self, run_id: str, reply: AssistantMessage | None) -> None:
        """Counts the reply to the run's request, once. The reply of a resumed turn was counted before."""
        if reply is not None and run_id in self._asking:
            self._asking.remove(run_id)
            self._spent += reply.cost.amount
            self._tokens += reply.usage.tokens

    def _count_turns(self, run_id: str, turns: int) -> bool:
        """Counts the turns of a run, unless it is inside another. Returns whether they count."""
        if not self._run:
            self._run = run_id
        if run_id != self._run:
            return False
        self._turns = self._earlier + turns
        return True

    def _exceeded(self) -> Stop | None:
        cost, tokens = self._spent, self._tokens
        if self.cost is not None and cost > self.cost:
            return Stop(f"${cost:.4f} of ${self.cost:.4f} are spent")
        if self.tokens is not None and tokens > self.tokens:
            return Stop(f"{tokens} of {self.tokens} tokens are used up")
        return None
