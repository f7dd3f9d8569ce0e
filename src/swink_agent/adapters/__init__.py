"""Adapters: one stream function for each provider, over plain HTTP, with no vendor's SDK.

Each is a pure request builder, a pure parser of the provider's frames, and the transport that all share. Importing this
module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swink_agent.core.providers import ProviderStreamFn
from swink_agent.core.stream import StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec, UserMessage

if TYPE_CHECKING:
    from .anthropic import AnthropicStreamFn
    from .azure import AzureStreamFn
    from .bedrock import BedrockStreamFn
    from .catalog import ModelCatalog, ModelInfo
    from .gemini import GeminiStreamFn
    from .kit.transport import AiohttpTransport, Limits, Transport, TransportError
    from .mistral import MistralStreamFn
    from .ollama import OllamaStreamFn
    from .openai import OpenAiStreamFn
    from .openai_responses import OpenAiResponsesStreamFn
    from .proxy import ProxyStreamFn
    from .xai import XAiStreamFn

_HOMES = {
    "AiohttpTransport": "kit.transport",
    "AnthropicStreamFn": "anthropic",
    "AzureStreamFn": "azure",
    "BedrockStreamFn": "bedrock",
    "GeminiStreamFn": "gemini",
    "Limits": "kit.transport",
    "MistralStreamFn": "mistral",
    "ModelCatalog": "catalog",
    "ModelInfo": "catalog",
    "OllamaStreamFn": "ollama",
    "OpenAiResponsesStreamFn": "openai_responses",
    "OpenAiStreamFn": "openai",
    "ProxyStreamFn": "proxy",
    "Transport": "kit.transport",
    "TransportError": "kit.transport",
    "XAiStreamFn": "xai",
}

__all__ = [
    "AiohttpTransport",
    "AnthropicStreamFn",
    "AzureStreamFn",
    "BedrockStreamFn",
    "GeminiStreamFn",
    "Limits",
    "MistralStreamFn",
    "ModelCatalog",
    "ModelInfo",
    "OllamaStreamFn",
    "OpenAiResponsesStreamFn",
    "OpenAiStreamFn",
    "ProxyStreamFn",
    "Transport",
    "TransportError",
    "XAiStreamFn",
    "stream_fn_for",
]


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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
