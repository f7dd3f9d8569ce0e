"""Facts about a model: its limits, capabilities and prices.

They come from the catalog (`adapters.catalog`) or from a provider's description. `adapters.prices` calculates the cost
of a reply.
"""

from __future__ import annotations

from datetime import date, datetime

from .value import Value


class TokenPrices(Value, frozen=True, omit_defaults=True, gc=False):
    """US dollars for a million tokens.

    If a price is None, cached tokens cost as much as input, and reasoning as much as output.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None


class PriceTier(TokenPrices, frozen=True, omit_defaults=True, gc=False):
    """Prices that replace the usual ones for a whole request if all the conditions that are set hold."""

    above: int | None = None
    """The request has more tokens than this, cached ones included."""
    since: date | None = None
    """The first day of these prices (UTC)."""
    hours: tuple[int, int] | None = None
    """The first minute of the day, and the minute after the last (UTC), from Monday to Friday."""

    def applies(self, tokens: int, moment: datetime) -> bool:
        """Whether these prices apply to a request with this many tokens at that moment (UTC)."""
        if self.above is not None and tokens <= self.above:
            return False
        if self.since is not None and moment.date() < self.since:
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        return moment.weekday() < 5 and start <= moment.hour * 60 + moment.minute < end


class ModelPrices(TokenPrices, frozen=True, omit_defaults=True, gc=False):
    """The usual prices, and those for special cases; the last tier that applies counts."""

    tiers: tuple[PriceTier, ...] = ()

    def at(self, tokens: int, moment: datetime) -> TokenPrices:
        """Returns the prices of a request with this many tokens at that moment (UTC)."""
        for tier in reversed(self.tiers):
            if tier.applies(tokens, moment):
                return tier
        return self


class ModelCapabilities(Value, frozen=True, omit_defaults=True, gc=False):
    """What a model can do; None where that is unknown."""

    tools: bool | None = None
    images: bool | None = None
    thinking: bool | None = None
    caching: bool | None = None


class ModelInfo(Value, frozen=True, omit_defaults=True, gc=False):
    """One model of one provider. Limits are in tokens, None if unknown."""

    provider: str
    model_id: str
    name: str
    context_window: int | None = None
    output_limit: int | None = None
    capabilities: ModelCapabilities = ModelCapabilities()
    prices: ModelPrices = ModelPrices()
    aliases: tuple[str, ...] = ()
    """Other names that the provider uses for it, without those that only add a date or version."""
    prefixes: tuple[str, ...] = ()
    """Every name that begins with one of these is this model too."""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model_id}"
