"""Structured output: a value of the requested shape, or an error with the reason."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentEvent,
    AlreadyRunning,
    AuthError,
    MaxTurns,
    MessageUpdate,
    ModelSpec,
    PolicyContext,
    PolicyStopped,
    PreDispatchContext,
    Skip,
    Stop,
    StopReason,
    StreamOptions,
    StructuredOutputFailed,
    ToolExecutionStart,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import (
    ModelRequest,
    call,
    check_conversation,
    check_events,
    fail,
    reply,
    scripted,
    stall,
    text,
)
from swink_agent.testing.script import Part

MODEL = ModelSpec("test", "model")
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def answer(**arguments: Any) -> Any:
    """A reply that calls the tool through which an answer is given, whatever its name."""
    return lambda request: call(answer_tool(request).name, **arguments)


def answer_tool(request: ModelRequest) -> Any:
    """The one tool of a request that the agent itself does not have."""
    (found,) = [item for item in request.context.tools if item is not add]
    return found


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


# -- shapes --------------------------------------------------------------------------------------------------


async def test_a_schema_gives_a_dict() -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(x=1, y=2)))
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}


async def test_usage_of_a_value_is_known_afterwards() -> None:
    failed = fail("network", retry_after=0, usage=Usage(1, 1, total=2))
    replies = (answer(x="one"), failed, answer(x=1, y=2), "And more.")
    agent = Agent(MODEL, stream_fn=scripted(*replies, usage=Usage(10, 5, total=15)))
    during: list[Any] = []
    agent.subscribe(lambda _: during.append(agent.last_result))
    assert agent.last_result is None
    await agent.structured_output("where?", POINT)
    assert agent.last_result is not None
    assert agent.last_result.usage == Usage(21, 11, total=32)
    assert set(during) == {None}
    assert agent.last_result is not (result := await agent.prompt("And?"))
    assert agent.last_result is result
    agent.reset()
    assert agent.last_result is None


@dataclass
class Point:
    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list)


class PointDict(TypedDict):
    x: int
    y: int


class PointStruct(msgspec.Struct):
    x: int
    inner: Point | None = None


class PointModel(pydantic.BaseModel):
    x: int
    y: int = pydantic.Field(default=0, ge=0)

    @pydantic.field_validator("x")
    @classmethod
    def x_is_even(cls, x: int) -> int:
        if x % 2:
            raise ValueError("x has to be even")
        return x


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("kind", "arguments", "value"),
    [
        (Point, {"x": 1, "labels": ["a"]}, Point(1, 0, ["a"])),
        (PointDict, {"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (PointStruct, {"x": 1, "inner": {"x": 2}}, PointStruct(1, Point(2))),
        (PointModel, {"x": 2}, PointModel(x=2, y=0)),
    ],
)
async def test_a_type_gives_an_instance(kind: Any, arguments: dict[str, Any], value: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(**arguments)))
    given = await agent.structured_output("where?", kind)
    assert given == value
    assert type(given) is type(value)


@pytest.mark.table
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[int], [1, 2, 3]),
        (list[Point], [Point(1), Point(2, 3)]),
        (int, 7),
        (str, "seven"),
        (bool, False),
        (Literal["yes", "no"], "no"),
        (Colour, Colour.BLUE),
        (int | None, None),
        (Point | None, Point(1)),
        (Annotated[list[str], msgspec.Meta(min_length=1)], ["a"]),
        (dict[str, int], {"a": 1}),
    ],
    ids=str,
)
async def test_other_types_than_objects_can_be_asked_for(kind: Any, value: Any) -> None:
    plain = msgspec.to_builtins(value)

    def give(request: ModelRequest) -> Part:
        """Puts the value where the tool's schema has a place for it."""
        tool = answer_tool(request)
        names = list(tool.parameters_schema.get("properties", {}))
        assert tool.parameters_schema["type"] == "object"
        return call(tool.name, **({names[0]: plain} if names else plain))

    agent = Agent(MODEL, stream_fn=scripted(give))
    given = await agent.structured_output("what?", kind)
    assert given == value
    assert type(given) is type(value)


