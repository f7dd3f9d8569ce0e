"""`Budget`: so much money, so many tokens, and not a cent more.

Owns the account: what was spent, and what is reserved for calls that are under way. What a call can cost at most is
asked of a `WorstCaseFn`, by default the one that the installed price table registers in the entry-point group
`swink_agent.prices`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from swink_agent.core.cancel import Signal
from swink_agent.core.policy import PolicyContext, PreDispatchContext, Stop
from swink_agent.core.types import AssistantMessage, ModelSpec, StopReason, Usage

from ._reservations import Reservation, reservations_above

__all__ = ["Budget", "WorstCaseFn"]

WorstCaseFn: TypeAlias = Callable[[ModelSpec, int, int | None], tuple[float | None, int | None]]
"""`(model, input tokens, most output tokens or None)` to `(the most it can cost in US dollars, output tokens assumed)`.

The cost is `None` if the model's price is not known, the output `None` if neither the caller nor the table limits it.
"""

GROUP = "swink_agent.prices"

log = logging.getLogger("swink_agent")

_ASSUMED_OUTPUT = 32_768
"""Tokens of output reserved where nobody says how long a reply may be."""

_CENT_FRACTION = 1e-9
"""Dollars by which sums of floats may be off."""

_PATIENCE = 0.25
"""Seconds after which one who waits looks whether those it waits for are still alive."""


class Budget:
    """Stops a run before a call that could take it over `max_cost` US dollars or `max_tokens` tokens.

    Before each request, repeated ones included, the most that it can use is reserved: the request's own size, and the
    longest reply that `StreamOptions.max_tokens` or the model allows. If that fits in what is left after everything
    spent and reserved by others, the request goes out, and what it really used is counted when the reply is there. If
    it would fit once the others have given back what they do not use, the run waits for them; else it stops. So the
    limit is never overshot, by however many runs at once; and the shorter the replies you allow, the further it
    reaches: set `max_tokens` in the stream options. `max_output` overrides what is assumed when you did not; if a reply
    is longer than that, the limit can be overshot by the difference.

    A model without a known price is refused while there is a `max_cost`; `unknown_prices="allow"` counts it as free.
    Models on this machine cost nothing. The account lives as long as the object: give one `Budget` to several agents,
    in several threads, and they share it. Put it behind the policies that may stop a turn.
    """

    name = "budget"
    every_call = True
    """Asked again before each repetition of a request, see `PreTurnPolicy`."""

    __slots__ = (
        "_allows_unknown",
        "_cost",
        "_lock",
        "_max_output",
        "_news",
        "_reserved",
        "_tokens",
        "_waiting",
        "_worst_case",
        "max_cost",
        "max_tokens",
    )

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
            if limit is not None and not limit >= 0:
                raise ValueError(f"Budget: {name} is {limit}; give a number that is not negative")
        if unknown_prices not in ("refuse", "allow"):
            raise ValueError(f"Budget: unknown_prices is {unknown_prices!r}; it is 'refuse' or 'allow'")
        self.max_cost = max_cost
        self.max_tokens = max_tokens
        self._allows_unknown = unknown_prices == "allow"
        self._worst_case = worst_case or _installed_worst_case
        self._max_output = max_output
        self._lock = threading.RLock()  # a WorstCaseFn may look at the account
        self._cost = 0.0
        self._tokens = 0
        self._reserved: dict[str, Reservation] = {}
        self._waiting: list[Reservation] = []
        self._news = Signal()

    def __repr__(self) -> str:
        return f"Budget(max_cost={self.max_cost}, max_tokens={self.max_tokens}, spent={self.spent:.6f})"

    # -- the account -------------------------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        """US dollars, of all runs so far."""
        return self._cost

    @property
    def spent_tokens(self) -> int:
        """Tokens in and out, of all runs so far."""
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
        """Starts the account anew; what is reserved for calls under way stays reserved."""
        with self._lock:
            self._cost, self._tokens = 0.0, 0
        self._announce()

    # -- the slots ---------------------------------------------------------------------------------------------

    def pre_turn(self, ctx: PolicyContext) -> Stop | None | Awaitable[Stop | None]:
        """Reserves the worst case of the call, waits until that is possible, or stops the run."""
        wanted = self._max_output if ctx.max_tokens is None else ctx.max_tokens
        cost, output = self._most(ctx.model, ctx.request_tokens, wanted)
        if cost is None and self.max_cost is not None and not self._allows_unknown:
            return Stop(
                f"the price of {ctx.model} is not known, so max_cost cannot be kept: choose a model with a known "
                "price, or have the budget told what its calls cost at most (worst_case=…), or that they are free "
                "(unknown_prices='allow')"
            )
        wish = Reservation(ctx.model, ctx.request_tokens, output, cost or 0.0)
        with self._lock:
            if self._settle_attempt(ctx):
                # However this ends, what comes after the turn must not count the attempt again.
                self._reserved[ctx.run_id] = Reservation(ctx.model, is_settled=True)
            wish.above = reservations_above(wish, self._reserved.values())
            is_decided, verdict = self._decide(ctx.run_id, wish)
            if is_decided:
                return verdict
            if wish.task is None:  # nobody can wait without an event loop
                return Stop(self._problem(wish, self._reserved.values()) or "others wait for the budget")
            self._waiting.append(wish)
        self._announce()  # who waits for what it holds must think again
        return self._when_it_fits(ctx.run_id, wish)

    async def _when_it_fits(self, run_id: str, wish: Reservation) -> Stop | None:
        try:
            while True:
                with self._lock:
                    news = self._news
                    is_decided, verdict = self._decide(run_id, wish)
                if is_decided:
                    return verdict
                try:
                    async with asyncio.timeout(_PATIENCE):
                        await news.wait()
                except TimeoutError:
                    pass  # a run whose event loop is gone tells nobody
        finally:
            with self._lock:
                if wish in self._waiting:
                    self._waiting.remove(wish)
            self._announce()

    def pre_dispatch(self, ctx: PreDispatchContext) -> None:
        """Counts the reply before its calls are made: they may take long, and may be agents with this budget."""
        with self._lock:
            held = self._reserved.get(ctx.run_id)
            if held is None or held.is_settled:
                return
            reply = next((message for message in reversed(ctx.messages) if isinstance(message, AssistantMessage)), None)
            if reply is None:
                return
            self._settle(reply, held)
            self._reserved[ctx.run_id] = Reservation(held.model, is_settled=True)
        self._announce()

    def post_turn(self, ctx: PolicyContext) -> None:
        """Counts what the call really used in the place of what was reserved."""
        if ctx.message is None:
            return
        with self._lock:
            held = self._reserved.pop(ctx.run_id, None)
            if held is None or not held.is_settled:
                self._settle(ctx.message, held)
        self._announce()

    def run_over(self, run_id: str) -> None:
        """Gives back what a run still holds that was stopped before its call."""
        with self._lock:
            self._reserved.pop(run_id, None)
        self._announce()

    # -- waiting -----------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Lets everybody who waits look again."""
        if self._waiting:
            with self._lock:
                news, self._news = self._news, Signal()
            news.set()

    def _decide(self, run_id: str, wish: Reservation) -> tuple[bool, Stop | None]:
        """Reserves, if there is room now; else says whether that is decided, or there is use in waiting.

        Those who wait are served in their order, so that a large call is not passed by small ones for ever. A run
        inside another one goes first: who stands before it in the line may be waiting for that other one.
        """
        self._drop_abandoned(run_id, wish)
        earlier = self._waiting[: self._waiting.index(wish)] if wish in self._waiting else self._waiting
        if self._problem(wish, self._reserved.values()) is None and (wish.above or not earlier):
            self._reserved[run_id] = wish
            return True, None
        # What is held by runs that wait for one of those who wait here does not come back first.
        stuck = {held for waiting in (*self._waiting, wish) for held in waiting.above}
        problem = self._problem(wish, [held for held in self._reserved.values() if held in stuck])
        return problem is not None, None if problem is None else Stop(problem)

    # -- sums, under the lock ----------------------------------------------------------------------------------

    def _settle_attempt(self, ctx: PolicyContext) -> bool:
        """Counts what the attempt before used, if this is a repetition; says whether it is one."""
        held = self._reserved.pop(ctx.run_id, None)
        if ctx.message is None:
            return False
        self._settle(ctx.message, held)
        return True

    def _settle(self, message: AssistantMessage, held: Reservation | None) -> None:
        usage = message.usage
        model = ModelSpec(message.provider, message.model_id) if held is None else held.model
        if not _total(usage) and held is not None and _was_probably_billed(message):
            # Nobody said what this reply used: the whole request was sent, and so much came back.
            usage = Usage(held.input_tokens, min(_size(message), held.tokens - held.input_tokens))
        self._tokens += _total(usage)
        if message.cost.total > 0:
            self._cost += message.cost.total
        elif _total(usage):
            cost, _ = self._most(model, usage.input + usage.cache_read + usage.cache_write, usage.output)
            self._cost += cost or 0.0

    def _drop_abandoned(self, run_id: str, wish: Reservation) -> None:
        """Forgets runs that died without a word, with their event loop or task."""
        for other in [other for other, held in self._reserved.items() if other != run_id and held.is_abandoned(wish)]:
            del self._reserved[other]
        for waiting in [waiting for waiting in self._waiting if waiting.is_abandoned(wish)]:
            self._waiting.remove(waiting)

    def _problem(self, wish: Reservation, others: Collection[Reservation]) -> str | None:
        """Why the call does not fit beside what the others hold, with what to do about it."""
        if self.max_cost is not None:
            held = sum(other.cost for other in others)
            if self._cost + held + wish.cost > self.max_cost + _CENT_FRACTION:
                return (
                    f"the next call to {wish.model} can cost up to ${wish.cost:.4f} ({wish.input_tokens} tokens in, "
                    f"{wish.output} out); of the budget of ${_money(self.max_cost)}, ${self._cost:.4f} are spent"
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
        """The worst case, with an assumed reply where the table has no limit. A table that fails knows nothing."""
        try:
            cost, assumed = self._worst_case(model, tokens, output)
            if assumed is None and output is None:
                output = _ASSUMED_OUTPUT
                cost, assumed = self._worst_case(model, tokens, output)
            if cost is not None and not cost >= 0.0:
                raise ValueError(f"{cost} is no price")
        except Exception:
            # Raised from a slot it would be passed over, and the call made without a reservation.
            log.exception("the price of %s could not be looked up: it counts as unknown", model)
            cost, assumed = None, None
        return cost, (_ASSUMED_OUTPUT if output is None else output) if assumed is None else assumed


def _total(usage: Usage) -> int:
    # Not below zero, whatever a provider says: nothing is given back.
    return max(0, usage.total, usage.input + usage.output + usage.cache_read + usage.cache_write)


def _was_probably_billed(message: AssistantMessage) -> bool:
    """Whether a reply that nobody counted was worked on: it was finished, or broken off by us or after it had begun."""
    return not message.is_failed or message.stop_reason == StopReason.ABORTED or bool(message.content)


def _size(message: AssistantMessage) -> int:
    """The most tokens that the reply can be: one for each byte of it."""
    return len(msgspec.json.encode(message.content))


def _installed_worst_case(model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int | None]:
    """The answer of the first installed price table that knows the model."""
    limit: int | None = output
    for table in _tables():
        cost, assumed = table(model, tokens, output)
        limit = assumed if limit is None else limit
        if cost is not None:
            return cost, assumed
    return None, limit


@lru_cache(maxsize=1)
def _tables() -> tuple[WorstCaseFn, ...]:
    from importlib.metadata import entry_points  # on use: reading what is installed takes milliseconds

    return tuple([point.load() for point in entry_points(group=GROUP)])


def _money(amount: float) -> str:
    """As people write it, however small: never 1e-06."""
    return f"{amount:.10f}".rstrip("0").rstrip(".")
