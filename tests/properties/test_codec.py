"""Random messages through JSON, and random histories prepared for a model."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swink_agent import (
    AgentEnd,
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    Base64Image,
    Cost,
    CustomMessage,
    ErrorKind,
    Extension,
    FileImage,
    Image,
    LlmMessage,
    MessageEnd,
    MessagesInjected,
    SlidingWindow,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    UrlImage,
    Usage,
    UserMessage,
    decode_event,
    decode_message,
    encode_event,
    encode_message,
)
from swink_agent.core.exchanges import repair_pairs
from swink_agent.core.run.transcript import Transcript

OFTEN = settings(max_examples=100)
SOMETIMES = settings(max_examples=100)


class Notice(CustomMessage, tag="notice"):
    text: str
    data: Any = None


# -- messages --------------------------------------------------------------------------------------------------

words = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
counts = st.integers(0, 2**40)
stamps = st.integers(0, 2**50)

texts = st.builds(Text, words)
extensions = st.builds(Extension, words, json_values)
images = st.builds(
    Image,
    st.builds(Base64Image, words, words)
    | st.builds(UrlImage, words, st.none() | words)
    | st.builds(FileImage, words, st.none() | words),
)
user_blocks = st.lists(texts | images | extensions, max_size=3)
assistant_blocks = st.lists(
    texts
    | extensions
    | st.builds(Thinking, words, st.none() | words)
    | st.builds(ToolCall, words, words, objects, st.none() | words),
    max_size=4,
)
users = st.builds(UserMessage, user_blocks | words, stamps)
assistants = st.builds(
    AssistantMessage,
    assistant_blocks | words,
    words,
    words,
    st.builds(Usage, counts, counts, counts, counts, counts, st.dictionaries(words, counts, max_size=2)),
    st.builds(Cost, finite, finite, finite, finite, finite, st.dictionaries(words, finite, max_size=2)),
    st.sampled_from(StopReason),
    st.none() | words,
    st.none() | st.sampled_from(ErrorKind),
    stamps,
)
results = st.builds(ToolResultMessage, words, user_blocks | words, st.booleans(), json_values, words, stamps)
notices = st.builds(Notice, words, json_values)
any_message: st.SearchStrategy[AgentMessage] = users | assistants | results | notices
tool_results = st.builds(AgentToolResult, user_blocks | words, json_values, st.booleans())
any_event = st.one_of(
    st.builds(MessageEnd, assistants),
    st.builds(MessagesInjected, st.lists(any_message, max_size=2).map(tuple), st.sampled_from(["steering", "policy"])),
    st.builds(ToolExecutionStart, words, words, objects),
    st.builds(ToolExecutionEnd, words, words, tool_results, st.booleans()),
    st.builds(
        TurnEnd,
        counts,
        st.none() | assistants,
        st.lists(results, max_size=2).map(tuple),
        st.sampled_from(TurnEndReason),
    ),
    st.builds(AgentEnd, st.lists(any_message, max_size=2).map(tuple)),
)


@OFTEN
@given(any_message)
def test_any_message_survives_json(message: AgentMessage) -> None:
    data = encode_message(message)
    assert decode_message(data, [Notice]) == message
    assert encode_message(decode_message(data, [Notice])) == data


@OFTEN
@given(any_event)
def test_any_event_survives_json(event: Any) -> None:
    assert decode_event(encode_event(event), [Notice]) == event


@OFTEN
@given(any_message)
def test_the_repr_of_any_message_is_short(message: AgentMessage) -> None:
    assert len(repr(message)) <= 400


KNOWN = {"text", "thinking", "tool_call", "image", "extension"}


@OFTEN
@given(any_message, words, objects)
def test_an_unknown_block_anywhere_becomes_an_extension(message: AgentMessage, name: str, fields: Any) -> None:
    assume(name not in KNOWN and not isinstance(message, Notice))
    fields.pop("type", None)
    document = json.loads(encode_message(message))
    document["content"].insert(0, {"type": name, **fields})
    decoded: Any = decode_message(json.dumps(document))
    assert decoded == msgspec.structs.replace(message, content=(Extension(name, fields), *message.content))  # type: ignore[union-attr]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """The JSON of a message with something in it replaced, or cut off."""
    document = json.loads(encode_message(draw(users | assistants | results)))
    node: Any = document
    while isinstance(node, (dict, list)) and node:
        key = draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or draw(st.booleans()):
            node[key] = draw(json_values)
            break
        node = node[key]
    data = json.dumps(document).encode()
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@OFTEN
@given(spoiled() | st.binary(max_size=30) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_input_is_a_valid_message_or_a_value_error(data: bytes) -> None:
    for types in ((), (Notice,)):
        try:
            message = decode_message(data, types)
        except ValueError:
            continue
        assert decode_message(encode_message(message), types) == message


@SOMETIMES
@given(st.lists(any_event, min_size=1, max_size=1), st.data())
def test_any_input_is_a_valid_event_or_a_value_error(events: list[Any], data: st.DataObject) -> None:
    document = json.loads(encode_event(events[0]))
    document[data.draw(st.sampled_from([*document, "messages"]))] = data.draw(json_values)
    for types in ((), (Notice,)):
        try:
            event = decode_event(json.dumps(document), types)
        except ValueError:
            continue
        assert decode_event(encode_event(event), types) == event


# -- histories -------------------------------------------------------------------------------------------------

ids = st.sampled_from(["a", "b", "c"])
spoken = st.sampled_from(["", " ", "well"])
any_reply = st.builds(
    lambda text, thought, names, reason, stamp: AssistantMessage(
        [
            *([Thinking("hm", thought)] if thought is not None else []),
            *([Text(text)] if text is not None else []),
            *[ToolCall(name, "look") for name in names],
        ],
        stop_reason=reason,
        timestamp=stamp,
    ),
    st.none() | spoken,
    st.none() | st.sampled_from(["signature"]),
    st.lists(ids, unique=True, max_size=3),
    st.sampled_from([StopReason.STOP, StopReason.TOOL_USE, StopReason.LENGTH, StopReason.ERROR, StopReason.ABORTED]),
    st.integers(0, 3),
)
any_result = st.builds(ToolResultMessage, ids, words, st.booleans(), timestamp=st.integers(0, 3))
any_question = st.builds(UserMessage, words, st.integers(0, 3))
histories = st.lists(any_question | any_reply | any_result, max_size=14)


@st.composite
def exchanges(draw: st.DrawFn) -> list[LlmMessage]:
    """A few messages that are as they should be: a question, or a reply with a result for each of its calls."""
    if draw(st.booleans()):
        return [draw(any_question)]
    names = draw(st.lists(ids, unique=True, max_size=3))
    reply = AssistantMessage([Text("well"), *[ToolCall(name, "look") for name in names]], timestamp=5)
    return [reply, *[ToolResultMessage(name, draw(words), timestamp=6) for name in names]]


def check_conversation(messages: list[LlmMessage]) -> None:
    """Each call is answered once, right behind its message, and nothing else is; no reply is empty."""
    expected: list[str] = []
    for message in messages:
        match message:
            case ToolResultMessage():
                assert expected, "a result that answers no call"
                assert message.tool_call_id in expected, "a result for a call that was answered or never made"
                expected.remove(message.tool_call_id)
            case _:
                assert expected == [], "a call that was not answered right away"
        if isinstance(message, AssistantMessage):
            assert any(not isinstance(block, Text) or block.text.strip() for block in message.content)
            expected = [call.id for call in message.tool_calls]
    assert expected == []


@OFTEN
@given(histories)
def test_any_history_becomes_a_valid_conversation(messages: list[LlmMessage]) -> None:
    before = list(messages)
    repaired = repair_pairs(messages)
    check_conversation(repaired)
    assert messages == before
    assert repair_pairs(repaired) == repaired
    assert [message for message in repaired if isinstance(message, UserMessage)] == [
        message for message in messages if isinstance(message, UserMessage)
    ]
    made_up = [message for message in repaired if not any(message is given for given in messages)]
    assert all(isinstance(message, ToolResultMessage) and message.is_error for message in made_up)


@OFTEN
@given(st.lists(exchanges(), max_size=6))
def test_a_history_that_is_as_it_should_be_is_sent_as_it_is(parts: list[list[LlmMessage]]) -> None:
    messages = [message for part in parts for message in part]
    check_conversation(messages)
    assert repair_pairs(messages) == messages
    transcript = Transcript(messages)
    transcript.convert_by_default()
    assert transcript.conversation() == messages


@OFTEN
@given(st.lists(st.lists(any_question | any_reply | any_result | notices, max_size=4), max_size=6))
def test_a_history_that_grows_in_any_way_is_always_sent_as_a_valid_conversation(
    parts: list[list[AgentMessage]],
) -> None:
    transcript = Transcript()
    earlier: list[tuple[Any, list[LlmMessage]]] = []
    for part in parts:
        transcript.add(part)
        transcript.convert_by_default()
        sent = transcript.conversation()
        check_conversation(list(sent))
        assert len(repair_pairs(sent)) == len(sent)
        earlier.append((sent, list(sent)))
    assert transcript.history == [message for part in parts for message in part]
    for view, as_it_was in earlier:
        assert view == as_it_was


@OFTEN
@given(histories, st.lists(exchanges(), min_size=1, max_size=5))
def test_each_request_begins_with_the_one_before(beginning: list[LlmMessage], parts: list[list[LlmMessage]]) -> None:
    transcript = Transcript(beginning)
    transcript.convert_by_default()
    before = list(transcript.conversation())
    for part in parts:
        transcript.add(part)
        transcript.convert_by_default()
        sent = list(transcript.conversation())
        assert sent[: len(before)] == before
        assert sent[-len(part) :] == part
        before = sent


@OFTEN
@given(st.lists(exchanges(), max_size=8), st.integers(1, 120), st.integers(0, 3), st.booleans())
def test_a_window_over_any_good_history_is_a_good_history(
    parts: list[list[LlmMessage]], budget: int, keep_first: int, overflow: bool
) -> None:
    messages = [message for part in parts for message in part]
    kept = SlidingWindow(budget, keep_first=keep_first)(messages, overflow)
    if kept is None:
        return
    assert len(kept) < len(messages)
    assert kept[:keep_first] == messages[:keep_first]
    check_conversation(kept)  # type: ignore[arg-type]
