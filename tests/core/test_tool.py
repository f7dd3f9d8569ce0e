"""Tools: from a function to a tool, its arguments checked, its results of every kind."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import json
import pickle
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from swink_agent import (
    Agent,
    AgentTool,
    AgentToolResult,
    CancellationToken,
    Extension,
    Image,
    ModelSpec,
    StopReason,
    Text,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolResultMessage,
    UrlImage,
    extract_text,
    tool,
)
from swink_agent.core.schemas.validation import compile_schema
from swink_agent.core.tool import Toolbox
from swink_agent.core.waits import WorkerThreads
from swink_agent.testing import call, check_events, collect, scripted

MODEL = ModelSpec("test", "model")
PATIENCE = 5.0


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Order(msgspec.Struct):
    item: str
    count: int


class Address(pydantic.BaseModel):
    street: str
    number: int

    @pydantic.field_validator("street")
    @classmethod
    def has_letters(cls, value: str) -> str:
        if not any(letter.isalpha() for letter in value):
            raise ValueError("a street has letters")
        return value


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: what to double
    """
    return 2 * number


class Handmade:
    """A tool that owes nothing to the decorator."""

    name = "handmade"
    label = "Handmade"
    description = "Made by hand."
    requires_approval = False

    def __init__(self, schema: Any = None, name: str = "handmade") -> None:
        self.name = name
        self.schema = {"type": "object"} if schema is None else schema
        self.times_read = 0
        self.calls: list[dict[str, Any]] = []

    @property
    def parameters_schema(self) -> dict[str, Any]:
        self.times_read += 1
        return self.schema

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        self.calls.append(arguments)
        return AgentToolResult.text("done")


async def results_of(tools: list[AgentTool], *calls: Any) -> list[ToolResultMessage]:
    """The results of one batch of calls, through a whole run whose events are in order."""
    agent = Agent(MODEL, stream_fn=scripted(list(calls), "done"), tools=tools)
    stream = agent.prompt_stream("go")
    check_events(await collect(stream))
    result = await stream.result()
    assert (result.stop_reason, result.text) == (StopReason.STOP, "done")
    return [message for message in result.messages if isinstance(message, ToolResultMessage)]


async def result_of(item: AgentTool, **arguments: Any) -> ToolResultMessage:
    (result,) = await results_of([item], call(item.name, **arguments))
    return result


def text_of(result: ToolResultMessage | AgentToolResult) -> str:
    return extract_text(result.content)


# -- from a function -------------------------------------------------------------------------------------------


def test_a_function_becomes_a_tool_with_everything_that_a_tool_has() -> None:
    assert double.name == "double"
    assert isinstance(double.label, str)
    assert double.label
    assert double.description == "Doubles a number."
    assert double.requires_approval is False
    assert double.on_steer == "cancel"
    assert double.parameters_schema == {
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "what to double"}},
        "required": ["number"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("name", "kind"), [("", ValueError), ("two words", ValueError), ("a\tb", ValueError), (5, TypeError)]
)
def test_a_name_that_no_provider_takes_is_refused_at_once(name: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="name"):

        @tool(name=name)
        def anything() -> str:
            return ""


def test_arguments_of_the_decorator_win_over_the_function() -> None:
    @tool(name="twice", label="Twice", description="Two of it.", requires_approval=True, on_steer="finish")
    def anything(number: int) -> int:
        """Not this."""
        return number

    assert (anything.name, anything.label, anything.description) == ("twice", "Twice", "Two of it.")
    assert (anything.requires_approval, anything.on_steer) == (True, "finish")


def test_the_decorator_may_be_called_without_anything() -> None:
    @tool()
    def anything(number: int) -> int:
        return number

    assert anything.name == "anything"
    assert anything.description


def test_a_tool_can_still_be_called_as_the_function_it_was() -> None:
    assert double(4) == 8
    assert double(number=5) == 10


def test_a_method_becomes_a_tool_without_its_self() -> None:
    class Shelf:
        def put(self, book: str) -> str:
            """Puts a book on the shelf."""
            return f"{book} is on the shelf"

    put = tool(Shelf().put)
    assert list(put.parameters_schema["properties"]) == ["book"]


