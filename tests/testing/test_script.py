"""The scripted model: it plays exactly the script of a test, follows the rules, and records its requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessage,
    AssistantMessageEvent,
    CancellationToken,
    Cost,
    ErrorKind,
    MessageAssembler,
    MessageUpdate,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamFailed,
    StreamFn,
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
    UserMessage,
    tool,
)
from swink_agent.testing import (
    ModelRequest,
    call,
    check_stream_fn,
    collect,
    fail,
    names,
    reply,
    scripted,
    stall,
    text,
    think,
    truncated,
)

MODEL = ModelSpec("test", "model")


async def ask(stream: StreamFn, *messages: str, options: StreamOptions | None = None) -> list[AssistantMessageEvent]:
    context = AgentContext("Be brief.", [UserMessage(message) for message in messages])
    return await collect(stream(MODEL, context, options or StreamOptions(), CancellationToken()))


async def message_of(given: Any, **options: Any) -> AssistantMessage:
    """The message that a reply becomes."""
    assembler = MessageAssembler(MODEL)
    for event in await ask(scripted(given, **options)):
        assembler.feed(event)
    return assembler.message()


# -- the parts -----------------------------------------------------------------------------------------------


async def test_a_text_is_one_block() -> None:
    assert await ask(scripted(text("hello"))) == [
        StreamStart(),
        TextStart(0),
        TextDelta(0, "hello"),
        TextEnd(0),
        StreamDone(StopReason.STOP),
    ]


async def test_a_string_is_a_text() -> None:
    assert await ask(scripted("hello")) == await ask(scripted(text("hello")))


async def test_thinking_has_its_signature() -> None:
    assert await ask(scripted(think("hm", signature="s"))) == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta(0, "hm"),
        ThinkingEnd(0, "s"),
        StreamDone(StopReason.STOP),
    ]


async def test_a_call_has_its_arguments_as_json_and_ends_the_reply_for_its_tools() -> None:
    assert await ask(scripted(call("add", a=1, b=[2]))) == [
        StreamStart(),
        ToolCallStart(0, "call_1", "add"),
        ToolCallDelta(0, '{"a":1,"b":[2]}'),
        ToolCallEnd(0),
        StreamDone(StopReason.TOOL_USE),
    ]


async def test_an_argument_may_have_any_name() -> None:
    message = await message_of(call("run", name="x", id="y", arguments={"z": 1}))
    assert message.tool_calls == (ToolCall("call_1", "run", {"name": "x", "id": "y", "arguments": {"z": 1}}),)


async def test_calls_have_ids_that_are_unique_in_the_script() -> None:
    stream = scripted(call("a") + call("b"), call("c"), lambda request: call("d"))
    ids = [event.id for _ in range(3) for event in await ask(stream) if isinstance(event, ToolCallStart)]
    assert len(set(ids)) == 4


async def test_a_call_may_be_given_its_id() -> None:
    message = await message_of(call("add", a=1).with_id("mine"))
    assert message.tool_calls == (ToolCall("mine", "add", {"a": 1}),)


async def test_a_failure_ends_what_was_said_before_it() -> None:
    usage = Usage(input=3, total=3)
    assert await ask(scripted(text("half") + fail("throttled", "slow down", retry_after=2.5, usage=usage))) == [
        StreamStart(),
        TextStart(0),
        TextDelta(0, "half"),
        TextEnd(0),
        StreamFailed("slow down", ErrorKind.THROTTLED, retry_after=2.5, usage=usage),
    ]


@pytest.mark.table
@pytest.mark.parametrize("kind", list(ErrorKind))
async def test_every_kind_of_failure_can_be_scripted_and_has_a_message(kind: ErrorKind) -> None:
    message = await message_of(fail(kind))
    assert message.error_kind == kind
    assert message.error_message


def test_a_kind_of_failure_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="lightning"):
        fail("lightning")


# -- replies -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    "given",
    [
        think("hm") + text("so") + call("add", a=1),
        [think("hm"), text("so"), call("add", a=1)],
        (think("hm"), text("so"), call("add", a=1)),
        reply(think("hm"), "so", call("add", a=1)),
        lambda request: think("hm") + text("so") + call("add", a=1),
        [think("hm"), *(text("so") + call("add", a=1))],
        [think("hm")] + (text("so") + call("add", a=1)),
        [think("hm"), text("so")] + call("add", a=1),  # noqa: RUF005 - adding is what is tested
    ],
)
async def test_parts_can_be_put_together_in_several_ways(given: Any) -> None:
    message = await message_of(given)
    assert message.content == (Thinking("hm"), Text("so"), ToolCall("call_1", "add", {"a": 1}))
    assert message.stop_reason == StopReason.TOOL_USE


async def test_an_empty_reply_says_nothing() -> None:
    message = await message_of([])
    assert message.content == ()
    assert message.stop_reason == StopReason.STOP


@pytest.mark.parametrize("deltas", [1, 2, 3, 5, 9])
async def test_a_reply_is_streamed_in_the_number_of_pieces_that_was_asked_for(deltas: int) -> None:
    events = await ask(scripted(text("abcde") + call("f", a=1), deltas=deltas))
    pieces = [event.delta for event in events if isinstance(event, TextDelta)]
    assert len(pieces) == deltas
    assert "".join(pieces) == "abcde"
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    assert len([event for event in events if isinstance(event, ToolCallDelta)]) == deltas


async def test_a_part_may_have_its_own_number_of_pieces() -> None:
    events = await ask(scripted(text("abc", deltas=3) + text("de"), deltas=2))
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["a", "b", "c", "d", "e"]


def test_a_reply_is_streamed_in_at_least_one_piece() -> None:
    with pytest.raises(ValueError, match="deltas"):
        scripted("x", deltas=0)


async def test_usage_and_cost_come_with_every_reply() -> None:
    usage, cost = Usage(input=1, output=2, total=3), Cost(total=0.5)
    stream = scripted("a", "b", usage=usage, cost=cost)
    for _ in range(2):
        assert (await ask(stream))[-1] == StreamDone(StopReason.STOP, usage, cost)


async def test_a_truncated_text_is_cut_in_half_and_ends_by_its_length() -> None:
    message = await message_of(truncated("abcdef"))
    assert message.content == (Text("abc"),)
    assert message.stop_reason == StopReason.LENGTH


async def test_a_truncated_call_is_cut_inside_its_arguments() -> None:
    message = await message_of(truncated("first", call("add", a=1), call("add", a=2, b=3)))
    first, whole, cut = message.content
    assert first == Text("first")
    assert whole == ToolCall("call_1", "add", {"a": 1})
    assert isinstance(cut, ToolCall)
    assert (cut.arguments, cut.is_incomplete) == ({}, True)
    assert '{"a":2,"b":3}'.startswith(str(cut.partial_json))
    assert message.stop_reason == StopReason.LENGTH


@pytest.mark.parametrize("parts", [(), (fail("network"),), (stall(),)])
def test_only_what_is_said_can_be_truncated(parts: Any) -> None:
    with pytest.raises(TypeError, match="truncated"):
        truncated(*parts)


# -- the script ----------------------------------------------------------------------------------------------


async def test_each_request_gets_the_next_reply() -> None:
    stream = scripted("one", "two")
    assert not stream.is_finished
    texts = [[event.delta for event in await ask(stream) if isinstance(event, TextDelta)] for _ in range(2)]
    assert texts == [["one"], ["two"]]
    assert stream.is_finished


async def test_a_request_too_many_fails_and_says_so() -> None:
    stream = scripted("only")
    await ask(stream)
    (event,) = await ask(stream)
    assert isinstance(event, StreamFailed)
    assert event.kind == ErrorKind.INVALID_REQUEST
    assert "1 replies" in event.message
    assert "request 2" in event.message


async def test_requests_are_remembered_as_they_were() -> None:
    @tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    options = StreamOptions(temperature=0.5)
    stream = scripted(call("add", a=1, b=2), "3")
    agent = Agent(MODEL, system_prompt="Be brief.", stream_fn=stream, tools=[add], stream_options=options)
    await agent.prompt("1+2?")
    first, second = stream.requests
    assert isinstance(first, ModelRequest)
    assert (first.model, first.options) == (MODEL, options)
    assert first.context.system_prompt == "Be brief."
    assert first.context.tools == (add,)
    assert [type(message).__name__ for message in first.messages] == ["UserMessage"]
    assert [type(message).__name__ for message in second.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResultMessage",
    ]


async def test_a_reply_may_depend_on_the_request() -> None:
    def parrot(request: ModelRequest) -> str:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        (block,) = last.content
        assert isinstance(block, Text)
        return block.text.upper()

    assert (await Agent(MODEL, stream_fn=scripted(parrot)).prompt("hello")).text == "HELLO"


def test_a_mistake_in_a_script_shows_where_it_was_written() -> None:
    with pytest.raises(TypeError):
        scripted(call("add", a=object()))
    with pytest.raises(TypeError):
        scripted(42)  # type: ignore[arg-type]


def test_the_repr_tells_how_far_the_script_has_come() -> None:
    stream = scripted("one", "two")
    asyncio.run(ask(stream))
    assert "1 of 2" in repr(stream)


# -- time ----------------------------------------------------------------------------------------------------


async def test_a_reply_without_suspension_comes_at_once_and_with_it_others_run() -> None:
    async def turns_during(stream: StreamFn) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        await ask(stream)
        counting.cancel()
        await asyncio.wait([counting])
        return turns

    assert await turns_during(scripted(text("abcdef", deltas=6))) <= 1
    assert await turns_during(scripted(text("abcdef", deltas=6), suspend=True)) >= 8


async def test_a_stall_is_silent_until_the_run_is_aborted() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("half") + stall() + text("never")))
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
    result = await agent.prompt("hi")
    assert (result.text, result.stop_reason) == ("half", StopReason.ABORTED)


async def test_a_stall_ends_when_the_token_of_the_call_is_cancelled() -> None:
    cancel = CancellationToken()
    events: list[AssistantMessageEvent] = []

    async def read() -> None:
        async for event in scripted(text("half") + stall() + text("never"))(
            MODEL, AgentContext(), StreamOptions(), cancel
        ):
            events.append(event)

    reading = asyncio.create_task(read())
    for _ in range(10):
        await asyncio.sleep(0)
    assert names(events) == ["StreamStart", "TextStart", "TextDelta", "TextEnd"]
    cancel.cancel()
    done, _ = await asyncio.wait([reading], timeout=30)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading in done
    assert not any(isinstance(event, TextDelta) and event.delta == "never" for event in events)


@pytest.mark.table
@pytest.mark.parametrize(
    "given",
    [
        text("hello", deltas=3),
        think("hm", signature="s") + text("so") + call("add", a=1) + call("add", a=2),
        truncated("half", call("add", a=1)),
        text("half") + fail("network"),
        [],
    ],
)
@pytest.mark.parametrize("suspend", [False, True])
async def test_a_scripted_model_keeps_the_rules_of_stream_functions(given: Any, suspend: bool) -> None:
    await check_stream_fn(lambda: scripted(given, deltas=2, suspend=suspend))
