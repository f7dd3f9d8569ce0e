"""Adapters: one stream function for each provider, over plain HTTP, without vendors' SDKs.

Each has a pure request builder and a pure parser; all share one transport. Importing this module loads none of them.
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
    """Returns the stream function of the model's provider, set up from the usual environment variables.

    Raises `UnknownProvider`, which names similar ones, if the provider is not installed, and `AuthError`, which names
    the variable, if the key is missing.
    """
    spec = ModelSpec.parse(model) if isinstance(model, str) else model
    stream_fn = ProviderStreamFn().adapter(spec)
    build = getattr(stream_fn, "build", None)
    if build is not None:
        build(spec, AgentContext("", (UserMessage("?"),)), StreamOptions())  # raises now if something is missing
    return stream_fn
