"""Describes providers and finds their stream functions.

Providers are looked up in the entry-point group `swink_agent.providers`, so the core imports no adapter, and installing
a package adds a provider. The entry point has the provider's name; its object is a `ProviderDescription`, or any other
callable that takes the `ModelSpec` and returns a `StreamFn`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from .cancel import CancellationToken
from .errors import UnknownProvider
from .stream import AssistantMessageEvent, StreamFn, StreamOptions
from .texts.likeness import close_names
from .types import AgentContext, ModelSpec
from .values.model_info import ModelInfo
from .values.value import Value

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "swink_agent.providers"
_OURS = "swink_agent."
_OF_VARIABLES = ("key_variables", "url_variables", "credential_variables", "families")
_OF_NAMES = ("aliases", "prefixes")


class ProviderDescription(Value, frozen=True, kw_only=True):
    """Everything that is known about a provider before its adapter is loaded.

    Entry points of the group `swink_agent.providers` name one. Like any object of that group, it is a callable that
    takes a `ModelSpec` and returns a `StreamFn`.
    """

    name: str
    """As in `ModelSpec.provider`; the entry point has the same name."""
    make: Callable[[str | None], StreamFn]
    """Loads the adapter and makes its stream function for an address, or for the usual one if that is `None`."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key; the first that is set counts. Empty if it takes no key."""
    url_variables: tuple[str, ...] = ()
    """Environment variables that may hold the address; the first that is set counts. Empty if it cannot be changed."""
    needs_key: bool = True
    """Whether a request needs a key or other credentials."""
    credential_variables: tuple[str, ...] = ()
    """Environment variables that are set if there are other credentials, which the adapter itself reads."""
    keys_of: str = ""
    """The provider whose key it uses, if that is another one."""
    default_model: str = ""
    """The model to use if the user chose none; empty if only the user can know."""
    is_local: bool = False
    """Whether its models run on the user's own machines, and so cost nothing."""
    has_bare_address: bool = False
    """Whether its address may be written without a scheme, as `localhost:11434`."""
    families: tuple[str, ...] = ()
    """How the names of its models begin, to complete a model name without a provider. Only for names that no other
    provider is as likely to use."""
    models: tuple[ModelInfo, ...] = ()
    """Its models, with limits and prices, if the packaged catalog does not list them."""
    takes_documents: bool = False
    """Whether its adapter sends documents (PDF)."""

    def __post_init__(self) -> None:
        for owner, names in ((self, _OF_VARIABLES), *[(model, _OF_NAMES) for model in self.models]):
            for name in names:
                if isinstance(getattr(owner, name), str):
                    raise TypeError(f"{type(owner).__name__}.{name} must be a tuple of strings, not a string")

    def __call__(self, model: ModelSpec) -> StreamFn:
        """Makes the stream function for the usual address."""
        return self.make(None)

    @property
    def account(self) -> str:
        """The name under which its key is stored."""
        return self.keys_of or self.name


class ProviderStreamFn:
    """A stream function that calls the adapter of the model's own provider, which it makes on first use."""

    __slots__ = ("_adapters",)

    def __init__(self) -> None:
        self._adapters: dict[str, StreamFn] = {}

    def __repr__(self) -> str:
        return f"<stream function by provider; {', '.join(self._adapters) or 'none used yet'}>"

    def adapter(self, model: ModelSpec) -> StreamFn:
        """Returns the adapter of the model's provider. Raises `UnknownProvider`, which names the installed ones."""
        if model.provider not in self._adapters:
            point = entry_point_of(model.provider)
            if point is None:
                raise UnknownProvider(model.provider, _unknown(model, declared_names()))
            self._adapters[model.provider] = point.load()(model)
        return self._adapters[model.provider]

    def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        return self.adapter(model)(model, context, options, cancel)

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        """Whether the adapter of the model's provider can make replies fit the schema."""
        ask = getattr(self.adapter(model), "native_schema", None)
        return ask is not None and ask(model, schema, has_tools)

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        """Whether the model can search the web through its provider."""
        ask = getattr(self.adapter(model), "searches_web", None)
        return ask is not None and ask(model, has_tools)


