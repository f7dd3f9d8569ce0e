"""Writes src/swink_agent/adapters/catalog.json: the models that `ModelCatalog` knows, with their prices.

Run it from the root of the repository, in an environment that has this package and genai-prices:

    python scripts/make_catalog.py          # writes the file
    python scripts/make_catalog.py --check  # checks whether the file is up to date

Names, context windows and prices come from genai-prices (its facts; at run time the library does not need it). `FACTS`
below has what that package lacks: output limits, abilities, and windows that it rounds, each from the provider's own
documentation, or from models.dev if the provider publishes none. A fact that could not be found is left out.
`CORRECTIONS` lists where genai-prices is out of date, with reasons.

The same genai-prices, the same `AS_OF` and the same tables give the same bytes. To bring the prices up to date, install
a newer genai-prices, move `AS_OF`, run this, and read the difference.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from genai_prices import types as source
from genai_prices.data import providers as source_providers

from swink_agent.adapters.catalog import ModelCatalog
from swink_agent.core.values.model_info import ModelCapabilities, ModelInfo, ModelPrices, PriceTier

AS_OF = date(2026, 11, 15)
TARGET = Path(__file__).parents[1] / "src/swink_agent/adapters/catalog.json"

# -- which models ----------------------------------------------------------------------------------------------

# Our name of a provider, the name in genai-prices, the models that are taken. Bare names are looked for in this order.
PROVIDERS = [
    ("anthropic", "anthropic", r"claude-(?!2|v1)"),
    (
        "openai",
        "openai",
        r"gpt-3\.5-turbo(-\d{4})?$|gpt-4(-turbo|\.1.*|o|o-mini|o-2024-05-13)?$|gpt-[5-9]|gpt-chat-latest$"
        r"|o1(-pro)?$|o3(-mini|-pro)?$|o4-mini$|codex-mini$|ft:",
    ),
    ("gemini", "google", r"gemini-(2\.0|2\.5-(pro|flash|flash-lite)$|[3-9])"),
    ("xai", "x-ai", r"grok-"),
    (
        "mistral",
        "mistral",
        r"(codestral|devstral|magistral|mistral-nemo|pixtral|mistral-(large|medium-[3-9l]|small-[2-9l]))"
        r"(?!.*b-instruct)|ministral-\d+b-(2512|latest)|mistral-small-3\.2",
    ),
    ("deepseek", "deepseek", r"deepseek-(flash|v4)"),
    ("groq", "groq", r"openai/|qwen/|moonshotai/|meta-llama/llama-4|llama-3\.1-8b-instant|llama-3\.3-70b-versatile"),
    (
        "bedrock",
        "aws",
        r"(global\.|regional\.)?(amazon\.nova|anthropic|deepseek|google|meta\.llama(3-[123]|4)|nvidia|openai|qwen"
        r"|writer)|mistral\.(devstral|magistral|ministral|mistral-large|pixtral)",
    ),
    ("azure", "azure", r"o(1|3-mini|3-2025-04-16|4-mini)$|phi-4"),
    (
        "openrouter",
        "openrouter",
        r"anthropic/claude-(fable|haiku|opus|sonnet)|openai/(gpt-(4\.1|4o(-mini)?$|[5-9]|oss)|o[34](-mini|-pro)?$)"
        r"|google/(gemini-(2\.5-(pro|flash|flash-lite)$|[3-9])|gemma-4)|x-ai/grok-(4|code|build)"
        r"|deepseek/deepseek-(chat$|r1$|v3\.2$|v[4-9])|moonshotai/kimi-k|z-ai/glm-(4\.7|5)"
        r"|minimax/minimax-m[2-9][.\d]*$"
        r"|mistralai/(codestral-2508|devstral|mistral-(large-|medium-3[.-]|nemo|small-2603))"
        r"|qwen/qwen3(-coder(-next|-plus)?$|-max$|\.[5-9]-(flash|plus|max|35b|122b|397b))"
        r"|meta/muse-(spark-1\.3|spark-open|wonder)$|meta-llama/llama-(3\.3|4)|amazon/nova"
        r"|perplexity/sonar|xiaomi/mimo-v2\.[5-9](-flash|-pro)?$",
    ),
]
# No conversation in text, or a price for something else than tokens.
NOT_FOR_AGENTS = re.compile(
    r"audio|batch|banana|embed|(?<!safe)guard|image|live|moderation|ocr|realtime|robotics|(?<!re)search|sonic"
    r"|transcribe|tts|voice|voxtral|:extended|:free|contributor"
)
# Names that say nothing new, or too little: a zero for a version, half a date, another provider's way to write.
NO_NAME = re.compile(r"5\.0|sonnet-4-2025$|flash-0$|thinking$|^x-ai/")

# -- what genai-prices does not know -----------------------------------------------------------------------------

# A pattern over "provider:model" with dashes for dots; context window; output limit; what it can do. The first that
# fits counts, also if it says nothing. What it can do is complete where it is given: what is not in it, it cannot do.
FACTS: list[tuple[str, int | None, int | None, str | None]] = [
    # platform.claude.com/docs/en/about-claude/models/overview and its model pages; Bedrock's own table for Haiku 3.5
    (r"claude-(fable|haiku|opus|sonnet)-5", None, 128_000, "tools images thinking"),
    (r"claude-(opus-4-[678]|sonnet-4-6)", None, 128_000, "tools images thinking"),
    (r"claude-(haiku|opus|sonnet)-4-5", None, 64_000, "tools images thinking"),
    (r"claude-opus-4", None, 32_000, "tools images thinking"),
    (r"claude-sonnet-4|claude-3-7-sonnet", None, 64_000, "tools images thinking"),
    (r"bedrock:.*claude-3-5-haiku", None, 8_192, "tools"),
    (r"claude-3-5", None, 8_192, "tools images"),
    (r"claude-3", None, 4_096, "tools images"),
    # developers.openai.com/api/docs/models
    (r"gpt-\S*cyber|gpt-5-5-chat", None, None, None),
    (r"gpt-5(-[12])?-chat", 128_000, 16_384, None),
    (r"gpt-5-3($|-chat)", 128_000, None, None),
    (r"bedrock:.*gpt-(5-[45]$)", None, None, "tools images thinking"),
    (r"gpt-5-(4|5|6)(?!-mini|-nano)|gpt-6", 1_050_000, 128_000, "tools images thinking"),
    (r"gpt-5-pro", None, 272_000, "tools images thinking"),
    (r"gpt-5", None, 128_000, "tools images thinking"),
    (r"gpt-4-1", 1_047_576, 32_768, "tools images"),
    (r"gpt-4o-2024-05-13|gpt-4-turbo", None, 4_096, "tools images"),
    (r"gpt-4o", None, 16_384, "tools images"),
    (r"openai:gpt-4$", None, 8_192, "tools"),
    (r"openai:gpt-3-5-turbo", None, 4_096, "tools"),
    (r"[:/]o3-mini|codex-mini", None, 100_000, "tools thinking"),
    (r"[:/]o[134](-|$)", None, 100_000, "tools images thinking"),
    (r"groq:openai/gpt-oss", None, 65_536, "tools thinking"),
    (r"gpt-oss-(20b|120b)", None, None, "tools thinking"),
    # ai.google.dev/gemini-api/docs/models
    (r"gemini-(2-5|3|4)", 1_048_576, 65_536, "tools images thinking"),
    (r"gemini-2-0", 1_048_576, 8_192, "tools images"),
    # docs.x.ai/developers/models, which gives no output limits
    (r"grok-4-20-multi-agent|grok-build|grok-2", None, None, None),
    (r"grok-4-(1-)?fast-non-reasoning", None, None, "tools images"),
    (r"grok-4", None, None, "tools images thinking"),
    (r"grok-code-fast|grok-3-mini", None, None, "tools thinking"),
    (r"grok-3", None, None, "tools"),
    # docs.mistral.ai/models, which gives no output limits
    (r"bedrock:mistral", None, None, None),
    (r"mistral-(large-4|medium-3-5|small-2603)", None, None, "tools images thinking"),
    (r"mistral-(medium|small)-latest", 262_144, None, "tools images thinking"),
    (r"magistral", 128_000, None, "tools images thinking"),
    (r"mistral-(large-2512|medium-3)|ministral-\d+b-2512", None, None, "tools images"),
    (r"ministral-8b-latest", 262_144, None, "tools images"),
    (r"mistral-small-3-2|pixtral", 128_000, None, "tools images"),
    (r"mistral-(large|nemo)$|devstral-small", 128_000, None, "tools"),
    (r"codestral|devstral", None, None, "tools"),
    # api-docs.deepseek.com/quick_start/pricing
    (r"deepseek:deepseek-(v4-)?flash", None, 384_000, "tools images thinking"),
    (r"deepseek:deepseek-v4-pro", None, 384_000, "tools thinking"),
    # console.groq.com/docs/models
    (r"groq:llama-3-3-70b", 131_072, 32_768, "tools"),
    (r"groq:llama-3-1-8b", 131_072, None, "tools"),
    (r"groq:meta-llama/llama-4", 131_072, 8_192, "tools images"),
    (r"groq:qwen/qwen3-32b", None, 40_960, "tools thinking"),
    (r"groq:qwen/qwen3-8", None, 16_384, "tools images thinking"),
    (r"groq:moonshotai/kimi-k2", None, None, "tools"),
    # docs.aws.amazon.com/bedrock: supported models and model features
    (r"bedrock:.*nova-2-lite", None, 64_000, "tools images thinking"),
    (r"bedrock:.*nova-(lite|pro|premier)", None, None, "tools images"),
    (r"bedrock:.*nova-micro", None, None, "tools"),
]

# mistral-large-2411 was retired on 2026-05-31, so the undated names mean Large 3 (docs.mistral.ai); the small
# Ministral's newest is that of the others. The previews of Gemini 2.5 Pro are this model, and its voices are not.
CORRECTIONS: dict[str, dict[str, Any]] = {
    "mistral:mistral-large": {"model_id": "mistral-large-2411", "aliases": ("mistral-large-2407",)},
    "mistral:mistral-large-2512": {"aliases": ("mistral-large", "mistral-large-latest")},
    "mistral:ministral-3b-2512": {"aliases": ("ministral-3b-latest",)},
    "mistral:ministral-14b-2512": {"aliases": ("ministral-14b-latest",)},
    "mistral:magistral-medium": {"prefixes": ("magistral-medium-2",)},
    "mistral:magistral-small": {"prefixes": ("magistral-small-2",)},
    "gemini:gemini-2.5-pro": {"prefixes": ("gemini-2.5-pro-exp-", "gemini-2.5-pro-preview-0")},
    "deepseek:deepseek-v4-flash": {"prefixes": ("deepseek-v4-flash-0",)},
    "deepseek:deepseek-v4-pro": {"prefixes": ("deepseek-v4-pro-0",)},
    "openai:o4-mini": {"name": "o4-mini"},
    "gemini:gemini-2.0-flash": {"name": "Gemini 2.0 Flash"},
    "gemini:gemini-2.0-flash-lite": {"name": "Gemini 2.0 Flash-Lite"},
}

# -- making the entries ----------------------------------------------------------------------------------------


def entries() -> Iterator[ModelInfo]:
    by_id = {provider.id: provider for provider in source_providers}
    for ours, theirs, pattern in PROVIDERS:
        found = [model for model in by_id[theirs].models if is_wanted(model, pattern)]
        models = [info for model in found for info in apart(entry(ours, model))]
        yield from sorted(models, key=lambda info: info.model_id)


def is_wanted(model: source.ModelInfo, pattern: str) -> bool:
    if not re.match(pattern, model.id) or NOT_FOR_AGENTS.search(model.id):
        return False
    prices = standing_prices(model)
    return bool(prices.input_mtok) and bool(prices.output_mtok)


def entry(provider: str, model: source.ModelInfo) -> ModelInfo:
    model_id = model.id.removeprefix("regional.").rstrip("-")
    window, output, abilities = facts(f"{provider}:{model_id}")
    prices = model_prices(model)
    names = exact_names(model.match)
    if provider == "bedrock":
        names = [bedrock_name(name) for name in names]
    info = ModelInfo(
        provider=provider,
        model_id=model_id,
        name=display_name(model, model_id),
        context_window=window or model.context_window,
        output_limit=output,
        capabilities=capabilities(abilities, prices),
        prices=prices,
        aliases=tuple(name for name in names if name and not NOT_FOR_AGENTS.search(name) and not NO_NAME.search(name)),
        prefixes=tuple(sorted(prefixes(model.match))),
    )
    return msgspec.structs.replace(info, **CORRECTIONS.get(str(info), {}))


def apart(info: ModelInfo) -> Iterator[ModelInfo]:
    """The model, and its chat variant as another one: it has the price but not the limits."""
    chats = tuple(name for name in info.aliases if "-chat" in name)
    if info.provider != "openai" or info.model_id in ("gpt-5.3", "gpt-chat-latest"):
        chats = ()  # the two are chat models themselves
    others = tuple(name for name in info.aliases if name not in chats)
    yield without_needless_names(msgspec.structs.replace(info, aliases=others))
    if chats:
        model_id = f"{info.model_id}-chat-latest"
        window, output, abilities = facts(f"openai:{model_id}")
        chat = ModelInfo(
            provider="openai",
            model_id=model_id,
            name=f"{info.name} Chat",
            context_window=window,
            output_limit=output,
            capabilities=capabilities(abilities, info.prices),
            prices=info.prices,
            aliases=chats,
        )
        yield without_needless_names(chat)


def display_name(model: source.ModelInfo, model_id: str) -> str:
    if model.name:
        return re.sub(r"^gpt ", "GPT-", model.name)
    if "claude" not in model_id:
        return re.sub(r"^gpt-", "GPT-", re.sub(r"-(pro|cyber)$", lambda end: f" {end[1].title()}", model_id))
    words = re.sub(r"^(global\.)?anthropic\.|-(v\d(:0)?|\d{8})(?=-|$)", "", model_id)
    return re.sub(r"(?<=\d)-(?=\d)", ".", words).replace("-", " ").title()


def facts(name: str) -> tuple[int | None, int | None, str | None]:
    for pattern, window, output, abilities in FACTS:
        if re.search(pattern, name.replace(".", "-")):
            return window, output, abilities
    return None, None, None


def capabilities(abilities: str | None, prices: ModelPrices) -> ModelCapabilities:
    caching = True if prices.cache_read is not None else None
    if abilities is None:
        return ModelCapabilities(caching=caching)
    return ModelCapabilities("tools" in abilities, "images" in abilities, "thinking" in abilities, caching)


# -- names -----------------------------------------------------------------------------------------------------


def exact_names(match: Any) -> list[str]:
    """The names that the rules spell out; those for dates are left to the catalog, which knows dates."""
    if isinstance(match, source.ClauseOr):
        return [name for clause in match.or_ for name in exact_names(clause)]
    if isinstance(match, source.ClauseAnd):
        return [name for clause in match.and_ for name in exact_names(clause)]
    if isinstance(match, source.ClauseEquals):
        return [match.equals]
    if isinstance(match, source.ClauseStartsWith):
        return [] if match.starts_with.startswith("ft:") else [match.starts_with.rstrip("-@")]
    if isinstance(match, source.ClauseEndsWith):
        return [match.ends_with]
    if isinstance(match, source.ClauseContains):
        return [match.contains]
    return []


def prefixes(match: Any) -> list[str]:
    """What stays a prefix: fine-tuned models carry the names of their owners."""
    if isinstance(match, source.ClauseOr):
        return [name for clause in match.or_ for name in prefixes(clause)]
    is_prefix = isinstance(match, source.ClauseStartsWith) and match.starts_with.startswith("ft:")
    return [match.starts_with] if is_prefix else []


def bedrock_name(name: str) -> str:
    """The name without its region, which the catalog takes off itself; nothing if it is not one of Bedrock's."""
    name = re.sub(r"^(us|us-gov|eu|apac|au|in|jp)\.", "", name)
    return name if re.match(r"(global\.)?[a-z]+\.", name) else ""


