"""Gemini: the request for a conversation, and the message from the answer."""

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
    ThinkingBudgets,
    ThinkingEnd,
    ThinkingLevel,
    ToolCall,
    ToolCallStart,
    ToolResultMessage,
    UrlImage,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.adapters.gemini import GeminiStreamFn
from swink_agent.adapters.kit.transport import HttpRequest
from swink_agent.testing.servers import LoopbackServer, answer

from . import bodies
from .bodies.gemini import BODIES, FULL, OVERLOADED, SIGNATURE, WIRE, call, chunk, sse

PRO = ModelSpec("gemini", "gemini-3.1-pro-preview")
FLASH = ModelSpec("gemini", "gemini-2.5-flash")
PIXEL = "aWNvbg=="
OTHER_SIGNATURE = base64.b64encode(b"\x12\x31\x0a\x2f\x01further thoughts of it").decode()
SKIP = "skip_thought_signature_validator"


@tool
def look_up(place: str, day: int = 0) -> str:
    """Says what the weather is.

    Args:
        place: the town
    """
    return place


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


def test_the_key_is_in_a_header_and_nowhere_else() -> None:
    request = built()
    assert request.headers["x-goog-api-key"] == "k"
    assert "'k'" not in repr(request)
    assert "'k'" not in repr(GeminiStreamFn(api_key="k"))


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


def test_a_system_prompt_is_the_system_instruction() -> None:
    assert body(prompt="be brief")["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    assert "systemInstruction" not in body()


def test_tools_are_declared_with_their_json_schema() -> None:
    (tools,) = body(tools=[look_up])["tools"]
    (declared,) = tools["functionDeclarations"]
    assert declared["name"] == "look_up"
    assert declared["description"].startswith("Says what")
    assert declared["parametersJsonSchema"]["properties"]["place"]["type"] == "string"
    assert declared["parametersJsonSchema"]["required"] == ["place"]


def test_the_dialect_of_a_schema_is_left_out() -> None:
    class Bare:
        name, label, description, requires_approval = "bare", "bare", "", False
        parameters_schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {}}

    (tools,) = body(tools=[Bare()])["tools"]
    assert tools["functionDeclarations"][0]["parametersJsonSchema"] == {"type": "object", "properties": {}}


def test_sampling_is_in_the_generation_config() -> None:
    config = body(temperature=0.0, max_tokens=99)["generationConfig"]
    assert config["temperature"] == 0.0
    assert config["maxOutputTokens"] == 99


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


def test_messages_of_one_role_are_one_content() -> None:
    messages = [
        UserMessage("one"),
        UserMessage("two"),
        AssistantMessage("half", "gemini", stop_reason=StopReason.ABORTED),
        AssistantMessage("whole", "gemini"),
    ]
    assert contents(messages) == [
        {"role": "user", "parts": [{"text": "one"}, {"text": "two"}]},
        {"role": "model", "parts": [{"text": "half"}, {"text": "whole"}]},
    ]


def test_what_is_empty_or_unknown_is_left_out() -> None:
    messages = [
        UserMessage([Text(""), Text("hi"), Extension("widget", {})]),
        AssistantMessage([Thinking("hm"), Text("")], "anthropic"),
        AssistantMessage([Thinking("hm"), Thinking("", SIGNATURE)], "gemini"),
        UserMessage(""),
        UserMessage("again"),
    ]
    assert contents(messages) == [{"role": "user", "parts": [{"text": "hi"}, {"text": "again"}]}]


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


def test_results_are_in_one_content_by_name_with_the_ids_of_their_calls() -> None:
    messages = [
        AssistantMessage([ToolCall("c1", "look_up", {"place": "Oslo"}), ToolCall("c2", "ring", {})], "gemini"),
        ToolResultMessage("c1", "rain", tool_name="look_up"),
        ToolResultMessage("c2", "no bell", is_error=True),
        UserMessage("and now?"),
    ]
    assert contents(messages)[1] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "c1", "name": "look_up", "response": {"output": "rain"}}},
            {"functionResponse": {"id": "c2", "name": "ring", "response": {"error": "no bell"}}},
            {"text": "and now?"},
        ],
    }


def test_contents_that_begin_with_a_reply_are_opened_by_the_user() -> None:
    reply = AssistantMessage([ToolCall("c1", "ring", {})], "gemini")
    result = ToolResultMessage("c1", "rang", tool_name="ring")
    sent = body([reply, result])["contents"]
    assert [content["role"] for content in sent] == ["user", "model", "user"]
    assert sent[0] == OPENING
    assert body([UserMessage("hi"), reply, result])["contents"][0]["parts"] == [{"text": "hi"}]


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


