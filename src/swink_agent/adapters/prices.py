"""Calculates the cost of a reply. The prices are in the `catalog`, which is read on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

from swink_agent.core.types import Cost, ModelSpec, Usage

from .catalog import ModelCatalog, ModelPrices, is_same_model

log = logging.getLogger("swink_agent")

_SCRIPTED = "scripted"  # the provider name of scripted models in tests
_MILLION = 1_000_000


def cost_of(model: ModelSpec, usage: Usage, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Cost:
    """Returns the cost of a reply in US dollars: zero for local models, and for models without a known price.

    The log has one warning for each of the latter. `now` is the time in UTC, on which some prices depend.
    """
    if _is_free(model.provider):
        return Cost()
    known = _prices(model.provider, model.model_id)
    if known is None:
        return Cost()
    tokens = usage.input + usage.cache_read + usage.cache_write
    prices = known.at(tokens, now()) if known.tiers else known
    read = prices.input if prices.cache_read is None else prices.cache_read
    written = prices.input if prices.cache_write is None else prices.cache_write
    reasoning = 0
    if prices.reasoning is not None:
        reasoning = min(usage.extra.get("reasoning", 0), usage.output)
    parts = (
        usage.input * prices.input / _MILLION,
        ((usage.output - reasoning) * prices.output + reasoning * (prices.reasoning or 0.0)) / _MILLION,
        usage.cache_read * read / _MILLION,
        usage.cache_write * written / _MILLION,
    )
    return Cost(*parts, sum(parts))


def priced_model(asked: ModelSpec, served: str | None) -> ModelSpec:
    """Returns the model whose price a reply has: the one that answered if the catalog knows it, else the one asked."""
    if served is None or is_same_model(asked, served):
        return asked
    answered = ModelSpec(asked.provider, served)
    return asked if ModelCatalog.load().find(answered) is None else answered


def worst_case(model: ModelSpec, input_tokens: int, max_output: int | None) -> tuple[float | None, int | None]:
    """Returns the most that a call can cost in US dollars, and the output tokens that this assumes.

    The cost is `None` if the price is unknown, and the output if neither the caller nor the catalog limits it. Every
    input token counts as the most expensive kind, and every price that may apply to such a call is considered.
    """
    if _is_free(model.provider):
        return 0.0, max_output
    info = ModelCatalog.load().find(model)
    if info is None:
        return None, max_output
    output = info.output_limit if max_output is None else max_output
    if output is None:
        output = info.context_window
    if output is None:
        return None, None
    dearest = 0.0
    for prices in (info.prices, *info.prices.tiers):
        inward = max(prices.input, prices.cache_read or 0.0, prices.cache_write or 0.0)
        outward = max(prices.output, prices.reasoning or 0.0)
        dearest = max(dearest, (input_tokens * inward + output * outward) / _MILLION)
    return dearest, output


@lru_cache(maxsize=256)
def _is_free(provider: str) -> bool:
    """Whether the provider's models run on the user's own machines, according to its description."""
    from swink_agent.core.providers import description_of

    from .registry import PROVIDERS

    ours = [item for item in PROVIDERS if item.name == provider]
    if ours or provider == _SCRIPTED or provider in ModelCatalog.load().providers:
        return provider == _SCRIPTED or any(item.is_local for item in ours)
    try:
        description = description_of(provider)
    except Exception:  # a broken package is reported when it is used
        return False
    return description is not None and description.is_local


@lru_cache(maxsize=4096)
def _prices(provider: str, model_id: str) -> ModelPrices | None:
    """Returns the model's prices. It is cached, so the warning about an unknown model appears once."""
    catalog = ModelCatalog.load()
    info = catalog.find(ModelSpec(provider, model_id))
    if info is not None:
        return info.prices
    name = f"{provider}:{model_id}"
    near = catalog.nearest(name, count=1)
    hint = f"; the nearest name with a price is {near[0]}" if near else ""
    log.warning("no price is known for %r: its cost counts as zero%s", name, hint)
    return None