class Counter:
    """Tools that share an object."""

    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.closed: list[str] = []

    @tool
    def add(self, number: int) -> int:
        """Adds.

        Args:
            number: How much.
        """
        self.count += number
        return self.count

    @tool(name="add_later", requires_approval=True)
    async def later(self, number: int, ctx: ToolContext) -> str:
        return f"{ctx.call_id}{self.count + number}"

    @tool
    def merge(self, other: Counter | None = None) -> str:
        return type(self).__name__ if other is None else "both"

    @tool
    @classmethod
    def kind(cls, loud: bool = False) -> str:
        return cls.__name__.upper() if loud else cls.__name__

    @classmethod
    @tool
    def inner_kind(cls, loud: bool = False) -> str:
        return cls.__name__.upper() if loud else cls.__name__

    @tool
    @staticmethod
    def twice(number: int) -> int:
        return number * 2

    @staticmethod
    @tool
    def inner_twice(number: int) -> int:
        return number * 2

    @tool
    async def climb(self, steps: int) -> AsyncIterator[str]:
        try:
            for step in range(steps):
                yield f"step {step}"
        finally:
            self.closed.append("climb")

    kept = double


class LoudCounter(Counter):
    @tool
    def add(self, number: int) -> str:
        return f"{super().add(number)}!"


async def test_a_method_is_bound_to_the_object_that_it_is_taken_from() -> None:
    one, two = Counter(), Counter(10)
    assert text_of(await result_of(one.add, number=1)) == "1"
    assert text_of(await result_of(two.add, number=1)) == "11"
    assert (
        text_of(await result_of(one.later, number=1))
        == "tool call rejected: it needs approval, and the agent has no approve callback; give it one"
    )
    assert text_of(await one.later.execute({"number": 1}, ToolContext("id"))) == "id2"
    assert (one.count, two.count) == (1, 11)
    assert one.add(5) == 6
    assert one.add == one.add
    assert one.add != two.add
    one.add.parameters_schema["properties"].clear()
    assert (
        two.add.parameters_schema["properties"].keys() == one.add.parameters_schema["properties"].keys() == {"number"}
    )


def test_no_schema_holds_the_self_of_a_method() -> None:
    number = {"number": {"type": "integer"}}
    described = {"number": {"type": "integer", "description": "How much."}}
    assert Counter.add.parameters_schema["properties"] == Counter().add.parameters_schema["properties"] == described
    assert Counter().later.parameters_schema["properties"] == number
    assert Counter().later.name == "add_later"
    assert Counter().add.description == "Adds."
    assert list(inspect.signature(Counter().add).parameters) == ["number"]
    for item in (Counter.kind, Counter().kind, Counter.inner_kind, Counter().inner_kind):
        assert item.parameters_schema["properties"] == {"loud": {"type": "boolean", "default": False}}
    for item in (Counter.twice, Counter().twice, Counter.inner_twice, Counter().inner_twice):
        assert item.parameters_schema["properties"] == number
    assert Counter().kept is double


async def test_class_methods_static_methods_and_kept_tools_work_as_in_any_class() -> None:
    for owner in (Counter, Counter(), LoudCounter, LoudCounter()):
        name = (owner if isinstance(owner, type) else type(owner)).__name__
        assert text_of(await result_of(owner.kind, loud=True)) == name.upper()
        assert text_of(await result_of(owner.inner_kind)) == name
        assert owner.kind() == name
        assert text_of(await result_of(owner.twice, number=2)) == "4"
        assert text_of(await result_of(owner.inner_twice, number=2)) == "4"
        assert text_of(await result_of(owner.kept, number=2)) == "4"


async def test_a_subclass_overrides_and_inherits_tools() -> None:
    loud = LoudCounter(1)
    assert text_of(await result_of(loud.add, number=1)) == "2!"
    assert text_of(await loud.later.execute({"number": 1}, ToolContext())) == "3"


async def test_a_method_taken_from_the_class_says_what_it_lacks() -> None:
    result = await Counter.add.execute({"number": 1}, ToolContext())
    assert result.is_error
    assert "it is a method of Counter" in text_of(result)
    assert "tools=[Counter(…).add]" in text_of(result)
    with pytest.raises(TypeError, match=r"take it from an instance"):
        Agent(MODEL, tools=[Counter.add], stream_fn=scripted())
    assert Counter.add(Counter(1), 2) == 3


def test_a_method_that_no_schema_fits_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match=r"search: a tool's parameters need names"):

        class Broken:
            @tool
            def search(self, *words: str) -> str:
                return ""