def declared_names() -> list[str]:
    """Returns the names of the installed providers, without loading any."""
    return sorted(_declared())


def entry_point_of(name: str) -> EntryPoint | None:
    """Returns the entry point of a provider, or `None` if it is not installed."""
    return _declared().get(name)


def description_of(name: str) -> ProviderDescription | None:
    """Returns the description of a provider, or `None` if it is not installed, or is a plain callable without one.

    Raises `ValueError` if the description has another name than its entry point, and whatever loading its package
    raises.
    """
    point = entry_point_of(name)
    found: Any = None if point is None else point.load()
    if not isinstance(found, ProviderDescription):
        return None
    if found.name != name:
        raise ValueError(f"the provider that is declared as {name!r} describes itself as {found.name!r}")
    return found


def _declared() -> dict[str, EntryPoint]:
    """Returns the entry points by name. No package can replace one of ours: it would receive the user's keys."""
    from importlib.metadata import entry_points  # on use: reading what is installed takes milliseconds

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name not in found or point.value.startswith(_OURS):
            found[point.name] = point
    return found


def nearest_providers(name: str, known: list[str] | None = None) -> list[str]:
    """Returns the installed providers with the most similar names, the best first."""
    return close_names(name.strip().lower(), declared_names() if known is None else known, n=3)


def parsed_model(text: str) -> ModelSpec:
    """Parses `provider:model`. Raises `ValueError` for anything else, with a guess at what the user meant."""
    try:
        return ModelSpec.parse(text)
    except ValueError:
        meant = nearest_model(text)
        if meant is None:
            raise
    raise ValueError(f"{text!r} does not name a model: write provider:model; did you mean {meant}?")


def nearest_model(text: str) -> str | None:
    """Guesses which `provider:model` the user meant; returns `None` if that is unclear.

    `openai/gpt-4o` and `gpt-4o` are `openai:gpt-4o`; `openai:`, `openai` and `opnai` are that provider's first model;
    `opnai:gpt-4o` gets the name corrected. Loads only the descriptions of this package's own providers.
    """
    text = text.strip()
    known = declared_names()
    for mark in ":/":
        provider, found, model_id = [part.strip() for part in text.partition(mark)]
        if found and provider.lower() in known:
            return f"{provider.lower()}:{model_id}" if model_id else _first_model(provider.lower())
    name = text.lower().rstrip(":/")
    if name in known:
        return _first_model(name)
    for provider, description in _own_descriptions():
        if name.startswith(description.families):
            return f"{provider}:{text}"
    provider, mark, model_id = [part.strip() for part in text.replace("/", ":", 1).partition(":")]
    near = nearest_providers(provider, known)
    if not near:
        return None
    return f"{near[0]}:{model_id}" if model_id else _first_model(near[0])


def _first_model(provider: str) -> str | None:
    first = next((description.default_model for name, description in _own_descriptions() if name == provider), "")
    return f"{provider}:{first}" if first else None


def _own_descriptions() -> Iterator[tuple[str, ProviderDescription]]:
    """Yields the descriptions of this package; any other is loaded only when the user names it."""
    for name, point in _declared().items():
        if point.value.startswith(_OURS):
            found = point.load()
            if isinstance(found, ProviderDescription):
                yield name, found


def _unknown(model: ModelSpec, known: list[str]) -> str:
    provider = model.provider
    near = nearest_providers(provider, known)
    meant = None if near else nearest_model(str(model))
    if meant is not None:
        near = [meant]
    hint = f"did you mean {' or '.join(near)}? There are: " if near else "there are: "
    return f"no provider {provider!r}; {hint}{', '.join(known) or 'none'}. Others: pass stream_fn, or install a package"
