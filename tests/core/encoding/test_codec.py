"""Messages and events to JSON and back, also from a newer version and from malformed data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from swink_agent import (
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentResult,
    AgentStart,
    AgentToolResult,
    AssistantMessage,
    Base64Image,
    CompactionReport,
    ContentBlock,
    ContextCompacted,
    Cost,
    CustomMessage,
    DelegateEvent,
    ErrorKind,
    Extension,
    FileImage,
    Image,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    ModelSpec,
    PendingCall,
    PolicyStop,
    StopReason,
    TaskEnded,
    TaskStarted,
    Text,
    TextDelta,
    Thinking,
    ThinkingBudgets,
    ThinkingDelta,
    ThinkingLevel,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCall,
    ToolCallDeferred,
    ToolCallDelta,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    TurnResumed,
    TurnStart,
    UrlImage,
    Usage,
    UsageAdded,
    UserMessage,
    decode_event,
    decode_message,
    encode_event,
    encode_message,
)


class Notice(CustomMessage, tag="notice"):
    text: str
    level: int = 0


class Artifact(CustomMessage, tag="artifact"):
    content: tuple[ContentBlock, ...]
    pages: dict[int, str] = {}


USER = UserMessage(
    [
        Text("Grüße, 世界 \x00\u2028"),
        Image(Base64Image("image/png", "aGk=")),
        Image(UrlImage("https://example.org/a.png", "image/png")),
        Image(FileImage("/tmp/a.png")),
        Extension("vendor.audio", {"seconds": 5, "tags": [None, True, 1.5]}),
    ],
    timestamp=1,
)
REPLY = AssistantMessage(
    [
        Thinking("hm", "signature"),
        Thinking("unsigned"),
        Text("Look:"),
        ToolCall("call_1", "look", {"where": {"x": [1, 2.5, None]}}),
        ToolCall("call_2", "look", {}, '{"where": '),
        Extension("vendor.citation", None),
    ],
    "anthropic",
    "claude-sonnet-4-6",
    Usage(1, 2, 3, 4, 10, {"reasoning": 5}),
    Cost(0.5, 0.25, 0.125, 1.0, 1.875, {"search": 0.5}),
    StopReason.LENGTH,
    timestamp=2,
)
FAILED = AssistantMessage(
    "partial", "p", "m", stop_reason=StopReason.ERROR, error_message="busy", error_kind=ErrorKind.THROTTLED, timestamp=3
)
RESULT = ToolResultMessage(
    "call_1", [Text("seen"), Image(UrlImage("u"))], True, {"exit_code": 2, "lines": ["a"]}, "look", timestamp=4
)
WAITING = PendingCall("call_1", "look", {"where": 1}, "external", "ask Ada", {"cwd": "/x"}, ("research",), 3)

EVENTS: list[AgentEvent] = [
    AgentStart(),
    TurnStart(3),
    MessagesInjected((USER, Notice("stop", 2)), "steering"),
    ContextCompacted(CompactionReport(4, 1000, 400, True)),
    MessageStart(),
    MessageUpdate(TextDelta(0, "a")),
    MessageUpdate(ThinkingDelta(1, "b")),
    MessageUpdate(ToolCallDelta(2, "{")),
    MessageRetry(1, "busy", 1.5),
    ModelFallback(
        ModelSpec("a", "b", ThinkingLevel.HIGH, ThinkingBudgets({ThinkingLevel.HIGH: 1024})),
        ModelSpec("c", "d"),
        "busy",
    ),
    MessageEnd(REPLY),
    ToolApprovalRequested("call_1", "look", {"where": 1}),
    ToolApprovalResolved("call_1", "look", False),
    ToolCallDeferred("call_1", "look", {"where": 1}, "approval", "ask Ada"),
    TurnResumed(REPLY, (WAITING,)),
    ToolExecutionStart("call_1", "look", {"where": 1}),
    ToolExecutionRetry("call_1", "look", 1, "busy", 0.5),
    TaskStarted("b1", "make serve"),
    TaskEnded("b1", 3),
    TaskEnded("b2"),
    ToolExecutionUpdate("call_1", "look", AgentToolResult("half", {"done": 0.5})),
    ToolExecutionEnd("call_1", "look", AgentToolResult.error("no"), True),
    TurnEnd(3, REPLY, (RESULT,), TurnEndReason.TOOLS_EXECUTED),
    TurnEnd(4, None, (), TurnEndReason.STOPPED),
    AgentEnd((USER, Notice("a"), REPLY, RESULT), PolicyStop("budget", "spent")),
    AgentEnd(()),
    AgentStart("run", "structured", {"type": "object"}, (USER, Notice("a"))),
    UsageAdded(Usage(1, 2), Cost(total=0.5), "overflow"),
    MessageRetry(1, "busy", 0.5, Usage(1), Cost(total=0.25)),
    ToolExecutionEnd(
        "call_1", "look", AgentToolResult.error("no"), True, ToolOutcome.REJECTED, "not now", 0.0, {"where": 2}
    ),
    AgentEnd(
        (USER, Notice("a"), REPLY, RESULT),
        PolicyStop("budget", "spent"),
        AgentResult(
            (USER, Notice("a"), REPLY, RESULT),
            StopReason.ERROR,
            Usage(1, 2),
            Cost(total=0.5),
            "it failed",
            stopped_by=PolicyStop("budget", "spent"),
            error_kind=ErrorKind.NETWORK,
            value={"content": [{"type": "of its own"}]},
            has_value=True,
        ),
    ),
    AgentEnd((USER, REPLY, RESULT), None, AgentResult((USER, REPLY, RESULT), StopReason.TOOL_USE, pending=(WAITING,))),
    AgentEnd(
        (REPLY,),
        None,
        AgentResult((REPLY,), StopReason.STOP, delegated_usage=Usage(1, 2), delegated_cost=Cost(total=0.5)),
    ),
    DelegateEvent("call_1", "research", DelegateEvent("call_2", "deeper", AgentStart("run", prompts=(Notice("a"),)))),
    DelegateEvent(
        "call_1", "research", AgentEnd((USER, Notice("a")), None, AgentResult((USER, Notice("a")), StopReason.STOP))
    ),
]


# -- there and back --------------------------------------------------------------------------------------------


def test_every_message_survives_json() -> None:
    messages: list[AgentMessage] = [USER, REPLY, FAILED, RESULT]
    for message in messages:
        data = encode_message(message)
        assert isinstance(data, bytes)
        assert decode_message(data) == message
        assert decode_message(data.decode()) == message


def test_every_event_survives_json() -> None:
    for event in EVENTS:
        data = encode_event(event)
        assert isinstance(data, bytes)
        assert decode_event(data, [Notice]) == event
        assert decode_event(data.decode(), [Notice]) == event


def test_an_event_of_countless_delegates_is_refused() -> None:
    data = b'{"type":"agent_start"}'
    for _ in range(5000):
        data = b'{"type":"delegate_event","call_id":"c","name":"n","event":' + data + b"}"
    with pytest.raises(ValueError, match="not a valid event"):
        decode_event(data)


def test_no_kind_of_event_is_forgotten_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(AgentEvent))


def test_an_event_is_tagged_with_its_name_in_snake_case() -> None:
    for event in EVENTS:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
        assert json.loads(encode_event(event))["type"] == name


def test_the_json_of_a_user_message_is_the_documented_one() -> None:
    assert json.loads(encode_message(UserMessage([Text("a"), Image(UrlImage("u"))], timestamp=1))) == {
        "role": "user",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "source": {"type": "url", "url": "u", "media_type": None}},
        ],
        "timestamp": 1,
    }


def test_the_json_of_an_assistant_message_is_the_documented_one() -> None:
    document = json.loads(encode_message(AssistantMessage([ToolCall("1", "look", {"x": 1})], "p", "m", timestamp=2)))
    assert document["role"] == "assistant"
    assert document["content"] == [
        {"type": "tool_call", "id": "1", "name": "look", "arguments": {"x": 1}, "partial_json": None}
    ]
    assert document["stop_reason"] == "stop"
    assert document["usage"]["cache_read"] == 0


def test_the_json_of_a_tool_result_is_the_documented_one() -> None:
    assert json.loads(encode_message(RESULT)) == {
        "role": "tool_result",
        "tool_call_id": "call_1",
        "content": [
            {"type": "text", "text": "seen"},
            {"type": "image", "source": {"type": "url", "url": "u", "media_type": None}},
        ],
        "is_error": True,
        "details": {"exit_code": 2, "lines": ["a"]},
        "tool_name": "look",
        "timestamp": 4,
        "outcome": "ran",
    }


def test_fields_with_a_default_may_be_absent_in_the_json() -> None:
    message = decode_message(b'{"role": "assistant", "content": [{"type": "text", "text": "a"}]}')
    assert isinstance(message, AssistantMessage)
    assert message.content == (Text("a"),)
    assert message.usage == Usage()
    assert message.timestamp > 0


# -- from a newer version --------------------------------------------------------------------------------------

NEW_BLOCK = {"type": "video", "url": "u", "seconds": 5, "content": [{"type": "frame"}]}
AS_EXTENSION = Extension("video", {"url": "u", "seconds": 5, "content": [{"type": "frame"}]})


def document(role: str, *blocks: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"role": role, "content": blocks, "timestamp": 1, **fields}).encode()


def test_an_unknown_block_becomes_an_extension_in_every_message() -> None:
    for role in ("user", "assistant", "tool_result"):
        message: Any = decode_message(document(role, NEW_BLOCK, tool_call_id="1"))
        assert message.content == (AS_EXTENSION,)
        assert decode_message(encode_message(message)) == message


def test_known_blocks_around_an_unknown_one_keep_their_places() -> None:
    message = decode_message(
        document(
            "assistant", {"type": "text", "text": "a"}, NEW_BLOCK, {"type": "tool_call", "id": "1", "name": "look"}
        )
    )
    assert message == AssistantMessage([Text("a"), AS_EXTENSION, ToolCall("1", "look")], timestamp=1)


def test_values_that_only_look_like_blocks_are_left_alone() -> None:
    lookalike = {"content": [{"type": "video", "url": "u"}]}
    reply = decode_message(
        document("assistant", NEW_BLOCK, {"type": "tool_call", "id": "1", "name": "look", "arguments": lookalike})
    )
    result = decode_message(document("tool_result", NEW_BLOCK, tool_call_id="1", details=lookalike))
    extension = decode_message(document("user", NEW_BLOCK, {"type": "extension", "type_name": "x", "data": lookalike}))
    assert isinstance(reply, AssistantMessage)
    assert isinstance(result, ToolResultMessage)
    assert isinstance(extension, UserMessage)
    assert reply.tool_calls[0].arguments == lookalike
    assert result.details == lookalike
    assert extension.content[1] == Extension("x", lookalike)


def test_unknown_fields_are_passed_over() -> None:
    assert decode_message(
        document("user", {"type": "text", "text": "a", "language": "en"}, mood="good")
    ) == UserMessage("a", timestamp=1)
    assert decode_event(b'{"type": "turn_start", "turn_index": 3, "mood": "good"}') == TurnStart(3)


def test_an_unknown_block_becomes_an_extension_inside_events_too() -> None:
    reply = {"role": "assistant", "content": [NEW_BLOCK]}
    result = {"role": "tool_result", "tool_call_id": "1", "content": [NEW_BLOCK]}
    ended = decode_event(json.dumps({"type": "message_end", "message": reply}))
    turn = decode_event(
        json.dumps(
            {
                "type": "turn_end",
                "turn_index": 0,
                "message": reply,
                "tool_results": [result],
                "reason": "tools_executed",
            }
        )
    )
    executed = decode_event(
        json.dumps(
            {
                "type": "tool_execution_end",
                "call_id": "1",
                "name": "look",
                "result": {"content": [NEW_BLOCK]},
                "is_error": False,
            }
        )
    )
    assert isinstance(ended, MessageEnd)
    assert isinstance(turn, TurnEnd)
    assert isinstance(executed, ToolExecutionEnd)
    assert ended.message.content == (AS_EXTENSION,)
    assert turn.tool_results[0].content == (AS_EXTENSION,)
    assert executed.result.content == (AS_EXTENSION,)


def test_an_unknown_block_becomes_an_extension_inside_a_list_of_messages() -> None:
    data = json.dumps({"type": "agent_end", "messages": [{"role": "user", "content": [NEW_BLOCK], "timestamp": 1}]})
    for types in ((), (Notice,)):
        assert decode_event(data, types) == AgentEnd((UserMessage([AS_EXTENSION], timestamp=1),))


# -- an application's own messages -----------------------------------------------------------------------------


def test_a_custom_message_survives_json_when_its_type_is_given() -> None:
    notice = Notice("disk is full", 3)
    assert json.loads(encode_message(notice)) == {"role": "notice", "text": "disk is full", "level": 3}
    assert decode_message(encode_message(notice), [Notice]) == notice
    assert decode_message(encode_message(notice), types=(Artifact, Notice)) == notice


def test_a_custom_message_whose_type_is_not_given_is_refused() -> None:
    for types in ((), (Artifact,)):
        with pytest.raises(ValueError, match="notice"):
            decode_message(encode_message(Notice("a")), types)
        with pytest.raises(ValueError, match="notice"):
            decode_event(encode_event(AgentEnd((Notice("a"),))), types)


def test_types_that_are_given_do_not_get_in_the_way_of_other_messages() -> None:
    for message in (USER, REPLY, RESULT):
        assert decode_message(encode_message(message), [Notice, Artifact]) == message


def test_types_of_which_one_could_be_read_for_another_are_refused() -> None:
    class Other(CustomMessage, tag="notice"):
        pass

    class User(CustomMessage, tag="user"):
        pass

    wrong: list[tuple[Any, str]] = [
        ([Notice, Other], "Other and Notice have the same tag, 'notice': give one of them another"),
        ([User], "User and UserMessage have the same tag, 'user': give one of them another"),
        ([int], "types must be subclasses of CustomMessage, and <class 'int'> is not one"),
        ([Notice("a")], "types must be subclasses of CustomMessage, and Notice(text='a'"),
        (
            [UserMessage],
            "types must be subclasses of CustomMessage, and <class 'swink_agent.core.types.UserMessage'> is not one",
        ),
        (Notice, "types must be a list of classes: write [Notice]"),
    ]
    for types, words in wrong:
        with pytest.raises(TypeError) as raised:
            decode_message(encode_message(USER), types)
        assert str(raised.value).startswith(words)
    assert decode_message(encode_message(USER), [Notice, Notice]) == USER


def test_a_custom_message_may_hold_blocks_known_and_unknown() -> None:
    artifact = Artifact((Text("a"), ToolCall("1", "look")), {1: "one"})
    assert decode_message(encode_message(artifact), [Artifact]) == artifact
    data = json.dumps({"role": "artifact", "content": [NEW_BLOCK], "pages": {"1": "one"}})
    assert decode_message(data, [Artifact]) == Artifact((AS_EXTENSION,), {1: "one"})


# -- bad input -------------------------------------------------------------------------------------------------

NOT_JSON: list[bytes | str] = [
    b"",
    b" ",
    b"{",
    b"nope",
    b"\xff\xfe",
    b'{"role": "user", "content": []} and more',
    b'{"role": "user", "content": [{"type": "text", "text": "\xff"}]}',
    "\ud800",
]
NO_MESSAGE: list[bytes] = [
    b"null",
    b"[]",
    b"5",
    b'"user"',
    b"{}",
    b'{"role": null}',
    b'{"role": 5, "content": []}',
    b'{"role": "system", "content": []}',
    b'{"role": "user"}',
    b'{"role": "user", "content": null}',
    b'{"role": "user", "content": [5]}',
    b'{"role": "user", "content": [{}]}',
    b'{"role": "user", "content": [{"type": 5}]}',
    b'{"role": "user", "content": [{"type": "text"}]}',
    b'{"role": "user", "content": [{"type": "text", "text": 5}]}',
    b'{"role": "user", "content": [{"type": "video"}, {"type": "text"}]}',
    b'{"role": "user", "content": [{"type": "tool_call", "id": "1", "name": "a", "arguments": {}}]}',
    b'{"role": "assistant", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}',
    b'{"role": "assistant", "content": [{"type": "tool_call", "id": "1", "name": "a", "arguments": []}]}',
    b'{"role": "assistant", "content": [], "stop_reason": "bored"}',
    b'{"role": "assistant", "content": [], "usage": {"input": "many"}}',
    b'{"role": "tool_result", "content": []}',
    b'{"role": "user", "content": [], "timestamp": "now"}',
]
TOO_DEEP = b'{"role": "tool_result", "tool_call_id": "1", "content": [], "details": ' + b"[" * 200_000


def outcomes(decode: Callable[..., object], inputs: Sequence[bytes | str]) -> dict[bytes | str, list[str]]:
    """What became of each input that was not refused with a `ValueError`, with and without types of our own."""
    others: dict[bytes | str, list[str]] = {}
    for data in inputs:
        for types in ((), (Notice,)):
            try:
                others.setdefault(data, []).append(f"read: {decode(data, types)!r}")
            except ValueError:
                others.setdefault(data, []).append("refused")
            except Exception as error:
                others.setdefault(data, []).append(f"raised {error!r}")
    return {data: texts for data, texts in others.items() if texts != ["refused", "refused"]}


def test_an_invalid_message_is_a_value_error() -> None:
    assert outcomes(decode_message, [*NOT_JSON, *NO_MESSAGE]) == {}


def test_the_error_says_where_the_message_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"message.*content\[0\].text"):
        decode_message(b'{"role": "user", "content": [{"type": "text", "text": 5}]}')


def test_json_nested_too_deep_is_a_value_error_as_well() -> None:
    with pytest.raises(ValueError, match="message"):
        decode_message(TOO_DEEP)
    with pytest.raises(ValueError, match="event"):
        decode_event(b'{"type": "tool_execution_start", "arguments": ' + b"[" * 200_000)


NO_EVENT: list[bytes] = [
    b"null",
    b"[]",
    b"{}",
    b'{"type": "weather"}',
    b'{"type": "turn_start"}',
    b'{"type": "turn_start", "turn_index": "first"}',
    b'{"type": "agent_end"}',
    b'{"type": "agent_end", "messages": 5}',
    b'{"type": "agent_end", "messages": true}',
    b'{"type": "agent_end", "messages": "all"}',
    b'{"type": "agent_end", "messages": {"role": "user"}}',
    b'{"type": "agent_end", "messages": [5]}',
    b'{"type": "agent_end", "messages": [{"role": "user"}]}',
    b'{"type": "messages_injected", "messages": [], "source": "nowhere"}',
    b'{"type": "message_update", "delta": {"type": "text_start", "index": 0}}',
]


def test_an_invalid_event_is_a_value_error() -> None:
    assert outcomes(decode_event, [*NOT_JSON, *NO_EVENT]) == {}


def test_a_field_of_another_event_is_passed_over_with_and_without_types() -> None:
    data = b'{"type": "turn_start", "turn_index": 1, "messages": [{"role": "notice", "text": "a"}]}'
    assert decode_event(data) == TurnStart(1)
    assert decode_event(data, [Notice]) == TurnStart(1)


class Odd:
    def __str__(self) -> str:
        return "an odd object"


@pytest.mark.parametrize(
    ("details", "written"),
    [
        (Odd(), "an odd object"),
        ({"why": ValueError("it failed"), "at": [Odd()]}, {"why": "it failed", "at": ["an odd object"]}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ({"file": "half \ud83d"}, {"file": "half ?"}),
    ],
)
def test_details_that_are_not_json_are_written_as_text(details: object, written: object) -> None:
    message = ToolResultMessage("1", "ok", details=details)
    assert decode_message(encode_message(message)) == replace(message, details=written)
    result = AgentToolResult.text("ok", details)
    event = ToolExecutionEnd("1", "look", result, False)
    assert decode_event(encode_event(event)) == replace(event, result=replace(result, details=written))
    outer = DelegateEvent("2", "ask", event)
    assert decode_event(encode_event(outer)) == replace(
        outer, event=replace(event, result=replace(result, details=written))
    )
    ended = AgentEnd((message,), result=AgentResult(messages=(message,), stop_reason=StopReason.STOP))
    read = decode_event(encode_event(ended))
    assert isinstance(read, AgentEnd)
    assert read.messages == (replace(message, details=written),)
