"""Adapters: one stream function for each provider, over plain HTTP, with no vendor's SDK.

Each is a pure request builder, a pure parser of the provider's frames, and the transport that all share. Importing this
module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.core.providers import ProviderStreamFn
from swink_agent.core.stream import StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec, UserMessage

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")


def stream_fn_for(model: str | ModelSpec) -> StreamFn:
    """The stream function of the model's provider, with the usual environment variables read.

    Raises `UnknownProvider` for a provider that nobody installed, naming the nearest, and `AuthError` for a missing
    key, naming its variable.
    """
    spec = ModelSpec.parse(model) if isinstance(model, str) else model
    stream_fn = ProviderStreamFn().adapter(spec)
    build = getattr(stream_fn, "build", None)
    if build is not None:
        build(spec, AgentContext("", (UserMessage("?"),)), StreamOptions())  # says now what is missing
    return stream_fn
