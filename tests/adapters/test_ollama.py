"""Ollama: addresses, keys, and what depends on the model. `tests/wire` has requests and replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    AgentMessage,
    CancellationToken,
    ModelSpec,
    StreamOptions,
    ThinkingLevel,
    UserMessage,
)
from swink_agent.adapters.kit.transport import HttpRequest
from swink_agent.adapters.ollama import OllamaStreamFn
from swink_agent.testing.servers import LoopbackServer, answer

QWEN = ModelSpec("ollama", "qwen3:4b")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def built(
    messages: Sequence[AgentMessage] = (UserMessage("hi"),),
    model: ModelSpec = QWEN,
    tools: Sequence[Any] = (),
    prompt: str = "",
    stream_fn: OllamaStreamFn | None = None,
    **options: Any,
) -> HttpRequest:
    return (stream_fn or OllamaStreamFn()).build(model, AgentContext(prompt, messages, tools), StreamOptions(**options))


def body(*arguments: Any, **keywords: Any) -> dict[str, Any]:
    return json.loads(built(*arguments, **keywords).body)


# -- where it goes -------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("10.0.0.5:8080", "http://10.0.0.5:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:80/", "http://127.0.0.1:80"),
        ("http://box", "http://box"),
        ("https://ollama.com", "https://ollama.com"),
        ("https://user:word@box:1", "https://user:word@box:1"),
        ("http://box:1/behind/a/proxy/", "http://box:1/behind/a/proxy"),
        ("http://box:1/v1", "http://box:1"),
        ("http://box:1/v1/", "http://box:1"),
        ("http://box:1/api", "http://box:1"),
        ("::1", "http://[::1]:11434"),
        ("[::]:9", "http://[::1]:9"),
        ("http://[fe80::1]", "http://[fe80::1]"),
        ('"box:9" ', "http://box:9"),
        ("box:port", "http://box:11434"),
    ],
)
def test_the_server_is_found_in_every_form_of_the_variable(
    given: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", given)
    assert OllamaStreamFn().base_url == expected
    assert built(stream_fn=OllamaStreamFn()).url == f"{expected}/api/chat"
    monkeypatch.delenv("OLLAMA_HOST")
    assert OllamaStreamFn(given).base_url == expected


def test_no_key_is_needed() -> None:
    assert "authorization" not in built().headers


def test_a_key_is_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "from-env")
    assert built(stream_fn=OllamaStreamFn()).headers["authorization"] == "Bearer from-env"
    assert built(stream_fn=OllamaStreamFn(api_key="given")).headers["authorization"] == "Bearer given"
    request = built(api_key="wins", headers={"x-team": "a"}, timeout=3.0)
    assert request.headers["authorization"] == "Bearer wins"
    assert request.headers["x-team"] == "a"
    assert request.limits.total == 3.0
    assert "wins" not in repr(request)


# -- the fields ----------------------------------------------------------------------------------------------


def test_extra_fields_are_merged_into_the_body() -> None:
    fields = body(max_tokens=9, extra={"options": {"num_ctx": 32768}, "keep_alive": "10m"})
    assert fields["options"] == {"num_predict": 9, "num_ctx": 32768}
    assert fields["keep_alive"] == "10m"


@pytest.mark.table
@pytest.mark.parametrize(
    ("model_id", "level", "think"),
    [
        ("qwen3:4b", ThinkingLevel.OFF, False),
        ("qwen3:4b", ThinkingLevel.MINIMAL, True),
        ("qwen3:4b", ThinkingLevel.EXTRA_HIGH, True),
        ("gpt-oss:20b", ThinkingLevel.OFF, "low"),
        ("gpt-oss:20b", ThinkingLevel.LOW, "low"),
        ("gpt-oss:20b", ThinkingLevel.MEDIUM, "medium"),
        ("gpt-oss:20b", ThinkingLevel.EXTRA_HIGH, "high"),
    ],
)
def test_thinking_is_on_or_off_or_a_level(model_id: str, level: ThinkingLevel, think: Any) -> None:
    assert body(model=ModelSpec("ollama", model_id, level))["think"] == think


# -- the whole way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "advice"),
    [
        ('{"models":[{"name":"qwen3:8b"},{"name":"llama3:8b"}]}', "(is it qwen3:8b? Others: ollama pull qwen3:4b)"),
        ('{"models":[{"name":"zz"},{"name":7},null]}', "(it has zz. Others: ollama pull qwen3:4b)"),
        ('{"models":[]}', "(it has no models: ollama pull qwen3:4b)"),
        ("no json", None),
        ("", None),  # with status 500
    ],
)
async def test_a_model_that_is_not_there_is_answered_with_those_that_are(models: str, advice: str | None) -> None:
    missing = answer('{"error":"model \'qwen3:4b\' not found"}', content_type="application/json", status=404)
    status = 200 if models else 500
    async with LoopbackServer(missing, answer(models, status=status, content_type="application/json")) as server:
        stream = OllamaStreamFn(server.url)(
            QWEN, AgentContext("", (UserMessage("hi"),)), StreamOptions(), CancellationToken()
        )
        (failed,) = [event async for event in stream]
    assert [request.path for request in server.requests] == ["/api/chat", "/api/tags"]
    assert failed.message == "HTTP 404: model 'qwen3:4b' not found" + (f" {advice}" if advice else "")
