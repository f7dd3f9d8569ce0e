"""MaxTurns: so many replies and no more."""

from __future__ import annotations

import pytest

from swink_agent import Agent, PolicyStop, tool
from swink_agent.policies import MaxTurns
from swink_agent.testing import call, scripted, text


@tool
async def look() -> str:
    """Looks."""
    return "seen"


async def test_a_run_ends_when_it_has_had_its_turns() -> None:
    model = scripted(*[call("look")] * 5)
    result = await Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(3)]).prompt("go")
    assert len(model.requests) == 3
    assert result.stopped_by == PolicyStop("max_turns", "the run has had its 3 turns; prompt again to go on")
    assert result.error is None


async def test_a_single_turn_is_told_as_one() -> None:
    model = scripted(*[call("look")] * 2)
    result = await Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(1)]).prompt("go")
    assert result.stopped_by == PolicyStop("max_turns", "the run has had its one turn; prompt again to go on")


async def test_a_run_that_needs_exactly_its_turns_is_not_stopped() -> None:
    model = scripted(call("look"), text("done"))
    result = await Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(2)]).prompt("go")
    assert (result.text, result.stopped_by) == ("done", None)


async def test_each_run_counts_for_itself() -> None:
    model = scripted(call("look"), text("one"), call("look"), text("two"))
    agent = Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(2)])
    assert [(await agent.prompt("go")).text, (await agent.prompt("go")).text] == ["one", "two"]


def test_no_turns_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="give at least 1"):
        MaxTurns(0)
