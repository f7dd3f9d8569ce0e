"""The data model: what each value holds, what it refuses, and how usage adds up."""

from __future__ import annotations

import copy
import html
import io
import json
import pickle
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentContext,
    AgentMessage,
    AgentResult,
    AgentToolResult,
    ApprovalMode,
    AssistantMessage,
    Base64Image,
    ContentBlock,
    Cost,
    CustomMessage,
    ErrorKind,
    Extension,
    FileImage,
    Image,
    ImageSource,
    ModelSpec,
    PolicyStop,
    PolicyStopped,
    StopReason,
    Text,
    Thinking,
    ThinkingBudgets,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    TurnEndReason,
    UrlImage,
    Usage,
    UserMessage,
    decode_message,
    encode_message,
    extract_text,
)
from swink_agent.testing import scripted

PICTURE = Image(UrlImage("https://example.org/cat.png"))


class Notice(CustomMessage, tag="notice"):
    text: str


# -- the shape of the values -----------------------------------------------------------------------------------


FIELDS: dict[type[msgspec.Struct], list[str]] = {
    Text: ["text"],
    Thinking: ["thinking", "signature"],
    ToolCall: ["id", "name", "arguments", "partial_json"],
    Image: ["source"],
    Base64Image: ["media_type", "data"],
    UrlImage: ["url", "media_type"],
    FileImage: ["path", "media_type"],
    Extension: ["type_name", "data"],
    UserMessage: ["content", "timestamp", "origin"],
    AssistantMessage: [
        "content",
        "provider",
        "model_id",
        "usage",
        "cost",
        "stop_reason",
        "error_message",
        "error_kind",
        "timestamp",
        "served_model",
        "response_id",
    ],
    ToolResultMessage: ["tool_call_id", "content", "is_error", "details", "tool_name", "timestamp", "outcome"],
    Usage: ["input", "output", "cache_read", "cache_write", "total", "extra"],
    Cost: ["input", "output", "cache_read", "cache_write", "total", "extra"],
    ModelSpec: ["provider", "model_id", "thinking_level", "thinking_budgets"],
    AgentContext: ["system_prompt", "messages", "tools"],
    AgentResult: [
        *("messages", "stop_reason", "usage", "cost", "error", "exception", "stopped_by"),
        *("error_kind", "value", "has_value", "pending", "delegated_usage", "delegated_cost", "history", "output_fn"),
    ],
    AgentToolResult: ["content", "details", "is_error"],
    PolicyStop: ["policy", "reason"],
}


def test_the_values_have_the_fields_of_the_specification_in_its_order() -> None:
    assert {kind: list(kind.__struct_fields__) for kind in FIELDS} == FIELDS


def test_no_message_has_a_role_field() -> None:
    for kind in (UserMessage, AssistantMessage, ToolResultMessage, Notice):
        assert "role" not in kind.__struct_fields__


def test_a_message_tells_its_role_as_its_json_does() -> None:
    for message in (UserMessage("a"), AssistantMessage("a"), ToolResultMessage("1", "a"), Notice("a")):
        assert message.role == json.loads(msgspec.json.encode(message))["role"]
        assert "role" not in repr(message)
        assert pickle.loads(pickle.dumps(message)) == message
        with pytest.raises(AttributeError):
            message.role = "system"  # type: ignore[misc]


HOSTILE = "<script>alert(1)</script> [bold]&amp;[/bold] <img src=x onerror=alert(1)>"


def test_a_result_in_a_notebook_takes_nothing_for_html() -> None:
    stop = PolicyStop("<b>", HOSTILE)
    result = AgentResult(
        (AssistantMessage(HOSTILE),), StopReason.STOP, Usage(total=3), Cost(total=0.5), HOSTILE, stopped_by=stop
    )
    page = result._repr_html_()
    tags = re.findall("<[^>]*>", page)
    assert tags == ['<div style="white-space: pre-wrap">', "</div>", "<small>", "</small>"]
    assert html.unescape(page).count(HOSTILE) == 3
    assert "3" in page
    assert "0.5" in page