async def test_a_methods_hints_may_name_its_own_class() -> None:
    @dataclass
    class Link:
        name: str

        @tool
        def after(self, other: Link | None = None) -> str:
            return "nothing" if other is None else f"{other.name} {self.name}"

    assert text_of(await result_of(Link("b").after, other={"name": "a"})) == "a b"
    assert text_of(await result_of(Link("b").after)) == "nothing"


def test_an_abstract_tool_is_abstract() -> None:
    class Base(ABC):
        @tool
        @abstractmethod
        def look(self) -> str: ...

    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]


class Pickled:
    value = 7

    @tool
    def look(self) -> int:
        return self.value


def test_a_bound_tool_is_pickled_with_its_object() -> None:
    again = pickle.loads(pickle.dumps(Pickled().look))
    assert again() == 7
    assert isinstance(again.__self__, Pickled)
    assert pickle.loads(pickle.dumps(Pickled.look)) is Pickled.look


# -- generators ----------------------------------------------------------------------------------------------------


@tool
async def steps(number: int) -> AsyncIterator[str]:
    """Reports each step."""
    for step in range(number):
        yield f"step {step}"


@tool
def plain_steps(number: int) -> Iterator[str]:
    """Reports each step."""
    for step in range(number):
        yield f"step {step}"


async def events_of(item: AgentTool, **arguments: Any) -> list[Any]:
    agent = Agent(MODEL, tools=[item], stream_fn=scripted(call(item.name, **arguments), "done"))
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    return [event for event in events if isinstance(event, (ToolExecutionUpdate, ToolExecutionEnd))]


@pytest.mark.parametrize("item", [steps, plain_steps, Counter().climb], ids=["async", "plain", "method"])
async def test_yielded_values_are_updates_and_the_last_one_is_the_result(item: Any) -> None:
    name = "steps" if "steps" in item.parameters_schema["properties"] else "number"
    events = await events_of(item, **{name: 3})
    assert [text_of(event.update) for event in events[:-1]] == ["step 0", "step 1", "step 2"]
    assert text_of(events[-1].result) == "step 2"
    assert not events[-1].is_error


@pytest.mark.parametrize("item", [steps, plain_steps])
async def test_a_generator_that_yields_nothing_has_an_empty_result(item: Any) -> None:
    assert await item.execute({"number": 0}, ToolContext()) == AgentToolResult()


async def test_a_plain_generator_may_return_its_result() -> None:
    @tool
    def count() -> Iterator[str]:
        yield "50 %"
        return {"found": 3}

    events = await events_of(count)
    assert [text_of(event.update) for event in events[:-1]] == ["50 %"]
    assert text_of(events[-1].result) == '{"found":3}'


async def test_a_generator_may_yield_anything_that_a_tool_returns() -> None:
    @tool
    async def mixed() -> AsyncIterator[Any]:
        yield {"percent": 50}
        yield AgentToolResult("half", details=1)
        yield AgentToolResult.error("it broke")

    *updates, end = await events_of(mixed)
    assert [text_of(event.update) for event in updates] == ['{"percent":50}', "half", "it broke"]
    assert end.is_error


async def test_an_update_is_there_before_the_generator_goes_on() -> None:
    seen: list[str] = []
    ctx = ToolContext(on_update=lambda update: seen.append(text_of(update)))

    @tool
    async def watched() -> AsyncIterator[str]:
        for step in range(3):
            yield str(step)
            assert seen[-1] == str(step)

    assert text_of(await watched.execute({}, ctx)) == "2"


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_an_exception_in_a_generator_is_an_error_result(kind: str) -> None:
    @tool
    async def broken() -> AsyncIterator[str]:
        yield "so far"
        raise ToolError("no further")

    @tool
    def broken_plainly() -> Iterator[str]:
        yield "so far"
        raise ToolError("no further")

    update, end = await events_of(broken if kind == "async" else broken_plainly)
    assert text_of(update.update) == "so far"
    assert (text_of(end.result), end.is_error) == ("no further", True)


