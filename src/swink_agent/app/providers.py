"""The providers that the application knows by name: their variables, their adapters, and a sensible first model.

Owns names and nothing else; the adapters read the same variables themselves. A provider that somebody installed as a
package works too, it is only not offered by itself.
"""

from __future__ import annotations

from swink_agent.core.value import Value

__all__ = ["PROVIDERS", "Provider", "provider_named"]


class Provider(Value, frozen=True):
    """One provider. `default_model` is what is asked when nobody chose; none where only the user can know."""

    name: str
    key_variables: tuple[str, ...] = ()
    url_variable: str = ""
    other_url_variables: tuple[str, ...] = ()
    adapter: str = ""
    """The stream function's name in `swink_agent.adapters`."""
    default_model: str = ""
    credential_variables: tuple[str, ...] = ()
    """Variables that show that there are credentials of another kind, which the adapter finds by itself."""
    keys_of: str = ""
    """The provider whose key it uses, if that is not its own."""

    @property
    def account(self) -> str:
        """The name under which its key is kept."""
        return self.keys_of or self.name


PROVIDERS = (
    Provider(
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        "ANTHROPIC_BASE_URL",
        adapter="AnthropicStreamFn",
        default_model="claude-sonnet-4-6",
    ),
    Provider("openai", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", adapter="OpenAiStreamFn", default_model="gpt-5.6-terra"),
    Provider(
        "gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "GEMINI_BASE_URL",
        adapter="GeminiStreamFn",
        default_model="gemini-3.5-flash",
    ),
    Provider("xai", ("XAI_API_KEY",), "XAI_BASE_URL", adapter="XAiStreamFn", default_model="grok-4.3"),
    Provider(
        "mistral",
        ("MISTRAL_API_KEY",),
        "MISTRAL_BASE_URL",
        adapter="MistralStreamFn",
        default_model="mistral-medium-latest",
    ),
    Provider(
        "openai-responses",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        adapter="OpenAiResponsesStreamFn",
        default_model="gpt-5.6-terra",
        keys_of="openai",
    ),
    Provider(
        "azure",
        ("AZURE_OPENAI_API_KEY",),
        "AZURE_OPENAI_BASE_URL",
        ("AZURE_OPENAI_ENDPOINT",),
        adapter="AzureStreamFn",
    ),
    Provider("proxy", ("SWINK_PROXY_TOKEN",), "SWINK_PROXY_URL", adapter="ProxyStreamFn"),
    Provider("ollama", ("OLLAMA_API_KEY",), "OLLAMA_HOST", adapter="OllamaStreamFn"),
    Provider(
        "bedrock",
        adapter="BedrockStreamFn",
        credential_variables=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"),
    ),
)
"""In the order in which the first one with a key is chosen."""


def provider_named(name: str) -> Provider | None:
    """The provider of that name, if it is one of these."""
    return next((provider for provider in PROVIDERS if provider.name == name), None)