def test_an_empty_result_says_so() -> None:
    """An empty error could be read as none."""
    messages = [
        AssistantMessage([ToolCall("c1", "ring", {}), ToolCall("c2", "ring", {})], "gemini"),
        ToolResultMessage("c1", []),
        ToolResultMessage("c2", "", is_error=True),
    ]
    responses = [part["functionResponse"]["response"] for part in contents(messages)[1]["parts"]]
    assert responses == [{"output": "(no output)"}, {"error": "(no output)"}]


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


events_of = WIRE.read


def assembled(*pieces: bytes) -> AssistantMessage:
    return bodies.message_of(WIRE.read(*pieces), PRO)


def test_text_is_streamed_as_it_comes() -> None:
    body = sse(chunk({"text": "Hel"}), chunk({"text": "lo"}, finish="STOP", usageMetadata={"promptTokenCount": 3}))
    *events, done = events_of(body)
    assert events == [StreamStart(), TextStart(0), TextDelta(0, "Hel"), TextDelta(0, "lo"), TextEnd(0)]
    assert done.stop_reason == StopReason.STOP
    assert done.usage == Usage(input=3, total=3)


def test_thinking_text_and_parallel_calls() -> None:
    message = assembled(FULL)
    assert message.content == (
        Thinking("Let me see.\n"),
        Text("I ask two places: ☀ 𝄞"),
        Thinking("", SIGNATURE),
        ToolCall("id1", "look_up", {"place": "Oslo"}),
        ToolCall("id2", "look_up", {"place": "Łódź"}),
    )
    assert message.stop_reason == StopReason.TOOL_USE
    assert message.usage == Usage(input=45, output=27, cache_read=60, total=132, extra={"reasoning": 20})


def test_a_reply_goes_back_part_by_part_as_it_came() -> None:
    sent = contents([assembled(FULL)], PRO)[0]["parts"]
    assert sent == [
        {"text": "I ask two places: ☀ 𝄞"},
        {
            "functionCall": {"id": "id1", "name": "look_up", "args": {"place": "Oslo"}},
            "thoughtSignature": SIGNATURE,
        },
        {"functionCall": {"id": "id2", "name": "look_up", "args": {"place": "Łódź"}}},
    ]


def test_a_signed_thought_keeps_its_signature() -> None:
    message = assembled(
        sse(
            chunk({"text": "one", "thought": True}),
            chunk({"text": "", "thought": True, "thoughtSignature": SIGNATURE}),
            chunk({"text": "two", "thought": True}),
            chunk({"text": "so", "thoughtSignature": OTHER_SIGNATURE}),
            chunk({"text": " it is"}, finish="STOP"),
        )
    )
    assert message.content == (
        Thinking("one", SIGNATURE),
        Thinking("two"),
        Thinking("", OTHER_SIGNATURE),
        Text("so it is"),
    )


