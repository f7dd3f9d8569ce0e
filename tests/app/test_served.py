"""The standard agent as a tool for clients of `swink mcp serve`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.agent.open_agent import OpenAgent
from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.agent.served import ServedAgent
from swink_agent.app.runs.sessions import open_store
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import ToolContext
from swink_agent.core.types import UserMessage
from swink_agent.testing import FakeProvider


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opening:
    """The standard agent in the folder `work`, with data and settings of its own."""
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test-0123456789")
    (tmp_path / "work").mkdir()
    return Opening(OpeningOptions(flags={"sandbox": "off", "model": "anthropic"}, cwd=str(tmp_path / "work")))


async def test_a_client_continues_sessions_of_its_folder_by_their_whole_ids_only(
    opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, context = ServedAgent(opening), ToolContext("call_1", CancellationToken())
    async with FakeProvider("anthropic", ["first", "second", "third"]) as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", provider.key)
        begun = await agent.execute({"prompt": "go"}, context)
        own: str = begun.details["structured"]["session"]
        again = await agent.execute({"prompt": "go on", "session": own}, context)
        assert again.details["structured"] == {"text": "second", "session": own, "stop_reason": "stop"}
        other = await ServedAgent(opening).execute({"prompt": "go on", "session": own}, context)
        assert other.details["structured"]["text"] == "third"
        store = open_store(opening.settings)
        foreign: list[str] = []
        for folder in ("elsewhere", "work/inner", ""):
            with store.create(tmp_path / folder) as session:
                foreign.append(session.id)
        lost = store.folder / "20200101-000000-aaaaaa.jsonl"
        lost.write_text("not a session\n")
        for wanted in ("", own[:-1], own[:8], f"{own}0", f"../sessions/{own}", *foreign, foreign[0][:20], lost.stem):
            with pytest.raises(ToolError) as refused:
                await agent.execute({"prompt": "go on", "session": wanted}, context)
            assert str(refused.value) == "there is no such session"
        assert len(provider.bodies) == 3


async def test_a_call_that_is_cancelled_while_its_session_opens_lets_it_go(
    opening: Opening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(opening.settings)
    with store.create(tmp_path / "work") as session:
        session_id = session.id
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    open_agent, close = OpenAgent.open, OpenAgent.close

    def slowly(*given: Any) -> OpenAgent:
        begun.set()
        go_on.wait(20)
        return open_agent(*given)

    def noted(opened: OpenAgent) -> str:
        problem = close(opened)
        closed.set()
        return problem

    monkeypatch.setattr(OpenAgent, "open", slowly)
    monkeypatch.setattr(OpenAgent, "close", noted)
    context = ToolContext("call_1", CancellationToken())
    calling = asyncio.ensure_future(ServedAgent(opening).execute({"prompt": "go", "session": session_id}, context))
    assert await asyncio.to_thread(begun.wait, 20)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    go_on.set()
    assert await asyncio.to_thread(closed.wait, 20)
    with store.open(session_id):
        pass
    assert not any(isinstance(message, UserMessage) for message in store.load(session_id).messages)
