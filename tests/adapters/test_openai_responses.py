"""OpenAI Responses: the request for a conversation, and the message from its events."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentContext,
    AssistantMessage,
    Base64Image,
    CancellationToken,
    ErrorKind,
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
    ToolCall,
    ToolResultMessage,
    UrlImage,
    Usage,
    UserMessage,
    decode_message,
    encode_message,
    tool,
)
from swink_agent.adapters.openai_responses import OpenAiResponsesStreamFn, ResponsesParser
from swink_agent.testing.servers import LoopbackServer, answer

from . import bodies
from .bodies.responses import (
    CUSTOM,
    HELLO,
    REASONING,
    THINKS_AND_CALLS,
    USAGE,
    WIRE,
    call_events,
    event,
    response_end,
)

MODEL = ModelSpec("openai-responses", "gpt-5.4")
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


def test_a_request_is_stateless_and_its_prompt_is_the_instructions() -> None:
    assert body_of(UserMessage("Hi"), system="Be brief.") == {
        "model": "gpt-5.4",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    }


def test_tools_are_flat_functions_whose_schema_is_left_alone() -> None:
    assert body_of(UserMessage("Hi"), tools=[add])["tools"] == [
        {
            "type": "function",
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": add.parameters_schema,
            "strict": False,
        }
    ]


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


def test_a_session_is_no_cache_key_when_caching_is_off_and_a_short_one_when_it_is_long() -> None:
    assert "prompt_cache_key" not in body_of(UserMessage("Hi"), session_id="s-1", cache="none")
    key = body_of(UserMessage("Hi"), session_id="s" * 200)["prompt_cache_key"]
    assert len(key) <= 64
    assert key == body_of(UserMessage("Hi"), session_id="s" * 200)["prompt_cache_key"]


# -- input items ---------------------------------------------------------------------------------------------


def test_images_of_every_source_are_input_images(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG")
    (item,) = input_of(
        UserMessage(
            [
                Text("Look"),
                Image(Base64Image("image/png", PIXEL)),
                Image(UrlImage("https://example.test/a.png")),
                Image(FileImage(str(path))),
            ]
        )
    )
    data = f"data:image/png;base64,{PIXEL}"
    assert item["content"] == [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": data, "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.test/a.png", "detail": "auto"},
        {"type": "input_image", "image_url": data, "detail": "auto"},
    ]


def test_a_note_stands_for_an_image_file_that_is_not_there() -> None:
    note = "[image missing: missing.png could not be read: No such file or directory]"
    (item,) = input_of(UserMessage([Image(FileImage("/nowhere/missing.png"))]))
    assert item["content"] == [{"type": "input_text", "text": note}]
    (result,) = input_of(ToolResultMessage("c", [Text("Here: "), Image(FileImage("/nowhere/missing.png"))]))
    assert result["output"] == f"Here: {note}"


def test_a_turn_with_reasoning_text_and_parallel_calls_goes_back_item_by_item() -> None:
    items = input_of(
        UserMessage("2+3, 4+5?"),
        own(
            signed(),
            Text("Let me add."),
            ToolCall("call_1", "add", {"a": 2, "b": 3}),
            ToolCall("call_2", "add", {"a": 4, "b": 5}),
            stop_reason=StopReason.TOOL_USE,
        ),
        ToolResultMessage("call_1", "5"),
        ToolResultMessage("call_2", "no such number", is_error=True),
    )
    assert items[1:] == [
        REASONING,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me add."}]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":2,"b":3}'},
        {"type": "function_call", "call_id": "call_2", "name": "add", "arguments": '{"a":4,"b":5}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "5"},
        {"type": "function_call_output", "call_id": "call_2", "output": "Error: no such number"},
    ]


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


# -- the reply -----------------------------------------------------------------------------------------------


def message_of(*frames: bytes) -> AssistantMessage:
    return bodies.message_of(WIRE.read(b"".join(frames)), MODEL)


def test_text_arrives_in_its_pieces_and_ends_with_the_usage() -> None:
    message = message_of(HELLO, response_end(usage=USAGE))
    assert message.content == (Text("Hello ☕"),)
    assert message.stop_reason == StopReason.STOP
    assert message.usage == Usage(30, 50, 60, 10, 150, {"reasoning": 30})


def test_thinking_and_parallel_calls() -> None:
    message = message_of(THINKS_AND_CALLS)
    assert [type(block) for block in message.content] == [Thinking, ToolCall, ToolCall]
    assert message.content[0].thinking == "First.Then."
    assert message.tool_calls == (ToolCall("call_1", "add", {"a": 2}), ToolCall("call_2", "add", {}))
    assert message.stop_reason == StopReason.TOOL_USE


def test_calls_whose_pieces_are_mixed_are_told_apart_by_their_place() -> None:
    first, second = ({"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "add"} for n in (0, 1))
    message = message_of(
        event("response.output_item.added", output_index=0, item=first),
        event("response.output_item.added", output_index=1, item=second),
        event("response.function_call_arguments.delta", output_index=1, item_id="changed", delta='{"b"'),
        event("response.function_call_arguments.delta", output_index=0, item_id="changed", delta='{"a"'),
        event("response.function_call_arguments.delta", output_index=0, item_id="again", delta=":1}"),
        event("response.function_call_arguments.delta", output_index=1, item_id="again", delta=":2}"),
        event("response.output_item.done", output_index=1, item={**second, "id": "new", "arguments": '{"b":2}'}),
        event("response.output_item.done", output_index=0, item={**first, "id": "new", "arguments": '{"a":1}'}),
        response_end(),
    )
    assert message.tool_calls == (ToolCall("call_0", "add", {"a": 1}), ToolCall("call_1", "add", {"b": 2}))


def test_a_server_that_tells_no_places_is_understood_by_its_ids() -> None:
    items = [{"type": "function_call", "call_id": f"fc_{n}", "name": "add"} for n in (1, 2)]
    message = message_of(
        event("response.output_item.added", item={"type": "message", "id": "msg_1"}),
        event("response.output_text.delta", item_id="msg_1", delta="Adding."),
        *[
            event("response.output_item.added", item=item)
            + event("response.function_call_arguments.delta", item_id=item["call_id"], delta='{"n":')
            + event("response.function_call_arguments.delta", item_id=item["call_id"], delta="7}")
            for item in items
        ],
        event("response.output_item.done", item={"type": "message", "content": [{"text": "Adding."}]}),
        *[event("response.output_item.done", item={**item, "arguments": '{"n":7}'}) for item in items],
        response_end(),
    )
    assert message.content == (
        Text("Adding."),
        ToolCall("fc_1", "add", {"n": 7}),
        ToolCall("fc_2", "add", {"n": 7}),
    )


def test_a_delta_that_names_nothing_belongs_to_the_last_call() -> None:
    item = {"type": "function_call", "name": "add", "call_id": "c"}
    message = message_of(
        event("response.output_item.added", item=item),
        event("response.function_call_arguments.delta", item_id="unheard-of", delta='{"n":1}'),
        event("response.output_item.done", item=item),
        response_end(),
    )
    assert message.tool_calls == (ToolCall("c", "add", {"n": 1}),)


def test_a_server_that_gives_every_item_the_same_place_is_understood_by_its_call_ids() -> None:
    items = [{"type": "function_call", "call_id": f"c{n}", "name": "add", "arguments": f'{{"n":{n}}}'} for n in (1, 2)]
    message = message_of(
        *[event("response.output_item.added", output_index=0, item={**item, "arguments": ""}) for item in items],
        *[event("response.output_item.done", output_index=0, item=item) for item in items],
        response_end(),
    )
    assert message.tool_calls == (ToolCall("c1", "add", {"n": 1}), ToolCall("c2", "add", {"n": 2}))


def test_arguments_that_came_in_no_deltas_are_read_from_the_finished_item() -> None:
    item = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "add", "arguments": '{"a":1}'}
    done = event("response.output_item.done", output_index=0, item=item)
    assert message_of(done, response_end()).tool_calls == (ToolCall("c", "add", {"a": 1}),)
    whole = event("response.function_call_arguments.done", output_index=0, arguments='{"a":1}')
    added = event("response.output_item.added", output_index=0, item={**item, "arguments": ""})
    assert message_of(added, whole, response_end()).tool_calls == (ToolCall("c", "add", {"a": 1}),)
    assert message_of(added, whole, done, response_end()).tool_calls == (ToolCall("c", "add", {"a": 1}),)


def test_a_call_that_begins_without_its_name_waits_for_it() -> None:
    message = message_of(
        event("response.output_item.added", output_index=0, item={"type": "function_call", "call_id": "c"}),
        event("response.function_call_arguments.delta", output_index=0, delta='{"a":'),
        event(
            "response.output_item.done",
            output_index=0,
            item={"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":1}'},
        ),
        response_end(),
    )
    assert message.tool_calls == (ToolCall("c", "add", {"a": 1}),)


@pytest.mark.parametrize(
    "frames",
    [
        [
            event("response.custom_tool_call_input.delta", output_index=0, delta='say "'),
            event("response.custom_tool_call_input.delta", output_index=0, delta='hi"\n☕\\'),
            event("response.custom_tool_call_input.done", output_index=0, input='say "hi"\n☕\\'),
            event("response.output_item.done", output_index=0, item={**CUSTOM, "input": 'say "hi"\n☕\\'}),
        ],
        [event("response.custom_tool_call_input.done", output_index=0, input='say "hi"\n☕\\')],
        [event("response.output_item.done", output_index=0, item={**CUSTOM, "input": 'say "hi"\n☕\\'})],
    ],
    ids=["deltas", "whole input", "whole item"],
)
def test_a_custom_tool_has_its_free_text_as_input(frames: list[bytes]) -> None:
    added = event("response.output_item.added", output_index=0, item=CUSTOM)
    message = message_of(added, *frames, response_end())
    assert message.tool_calls == (ToolCall("c", "grep", {"input": 'say "hi"\n☕\\'}),)
    assert message.stop_reason == StopReason.TOOL_USE


def test_a_custom_tool_without_input_has_an_empty_one() -> None:
    added = event("response.output_item.added", output_index=0, item=CUSTOM)
    assert message_of(added, response_end()).tool_calls == (ToolCall("c", "grep", {"input": ""}),)


def test_tools_that_the_provider_runs_are_passed_over() -> None:
    message = message_of(
        event("response.output_item.added", output_index=0, item={"type": "web_search_call", "id": "ws_1"}),
        event("response.web_search_call.searching", output_index=0, item_id="ws_1"),
        event("response.output_item.done", output_index=0, item={"type": "web_search_call", "id": "ws_1"}),
        event("response.output_item.added", output_index=1, item={"type": "mcp_call", "name": "ask"}),
        event("response.mcp_call_arguments.delta", output_index=1, delta="{}"),
        event("response.output_item.done", output_index=1, item={"type": "mcp_call", "name": "ask"}),
        event("response.code_interpreter_call_code.delta", output_index=2, delta="print()"),
        HELLO.replace(b'"output_index": 0', b'"output_index": 3'),
        response_end(),
    )
    assert message.content == (Text("Hello ☕"),)
    assert message.stop_reason == StopReason.STOP


def test_text_and_thinking_that_came_in_no_deltas_are_read_from_the_finished_items() -> None:
    message = message_of(
        event("response.output_item.done", output_index=0, item=REASONING),
        event(
            "response.output_item.done",
            output_index=1,
            item={"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        ),
        response_end(),
    )
    assert [block.thinking for block in message.content if isinstance(block, Thinking)] == ["First.Then."]
    assert message.text == "Hi"


def test_a_server_that_sends_no_items_is_read_from_its_last_event() -> None:
    output = [
        REASONING,
        {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
    ]
    message = message_of(response_end(output=output, usage=USAGE))
    assert [type(block) for block in message.content] == [Thinking, Text, ToolCall]
    assert message.stop_reason == StopReason.TOOL_USE


def test_an_event_without_a_type_is_known_by_its_name() -> None:
    body = HELLO + b'event: response.completed\ndata: {"response": {}}\n\n'
    assert message_of(body).stop_reason == StopReason.STOP
    body = HELLO + b'event: response.failed\ndata: {"response": {"error": {"code": "server_error"}}}\n\n'
    assert message_of(body).error_kind == ErrorKind.NETWORK


def test_pings_comments_end_markers_and_unknown_events_are_passed_over() -> None:
    message = message_of(
        b": processing\n\n",
        b'data: {"type":"ping","cost":"0"}\n\n',
        event("response.queued", response={}),
        event("response.newly_invented.delta", delta={"anything": [1]}, output_index=0),
        b"data: \n\n",
        HELLO,
        response_end(),
        b"data: [DONE]\n\n",
    )
    assert message.content == (Text("Hello ☕"),)


# -- reasoning there and back --------------------------------------------------------------------------------


def went_back(item: dict[str, Any], *deltas: bytes) -> list[dict[str, Any]]:
    """What of a reply's reasoning is sent in the next request, after the history was stored and loaded."""
    message = message_of(
        event("response.output_item.added", output_index=0, item={"type": "reasoning", "id": item["id"]}),
        *deltas,
        event("response.output_item.done", output_index=0, item=item),
        call_events(1, "call_1", "{}"),
        response_end(),
    )
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
    deltas = [
        event("response.reasoning_summary_text.delta", output_index=0, delta=part["text"]) for part in item["summary"]
    ]
    assert went_back(item, *deltas) == [item]


