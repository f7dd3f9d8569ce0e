"""What is known of a model: its limits, what it can do, and its prices.

Owns the values, which a catalog holds and a provider's description may bring along. Where a model is looked for is in
`adapters.catalog`, and what a reply costs in `adapters.prices`.
"""

from __future__ import annotations

from datetime import date, datetime

from .value import Value

__all__ = ["ModelCapabilities", "ModelInfo", "ModelPrices", "PriceTier", "TokenPrices"]


class TokenPrices(Value, frozen=True, omit_defaults=True, gc=False):
    """US dollars for a million tokens. A price that is None is not charged apart.

    Cached tokens then cost as input, reasoning as output.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None


class PriceTier(TokenPrices, frozen=True, omit_defaults=True, gc=False):
    """Prices that take the place of the usual ones for a whole request, when all that is set here holds."""

    above: int | None = None
    """More tokens than this in the request, the cached ones among them."""
    since: date | None = None
    """A price that was announced for this day (UTC)."""
    hours: tuple[int, int] | None = None
    """From one minute of the day to another (UTC), Monday to Friday."""

    def applies(self, tokens: int, moment: datetime) -> bool:
        """Whether a request of so many tokens costs these prices at that moment, which is in UTC."""
        if self.above is not None and tokens <= self.above:
            return False
        if self.since is not None and moment.date() < self.since:
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        return moment.weekday() < 5 and start <= moment.hour * 60 + moment.minute < end


class ModelPrices(TokenPrices, frozen=True, omit_defaults=True, gc=False):
    """The usual prices, and those for special cases; the last one that applies counts."""

    tiers: tuple[PriceTier, ...] = ()

    def at(self, tokens: int, moment: datetime) -> TokenPrices:
        """The prices of a request of so many tokens at that moment, which is in UTC."""
        for tier in reversed(self.tiers):
            if tier.applies(tokens, moment):
                return tier
        return self


class ModelCapabilities(Value, frozen=True, omit_defaults=True, gc=False):
    """What a model can do; None where it is not known."""

    tools: bool | None = None
    images: bool | None = None
    thinking: bool | None = None
    caching: bool | None = None


class ModelInfo(Value, frozen=True, omit_defaults=True, gc=False):
    """One model at one provider. Limits are in tokens, None where they are not known."""

    provider: str
    model_id: str
    name: str
    context_window: int | None = None
    output_limit: int | None = None
    capabilities: ModelCapabilities = ModelCapabilities()
    prices: ModelPrices = ModelPrices()
    aliases: tuple[str, ...] = ()
    """Other names that the provider gives it. A date or version behind any name need not be listed."""
    prefixes: tuple[str, ...] = ()
    """Whatever begins like this is this model too."""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model_id}"
