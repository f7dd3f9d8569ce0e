"""Providers: what is to be known of one, and how its stream function is found.

Owns the description of a provider and the look-up in the entry-point group `swink_agent.providers`, so that the core
imports no adapter and anyone adds one by installing a package. An entry point's name is the provider's; its object is
a `ProviderDescription`, or any other callable that takes the `ModelSpec` and returns a `StreamFn`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from .cancel import CancellationToken
from .errors import UnknownProvider
from .stream import AssistantMessageEvent, StreamFn, StreamOptions
from .types import AgentContext, ModelSpec
from .values import hints
from .values.value import Value

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "ProviderDescription", "ProviderStreamFn", "declared_names", "description_of", "entry_point_of"]

GROUP = "swink_agent.providers"
_OURS = "swink_agent."
_OF_VARIABLES = ("key_variables", "url_variables", "credential_variables")
_OF_NAMES = ("aliases", "prefixes")


class ProviderDescription(Value, frozen=True, kw_only=True):
    """All that is to be known of a provider before its adapter is loaded: one for each, read by whoever needs it.

    It is what an entry point of the group `swink_agent.providers` names, and a callable from a `ModelSpec` to a
    `StreamFn` like any other of that group.
    """

    name: str
    """As in `ModelSpec.provider`, and as the entry point is called."""
    make: Callable[[str | None], StreamFn]
    """Makes the stream function for an address, or for the usual one if that is `None`. It loads the adapter."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key, the first that is set counting. None if it takes no key."""
    url_variables: tuple[str, ...] = ()
    """Environment variables that may hold the address, likewise. None if it cannot be asked elsewhere."""
    needs_key: bool = True
    """Whether it can only be asked with a key, or with other credentials."""
    credential_variables: tuple[str, ...] = ()
    """Variables that show that there are credentials of another kind, which the adapter finds by itself."""
    keys_of: str = ""
    """The provider whose key it uses, if that is not its own."""
    default_model: str = ""
    """What is asked when nobody chose; none where only the user can know."""
    is_local: bool = False
    """Whether its models run on the user's own machines: they cost nothing."""
    has_bare_address: bool = False
    """Whether its address may be written without a scheme, as `localhost:11434`."""
    models: tuple[hints.ModelInfo, ...] = ()
    """The models that are known, with limits and prices, where the packaged catalog does not list them."""

    def __post_init__(self) -> None:
        for owner, names in ((self, _OF_VARIABLES), *[(model, _OF_NAMES) for model in self.models]):
            for name in names:
                if isinstance(getattr(owner, name), str):
                    raise TypeError(f"{type(owner).__name__}.{name} is a tuple of strings, and not one of them")

    def __call__(self, model: ModelSpec) -> StreamFn:
        """The stream function at the usual address."""
        return self.make(None)

    @property
    def account(self) -> str:
        """The name under which its key is kept."""
        return self.keys_of or self.name


class ProviderStreamFn:
    """A stream function that asks the adapter of the model's own provider, found and made on first use."""

    __slots__ = ("_adapters",)

    def __init__(self) -> None:
        self._adapters: dict[str, StreamFn] = {}

    def __repr__(self) -> str:
        return f"<stream function by provider; {', '.join(self._adapters) or 'none used yet'}>"

    def adapter(self, model: ModelSpec) -> StreamFn:
        """The adapter of the model's provider. Raises `UnknownProvider`, which names the providers there are."""
        if model.provider not in self._adapters:
            point = entry_point_of(model.provider)
            if point is None:
                raise UnknownProvider(model.provider, _unknown(model.provider, declared_names()))
            self._adapters[model.provider] = point.load()(model)
        return self._adapters[model.provider]

    def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        return self.adapter(model)(model, context, options, cancel)


# -- what is installed ---------------------------------------------------------------------------------------


def declared_names() -> list[str]:
    """The providers that are installed. None of them is loaded for that."""
    return sorted(_declared())


def entry_point_of(name: str) -> EntryPoint | None:
    """Where a provider is to be loaded from, if it is installed."""
    return _declared().get(name)


def description_of(name: str) -> ProviderDescription | None:
    """The description of a provider, or `None` if it is not installed, or is a plain callable without one.

    Raises `ValueError` if it describes another than it is declared as, and whatever loading its package raises.
    """
    point = entry_point_of(name)
    found: Any = None if point is None else point.load()
    if not isinstance(found, ProviderDescription):
        return None
    if found.name != name:
        raise ValueError(f"the provider that is declared as {name!r} describes itself as {found.name!r}")
    return found


def _declared() -> dict[str, EntryPoint]:
    """Who is declared, by name. Nobody takes the place of one of ours: it would be handed the keys of another."""
    from importlib.metadata import entry_points  # on use: reading what is installed takes milliseconds

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name not in found or point.value.startswith(_OURS):
            found[point.name] = point
    return found


def _unknown(provider: str, known: list[str]) -> str:
    from .texts.likeness import close_names

    near = close_names(provider, known, n=3)
    hint = f"did you mean {' or '.join(near)}? There are: " if near else "there are: "
    return f"no provider {provider!r}; {hint}{', '.join(known) or 'none'}. Others: pass stream_fn, or install a package"
