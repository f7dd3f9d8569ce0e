"""The adapter for a recording, connected to the test's server."""

from __future__ import annotations

from typing import Any

from swink_agent import ModelSpec
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    XAiStreamFn,
)

from .recordings import Recording

__all__ = ["MODEL", "adapter_for"]

MODEL = ModelSpec("test", "recorded-model")

_BY_API: dict[str, Any] = {
    "anthropic-messages": AnthropicStreamFn,
    "openai-responses": OpenAiResponsesStreamFn,
    "gemini": GeminiStreamFn,
    "ollama-chat": OllamaStreamFn,
}
_CHAT_BY_PROVIDER: dict[str, Any] = {"azure": AzureStreamFn, "xai": XAiStreamFn, "mistral": MistralStreamFn}


def adapter_for(recording: Recording, url: str = "http://127.0.0.1:9", **options: Any) -> Any:
    if recording.api.startswith("bedrock"):
        return BedrockStreamFn(region="us-east-1", base_url=url, **options)
    if recording.api == "openai-chat":
        return _CHAT_BY_PROVIDER.get(recording.provider, OpenAiStreamFn)(url, "test-key", **options)
    return _BY_API[recording.api](url, "test-key", **options)