def test_a_signature_on_an_empty_last_part_is_kept() -> None:
    message = assembled(sse(chunk({"text": "ok"}), chunk({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP")))
    assert message.content == (Text("ok"), Thinking("", SIGNATURE))


@pytest.mark.parametrize("arguments", [{}, None])
def test_a_call_may_have_no_arguments(arguments: Any) -> None:
    part = {"functionCall": {"name": "ring", "args": arguments}}
    assert assembled(sse(chunk(part, finish="STOP"))).tool_calls[0].arguments == {}
    assert assembled(sse(chunk({"functionCall": {"name": "ring"}}, finish="STOP"))).tool_calls[0].arguments == {}


def test_what_google_runs_itself_is_passed_over() -> None:
    message = assembled(
        sse(
            chunk({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
            chunk({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
            chunk({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s"}}, {"inlineData": {"data": PIXEL}}),
            chunk({"text": "2"}, finish="STOP", usageMetadata={"promptTokenCount": 2, "newCount": {"a": []}}),
        )
    )
    assert message.content == (Text("2"),)
    assert message.stop_reason == StopReason.STOP


def test_only_the_first_candidate_counts() -> None:
    second = {"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "SAFETY"}
    body = sse({"candidates": [{"content": {"parts": [{"text": "yes"}]}, "finishReason": "STOP"}, second]})
    assert assembled(body).text == "yes"


def test_the_last_usage_counts() -> None:
    body = sse(
        chunk({"text": "a"}, usageMetadata={"promptTokenCount": 1, "candidatesTokenCount": 1}),
        chunk(finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    )
    assert assembled(body).usage == Usage(input=9, output=2, total=11)


def test_calls_before_the_length_limit_are_complete() -> None:
    message = assembled(sse(chunk(call("ring", {"n": 1}), finish="MAX_TOKENS")))
    assert message.stop_reason == StopReason.LENGTH
    assert message.tool_calls[0].arguments == {"n": 1}
    assert message.tool_calls[0].partial_json is None


@pytest.mark.table
@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("SAFETY", ErrorKind.CONTENT_FILTERED),
        ("RECITATION", ErrorKind.CONTENT_FILTERED),
        ("BLOCKLIST", ErrorKind.CONTENT_FILTERED),
        ("PROHIBITED_CONTENT", ErrorKind.CONTENT_FILTERED),
        ("SPII", ErrorKind.CONTENT_FILTERED),
        ("IMAGE_SAFETY", ErrorKind.CONTENT_FILTERED),
        ("MALFORMED_FUNCTION_CALL", ErrorKind.STREAM),
        ("UNEXPECTED_TOOL_CALL", ErrorKind.STREAM),
        ("OTHER", ErrorKind.STREAM),
        ("MISSING_THOUGHT_SIGNATURE", ErrorKind.INVALID_REQUEST),
    ],
)
def test_a_finish_reason_that_is_none_is_a_failure(finish: str, kind: ErrorKind) -> None:
    body = sse(chunk({"text": "so far"}, finish="STOP"), chunk(finish=finish, usageMetadata={"promptTokenCount": 4}))
    message = assembled(body)
    assert message.text == "so far"
    assert message.error_kind == kind
    assert finish in (message.error_message or "")
    assert message.usage.input == 4


def test_a_prompt_that_is_blocked_is_filtered() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 8}}
    *_, failed = events_of(sse(blocked))
    assert failed.kind == ErrorKind.CONTENT_FILTERED
    assert "SAFETY" in failed.message
    assert failed.usage == Usage(input=8, total=8)


def test_feedback_that_blocks_nothing_is_passed_over() -> None:
    assert assembled(sse(chunk({"text": "a"}, finish="STOP", promptFeedback={"safetyRatings": []}))).text == "a"


# -- errors --------------------------------------------------------------------------------------------------


def test_a_body_may_be_one_json_array() -> None:
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in FULL.split(b"\r\n\r\n") if line]
    body = json.dumps(chunks, indent=2).encode()
    assert assembled(body).content == assembled(FULL).content
    assert assembled(b"\n " + body).usage == assembled(FULL).usage


def test_a_document_instead_of_a_stream_is_read_too() -> None:
    assert assembled(json.dumps(OVERLOADED).encode()).error_kind == ErrorKind.NETWORK
    assert assembled(json.dumps([OVERLOADED]).encode()).error_kind == ErrorKind.NETWORK
    assert assembled(json.dumps(chunk({"text": "whole"}, finish="STOP")).encode()).text == "whole"


def test_comments_blank_events_and_a_marker_are_passed_over() -> None:
    body = b": hello\n\nevent: ping\ndata:\n\n" + sse(chunk({"text": "a"}, finish="STOP")) + b"data: [DONE]\n\n"
    assert assembled(body).text == "a"


# -- the whole way -------------------------------------------------------------------------------------------


async def last_event(data: bytes, content_type: str, status: int = 200) -> Any:
    served = answer(data, content_type=content_type, status=status, pieces=7)
    async with LoopbackServer(served) as server:
        stream_fn = GeminiStreamFn(server.url, "k")
        context = AgentContext("", (UserMessage("hi"),))
        events = [event async for event in stream_fn(PRO, context, StreamOptions(), CancellationToken())]
    (received,) = server.requests
    assert received.path == "/v1beta/models/gemini-3.1-pro-preview:streamGenerateContent?alt=sse"
    assert received.headers["x-goog-api-key"] == "k"
    return events[-1]


async def test_both_framings_are_read_through_the_stream_function() -> None:
    assert (await last_event(FULL, "text/event-stream")).stop_reason == StopReason.TOOL_USE
    assert (await last_event(BODIES["array"], "application/json; charset=UTF-8")).stop_reason == StopReason.TOOL_USE


async def test_an_error_document_with_status_200_is_a_failure() -> None:
    failed = await last_event(json.dumps([OVERLOADED]).encode(), "application/json")
    assert failed == StreamFailed("The model is overloaded.", ErrorKind.NETWORK)
    assert isinstance(await last_event(b"[]", "application/json"), StreamFailed)
    assert isinstance(await last_event(b"<html>", "text/html"), StreamFailed)


async def test_a_refusal_has_its_kind() -> None:
    refused = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}
    assert (await last_event(json.dumps(refused).encode(), "application/json", 400)).kind == ErrorKind.AUTH


def test_thinking_ends_with_its_signature_in_the_events() -> None:
    starts_and_ends = [event for event in events_of(FULL) if type(event) in (ThinkingEnd, ToolCallStart)]
    assert starts_and_ends == [
        ThinkingEnd(0),
        ThinkingEnd(2, SIGNATURE),
        ToolCallStart(3, "id1", "look_up"),
        ToolCallStart(4, "id2", "look_up"),
    ]
