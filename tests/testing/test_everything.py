"""Models of a function, and the one that calls every tool."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest

from swink_agent import Agent, AssistantMessage, tool
from swink_agent.testing import ModelRequest, call, calls_everything, scripted, text


async def test_one_function_alone_is_a_model_that_any_number_of_runs_may_use() -> None:
    def answer(request: ModelRequest) -> Any:
        assert (request.model.model_id, [each.name for each in request.tools]) == ("m", ["add"])
        return call("add", a=request.turn, b=1) if request.turn < 2 else text(f"after {request.turn} replies")

    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    model = scripted(answer)
    agents = [Agent("test:m", stream_fn=model, tools=[add]) for _ in range(3)]
    results = await asyncio.gather(*[agent.prompt("go") for agent in agents])
    assert [result.text for result in results] == ["after 2 replies"] * 3
    assert (model.requests, model.is_finished) == ([], False)
    assert repr(model) == "<scripted model answer>"


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(ge=3, lt=5)]
    tags: Annotated[list[Literal["a", "b"]], msgspec.Meta(min_length=2)]
    note: Annotated[str, msgspec.Meta(min_length=4, max_length=6)]
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5


async def test_every_tool_is_called_once_with_arguments_that_fit() -> None:
    seen: list[tuple[str, Any]] = []

    @tool
    def place(point: Point, when: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d$")]) -> str:
        """Places."""
        seen.append((type(point).__name__, when))
        return "placed"

    @tool
    def choose(one: Literal["left", "right"], others: dict[str, int], flag: bool, maybe: int | None) -> str:
        """Chooses."""
        seen.append(("choose", one))
        return "chosen"

    @tool
    def plain() -> str:
        """Does nothing."""
        seen.append(("plain", None))
        return "ok"

    agent = Agent("test:m", stream_fn=calls_everything(), tools=[place, choose, plain])
    result = await agent.prompt("go")
    assert result.text == "called place, choose, plain"
    assert sorted(seen) == [("Point", "2026-01-01"), ("choose", "left"), ("plain", None)]
    assert sum(isinstance(message, AssistantMessage) for message in result.messages) == 2
    again = await agent.prompt("again")
    assert (again.error, len(seen)) == (None, 6)


async def test_a_value_is_given_after_all_other_tools() -> None:
    @tool
    def look() -> str:
        """Looks."""
        return "seen"

    value = await Agent("test:m", stream_fn=calls_everything(), tools=[look]).structured_output("go", Point)
    assert isinstance(value, Point)
    assert 3 <= value.x < 5


async def test_a_tool_that_no_arguments_are_found_for_is_named() -> None:
    @tool
    def odd(code: Annotated[str, msgspec.Meta(pattern="^q{31}z$")]) -> str:
        """Odd."""
        return code

    result = await Agent("test:m", stream_fn=calls_everything(), tools=[odd]).prompt("go")
    assert "finds no arguments for odd" in str(result.error)


async def test_an_agent_without_tools_gets_an_answer() -> None:
    assert (await Agent("test:m", stream_fn=calls_everything()).prompt("go")).text == "there are no tools"


@pytest.mark.parametrize("served", [None, "another-model"])
async def test_a_script_may_name_the_model_that_answered(served: str | None) -> None:
    result = await Agent("test:m", stream_fn=scripted("hi", served_model=served)).prompt("go")
    (*_, reply) = result.messages
    assert isinstance(reply, AssistantMessage)
    assert reply.served_model == served