def test_a_result_for_rich_is_values_and_no_markup() -> None:
    result = AgentResult((AssistantMessage(HOSTILE),), StopReason.STOP, Usage(total=3))
    assert result.__rich_repr__() == [("text", HOSTILE), ("stop_reason", "stop"), ("tokens", 3)]
    rich = pytest.importorskip("rich.console")
    console = rich.Console(file=io.StringIO(), width=200, color_system=None)
    console.print(result)
    assert repr(HOSTILE) in console.file.getvalue()


def test_tokens_and_amount_are_all_of_it_with_a_total_or_without() -> None:
    assert Usage(1, 2, 3, 4).tokens == 10
    assert Usage(1, 2, total=30).tokens == 30
    assert Cost(0.25, 0.5).amount == 0.75
    assert Cost(0.25, total=1.0).amount == 1.0


def test_the_tag_of_a_value_stands_in_its_json() -> None:
    def tag(value: msgspec.Struct, field: str) -> str:
        return json.loads(msgspec.json.encode(value))[field]

    blocks = [Text("a"), Thinking("a"), ToolCall("1", "a"), PICTURE, Extension("a", {})]
    messages = [UserMessage("a"), AssistantMessage("a"), ToolResultMessage("1", "a"), Notice("a")]
    assert [tag(block, "type") for block in blocks] == ["text", "thinking", "tool_call", "image", "extension"]
    assert [tag(message, "role") for message in messages] == ["user", "assistant", "tool_result", "notice"]


ENUMS: dict[Any, list[str]] = {
    StopReason: ["stop", "length", "tool_use", "aborted", "error"],
    ThinkingLevel: ["off", "minimal", "low", "medium", "high", "extra_high"],
    ErrorKind: [
        "throttled",
        "network",
        "context_overflow",
        "auth",
        "content_filtered",
        "invalid_request",
        "aborted",
        "stream",
    ],
    TurnEndReason: ["complete", "tools_executed", "steering_interrupt", "error", "aborted", "stopped", "pending"],
    ApprovalMode: ["enabled", "smart", "bypassed"],
}


def test_the_enums_have_exactly_the_values_of_the_specification() -> None:
    assert {kind: [member.value for member in kind] for kind in ENUMS} == ENUMS


def test_optional_fields_have_the_defaults_of_the_specification() -> None:
    assert Thinking("a").signature is None
    assert ToolCall("1", "a", {}).partial_json is None
    assert UrlImage("u").media_type is None
    assert FileImage("p").media_type is None
    reply = AssistantMessage("a", "p", "m", Usage(), Cost(), StopReason.STOP)
    assert (reply.error_message, reply.error_kind) == (None, None)
    result = ToolResultMessage("1", "a")
    assert (result.is_error, result.details, result.tool_name) == (False, None, "")
    model = ModelSpec("p", "m")
    assert (model.thinking_level, model.thinking_budgets) == (ThinkingLevel.OFF, None)


def test_a_field_cannot_be_assigned() -> None:
    for value in (Text("a"), ToolCall("1", "a", {"x": 1}), UserMessage("a"), Notice("a"), Usage(input=1)):
        for name in value.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(value, name, "changed")


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an item": lambda arguments: arguments.__setitem__("x", 1),
    "a deletion": lambda arguments: arguments.__delitem__("list"),
    "clear": lambda arguments: arguments.clear(),
    "pop": lambda arguments: arguments.pop("list"),
    "popitem": lambda arguments: arguments.popitem(),
    "setdefault": lambda arguments: arguments.setdefault("x", 1),
    "update": lambda arguments: arguments.update(x=1),
    "a union in place": lambda arguments: arguments.__ior__({"x": 1}),
    "an item of a list inside": lambda arguments: arguments["list"].__setitem__(0, 9),
    "an addition to a list inside": lambda arguments: arguments["list"].append(9),
    "a list inside, sorted": lambda arguments: arguments["list"].sort(),
    "a dict inside a list": lambda arguments: arguments["list"][1].update(y=1),
    "a dict inside": lambda arguments: arguments["dict"].__setitem__("x", 1),
}


