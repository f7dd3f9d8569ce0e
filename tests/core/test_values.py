"""Structured values: with their run, as the provider's own JSON output, validated, and while they grow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentEvent,
    Approve,
    AuthError,
    Cost,
    Defer,
    MessageRetry,
    MessagesInjected,
    ModelSpec,
    NotPending,
    PolicyContext,
    PolicyStopped,
    Redactor,
    RunRecord,
    Stop,
    StopReason,
    StreamError,
    StreamOptions,
    StructuredOutputFailed,
    StructuredResult,
    TextStream,
    Usage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import (
    FakeClock,
    ModelRequest,
    call,
    check_conversation,
    check_events,
    fail,
    reply,
    scripted,
    stall,
    text,
    think,
    truncated,
)

MODEL = ModelSpec("test", "model")
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}


@dataclass
class Point:
    x: int
    y: int


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def native(*replies: Any, **options: Any) -> Any:
    return scripted(*replies, native_schema=True, **options)


async def read(stream: AsyncIterator[Any], into: list[Any]) -> None:
    async for item in stream:
        into.append(item)


def as_json(**fields: Any) -> str:
    return json.dumps(fields)


# -- the value and its run -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [native(as_json(x=1, y=2)), scripted(call("final_answer", x=1, y=2))])
async def test_a_run_gives_the_value_with_what_it_took(stream: Any) -> None:
    agent = Agent(MODEL, stream_fn=stream)
    found = await agent.structured_run("where?", Point)
    assert isinstance(found, StructuredResult)
    assert found.value == Point(1, 2)
    assert found.result is agent.last_result
    assert found.messages == found.result.messages == tuple(agent.messages)
    assert found.result.value == {"x": 1, "y": 2}
    assert found.pending == ()


async def test_usage_and_cost_are_those_of_all_attempts() -> None:
    stream = native("no", as_json(x=1, y=2), usage=Usage(10, 5, total=15), cost=Cost(total=0.5))
    found = await Agent(MODEL, stream_fn=stream).structured_run("where?", SCHEMA)
    assert (found.usage, found.cost) == (Usage(20, 10, total=30), Cost(total=1.0))
    assert (found.value, found.attempts) == ({"x": 1, "y": 2}, 2)


@pytest.mark.parametrize("answer", [as_json(x=1, y=2), call("final_answer", x=1, y=2)], ids=["native", "by tool"])
async def test_a_first_answer_that_fits_is_one_attempt(answer: Any) -> None:
    stream = scripted(answer, native_schema=isinstance(answer, str))
    assert (await Agent(MODEL, stream_fn=stream).structured_run("where?", SCHEMA)).attempts == 1


def test_the_sync_variant_gives_the_same() -> None:
    agent = Agent(MODEL, stream_fn=native("no", as_json(x=1, y=2)))
    found = agent.structured_run_sync("where?", Point)
    assert (found.value, len(found.messages)) == (Point(1, 2), 4)
    with pytest.raises(StreamError):
        agent.structured_run_sync("and now?", Point)


async def test_errors_are_those_of_structured_output() -> None:
    agent = Agent(MODEL, stream_fn=native("no", "no", fail("auth", "bad key")))
    with pytest.raises(StructuredOutputFailed) as failure:
        await agent.structured_run("where?", Point, 1)
    assert failure.value.attempts == 2
    with pytest.raises(AuthError, match="bad key"):
        await agent.structured_run("where?", Point)


async def test_a_run_may_be_given_its_own_model_tools_and_options() -> None:
    stream = native(as_json(x=1, y=2))
    agent = Agent(MODEL, stream_fn=stream)
    options = StreamOptions(temperature=0.5)
    await agent.structured_run("where?", Point, model="test:other", tools=[add], stream_options=options)
    (request,) = stream.requests
    assert (request.model.model_id, request.context.tools, request.options.temperature) == ("other", (add,), 0.5)
    with pytest.raises(TypeError, match="colour"):
        await agent.structured_run("where?", Point, colour="red")  # type: ignore[call-overload]
    assert len(stream.requests) == 1


# -- the provider's own output ----------------------------------------------------------------------------------


async def test_a_stream_function_that_says_yes_is_given_the_schema_and_no_tool() -> None:
    asked: list[Any] = []
    stream = scripted(as_json(x=1, y=2), as_json(x=3, y=4), "bye")

    def native_schema(*arguments: Any) -> bool:
        asked.append(arguments)
        return True

    stream.native_schema = native_schema  # type: ignore[method-assign]
    agent = Agent(MODEL, stream_fn=stream)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    assert await agent.structured_output("where?", SCHEMA) == {"x": 1, "y": 2}
    agent.tools = [add]
    assert await agent.structured_output("where?", SCHEMA) == {"x": 3, "y": 4}
    await agent.prompt("and?")
    first, second, last = stream.requests
    assert asked == [(MODEL, SCHEMA, False), (MODEL, SCHEMA, True)]
    assert first.options == StreamOptions(output_schema=SCHEMA)
    assert (first.context.tools, second.context.tools) == ((), (add,))
    assert second.options == first.options
    assert (last.options, last.context.tools) == (StreamOptions(), (add,))
    check_conversation(last.messages)


@pytest.mark.parametrize("answer", [False, None])
async def test_one_that_says_no_gets_the_tool(answer: Any) -> None:
    stream = scripted(call("final_answer", x=1, y=2))
    stream.native_schema = lambda *_: answer  # type: ignore[method-assign]
    assert await Agent(MODEL, stream_fn=stream).structured_output("where?", SCHEMA) == {"x": 1, "y": 2}
    assert stream.requests[0].options == StreamOptions(tool_choice="final_answer")


@pytest.mark.parametrize(("target", "value"), [(list[int], [1, 2]), (int | None, None), (list[Point], [Point(1, 2)])])
async def test_other_shapes_travel_in_the_value_of_an_object(target: Any, value: Any) -> None:
    given = [{"x": 1, "y": 2}] if value == [Point(1, 2)] else value
    stream = native(as_json(value=given))
    agent = Agent(MODEL, stream_fn=stream)
    assert await agent.structured_output("which?", target) == value
    schema = stream.requests[0].options.output_schema
    assert (schema["type"], list(schema["properties"]), schema["required"]) == ("object", ["value"], ["value"])
    assert agent.last_result is not None
    assert agent.last_result.value == given


async def test_definitions_of_a_wrapped_schema_stand_at_its_root() -> None:
    even = {"multipleOf": 2, "type": "integer"}
    schema = {"type": "array", "items": {"$ref": "#/$defs/even"}, "$defs": {"even": even}}
    stream = native(as_json(value=[1]), as_json(value=[2]))
    assert await Agent(MODEL, stream_fn=stream).structured_output("even?", schema) == [2]
    assert stream.requests[0].options.output_schema == {
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/even"}}},
        "required": ["value"],
        "$defs": {"even": even},
    }


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("It is at 1, 2.", "not JSON"),
        (as_json(x="one", y=2), 'x: "one" is not of type "integer"'),
        (as_json(x=1), '"y" is a required property'),
        (think("hm") + text("[1]"), "is not of type"),
        (truncated(as_json(x=1, y=2)), "cut off at the length limit"),
        ("[" * 500 + "]" * 500, "nested too deep"),
    ],
    ids=["prose", "a wrong type", "a missing field", "a list", "cut off", "deep"],
)
async def test_other_text_gets_its_errors_as_a_message_of_the_user(wrong: Any, says: str) -> None:
    events: list[AgentEvent] = []
    stream = native(wrong, as_json(x=1, y=2))
    agent = Agent(MODEL, stream_fn=stream)
    agent.subscribe(events.append)
    assert await agent.structured_output("where?", SCHEMA) == {"x": 1, "y": 2}
    check_events(events)
    message = stream.requests[1].messages[-1]
    assert isinstance(message, UserMessage)
    assert says in extract_text(message.content)
    assert [event.source for event in events if isinstance(event, MessagesInjected)] == ["policy"]


async def test_other_tools_are_called_before_the_answer() -> None:
    stream = native(text("Let me see.") + call("add", a=1, b=2), as_json(x=3, y=0))
    agent = Agent(MODEL, stream_fn=stream, tools=[add])
    assert await agent.structured_output("1+2, 0?", SCHEMA, max_retries=0) == {"x": 3, "y": 0}
    assert [request.options.tool_choice for request in stream.requests] == ["auto", "auto"]


@pytest.mark.parametrize(("given", "sent"), [("required", "auto"), ("add", "auto"), ("none", "none"), ("auto", "auto")])
async def test_a_choice_of_tools_that_would_rule_an_answer_out_is_not_sent(given: str, sent: str) -> None:
    stream = native(as_json(x=1, y=2))
    agent = Agent(MODEL, stream_fn=stream, tools=[add], stream_options=StreamOptions(tool_choice=given))
    await agent.structured_output("where?", SCHEMA)
    assert stream.requests[0].options.tool_choice == sent


async def test_the_same_record_whichever_way_the_value_was_given() -> None:
    for stream in (native(as_json(x=1, y=2)), scripted(call("final_answer", x=1, y=2))):
        record = RunRecord()
        agent = Agent(MODEL, stream_fn=stream)
        agent.subscribe(record.feed)
        await agent.structured_output("where?", SCHEMA)
        assert (record.kind, record.schema, record.has_value) == ("structured", SCHEMA, True)
        assert record.value == {"x": 1, "y": 2}
        assert record.stopped_by is not None
        assert record.stopped_by.reason == "the answer was given"


async def test_a_policy_that_stops_the_run_does_not_take_away_an_answer_in_text() -> None:
    class OneTurn:
        def post_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("one turn is enough")

    agent = Agent(MODEL, stream_fn=native(as_json(x=1, y=2), "no"), policies=[OneTurn()])
    assert await agent.structured_output("where?", SCHEMA) == {"x": 1, "y": 2}
    with pytest.raises(PolicyStopped, match="one turn is enough"):
        await agent.structured_output("where?", SCHEMA)


async def test_a_fallback_without_it_gets_the_tool() -> None:
    primary = native(fail("throttled", retry_after=10_000))
    other = scripted(call("final_answer", x=1, y=2))
    agent = Agent(MODEL, stream_fn=primary, fallbacks=[("test:other", other)])
    assert await agent.structured_output("where?", SCHEMA) == {"x": 1, "y": 2}
    assert primary.requests[0].options.output_schema == SCHEMA
    assert other.requests[0].options == StreamOptions(tool_choice="final_answer")


async def test_a_refused_schema_is_replaced_by_the_tool_for_the_rest_of_the_run() -> None:
    refusal = fail("invalid_request", "response_format: this schema is not supported", usage=Usage(1, 0, total=1))
    stream = native(refusal, call("final_answer", x="one", y=2), call("final_answer", x=1, y=2), as_json(x=3, y=4))
    agent = Agent(MODEL, stream_fn=stream)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    found = await agent.structured_run("where?", SCHEMA)
    check_events(events)
    assert found.value == {"x": 1, "y": 2}
    assert found.usage == Usage(1, 0, total=1)
    assert [type(event) for event in events].count(MessageRetry) == 1
    assert [request.options.output_schema for request in stream.requests] == [SCHEMA, None, None]
    assert [len(request.context.tools) for request in stream.requests] == [0, 1, 1]
    assert await agent.structured_output("and now?", SCHEMA) == {"x": 3, "y": 4}  # another run tries again


async def test_another_invalid_request_is_not_repeated() -> None:
    stream = native(fail("invalid_request", "the model is unknown"), as_json(x=1, y=2))
    with pytest.raises(StreamError, match="unknown"):
        await Agent(MODEL, stream_fn=stream).structured_output("where?", SCHEMA)
    assert len(stream.requests) == 1


def test_the_schema_of_options_is_an_object() -> None:
    assert StreamOptions(output_schema=SCHEMA).output_schema == SCHEMA
    with pytest.raises(TypeError, match="output_schema"):
        StreamOptions(output_schema="string")  # type: ignore[arg-type]


# -- what the application checks --------------------------------------------------------------------------------


def in_the_first_quadrant(point: Point) -> None:
    if point.x < 0 or point.y < 0:
        raise ValueError(f"({point.x}, {point.y}) is not in the first quadrant")


async def below_ten(point: Point) -> None:
    await asyncio.sleep(0)
    if point.x > 9:
        raise ValueError("x must be below ten")


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_value_that_is_refused_goes_back_with_the_reason(is_native: bool) -> None:
    points = [{"x": -1, "y": 2}, {"x": 10, "y": 2}, {"x": 1, "y": 2}]
    replies = [json.dumps(point) if is_native else call("final_answer", **point) for point in points]
    stream = scripted(*replies, native_schema=is_native)
    agent = Agent(MODEL, stream_fn=stream)
    found = await agent.structured_run("where?", Point, validate=[in_the_first_quadrant, below_ten])
    assert (found.value, found.attempts) == (Point(1, 2), 3)
    said = [extract_text(request.messages[-1].content) for request in stream.requests[1:]]
    assert "(-1, 2) is not in the first quadrant" in said[0]
    assert "x must be below ten" in said[1]


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_secret_in_the_reason_reaches_neither_the_model_nor_the_error(is_native: bool) -> None:
    secret = "kX9-very-secret-value-42"
    redactor = Redactor()
    redactor.register(secret, "token")

    def leaky(point: Point) -> None:
        raise ValueError(f"refused by {secret}")

    answer = as_json(x=1, y=2) if is_native else call("final_answer", x=1, y=2)
    stream = scripted(answer, answer, native_schema=is_native)
    agent = Agent(MODEL, stream_fn=stream, redactor=redactor)
    with pytest.raises(StructuredOutputFailed, match="refused by") as failure:
        await agent.structured_output("where?", Point, 1, validate=leaky)
    assert secret not in str(failure.value)
    assert secret not in extract_text(stream.requests[1].messages[-1].content)


async def test_refused_values_count_as_attempts() -> None:
    agent = Agent(MODEL, stream_fn=native(*[as_json(x=-1, y=2)] * 2))
    with pytest.raises(StructuredOutputFailed) as failure:
        await agent.structured_output("where?", Point, 1, validate=in_the_first_quadrant)
    assert (failure.value.attempts, failure.value.last_error) == (2, "(-1, 2) is not in the first quadrant")
    assert agent.last_result is not None
    assert not agent.last_result.has_value


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_mistake_in_the_check_is_raised_and_not_the_models_fault(is_native: bool) -> None:
    answer = as_json(x=1, y=2) if is_native else call("final_answer", x=1, y=2)
    stream = scripted(answer, "never", native_schema=is_native)
    agent = Agent(MODEL, stream_fn=stream)

    def broken(point: Point) -> None:
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column"):
        await agent.structured_output("where?", Point, validate=broken)
    assert len(stream.requests) == 1
    assert not agent.is_running


async def test_other_objects_than_functions_are_refused_before_anything_happens() -> None:
    stream = native("never")
    wrong: Any
    for wrong in ([3], True, 3):
        with pytest.raises(TypeError, match=r"validate must be a function, or a list of them, not an? (int|bool)"):
            await Agent(MODEL, stream_fn=stream).structured_output("where?", Point, validate=wrong)
    assert stream.requests == []


# -- the value as it grows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_value_can_be_read_while_it_grows(is_native: bool) -> None:
    given = {"title": "Rome", "stops": [{"name": "Forum"}]}
    answer = text(json.dumps(given), deltas=8) if is_native else call("final_answer", **given)
    stream = scripted(answer, native_schema=is_native, deltas=8)
    agent = Agent(MODEL, stream_fn=stream)
    values = agent.structured_stream("plan", {"type": "object"})
    partial = [value async for value in values]
    assert partial[-1] == given
    assert partial[0].keys() <= {"title"}
    assert all(len(json.dumps(one)) < len(json.dumps(next_one)) for one, next_one in pairwise(partial))
    assert (await values.result()).value == given


async def test_a_wrapped_value_grows_by_itself() -> None:
    agent = Agent(MODEL, stream_fn=native(text(as_json(value=["one", "two"]), deltas=30)))
    async with agent.structured_stream("list", list[str]) as values:
        partial = [value async for value in values]
    assert partial[0] == []
    assert ["on"] in partial
    assert partial[-1] == ["one", "two"]


async def test_other_calls_and_texts_are_not_part_of_the_value() -> None:
    first = text('{"x": 9}') + call("add", a=1, b=2)
    agent = Agent(MODEL, stream_fn=scripted(first, call("final_answer", x=3, y=0)), tools=[add])
    values = agent.structured_stream("1+2, 0?", Point)
    assert [value async for value in values] == [{"x": 3, "y": 0}]
    assert (await values.result()).value == Point(3, 0)


async def test_another_attempt_begins_anew_and_the_end_raises_the_failure() -> None:
    agent = Agent(MODEL, stream_fn=native(as_json(x=1), as_json(x="a")))
    values = agent.structured_stream("where?", Point, 1)
    partial: list[Any] = []
    with pytest.raises(StructuredOutputFailed):
        await read(values, partial)
    assert partial == [{"x": 1}, {"x": "a"}]
    with pytest.raises(StructuredOutputFailed):
        await values.result()


async def test_an_answer_with_a_wrong_bracket_is_tried_again() -> None:
    agent = Agent(MODEL, stream_fn=native('{"x": 1], "y": 2}', as_json(x=1, y=2)))
    values = agent.structured_stream("where?", Point)
    assert [value async for value in values][-1] == {"x": 1, "y": 2}
    assert (await values.result()).attempts == 2


async def test_leaving_the_value_ends_the_run() -> None:
    agent = Agent(MODEL, stream_fn=native(reply('{"x": 1', stall())))
    async for value in agent.structured_stream("where?", Point):
        assert value == {}
        break
    await agent.wait_for_idle()
    assert agent.last_result is not None
    assert agent.last_result.stop_reason == StopReason.ABORTED


# -- text alone -------------------------------------------------------------------------------------------------


async def test_the_text_of_a_run_comes_in_pieces() -> None:
    first = think("hm") + text("Let me see. ", deltas=3) + call("add", a=1, b=2)
    stream = scripted(first, text("It is 3.", deltas=2))
    agent = Agent(MODEL, stream_fn=stream, tools=[add])
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    words = agent.text_stream("1+2?")
    assert isinstance(words, TextStream)
    assert [piece async for piece in words] == ["Let ", "me s", "ee. ", "\n\nIt i", "s 3."]
    check_events(events)
    assert (await words.result()).text == "It is 3."
    assert not agent.is_running


async def test_the_text_may_be_asked_for_piece_by_piece_or_not_at_all() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("one two", deltas=2), "three"))
    async with agent.text_stream("count") as words:
        assert await anext(words) == "one "
        assert await anext(words) == "two"
        with pytest.raises(StopAsyncIteration):
            await anext(words)
    assert (await agent.text_stream("on").result()).text == "three"


CUT = fail("network", "cut")


@pytest.mark.parametrize(
    ("replies", "pieces"),
    [
        ([text("part") + CUT, text("whole")], ["part", "\nwhole"]),
        ([text("one two ") + CUT, text("one two three", deltas=4)], ["one two ", "th", "ree"]),
        ([text("one two") + CUT, text("one two")], ["one two"]),
        ([text("one two") + CUT, text("one")], ["one two", "\none"]),
        ([text("one two") + CUT, text("one") + CUT, text("one two three")], ["one two", " three"]),
        ([text("one") + CUT, text("two") + CUT, text("two three")], ["one", "\ntwo", " three"]),
        ([CUT, text("whole")], ["whole"]),
        ([call("add", a=1, b=2), text("It is 3.")], ["It is 3."]),
        ([text("I add.") + call("add", a=1, b=2), text("I") + CUT, text("It")], ["I add.", "\n\nI", "t"]),
    ],
)
@pytest.mark.table
async def test_a_repeated_request_repeats_no_text(replies: list[Any], pieces: list[str]) -> None:
    agent = Agent(MODEL, stream_fn=scripted(*replies), tools=[add], sleep=FakeClock().sleep)
    assert [piece async for piece in agent.text_stream("go")] == pieces


async def test_text_that_a_failed_repetition_repeats_is_not_given_again() -> None:
    agent = Agent(
        MODEL, stream_fn=scripted(text("one two") + CUT, text("one") + fail("auth", "bad key")), sleep=FakeClock().sleep
    )
    pieces: list[str] = []
    with pytest.raises(AuthError):
        await read(agent.text_stream("hi"), pieces)
    assert pieces == ["one two"]


async def test_the_end_of_the_text_raises_the_error_of_the_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", fail("auth", "bad key"))))
    pieces: list[str] = []
    words = agent.text_stream("hi")
    with pytest.raises(AuthError, match="bad key"):
        await read(words, pieces)
    assert pieces == ["half"]
    assert (await words.result()).error == "bad key"


async def test_an_abort_is_raised_at_the_end_of_the_text() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    words = agent.text_stream("hi")
    assert await anext(words) == "half"
    agent.abort()
    with pytest.raises(Aborted):
        await anext(words)


async def test_leaving_the_text_ends_the_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall()), "ok"))
    words = agent.text_stream("hi")
    async for piece in words:
        assert piece == "half"
        break
    assert (await agent.prompt("again")).text == "ok"


async def test_bad_input_is_refused_at_once() -> None:
    agent = Agent(MODEL, stream_fn=scripted("never"))
    with pytest.raises(ValueError, match="prompt"):
        agent.text_stream("")
    with pytest.raises(ValueError, match="schema"):
        agent.structured_stream("where?", {"type": "nonsense"})
    assert not agent.is_running


async def test_a_text_stream_is_given_what_any_run_may_be_given() -> None:
    stream = scripted("hello")
    agent = Agent(MODEL, stream_fn=stream)
    assert [piece async for piece in agent.text_stream("hi", system_prompt="Be brief.", model="test:other")] == [
        "hello"
    ]
    request: ModelRequest = stream.requests[0]
    assert (request.context.system_prompt, request.model.model_id) == ("Be brief.", "other")


# -- values and calls that wait ---------------------------------------------------------------------------------


@tool(requires_approval=True)
async def measure(what: str) -> str:
    """Measures something."""
    return f"{what}: 3"


def defers(_: Any) -> Defer:
    return Defer("the boss decides")


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_run_that_waits_has_no_value_yet_and_answers_in_place_of_the_prompt_go_on(is_native: bool) -> None:
    answer = as_json(x=3, y=0) if is_native else call("final_answer", x=3, y=0)
    stream = scripted(call("measure", what="it").with_id("c1"), answer, native_schema=is_native)
    agent = Agent(MODEL, stream_fn=stream, tools=[measure], approve=defers)
    waiting = await agent.structured_run("how far?", Point)
    assert [pending.call_id for pending in waiting.pending] == ["c1"]
    assert waiting.pending == waiting.result.pending
    with pytest.raises(StructuredOutputFailed, match="measure"):
        _ = waiting.value
    found = await agent.structured_run({"c1": Approve()}, Point)
    assert (found.value, found.pending) == (Point(3, 0), ())
    assert extract_text(found.messages[0].content) == "it: 3"
    assert found.result.has_value
    check_conversation(stream.requests[-1].messages)


async def test_structured_output_raises_while_calls_wait() -> None:
    agent = Agent(MODEL, stream_fn=native(call("measure", what="it").with_id("c1")), tools=[measure], approve=defers)
    with pytest.raises(StructuredOutputFailed, match="measure"):
        await agent.structured_output("how far?", Point)
    assert [pending.call_id for pending in agent.pending] == ["c1"]


def test_the_sync_variants_resume_too() -> None:
    stream = native(call("measure", what="it").with_id("c1"), as_json(x=3, y=0))
    agent = Agent(MODEL, stream_fn=stream, tools=[measure], approve=defers)
    assert agent.structured_run_sync("how far?", Point).pending
    assert agent.structured_output_sync({"c1": True}, Point) == Point(3, 0)


async def test_answers_that_nothing_waits_for_are_refused_before_anything_happens() -> None:
    stream = native("never")
    agent = Agent(MODEL, stream_fn=stream, messages=["hi"])
    with pytest.raises(NotPending):
        await agent.structured_run({"c9": Approve()}, Point)
    with pytest.raises(ValueError, match="answer"):
        await agent.structured_run({}, Point)
    assert stream.requests == []


async def test_a_stream_of_a_value_resumes_too() -> None:
    stream = native(call("measure", what="it").with_id("c1"), as_json(x=3, y=0))
    agent = Agent(MODEL, stream_fn=stream, tools=[measure], approve=defers)
    first = agent.structured_stream("how far?", Point)
    assert [value async for value in first] == []
    assert (await first.result()).pending
    values = agent.structured_stream({"c1": True}, Point)
    assert [value async for value in values][-1] == {"x": 3, "y": 0}
