"""Ollama: the request for a conversation, and the message from the lines of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Base64Image,
    CancellationToken,
    ErrorKind,
    Extension,
    FileImage,
    Image,
    ModelSpec,
    StopReason,
    StreamFailed,
    StreamOptions,
    StreamStart,
    Text,
    TextDelta,
    TextEnd,
    TextStart,
    Thinking,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingLevel,
    ThinkingStart,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.adapters.kit.transport import HttpRequest
from swink_agent.adapters.ollama import OllamaStreamFn
from swink_agent.testing.servers import LoopbackServer, answer

from . import bodies
from .bodies.ollama import FULL, WIRE, call, line

QWEN = ModelSpec("ollama", "qwen3:4b")
PIXEL = "aWNvbg=="


@tool
def look_up(place: str) -> str:
    """Says what the weather is."""
    return place


@tool
def ring() -> str:
    """Rings."""
    return "ring"


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


def sent(*messages: AgentMessage) -> list[Any]:
    return body(messages)["messages"]


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


def test_a_request_says_no_more_than_it_must() -> None:
    assert body() == {
        "model": "qwen3:4b",
        "stream": True,
        "think": False,
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_the_system_prompt_leads_the_messages() -> None:
    assert body(prompt="be brief")["messages"][0] == {"role": "system", "content": "be brief"}


def test_sampling_is_among_the_options() -> None:
    assert body(temperature=0.0, max_tokens=9)["options"] == {"temperature": 0.0, "num_predict": 9}


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


def test_tools_are_functions_with_their_schemas() -> None:
    (function,) = body(tools=[look_up])["tools"]
    assert function["type"] == "function"
    assert function["function"]["name"] == "look_up"
    assert function["function"]["description"] == "Says what the weather is."
    assert function["function"]["parameters"]["required"] == ["place"]


# -- messages ------------------------------------------------------------------------------------------------


def test_images_are_sent_with_the_message(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"icon")
    message = UserMessage(
        [Text("what "), Image(Base64Image("image/png", PIXEL)), Text("is it?"), Image(FileImage(str(picture)))]
    )
    assert sent(message) == [{"role": "user", "content": "what is it?", "images": [PIXEL, PIXEL]}]


def test_a_note_stands_for_an_image_behind_a_url() -> None:
    (message,) = sent(UserMessage([Text("Look"), Image(UrlImage("https://host/a.png"))]))
    note = "[image left out: this model is given image data, not URLs such as https://host/a.png]"
    assert message == {"role": "user", "content": f"Look\n{note}"}


def test_a_reply_goes_back_with_its_thinking_and_its_calls() -> None:
    reply = AssistantMessage(
        [
            Thinking("hm"),
            Text("I look."),
            ToolCall("c1", "look_up", {"place": "Oslo"}),
            ToolCall("c2", "ring", {"cut": 1}, '{"cut'),
        ],
        "ollama",
    )
    assert sent(reply) == [
        {
            "role": "assistant",
            "content": "I look.",
            "thinking": "hm",
            "tool_calls": [
                {"id": "c1", "function": {"index": 0, "name": "look_up", "arguments": {"place": "Oslo"}}},
                {"id": "c2", "function": {"index": 1, "name": "ring", "arguments": {}}},
            ],
        }
    ]


def test_the_thinking_of_others_is_not_sent() -> None:
    assert sent(AssistantMessage([Thinking("hm", "signed"), Text("hello")], "anthropic")) == [
        {"role": "assistant", "content": "hello"}
    ]


def test_messages_that_say_nothing_are_left_out() -> None:
    messages = (
        UserMessage([Text(""), Extension("widget", {})]),
        AssistantMessage([Thinking("hm")], "ollama"),
        AssistantMessage("half", "openai", stop_reason=StopReason.ABORTED),
    )
    assert sent(*messages) == [{"role": "assistant", "content": "half"}]


def test_results_name_their_tool_and_say_when_they_are_errors() -> None:
    messages = (
        AssistantMessage([ToolCall("c1", "look_up", {}), ToolCall("c2", "ring", {}), ToolCall("c3", "ring", {})], "x"),
        ToolResultMessage("c1", "rain"),
        ToolResultMessage("c2", "no bell", is_error=True, tool_name="ring"),
        ToolResultMessage("c3", [], tool_name="ring"),
    )
    assert sent(*messages)[1:] == [
        {"role": "tool", "content": "rain", "tool_call_id": "c1", "tool_name": "look_up"},
        {"role": "tool", "content": "Error: no bell", "tool_call_id": "c2", "tool_name": "ring"},
        {"role": "tool", "content": "(no output)", "tool_call_id": "c3", "tool_name": "ring"},
    ]


def test_images_of_results_follow_all_results_of_the_turn() -> None:
    messages = (
        AssistantMessage([ToolCall("c1", "ring", {}), ToolCall("c2", "ring", {})], "ollama"),
        ToolResultMessage("c1", [Image(Base64Image("image/png", PIXEL))], tool_name="ring"),
        ToolResultMessage("c2", "two", tool_name="ring"),
        UserMessage("well?"),
    )
    assert sent(*messages)[1:] == [
        {"role": "tool", "content": "(see the image below)", "tool_call_id": "c1", "tool_name": "ring"},
        {"role": "tool", "content": "two", "tool_call_id": "c2", "tool_name": "ring"},
        {"role": "user", "content": "Image from ring:", "images": [PIXEL]},
        {"role": "user", "content": "well?"},
    ]


# -- replies -------------------------------------------------------------------------------------------------


events_of = WIRE.read


def assembled(*pieces: bytes) -> AssistantMessage:
    return bodies.message_of(WIRE.read(*pieces), QWEN)


def test_thinking_and_text_are_streamed_as_they_come() -> None:
    *events, done = events_of(line(thinking="hm") + line(content="Hel") + line(content="lo") + line("stop"))
    assert events == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta(0, "hm"),
        ThinkingEnd(0),
        TextStart(1),
        TextDelta(1, "Hel"),
        TextDelta(1, "lo"),
        TextEnd(1),
    ]
    assert done.stop_reason == StopReason.STOP
    assert done.usage == Usage(input=11, output=7, total=18)


def test_parallel_calls_are_tool_use() -> None:
    message = assembled(FULL)
    assert message.content == (
        Thinking("Let me see."),
        Text("I ask: ☀ 𝄞"),
        ToolCall("c1", "look_up", {"place": "Łódź"}),
        ToolCall("c2", "look_up", {"place": "Oslo"}),
    )
    assert message.stop_reason == StopReason.TOOL_USE
    assert message.usage == Usage(input=11, output=7, total=18)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [({"a": 1.0}, {"a": 1.0}), ({}, {}), (None, {}), ("", {}), ('{"a": [1]}', {"a": [1]})],
)
def test_arguments_are_an_object_or_the_text_of_one(arguments: Any, parsed: dict[str, Any]) -> None:
    message = assembled(line(tool_calls=[call("ring", arguments)]) + line("stop"))
    assert message.tool_calls[0].arguments == parsed


def test_a_call_before_the_length_limit_is_complete() -> None:
    message = assembled(line(tool_calls=[call("ring", {"n": 1})]) + line("length"))
    assert message.stop_reason == StopReason.LENGTH
    assert message.tool_calls[0].arguments == {"n": 1}


def test_an_old_server_gives_no_reason_and_no_counts() -> None:
    message = assembled(line(content="a") + b'{"done": true}\n')
    assert message.stop_reason == StopReason.STOP
    assert message.usage == Usage()


def test_a_reply_may_be_one_line() -> None:
    assert assembled(line("stop", content="whole", thinking="hm").rstrip()).content == (Thinking("hm"), Text("whole"))


def test_blank_lines_and_carriage_returns_are_passed_over() -> None:
    assert assembled(FULL.replace(b"\n", b"\r\n\r\n")).content == assembled(FULL).content


# -- the whole way -------------------------------------------------------------------------------------------


async def last_event(data: bytes, content_type: str, status: int = 200) -> Any:
    async with LoopbackServer(answer(data, content_type=content_type, status=status, pieces=7)) as server:
        stream = OllamaStreamFn(server.url)(
            QWEN, AgentContext("", (UserMessage("hi"),)), StreamOptions(), CancellationToken()
        )
        events = [event async for event in stream]
    assert [request.path for request in server.requests if request.method == "POST"] == ["/api/chat"]
    return events[-1]


async def test_a_reply_is_read_through_the_stream_function() -> None:
    done = await last_event(FULL, "application/x-ndjson")
    assert done.stop_reason == StopReason.TOOL_USE
    assert done.usage.total == 18


@pytest.mark.parametrize(
    ("models", "advice"),
    [
        ('{"models":[{"name":"qwen3:8b"},{"name":"llama3:8b"}]}', "(is it qwen3:8b? Others: ollama pull qwen3:4b)"),
        ('{"models":[{"name":"zz"},{"name":7},null]}', "(it has zz. Others: ollama pull qwen3:4b)"),
        ('{"models":[]}', "(it has no models: ollama pull qwen3:4b)"),
        ("no json", None),
    ],
)
async def test_a_model_that_is_not_there_is_answered_with_those_that_are(models: str, advice: str | None) -> None:
    missing = answer('{"error":"model \'qwen3:4b\' not found"}', content_type="application/json", status=404)
    async with LoopbackServer(missing, answer(models, content_type="application/json")) as server:
        stream = OllamaStreamFn(server.url)(
            QWEN, AgentContext("", (UserMessage("hi"),)), StreamOptions(), CancellationToken()
        )
        (failed,) = [event async for event in stream]
    assert [request.path for request in server.requests] == ["/api/chat", "/api/tags"]
    assert failed.message == "HTTP 404: model 'qwen3:4b' not found" + (f" {advice}" if advice else "")


async def test_an_error_document_is_a_failure_whatever_its_status() -> None:
    failed = await last_event(line(error="the model failed"), "application/json")
    assert failed == StreamFailed("the model failed", ErrorKind.NETWORK)
    failed = await last_event(line(error="model 'qwen3:4b' not found"), "application/json", 404)
    assert failed.kind == ErrorKind.INVALID_REQUEST
    assert "qwen3:4b" in failed.message
