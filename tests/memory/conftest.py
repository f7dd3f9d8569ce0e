"""Sample sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AgentToolResult, SlidingWindow, ToolContext, tool
from swink_agent.memory import JsonlSessionStore, Session, SessionStore
from swink_agent.testing import call, scripted, text, think

from .kinds import Files, Kind, Sql


@tool
async def look(ctx: ToolContext, where: str, steps: int = 0) -> AgentToolResult:
    """Looks somewhere."""
    for _ in range(steps):
        await asyncio.sleep(0)
    ctx.state["looked"] = where
    return AgentToolResult(f"seen {where} «ünïcödé»\n", {"steps": [steps, None]})


def agent_that(*replies: Any, **options: Any) -> Agent:
    """An agent whose model gives these replies."""
    return Agent("test:model", stream_fn=scripted(*replies), tools=[look], **options)


async def talk(agent: Agent) -> None:
    """Three runs: one with calls that finish in another order, one that was steered, one short."""
    await agent.prompt("First: what is there?")
    agent.follow_up("And then?")
    await agent.prompt("Second")
    await agent.prompt("Third")


REPLIES = (
    [think("hm", signature="s"), text("I look."), call("look", where="a", steps=4), call("look", where="b")],
    text("Both."),
    [call("look", where="c")],
    text("There."),
    text("Then."),
    text("The end."),
)


@pytest.fixture(params=[Files, Sql], ids=["files", "sql"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both kinds of stores, one after the other."""
    return request.param()


def record(store: SessionStore, **options: Any) -> Session:
    """A session with calls, a compaction, labels and notes."""
    agent = agent_that(*REPLIES, transform_context=SlidingWindow(40, overflow_tokens=20, keep_first=1), **options)
    with store.create(title="A talk", metadata={"a": 1}) as session:
        session.attach(agent)
        asyncio.run(talk(agent))
        session.label("the end")
        session.note("mood", {"good": True})
    return session


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Makes such a session, and returns its file."""

    def make(**options: Any) -> Path:
        return record(JsonlSessionStore(tmp_path / "sessions", sync=False), **options).path

    return make