@pytest.mark.table
@pytest.mark.parametrize("change", CHANGES)
def test_the_arguments_of_a_call_cannot_be_changed_however_deep(change: str) -> None:
    given = {"list": [3, {"y": 2}], "dict": {"x": 0}}
    call = ToolCall("1", "a", given)
    for one in (call, decode_message(encode_message(AssistantMessage([call]))).tool_calls[0]):  # type: ignore[union-attr]
        with pytest.raises(TypeError, match="cannot be changed"):
            CHANGES[change](one.arguments)
        assert one.arguments == {"list": [3, {"y": 2}], "dict": {"x": 0}}
    given["list"].append(4)  # type: ignore[attr-defined]
    assert call.arguments["list"] == [3, {"y": 2}]  # whoever made the call cannot change it afterwards either


def test_copies_of_the_arguments_of_a_call_can_be_changed() -> None:
    call = ToolCall("1", "a", {"list": [1], "dict": {"x": 0}})
    deep = copy.deepcopy(call.arguments)
    deep["list"].append(2)
    shallow = {**call.arguments, "x": 1} | call.arguments.copy() | copy.copy(call.arguments)
    shallow["y"] = 2
    assert call.arguments == {"list": [1], "dict": {"x": 0}}
    assert json.loads(json.dumps(call.arguments)) == call.arguments == pickle.loads(pickle.dumps(call)).arguments


# -- content ---------------------------------------------------------------------------------------------------

MAKERS: dict[str, Callable[[Any], Any]] = {
    "UserMessage": UserMessage,
    "AssistantMessage": AssistantMessage,
    "ToolResultMessage": lambda content: ToolResultMessage("1", content),
    "AgentToolResult": AgentToolResult,
}
ALLOWED = {
    "UserMessage": {Text, Image, Extension},
    "AssistantMessage": {Text, Thinking, ToolCall, Extension},
    "ToolResultMessage": {Text, Image, Extension},
    "AgentToolResult": {Text, Image, Extension},
}
BLOCKS: list[ContentBlock] = [Text("a"), Thinking("a"), ToolCall("1", "a"), PICTURE, Extension("a", 1)]


@pytest.mark.parametrize("owner", MAKERS)
def test_a_block_stands_only_in_the_messages_that_may_hold_it(owner: str) -> None:
    make = MAKERS[owner]
    for block in BLOCKS:
        if type(block) in ALLOWED[owner]:
            assert make([block]).content == (block,)
        else:
            with pytest.raises((TypeError, ValueError), match=type(block).__name__):
                make([Text("a"), block])


def test_content_may_be_a_string_a_list_or_a_tuple() -> None:
    for make in MAKERS.values():
        assert make("hello").content == (Text("hello"),)
        assert make([Text("a"), Text("b")]).content == (Text("a"), Text("b"))
        assert make((Text("a"),)).content == (Text("a"),)
        assert make([]).content == ()


def test_half_of_a_character_in_a_prompt_is_replaced() -> None:
    agent = Agent("any:model", stream_fn=scripted("ok"))
    agent.prompt_sync("\ud83d cut, \U0001f600 whole")
    assert agent.messages[0].content == (Text("? cut, \U0001f600 whole"),)


def test_content_without_blocks_is_refused() -> None:
    for make in MAKERS.values():
        for content in (None, 5, b"bytes", {"type": "text"}, ["a string"], [{"type": "text"}], [None]):
            with pytest.raises((TypeError, ValueError)):
                make(content)


def test_a_message_keeps_its_content_when_the_list_it_came_from_changes() -> None:
    blocks: list[Any] = [Text("a")]
    message = UserMessage(blocks)
    blocks.append(Text("b"))
    assert message.content == (Text("a"),)