@pytest.mark.parametrize("swallows", [False, True])
async def test_an_abort_closes_a_generator(swallows: bool) -> None:
    closed = asyncio.Event()

    @tool
    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "going"
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    if not swallows:
                        raise
        finally:
            closed.set()

    agent = Agent(MODEL, tools=[endless], stream_fn=scripted(call("endless")))
    agent.subscribe(lambda event: agent.abort() if isinstance(event, ToolExecutionUpdate) else None)
    result = await agent.prompt("go")
    assert result.stop_reason == StopReason.ABORTED
    assert closed.is_set()


async def test_a_plain_generator_is_closed_at_its_next_step_when_nobody_waits_for_it() -> None:
    closed, go_on = threading.Event(), threading.Event()

    @tool
    def endless() -> Iterator[str]:
        try:
            while True:
                yield "going"
                go_on.wait(PATIENCE)
        finally:
            closed.set()

    agent = Agent(MODEL, tools=[endless], stream_fn=scripted(call("endless")))
    agent.subscribe(lambda event: agent.abort() if isinstance(event, ToolExecutionUpdate) else None)
    await agent.prompt("go")
    go_on.set()
    assert await asyncio.to_thread(closed.wait, PATIENCE)


async def test_a_plain_function_may_return_a_generator() -> None:
    @tool
    def wrapped(number: int) -> AsyncIterator[str]:
        return steps(number)

    assert text_of(await result_of(wrapped, number=2)) == "step 1"


def test_steering_is_met_by_cancelling_or_finishing_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="finish"):
        tool(on_steer="ignore")(lambda: None)  # type: ignore[call-overload]


def test_a_tool_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(double)) is double


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_in_the_loop() -> None:
    threads: dict[str, int] = {}

    @tool
    def plain() -> str:
        threads["plain"] = threading.get_ident()
        return "ok"

    @tool
    async def asynchronous() -> str:
        threads["async"] = threading.get_ident()
        return "ok"

    results = await results_of([plain, asynchronous], call("plain"), call("asynchronous"))
    assert [text_of(result) for result in results] == ["ok", "ok"]
    assert threads["plain"] != threading.get_ident()
    assert threads["async"] == threading.get_ident()


async def test_plain_functions_of_one_batch_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3)

    @tool
    def meet() -> str:
        barrier.wait(PATIENCE)
        return "met"

    results = await results_of([meet], call("meet"), call("meet"), call("meet"))
    assert [text_of(result) for result in results] == ["met"] * 3


async def test_a_plain_function_that_blocks_does_not_hold_up_the_others() -> None:
    released = threading.Event()

    @tool
    def block() -> str:
        return "released" if released.wait(PATIENCE) else "stuck"

    @tool
    async def release() -> str:
        released.set()
        return "ok"

    results = await results_of([block, release], call("block"), call("release"))
    assert [text_of(result) for result in results] == ["released", "ok"]


async def test_a_plain_function_sees_the_context_variables_of_its_caller() -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    def who() -> str:
        return user.get()

    user.set("ada")
    assert text_of(await result_of(who)) == "ada"


async def test_a_plain_function_may_return_something_to_await() -> None:
    async def later() -> str:
        return "later"

    @tool
    def deferred() -> Awaitable[str]:
        return later()

    assert text_of(await result_of(deferred)) == "later"


async def test_any_object_with_the_right_shape_is_a_tool() -> None:
    handmade = Handmade({"type": "object", "properties": {"x": {"type": "integer"}}})
    assert text_of(await result_of(handmade, x=1)) == "done"
    assert handmade.calls == [{"x": 1}]


async def test_a_tool_may_change_its_arguments_without_changing_the_history() -> None:
    class Greedy(Handmade):
        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            arguments["list"].clear()
            return AgentToolResult.text("eaten")

    script = scripted(call("handmade", list=[1, 2]), "done")
    result = await Agent(MODEL, stream_fn=script, tools=[Greedy()]).prompt("go")
    assert result.messages[1].tool_calls[0].arguments == {"list": [1, 2]}  # type: ignore[union-attr]


# -- the context of a call -------------------------------------------------------------------------------------


def with_a_plain_context(text: str, ctx: ToolContext) -> str:
    return f"{text} {ctx.call_id}"


def with_a_context_first(context: ToolContext, text: str) -> str:
    return f"{text} {context.call_id}"


def with_an_optional_context(text: str, ctx: ToolContext | None = None) -> str:
    return f"{text} {ctx.call_id if ctx else None}"


def with_a_keyword_context(text: str, *, ctx: ToolContext) -> str:
    return f"{text} {ctx.call_id}"


