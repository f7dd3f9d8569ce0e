"""Generated text becomes events, in whatever pieces it arrives."""

from __future__ import annotations

import pytest

from swink_agent import (
    AssistantMessage,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamStart,
    Text,
    TextDelta,
    Thinking,
    Usage,
)
from swink_agent.local.prompt.reply import ReplyParser

SPEC = ModelSpec("local", "model")
CALL = '{"name": "bash", "arguments": {"command": "echo \\"}{\\" \\\\"}}\n</tool_call>'
ANSWER = '{"name": "answer", "arguments": {"text": "Two\\nlines, \\"quoted\\" \\u00e9 \\/ é"}}\n</tool_call>'


def read(text: str, size: int = 1, *, is_cut: bool = False, **options: bool) -> AssistantMessage:
    parser, assembler = ReplyParser(**options), MessageAssembler(SPEC)
    assembler.feed(StreamStart())
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])
        for event in parser.take():
            assembler.feed(event)
    parser.release()
    parser.done(Usage(output=3), is_cut=is_cut)
    for event in parser.take():
        assembler.feed(event)
    message = assembler.message()
    assert not assembler.is_broken, message.error_message
    return message


@pytest.mark.table
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("is_held", [False, True])
def test_a_call_in_pieces_of_any_size(size: int, is_held: bool) -> None:
    message = read(CALL, size, in_call=True, is_held=is_held)
    (call,) = message.tool_calls
    assert (call.name, call.arguments) == ("bash", {"command": 'echo "}{" \\'})
    assert message.stop_reason == StopReason.TOOL_USE
    assert message.usage == Usage(output=3)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_answer_call_is_what_the_model_says(size: int) -> None:
    message = read(ANSWER, size, in_call=True)
    assert message.content == (Text('Two\nlines, "quoted" é / é'),)
    assert message.stop_reason == StopReason.STOP


def test_the_answer_streams_as_it_is_written() -> None:
    parser = ReplyParser(in_call=True)
    parser.feed('{"name": "answer", "arguments": {"text": "Hel')
    assert [event.delta for event in parser.take() if isinstance(event, TextDelta)] == ["Hel"]
    parser.feed("lo")
    assert [event.delta for event in parser.take() if isinstance(event, TextDelta)] == ["lo"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_think_spans_become_thinking(size: int) -> None:
    message = read("<think>\nLet me <see>.</think>\n\nIt is 5 < 6.", size)
    assert message.content == (Thinking("Let me <see>."), Text("It is 5 < 6."))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_thinking_then_a_call(size: int) -> None:
    message = read(f"<think>\nHm</think>\n\n<tool_call>\n{CALL}", size)
    assert message.content[0] == Thinking("Hm")
    assert [call.name for call in message.tool_calls] == ["bash"]


def test_empty_thinking_leaves_no_block() -> None:
    assert read("<think>\n\n</think>\n\nHi").content == (Text("Hi"),)


def test_two_calls_in_one_reply() -> None:
    message = read(f"{CALL}\n<tool_call>\n{CALL}", 4, in_call=True)
    assert len(message.tool_calls) == 2
    assert len({call.id for call in message.tool_calls}) == 2


@pytest.mark.parametrize("is_held", [False, True])
def test_a_call_cut_at_the_longest_stays_incomplete(is_held: bool) -> None:
    message = read('{"name": "bash", "arguments": {"command": "ech', 5, in_call=True, is_held=is_held, is_cut=True)
    (call,) = message.tool_calls
    assert call.is_incomplete
    assert call.partial_json == '{"command": "ech'
    assert message.stop_reason == StopReason.LENGTH


def test_an_answer_cut_at_the_longest_is_text() -> None:
    message = read('{"name": "answer", "arguments": {"text": "It is \\', 5, in_call=True, is_cut=True)
    assert message.content == (Text("It is "),)
    assert message.stop_reason == StopReason.LENGTH


def test_text_that_ends_like_a_tag_is_all_there() -> None:
    assert read("a < b and <thi", 1).text == "a < b and <thi"


def test_a_loop_is_noticed_and_a_list_is_not() -> None:
    parser = ReplyParser()
    for _ in range(60):
        parser.feed("the same again, ")
    assert parser.is_looping
    parser = ReplyParser()
    for number in range(300):
        parser.feed(f"line {number}\n")
        assert not parser.is_looping
