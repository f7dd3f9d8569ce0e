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
from swink_agent.core.tool import ToolContext
from swink_agent.core.types import UserMessage


async def test_a_call_that_is_cancelled_while_its_session_opens_lets_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test-0123456789")
    (tmp_path / "work").mkdir()
    opening = Opening(OpeningOptions(flags={"sandbox": "off", "model": "anthropic"}, cwd=str(tmp_path / "work")))
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
