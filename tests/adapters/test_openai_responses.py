"""OpenAI Responses: what depends on the model, and reasoning there and back. `tests/wire` has requests and replies."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentContext,
    AssistantMessage,
    Base64Image,
    Extension,
    FileImage,
    Image,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamOptions,
    Text,
    Thinking,
    ThinkingLevel,
    ToolResultMessage,
    UrlImage,
    UserMessage,
    decode_message,
    encode_message,
    tool,
)
from swink_agent.adapters.openai_responses import OpenAiResponsesStreamFn, ResponsesParser
from tests.wire import exchanges
from tests.wire.exchanges import read

MODEL = ModelSpec("openai-responses", "gpt-5.4")
ADDED, DONE = "response.output_item.added", "response.output_item.done"
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": 'gAAAA/+==\\"é',
}
PIXEL = base64.b64encode(b"\x89PNG").decode()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


# -- the request ---------------------------------------------------------------------------------------------


def body_of(
    *messages: Any,
    model: ModelSpec = MODEL,
    system: str = "",
    tools: Sequence[Any] = (),
    stream_fn: OpenAiResponsesStreamFn | None = None,
    **options: Any,
) -> dict[str, Any]:
    stream_fn = stream_fn or OpenAiResponsesStreamFn(api_key="k")
    request = stream_fn.build(model, AgentContext(system, messages, tools), StreamOptions(**options))
    return json.loads(request.body)


def input_of(*messages: Any, **given: Any) -> list[dict[str, Any]]:
    return body_of(*messages, **given)["input"]


def own(*blocks: Any, model: ModelSpec = MODEL, **fields: Any) -> AssistantMessage:
    return AssistantMessage(blocks, model.provider, model.model_id, **fields)


def signed(item: dict[str, Any] = REASONING, thinking: str = "First.Then.") -> Thinking:
    return Thinking(thinking, json.dumps(item))


@pytest.mark.table
@pytest.mark.parametrize(
    ("level", "effort"),
    [
        (ThinkingLevel.OFF, None),
        (ThinkingLevel.MINIMAL, "minimal"),
        (ThinkingLevel.LOW, "low"),
        (ThinkingLevel.MEDIUM, "medium"),
        (ThinkingLevel.HIGH, "high"),
        (ThinkingLevel.EXTRA_HIGH, "xhigh"),
    ],
)
def test_the_thinking_level_is_an_effort_with_a_summary(level: ThinkingLevel, effort: str | None) -> None:
    body = body_of(UserMessage("Hi"), model=ModelSpec("openai-responses", "gpt-5.4", level))
    assert body.get("reasoning") == (effort and {"effort": effort, "summary": "auto"})


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("gpt-4o-mini", False),
        ("gpt-4.1", False),
        ("gpt-3.5-turbo", False),
        ("chatgpt-4o-latest", False),
        ("gpt-5-chat-latest", False),
        ("openai/gpt-4o", False),
        ("gpt-5", True),
        ("o3-pro", True),
        ("codex-mini-latest", True),
        ("openai.gpt-5.6-luna", True),
        ("grok-4.3", True),
    ],
)
def test_models_without_reasoning_are_asked_for_none(name: str, reasons: bool) -> None:
    body = body_of(UserMessage("Hi"), model=ModelSpec("openai-responses", name, ThinkingLevel.LOW))
    assert ("include" in body, "reasoning" in body) == (reasons, reasons)


def test_options_go_into_the_body() -> None:
    body = body_of(
        UserMessage("Hi"), temperature=0.5, max_tokens=64, session_id="s-1", extra={"top_p": 0.9, "include": None}
    )
    assert body["temperature"] == 0.5
    assert body["max_output_tokens"] == 64
    assert body["prompt_cache_key"] == "s-1"
    assert body["top_p"] == 0.9
    assert "include" not in body


def test_a_session_is_a_short_cache_key_unless_caching_is_off() -> None:
    assert "prompt_cache_key" not in body_of(UserMessage("Hi"), session_id="s-1", cache="none")
    key = body_of(UserMessage("Hi"), session_id="s" * 200)["prompt_cache_key"]
    assert len(key) <= 64
    assert key == body_of(UserMessage("Hi"), session_id="s" * 200)["prompt_cache_key"]


# -- input items ---------------------------------------------------------------------------------------------


def test_a_note_stands_for_an_image_file_that_is_not_there() -> None:
    note = "[image missing: missing.png could not be read: No such file or directory]"
    (item,) = input_of(UserMessage([Image(FileImage("/nowhere/missing.png"))]))
    assert item["content"] == [{"type": "input_text", "text": note}]
    (result,) = input_of(ToolResultMessage("c", [Text("Here: "), Image(FileImage("/nowhere/missing.png"))]))
    assert result["output"] == f"Here: {note}"


@pytest.mark.table
@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResultMessage("c", [Text("a"), Text(""), Text("b")]), "ab"),
        (ToolResultMessage("c", []), "(no output)"),
        (ToolResultMessage("c", [Extension("chart", {})]), "(no output)"),
        (ToolResultMessage("c", [], is_error=True), "Error: (no output)"),
        (ToolResultMessage("c", "Error: twice is enough", is_error=True), "Error: twice is enough"),
        (
            ToolResultMessage("c", [Text("A page"), Image(Base64Image("image/png", PIXEL))]),
            [
                {"type": "input_text", "text": "A page"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
            ],
        ),
        (
            ToolResultMessage("c", [Image(UrlImage("https://example.test/crash.png"))], is_error=True),
            [
                {"type": "input_text", "text": "Error:"},
                {"type": "input_image", "image_url": "https://example.test/crash.png", "detail": "auto"},
            ],
        ),
    ],
)
def test_a_result_is_text_or_parts_with_its_images(result: ToolResultMessage, output: Any) -> None:
    assert input_of(result) == [{"type": "function_call_output", "call_id": "c", "output": output}]


@pytest.mark.table
@pytest.mark.parametrize(
    "message",
    [
        AssistantMessage([signed(), Text("Hi")], "anthropic", "gpt-5.4"),
        AssistantMessage([signed(), Text("Hi")], "openai-responses", "gpt-5.4-mini"),
        own(signed(), Text("Hi"), stop_reason=StopReason.ERROR),
        own(signed(), Text("Hi"), stop_reason=StopReason.ABORTED),
        own(Thinking("Hm", "EqQBCkYIBRgCKkD"), Text("Hi")),
        own(Thinking("Hm", '{"type":"thinking"}'), Text("Hi")),
        own(Thinking("Hm", '{"type":"reasoning"'), Text("Hi")),
        own(Thinking("Hm", "{" + '"a":[' * 100_000), Text("Hi")),
        own(Thinking("Hm"), Text("Hi")),
        own(Text("Hi"), signed()),
    ],
    ids=["provider", "model", "failed", "aborted", "base64", "json", "cut", "deep", "unsigned", "last"],
)
def test_reasoning_that_this_model_did_not_finish_is_left_out(message: AssistantMessage) -> None:
    assert [item["type"] for item in input_of(message)] == ["message"]


def test_reasoning_before_a_tool_that_the_provider_ran_loses_its_id() -> None:
    second = {**REASONING, "id": "rs_2"}
    first_sent, second_sent, _ = input_of(own(signed(), signed(second), Text("Found it.")))
    assert first_sent == {name: value for name, value in REASONING.items() if name != "id"}
    assert second_sent == second


# -- reasoning there and back --------------------------------------------------------------------------------


def went_back(item: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """What of a reply's reasoning is sent in the next request, after the history was stored and loaded."""
    called = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"}
    frames = [
        {"type": ADDED, "output_index": 0, "item": {"type": "reasoning", "id": item["id"]}},
        *deltas,
        {"type": DONE, "output_index": 0, "item": item},
        {"type": DONE, "output_index": 1, "item": called},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    message = exchanges.message_of(read("openai-responses", exchanges.body_of("openai-responses", frames)), MODEL)
    stored = decode_message(encode_message(message))
    return [sent for sent in input_of(stored, ToolResultMessage("call_1", "5")) if sent["type"] == "reasoning"]


@pytest.mark.parametrize(
    "item",
    [
        REASONING,
        {**REASONING, "summary": []},
        {**REASONING, "content": [], "summary": [{"type": "summary_text", "text": '☕\u2028\n\\"'}]},
        {"id": "rs_2", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Openly."}]},
        {**REASONING, "encrypted_content": "A+/=" * 50_000, "format": "xai-responses-v1"},
    ],
    ids=["summary", "bare", "odd characters", "open", "large"],
)
def test_reasoning_goes_back_just_as_it_came(item: dict[str, Any]) -> None:
    assert went_back({**item, "status": "completed"}) == [item]


def test_reasoning_that_is_neither_open_nor_encrypted_does_not_go_back() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "content": []}
    assert went_back(item) == []


@given(
    st.fixed_dictionaries(
        {
            "type": st.just("reasoning"),
            "id": st.text(min_size=1),
            "summary": st.lists(st.fixed_dictionaries({"type": st.just("summary_text"), "text": st.text()})),
            "encrypted_content": st.text(min_size=1),
        }
    )
)
@settings(max_examples=100)
def test_any_reasoning_goes_back_byte_for_byte(item: dict[str, Any]) -> None:
    kind = "response.reasoning_summary_text.delta"
    deltas = [{"type": kind, "output_index": 0, "delta": part["text"]} for part in item["summary"]]
    assert went_back(item, *deltas) == [item]


# -- events of any shape -----------------------------------------------------------------------------------------


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "text"]), inner),
    max_leaves=5,
)
KINDS = [*sorted(ResponsesParser._actions), "error", "ping", ""]
FIELDS = ["delta", "output_index", "item_id", "item", "response", "error", "arguments", "input"]
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "mcp_call"])},
    optional={
        name: WRONG | st.text(max_size=3)
        for name in ("id", "call_id", "name", "arguments", "input", "status", "summary", "content", "encrypted_content")
    },
)


@pytest.mark.sweep
@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(KINDS)},
            optional={
                **dict.fromkeys(FIELDS, WRONG),
                "item": ITEM | WRONG,
                "output_index": st.integers(0, 2) | WRONG,
                "delta": st.text(max_size=3) | WRONG,
            },
        ),
        max_size=12,
    )
)
@settings(max_examples=150)
def test_events_of_any_shape_make_a_well_formed_sequence(frames: list[dict[str, Any]]) -> None:
    body = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    assembler = MessageAssembler(MODEL)
    for each in read("openai-responses", body):
        assembler.feed(each)
    message = assembler.message()
    assert not assembler.is_broken or "JSON object" in (message.error_message or "")
