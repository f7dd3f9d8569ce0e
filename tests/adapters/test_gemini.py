"""Gemini: addresses, and what depends on the model or on signatures. `tests/wire` has requests and replies."""

from __future__ import annotations

import base64
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
    ErrorKind,
    FileImage,
    Image,
    ModelSpec,
    StreamFailed,
    StreamOptions,
    Text,
    Thinking,
    ThinkingBudgets,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    UserMessage,
    tool,
)
from swink_agent.adapters.gemini import GeminiStreamFn
from swink_agent.adapters.kit.transport import HttpRequest
from tests.wire.exchanges import Exchange, cases, events_of, load, read, shown

PRO = ModelSpec("gemini", "gemini-3.1-pro-preview")
FLASH = ModelSpec("gemini", "gemini-2.5-flash")
PIXEL = "aWNvbg=="
SIGNATURE = base64.b64encode(b"\x12\x30\x0a\x2e\x01thoughts of the model").decode()
OTHER_SIGNATURE = base64.b64encode(b"\x12\x31\x0a\x2f\x01further thoughts of it").decode()
SKIP = "skip_thought_signature_validator"


@tool
def ring() -> str:
    """Rings."""
    return "ring"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def built(
    messages: Sequence[AgentMessage] = (UserMessage("hi"),),
    model: ModelSpec = FLASH,
    tools: Sequence[Any] = (),
    prompt: str = "",
    stream_fn: GeminiStreamFn | None = None,
    **options: Any,
) -> HttpRequest:
    stream_fn = stream_fn or GeminiStreamFn(api_key="k")
    return stream_fn.build(model, AgentContext(prompt, messages, tools), StreamOptions(**options))


def body(*arguments: Any, **keywords: Any) -> dict[str, Any]:
    return json.loads(built(*arguments, **keywords).body)


OPENING = {"role": "user", "parts": [{"text": "Continue."}]}


def contents(messages: Sequence[AgentMessage], model: ModelSpec = FLASH) -> Any:
    """The contents, without the turn of the user that opens those which begin with a reply."""
    found = body(messages, model)["contents"]
    return found[1:] if found[0] == OPENING else found


# -- where it goes -------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://host:9", "http://host:9/v1beta"),
        ("http://host:9/", "http://host:9/v1beta"),
        ("http://host:9/v1beta", "http://host:9/v1beta"),
        ("http://host:9/v1beta/", "http://host:9/v1beta"),
        ("http://host:9/v1alpha", "http://host:9/v1alpha"),
        ("http://host/prefix", "http://host/prefix/v1beta"),
        ("http://v1.host", "http://v1.host/v1beta"),
        ("http://v1/", "http://v1/v1beta"),
        ("http://[not a host", "http://[not a host/v1beta"),
        ("https://host/v1/projects/p/publishers/google", "https://host/v1/projects/p/publishers/google"),
    ],
)
def test_the_base_url_may_have_its_version_and_a_slash(given: str, expected: str) -> None:
    assert GeminiStreamFn(given).base_url == expected


def test_a_model_may_be_named_by_its_path() -> None:
    assert "/v1beta/models/gemini-x:stream" in built(model=ModelSpec("gemini", "models/gemini-x")).url
    assert "/v1beta/tunedModels/mine:stream" in built(model=ModelSpec("gemini", "tunedModels/mine")).url
    assert "/models/a%3Fb%20c:stream" in built(model=ModelSpec("gemini", "a?b c")).url


def test_the_first_of_two_variables_gives_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert built(stream_fn=GeminiStreamFn()).headers["x-goog-api-key"] == "second"
    monkeypatch.setenv("GEMINI_API_KEY", "first")
    assert built(stream_fn=GeminiStreamFn()).headers["x-goog-api-key"] == "first"


# -- the fields ----------------------------------------------------------------------------------------------


def test_the_dialect_of_a_schema_is_left_out() -> None:
    class Bare:
        name, label, description, requires_approval = "bare", "bare", "", False
        parameters_schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {}}

    (tools,) = body(tools=[Bare()])["tools"]
    assert tools["functionDeclarations"][0]["parametersJsonSchema"] == {"type": "object", "properties": {}}


