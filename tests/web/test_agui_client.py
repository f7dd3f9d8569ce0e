"""The protocol's own client drives `/agui`. `.ci/nightly` installs it and names its folder."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from swink_agent import Agent, ToolContext, tool
from swink_agent.approvals import Approvals
from swink_agent.core.types import extract_text
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text
from swink_agent.web import AgentContext, app

CLIENT = os.environ.get("SWINK_AGUI_CLIENT")
"""A folder with `node_modules`, which has `@ag-ui/client`."""
pytest.importorskip("ag_ui")
pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(CLIENT is None, reason="SWINK_AGUI_CLIENT names no folder with the protocol's client"),
]


@tool
def count(ctx: ToolContext) -> str:
    """Counts."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return "counted"


@tool(requires_approval=True)
def pay() -> str:
    """Pays."""
    return "paid"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the front end's program, which finds the client beside it."""
    place = tmp_path / "client"
    place.mkdir()
    (place / "node_modules").symlink_to(Path(CLIENT or "", "node_modules").absolute())
    (place / "agui_client.mjs").write_bytes(Path(__file__).with_name("agui_client.mjs").read_bytes())
    return place


async def test_the_protocols_client_has_a_whole_conversation(place: Path, tmp_path: Path) -> None:
    calls = [[call("count"), text("Counted.")], [call("pay"), text("Paid.")], [call("where_am_i"), text("In Ulm.")]]
    stream = scripted(*[reply for pair in calls for reply in pair])

    def make_agent(context: AgentContext) -> Agent:
        ask = Approvals(context.ask, mode="ask")
        return Agent("anthropic:claude-sonnet-4-6", stream_fn=stream, tools=[count, pay], approve=ask)

    store = JsonlSessionStore(tmp_path / "sessions")
    async with TestServer(app(make_agent, authorize=lambda request, action, session: "ada", store=store)) as server:
        address = str(server.make_url("/agui"))
        process = await asyncio.create_subprocess_exec("node", "agui_client.mjs", address, stdout=-1, cwd=place)
        output, _ = await asyncio.wait_for(process.communicate(), 60)
    seen: dict[str, Any] = json.loads(output)
    sent: Any = stream.requests[-1].context
    assert [extract_text(message.content) for message in sent.messages] == [
        *("Delete a.txt", "Done.", "count", "", "counted", "Counted."),
        *("pay", "", "paid", "Paid.", "where am I?", "", "Ulm"),
    ]
    assert "the page: /cart" in str(stream.requests[0].context.system_prompt)
    assert seen["state"] == {"n": 1}
    assert {"STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT", "TOOL_CALL_ARGS"} <= set(seen["events"])
    assert (len(seen["interrupts"]), len(seen["pending"])) == (1, 1)
    said = [
        message["content"] for message in seen["messages"] if message["role"] == "assistant" and message.get("content")
    ]
    assert said == ["Done.", "Counted.", "Paid.", "In Ulm."]
