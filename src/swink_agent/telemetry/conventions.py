"""The names of the GenAI semantic conventions of OpenTelemetry that spans and metrics use.

Has the bucket boundaries and the names of providers. The conventions are in development: when they change, this file
must change too.
"""

from __future__ import annotations

TOKENS = [4.0**power for power in range(14)]  # the boundaries of `gen_ai.client.token.usage`: 1 to 67,108,864
REQUEST_SECONDS = [0.01 * 2**power for power in range(14)]
"""The boundaries of the durations of requests and tools: 0.01 to 81.92 s."""
AGENT_SECONDS = [round(0.1 * 2**power, 1) for power in range(13)]
"""The boundaries of `gen_ai.invoke_agent.duration`: 0.1 to 409.6 s."""

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}


def provider_name(provider: str) -> str:
    """Returns the provider's name in the conventions, or its own if they have none."""
    return _PROVIDERS.get(provider, provider)
