"""`max_turns`: how often a run may ask a model."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent import Agent, AgentContext, AgentLoopConfig, Defer, ModelSpec, PolicyStop, agent_loop, tool
from swink_agent.testing import call, check_events, collect, names, scripted

pytestmark = pytest.mark.fast
MODEL = ModelSpec("test", "model")


@tool
def look() -> str:
    """Looks."""
    return "seen"


def looking(times: int, **options: Any) -> tuple[Agent, Any]:
    model = scripted(*[call("look")] * times, "done")
    return Agent(MODEL, stream_fn=model, tools=[look], **options), model


async def test_a_run_asks_a_hundred_times_unless_it_is_told_otherwise() -> None:
    agent, model = looking(150)
    result = await agent.prompt("go")
    assert result.stopped_by is not None
    assert (result.stopped_by.policy, len(model.requests)) == ("max_turns", 100)
    assert "max_turns" in result.stopped_by.reason
    assert (await looking(150)[0].prompt("go", max_turns=None)).text == "done"
    assert (await looking(150, max_turns=None)[0].prompt("go")).text == "done"


async def test_the_limit_of_one_run_counts_before_that_of_the_agent() -> None:
    agent, model = looking(9, max_turns=3)
    events = await collect(agent.prompt_stream("go", max_turns=2))
    check_events(events)
    assert len(model.requests) == 2
    assert names(events)[-2:] == ["TurnEnd", "AgentEnd"]
    assert names(events).count("TurnStart") == 2
    assert (await agent.continue_loop()).stopped_by is not None
    assert len(model.requests) == 5


async def test_a_run_that_uses_all_of_its_turns_is_not_stopped() -> None:
    agent, _ = looking(2, max_turns=3)
    assert (await agent.prompt("go")).stopped_by is None


async def test_the_turn_of_an_answered_call_asks_nothing_and_does_not_count() -> None:
    agent, model = looking(1, max_turns=1, approve=lambda request: Defer(), approval_mode="enabled")
    waiting = await agent.prompt("go")
    result = await agent.resume({waiting.pending[0].call_id: True})
    assert (result.text, result.stopped_by, len(model.requests)) == ("done", None, 2)


async def test_each_delegate_counts_its_own_turns() -> None:
    inner, model = looking(9, max_turns=2)
    agent = Agent(
        MODEL,
        stream_fn=scripted(*[call("inner", prompt="go")] * 2, "done"),
        tools=[inner.as_tool("inner", "Looks.")],
        max_turns=3,
    )
    result = await agent.prompt("go")
    assert (result.text, result.stopped_by, len(model.requests)) == ("done", None, 4)


async def test_messages_that_were_steered_at_the_limit_are_not_lost() -> None:
    agent, _ = looking(3, max_turns=1)
    agent.follow_up("and then?")
    stream = agent.prompt_stream("go")
    agent.steer("stop that")
    await stream.result()
    assert agent.has_queued_messages


async def test_the_loop_itself_has_no_limit_unless_it_is_given_one() -> None:
    assert AgentLoopConfig(model=MODEL, stream_fn=scripted("x")).max_turns is None
    config = AgentLoopConfig(model=MODEL, stream_fn=scripted(*[call("look")] * 3), max_turns=1)
    result = await agent_loop("go", AgentContext(tools=[look]), config).result()
    assert isinstance(result.stopped_by, PolicyStop)


@pytest.mark.parametrize(("wrong", "error"), [(0, ValueError), (-3, ValueError), ("9", TypeError), (True, TypeError)])
@pytest.mark.table
async def test_a_wrong_limit_is_refused_at_once(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_turns"):
        looking(1, max_turns=wrong)
    agent, model = looking(1)
    with pytest.raises(error, match="max_turns"):
        await agent.prompt("go", max_turns=wrong)
    assert not model.requests
