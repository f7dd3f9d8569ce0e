"""MaxTurns limits the replies of a run."""

from __future__ import annotations

import pytest

from swink_agent import Agent, PolicyStop, tool
from swink_agent.policies import MaxTurns
from swink_agent.testing import call, scripted, text


@tool
async def look() -> str:
    """Looks."""
    return "seen"


@pytest.mark.parametrize(("turns", "had"), [(3, "its 3 turns"), (1, "its one turn")])
async def test_a_run_ends_when_it_has_had_its_turns(turns: int, had: str) -> None:
    model = scripted(*[call("look")] * 5)
    result = await Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(turns)]).prompt("go")
    assert len(model.requests) == turns
    assert result.stopped_by == PolicyStop("max_turns", f"the run has had {had}; prompt again to continue")
    assert result.error is None


async def test_a_run_that_needs_exactly_its_turns_is_not_stopped() -> None:
    model = scripted(call("look"), text("done"))
    result = await Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(2)]).prompt("go")
    assert (result.text, result.stopped_by) == ("done", None)


async def test_each_run_counts_for_itself() -> None:
    model = scripted(call("look"), text("one"), call("look"), text("two"))
    agent = Agent("test:model", stream_fn=model, tools=[look], policies=[MaxTurns(2)])
    assert [(await agent.prompt("go")).text, (await agent.prompt("go")).text] == ["one", "two"]
