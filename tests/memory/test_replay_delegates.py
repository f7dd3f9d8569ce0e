"""Sessions of agents with delegates replay: the recorded answer replaces the delegate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Approve, Defer, tool
from swink_agent.memory import JsonlSessionStore, replay
from swink_agent.testing import call, scripted, text


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Pays money back."""
    return f"refunded {order}"


def desk(model: Any) -> Any:
    return Agent("test:desk", stream_fn=model, tools=[refund]).as_tool("desk", "Does it.")


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_session_with_a_delegate_replays(tmp_path: Path, is_deferred: bool) -> None:
    store = JsonlSessionStore(tmp_path)
    inner = scripted(call("refund", order=1).with_id("r"), text("It is paid."))
    agent = Agent(
        "test:m",
        stream_fn=scripted(call("desk", prompt="Pay order 1."), text("Done.")),
        tools=[desk(inner)],
        approve=lambda request: Defer() if is_deferred else Approve(),
    )
    with store.create() as session:
        session.attach(agent)
        result = await agent.prompt("go")
        if is_deferred:
            result = await agent.resume({"call_1/r": True})
    assert result.text == "Done."
    asked = scripted()

    def again(stream_fn: Any, wrap_tool: Any) -> Agent:
        return Agent("test:m", stream_fn=stream_fn, tools=[wrap_tool(desk(asked))], approve=lambda request: Approve())

    report = await replay(store.load(session.id), again)
    assert report.divergence is None
    assert asked.requests == []
