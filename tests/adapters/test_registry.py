"""From a model's name to its stream function."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import Agent, AuthError, ModelSpec
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    ProxyStreamFn,
    XAiStreamFn,
    stream_fn_for,
)
from swink_agent.testing.servers import LoopbackServer, answer

WHOLE = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("provider", "kind", "variables"),
    [
        ("anthropic", AnthropicStreamFn, ["ANTHROPIC_API_KEY"]),
        ("openai", OpenAiStreamFn, ["OPENAI_API_KEY"]),
        ("openai-responses", OpenAiResponsesStreamFn, ["OPENAI_API_KEY"]),
        ("ollama", OllamaStreamFn, []),
        ("gemini", GeminiStreamFn, ["GEMINI_API_KEY"]),
        ("azure", AzureStreamFn, ["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"]),
        ("xai", XAiStreamFn, ["XAI_API_KEY"]),
        ("mistral", MistralStreamFn, ["MISTRAL_API_KEY"]),
        ("proxy", ProxyStreamFn, ["SWINK_PROXY_URL", "SWINK_PROXY_TOKEN"]),
    ],
)
def test_a_provider_is_found_by_its_name(
    provider: str, kind: Any, variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in variables:
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert type(stream_fn_for(f"{provider}:some-model")) is kind


def test_a_missing_key_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with pytest.raises(AuthError, match="ANTHROPIC_API_KEY"):
        stream_fn_for("anthropic:claude-sonnet-4-6")


def test_an_unknown_provider_is_told_the_nearest() -> None:
    with pytest.raises(LookupError, match="did you mean anthropic"):
        stream_fn_for("antropic:claude")


async def test_an_agent_finds_its_adapter_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LoopbackServer(answer(WHOLE)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        result = await Agent(ModelSpec("openai", "gpt-test")).prompt("hello")
    assert result.text == "hi"


async def test_a_model_that_nobody_knows_is_told_the_nearest_names() -> None:
    refused = answer('{"error":{"message":"The model `gpt-5-mimi` does not exist"}}', status=404)
    async with LoopbackServer(refused) as server:
        stream_fn = OpenAiStreamFn(server.url, "key")
        result = await Agent("openai:gpt-5-mimi", stream_fn=stream_fn).prompt("hello")
    assert "gpt-5-mini" in str(result.error)
