"""The adapters by provider: what the entry points of the group `swink_agent.providers` name.

Owns the way from a provider's name to a stream function with its usual environment variables. Each function loads its
adapter when it is called.
"""

from __future__ import annotations

from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec

__all__ = ["anthropic", "azure", "bedrock", "gemini", "mistral", "ollama", "openai", "openai_responses", "proxy", "xai"]


def anthropic(model: ModelSpec) -> StreamFn:
    from .anthropic import AnthropicStreamFn

    return AnthropicStreamFn()


def azure(model: ModelSpec) -> StreamFn:
    from .azure import AzureStreamFn

    return AzureStreamFn()


def bedrock(model: ModelSpec) -> StreamFn:
    from .bedrock import BedrockStreamFn

    return BedrockStreamFn()


def gemini(model: ModelSpec) -> StreamFn:
    from .gemini import GeminiStreamFn

    return GeminiStreamFn()


def mistral(model: ModelSpec) -> StreamFn:
    from .mistral import MistralStreamFn

    return MistralStreamFn()


def ollama(model: ModelSpec) -> StreamFn:
    from .ollama import OllamaStreamFn

    return OllamaStreamFn()


def openai(model: ModelSpec) -> StreamFn:
    from .openai import OpenAiStreamFn

    return OpenAiStreamFn()


def openai_responses(model: ModelSpec) -> StreamFn:
    from .openai_responses import OpenAiResponsesStreamFn

    return OpenAiResponsesStreamFn()


def proxy(model: ModelSpec) -> StreamFn:
    from .proxy import ProxyStreamFn

    return ProxyStreamFn()


def xai(model: ModelSpec) -> StreamFn:
    from .xai import XAiStreamFn

    return XAiStreamFn()