def test_an_image_comes_from_one_of_three_sources_and_nothing_else() -> None:
    sources: list[ImageSource] = [Base64Image("image/png", "aGk="), UrlImage("u"), FileImage("p")]
    for source in sources:
        assert Image(source).source is source
    others: list[Any] = ["https://example.org/a.png", {"url": "u"}, None, Text("a")]
    for other in others:
        with pytest.raises((TypeError, ValueError)):
            Image(other)


def test_extracted_text_is_that_of_the_text_blocks_joined() -> None:
    blocks = [Text("a"), Thinking("no"), PICTURE, ToolCall("1", "no"), Extension("no", "no"), Text("b")]
    assert extract_text(blocks) == "ab"
    assert extract_text(()) == ""


def test_a_timestamp_is_whole_milliseconds_filled_in_when_absent() -> None:
    before = time.time_ns() // 1_000_000
    stamps = [UserMessage("a").timestamp, AssistantMessage("a").timestamp, ToolResultMessage("1", "a").timestamp]
    after = time.time_ns() // 1_000_000
    for stamp in stamps:
        assert type(stamp) is int
        assert before <= stamp <= after


def test_a_timestamp_that_is_given_is_kept() -> None:
    assert UserMessage("a", timestamp=5).timestamp == 5
    assert UserMessage("a", 5) == UserMessage([Text("a")], timestamp=5)


# -- usage and cost --------------------------------------------------------------------------------------------

FULL_USAGE = Usage(1, 2, 3, 4, 10, {"reasoning": 5, "search": 1})
FULL_COST = Cost(0.5, 0.25, 0.125, 1.0, 1.875, {"search": 0.5})


def test_usage_adds_field_by_field_and_key_by_key() -> None:
    other = Usage(10, 20, 30, 40, 100, {"reasoning": 7, "audio": 2})
    assert FULL_USAGE + other == Usage(11, 22, 33, 44, 110, {"reasoning": 12, "search": 1, "audio": 2})
    assert other + FULL_USAGE == FULL_USAGE + other


def test_cost_adds_field_by_field_and_key_by_key() -> None:
    other = Cost(1.0, 1.0, 1.0, 1.0, 4.0, {"search": 0.25, "audio": 2.0})
    assert FULL_COST + other == Cost(1.5, 1.25, 1.125, 2.0, 5.875, {"search": 0.75, "audio": 2.0})
    assert other + FULL_COST == FULL_COST + other


@pytest.mark.parametrize("value", [FULL_USAGE, FULL_COST])
def test_plus_and_plus_equals_and_merge_are_the_same_sum(value: Any) -> None:
    total = value
    total += value
    assert total == value + value == value.merge(value)
    assert total.total == 2 * value.total
    assert value.extra["search"] * 2 == total.extra["search"]


@pytest.mark.parametrize("value", [FULL_USAGE, FULL_COST])
def test_adding_nothing_changes_nothing(value: Any) -> None:
    nothing = type(value)()
    assert value + nothing == value
    assert nothing + value == value
    assert nothing + nothing == nothing


@pytest.mark.parametrize(
    ("value", "other"), [(FULL_USAGE, FULL_COST), (FULL_COST, FULL_USAGE), (FULL_USAGE, Cost()), (FULL_USAGE, 1)]
)
def test_tokens_and_money_are_not_added(value: Any, other: Any) -> None:
    with pytest.raises(TypeError):
        _ = value + other
    with pytest.raises(TypeError):
        value.merge(other)


def test_adding_leaves_both_sides_as_they_were() -> None:
    first, second = Usage(input=1, extra={"a": 1}), Usage(input=2, extra={"a": 2, "b": 3})
    total = first + second
    total.extra["c"] = 9
    assert first == Usage(input=1, extra={"a": 1})
    assert second == Usage(input=2, extra={"a": 2, "b": 3})


@pytest.mark.parametrize("field", ["usage", "cost"])
def test_changes_in_one_message_do_not_show_in_another(field: str) -> None:
    extra = getattr(AssistantMessage("first"), field).extra
    try:
        extra["stray"] = 1
    except TypeError:
        return  # it cannot be written to at all, which is better still
    try:
        assert getattr(AssistantMessage("second"), field).extra == {}
    finally:
        extra.clear()