def with_a_positional_context(ctx: ToolContext, /, text: str) -> str:
    return f"{text} {ctx.call_id}"


def with_a_positional_context_in_the_middle(text: str, ctx: ToolContext, suffix: str = "", /) -> str:
    return f"{text} {ctx.call_id}{suffix}"


async def with_a_context_in_the_loop(text: str, ctx: ToolContext) -> str:
    return f"{text} {ctx.call_id}"


@pytest.mark.table
@pytest.mark.parametrize(
    "function",
    [
        with_a_plain_context,
        with_a_context_first,
        with_an_optional_context,
        with_a_keyword_context,
        with_a_positional_context,
        with_a_positional_context_in_the_middle,
        with_a_context_in_the_loop,
    ],
)
async def test_the_context_is_filled_in_wherever_it_stands(function: Callable[..., Any]) -> None:
    item = tool(function)
    assert "text" in item.parameters_schema["properties"]
    assert not {"ctx", "context"} & set(item.parameters_schema["properties"])
    (result,) = await results_of([item], call(item.name, text="call").with_id("call_7"))
    assert text_of(result) == "call call_7"


async def test_a_tool_reads_and_writes_the_state_of_the_agent() -> None:
    @tool
    async def count(ctx: ToolContext) -> int:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return ctx.state["count"]

    agent = Agent(MODEL, stream_fn=scripted(call("count"), call("count"), "done"), tools=[count])
    await agent.prompt("go")
    assert agent.state["count"] == 2


async def test_updates_are_reported_before_the_end_from_the_loop_and_from_a_thread() -> None:
    @tool
    async def quick(ctx: ToolContext) -> str:
        ctx.update("one")
        ctx.update(AgentToolResult("two", {"done": 0.5}))
        return "three"

    @tool
    def threaded(ctx: ToolContext) -> str:
        ctx.update("one")
        ctx.update(AgentToolResult("two", {"done": 0.5}))
        return "three"

    for item in (quick, threaded):
        agent = Agent(MODEL, stream_fn=scripted(call(item.name), "done"), tools=[item])
        events = await collect(agent.prompt_stream("go"))
        check_events(events)
        updates = [event.update for event in events if isinstance(event, ToolExecutionUpdate)]
        assert updates == [AgentToolResult("one"), AgentToolResult("two", {"done": 0.5})]


def test_a_context_made_for_a_test_needs_nothing() -> None:
    ctx = ToolContext()
    ctx.update("nobody listens")
    assert (ctx.state, ctx.execution_root, ctx.cancel.is_cancelled) == ({}, None, False)


def test_the_token_of_a_call_is_cancelled_with_the_run_but_not_the_run_with_it() -> None:
    run = CancellationToken()
    first, second = ToolContext("1", run), ToolContext("2", run)
    assert first.cancel is first.cancel
    first.cancel.cancel()
    assert (first.cancel.is_cancelled, second.cancel.is_cancelled, run.is_cancelled) == (True, False, False)
    run.cancel()
    assert second.cancel.is_cancelled


@pytest.mark.slow
def test_a_tool_in_a_thread_and_the_loop_that_stops_it_hold_the_same_token() -> None:
    contexts = [ToolContext(str(number), CancellationToken()) for number in range(20_000)]
    seen: dict[int, list[CancellationToken]] = {}
    barrier = threading.Barrier(2)

    def look(number: int) -> None:
        barrier.wait(PATIENCE)
        seen[number] = [context.cancel for context in contexts]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=look, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(first is not second for first, second in zip(seen[0], seen[1], strict=True)) == 0


def giving(value: Any) -> AgentTool:
    """A tool that returns the value."""

    @tool
    async def give_it() -> Any:
        return value

    return give_it


# -- results ---------------------------------------------------------------------------------------------------

PICTURE = Image(UrlImage("u"))


def test_a_result_is_made_from_text_or_from_an_error() -> None:
    assert AgentToolResult.text("fine") == AgentToolResult([Text("fine")])
    assert AgentToolResult.error("bad") == AgentToolResult([Text("bad")], is_error=True)
    assert AgentToolResult("fine", {"x": 1}).details == {"x": 1}


