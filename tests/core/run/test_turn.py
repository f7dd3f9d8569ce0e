"""Functions of the turn: system prompts and tools that are called once per turn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentTool,
    MissingDeps,
    PolicyContext,
    ToolContext,
    ToolResultMessage,
    agent_loop,
    extract_text,
    tool,
)
from swink_agent.core.run.turn import takes_context
from swink_agent.core.schemas.dependencies import admits_none
from swink_agent.testing import Call, ModelRequest, ScriptedStream, call, collect, fail, names, scripted

pytestmark = pytest.mark.fast


@tool
def one() -> str:
    return "1"


@tool
def two() -> str:
    return "2"


@tool
def needing(ctx: ToolContext[int]) -> str:
    return str(ctx.deps)


def tools_sent(model: ScriptedStream) -> list[list[str]]:
    return [[tool.name for tool in request.context.tools] for request in model.requests]


class Prompts:
    def __call__(self, ctx: PolicyContext) -> str:
        return f"turn {ctx.turn_index}"

    def method(self, ctx: PolicyContext) -> str:
        return f"turn {ctx.turn_index}"

    @staticmethod
    def alone() -> str:
        return "turn -"


def with_default(word: str = "turn -") -> str:
    return word


def with_more(ctx: PolicyContext, word: str = "turn") -> str:
    return f"{word} {ctx.turn_index}"


def with_keyword(ctx: PolicyContext, *, word: str = "turn") -> str:
    return f"{word} {ctx.turn_index}"


async def later(ctx: PolicyContext) -> str:
    return f"turn {ctx.turn_index}"


@pytest.mark.parametrize(
    ("function", "sent"),
    [
        (lambda: "turn -", ["turn -", "turn -"]),
        (with_default, ["turn -", "turn -"]),
        (Prompts.alone, ["turn -", "turn -"]),
        (functools.partial(with_more, word="turn"), ["turn 0", "turn 1"]),
        (lambda ctx: f"turn {ctx.turn_index}", ["turn 0", "turn 1"]),
        (with_more, ["turn 0", "turn 1"]),
        (with_keyword, ["turn 0", "turn 1"]),
        (later, ["turn 0", "turn 1"]),
        (Prompts(), ["turn 0", "turn 1"]),
        (Prompts().method, ["turn 0", "turn 1"]),
    ],
)
async def test_a_system_prompt_with_one_required_parameter_is_given_the_context(
    function: Callable[..., Any], sent: list[str]
) -> None:
    model = scripted(call("one"), "done")
    agent = Agent("any:model", stream_fn=model, tools=[one], system_prompt=function)
    await agent.prompt("go")
    assert [request.context.system_prompt for request in model.requests] == sent
    model = scripted(call("one"), "done")
    await agent_loop("go", AgentContext(function, (), [one]), agent.replaced(stream_fn=model).config).result()
    assert [request.context.system_prompt for request in model.requests] == sent


def test_a_function_that_wants_more_is_refused_when_the_agent_is_made() -> None:
    def two_wanted(ctx: PolicyContext, other: int) -> str:
        return ""

    def keyword_wanted(*, ctx: PolicyContext) -> str:
        return ""

    for wrong in (two_wanted, keyword_wanted):
        with pytest.raises(TypeError, match="system_prompt is a function"):
            Agent("any:model", system_prompt=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="system_prompt is a function"):
            agent_loop("go", AgentContext(wrong), Agent("any:model", stream_fn=scripted()).config)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="tools is a function"):
            Agent("any:model", tools=wrong)  # type: ignore[arg-type]
    assert not takes_context(dict, "system_prompt")  # a built-in without a signature is called without anything


async def test_tools_are_asked_for_once_a_turn_before_the_request() -> None:
    asked: list[tuple[int, Any]] = []

    def tools(ctx: PolicyContext[int]) -> list[AgentTool]:
        asked.append((ctx.turn_index, ctx.deps))
        return [one] if ctx.turn_index == 0 else [one, two] if ctx.turn_index == 1 else []

    model = scripted(call("one"), fail("network", "down"), [call("two"), call("one")], "done")
    agent = Agent("any:model", stream_fn=model, tools=tools, sleep=no_wait)
    assert agent.tools == ()
    result = await agent.prompt("go", deps=7)
    assert asked == [(0, 7), (1, 7), (2, 7)]
    assert tools_sent(model) == [["one"], ["one", "two"], ["one", "two"], []]
    assert [extract_text(m.content) for m in result.messages if isinstance(m, ToolResultMessage)] == ["1", "2", "1"]
    assert agent.tools == ()
    agent.reset()
    agent.tools = lambda: [two]
    assert (await agent.prompt("go", stream_options=None)).error is not None  # the script is over
    assert agent.tools == (two,)


async def no_wait(seconds: float) -> None:
    pass


async def test_tools_may_come_later_and_as_any_iterable() -> None:
    async def tools() -> Iterable[AgentTool]:
        return (item for item in (one, two))

    model = scripted("done")
    agent = Agent("any:model", stream_fn=model, tools=tools)
    await agent.prompt("go")
    assert tools_sent(model) == [["one", "two"]]
    assert agent.tools == (one, two)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: 1 / 0, "tools failed: ZeroDivisionError"),
        (lambda: None, "tools failed: TypeError: the tools of an agent must be a list, not None"),
        (lambda: one, "must be a list, not <tool one>"),
        (lambda: [one, one], "two tools are named 'one'"),
        (lambda: ["one"], "'one' is not a tool"),
    ],
)
async def test_a_function_that_fails_ends_the_run_with_an_error(given: Callable[..., Any], message: str) -> None:
    model = scripted("never")
    agent = Agent("any:model", stream_fn=model, tools=given)
    events = await collect(agent.prompt_stream("go"))
    assert names(events) == ["AgentStart", "TurnStart", "MessageStart", "MessageEnd", "TurnEnd", "AgentEnd"]
    assert message in str(agent.last_error)
    assert model.requests == []


async def test_a_turns_tool_that_needs_deps_ends_a_run_without() -> None:
    agent = Agent("any:model", stream_fn=scripted("never"), tools=lambda: [needing])
    result = await agent.prompt("go")
    assert isinstance(result.exception, MissingDeps)
    agent = Agent("any:model", stream_fn=scripted(call("needing"), "done"), tools=lambda: [needing])
    assert (await agent.prompt("go", deps=3)).error is None


@pytest.mark.parametrize("wrong", [one, AgentTool, 3])
def test_one_tool_is_not_a_function_of_the_turn(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a list, not .*: write tools=\[…\]"):
        Agent("any:model", tools=wrong)


async def test_a_value_is_taken_beside_the_tools_of_each_turn() -> None:
    @tool
    def final_answer() -> str:
        return "not the value"

    def tools(ctx: PolicyContext) -> list[AgentTool]:
        return [one] if ctx.turn_index == 0 else [final_answer]

    sent: list[list[str]] = []

    def reply(request: ModelRequest) -> Call:
        sent.append([tool.name for tool in request.context.tools])
        return [call("one"), call("final_answer"), call("final_answer_", name="Oslo")][len(sent) - 1]

    model = scripted(reply, reply, reply)
    agent = Agent("any:model", stream_fn=model, tools=tools)
    assert await agent.structured_output("go", {"type": "object"}) == {"name": "Oslo"}
    assert sent == [["one", "final_answer"], *[["final_answer", "final_answer_"]] * 2]
    assert {request.options.tool_choice for request in model.requests} == {"required"}
    assert agent.tools == (final_answer,)


def test_nothing_is_admitted_by_these_turns() -> None:
    from typing import Annotated, Literal, Optional, TypeVar

    free, bound = TypeVar("free"), TypeVar("bound", bound=int)
    admitting = (Any, object, None, type(None), int | None, Optional[int], Annotated[int | None, "x"], free)  # noqa: UP045
    assert all(map(admits_none, (*admitting, Literal[1, None], "Deps | None", "Optional[Deps]")))
    assert not any(map(admits_none, (int, list[int], int | str, Annotated[int, "x"], bound, Literal[1], "NoneSuch")))
