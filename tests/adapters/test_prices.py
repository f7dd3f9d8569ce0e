"""The cost of a reply: every kind of token at its price, and zero if no price is known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Cost, ModelSpec, ThinkingBudgets, ThinkingLevel, Usage
from swink_agent.adapters.catalog import ModelCatalog
from swink_agent.adapters.prices import cost_of, priced_model, worst_case

OFTEN = settings(max_examples=100)
MODELS = ModelCatalog.load().models()


def at(*moment: int) -> Callable[[], datetime]:
    return lambda: datetime(*moment, tzinfo=UTC)  # type: ignore[misc, arg-type]


SUNDAY = at(2026, 11, 15)


def cost(model: str, usage: Usage, now: Callable[[], datetime] = SUNDAY) -> Cost:
    return cost_of(ModelSpec.parse(model), usage, now=now)


def approximately(**parts: float) -> object:
    total = sum(parts.values())
    values = (parts.get(name, 0.0) for name in ("input", "output", "cache_read", "cache_write"))
    return pytest.approx((*values, total))


def parts(cost: Cost) -> tuple[float, ...]:
    return (cost.input, cost.output, cost.cache_read, cost.cache_write, cost.total)


def test_every_kind_of_token_has_its_price() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=2_000_000, cache_write=400_000)
    expected = approximately(input=3.0, output=1.5, cache_read=0.6, cache_write=1.5)
    assert parts(cost("anthropic:claude-sonnet-4-6", usage)) == expected


def test_cached_tokens_without_a_price_of_their_own_cost_as_input() -> None:
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=1_000_000)
    assert parts(cost("openai:gpt-5-pro", usage)) == approximately(input=15, cache_read=15, cache_write=15)
    assert cost("openai:gpt-4o", usage).cache_read == 1.25


def test_reasoning_is_output_and_is_not_charged_twice() -> None:
    usage = Usage(output=1_000_000, extra={"reasoning": 900_000})
    assert parts(cost("openai:gpt-5", usage)) == approximately(output=10)


def test_reasoning_with_a_price_of_its_own_is_taken_out_of_the_output() -> None:
    usage = Usage(output=1_000_000, extra={"reasoning": 600_000})
    assert parts(cost("openrouter:perplexity/sonar-deep-research", usage)) == approximately(output=0.4 * 8 + 0.6 * 3)
    usage = Usage(output=1_000_000, extra={"reasoning": 5_000_000})
    assert parts(cost("openrouter:perplexity/sonar-deep-research", usage)) == approximately(output=3)


def test_no_tokens_cost_nothing() -> None:
    assert cost("anthropic:claude-opus-5", Usage()) == Cost()


# -- prices that depend on the request -----------------------------------------------------------------------


def test_a_long_request_pays_the_higher_price_for_all_of_it() -> None:
    usual = cost("gemini:gemini-2.5-pro", Usage(input=200_000, output=1_000))
    long = cost("gemini:gemini-2.5-pro", Usage(input=200_001, output=1_000))
    assert parts(usual) == approximately(input=0.25, output=0.01)
    assert parts(long) == approximately(input=0.5000025, output=0.015)


def test_cached_tokens_count_for_the_length_of_a_request_and_output_does_not() -> None:
    usage = Usage(input=1, cache_read=200_000, cache_write=72_000)
    assert cost("openai:gpt-6-sol", usage).cache_read == pytest.approx(0.08)
    assert cost("openai:gpt-6-sol", Usage(input=272_000, output=100_000)).output == pytest.approx(1.0)


@pytest.mark.parametrize(("tokens", "price"), [(199_999, 2.0), (200_000, 4.0)])
def test_where_a_limit_is_reached_rather_than_passed_it_counts(tokens: int, price: float) -> None:
    assert cost("xai:grok-4.7", Usage(input=tokens)).input == pytest.approx(tokens * price / 1_000_000)


def test_an_announced_price_counts_from_its_day() -> None:
    usage = Usage(input=1_000_000)
    assert cost("gemini:gemini-4-argon", usage, at(2026, 11, 30, 23, 59)).input == 2.0
    assert cost("gemini:gemini-4-argon", usage, at(2026, 12, 1)).input == 4.0


@pytest.mark.parametrize(
    ("moment", "price"),
    [
        (at(2026, 11, 16, 0, 59), 0.15),
        (at(2026, 11, 16, 1, 0), 0.3),
        (at(2026, 11, 16, 4, 0), 0.15),
        (at(2026, 11, 16, 9, 59), 0.3),
        (at(2026, 11, 15, 9, 59), 0.15),
    ],
    ids=["before", "morning", "noon", "afternoon", "sunday"],
)
def test_deepseek_costs_more_in_working_hours(moment: Callable[[], datetime], price: float) -> None:
    assert cost("deepseek:deepseek-flash", Usage(input=1_000_000), moment).input == price


# -- models without a price ----------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["local", "ollama", "scripted"])
def test_models_on_this_machine_cost_nothing_and_need_no_warning(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert cost_of(ModelSpec(provider, "whatever"), Usage(input=1_000, output=1_000)) == Cost()
    assert not caplog.records


def test_an_unknown_model_costs_nothing_and_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    first, second = ModelSpec("anthropic", "claude-opuss-5"), ModelSpec("openai", "qqqq")
    for model in (first, first, second, second, first):
        assert cost_of(model, Usage(input=1_000, output=1_000)) == Cost()
    assert [(record.name, record.levelno) for record in caplog.records] == [("swink_agent", logging.WARNING)] * 2
    assert caplog.messages == [
        "no price is known for 'anthropic:claude-opuss-5': its cost counts as zero; "
        "the nearest name with a price is anthropic:claude-opus-5",
        "no price is known for 'openai:qqqq': its cost counts as zero",
    ]


def test_how_hard_a_model_thinks_makes_it_no_other_model(caplog: pytest.LogCaptureFixture) -> None:
    budgets = ThinkingBudgets({ThinkingLevel.HIGH: 10_000})
    plain = ModelSpec("nobody", "thinker")
    deep = ModelSpec("nobody", "thinker", ThinkingLevel.HIGH, budgets)
    assert cost_of(plain, Usage(output=5)) == cost_of(deep, Usage(output=5)) == Cost()
    assert len(caplog.records) == 1


# -- what holds for all of them ------------------------------------------------------------------------------

counts = st.integers(0, 10_000_000)
small = st.integers(0, 5_000)
known = st.sampled_from(MODELS).map(lambda info: ModelSpec(info.provider, info.model_id))


@st.composite
def usages(draw: st.DrawFn, tokens: st.SearchStrategy[int]) -> Usage:
    usage = Usage(*(draw(tokens) for _ in range(4)))
    reasoning = draw(st.integers(0, usage.output))
    return Usage(usage.input, usage.output, usage.cache_read, usage.cache_write, extra={"reasoning": reasoning})


@OFTEN
@given(known, usages(counts))
def test_a_cost_is_the_sum_of_its_parts_and_never_negative(model: ModelSpec, usage: Usage) -> None:
    cost = cost_of(model, usage)
    assert min(parts(cost)) >= 0
    assert cost.total == pytest.approx(sum(parts(cost)[:4]))
    assert (cost.total > 0) == bool(usage.input or usage.output or usage.cache_read or usage.cache_write)


@OFTEN
@given(known, usages(small), usages(small))
def test_below_a_tier_two_replies_cost_what_they_cost_together(model: ModelSpec, one: Usage, other: Usage) -> None:
    apart = cost_of(model, one, now=SUNDAY) + cost_of(model, other, now=SUNDAY)
    assert parts(cost_of(model, one + other, now=SUNDAY)) == pytest.approx(parts(apart))


@OFTEN
@given(known, usages(counts), usages(counts))
def test_more_tokens_never_cost_less(model: ModelSpec, one: Usage, other: Usage) -> None:
    assert cost_of(model, one + other, now=SUNDAY).total >= cost_of(model, one, now=SUNDAY).total


def test_the_worst_case_of_a_call_is_never_below_what_it_costs() -> None:
    for info in ModelCatalog.load().models():
        model = ModelSpec(info.provider, info.model_id)
        for tokens in (100, 250_000):
            usages = [Usage(input=tokens, output=50), Usage(cache_write=tokens, output=50), Usage(cache_read=tokens)]
            most, output = worst_case(model, tokens, 50)
            assert output == 50
            assert most is not None
            assert all(cost_of(model, usage).total <= most + 1e-12 for usage in usages), model


def test_the_worst_case_says_what_it_does_not_know() -> None:
    assert worst_case(ModelSpec("openai", "no-such-model"), 100, 50) == (None, 50)
    assert worst_case(ModelSpec("local", "anything"), 100, None) == (0.0, None)
    cost, output = worst_case(ModelSpec("anthropic", "claude-sonnet-4-5"), 100, None)
    assert cost
    assert output is not None
    assert output > 1000


@pytest.mark.parametrize(
    ("asked", "served", "priced"),
    [
        ("openai:gpt-4o", None, "openai:gpt-4o"),
        ("openai:gpt-4o", "gpt-4o-2024-08-06", "openai:gpt-4o"),
        ("openai:gpt-4o", "gpt-4o-mini", "openai:gpt-4o-mini"),
        ("openai:gpt-4o", "a-model-without-a-price", "openai:gpt-4o"),
        ("azure:our-deployment", "gpt-4o-2024-08-06", "azure:gpt-4o-2024-08-06"),
        ("openrouter:deepseek/deepseek-chat:free", "deepseek/deepseek-chat", "openrouter:deepseek/deepseek-chat:free"),
    ],
)
def test_a_reply_costs_what_the_model_costs_that_answered(asked: str, served: str | None, priced: str) -> None:
    assert priced_model(ModelSpec.parse(asked), served) == ModelSpec.parse(priced)