async def test_text_and_blocks_are_passed_through() -> None:
    values: list[tuple[Any, tuple[Any, ...]]] = [
        ("text", (Text("text"),)),
        ("", (Text(""),)),
        (Text("a"), (Text("a"),)),
        (PICTURE, (PICTURE,)),
        (Extension("x", 1), (Extension("x", 1),)),
        ([Text("a"), PICTURE], (Text("a"), PICTURE)),
        ((Text("a"), Extension("x", 1)), (Text("a"), Extension("x", 1))),
    ]
    for value, content in values:
        result = await result_of(giving(value))
        assert (result.content, result.is_error, result.tool_name) == (content, False, "give_it")


async def test_a_result_is_passed_through_with_its_details_and_its_error() -> None:
    @tool
    async def give() -> AgentToolResult:
        return AgentToolResult([Text("a"), PICTURE], {"exit_code": 2}, is_error=True)

    result = await result_of(give)
    assert (result.content, result.details, result.is_error) == ((Text("a"), PICTURE), {"exit_code": 2}, True)


async def test_anything_else_becomes_json_text() -> None:
    values: list[tuple[Any, Any]] = [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ([1, "a", None], [1, "a", None]),
        ((1, 2), [1, 2]),
        ([], []),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}),
        ({7}, [7]),
        (Color.BLUE, "blue"),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Order("tea", 2), {"item": "tea", "count": 2}),
        (Address(street="Elm", number=3), {"street": "Elm", "number": 3}),
        ([Address(street="Elm", number=3)], [{"street": "Elm", "number": 3}]),
        (Path("/tmp/a"), "/tmp/a"),
    ]
    for value, expected in values:
        result = await result_of(giving(value))
        assert not result.is_error
        assert json.loads(text_of(result)) == expected


async def test_results_that_json_cannot_hold_are_errors_with_tool_and_cure() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), [1, object()], {(1, 2): 3}, iter(()), endless):
        result = await result_of(giving(value))
        assert result.is_error
        assert "give_it" in text_of(result)
        assert "return a string" in text_of(result)


async def test_a_tool_error_is_exactly_its_text() -> None:
    @tool
    def refuse() -> str:
        raise ToolError("the file is locked: close it first")

    @tool
    async def refuse_later() -> str:
        raise ToolError("the file is locked: close it first")

    for item in (refuse, refuse_later):
        result = await result_of(item)
        assert (text_of(result), result.is_error) == ("the file is locked: close it first", True)


async def test_any_other_exception_is_an_error_result_and_the_others_go_on() -> None:
    @tool
    def fail(number: int) -> str:
        raise errors[number]

    @tool
    async def fail_later(number: int) -> str:
        raise errors[number]

    errors = [KeyError("name"), ValueError(), OSError(28, "disk is full"), SystemExit(3), RecursionError("deep")]
    for number, error in enumerate(errors):
        first, second, third = await results_of(
            [fail, fail_later, double],
            call("fail", number=number),
            call("fail_later", number=number),
            call("double", number=number),
        )
        assert [first.is_error, second.is_error, third.is_error] == [True, True, False]
        assert text_of(first) == text_of(second)
        assert type(error).__name__ in text_of(first)
        assert str(error) in text_of(first)


async def test_an_exception_that_python_wraps_is_told_as_it_was_raised() -> None:
    @tool
    def plain() -> str:
        raise StopIteration("no line is left")

    @tool
    async def later() -> str:
        raise StopIteration("no line is left")

    @tool
    def plain_steps() -> Iterator[str]:
        yield "one"
        raise StopIteration("no line is left")

    @tool
    async def steps() -> AsyncIterator[str]:
        yield "one"
        raise StopAsyncIteration("no line is left")

    @tool
    async def own() -> str:
        raise RuntimeError("the queue is empty") from StopIteration()

    told = [text_of(await result_of(item)) for item in (plain, later, plain_steps, steps, own)]
    assert told == [
        *["StopIteration: no line is left"] * 3,
        "StopAsyncIteration: no line is left",
        "RuntimeError: the queue is empty",
    ]


# -- validation ------------------------------------------------------------------------------------------------


@dataclass
class Line:
    item: str
    count: int


