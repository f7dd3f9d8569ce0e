"""The catalog of known models: their limits, capabilities and prices.

The facts are in `catalog.json`, which `scripts/make_catalog.py` writes and which is read on first use. Each of a
model's names finds its entry. `prices` calculates the cost of a reply.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import msgspec

from swink_agent.core.types import ModelSpec
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.model_info import ModelInfo, ModelPrices
from swink_agent.core.values.value import Value

log = logging.getLogger("swink_agent")

# -- the file ----------------------------------------------------------------------------------------------


class _CatalogFile(Value, frozen=True):
    models: tuple[ModelInfo, ...]


@cache
def _packaged() -> ModelCatalog:
    from importlib.resources import files  # on use: it loads a good part of the standard library

    data = files("swink_agent.adapters").joinpath("catalog.json").read_bytes()
    return ModelCatalog(json_decoder(_CatalogFile).decode(data).models, others=_described)


@cache
def _described(provider: str) -> ModelCatalog | None:
    """Returns the models that an installed provider's description lists, or `None` if its package is broken."""
    from swink_agent.core.providers import description_of

    from .registry import PROVIDERS

    if provider in [ours.name for ours in PROVIDERS]:
        return None  # these list none; avoids reading the entry points
    try:
        description = description_of(provider)
        return None if description is None or not description.models else ModelCatalog(description.models)
    except Exception as error:
        log.warning("the models of the provider %r are not known: it cannot be loaded: %r", provider, error)
        return None


# -- finding a model -----------------------------------------------------------------------------------------


class ModelCatalog:
    """Models by name; immutable. `ModelCatalog.load()` returns the packaged one.

    `others` returns the catalog of a provider that is not in this one. That of the packaged catalog returns the models
    in the `ProviderDescription` of an installed provider.
    """

    __slots__ = ("_models", "_names", "_others", "_prefixes")

    def __init__(
        self, models: Iterable[ModelInfo], *, others: Callable[[str], ModelCatalog | None] | None = None
    ) -> None:
        """Raises `ValueError` if two models of a provider claim one name."""
        self._models = tuple(models)
        self._others = others
        self._names: dict[str, dict[str, ModelInfo]] = {}
        self._prefixes: dict[str, list[tuple[str, ModelInfo]]] = {}
        for info in self._models:
            names = self._names.setdefault(info.provider, {})
            for name in (info.model_id, *info.aliases):
                if names.setdefault(_key(name), info) is not info:
                    raise ValueError(f"{info} and {names[_key(name)]} are both called {name}")
            prefixes = self._prefixes.setdefault(info.provider, [])
            prefixes.extend((_key(prefix), info) for prefix in info.prefixes)
        for names in self._names.values():
            # A model is also found without its date, unless another one has that name; the last of several counts.
            names |= {short: info for key, info in names.items() for short in _without_versions(key)} | names
        for prefixes in self._prefixes.values():
            prefixes.sort(key=lambda entry: -len(entry[0]))

    @classmethod
    def load(cls) -> ModelCatalog:
        """Returns the packaged catalog, which is read once in a process."""
        return _packaged()

    def __repr__(self) -> str:
        return f"<ModelCatalog of {len(self._models)} models>"

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers whose models are listed."""
        return tuple(self._names)

    def models(self, provider: str | None = None) -> tuple[ModelInfo, ...]:
        """All models, or those of one provider."""
        if provider is None:
            return self._models
        provider = _canonical(provider)
        if (other := self._other(provider)) is not None:
            return other.models(provider)
        return tuple([info for info in self._models if info.provider == provider])

    def find(self, model: ModelSpec | str) -> ModelInfo | None:
        """Finds a model by its exact name, without date and version, by a prefix, or at its original provider.

        Case does not matter, and dots equal dashes. A string is `provider:model`, or only a model's name, which is
        searched for at every provider. The last step is for providers that host models of others, such as
        `anthropic/claude-…` at OpenRouter or `us.anthropic.claude-…-v1:0` at Bedrock.
        """
        provider, name = self._split(model)
        if (other := self._other(provider)) is not None:
            return other._find_at(provider, name)
        for place in [provider] if provider else self._names:
            if info := self._find_at(place, name):
                return info
        return None

    def nearest(self, name: str, provider: str | None = None, count: int = 3) -> tuple[str, ...]:
        """Returns the most similar names as `provider:model`, the best first, for suggestions."""
        from swink_agent.core.texts.likeness import close_names  # on use: for error messages

        named, name = self._split(name)
        provider = _canonical(provider) if provider else named
        if (other := self._other(provider)) is not None:
            return other.nearest(name, provider, count)
        places = (provider, *_ORIGINS["azure"]) if provider == "azure" else (provider,) if provider else self.providers
        names = {key: info for place in reversed(places) for key, info in self._names.get(place, {}).items()}
        # Several names may belong to one model, so more of them are requested than needed.
        close = [names[key] for key in close_names(_key(name), names, n=max(1, 4 * count))]
        return tuple(dict.fromkeys(f"{provider or info.provider}:{info.model_id}" for info in close))[: max(0, count)]

    def _split(self, model: ModelSpec | str) -> tuple[str, str]:
        """Splits provider and name; the provider is empty if the text names none."""
        if isinstance(model, ModelSpec):
            return _canonical(model.provider), model.model_id
        provider, colon, name = model.partition(":")
        provider = _canonical(provider)
        # A colon alone proves nothing: Bedrock's own names end in ":0".
        is_provider = colon and (provider in self._names or self._other(provider) is not None)
        return (provider, name.strip()) if is_provider else ("", model.strip())

    def _other(self, provider: str) -> ModelCatalog | None:
        """Returns the catalog of a provider that is not listed here, if `others` has one."""
        if not provider or self._others is None or provider in self._names or provider in _ORIGINS:
            return None
        return self._others(provider)

    def _find_at(self, provider: str, name: str) -> ModelInfo | None:
        if provider == "openrouter" and name.endswith(":free"):
            info = self._find_at(provider, name.removesuffix(":free"))
            return info and msgspec.structs.replace(info, model_id=name, prices=ModelPrices(), aliases=(), prefixes=())
        for place, candidate in _candidates(provider, name):
            if info := self._listed(place, candidate):
                return info
        return None

    def _listed(self, provider: str, name: str) -> ModelInfo | None:
        names, key = self._names.get(provider, {}), _key(name)
        for shorter in _without_versions(key):
            if info := names.get(shorter):
                return info
        for prefix, info in self._prefixes.get(provider, ()):
            if key.startswith(prefix):
                return info
        return None


# -- names ---------------------------------------------------------------------------------------------------

_SAME_PROVIDER = {
    "amazon": "bedrock",
    "aws": "bedrock",
    "google": "gemini",
    "mistralai": "mistral",
    "openai-responses": "openai",
    "x-ai": "xai",
}
_ORIGINS = {
    "azure": ("openai", "anthropic", "deepseek", "xai", "mistral"),
    "bedrock": ("anthropic", "openai", "deepseek", "mistral"),
    "openrouter": ("anthropic", "openai", "gemini", "xai", "mistral", "deepseek"),
}
_VERSION = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d\d-\d\d|\d{3}|latest|preview)|-v\d+(?::\d+)?(?::\d+k)?|:\d+)$")
_REGION = re.compile(r"^(?:global|us|us-gov|eu|apac|au|ca|in|jp|sa)\.")
_VARIANT = re.compile(r":(?:beta|exacto|floor|free|nitro|online|thinking)$")
_REVISION = re.compile(r"-v\d+:\d+(?::\d+k)?$")


_DATE = re.compile(r"-(?:\d{4}-\d\d-\d\d|\d{8}|\d{4}|latest)$")


def is_same_model(asked: ModelSpec | str, served: ModelSpec | str) -> bool:
    """Whether a provider that was asked for one model answered with it, by their names.

    Names are the same if they differ only in the provider before them (`openai:`, `anthropic/`, `us.anthropic.`), in a
    date or `-latest` at the end, or in the route of a host (`:free`), or if they are aliases in the catalog.
    """
    one, other = _bare(asked), _bare(served)
    return one == other or not _called().get(one, frozenset()).isdisjoint(_called().get(other, ()))


@cache
def _called() -> dict[str, frozenset[int]]:
    """Which of the catalog's models have a name, by their positions."""
    found: dict[str, set[int]] = {}
    for position, info in enumerate(ModelCatalog.load().models()):
        for name in (info.model_id, *info.aliases):
            found.setdefault(_bare(name), set()).add(position)
    return {name: frozenset(positions) for name, positions in found.items()}