def without_needless_names(info: ModelInfo) -> ModelInfo:
    """The entry without those aliases that lead to it anyway."""
    bare = msgspec.structs.replace(info, aliases=())
    kept: list[str] = []
    for alias in sorted(set(info.aliases), key=lambda name: (len(name), name)):
        catalog = ModelCatalog([msgspec.structs.replace(bare, aliases=tuple(kept))])
        if catalog.find(f"{info.provider}:{alias}") is None:
            kept.append(alias)
    return msgspec.structs.replace(bare, aliases=tuple(sorted(kept)))


# -- prices ----------------------------------------------------------------------------------------------------

FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "reasoning": "output_reasoning_mtok",
}


def conditions(model: source.ModelInfo) -> list[source.ConditionalPrice]:
    return model.prices if isinstance(model.prices, list) else [source.ConditionalPrice(prices=model.prices)]


def standing_prices(model: source.ModelInfo) -> source.ModelPrice:
    """The prices on the day, at an hour for which no others are given."""
    prices = conditions(model)[0].prices
    for condition in conditions(model):
        rule = condition.constraint
        if isinstance(rule, source.StartDateConstraint) and rule.start_date <= AS_OF:
            prices = condition.prices
    return prices


def model_prices(model: source.ModelInfo) -> ModelPrices:
    standing = standing_prices(model)
    tiers = list(token_tiers(standing))
    for condition in conditions(model):
        rule = condition.constraint
        if isinstance(rule, source.StartDateConstraint) and rule.start_date > AS_OF:
            tiers.append(PriceTier(**numbers(condition.prices), since=rule.start_date))
            tiers.extend(token_tiers(condition.prices, since=rule.start_date))
        if isinstance(rule, source.TimeOfDateConstraint):
            hours = (minutes(rule.start_time), minutes(rule.end_time))
            tiers.append(PriceTier(**numbers(condition.prices), hours=hours))
    return ModelPrices(**numbers(standing), tiers=tuple(tiers))