async def test_invalid_arguments_name_each_field_and_the_tool_is_not_called() -> None:
    called = False

    @tool
    async def order(name: str, lines: list[Line], urgent: bool = False) -> str:
        nonlocal called
        called = True
        return "ordered"

    script = scripted(
        call("order", lines=[{"item": "tea", "count": 1}, {"item": 5, "count": "two"}], urgent="yes", extra=1), "done"
    )
    agent = Agent(MODEL, stream_fn=script, tools=[order])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.is_error
    for field in ("order", "name", "lines.1.item", "lines.1.count", "urgent", "extra"):
        assert field in text_of(end.result)
    assert not any(isinstance(event, ToolExecutionStart) for event in events)
    assert not called


async def test_a_wrong_field_inside_an_optional_object_is_named_too() -> None:
    @tool
    async def order(line: Line | None = None) -> str:
        return "ordered"

    text = text_of(await result_of(order, line={"item": "tea", "count": "two"}))
    assert "line.count" in text
    assert "integer" in text


async def test_however_many_fields_are_wrong_each_is_named() -> None:
    fields = [f"field_{number:02}" for number in range(40)]
    handmade = Handmade({"type": "object", "properties": {field: {"type": "integer"} for field in fields}})
    text = text_of(await result_of(handmade, **dict.fromkeys(fields, "text")))
    assert [field for field in fields if field not in text] == []
    assert handmade.calls == []


@pytest.mark.slow
async def test_a_list_with_thousands_of_wrong_items_does_not_make_an_endless_message() -> None:
    @tool
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    text = text_of(await result_of(add_up, numbers=["x"] * 20_000))
    assert len(text) < 20_000
    assert "numbers" in text
    assert "integer" in text


async def test_a_problem_with_a_huge_value_is_short_and_still_says_what_is_wrong() -> None:
    text = text_of(await result_of(double, number="x" * 100_000))
    assert len(text) < 2_000
    assert "number" in text
    assert "integer" in text


async def test_arguments_arrive_as_the_declared_types() -> None:
    @tool
    def show(
        color: Color, point: Point, order: Order, address: Address, path: Path, ratio: float, count: int, tags: set[str]
    ) -> str:
        return repr((color, point, order, address, path, ratio, count, tags))

    result = await result_of(
        show,
        color="blue",
        point={"x": 1},
        order={"item": "tea", "count": 2},
        address={"street": "Elm", "number": 3},
        path="/tmp/a",
        ratio=2,
        count=5.0,
        tags=["a"],
    )
    expected = (Color.BLUE, Point(1), Order("tea", 2), Address(street="Elm", number=3), Path("/tmp/a"), 2.0, 5, {"a"})
    assert text_of(result) == repr(expected)


async def test_checks_of_the_type_itself_give_an_error_result_with_the_field() -> None:
    called = False

    @tool
    def move(address: Address) -> str:
        nonlocal called
        called = True
        return "moved"

    result = await result_of(move, address={"street": "12", "number": 3})
    assert result.is_error
    for word in ("move", "street", "a street has letters"):
        assert word in text_of(result)
    assert not called


async def test_a_tool_without_parameters_takes_no_arguments() -> None:
    @tool
    async def ping() -> str:
        return "pong"

    assert text_of(await result_of(ping)) == "pong"
    result = await result_of(ping, loudly=True)
    assert result.is_error
    assert "loudly" in text_of(result)


def test_a_schema_is_compiled_once_in_the_program() -> None:
    schema = {"type": "object", "properties": {"only_here": {"type": "integer"}}}
    assert compile_schema(schema) is compile_schema(copy.deepcopy(schema))


async def test_a_validator_is_made_once_for_all_calls_of_a_tool() -> None:
    handmade = Handmade({"type": "object", "properties": {"x": {"type": "integer"}}})
    toolbox = Toolbox([handmade])
    assert toolbox.problems("handmade", {"x": 0}) is None
    read = handmade.times_read
    for number in range(20):
        assert toolbox.problems("handmade", {"x": number}) is None
        assert toolbox.problems("handmade", {"x": "text"}) is not None
    assert handmade.times_read == read


async def test_a_tool_with_an_invalid_schema_is_not_called_and_gives_an_error_result() -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "objekt"},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"x": {"pattern": "("}}},
        {"type": "object", "default": object()},
    ]
    for schema in schemas:
        handmade = Handmade(schema)
        result = await result_of(handmade, x="a")
        assert result.is_error
        assert "handmade" in text_of(result)
        assert handmade.calls == []


async def test_definitions_inside_a_schema_are_followed() -> None:
    handmade = Handmade(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/number"}},
            "$defs": {"number": {"type": "integer"}},
        }
    )
    assert not (await result_of(handmade, x=1)).is_error
    assert (await result_of(handmade, x="a")).is_error


