"""`Budget`: limits the cost and the tokens of runs.

It keeps an account of the amounts spent and the amounts reserved for calls in progress. A `WorstCaseFn` returns the
highest cost of a call; by default the installed price tables (entry-point group `swink_agent.prices`) are asked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, TypeAlias

from swink_agent.core.cancel import Signal, current_task
from swink_agent.core.context.context import json_size
from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop
from swink_agent.core.types import AssistantMessage, ModelSpec, StopReason, Usage
from swink_agent.core.values.checks import check_number, is_function, is_not

WorstCaseFn: TypeAlias = Callable[[ModelSpec, int, int | None], tuple[float | None, int | None]]
"""`(model, input tokens, most output tokens or None)` to `(highest cost in US dollars, assumed output tokens)`.

The cost is `None` if the model's price is unknown, the output is `None` if neither the caller nor the table limits it.
"""

GROUP = "swink_agent.prices"

log = logging.getLogger("swink_agent")

_ASSUMED_OUTPUT = 32_768  # tokens of output to reserve if the length of a reply is not limited
_CENT_FRACTION = 1e-9  # dollars by which a sum of floats may be wrong
_PATIENCE = 0.25  # seconds after which a waiting run checks whether the runs that it waits for still exist

_LINEAGE: ContextVar[tuple[_Reservation, ...]] = ContextVar("swink_agent_reservations", default=())
"""The reservations inside which this code runs: an agent in a hook or tool of another agent sees that agent's."""