# -- models ----------------------------------------------------------------------------------------------------


def test_a_model_is_parsed_from_provider_and_name() -> None:
    assert ModelSpec.parse("anthropic:claude-sonnet-4-6") == ModelSpec("anthropic", "claude-sonnet-4-6")
    assert ModelSpec.parse("ollama:llama3:8b") == ModelSpec("ollama", "llama3:8b")


def test_a_text_that_names_no_model_is_refused_with_an_example() -> None:
    for text in ("", "claude", "anthropic:", ":claude", " : ", ":"):
        with pytest.raises(ValueError, match="provider:model"):
            ModelSpec.parse(text)


def test_thinking_budgets_are_looked_up_by_level() -> None:
    budgets = ThinkingBudgets({ThinkingLevel.LOW: 1024, ThinkingLevel.HIGH: 16_000})
    assert budgets.get(ThinkingLevel.HIGH) == 16_000
    assert budgets.get(ThinkingLevel.MINIMAL) is None


def test_a_budget_is_for_a_level_that_exists() -> None:
    assert ThinkingBudgets({"low": 1024}).budgets == {ThinkingLevel.LOW: 1024}  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="did you mean 'high'"):
        ThinkingBudgets({"hihg": 16_000})  # pyright: ignore[reportArgumentType]


def test_budgets_do_not_change_with_the_dict_they_came_from() -> None:
    given = {ThinkingLevel.LOW: 1024}
    budgets = ThinkingBudgets(given)
    given[ThinkingLevel.LOW] = 1
    assert budgets.get(ThinkingLevel.LOW) == 1024


# -- messages, context, result ---------------------------------------------------------------------------------


def test_an_assistant_message_knows_its_text_and_its_calls() -> None:
    first, second = ToolCall("1", "a"), ToolCall("2", "b")
    message = AssistantMessage([Thinking("hm"), Text("a"), first, Text("b"), second])
    assert message.text == "ab"
    assert message.tool_calls == (first, second)


def test_only_errors_and_aborts_are_failed_messages() -> None:
    failed = [reason for reason in StopReason if AssistantMessage("a", stop_reason=reason).is_failed]
    assert failed == [StopReason.ABORTED, StopReason.ERROR]


def test_a_custom_message_is_a_value_like_any_other() -> None:
    assert Notice("a") == Notice("a")
    assert Notice("a") != Notice("b")
    assert isinstance(Notice("a"), CustomMessage)


def test_a_context_keeps_its_messages_when_the_list_they_came_from_changes() -> None:
    messages: list[AgentMessage] = [UserMessage("a")]
    context = AgentContext("Be brief.", messages, [])
    messages.append(UserMessage("b"))
    assert len(context.messages) == 1


def test_the_text_of_a_result_is_that_of_the_last_assistant_message() -> None:
    messages = (
        UserMessage("q"),
        AssistantMessage("first"),
        AssistantMessage([Thinking("hm"), Text("last")]),
        Notice("n"),
    )
    assert AgentResult(messages, StopReason.STOP).text == "last"
    assert AgentResult((UserMessage("q"),), StopReason.STOP).text == ""


def test_raise_for_error_raises_what_ended_the_run() -> None:
    error = Aborted()
    with pytest.raises(Aborted) as caught:
        AgentResult((), StopReason.ABORTED, error=str(error), exception=error).raise_for_error()
    assert caught.value is error


def test_raise_for_error_does_nothing_after_a_good_run() -> None:
    result = AgentResult((AssistantMessage("a"),), StopReason.STOP)
    assert result.raise_for_error() is result


def test_raise_for_error_raises_for_a_run_that_a_policy_ended() -> None:
    result = AgentResult((AssistantMessage("a"),), StopReason.STOP, stopped_by=PolicyStop("budget", "spent"))
    with pytest.raises(PolicyStopped, match="policy budget stopped the run: spent") as caught:
        result.raise_for_error()
    assert (caught.value.policy, caught.value.reason) == ("budget", "spent")