async def test_a_schema_is_never_fetched_from_elsewhere(tmp_path: Path) -> None:
    local = tmp_path / "schema.json"
    local.write_text('{"type": "integer"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        remote = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for uri in (remote, local.as_uri()):
            handmade = Handmade({"type": "object", "properties": {"x": {"$ref": uri}}})
            result = await result_of(handmade, x=1)
            assert result.is_error
            assert uri in text_of(result)
            assert handmade.calls == []
        with pytest.raises(BlockingIOError):
            server.accept()


def test_two_tools_of_one_name_are_refused() -> None:
    twins = [Handmade(name="twin"), Handmade(name="other"), Handmade(name="twin")]
    with pytest.raises(ValueError, match="twin"):
        Toolbox(twins)
    with pytest.raises(ValueError, match="twin"):
        Agent(MODEL, stream_fn=scripted(), tools=twins)


def test_other_objects_than_tools_are_refused() -> None:
    others: list[Any] = [lambda: None, "double", None, {"name": "double"}]
    for item in others:
        with pytest.raises(TypeError, match="tool"):
            Toolbox([item])


def test_a_toolbox_is_a_mapping_in_the_order_given() -> None:
    first, second = Handmade(name="first"), Handmade(name="second")
    toolbox = Toolbox([first, second])
    assert list(toolbox) == ["first", "second"]
    assert toolbox["second"] is second
    assert toolbox.get("third") is None
    assert len(toolbox) == 2


# -- threads ---------------------------------------------------------------------------------------------------


async def test_threads_give_back_what_a_function_returns_or_raises() -> None:
    threads = WorkerThreads()
    try:
        assert await threads.run(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
    finally:
        threads.close()


async def test_calls_wait_their_turn_when_there_is_one_thread() -> None:
    threads = WorkerThreads(most=1)
    seen: list[tuple[int, int]] = []

    def note(number: int) -> None:
        seen.append((number, threading.get_ident()))

    try:
        await asyncio.gather(*[threads.run(lambda number=number: note(number)) for number in range(10)])
    finally:
        threads.close()
    assert [number for number, _ in seen] == list(range(10))
    assert len({thread for _, thread in seen}) == 1


async def test_there_are_never_more_threads_than_allowed() -> None:
    threads = WorkerThreads(most=2)
    lock = threading.Lock()
    running, most = 0, 0
    gate = threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(PATIENCE)
        with lock:
            running -= 1

    try:
        await asyncio.gather(*[threads.run(work) for _ in range(6)])
    finally:
        threads.close()
    assert most == 2


async def test_a_function_whose_result_nobody_waits_for_runs_to_its_end() -> None:
    threads = WorkerThreads()
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait(PATIENCE)
        ended.set()

    task = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(started.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    threads.close()
    release.set()
    assert ended.wait(PATIENCE)


def test_one_tool_in_place_of_a_list_is_told_so() -> None:
    @tool
    def add(a: int) -> int:
        """Adds."""
        return a

    with pytest.raises(TypeError, match=r"the tools of an agent must be a list, not <tool add>: write tools=\[…\]"):
        Agent("any:model", tools=add)  # type: ignore[arg-type]


class Adder:
    def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize("given", [3, "add", None.__class__.__mro__, partial(max, 1), Adder()])
def test_other_objects_than_functions_are_refused_by_their_type(given: Any) -> None:
    with pytest.raises(TypeError, match=f"an? {type(given).__name__} cannot be made a tool"):
        tool(given)


def test_a_tool_without_a_docstring_is_described_by_its_name_in_words() -> None:
    @tool
    def get_the_weather(city: str) -> str:
        return city

    assert get_the_weather.description == get_the_weather.label == "Get the weather"


@pytest.mark.parametrize("content", ["cut \udcff", (Text("cut \udcff"),), (Text("cut \udcff"), Text("cut"))])
async def test_half_of_a_character_in_a_result_is_replaced(content: Any) -> None:
    @tool
    def read() -> AgentToolResult:
        return AgentToolResult(content)

    agent = Agent("any:model", tools=[read], stream_fn=scripted(call("read"), "ok"))
    await agent.prompt("read")
    assert agent.messages[2].content[0] == Text("cut ?")