def test_reasoning_that_cannot_be_sent_back_has_no_signature() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "content": []}
    message = message_of(event("response.output_item.done", output_index=0, item=item), HELLO, response_end())
    assert message.content[0] == Thinking("Hm.", None)
    assert went_back(item) == []


def test_open_reasoning_is_thinking() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    delta = event("response.reasoning_text.delta", output_index=0, delta="Hm.")
    message = message_of(
        delta,
        event("response.output_item.done", output_index=0, item=item),
        HELLO.replace(b'"output_index": 0', b'"output_index": 1'),
        response_end(),
    )
    assert [block.thinking for block in message.content if isinstance(block, Thinking)] == ["Hm."]
    assert went_back(item, delta) == [item]


# -- how replies end -----------------------------------------------------------------------------------------


def test_the_length_limit_keeps_the_text_and_the_cut_call() -> None:
    message = message_of(
        HELLO,
        call_events(1, "call_1", '{"a": 1', status="incomplete"),
        response_end("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=USAGE),
    )
    assert message.stop_reason == StopReason.LENGTH
    assert message.content == (Text("Hello ☕"), ToolCall("call_1", "add", {}, '{"a": 1'))
    assert message.usage.total == 150


def test_a_call_that_was_cut_before_its_arguments_is_incomplete() -> None:
    message = message_of(
        call_events(0, "call_1", status="incomplete"),
        response_end("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    assert message.tool_calls[0].is_incomplete


def test_the_filter_fails_the_reply_and_keeps_its_text() -> None:
    message = message_of(
        HELLO, response_end("incomplete", incomplete_details={"reason": "content_filter"}, usage=USAGE)
    )
    assert message.error_kind == ErrorKind.CONTENT_FILTERED
    assert message.content == (Text("Hello ☕"),)
    assert message.usage.total == 150


@pytest.mark.parametrize("in_deltas", [True, False])
def test_a_refusal_is_content_that_was_filtered(in_deltas: bool) -> None:
    deltas = [event("response.refusal.delta", output_index=0, delta=delta) for delta in ("I will ", "not.")]
    done = event(
        "response.output_item.done",
        output_index=0,
        item={"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]},
    )
    message = message_of(*(deltas if in_deltas else []), done, response_end(usage=USAGE))
    assert message.error_kind == ErrorKind.CONTENT_FILTERED
    assert message.error_message == "I will not."
    assert message.usage.total == 150


def test_a_failure_without_words_still_says_something() -> None:
    assert message_of(response_end("failed")).error_message


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
    for each in WIRE.read(body):
        assembler.feed(each)
    message = assembler.message()
    assert not assembler.is_broken or "JSON object" in (message.error_message or "")


# -- over a socket -------------------------------------------------------------------------------------------


async def streamed(stream_fn: OpenAiResponsesStreamFn, *messages: Any) -> AssistantMessage:
    assembler = MessageAssembler(MODEL)
    async for each in stream_fn(MODEL, AgentContext("", messages), StreamOptions(), CancellationToken()):
        assembler.feed(each)
    return assembler.message()


async def test_two_turns_over_a_socket_carry_the_reasoning_back() -> None:
    async with LoopbackServer(answer(THINKS_AND_CALLS), answer(HELLO + response_end(usage=USAGE))) as server:
        stream_fn = OpenAiResponsesStreamFn(server.url, "k")
        first = await streamed(stream_fn, UserMessage("2+3?"))
        results = [ToolResultMessage(call.id, "5") for call in first.tool_calls]
        second = await streamed(stream_fn, UserMessage("2+3?"), first, *results)
    assert second.text == "Hello ☕"
    assert server.requests[1].path == "/v1/responses"
    assert server.requests[1].headers["authorization"] == "Bearer k"
    sent = json.loads(server.requests[1].body)["input"]
    assert sent[1] == REASONING
    assert [item["type"] for item in sent] == [
        "message",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


async def test_a_body_that_ends_early_is_a_network_failure() -> None:
    async with LoopbackServer(answer(HELLO)) as server:
        message = await streamed(OpenAiResponsesStreamFn(server.url), UserMessage("Hi"))
    assert message.error_kind == ErrorKind.NETWORK
    assert message.content == (Text("Hello ☕"),)


async def test_a_missing_key_fails_before_any_request() -> None:
    message = await streamed(OpenAiResponsesStreamFn(), UserMessage("Hi"))
    assert message.error_kind == ErrorKind.AUTH
    assert "OPENAI_API_KEY" in (message.error_message or "")