class Budget:
    """Stops a run before a call that could take it over `max_cost` US dollars or `max_tokens` tokens.

    Before each request, including retries, the budget reserves the most that it can use: the size of the request, and
    the longest reply that `StreamOptions.max_tokens` or the model allows. If that fits into the amount that is neither
    spent nor reserved, the request is sent, and its real use is counted when the reply arrives. If it would fit after
    other runs release unused reservations, the run waits for them; else it stops. An agent that runs inside a request,
    in a hook, does not wait: that request keeps its reservation meanwhile. So runs never exceed the limit, even many
    at once. With a lower limit for replies (`max_tokens` in the stream options), the budget lasts longer. Without
    such a limit, `max_output` is assumed, if you give it; a longer reply can exceed the budget by the difference.

    With a `max_cost`, a model whose price is unknown is refused; `unknown_prices="allow"` counts it as free. Models on
    this machine are free. The account belongs to the object: agents with the same `Budget` share it, also in several
    threads. Put it after the policies that may stop a turn.
    """

    name = "budget"
    on_every_request = True
    """Consulted again before each retry of a request, see `PreTurnPolicy`."""

    def __init__(
        self,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        *,
        unknown_prices: Literal["refuse", "allow"] = "refuse",
        worst_case: WorstCaseFn | None = None,
        max_output: int | None = None,
    ) -> None:
        if max_cost is None and max_tokens is None:
            raise ValueError("Budget() limits nothing; give max_cost in US dollars, max_tokens, or both")
        for name, limit in (("max_cost", max_cost), ("max_tokens", max_tokens), ("max_output", max_output)):
            if limit is None:
                continue
            check_number(f"Budget: {name}", limit)
            if not limit >= 0:
                raise ValueError(f"Budget: {name} is {limit}; give a number that is not negative")
        if worst_case is not None and not is_function(worst_case):
            raise is_not("Budget: worst_case", worst_case, "a function")
        if unknown_prices not in ("refuse", "allow"):
            raise ValueError(f"Budget: unknown_prices is {unknown_prices!r}; it must be 'refuse' or 'allow'")
        self.max_cost = max_cost
        self.max_tokens = max_tokens
        self._allows_unknown = unknown_prices == "allow"
        self._worst_case = worst_case or _installed_worst_case
        self._max_output = max_output
        self._lock = threading.RLock()  # a WorstCaseFn may look at the account
        self._cost = 0.0
        self._tokens = 0
        self._reserved: dict[str, _Reservation] = {}
        self._waiting: list[_Reservation] = []
        self._news = Signal()

    def __repr__(self) -> str:
        return f"Budget(max_cost={self.max_cost}, max_tokens={self.max_tokens}, spent={self.spent:.6f})"

    # -- the account -------------------------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        """US dollars that all runs have spent."""
        return self._cost

    @property
    def spent_tokens(self) -> int:
        """Tokens in and out that all runs have used."""
        return self._tokens

    @property
    def remaining(self) -> float | None:
        """US dollars that are neither spent nor reserved; `None` without a limit."""
        with self._lock:
            if self.max_cost is None:
                return None
            return max(0.0, self.max_cost - self._cost - sum(held.cost for held in self._reserved.values()))

    @property
    def remaining_tokens(self) -> int | None:
        """Tokens that are neither spent nor reserved; `None` without a limit."""
        with self._lock:
            if self.max_tokens is None:
                return None
            return max(0, self.max_tokens - self._tokens - sum(held.tokens for held in self._reserved.values()))

    def reset(self) -> None:
        """Sets the spent cost and tokens to zero; reservations of calls in progress stay."""
        with self._account():
            self._cost, self._tokens = 0.0, 0

    # -- the slots ---------------------------------------------------------------------------------------------

    def pre_turn(self, ctx: PolicyContext) -> Stop | None | Awaitable[Stop | None]:
        """Reserves the highest use of the call, waits until that is possible, or stops the run."""
        wanted = self._max_output if ctx.max_tokens is None else ctx.max_tokens
        cost, output = self._most(ctx.model, ctx.request_tokens, wanted)
        if cost is None and self.max_cost is not None and not self._allows_unknown:
            return Stop(
                f"the price of {ctx.model} is not known, so max_cost cannot be kept: choose a model with a known "
                "price, give Budget the highest cost of its calls (worst_case=…), or count them as free "
                "(unknown_prices='allow')"
            )
        wish = _Reservation(ctx.model, ctx.request_tokens, output, cost or 0.0)
        with self._account():
            if self._settle_attempt(ctx):
                # `post_turn` must not count the failed attempt again, whatever is decided here.
                self._reserved[ctx.run_id] = _Reservation(ctx.model, is_settled=True)
            around = tuple([held for held in _LINEAGE.get() if held in self._reserved.values()])
            _LINEAGE.set((*around, wish))  # tasks that start from here on are inside it
            wish.may_wait = wish.task is not None and all(held.is_settled for held in around)
            verdict = self._decide(ctx.run_id, wish)
            if verdict is not False:
                return None if verdict is True else verdict
            self._waiting.append(wish)
        return self._when_it_fits(ctx.run_id, wish)

    def pre_dispatch(self, ctx: PreDispatchContext) -> None:
        """Counts the reply before its calls run: they may take long, and may run agents with this budget."""
        with self._account():
            held = self._reserved.get(ctx.run_id)
            if held is None or held.is_settled:
                return
            reply = next((message for message in reversed(ctx.messages) if isinstance(message, AssistantMessage)), None)
            if reply is None:
                return
            self._settle(reply, held)
            self._reserved[ctx.run_id] = _Reservation(held.model, is_settled=True)

    def post_turn(self, ctx: PolicyContext) -> None:
        """Replaces the reservation with the real use of the call."""
        if ctx.message is None:
            return
        with self._account():
            held = self._reserved.pop(ctx.run_id, None)
            if held is None or not held.is_settled:
                self._settle(ctx.message, held)

    def run_over(self, run_id: str) -> None:
        """Releases the reservation of a run that was stopped before its call."""
        with self._account():
            self._reserved.pop(run_id, None)

    # -- waiting -----------------------------------------------------------------------------------------------

    # A run that waits holds no reservation, and no request with a reservation waits for another: so each wait ends.

    @contextmanager
    def _account(self) -> Generator[None]:
        """The lock, for changes of the account. After them, the waiting runs decide again."""
        with self._lock:
            yield
            news, self._news = self._news, Signal()
        news.set()

    def _decide(self, run_id: str, wish: _Reservation) -> Stop | bool:
        """Reserves if the call fits now. Returns whether it does (else: wait), or a stop if waiting cannot help.

        Waiting runs are served in order, so that small calls cannot overtake a large one forever.
        """
        self._reserved = {other: held for other, held in self._reserved.items() if not held.is_abandoned}
        self._waiting = [waiting for waiting in self._waiting if not waiting.is_abandoned]
        problem = self._problem(wish, self._reserved.values())
        is_next = not self._waiting or self._waiting[0] is wish
        if problem is None and (is_next or not wish.may_wait):
            self._reserved[run_id] = wish
            return True
        if wish.may_wait:
            problem = self._problem(wish, ())
        return False if problem is None else Stop(problem)

    async def _when_it_fits(self, run_id: str, wish: _Reservation) -> Stop | None:
        try:
            while True:
                with self._lock:
                    news = self._news
                    verdict = self._decide(run_id, wish)
                if verdict is not False:
                    return None if verdict is True else verdict
                with suppress(TimeoutError):  # a run whose event loop was closed announces nothing
                    async with asyncio.timeout(_PATIENCE):
                        await news.wait()
        finally:
            with self._account():
                if wish in self._waiting:
                    self._waiting.remove(wish)

    # -- sums, under the lock ----------------------------------------------------------------------------------

    def _settle_attempt(self, ctx: PolicyContext) -> bool:
        """If this is a retry, counts the use of the failed attempt. Returns whether it is a retry."""
        held = self._reserved.pop(ctx.run_id, None)
        if ctx.message is None:
            return False
        self._settle(ctx.message, held)
        return True

    def _settle(self, message: AssistantMessage, held: _Reservation | None) -> None:
        usage = message.usage
        model = ModelSpec(message.provider, message.model_id) if held is None else held.model
        if not _total(usage) and held is not None and _was_probably_billed(message):
            # The provider did not report usage: count the whole request, and a token for each byte of the reply.
            size = json_size(message.content)
            usage = Usage(held.input_tokens, min(size, held.tokens - held.input_tokens))
        self._tokens += _total(usage)
        if message.cost.amount > 0:
            self._cost += message.cost.amount
        elif _total(usage):
            cost, _ = self._most(model, usage.input + usage.cache_read + usage.cache_write, usage.output)
            self._cost += cost or 0.0

    def _problem(self, wish: _Reservation, others: Collection[_Reservation]) -> str | None:
        """Why the call does not fit in addition to other reservations, and what to do; `None` if it fits."""
        if self.max_cost is not None:
            held = sum(other.cost for other in others)
            if self._cost + held + wish.cost > self.max_cost + _CENT_FRACTION:
                budget = f"{self.max_cost:.10f}".rstrip("0").rstrip(".")  # without an exponent, however small
                return (
                    f"the next call to {wish.model} can cost up to ${wish.cost:.4f} ({wish.input_tokens} tokens in, "
                    f"{wish.output} out); of the budget of ${budget}, ${self._cost:.4f} are spent"
                    f"{f' and ${held:.4f} reserved by other runs' if held else ''}. Raise max_cost, or allow shorter "
                    "replies (max_tokens)"
                )
        if self.max_tokens is not None:
            held = sum(other.tokens for other in others)
            if self._tokens + held + wish.tokens > self.max_tokens:
                return (
                    f"the next call to {wish.model} can take up to {wish.tokens} tokens; of the budget of "
                    f"{self.max_tokens}, {self._tokens} are spent"
                    f"{f' and {held} reserved by other runs' if held else ''}. Raise max_tokens of the "
                    "Budget, or allow shorter replies (max_tokens)"
                )
        return None

    def _most(self, model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int]:
        """The highest cost and output; the output is assumed if the table has none, or fails."""
        try:
            cost, assumed = self._worst_case(model, tokens, output)
            if assumed is None and output is None:
                output = _ASSUMED_OUTPUT
                cost, assumed = self._worst_case(model, tokens, output)
            if cost is not None and not cost >= 0.0:
                raise ValueError(f"{cost} is not a price")
        except Exception:
            # The loop ignores a policy that raises: the call would be made without a reservation.
            log.exception("the price of %s could not be looked up: it counts as unknown", model)
            cost, assumed = None, None
        return cost, (_ASSUMED_OUTPUT if output is None else output) if assumed is None else assumed