def token_tiers(prices: source.ModelPrice, since: date | None = None) -> Iterator[PriceTier]:
    tiered = [value for value in prices.__dict__.values() if isinstance(value, source.TieredPrices)]
    for start in sorted({tier.start for value in tiered for tier in value.tiers}):
        yield PriceTier(**numbers(prices, start), above=start, since=since)


def numbers(prices: source.ModelPrice, start: int = -1) -> dict[str, Any]:
    """The prices for requests that are just above `start` tokens."""
    found: dict[str, float] = {}
    for ours, theirs in FIELDS.items():
        value = getattr(prices, theirs, None)
        if isinstance(value, source.TieredPrices):
            reached = [tier.price for tier in value.tiers if tier.start <= start]
            value = reached[-1] if reached else value.base
        if value is not None:
            found[ours] = round(float(value), 6)
    return found


def minutes(moment: time) -> int:
    utc = datetime.combine(AS_OF, moment).astimezone(UTC) if moment.tzinfo else moment
    return utc.hour * 60 + utc.minute


# -- the file --------------------------------------------------------------------------------------------------


def written(models: Iterable[ModelInfo]) -> bytes:
    lines = b",\n".join(msgspec.json.encode(info) for info in models)
    head = msgspec.json.encode({"source": f"genai-prices {version('genai-prices')}", "as_of": AS_OF})
    return head[:-1] + b',"models":[\n' + lines + b"\n]}\n"


def main() -> int:
    models = list(entries())
    ModelCatalog(models)  # raises if two models claim one name
    data = written(models)
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.read_bytes() == data else 1
    TARGET.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
