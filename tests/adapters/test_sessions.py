"""The id of a session goes to every provider that has a field for it, and never makes a request fail."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import AgentContext, CancellationToken, ModelSpec, StreamDone, StreamFailed, StreamOptions, UserMessage
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    ProxyStreamFn,
    XAiStreamFn,
)
from swink_agent.testing import FakeReply
from swink_agent.testing.fakes import openai
from swink_agent.testing.servers import LoopbackServer, answer

CONTEXT = AgentContext("", [UserMessage("hi")])
ADAPTERS: dict[str, Any] = {
    "anthropic": AnthropicStreamFn("http://x", "k"),
    "openai": OpenAiStreamFn("http://x", "k"),
    "openai-responses": OpenAiResponsesStreamFn("http://x", "k"),
    "azure": AzureStreamFn("https://name.openai.azure.com", "k"),
    "xai": XAiStreamFn("http://x", "k"),
    "mistral": MistralStreamFn("http://x", "k"),
    "gemini": GeminiStreamFn("http://x", "k"),
    "ollama": OllamaStreamFn("http://x"),
    "bedrock": BedrockStreamFn("us-east-1", "http://x"),
    "proxy": ProxyStreamFn("http://x", "k"),
}
WITHOUT = ("gemini", "ollama")


def sent(
    stream_fn: Any, provider: str, session_id: str | None, **options: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    built = stream_fn.build(ModelSpec(provider, "some-model"), CONTEXT, StreamOptions(session_id=session_id, **options))
    return json.loads(built.body), built.headers


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.table
@pytest.mark.parametrize(
    ("adapter", "field", "value"),
    [
        ("anthropic", "metadata", {"user_id": "s-1"}),
        ("openai", "prompt_cache_key", "s-1"),
        ("openai-responses", "prompt_cache_key", "s-1"),
        ("azure", "prompt_cache_key", "s-1"),
        ("mistral", "prompt_cache_key", "s-1"),
        ("bedrock", "requestMetadata", {"session_id": "s-1"}),
    ],
)
def test_the_session_is_in_the_field_that_the_provider_has_for_it(adapter: str, field: str, value: Any) -> None:
    body, _ = sent(ADAPTERS[adapter], adapter, "s-1")
    assert body[field] == value
    without, _ = sent(ADAPTERS[adapter], adapter, None)
    assert {**without, field: value} == body


def test_xai_takes_it_as_a_header_and_the_proxy_among_the_options() -> None:
    assert sent(ADAPTERS["xai"], "xai", "s-1")[1]["x-grok-conv-id"] == "s-1"
    assert sent(ADAPTERS["proxy"], "proxy", "s-1")[0]["options"]["session_id"] == "s-1"


@pytest.mark.parametrize("adapter", WITHOUT)
def test_a_provider_without_a_field_is_sent_the_same_request(adapter: str) -> None:
    assert sent(ADAPTERS[adapter], adapter, "s-1") == sent(ADAPTERS[adapter], adapter, None)


@pytest.mark.parametrize("adapter", ["openai", "openai-responses", "azure", "mistral", "xai"])
def test_without_caching_a_key_for_the_cache_is_not_sent(adapter: str) -> None:
    assert sent(ADAPTERS[adapter], adapter, "s-1", cache="none") == sent(ADAPTERS[adapter], adapter, None, cache="none")


def test_the_callers_own_value_wins() -> None:
    extra = {"metadata": {"user_id": "mine"}, "prompt_cache_key": "mine"}
    assert sent(ADAPTERS["anthropic"], "anthropic", "s-1", extra=extra)[0]["metadata"] == {"user_id": "mine"}
    assert sent(ADAPTERS["openai"], "openai", "s-1", extra=extra)[0]["prompt_cache_key"] == "mine"


@pytest.mark.table
@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("https://openrouter.ai/api", {"session_id": "s-1"}),
        ("https://api.groq.com/openai", {}),
        ("https://api.cerebras.ai", {}),
        ("https://generativelanguage.googleapis.com/v1beta/openai", {}),
        ("https://eu.api.openai.com", {"prompt_cache_key": "s-1"}),
        ("https://notgroq.com", {"prompt_cache_key": "s-1"}),
    ],
)
def test_a_server_that_is_known_gets_what_it_knows(url: str, fields: dict[str, str]) -> None:
    stream_fn = OpenAiStreamFn(url, "k")
    without, _ = sent(stream_fn, "openai", None)
    assert sent(stream_fn, "openai", "s-1")[0] == {**without, **fields}


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("https://a.openai.azure.com/openai/v1", {"prompt_cache_key": "s-1"}),
        ("https://a.openai.azure.com/openai/deployments/d?api-version=2024-10-21", {"user": "s-1"}),
        ("https://a.services.ai.azure.com/models", {}),
    ],
)
def test_azure_is_sent_what_each_of_its_addresses_takes(url: str, fields: dict[str, str]) -> None:
    stream_fn = AzureStreamFn(url, "k")
    without, _ = sent(stream_fn, "azure", None)
    assert sent(stream_fn, "azure", "s-1")[0] == {**without, **fields}


@given(st.text(max_size=300) | st.text("\ud800\udfff\x00\n\r: é", max_size=20) | st.just("a" * 100_000))
@settings(max_examples=80)
def test_no_session_makes_a_request_that_is_refused(session_id: str) -> None:
    for name, stream_fn in ADAPTERS.items():
        body, headers = sent(stream_fn, name, session_id)
        assert all(re.fullmatch(r"[\x20-\x7e]*", value) for value in headers.values())
        if name != "proxy":
            api = importlib.import_module(f"swink_agent.testing.fakes.{name.replace('-', '_')}").API
            assert api.problems(body, "some-model") == []


def test_two_sessions_are_two_and_one_is_always_the_same() -> None:
    names = ["a b", "a  b", "ab", "x" * 65, "x" * 66, "me@example.org"]
    keys = [sent(ADAPTERS["openai"], "openai", name)[0]["prompt_cache_key"] for name in names]
    assert len(set(keys)) == len(names)
    assert keys == [sent(ADAPTERS["openai"], "openai", name)[0]["prompt_cache_key"] for name in names]
    assert "example" not in keys[-1]


async def test_a_server_that_refuses_the_field_is_asked_again_without_it() -> None:
    refusal = answer(
        '{"error":{"message":"property \'prompt_cache_key\' is unsupported","type":"invalid_request_error"}}',
        status=400,
        content_type="application/json",
    )
    reply = answer(b"".join(openai.API.stream(FakeReply(text="Hello"), "m")))
    model, options = ModelSpec("openai", "m"), StreamOptions(session_id="s-1")
    async with LoopbackServer(refusal, reply) as server:
        stream_fn = OpenAiStreamFn(server.url, "k")
        for _ in range(2):
            events = [event async for event in stream_fn(model, CONTEXT, options, CancellationToken())]
            assert isinstance(events[-1], StreamDone)
    assert ["prompt_cache_key" in json.loads(request.body) for request in server.requests] == [True, False, False]


async def test_another_refusal_is_one() -> None:
    refusal = answer('{"error":{"message":"No such tool"}}', status=400, content_type="application/json")
    async with LoopbackServer(refusal) as server:
        stream = OpenAiStreamFn(server.url, "k")(
            ModelSpec("openai", "m"), CONTEXT, StreamOptions(session_id="s-1"), CancellationToken()
        )
        (failed,) = [event async for event in stream]
    assert isinstance(failed, StreamFailed)
    assert len(server.requests) == 1