async def test_a_schema_of_another_type_than_object_gives_its_value() -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/even"}, "$defs": {"even": {"multipleOf": 2}}}

    def give(*numbers: int) -> Any:
        return lambda request: call(answer_tool(request).name, **{only_property(request): list(numbers)})

    agent = Agent(MODEL, stream_fn=scripted(give(1, 2), give(2, 4)))
    assert await agent.structured_output("even numbers?", schema) == [2, 4]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {
                "type": "array",
                "items": {"$ref": "#/definitions/item"},
                "definitions": {"item": {"type": "object", "required": ["n"]}},
            },
            [{"n": 1}],
        ),
        ({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}, [1, [2, [3]]]),
    ],
    ids=["definitions", "itself"],
)
async def test_references_keep_their_meaning_in_schemas_of_other_types(
    schema: dict[str, Any], value: list[Any]
) -> None:
    def give(request: ModelRequest) -> Part:
        return call(answer_tool(request).name, **{only_property(request): value})

    agent = Agent(MODEL, stream_fn=scripted(give))
    assert await agent.structured_output("items?", schema) == value


def only_property(request: ModelRequest) -> str:
    (name,) = answer_tool(request).parameters_schema["properties"]
    return name


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


async def test_a_type_that_contains_itself_can_be_asked_for() -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(name="a", children=[{"name": "b"}])))
    assert await agent.structured_output("tree?", Tree) == Tree("a", [Tree("b")])


@pytest.mark.table
@pytest.mark.parametrize(
    ("target", "error"),
    [
        ({"type": "nonsense"}, ValueError),
        ({"type": "object", "properties": {"x": {"type": 5}}}, ValueError),
        ({"type": "object", "properties": {"x": {"$ref": "https://a.example/schema"}}}, ValueError),
        ({"type": "object", "default": object()}, ValueError),
        (object, TypeError),
        (asyncio.Lock, TypeError),
        (42, TypeError),
        ("Point", TypeError),
    ],
    ids=["no type", "a number as type", "elsewhere", "not JSON", "object", "a lock", "a number", "a name"],
)
async def test_a_shape_that_cannot_be_asked_for_is_refused_before_anything_happens(
    target: Any, error: type[Exception]
) -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(events.append)
    with pytest.raises(error):
        await agent.structured_output("?", target)
    assert events == []
    assert agent.messages == []
    assert (await agent.prompt("hi")).text == "ok"


async def test_a_wrong_number_of_retries_is_refused() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    with pytest.raises(ValueError, match="max_retries must be at least 0, not -1"):
        await agent.structured_output("?", POINT, max_retries=-1)
    with pytest.raises(TypeError, match="max_retries must be a whole number, not a str"):
        await agent.structured_output("?", POINT, max_retries="3")  # type: ignore[arg-type]
    assert not agent.is_running


# -- attempts ------------------------------------------------------------------------------------------------


async def test_an_invalid_answer_gets_the_errors_as_its_result_and_the_model_tries_again() -> None:
    stream = scripted(answer(x="one", y=2), answer(x=1, y=2))
    agent = Agent(MODEL, stream_fn=stream)
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}
    result = stream.requests[1].messages[-1]
    assert isinstance(result, ToolResultMessage)
    assert result.is_error
    assert "x" in extract_text(result.content)
    assert "one" in extract_text(result.content)


async def test_values_refused_only_by_the_type_itself_are_invalid_answers() -> None:
    stream = scripted(answer(x=1), answer(x=2))
    agent = Agent(MODEL, stream_fn=stream)
    assert await agent.structured_output("where?", PointModel) == PointModel(x=2)
    result = stream.requests[1].messages[-1]
    assert isinstance(result, ToolResultMessage)
    assert result.is_error
    assert "x has to be even" in extract_text(result.content)


async def test_an_answer_in_text_gets_a_reminder() -> None:
    events: list[AgentEvent] = []
    stream = scripted("It is at 1, 2.", answer(x=1, y=2))
    agent = Agent(MODEL, stream_fn=stream)
    agent.subscribe(events.append)
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}
    check_events(events)
    reminder = stream.requests[1].messages[-1]
    assert isinstance(reminder, UserMessage)
    assert answer_tool(stream.requests[1]).name in extract_text(reminder.content)


async def test_the_first_valid_answer_ends_the_run() -> None:
    stream = scripted(lambda request: answer(x=1, y=2)(request) + answer(x=3, y=4)(request), "never")
    agent = Agent(MODEL, stream_fn=stream)
    agent.follow_up("later")
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}
    assert len(stream.requests) == 1
    assert agent.has_queued_messages


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_after_the_last_attempt_the_failure_says_how_many_and_why(retries: int) -> None:
    stream = scripted(*[answer(x="one", y=2)] * 5)
    agent = Agent(MODEL, stream_fn=stream)
    with pytest.raises(StructuredOutputFailed) as failure:
        await agent.structured_output("where?", POINT, max_retries=retries)
    assert failure.value.attempts == retries + 1
    assert len(stream.requests) == retries + 1
    assert "one" in failure.value.last_error
    assert "one" in str(failure.value)
    assert not agent.is_running


