"""From stream events to a message: the strict assembler, rule by rule."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, get_args

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AssistantMessage,
    AssistantMessageDelta,
    AssistantMessageEvent,
    Cost,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamError,
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
    ThinkingStart,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    decode_message,
    encode_message,
    tool,
)

MODEL = ModelSpec("anthropic", "claude-sonnet-4-6")
USAGE = Usage(10, 5, 0, 0, 15)
COST = Cost(total=0.5)


def assemble(*events: Any) -> AssistantMessage:
    assembler = MessageAssembler(MODEL)
    for event in events:
        assembler.feed(event)
    return assembler.message()


def text_events(index: int, *pieces: str) -> list[Any]:
    return [TextStart(index), *[TextDelta(index, piece) for piece in pieces], TextEnd(index)]


def call_events(index: int, *pieces: str, call_id: str = "", name: str = "look") -> list[Any]:
    start = ToolCallStart(index, call_id or f"call_{index}", name)
    return [start, *[ToolCallDelta(index, piece) for piece in pieces], ToolCallEnd(index)]


# -- good replies ----------------------------------------------------------------------------------------------


def test_a_reply_is_folded_into_one_message() -> None:
    message = assemble(
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta(0, "h"),
        ThinkingDelta(0, "m"),
        ThinkingEnd(0, "signature"),
        *text_events(1, "Let me ", "", "look."),
        *call_events(2, '{"where"', ': "here"}'),
        StreamDone(StopReason.TOOL_USE, USAGE, COST),
    )
    assert message == AssistantMessage(
        [Thinking("hm", "signature"), Text("Let me look."), ToolCall("call_2", "look", {"where": "here"})],
        "anthropic",
        "claude-sonnet-4-6",
        USAGE,
        COST,
        StopReason.TOOL_USE,
        timestamp=message.timestamp,
    )


def test_a_reply_may_be_empty() -> None:
    message = assemble(StreamStart(), StreamDone())
    assert (message.content, message.stop_reason, message.error_message) == ((), StopReason.STOP, None)


def test_a_block_may_have_no_deltas() -> None:
    message = assemble(
        StreamStart(), TextStart(0), TextEnd(0), ThinkingStart(1), ThinkingEnd(1, "redacted"), StreamDone()
    )
    assert message.content == (Text(""), Thinking("", "redacted"))


def test_blocks_may_be_open_at_the_same_time() -> None:
    message = assemble(
        StreamStart(),
        TextStart(0),
        ToolCallStart(1, "a", "look"),
        TextDelta(0, "one "),
        ToolCallDelta(1, '{"x":'),
        ToolCallStart(2, "b", "look"),
        TextDelta(0, "two"),
        ToolCallDelta(2, '{"y":'),
        ToolCallDelta(1, "1}"),
        ToolCallDelta(2, "2}"),
        ToolCallEnd(2),
        TextEnd(0),
        ToolCallEnd(1),
        StreamDone(StopReason.TOOL_USE),
    )
    assert message.content == (Text("one two"), ToolCall("a", "look", {"x": 1}), ToolCall("b", "look", {"y": 2}))


def test_arguments_without_text_are_an_empty_object() -> None:
    for text in ("", " ", "\n\t"):
        message = assemble(StreamStart(), *call_events(0, text), StreamDone(StopReason.TOOL_USE))
        assert message.content == (ToolCall("call_0", "look", {}),)


def test_arguments_are_whatever_object_the_model_wrote() -> None:
    message = assemble(
        StreamStart(), *call_events(0, ' {"a": [1, 2.5, null, {"b": "ü\\n"}]} '), StreamDone(StopReason.TOOL_USE)
    )
    assert message.tool_calls[0].arguments == {"a": [1, 2.5, None, {"b": "ü\n"}]}


def test_the_deltas_of_the_loop_are_those_of_the_stream() -> None:
    assert set(get_args(AssistantMessageDelta)) == {TextDelta, ThinkingDelta, ToolCallDelta}
    assert len(get_args(AssistantMessageEvent)) == 12


def test_options_have_the_defaults_of_the_specification() -> None:
    options = StreamOptions()
    assert (options.transport, options.tool_choice, options.cache) == ("sse", "auto", "auto")
    assert (options.temperature, options.max_tokens, options.session_id, options.timeout) == (None, None, None, None)
    assert (options.api_key, options.headers, options.extra) == (None, {}, {})


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ValueError, match="transport is 'websocket'"):
        StreamOptions(transport="websocket")  # type: ignore[arg-type]


# -- broken sequences ------------------------------------------------------------------------------------------

BROKEN: dict[str, list[Any]] = {
    "nothing at all": [],
    "no terminal event": [StreamStart(), *text_events(0, "a")],
    "a block before the start": [TextStart(0), TextEnd(0), StreamDone()],
    "an end before the start": [StreamDone()],
    "a delta before the start": [TextDelta(0, "a"), StreamDone()],
    "a second start": [StreamStart(), StreamStart(), StreamDone()],
    "a second start later": [StreamStart(), *text_events(0, "a"), StreamStart(), StreamDone()],
    "an index left out": [StreamStart(), *text_events(1, "a"), StreamDone()],
    "an index used again": [StreamStart(), *text_events(0, "a"), *text_events(0, "b"), StreamDone()],
    "an index below zero": [StreamStart(), *text_events(-1, "a"), StreamDone()],
    "a delta for a block that never opened": [StreamStart(), TextDelta(0, "a"), StreamDone()],
    "a delta for a block below zero": [StreamStart(), TextStart(0), TextDelta(-1, "a"), TextEnd(0), StreamDone()],
    "a delta for a closed block": [StreamStart(), *text_events(0, "a"), TextDelta(0, "b"), StreamDone()],
    "a delta of another kind": [StreamStart(), TextStart(0), ThinkingDelta(0, "a"), TextEnd(0), StreamDone()],
    "a delta of another kind, later": [
        StreamStart(),
        TextStart(0),
        TextDelta(0, "a"),
        ToolCallDelta(0, "b"),
        TextEnd(0),
        StreamDone(),
    ],
    "an end for a block that never opened": [StreamStart(), TextEnd(0), StreamDone()],
    "an end for a closed block": [StreamStart(), *text_events(0, "a"), TextEnd(0), StreamDone()],
    "an end of another kind": [StreamStart(), TextStart(0), ThinkingEnd(0), StreamDone()],
    "an end of another kind for a call": [StreamStart(), ToolCallStart(0, "a", "look"), TextEnd(0), StreamDone()],
    "two ends of the reply": [StreamStart(), StreamDone(), StreamDone()],
    "a failure after the end": [StreamStart(), StreamDone(), StreamFailed("late", ErrorKind.NETWORK)],
    "an end after a failure": [StreamStart(), StreamFailed("early", ErrorKind.NETWORK), StreamDone()],
    "two failures": [StreamStart(), StreamFailed("a", ErrorKind.NETWORK), StreamFailed("b", ErrorKind.NETWORK)],
    "a block after the end": [StreamStart(), StreamDone(), TextStart(0)],
    "a delta after the end": [StreamStart(), *text_events(0, "a"), StreamDone(), TextDelta(0, "b")],
    "a start after the end": [StreamStart(), StreamDone(), StreamStart()],
    "a block after a failure": [StreamStart(), StreamFailed("a", ErrorKind.NETWORK), TextStart(0)],
    "a text open at the end": [StreamStart(), TextStart(0), TextDelta(0, "a"), StreamDone()],
    "a thought open at the end": [StreamStart(), ThinkingStart(0), StreamDone()],
    "a call open at the end": [StreamStart(), ToolCallStart(0, "a", "look"), StreamDone(StopReason.TOOL_USE)],
    "a text open at the length limit": [StreamStart(), TextStart(0), StreamDone(StopReason.LENGTH)],
    "a thought open at the length limit": [StreamStart(), ThinkingStart(0), StreamDone(StopReason.LENGTH)],
    "something that is no event": [StreamStart(), "text", StreamDone()],
    "nothing for an event": [None, StreamStart(), StreamDone()],
    "a message for an event": [StreamStart(), AssistantMessage("a"), StreamDone()],
}


NO_OBJECTS = {
    "not JSON": '{"x": ',
    "more behind them": "{} {}",
    "a list": "[1]",
    "a string": '"x"',
    "null": "null",
    "nested too deep": '{"x":' + "[" * 200_000,
}


def test_arguments_that_are_not_an_object_keep_their_text_in_a_good_reply() -> None:
    for case, text in NO_OBJECTS.items():
        message = assemble(StreamStart(), *call_events(0, text), StreamDone(StopReason.TOOL_USE))
        assert (message.stop_reason, message.error_message) == (StopReason.TOOL_USE, None), case
        (call,) = message.tool_calls
        assert (call.arguments, call.partial_json) == ({}, text), case


def test_a_broken_sequence_is_an_error_message_of_kind_stream() -> None:
    for case, events in BROKEN.items():
        message = assemble(*events)
        assert (message.stop_reason, message.error_kind) == (StopReason.ERROR, ErrorKind.STREAM), case
        assert message.error_message, case
        assert message.tool_calls == (), case
        assert (message.provider, message.model_id) == ("anthropic", "claude-sonnet-4-6")
        assert decode_message(encode_message(message)) == message


def test_text_before_a_broken_sequence_is_kept() -> None:
    message = assemble(
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta(0, "hm"),
        ThinkingEnd(0, "signature"),
        *call_events(1, "{}"),
        TextStart(2),
        TextDelta(2, "half a sen"),
        TextStart(7),
        TextDelta(2, "tence"),
    )
    assert message.content == (Thinking("hm", "signature"), Text("half a sen"))
    assert message.error_kind == ErrorKind.STREAM


GARBAGE: dict[str, list[Any]] = {
    "a first delta that is no string": [TextStart(0), TextDelta(0, 5)],  # type: ignore[arg-type]
    "a later delta that is no string": [TextStart(0), TextDelta(0, "a"), TextDelta(0, None), TextEnd(0), StreamDone()],  # type: ignore[arg-type]
    "a later thought that is no string": [ThinkingStart(0), ThinkingDelta(0, "a"), ThinkingDelta(0, b"b")],  # type: ignore[arg-type]
    "later arguments that are no string": [ToolCallStart(0, "a", "b"), ToolCallDelta(0, "{"), ToolCallDelta(0, {})],  # type: ignore[arg-type]
    "no index in a start": [TextStart(None)],  # type: ignore[arg-type]
    "no index in a delta": [TextStart(0), TextDelta(None, "a")],  # type: ignore[arg-type]
    "an index that is a string": [TextStart(0), TextEnd("0")],  # type: ignore[arg-type]
    "an index that is a fraction": [TextStart(0.0), TextDelta(0.0, "a")],  # type: ignore[arg-type]
    "a call id that cannot be hashed": [ToolCallStart(0, [], "look"), ToolCallEnd(0), StreamDone()],  # type: ignore[arg-type]
    "a call without an id": [ToolCallStart(0, None, "look"), ToolCallEnd(0), StreamDone(StopReason.TOOL_USE)],  # type: ignore[arg-type]
    "a call without a name": [ToolCallStart(0, "a", None), ToolCallEnd(0), StreamDone(StopReason.TOOL_USE)],  # type: ignore[arg-type]
    "a signature that is no string": [ThinkingStart(0), ThinkingDelta(0, "a"), ThinkingEnd(0, 5), StreamDone()],  # type: ignore[arg-type]
    "an end without a reason": [StreamDone(None)],  # type: ignore[arg-type]
    "an end without usage": [StreamDone(StopReason.STOP, None, None)],  # type: ignore[arg-type]
    "an end with usage in words": [StreamDone(usage=Usage(input="5"))],  # type: ignore[arg-type]
    "an end with half a token": [StreamDone(usage=Usage(output=0.5))],  # type: ignore[arg-type]
    "an end with a cost that is none": [StreamDone(cost=Cost(total=None))],  # type: ignore[arg-type]
    "an end with an odd count": [StreamDone(usage=Usage(extra={"seen": None}))],  # type: ignore[dict-item]
    "an end with counts that have no names": [StreamDone(usage=Usage(extra=[5]))],  # type: ignore[arg-type]
    "a failure with usage in words": [StreamFailed("a", usage=Usage(total="5"))],  # type: ignore[arg-type]
    "a failure of a kind that nobody knows": [StreamFailed("a", "weather")],  # type: ignore[arg-type]
    "a failure with usage that is none": [StreamFailed("a", usage=5)],  # type: ignore[arg-type]
}


def test_events_with_garbage_in_them_still_give_a_valid_message() -> None:
    problems: dict[str, str] = {}
    for case, events in GARBAGE.items():
        try:
            message = assemble(StreamStart(), *events)
            assert decode_message(encode_message(message)) == message
            assert message.is_failed == (message.error_message is not None)
        except Exception as error:
            problems[case] = repr(error)
    assert problems == {}


def test_an_end_with_a_wrong_value_says_what_it_takes() -> None:
    message = assemble(StreamStart(), StreamDone("stop"))  # type: ignore[arg-type]
    takes = "a StreamDone takes a StopReason, a Usage and a Cost, and this one has a str, a Usage, a Cost"
    assert message.error_message == f"broken event sequence: {takes}"


def test_an_end_that_names_its_model_in_no_text_is_broken() -> None:
    message = assemble(StreamStart(), StreamDone(served_model=4))  # type: ignore[arg-type]
    assert message.error_message is not None
    assert "served_model or response_id is an int, not a string" in message.error_message


async def test_usage_in_words_ends_the_run_with_an_error_that_shows_it() -> None:
    async def wordy(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        yield StreamStart()
        yield StreamDone(usage=Usage(input="five"))  # type: ignore[arg-type]

    result = await Agent(MODEL, stream_fn=wordy).prompt("hello")
    assert result.error is not None
    assert "'five'" in result.error
    assert "consist of numbers" in result.error


async def test_a_stream_function_that_sends_garbage_cannot_make_the_run_raise() -> None:
    async def garbage(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "so far")
        yield TextDelta(0, None)  # type: ignore[arg-type]
        yield TextEnd(0)
        yield StreamDone()

    result = await Agent(MODEL, stream_fn=garbage).prompt("hello")
    assert result.stop_reason == StopReason.ERROR
    assert isinstance(result.exception, StreamError)


class Eager:
    """A strategy that wants everything retried."""

    def __init__(self) -> None:
        self.asked: list[AgentError] = []

    def should_retry(self, error: AgentError, attempt: int) -> bool:
        self.asked.append(error)
        return attempt < 3

    def delay(self, attempt: int) -> float:
        return 0.0


async def test_a_broken_sequence_is_not_retried() -> None:
    requests = 0

    async def broken(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[AssistantMessageEvent]:
        nonlocal requests
        requests += 1
        yield StreamStart()
        yield TextDelta(0, "a")

    result = await Agent(MODEL, stream_fn=broken, retry_strategy=Eager()).prompt("hello")
    assert requests == 1
    assert isinstance(result.exception, StreamError)


def test_two_calls_with_one_id_cannot_both_be_kept() -> None:
    message = assemble(
        StreamStart(), *call_events(0, "{}", call_id="a"), *call_events(1, "{}", call_id="a"), StreamDone()
    )
    assert len(message.tool_calls) < 2


# -- the length limit ------------------------------------------------------------------------------------------


def test_a_call_that_the_length_limit_cut_off_keeps_its_text() -> None:
    message = assemble(
        StreamStart(),
        *text_events(0, "a"),
        ToolCallStart(1, "cut", "look"),
        ToolCallDelta(1, '{"where": '),
        ToolCallDelta(1, '"he'),
        StreamDone(StopReason.LENGTH, USAGE),
    )
    assert message.content == (Text("a"), ToolCall("cut", "look", {}, '{"where": "he'))
    assert (message.stop_reason, message.error_message, message.usage) == (StopReason.LENGTH, None, USAGE)


def test_arguments_that_end_as_bad_json_are_kept_as_text_under_the_length_limit() -> None:
    message = assemble(StreamStart(), *call_events(0, '{"where": "he'), StreamDone(StopReason.LENGTH))
    assert message.content == (ToolCall("call_0", "look", {}, '{"where": "he'),)


def test_a_call_that_is_complete_stays_complete_under_the_length_limit() -> None:
    message = assemble(
        StreamStart(), *call_events(0, '{"x": 1}'), ToolCallStart(1, "cut", "look"), StreamDone(StopReason.LENGTH)
    )
    complete, cut = message.tool_calls
    assert complete == ToolCall("call_0", "look", {"x": 1})
    assert (cut.id, cut.arguments) == ("cut", {})
    assert cut.partial_json is not None


def test_a_call_that_never_closed_is_incomplete_even_if_its_text_is_json() -> None:
    message = assemble(
        StreamStart(), ToolCallStart(0, "cut", "look"), ToolCallDelta(0, '{"x": 1}'), StreamDone(StopReason.LENGTH)
    )
    assert message.content == (ToolCall("cut", "look", {}, '{"x": 1}'),)


# -- failures --------------------------------------------------------------------------------------------------


def test_a_failure_keeps_text_and_thinking_but_no_calls() -> None:
    message = assemble(
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta(0, "hm"),
        ThinkingEnd(0, "signature"),
        *call_events(1, "{}"),
        ToolCallStart(2, "open", "look"),
        TextStart(3),
        TextDelta(3, "half a "),
        TextDelta(3, "sentence"),
        StreamFailed("the server is gone", ErrorKind.NETWORK, usage=USAGE),
    )
    assert message.content == (Thinking("hm", "signature"), Text("half a sentence"))
    assert (message.stop_reason, message.error_kind) == (StopReason.ERROR, ErrorKind.NETWORK)
    assert (message.error_message, message.usage) == ("the server is gone", USAGE)


def test_a_failure_is_an_error_of_the_kind_that_the_provider_gave() -> None:
    for kind in set(ErrorKind) - {ErrorKind.ABORTED}:
        message = assemble(StreamStart(), StreamFailed("no", kind))
        assert (message.stop_reason, message.error_kind, message.error_message) == (StopReason.ERROR, kind, "no")
        assert message.usage == Usage()


def test_a_failure_that_is_an_abort_is_an_aborted_message() -> None:
    for failure in (
        StreamFailed("stopped", ErrorKind.ABORTED),
        StreamFailed("stopped", ErrorKind.ABORTED, StopReason.ABORTED),
        StreamFailed("stopped", ErrorKind.NETWORK, StopReason.ABORTED),
    ):
        message = assemble(StreamStart(), *text_events(0, "a"), *call_events(1, "{}"), failure)
        assert (message.stop_reason, message.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)
        assert message.content == (Text("a"),)


@pytest.mark.parametrize("reason", [StopReason.ERROR, StopReason.ABORTED])
def test_an_end_that_claims_an_error_leaves_a_failed_message_without_calls(reason: StopReason) -> None:
    message = assemble(StreamStart(), *text_events(0, "a"), *call_events(1, "{}"), StreamDone(reason))
    assert message.is_failed
    assert message.error_message
    assert message.content == (Text("a"),)


@pytest.mark.parametrize("reason", [StopReason.ERROR, StopReason.ABORTED])
async def test_an_end_that_claims_an_error_ends_the_run_and_no_tool_is_called(reason: StopReason) -> None:
    requests, called = 0, False

    @tool
    async def look() -> str:
        nonlocal called
        called = True
        return "seen"

    async def stream(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[AssistantMessageEvent]:
        nonlocal requests
        requests += 1
        yield StreamStart()
        for event in call_events(0, "{}"):
            yield event
        yield StreamDone(reason if requests == 1 else StopReason.STOP)
        assert requests < 3

    agent = Agent(MODEL, stream_fn=stream, tools=[look])
    result = await agent.prompt("hello")
    assert (requests, called) == (1, False)
    assert result.stop_reason == reason
    assert result.exception is not None


# -- the message so far ----------------------------------------------------------------------------------------


def test_a_snapshot_is_the_message_so_far() -> None:
    assembler = MessageAssembler(MODEL)
    assert assembler.snapshot().content == ()
    seen: list[tuple[Any, ...]] = []
    for event in [
        StreamStart(),
        TextStart(0),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        TextEnd(0),
        ToolCallStart(1, "c", "look"),
        ToolCallDelta(1, '{"x":'),
        ToolCallDelta(1, "1}"),
        ToolCallEnd(1),
    ]:
        assembler.feed(event)
        seen.append(assembler.snapshot().content)
    assert seen[1:5] == [(Text(""),), (Text("a"),), (Text("ab"),), (Text("ab"),)]
    for content in seen[5:8]:
        assert content[0] == Text("ab")
        assert (content[1].id, content[1].name, content[1].arguments) == ("c", "look", {})
        assert content[1].partial_json is not None
    assert seen[8] == (Text("ab"), ToolCall("c", "look", {"x": 1}))


def test_taking_snapshots_changes_nothing_and_they_do_not_change_later() -> None:
    assembler = MessageAssembler(MODEL)
    assembler.feed(StreamStart())
    assembler.feed(TextStart(0))
    assembler.feed(TextDelta(0, "a"))
    early = assembler.snapshot()
    assembler.feed(TextDelta(0, "b"))
    assembler.feed(TextEnd(0))
    assembler.feed(StreamDone(StopReason.STOP, USAGE, COST))
    assert early.content == (Text("a"),)
    message = assembler.message()
    assert (message.content, message.stop_reason, message.usage) == ((Text("ab"),), StopReason.STOP, USAGE)
    assert assembler.snapshot().content == message.content


# -- its cost --------------------------------------------------------------------------------------------------


class Piece(str):
    """A piece of text that counts the characters copied whenever it is put together with others one by one."""

    __slots__ = ()
    copied: ClassVar[int] = 0

    def __add__(self, other: str) -> str:
        Piece.copied += len(self) + len(other)
        return Piece(str.__add__(self, other))

    def __radd__(self, other: str) -> str:
        Piece.copied += len(self) + len(other)
        return Piece(other.__add__(self[:]))

    def __format__(self, spec: str) -> str:
        Piece.copied += len(self)
        return str.__format__(self, spec)


def calls_made(work: Callable[[], object]) -> Counter[str]:
    """How many functions, of Python and of C, are called while `work` is done."""
    counted: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted["calls"] += 1
            counted[getattr(argument, "__name__", "")] += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


def reply_in_pieces(count: int) -> list[Any]:
    arguments = ['{"x": "', *["y" * 10] * count, '"}']
    return [
        StreamStart(),
        *text_events(0, *[Piece("x" * 10) for _ in range(count)]),
        ToolCallStart(1, "a", "look"),
        *[ToolCallDelta(1, Piece(piece)) for piece in arguments],
        ToolCallEnd(1),
        StreamDone(StopReason.TOOL_USE),
    ]


def test_the_pieces_of_a_reply_are_put_together_once() -> None:
    Piece.copied = 0
    message = assemble(*reply_in_pieces(1_000))
    assert len(message.text) == 10_000
    assert len(message.tool_calls[0].arguments["x"]) == 10_000
    assert Piece.copied <= 4 * 20_000


def test_twice_as_many_deltas_cost_twice_as_many_calls() -> None:
    short, long = reply_in_pieces(500), reply_in_pieces(1_000)
    first, second = calls_made(lambda: assemble(*short)), calls_made(lambda: assemble(*long))
    assert second["calls"] <= 2 * first["calls"]


def test_arguments_are_parsed_once_however_many_deltas_they_come_in() -> None:
    events = reply_in_pieces(200)
    counted = calls_made(lambda: assemble(*events))
    assert sum(count for name, count in counted.items() if "decode" in name or "load" in name) == 1
