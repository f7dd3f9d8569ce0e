"""The providers of this package, which the entry points of the group `swink_agent.providers` name.

Each has one description: its variables, a default model, and how to make its stream function, which loads the adapter.
Everything that needs facts about a provider, including the adapters, reads them here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swink_agent.core.providers import ProviderDescription
from swink_agent.core.stream import StreamFn


def _made_by(module: str, name: str) -> Callable[[str | None], StreamFn]:
    def make(base_url: str | None) -> StreamFn:
        from importlib import import_module

        adapter: Any = getattr(import_module(f".{module}", __package__), name)
        return adapter(base_url=base_url)

    return make


anthropic = ProviderDescription(
    name="anthropic",
    make=_made_by("anthropic", "AnthropicStreamFn"),
    key_variables=("ANTHROPIC_API_KEY",),
    url_variables=("ANTHROPIC_BASE_URL",),
    default_model="claude-sonnet-4-6",
    families=("claude",),
    takes_documents=True,
)
openai = ProviderDescription(
    name="openai",
    make=_made_by("openai", "OpenAiStreamFn"),
    key_variables=("OPENAI_API_KEY",),
    url_variables=("OPENAI_BASE_URL",),
    default_model="gpt-5.6-terra",
    families=("gpt-3", "gpt-4", "gpt-5", "chatgpt", "codex-", "o1", "o3", "o4"),
    takes_documents=True,
)
gemini = ProviderDescription(
    name="gemini",
    make=_made_by("gemini", "GeminiStreamFn"),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    url_variables=("GEMINI_BASE_URL",),
    default_model="gemini-3.5-flash",
    families=("gemini",),
    takes_documents=True,
)
xai = ProviderDescription(
    name="xai",
    make=_made_by("xai", "XAiStreamFn"),
    key_variables=("XAI_API_KEY",),
    url_variables=("XAI_BASE_URL",),
    default_model="grok-4.3",
    families=("grok",),
)
mistral = ProviderDescription(
    name="mistral",
    make=_made_by("mistral", "MistralStreamFn"),
    key_variables=("MISTRAL_API_KEY",),
    url_variables=("MISTRAL_BASE_URL",),
    default_model="mistral-medium-latest",
    families=("mistral-", "ministral", "codestral", "magistral", "devstral", "pixtral", "open-mi"),
)
openai_responses = ProviderDescription(
    name="openai-responses",
    make=_made_by("openai_responses", "OpenAiResponsesStreamFn"),
    key_variables=("OPENAI_API_KEY",),
    url_variables=("OPENAI_BASE_URL",),
    default_model="gpt-5.6-terra",
    keys_of="openai",
    takes_documents=True,
)
azure = ProviderDescription(
    name="azure",
    make=_made_by("azure", "AzureStreamFn"),
    key_variables=("AZURE_OPENAI_API_KEY",),
    url_variables=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
)
proxy = ProviderDescription(
    name="proxy",
    make=_made_by("proxy", "ProxyStreamFn"),
    key_variables=("SWINK_PROXY_TOKEN",),
    url_variables=("SWINK_PROXY_URL",),
    takes_documents=True,
)
ollama = ProviderDescription(
    name="ollama",
    make=_made_by("ollama", "OllamaStreamFn"),
    key_variables=("OLLAMA_API_KEY",),
    url_variables=("OLLAMA_HOST",),
    needs_key=False,
    is_local=True,
    has_bare_address=True,
    families=("llama", "qwen", "gemma", "phi", "deepseek", "gpt-oss", "mistral:", "tinyllama", "smollm"),
)
bedrock = ProviderDescription(
    name="bedrock",
    make=_made_by("bedrock", "BedrockStreamFn"),
    credential_variables=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"),
    takes_documents=True,
)

PROVIDERS = (anthropic, openai, gemini, xai, mistral, openai_responses, azure, proxy, ollama, bedrock)
"""In order of preference: the first one with a key is the default."""
