"""Whatever a provider sends, in any order: the assembler never raises and always gives a valid message."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    AssistantMessage,
    Cost,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamFailed,
    StreamStart,
    Text,
    TextDelta,
    TextEnd,
    TextStart,
    Thinking,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    decode_message,
    encode_message,
)

MODEL = ModelSpec("test", "model")
OFTEN = settings(max_examples=100)

words = st.text(max_size=8)
indexes = st.integers(-1, 4)
fragments = st.sampled_from(["", "{", "}", "{}", '{"a":', "1", "[", " ", '"x"', "null"]) | words
counts = st.integers(0, 1_000)
usages = st.builds(Usage, counts, counts, counts, counts, counts, st.dictionaries(words, counts, max_size=2))
costs = st.builds(Cost, total=st.floats(0, 10))

any_event: st.SearchStrategy[Any] = st.one_of(
    st.just(StreamStart()),
    st.builds(TextStart, indexes),
    st.builds(TextDelta, indexes, words),
    st.builds(TextEnd, indexes),
    st.builds(ThinkingStart, indexes),
    st.builds(ThinkingDelta, indexes, words),
    st.builds(ThinkingEnd, indexes, st.none() | words),
    st.builds(ToolCallStart, indexes, words, words),
    st.builds(ToolCallDelta, indexes, fragments),
    st.builds(ToolCallEnd, indexes),
    st.builds(StreamDone, st.sampled_from(StopReason), usages, costs),
    st.builds(
        StreamFailed,
        words,
        st.sampled_from(ErrorKind),
        st.sampled_from([StopReason.ERROR, StopReason.ABORTED]),
        st.none() | st.floats(0, 100),
        st.none() | usages,
    ),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
blocks = st.one_of(
    st.builds(Text, words),
    st.builds(Thinking, words, st.none() | words),
    st.builds(ToolCall, st.just(""), words, st.dictionaries(words, json_values, max_size=3)),
)


def assemble(events: list[Any]) -> AssistantMessage:
    assembler = MessageAssembler(MODEL)
    for event in events:
        assembler.feed(event)
    return assembler.message()


def check(message: AssistantMessage) -> None:
    """What holds for every message, whatever it was made from."""
    assert decode_message(encode_message(message)) == message
    ids = [call.id for call in message.tool_calls]
    assert len(ids) == len(set(ids))
    if message.is_failed:
        assert message.tool_calls == ()
        assert message.error_message is not None
        assert message.error_kind is not None
        assert (message.error_kind == ErrorKind.ABORTED) == (message.stop_reason == StopReason.ABORTED)
    else:
        assert message.error_message is None
        assert message.error_kind is None
    for call in message.tool_calls:
        if call.partial_json is not None:
            assert call.arguments == {}


def pieces_of(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """A reply that keeps the rules, with blocks open at the same time, and the blocks that it must become."""
    expected: list[Any] = []
    lines: list[list[Any]] = []
    for index, block in enumerate(draw(st.lists(blocks, max_size=4))):
        match block:
            case Text():
                body = [TextDelta(index, piece) for piece in pieces_of(draw, block.text)]
                lines.append([TextStart(index), *body, TextEnd(index)])
            case Thinking():
                body = [ThinkingDelta(index, piece) for piece in pieces_of(draw, block.thinking)]
                lines.append([ThinkingStart(index), *body, ThinkingEnd(index, block.signature)])
            case _:
                block = ToolCall(f"call_{index}", block.name, block.arguments)
                body = [ToolCallDelta(index, piece) for piece in pieces_of(draw, json.dumps(block.arguments))]
                lines.append([ToolCallStart(index, block.id, block.name), *body, ToolCallEnd(index)])
        expected.append(block)
    events: list[Any] = [StreamStart()]
    opened = 0
    while any(lines):
        ready = [line for line in lines[: opened + 1] if line]
        line = draw(st.sampled_from(ready))
        opened = max(opened, next(number for number, each in enumerate(lines) if each is line) + 1)
        events.append(line.pop(0))
    return [*events, draw(st.builds(StreamDone, st.just(StopReason.STOP), usages, costs))], expected


@OFTEN
@given(st.lists(any_event, max_size=25))
def test_any_sequence_of_events_gives_a_valid_message(events: list[Any]) -> None:
    check(assemble(events))


@OFTEN
@given(st.lists(any_event, max_size=25))
def test_any_sequence_that_starts_well_gives_a_valid_message(events: list[Any]) -> None:
    check(assemble([StreamStart(), TextStart(0), TextDelta(0, "a"), ToolCallStart(1, "call", "look"), *events]))


@OFTEN
@given(replies())
def test_a_reply_that_keeps_the_rules_becomes_the_blocks_it_was_made_of(reply: tuple[list[Any], list[Any]]) -> None:
    events, expected = reply
    message = assemble(events)
    check(message)
    assert list(message.content) == expected
    assert (message.stop_reason, message.usage, message.cost) == ("stop", events[-1].usage, events[-1].cost)


@OFTEN
@given(replies())
def test_every_snapshot_on_the_way_is_a_valid_message_that_only_grows(reply: tuple[list[Any], list[Any]]) -> None:
    assembler = MessageAssembler(MODEL)
    text, blocks_so_far = "", 0
    for event in reply[0]:
        assembler.feed(event)
        snapshot = assembler.snapshot()
        assert decode_message(encode_message(snapshot)) == snapshot
        assert len(snapshot.content) >= blocks_so_far
        assert len(snapshot.text) >= len(text)
        text, blocks_so_far = snapshot.text, len(snapshot.content)
    assert list(assembler.snapshot().content) == reply[1]


@OFTEN
@given(replies(), st.data())
def test_a_reply_that_fails_anywhere_keeps_what_was_said_and_no_calls(
    reply: tuple[list[Any], list[Any]], data: st.DataObject
) -> None:
    events = reply[0][: data.draw(st.integers(1, len(reply[0]) - 1))]
    message = assemble([*events, StreamFailed("gone", ErrorKind.NETWORK)])
    check(message)
    assert (message.stop_reason, message.error_message) == (StopReason.ERROR, "gone")
    said: dict[int, str] = {}
    for event in events:
        if isinstance(event, (TextDelta, ThinkingDelta)):
            said[event.index] = said.get(event.index, "") + event.delta
    kept = [block.text if isinstance(block, Text) else block.thinking for block in message.content]  # type: ignore[union-attr]
    assert [text for text in kept if text] == [text for _, text in sorted(said.items()) if text]


@OFTEN
@given(replies(), st.data())
def test_a_reply_with_one_event_lost_doubled_or_misplaced_is_still_a_valid_message(
    reply: tuple[list[Any], list[Any]], data: st.DataObject
) -> None:
    events, expected = reply
    position = data.draw(st.integers(0, len(events) - 1))
    match data.draw(st.sampled_from(["lost", "doubled", "misplaced"])):
        case "lost":
            events = [*events[:position], *events[position + 1 :]]
        case "doubled":
            events = [*events[: position + 1], *events[position:]]
        case _:
            moved = events.pop(position)
            events.insert(data.draw(st.integers(0, len(events))), moved)
    message = assemble(events)
    check(message)
    if not message.is_failed:
        assert len(message.content) == len(expected)


@OFTEN
@given(replies(), st.data())
def test_the_length_limit_leaves_complete_calls_complete_and_the_others_marked(
    reply: tuple[list[Any], list[Any]], data: st.DataObject
) -> None:
    events = [
        event for event in reply[0][:-1] if isinstance(event, (StreamStart, ToolCallStart, ToolCallDelta, ToolCallEnd))
    ]
    events = events[: data.draw(st.integers(1, len(events)))]
    order = [event.index for event in events if isinstance(event, ToolCallStart)]
    renumbered = {index: position for position, index in enumerate(order)}
    ended = {renumbered[event.index] for event in events if isinstance(event, ToolCallEnd)}
    for position, event in enumerate(events):
        if not isinstance(event, StreamStart):
            fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "index"}
            events[position] = type(event)(renumbered[event.index], **fields)
    message = assemble([*events, StreamDone(StopReason.LENGTH)])
    check(message)
    complete = [number for number, call in enumerate(message.tool_calls) if call.partial_json is None]
    assert set(complete) == ended
    assert len(message.tool_calls) == len(order)
