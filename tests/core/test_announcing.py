"""Background work of a call is reported: in the events of a run, or to subscribers between runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentToolResult,
    ModelSpec,
    TaskEnded,
    TaskStarted,
    ToolContext,
    agent_loop,
)
from swink_agent.core.run.announcing import Announcer
from swink_agent.testing import call, check_events, scripted, text

pytestmark = pytest.mark.fast


class Starter:
    """A tool that leaves something running, and tells of it when it is asked to."""

    name = "start"
    label = description = "Starts it."
    requires_approval = False
    parameters_schema: dict[str, Any] = {"type": "object"}

    def __init__(self) -> None:
        self.announcer: Announcer | None = None

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        self.announcer = ctx.announcer
        self.announce(TaskStarted("b1", "serve"))
        await asyncio.sleep(0)
        return AgentToolResult.text("started")

    def announce(self, event: TaskStarted | TaskEnded) -> None:
        assert self.announcer is not None
        thread = threading.Thread(target=self.announcer.announce, args=(event,))
        thread.start()
        thread.join()


def tasks_of(events: list[AgentEvent]) -> list[AgentEvent]:
    return [event for event in events if isinstance(event, (TaskStarted, TaskEnded))]


async def test_the_announcement_of_a_call_comes_before_the_end_of_the_call() -> None:
    agent = Agent("scripted:x", tools=[Starter()], stream_fn=scripted(call("start"), text("done")))
    events = [event async for event in agent.prompt_stream("go")]
    check_events(events)
    names = [type(event).__name__ for event in events]
    assert names.index("ToolExecutionStart") < names.index("TaskStarted") < names.index("ToolExecutionEnd")


async def test_between_runs_subscribers_get_it_in_the_thread_of_the_event_loop() -> None:
    starter = Starter()
    agent = Agent("scripted:x", tools=[starter], stream_fn=scripted(call("start"), text("done")))
    heard: list[AgentEvent] = []
    threads: set[int] = set()
    agent.subscribe(lambda event: (heard.append(event), threads.add(threading.get_ident())))
    await agent.prompt("go")
    check_events(heard)
    heard.clear()
    starter.announce(TaskEnded("b1", 0))
    await asyncio.sleep(0)
    assert heard == [TaskEnded("b1", 0)]
    assert threads == {threading.get_ident()}


def test_where_no_event_loop_is_left_the_next_run_tells_it_behind_its_start() -> None:
    starter = Starter()
    agent = Agent("scripted:x", tools=[starter], stream_fn=scripted(call("start"), text("done"), text("again")))
    heard: list[AgentEvent] = []
    agent.subscribe(heard.append)
    agent.prompt_sync("go")
    heard.clear()
    starter.announce(TaskEnded("b1", 1))
    assert heard == []
    agent.prompt_sync("go on")
    check_events(heard)
    assert tasks_of(heard) == [TaskEnded("b1", 1)]


async def test_calls_left_running_by_a_delegate_are_announced_by_its_caller() -> None:
    starter = Starter()
    inner = Agent("scripted:x", tools=[starter], stream_fn=scripted(call("start"), text("done")))
    outer = Agent(
        "scripted:x",
        tools=[inner.as_tool("helper", "Helps.")],
        stream_fn=scripted(call("helper", prompt="x"), text("ok")),
    )
    heard: list[AgentEvent] = []
    outer.subscribe(heard.append)
    await outer.prompt("go")
    starter.announce(TaskEnded("b1", 0))
    await asyncio.sleep(0)
    check_events(heard[:-1])
    assert tasks_of(heard) == [TaskStarted("b1", "serve"), TaskEnded("b1", 0)]


async def test_a_bare_loop_tells_it_while_it_runs_and_nobody_afterwards() -> None:
    starter = Starter()
    config = AgentLoopConfig(model=ModelSpec("scripted", "x"), stream_fn=scripted(call("start"), text("done")))
    stream = agent_loop("go", AgentContext(tools=(starter,)), config)
    events = [event async for event in stream]
    check_events(events)
    assert tasks_of(events) == [TaskStarted("b1", "serve")]
    starter.announce(TaskEnded("b1", 0))
    await asyncio.sleep(0)
    assert [event async for event in stream] == []


def test_outside_of_a_run_there_is_nobody_to_tell() -> None:
    assert ToolContext().announcer is None
