"""One adapter and one model of each provider that has a fake, for contracts that hold for all of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from swink_agent import ModelSpec

ADAPTERS = {
    "anthropic": ("anthropic", "AnthropicStreamFn", "claude-sonnet-4-5"),
    "openai": ("openai", "OpenAiStreamFn", "gpt-5"),
    "openai-responses": ("openai_responses", "OpenAiResponsesStreamFn", "gpt-5"),
    "azure": ("azure", "AzureStreamFn", "gpt-5"),
    "xai": ("xai", "XAiStreamFn", "grok-4.3"),
    "mistral": ("mistral", "MistralStreamFn", "magistral-medium-latest"),
    "gemini": ("gemini", "GeminiStreamFn", "gemini-3-pro-preview"),
    "ollama": ("ollama", "OllamaStreamFn", "qwen3"),
    "bedrock": ("bedrock", "BedrockStreamFn", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
}
"""The module, the class and the model, by the name of the API."""


def adapter_at(api: str, url: str = "http://127.0.0.1:9", key: str = "fake-key", **options: Any) -> Any:
    """The adapter of an API, for a server at the address."""
    module, name, _ = ADAPTERS[api]
    adapter = getattr(import_module(f"swink_agent.adapters.{module}"), name)
    return adapter(*(("eu-west-1", url) if api == "bedrock" else (url, key)), **options)


def model_of(api: str) -> ModelSpec:
    return ModelSpec(api, ADAPTERS[api][2])