async def test_three_retries_are_the_default() -> None:
    stream = scripted(*["no"] * 9)
    agent = Agent(MODEL, stream_fn=stream)
    with pytest.raises(StructuredOutputFailed) as failure:
        await agent.structured_output("where?", POINT)
    assert failure.value.attempts == len(stream.requests) == 4


async def test_text_and_invalid_answers_count_alike_and_the_last_one_is_told() -> None:
    stream = scripted(answer(x="one"), "It is at 1, 2.", answer(x=1, y="two"))
    agent = Agent(MODEL, stream_fn=stream)
    with pytest.raises(StructuredOutputFailed) as failure:
        await agent.structured_output("where?", POINT, max_retries=2)
    assert failure.value.attempts == 3
    assert "two" in failure.value.last_error
    assert "one" not in failure.value.last_error


async def test_a_failed_request_leaves_a_conversation_that_can_go_on() -> None:
    stream = scripted(answer(x="one"), "sorry", "no more tools")
    agent = Agent(MODEL, stream_fn=stream)
    with pytest.raises(StructuredOutputFailed):
        await agent.structured_output("where?", POINT, max_retries=1)
    assert (await agent.prompt("never mind")).text == "no more tools"
    check_conversation(stream.requests[-1].messages)
    assert stream.requests[-1].context.tools == ()


# -- the synthetic tool --------------------------------------------------------------------------------------


async def test_the_model_must_call_the_tool_and_later_runs_know_nothing_of_it() -> None:
    stream = scripted("before", answer(x=1, y=2), "after")
    options = StreamOptions(temperature=0.5)
    agent = Agent(MODEL, stream_fn=stream, stream_options=options)
    await agent.prompt("hi")
    await agent.structured_output("where?", POINT)
    await agent.prompt("bye")
    before, during, after = stream.requests
    assert during.options.tool_choice == answer_tool(during).name
    assert during.options.temperature == 0.5
    assert answer_tool(during).parameters_schema == POINT
    assert before.options == after.options == options
    assert before.context.tools == after.context.tools == ()
    assert agent.tools == ()


async def test_with_other_tools_the_model_must_call_one_of_them() -> None:
    stream = scripted(call("add", a=1, b=2), answer(x=3, y=0))
    agent = Agent(MODEL, stream_fn=stream, tools=[add])
    assert await agent.structured_output("1+2, 0?", POINT, max_retries=0) == {"x": 3, "y": 0}
    assert [request.options.tool_choice for request in stream.requests] == ["required", "required"]
    assert [len(request.context.tools) for request in stream.requests] == [2, 2]
    assert agent.tools == (add,)


async def test_the_synthetic_tool_makes_way_for_a_tool_of_its_name() -> None:
    first = scripted(answer(x=1, y=2), "never")
    await Agent(MODEL, stream_fn=first).structured_output("where?", POINT)
    taken = answer_tool(first.requests[0]).name

    @tool(name=taken)
    async def mine() -> str:
        """Has the name that the synthetic tool would like."""
        return "mine"

    def give(request: ModelRequest) -> Part:
        (other,) = [item for item in request.context.tools if item.name != taken]
        return call(other.name, x=1, y=2)

    stream = scripted(call(taken), give)
    agent = Agent(MODEL, stream_fn=stream, tools=[mine])
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}
    result = stream.requests[1].messages[-1]
    assert isinstance(result, ToolResultMessage)
    assert extract_text(result.content) == "mine"


@pytest.mark.parametrize("approve", [None, lambda request: False])
async def test_nobody_is_asked_to_approve_the_answer(approve: Any) -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted(answer(x=1, y=2)), approval_mode="enabled", approve=approve)
    agent.subscribe(events.append)
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}
    check_events(events)
    assert not any("Approval" in type(event).__name__ for event in events)


async def test_other_tools_are_still_asked_about() -> None:
    asked: list[str] = []
    stream = scripted(call("add", a=1, b=2), answer(x=3, y=0))
    agent = Agent(
        MODEL,
        stream_fn=stream,
        tools=[add],
        approval_mode="enabled",
        approve=lambda request: asked.append(request.name) is None,
    )
    await agent.structured_output("1+2, 0?", POINT)
    assert asked == ["add"]