class _Reservation:
    """The amount that is reserved for one call, or requested for it."""

    def __init__(
        self, model: ModelSpec, input_tokens: int = 0, output: int = 0, cost: float = 0.0, *, is_settled: bool = False
    ) -> None:
        self.model = model
        self.input_tokens = input_tokens
        self.output = output
        self.tokens = input_tokens + output
        self.cost = cost
        self.is_settled = is_settled  # whether the turn's reply was counted: the reservation then holds nothing
        self.may_wait = False
        """Whether its run may wait for others: not inside a request, which would keep its reservation meanwhile."""
        task = current_task()  # none if the policy is called by hand
        self.task = None if task is None else weakref.ref(task)

    @property
    def is_abandoned(self) -> bool:
        """Whether its run ended without notice, with its task or its event loop."""
        if self.task is None:
            return False
        task = self.task()
        return task is None or task.done() or task.get_loop().is_closed()


def _total(usage: Usage) -> int:
    # A provider that reports a negative number must not increase the budget.
    return max(0, usage.tokens)


def _was_probably_billed(message: AssistantMessage) -> bool:
    """Whether a reply without usage was probably billed: it is complete, was aborted by us, or has content."""
    return not message.is_failed or message.stop_reason == StopReason.ABORTED or bool(message.content)


def _installed_worst_case(model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int | None]:
    """Asks the installed price tables; the first that knows the model answers."""
    limit: int | None = output
    for table in _tables():
        cost, assumed = table(model, tokens, output)
        limit = assumed if limit is None else limit
        if cost is not None:
            return cost, assumed
    return None, limit


@lru_cache(maxsize=1)
def _tables() -> tuple[WorstCaseFn, ...]:
    from importlib.metadata import entry_points  # on use: this takes milliseconds

    return tuple([point.load() for point in entry_points(group=GROUP)])
