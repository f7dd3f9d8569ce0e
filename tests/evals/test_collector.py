"""`TrajectoryCollector` and `BudgetGuard`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentResult,
    AgentToolResult,
    AssistantMessage,
    Cost,
    ErrorKind,
    StopReason,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.evals import BudgetGuard, CaseBudget, Invocation, TrajectoryCollector
from swink_agent.testing import call, fail, scripted, stall, text


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool
async def break_down() -> str:
    """Fails."""
    raise RuntimeError("no")


def agent_with(collector: TrajectoryCollector | None, *replies: Any, **more: Any) -> Agent:
    stream = scripted(*replies, usage=Usage(total=100), cost=Cost(total=0.1))
    agent = Agent("test:m", stream_fn=stream, tools=[add, break_down], **more)
    if collector is not None:
        agent.subscribe(collector)
    return agent


async def test_an_invocation_has_everything_that_happened() -> None:
    times = iter(range(100))
    collector = TrajectoryCollector(clock=lambda: next(times))
    agent = agent_with(
        collector,
        call("add", a=1, b=2) + call("break_down"),
        call("nothing"),
        "3",
        "again",
    )
    result = await agent.prompt("1+2?")
    done = collector.invocation()
    assert done.messages == result.messages
    assert (done.turns, done.response, done.stop_reason, done.error) == (3, "3", StopReason.STOP, None)
    assert (done.usage.total, done.cost.total) == (300, pytest.approx(0.3))
    assert [(one.name, one.arguments, one.is_error, one.outcome, one.turn) for one in done.tool_calls] == [
        ("add", {"a": 1, "b": 2}, False, ToolOutcome.RAN, 1),
        ("break_down", {}, True, ToolOutcome.FAILED, 1),
        ("nothing", {}, True, ToolOutcome.UNKNOWN_TOOL, 2),
    ]
    assert done.tool_calls[0].result == "3"
    assert done.tool_calls[0].seconds > 0
    assert done.seconds > 0
    await agent.prompt("again?")
    assert collector.invocation().response == "again"
    assert collector.invocation().turns == 4
    assert collector.invocation().messages == tuple(agent.messages)


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "object", "required": ["a"]}, {"a": 1}), ({"type": "array"}, [1])],
)
async def test_a_structured_value_is_collected_as_the_caller_asked_for_it(schema: dict[str, Any], value: Any) -> None:
    collector = TrajectoryCollector()
    answer = call("final_answer", **(value if isinstance(value, dict) else {"value": value}))
    agent = agent_with(collector, answer, "bye")
    await agent.structured_output("give", schema)
    await agent.prompt("thanks")
    done = collector.invocation()
    assert (done.has_value, done.value, done.response) == (True, value, "bye")


async def test_usage_of_delegates_counts_and_their_calls_are_their_own() -> None:
    collector = TrajectoryCollector()
    agent = agent_with(collector, call("research", prompt="look"), text("3"))
    agent.tools = [agent_with(None, call("add", a=1, b=2), text("3")).as_tool("research", "Looks.")]
    await agent.prompt("go")
    invocation = collector.invocation()
    assert (invocation.usage.total, invocation.cost.total, invocation.turns) == (400, 0.4, 2)
    assert [one.name for one in invocation.tool_calls] == ["research"]


async def test_a_call_under_way_is_lost_and_one_that_waits_never_ran() -> None:
    hangs = asyncio.Event()

    @tool
    async def hang() -> str:
        """Does not end."""
        hangs.set()
        await asyncio.Event().wait()
        return ""

    collector = TrajectoryCollector()
    agent = Agent("test:m", stream_fn=scripted(call("hang") + call("hang")), tools=[hang], tool_execution="sequential")
    with agent.subscribe(collector):
        task = asyncio.create_task(agent.prompt("go"))
        await hangs.wait()
        outcomes = [one.outcome for one in collector.invocation().tool_calls]
        agent.abort()
        await task
    assert outcomes == [ToolOutcome.LOST, ToolOutcome.NEVER_RAN]
    done = collector.invocation()
    assert (done.stop_reason, done.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)


async def test_an_error_and_what_was_said_before_it_are_kept() -> None:
    collector = TrajectoryCollector()
    await agent_with(collector, fail("auth", "bad key")).prompt("hi")
    done = collector.invocation()
    assert (done.stop_reason, done.error, done.error_kind) == (StopReason.ERROR, "bad key", ErrorKind.AUTH)


async def test_a_run_that_has_not_ended_can_be_looked_at() -> None:
    collector = TrajectoryCollector()
    agent = agent_with(collector, call("add", a=1, b=2), stall())
    is_asked_again = asyncio.Event()
    agent.subscribe(lambda event: is_asked_again.set() if collector.invocation().turns == 2 else None)
    task = asyncio.create_task(agent.prompt("1+2?"))
    await is_asked_again.wait()
    assert [one.result for one in collector.invocation().tool_calls] == ["3"]
    assert [type(message) for message in collector.invocation().messages] == [
        *(UserMessage, AssistantMessage, ToolResultMessage)
    ]
    agent.abort()
    await task
    assert collector.invocation().stop_reason is StopReason.ABORTED
    assert collector.invocation().error is not None


# -- the guard -------------------------------------------------------------------------------------------------------


ADDS = call("add", a=1, b=2)


async def stopped(guard: BudgetGuard, *replies: Any) -> tuple[AgentResult, TrajectoryCollector]:
    collector = TrajectoryCollector()
    return await agent_with(collector, *replies, policies=[guard]).prompt("go"), collector


async def test_turns_that_are_used_up_end_the_run() -> None:
    result, collector = await stopped(BudgetGuard(turns=2), ADDS, ADDS, ADDS)
    assert result.stopped_by is not None
    assert (result.stopped_by.policy, result.stopped_by.reason) == ("budget_guard", "2 of 2 turns are used up")
    assert collector.invocation().turns == 2
    assert collector.invocation().stopped_by == result.stopped_by


@pytest.mark.parametrize("guard", [BudgetGuard(cost=0.15), BudgetGuard(tokens=150), BudgetGuard.of(CaseBudget(0.15))])
async def test_a_reply_that_is_too_much_is_not_acted_upon(guard: BudgetGuard) -> None:
    result, collector = await stopped(guard, ADDS, ADDS, ADDS)
    assert result.stopped_by is not None
    assert collector.invocation().turns == 2
    first, second = collector.invocation().tool_calls
    assert first.outcome is ToolOutcome.RAN
    assert second.outcome is not ToolOutcome.RAN


async def test_runs_within_budget_continue_and_are_counted_together() -> None:
    guard = BudgetGuard(cost=0.45, turns=4)
    agent = agent_with(None, ADDS, "ok", ADDS, "never", policies=[guard])
    assert (await agent.prompt("one")).stopped_by is None
    second = await agent.prompt("two")
    assert second.stopped_by is None
    third = await agent.prompt("three")
    assert third.stopped_by is not None
    assert third.stopped_by.reason == "4 of 4 turns are used up"


@pytest.mark.parametrize("guard", [BudgetGuard(cost=0.35), BudgetGuard(tokens=350)])
async def test_a_guard_counts_what_delegates_use_and_stops_them(guard: BudgetGuard) -> None:
    inner = agent_with(None, *[ADDS] * 10)
    agent = agent_with(None, call("research", prompt="look"), "never", policies=[guard])
    agent.tools = [inner.as_tool("research", "Looks.")]
    result = await agent.prompt("go")
    assert result.stopped_by is not None
    assert result.stopped_by.policy == "budget_guard"
    assert result.total_usage.total == 400  # one reply of the caller, and three of the delegate
    (answer,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert "research was stopped by the policy budget_guard" in extract_text(answer.content)


async def test_the_turns_of_delegates_do_not_count() -> None:
    agent = agent_with(None, call("research", prompt="look"), "ok", policies=[BudgetGuard(cost=0.65, turns=2)])
    agent.tools = [agent_with(None, ADDS, ADDS, ADDS, "3").as_tool("research", "Looks.")]
    result = await agent.prompt("go")
    assert (result.text, result.stopped_by, result.total_usage.total) == ("ok", None, 600)
    again = await agent.prompt("more")
    assert again.stopped_by is not None
    assert again.stopped_by.reason == "2 of 2 turns are used up"


async def test_a_guard_counts_the_attempts_that_failed_and_each_reply_once() -> None:
    busy = fail(ErrorKind.THROTTLED, "busy", usage=Usage(input=100))
    for limit, is_stopped in ((203, True), (204, False)):
        script = scripted(busy, busy, ADDS, "ok", usage=Usage(output=2))
        agent = Agent("test:m", stream_fn=script, tools=[add], sleep=_no_wait, policies=[BudgetGuard(tokens=limit)])
        result = await agent.prompt("go")
        assert (result.stopped_by is not None, result.usage.tokens) == (is_stopped, 204)


async def test_a_guard_counts_a_reply_whose_call_waited_once() -> None:
    @tool(external=True)
    def stamp() -> str:
        """Somebody does it."""
        raise AssertionError

    guard = BudgetGuard(tokens=200)
    script = scripted(call("stamp").with_id("s"), "ok", usage=Usage(output=100))
    agent = Agent("test:m", stream_fn=script, tools=[stamp], policies=[guard])
    await agent.prompt("go")
    result = await agent.resume({"s": AgentToolResult.text("done")})
    assert (result.text, result.stopped_by) == ("ok", None)


def test_a_guard_is_told_what_it_can_keep() -> None:
    with pytest.raises(ValueError, match="turns is -1"):
        BudgetGuard(turns=-1)


@pytest.mark.parametrize(
    ("guard", "usage", "cost"),
    [
        (BudgetGuard(cost=0.15), Usage(), Cost(total=0.25)),
        (BudgetGuard(cost=0.15), Usage(), Cost(output=0.25)),
        (BudgetGuard(tokens=150), Usage(cache_read=500), Cost()),
    ],
)
async def test_a_cost_without_tokens_and_cached_tokens_alone_are_counted(
    guard: BudgetGuard, usage: Usage, cost: Cost
) -> None:
    script = scripted(ADDS, "5", usage=usage, cost=cost)
    result = await Agent("test:model", stream_fn=script, tools=[add], policies=[guard]).prompt("go")
    assert result.stopped_by is not None
    assert len(script.requests) == 1


async def test_attempts_that_were_given_up_count_as_the_result_says() -> None:
    busy = fail(ErrorKind.THROTTLED, "busy", usage=Usage(input=100))
    agent = Agent("test:model", stream_fn=scripted(busy, text("ok"), usage=Usage(output=2)), sleep=_no_wait)
    collector = TrajectoryCollector()
    with agent.subscribe(collector):
        result = await agent.prompt("go")
    assert collector.invocation().usage == result.usage == Usage(input=100, output=2)


async def _no_wait(seconds: float) -> None:
    return None


def test_a_call_of_an_invocation_is_a_record() -> None:
    assert Invocation(tool_calls=[{"name": "look"}]).tool_calls[0].name == "look"  # type: ignore[list-item]
    with pytest.raises(msgspec.ValidationError):
        Invocation(tool_calls=[None])  # type: ignore[list-item]