def test_extra_fields_are_merged_into_the_body() -> None:
    sent = body(
        tools=[ring],
        max_tokens=5,
        extra={"generationConfig": {"topP": 0.5}, "tools": [{"googleSearch": {}}], "cachedContent": "c"},
    )
    assert sent["generationConfig"]["topP"] == 0.5
    assert sent["generationConfig"]["maxOutputTokens"] == 5
    assert [list(entry) for entry in sent["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert sent["cachedContent"] == "c"


@pytest.mark.table
@pytest.mark.parametrize(
    ("model_id", "level", "config"),
    [
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", "extra_high", {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "extra_high", {"includeThoughts": True, "thinkingBudget": 32768}),
        ("gemini-3-flash-preview", "off", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3.1-pro-preview", "off", {"thinkingLevel": "LOW"}),
        ("gemini-3.1-flash-lite", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-3.8-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-4-argon", "extra_high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-flash-latest", "off", {"thinkingLevel": "LOW"}),
        ("my-own", "high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ],
)
def test_the_thinking_level_is_said_in_the_models_own_terms(model_id: str, level: str, config: dict[str, Any]) -> None:
    model = ModelSpec("gemini", model_id, ThinkingLevel(level))
    assert body(model=model)["generationConfig"]["thinkingConfig"] == config


@pytest.mark.parametrize("model_id", ["gemini-2.0-flash", "gemini-2.5-flash-image", "gemma-3-27b-it"])
def test_a_model_that_does_not_think_is_not_told_how_to(model_id: str) -> None:
    assert "generationConfig" not in body(model=ModelSpec("gemini", model_id))


def test_a_budget_wins_over_the_level() -> None:
    budgets = ThinkingBudgets({ThinkingLevel.HIGH: 999})
    model = ModelSpec("gemini", "gemini-3.1-pro-preview", ThinkingLevel.HIGH, budgets)
    assert body(model=model)["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingBudget": 999}


# -- messages ------------------------------------------------------------------------------------------------


def test_a_reply_of_thoughts_and_signatures_alone_is_left_out() -> None:
    messages = [
        UserMessage("hi"),
        AssistantMessage([Thinking("hm"), Thinking("", SIGNATURE)], "gemini"),
        UserMessage("?"),
    ]
    assert contents(messages) == [{"role": "user", "parts": [{"text": "hi"}, {"text": "?"}]}]


def test_images_are_sent_as_data_or_by_their_url(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"icon")
    message = UserMessage(
        [
            Image(Base64Image("image/jpeg", PIXEL)),
            Image(FileImage(str(picture))),
            Image(UrlImage("https://host/a.webp?size=1")),
            Image(UrlImage("https://host/b", "image/png")),
        ]
    )
    assert contents([message])[0]["parts"] == [
        {"inlineData": {"mimeType": "image/jpeg", "data": PIXEL}},
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"fileData": {"fileUri": "https://host/a.webp?size=1", "mimeType": "image/webp"}},
        {"fileData": {"fileUri": "https://host/b", "mimeType": "image/png"}},
    ]


def test_a_signature_goes_back_to_the_part_that_it_came_with() -> None:
    reply = AssistantMessage(
        [
            Thinking("unsigned summary"),
            Thinking("signed itself", OTHER_SIGNATURE),
            Thinking("", SIGNATURE),
            Text("I will look."),
            Thinking("", OTHER_SIGNATURE),
            ToolCall("c1", "look_up", {"place": "Oslo"}),
            ToolCall("c2", "ring", {}),
        ],
        "gemini",
    )
    assert contents([reply], PRO)[0]["parts"] == [
        {"text": "signed itself", "thought": True, "thoughtSignature": OTHER_SIGNATURE},
        {"text": "I will look.", "thoughtSignature": SIGNATURE},
        {
            "functionCall": {"id": "c1", "name": "look_up", "args": {"place": "Oslo"}},
            "thoughtSignature": OTHER_SIGNATURE,
        },
        {"functionCall": {"id": "c2", "name": "ring", "args": {}}},
    ]


def test_a_signature_with_nothing_behind_it_goes_back_alone() -> None:
    reply = AssistantMessage(
        [Thinking("", SIGNATURE), Thinking("", OTHER_SIGNATURE), Text("done"), Thinking("", SIGNATURE)], "gemini"
    )
    assert contents([reply], PRO)[0]["parts"] == [
        {"text": "", "thoughtSignature": SIGNATURE},
        {"text": "done", "thoughtSignature": OTHER_SIGNATURE},
        {"text": "", "thoughtSignature": SIGNATURE},
    ]


def test_the_signature_of_a_tool_that_google_ran_stays_here() -> None:
    server_tool = base64.urlsafe_b64encode(b"\x12\x96\x12\x0a\x93\x12\x08\x02\x12\x8e\x12\x01 and more").decode()
    reply = AssistantMessage([Thinking("", server_tool), Text("found")], "gemini")
    assert contents([reply], PRO)[0]["parts"] == [{"text": "found"}]


def test_thinking_and_signatures_of_others_are_not_sent() -> None:
    reply = AssistantMessage([Thinking("hm", SIGNATURE), Thinking("", SIGNATURE), Text("hello")], "anthropic")
    odd = AssistantMessage([Thinking("", "not base64!"), Text("hello")], "gemini")
    assert contents([reply, odd], PRO)[0]["parts"] == [{"text": "hello"}, {"text": "hello"}]


def test_the_first_call_of_another_model_says_that_it_is_unsigned() -> None:
    reply = AssistantMessage([ToolCall("a", "ring", {}), ToolCall("b", "ring", {})], "openai")
    calls = contents([reply], PRO)[0]["parts"]
    assert [part.get("thoughtSignature") for part in calls] == [SKIP, None]
    calls = contents([reply], FLASH)[0]["parts"]
    assert [part.get("thoughtSignature") for part in calls] == [None, None]


PICTURES = [
    AssistantMessage([ToolCall("a", "ring", {}), ToolCall("b", "ring", {})], "gemini"),
    ToolResultMessage("a", [Image(Base64Image("image/png", PIXEL))], tool_name="ring"),
    ToolResultMessage("b", [Text("two"), Image(UrlImage("https://host/b.png"))], tool_name="ring"),
]


def test_gemini_3_takes_the_data_of_images_in_the_result() -> None:
    assert contents(PICTURES, PRO)[1]["parts"] == [
        {
            "functionResponse": {
                "id": "a",
                "name": "ring",
                "response": {"output": "(see the image)"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
            }
        },
        {"functionResponse": {"id": "b", "name": "ring", "response": {"output": "two"}}},
        {"text": "Image from ring:"},
        {"fileData": {"fileUri": "https://host/b.png", "mimeType": "image/png"}},
    ]


def test_earlier_models_get_the_images_of_results_behind_them() -> None:
    parts = contents(PICTURES, FLASH)[1]["parts"]
    assert [next(iter(part)) for part in parts] == [
        "functionResponse",
        "functionResponse",
        "text",
        "inlineData",
        "text",
        "fileData",
    ]
    assert "parts" not in parts[0]["functionResponse"]


def test_one_stream_function_serves_different_models() -> None:
    stream_fn = GeminiStreamFn(api_key="k")
    reply = AssistantMessage([ToolCall("a", "ring", {})], "openai")
    for model, expected in ((PRO, SKIP), (FLASH, None), (PRO, SKIP)):
        part = json.loads(built([reply], model, stream_fn=stream_fn).body)["contents"][1]["parts"][0]
        assert part.get("thoughtSignature") == expected


# -- replies -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize("case", [case for api, case in cases("reply") if api == "gemini"])
def test_a_body_may_be_one_json_array(case: str) -> None:
    frames, expected = load("gemini", f"{case}.reply"), load("gemini", f"{case}.events")
    if any(isinstance(each, str) for each in frames):
        pytest.skip("its frames are not all JSON")
    for start, between, end in (("[", ",\r\n", "\n]"), ("\n [", ", ", "]")):
        body = (start + between.join(json.dumps(frame, ensure_ascii=False) for frame in frames) + end).encode()
        for pieces in ([body], [body[place : place + 1] for place in range(len(body))]):
            assert shown(read("gemini", *pieces), body) == expected


@pytest.mark.parametrize("as_list", [False, True])
def test_an_array_with_an_error_is_a_failure(as_list: bool) -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    (_, failed) = read("gemini", json.dumps([error] if as_list else error).encode())
    assert failed == StreamFailed("The model is overloaded.", ErrorKind.NETWORK)


@pytest.mark.parametrize(("body", "content_type"), [(b"[]", "application/json"), (b"<html>", "text/html")])
async def test_an_answer_without_a_reply_is_a_failure(body: bytes, content_type: str) -> None:
    exchange = Exchange(body, headers={"content-type": content_type})
    assert isinstance((await events_of("gemini", exchange))[-1], StreamFailed)