def _bare(model: ModelSpec | str) -> str:
    """The name of a model without its provider, date and route."""
    if isinstance(model, ModelSpec):
        name = model.model_id
    else:
        from .registry import PROVIDERS

        provider, colon, rest = model.partition(":")
        named = {*_SAME_PROVIDER, *[item.name for item in PROVIDERS], *ModelCatalog.load().providers, "local"}
        name = rest if colon and provider.strip().lower() in named else model  # the colon may be that of a tag
    name = _REGION.sub("", _VARIANT.sub("", name.strip().lower().rpartition("/")[2]))
    vendor, dot, rest = name.partition(".")
    name = rest if dot and _canonical(vendor) in _ORIGINS["bedrock"] else name
    key = _key(_REVISION.sub("", name))
    while (shorter := _DATE.sub("", key)) != key:
        key = shorter
    return key


def _canonical(provider: str) -> str:
    provider = provider.strip().lower()
    return _SAME_PROVIDER.get(provider, provider)


def _key(name: str) -> str:
    return name.strip().lower().replace(".", "-")


def _without_versions(key: str) -> Iterator[str]:
    """Yields the name, then the name with one more date or version removed from its end each time."""
    yield key
    while (shorter := _VERSION.sub("", key, count=1)) != key:
        key = shorter
        yield key


def _candidates(provider: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields the providers and names under which the model may be listed, the best first."""
    yield provider, name
    if provider == "openrouter":
        name = _VARIANT.sub("", name)
        yield provider, name
        vendor, _, rest = name.partition("/")
        yield from _at_origin(provider, vendor, rest)
    elif provider == "bedrock":
        name = name.rpartition("/")[2].lower()  # it may be the end of an ARN
        yield provider, name
        name = _REGION.sub("", name)
        yield provider, name
        vendor, _, rest = name.partition(".")
        yield from _at_origin(provider, vendor, rest)
    elif provider == "azure":
        yield from [(origin, name) for origin in _ORIGINS["azure"]]


def _at_origin(host: str, vendor: str, name: str) -> Iterator[tuple[str, str]]:
    origin = _canonical(vendor)
    if name and origin in _ORIGINS[host]:
        yield origin, name
