"""Where a request goes and which key it carries, for every provider with an address and a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from swink_agent import AgentContext, AuthError, ModelSpec, StreamOptions, UserMessage
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    XAiStreamFn,
)

CONTEXT = AgentContext("", [UserMessage("hi")])
BEARER = ("authorization", "Bearer ")


@dataclass(frozen=True)
class Keyed:
    """An adapter, and how its provider spells things."""

    made: Any
    variable: str
    """The first part of the names of its variables."""
    default: str
    version: str
    path: str
    header: tuple[str, str]
    """Where the key is, and what is in front of it."""

    def build(self, *arguments: str, **options: Any) -> Any:
        return self.made(*arguments).build(ModelSpec("test", "some-model"), CONTEXT, StreamOptions(**options))

    def key_in(self, request: Any) -> str | None:
        value = request.headers.get(self.header[0])
        return None if value is None else value.removeprefix(self.header[1])


KEYED = {
    "anthropic": Keyed(
        AnthropicStreamFn, "ANTHROPIC", "https://api.anthropic.com", "/v1", "/messages", ("x-api-key", "")
    ),
    "openai": Keyed(OpenAiStreamFn, "OPENAI", "https://api.openai.com", "/v1", "/chat/completions", BEARER),
    "openai-responses": Keyed(OpenAiResponsesStreamFn, "OPENAI", "https://api.openai.com", "/v1", "/responses", BEARER),
    "gemini": Keyed(
        GeminiStreamFn,
        "GEMINI",
        "https://generativelanguage.googleapis.com",
        "/v1beta",
        "/models/some-model:streamGenerateContent?alt=sse",
        ("x-goog-api-key", ""),
    ),
    "xai": Keyed(XAiStreamFn, "XAI", "https://api.x.ai", "/v1", "/chat/completions", BEARER),
    "mistral": Keyed(MistralStreamFn, "MISTRAL", "https://api.mistral.ai", "/v1", "/chat/completions", BEARER),
}
providers = pytest.mark.parametrize("keyed", KEYED.values(), ids=KEYED.keys())


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE", *[keyed.variable for keyed in KEYED.values()]):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)


@pytest.mark.table
@providers
def test_the_request_goes_to_the_provider_with_the_key_which_shows_nowhere(keyed: Keyed) -> None:
    stream_fn = keyed.made(api_key="sk-secret")
    request = stream_fn.build(ModelSpec("test", "some-model"), CONTEXT, StreamOptions())
    assert request.url == keyed.default + keyed.version + keyed.path
    assert keyed.key_in(request) == "sk-secret"
    assert "sk-secret" not in f"{stream_fn!r} {request!r}"


@pytest.mark.table
@providers
@pytest.mark.parametrize("ending", ["", "/", "//", "/VERSION", "/VERSION/"])
def test_an_address_without_a_path_gets_the_usual_one_and_needs_no_key(keyed: Keyed, ending: str) -> None:
    request = keyed.build("http://host" + ending.replace("/VERSION", keyed.version))
    assert request.url == "http://host" + keyed.version + keyed.path
    assert keyed.key_in(request) is None


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "address", "asked"),
    [
        ("openai", "https://open.bigmodel.cn/api/paas/v4", "https://open.bigmodel.cn/api/paas/v4/chat/completions"),
        ("openai", "https://host/v1beta/openai/", "https://host/v1beta/openai/chat/completions"),
        ("openai", "http://localhost:8000", "http://localhost:8000/v1/chat/completions"),
        ("openai", "https://host/v1/", "https://host/v1/chat/completions"),
        ("openai", "http://v1", "http://v1/v1/chat/completions"),
        ("openai-responses", "https://host/x", "https://host/x/responses"),
        ("xai", "https://host/x", "https://host/x/chat/completions"),
        ("mistral", "https://host/mistral", "https://host/mistral/v1/chat/completions"),
        ("mistral", "https://host/mistral/v1", "https://host/mistral/v1/chat/completions"),
        ("anthropic", "https://gateway/anthropic", "https://gateway/anthropic/v1/messages"),
        ("anthropic", "https://gateway/anthropic/v1/", "https://gateway/anthropic/v1/messages"),
        ("anthropic", "https://gateway/v1/me/anthropic", "https://gateway/v1/me/anthropic/v1/messages"),
        ("anthropic", "http://v1", "http://v1/v1/messages"),
        ("gemini", "https://gateway/v1/me/google", "https://gateway/v1/me/google/v1beta" + KEYED["gemini"].path),
        ("gemini", "https://gateway/google/v1", "https://gateway/google/v1" + KEYED["gemini"].path),
    ],
)
def test_an_address_means_what_it_means_to_the_sdk_of_the_provider(name: str, address: str, asked: str) -> None:
    assert KEYED[name].build(address).url == asked


class _OfBigModel(OpenAiStreamFn):
    description = OpenAiStreamFn.description
    default_url = "https://open.bigmodel.cn/api/paas/v4/"


class _OfGateway(AnthropicStreamFn):
    description = AnthropicStreamFn.description
    default_url = "https://api.z.ai/api/anthropic"


class _WithoutPath(OpenAiStreamFn):
    description = OpenAiStreamFn.description
    default_url = "https://host"


@pytest.mark.table
@pytest.mark.parametrize(
    ("made", "address", "asked"),
    [
        (_OfBigModel, None, "https://open.bigmodel.cn/api/paas/v4/chat/completions"),
        (_OfBigModel, "http://localhost:8000/", "http://localhost:8000/api/paas/v4/chat/completions"),
        (_OfBigModel, "http://localhost:8000/v9", "http://localhost:8000/v9/chat/completions"),
        (_OfGateway, None, "https://api.z.ai/api/anthropic/v1/messages"),
        (_OfGateway, "http://localhost:8000", "http://localhost:8000/api/anthropic/v1/messages"),
        (_OfGateway, "http://localhost:8000/x", "http://localhost:8000/x/v1/messages"),
        (_OfGateway, "http://localhost:8000/v1", "http://localhost:8000/v1/messages"),
        (_WithoutPath, None, "https://host/chat/completions"),
        (_WithoutPath, "http://localhost:8000", "http://localhost:8000/chat/completions"),
    ],
)
def test_an_adapter_of_ones_own_is_asked_at_its_default_url(made: Any, address: str | None, asked: str) -> None:
    request = made(address, "k").build(ModelSpec("test", "some-model"), CONTEXT, StreamOptions())
    assert request.url == asked


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "/openai", "/openai/v1", "/openai/v1/"])
def test_a_resource_of_azure_works_with_or_without_what_follows_its_name(ending: str) -> None:
    stream_fn = AzureStreamFn(f"https://name.openai.azure.com{ending}", "k")
    request = stream_fn.build(ModelSpec("azure", "some-model"), CONTEXT, StreamOptions())
    assert request.url == "https://name.openai.azure.com/openai/v1/chat/completions"


@providers
def test_the_environment_gives_key_and_address_when_the_function_is_made(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{keyed.variable}_API_KEY", "from-environment")
    monkeypatch.setenv(f"{keyed.variable}_BASE_URL", "http://gateway/openai" + keyed.version)
    stream_fn = keyed.made()
    monkeypatch.setenv(f"{keyed.variable}_API_KEY", "too-late")
    request = stream_fn.build(ModelSpec("test", "some-model"), CONTEXT, StreamOptions())
    assert request.url == "http://gateway/openai" + keyed.version + keyed.path
    assert keyed.key_in(request) == "from-environment"


@pytest.mark.table
@providers
def test_the_key_of_the_call_wins_and_its_headers_and_timeout_hold(keyed: Keyed) -> None:
    options = {"api_key": "sk-call", "headers": {"x-trace": "1"}, "timeout": 5.0}
    request = keyed.build("http://host", "sk-mine", **options)
    assert keyed.key_in(request) == "sk-call"
    assert request.headers["x-trace"] == "1"
    assert request.limits.total == 5.0
    assert "sk-" not in f"{request!r} {StreamOptions(**options)!r}"


@providers
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_key_names_its_variable_before_any_request(
    keyed: Keyed, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(f"{keyed.variable}_API_KEY", value)
        monkeypatch.setenv(f"{keyed.variable}_BASE_URL", value)
    with pytest.raises(AuthError, match=f"{keyed.variable}_API_KEY"):
        keyed.build()
