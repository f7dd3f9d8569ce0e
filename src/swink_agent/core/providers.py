"""Finding the stream function of a provider.

Owns the look-up in the entry-point group `swink_agent.providers`, so that the core imports no adapter and anyone
adds one by installing a package. An entry point's name is the provider's, its object a callable that takes the
`ModelSpec` and returns a `StreamFn`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .cancel import CancellationToken
from .errors import UnknownProvider
from .stream import AssistantMessageEvent, StreamFn, StreamOptions
from .types import AgentContext, ModelSpec

__all__ = ["GROUP", "ProviderStreamFn"]

GROUP = "swink_agent.providers"


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
            from importlib.metadata import (
                entry_points,  # on use: reading what is installed takes milliseconds
            )

            found = {point.name: point for point in entry_points(group=GROUP)}
            if model.provider not in found:
                raise UnknownProvider(model.provider, _unknown(model.provider, sorted(found)))
            self._adapters[model.provider] = found[model.provider].load()(model)
        return self._adapters[model.provider]

    def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        return self.adapter(model)(model, context, options, cancel)


def _unknown(provider: str, known: list[str]) -> str:
    from .likeness import close_names

    near = close_names(provider, known, n=3)
    hint = f"did you mean {' or '.join(near)}? There are: " if near else "there are: "
    return f"no provider {provider!r}; {hint}{', '.join(known) or 'none'}. Others: pass stream_fn, or install a package"
