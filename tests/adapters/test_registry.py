"""From a model's name to its stream function."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AuthError,
    CancellationToken,
    ErrorKind,
    ModelSpec,
    StreamFailed,
    StreamOptions,
    UserMessage,
)
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
from swink_agent.core.providers import ProviderStreamFn
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


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("anthropic", ["ANTHROPIC_API_KEY"]),
        ("azure", ["AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"]),
        ("proxy", ["SWINK_PROXY_URL", "SWINK_PROXY_TOKEN"]),
    ],
)
def test_missing_settings_are_reported_at_once(
    provider: str, variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*variables, "ANTHROPIC_BASE_URL", "AZURE_OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthError) as raised:
        stream_fn_for(f"{provider}:some-model")
    assert [name for name in variables if name not in str(raised.value)] == []
    monkeypatch.setenv(variables[-1], "key")
    for name in variables[:-1]:
        with pytest.raises(AuthError, match=name) as raised:
            stream_fn_for(f"{provider}:some-model")
        assert variables[-1] not in str(raised.value)


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


# -- addresses -----------------------------------------------------------------------------------------------

BAD_ADDRESSES = {
    "nonsense": "is not an http:// or https:// address",
    "ftp://host": "is not an http:// or https:// address",
    "http://": "names no server",
    "http://a b": "has a space or a control character in it",
    "http://host:port": "is not an address: its host or port cannot be read",
    "http://host:99999": "is not an address: its host or port cannot be read",
    "http://[::1": "is not an address: its host or port cannot be read",
}


@pytest.mark.parametrize("address", BAD_ADDRESSES)
@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("anthropic", "ANTHROPIC_BASE_URL"),
        ("openai", "OPENAI_BASE_URL"),
        ("openai-responses", "OPENAI_BASE_URL"),
        ("gemini", "GEMINI_BASE_URL"),
        ("xai", "XAI_BASE_URL"),
        ("mistral", "MISTRAL_BASE_URL"),
        ("azure", "AZURE_OPENAI_ENDPOINT"),
        ("azure", "AZURE_OPENAI_BASE_URL"),
        ("proxy", "SWINK_PROXY_URL"),
        ("bedrock", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
    ],
)
async def test_a_bad_address_is_told_with_its_variable_before_anything_is_sent(
    provider: str, variable: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, address)
    model = ModelSpec(provider, "m")
    stream_fn = ProviderStreamFn().adapter(model)
    options = StreamOptions(api_key="k")
    context = AgentContext("", [UserMessage("hi")])
    (failed,) = [event async for event in stream_fn(model, context, options, CancellationToken())]
    assert isinstance(failed, StreamFailed)
    assert failed.kind == ErrorKind.INVALID_REQUEST
    assert f"{variable} is" in failed.message
    assert failed.message.endswith(BAD_ADDRESSES[address])


async def test_a_password_in_an_address_is_not_told() -> None:
    stream = OpenAiStreamFn("ftp://me:hunter2@host", "k")(
        ModelSpec("openai", "m"), AgentContext("", [UserMessage("hi")]), StreamOptions(), CancellationToken()
    )
    (failed,) = [event async for event in stream]
    assert "hunter2" not in failed.message  # type: ignore[union-attr]


async def test_a_server_that_is_not_there_is_told_in_words() -> None:
    stream = OpenAiStreamFn("http://127.0.0.1:1", "k")(
        ModelSpec("openai", "m"), AgentContext("", [UserMessage("hi")]), StreamOptions(), CancellationToken()
    )
    (failed,) = [event async for event in stream]
    assert failed == StreamFailed(
        "http://127.0.0.1:1/v1/chat/completions: Connection refused (no server listens there: is it running?)",
        ErrorKind.NETWORK,
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [("claude-sonet-4-6", "is it anthropic:claude-sonnet-4-6"), ("zzz", "there are, for example, anthropic:")],
)
async def test_an_unknown_model_is_answered_with_known_ones(name: str, advice: str) -> None:
    refusal = f'{{"type":"error","error":{{"type":"not_found_error","message":"model: {name}"}}}}'
    async with LoopbackServer(answer(refusal, status=404, content_type="application/json")) as server:
        stream = AnthropicStreamFn(server.url, "k")(
            ModelSpec("anthropic", name), AgentContext("", [UserMessage("hi")]), StreamOptions(), CancellationToken()
        )
        (failed,) = [event async for event in stream]
    assert isinstance(failed, StreamFailed)
    assert failed.message.startswith(f"HTTP 404: model: {name} ({advice}")