async def test_an_answer_that_a_policy_skips_is_an_attempt() -> None:
    class Censor:
        def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
            return Skip("too far") if ctx.arguments.get("x", 0) > 10 else None

    stream = scripted(answer(x=99, y=0), answer(x=1, y=0))
    agent = Agent(MODEL, stream_fn=stream, policies=[Censor()])
    assert await agent.structured_output("where?", POINT, max_retries=1) == {"x": 1, "y": 0}


# -- how it ends ---------------------------------------------------------------------------------------------


async def test_an_error_of_the_run_is_raised() -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(x="one"), fail("auth", "bad key"), "ok"))
    with pytest.raises(AuthError, match="bad key"):
        await agent.structured_output("where?", POINT)
    assert agent.last_error == "bad key"
    assert (await agent.prompt("hi")).text == "ok"


async def test_an_abort_is_raised() -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
    with pytest.raises(Aborted):
        await agent.structured_output("where?", POINT)
    assert not agent.is_running


async def test_a_cancelled_task_is_cancelled() -> None:
    started = asyncio.Event()
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    agent.subscribe(lambda event: started.set() if isinstance(event, MessageUpdate) else None)
    task = asyncio.create_task(agent.structured_output("where?", POINT))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not agent.is_running


async def test_a_policy_that_stops_the_run_is_named_in_the_failure() -> None:
    class OneTurn:
        def post_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("one turn is enough")

    agent = Agent(MODEL, stream_fn=scripted("no", "no"), policies=[OneTurn()])
    with pytest.raises(PolicyStopped, match="one turn is enough"):
        await agent.structured_output("where?", POINT)


async def test_a_policy_that_stops_the_run_does_not_take_away_an_answer() -> None:
    class OneTurn:
        def post_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("one turn is enough")

    agent = Agent(MODEL, stream_fn=scripted(answer(x=1, y=2)), policies=[OneTurn()])
    assert await agent.structured_output("where?", POINT) == {"x": 1, "y": 2}


async def test_a_run_that_goes_on_refuses_it() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    async with agent.prompt_stream("hi"):
        with pytest.raises(AlreadyRunning):
            await agent.structured_output("where?", POINT)


async def test_the_conversation_that_led_to_the_answer_stays_in_the_history() -> None:
    stream = scripted(call("add", a=1, b=2), answer(x=3, y=0), text("after"))
    agent = Agent(MODEL, stream_fn=stream, tools=[add], messages=["earlier"])
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.structured_output(["a list", UserMessage("of prompts")], POINT)
    check_events(events)
    assert [type(message).__name__ for message in agent.messages] == [
        "UserMessage",
        "UserMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolResultMessage",
        "AssistantMessage",
        "ToolResultMessage",
    ]
    assert len([event for event in events if isinstance(event, ToolExecutionStart)]) == 2
    assert agent.last_error is None
    assert (await agent.prompt("and?")).stop_reason == StopReason.STOP
    check_conversation(stream.requests[-1].messages)


# -- without await -------------------------------------------------------------------------------------------


def test_the_sync_variant_gives_the_same() -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(x="one"), answer(x=1, y=2)))
    assert agent.structured_output_sync("where?", Point) == Point(1, 2)


async def test_the_sync_variant_works_inside_a_running_loop() -> None:
    agent = Agent(MODEL, stream_fn=scripted(answer(x=1, y=2)))
    assert agent.structured_output_sync("where?", POINT) == {"x": 1, "y": 2}


def test_the_sync_variant_raises_the_same() -> None:
    agent = Agent(MODEL, stream_fn=scripted("no", "no", fail("auth")))
    with pytest.raises(StructuredOutputFailed) as failure:
        agent.structured_output_sync("where?", POINT, 1)
    assert failure.value.attempts == 2
    with pytest.raises(AuthError):
        agent.structured_output_sync("where?", POINT)
    with pytest.raises(ValueError, match="schema"):
        agent.structured_output_sync("where?", {"type": "nonsense"})


# -- a run that a policy ended ---------------------------------------------------------------------------------


async def test_structured_output_that_a_policy_ended_says_which_one() -> None:
    agent = Agent(MODEL, stream_fn=scripted("no", "no", "no"), policies=[MaxTurns(1)])
    with pytest.raises(PolicyStopped) as caught:
        await agent.structured_output("x", {"type": "object"})
    assert caught.value.policy == "max_turns"
