"""LoopDetection notices repeated calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from swink_agent import (
    Agent,
    Inject,
    MessagesInjected,
    PolicyContext,
    PolicyStop,
    ToolResultMessage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.policies import LoopDetection
from swink_agent.testing import call, collect, scripted, text


@tool
async def look(where: str = "", far: bool = False) -> str:
    """Always the same."""
    return f"nothing in {where}"


def counting() -> Any:
    seen = 0

    @tool
    async def poll() -> str:
        """Something else each time."""
        nonlocal seen
        seen += 1
        return f"{seen} %"

    return poll


async def run(policy: LoopDetection, *replies: Any, **options: Any) -> tuple[Any, list[str]]:
    """The result of the run, and the texts that were injected."""
    agent = Agent("test:model", stream_fn=scripted(*replies), tools=[look, counting()], policies=[policy], **options)
    stream = agent.prompt_stream("go")
    events = await collect(stream)
    told = [
        extract_text(message.content)
        for event in events
        if isinstance(event, MessagesInjected)
        for message in event.messages
        if isinstance(message, UserMessage)
    ]
    return await stream.result(), told


A, B, C = call("look", where="a"), call("look", where="b"), call("look", where="c")


async def test_the_model_is_told_once_then_the_run_ends() -> None:
    result, told = await run(LoopDetection(), *[A] * 9)
    assert len(told) == 1
    assert told[0].startswith("You have made the same calls (look) 3 times in a row and got the same results each time")
    assert result.stopped_by == PolicyStop(
        "loop_detection", "the model made the same calls (look) 6 times in a row, with the same results"
    )


async def test_a_model_that_listens_goes_on() -> None:
    result, told = await run(LoopDetection(), A, A, A, B, text("done"))
    assert (result.text, result.stopped_by, len(told)) == ("done", None, 1)


@pytest.mark.parametrize("cycle", [[A, B], [A, B, C], [A + B], [A + A]], ids=["AB", "ABC", "A+B", "A+A"])
async def test_a_cycle_of_calls_is_a_circle_too(cycle: list[Any]) -> None:
    result, told = await run(LoopDetection(), *cycle * 7)
    assert len(told) == 1
    assert result.stopped_by is not None


async def test_the_order_of_arguments_makes_no_difference() -> None:
    one, two = call("look", where="a", far=True), call("look", far=True, where="a")
    result, _ = await run(LoopDetection(action="stop"), one, two, one, text("never"))
    assert result.stopped_by is not None


@pytest.mark.parametrize("replies", [[A, B, C, A], [A, A, B, A, A, B], [A, B, A, C, A, B]])
async def test_work_that_makes_progress_is_not_a_loop(replies: list[Any]) -> None:
    result, told = await run(LoopDetection(), *replies, text("done"))
    assert (result.text, told) == ("done", [])


async def test_the_same_call_with_other_results_is_not_a_loop() -> None:
    result, told = await run(LoopDetection(), *[call("poll")] * 8, text("done"))
    assert (result.text, told) == ("done", [])


async def test_results_can_be_left_out_of_account() -> None:
    result, _ = await run(LoopDetection(action="stop", compare_results=False), *[call("poll")] * 8)
    assert result.stopped_by is not None


async def test_a_circle_that_closes_inside_one_reply_is_seen() -> None:
    result, told = await run(LoopDetection(), A + A + A, text("done"))
    assert (result.text, len(told)) == ("done", 1)


async def test_the_next_round_can_be_refused() -> None:
    result, told = await run(LoopDetection(action="skip"), *[A] * 9)
    results = [extract_text(m.content) for m in result.messages if isinstance(m, ToolResultMessage)]
    assert results[:3] == ["nothing in a"] * 3
    assert results[3] == (
        "tool call skipped: this call was made before 3 times in a row, with the same result; do something else, or "
        "say what is missing"
    )
    assert len(results) == 6
    assert told == []
    assert result.stopped_by is not None


async def test_only_the_call_that_closes_the_circle_is_refused() -> None:
    result, _ = await run(LoopDetection(action="skip"), A, B, A, B, A, B, C + A, text("done"))
    results = [extract_text(m.content) for m in result.messages if isinstance(m, ToolResultMessage)]
    assert results[-2:] == ["nothing in c", "nothing in a"]
    assert result.text == "done"


async def test_an_earlier_run_does_not_count() -> None:
    agent = Agent(
        "test:model",
        stream_fn=scripted(A, A, text("one"), A, A, text("two")),
        tools=[look],
        policies=[LoopDetection(3, action="stop")],
    )
    assert [(await agent.prompt("go")).text, (await agent.prompt("again")).text] == ["one", "two"]


async def test_runs_at_the_same_time_do_not_count_for_each_other() -> None:
    policy = LoopDetection(2, action="stop")

    async def one_call() -> str:
        agent = Agent("test:model", stream_fn=scripted(A, text("done")), tools=[look], policies=[policy])
        return (await agent.prompt("go")).text

    assert await asyncio.gather(*[one_call() for _ in range(5)]) == ["done"] * 5


async def test_a_policy_that_rewrites_results_hides_no_difference() -> None:
    class Rewrites:
        def post_turn(self, ctx: PolicyContext) -> Inject:
            return Inject([structs.replace(result, content="[removed]") for result in ctx.tool_results])

    agent = Agent(
        "test:model",
        stream_fn=scripted(*[call("poll")] * 8, text("done")),
        tools=[counting()],
        policies=[Rewrites(), LoopDetection(action="stop")],
    )
    assert (await agent.prompt("go")).text == "done"


async def test_it_forgets_a_run_that_is_over() -> None:
    policy = LoopDetection(3)
    agent = Agent("test:model", stream_fn=scripted(A, B, text("one"), A, "error"), tools=[look], policies=[policy])
    await agent.prompt("go")
    await agent.prompt("again")
    assert len(policy._calls) == 0


async def test_hundreds_of_turns_cost_little() -> None:
    replies = [call("look", where=str(number % 50)) for number in range(400)]
    result, told = await run(LoopDetection(window=30), *replies, text("done"), max_turns=None)
    assert (result.text, told) == ("done", [])
