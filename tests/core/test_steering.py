"""Steering: a message from a person in the middle of a batch."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from swink_agent import (
    Agent,
    AgentEvent,
    MessagesInjected,
    ModelSpec,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, names, scripted, text

MODEL = ModelSpec("test", "model")
CANCELLED = "tool call cancelled: user requested steering interrupt"


BATCH = [call("quick"), call("endless")]


@tool
async def quick() -> str:
    """Is done at once."""
    return "quick"


@tool
async def endless() -> str:
    """Never ends by itself."""
    await asyncio.get_running_loop().create_future()
    return "never"


def results(events: list[AgentEvent], turn: int = 0) -> list[str]:
    ended = [event for event in events if isinstance(event, TurnEnd)][turn]
    return [extract_text(result.content) for result in ended.tool_results]


def reasons(events: list[AgentEvent]) -> list[TurnEndReason]:
    return [event.reason for event in events if isinstance(event, TurnEnd)]


async def steered(agent: Agent) -> list[AgentEvent]:
    agent.steer("stop that")
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    return events


async def test_steering_cancels_the_remaining_calls_and_leads_the_next_turn() -> None:
    model = scripted([call("quick"), call("endless"), call("endless")], text("ok"))
    events = await steered(Agent(MODEL, stream_fn=model, tools=[quick, endless]))
    assert results(events) == ["quick", CANCELLED, CANCELLED]
    assert reasons(events) == ["steering_interrupt", "complete"]
    second_turn = names(events).index("TurnStart", 2)
    assert names(events)[second_turn : second_turn + 3] == ["TurnStart", "MessagesInjected", "MessageStart"]
    (injected,) = [event for event in events if isinstance(event, MessagesInjected)]
    assert injected.source == "steering"
    assert extract_text(model.requests[1].messages[-1].content) == "stop that"  # type: ignore[union-attr]


async def test_a_call_that_ends_by_itself_in_the_grace_time_keeps_its_result() -> None:
    @tool
    async def attentive(ctx: ToolContext) -> str:
        await ctx.cancel.wait()
        return "came to an end"

    model = scripted([call("quick"), call("attentive"), call("endless")], text("ok"))
    events = await steered(Agent(MODEL, stream_fn=model, tools=[quick, attentive, endless]))
    assert results(events) == ["quick", "came to an end", CANCELLED]


async def test_a_call_that_fails_when_told_to_end_was_cancelled() -> None:
    @tool
    async def attentive(ctx: ToolContext) -> str:
        await ctx.cancel.wait()
        raise ToolError("half of it is done")

    @tool
    async def broken(ctx: ToolContext) -> str:
        assert not ctx.cancel.is_cancelled
        raise ToolError("it does not work")

    model = scripted([call("broken"), call("attentive")], text("ok"))
    agent = Agent(MODEL, stream_fn=model, tools=[broken, attentive])
    ended: list[ToolExecutionEnd] = []
    async for event in agent.prompt_stream("go"):
        if isinstance(event, ToolExecutionEnd):
            ended.append(event)
            agent.steer("stop that")
    assert [event.outcome for event in ended] == ["failed", "cancelled"]
    assert extract_text(ended[1].result.content) == "half of it is done"


async def test_results_after_the_grace_time_do_not_count() -> None:
    @tool
    async def clinging() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "not so fast"
        return "never"

    model = scripted([call("quick"), call("clinging")], text("ok"))
    events = await steered(Agent(MODEL, stream_fn=model, tools=[quick, clinging]))
    assert results(events) == ["quick", CANCELLED]


async def test_a_tool_that_finishes_when_steered_runs_to_its_end() -> None:
    finished = asyncio.Event()

    @tool(on_steer="finish")
    async def migration(ctx: ToolContext) -> str:
        await asyncio.sleep(0.15)
        assert not ctx.cancel.is_cancelled
        finished.set()
        return "migrated"

    model = scripted([call("quick"), call("migration"), call("endless")], text("ok"))
    events = await steered(Agent(MODEL, stream_fn=model, tools=[quick, migration, endless]))
    assert results(events) == ["quick", "migrated", CANCELLED]
    assert finished.is_set()
    ends = [extract_text(event.result.content) for event in events if isinstance(event, ToolExecutionEnd)]
    assert ends == ["quick", CANCELLED, "migrated"]


async def test_a_call_that_has_not_started_is_cancelled_whatever_its_kind() -> None:
    @tool(on_steer="finish")
    async def migration() -> str:
        return "migrated"

    model = scripted([call("quick"), call("migration"), call("quick")], text("ok"))
    events = await steered(Agent(MODEL, stream_fn=model, tools=[quick, migration], tool_execution="sequential"))
    assert results(events) == ["quick", CANCELLED, CANCELLED]
    assert names(events).count("ToolExecutionStart") == 1


async def test_an_abort_stops_both_kinds() -> None:
    @tool(on_steer="finish")
    async def migration() -> str:
        await asyncio.get_running_loop().create_future()
        return "never"

    agent = Agent(MODEL, stream_fn=scripted([call("migration"), call("endless")]), tools=[migration, endless])
    started = 0

    def abort_when_both_run(event: AgentEvent) -> None:
        nonlocal started
        started += type(event).__name__ == "ToolExecutionStart"
        if started == 2:
            asyncio.get_running_loop().call_soon(agent.abort)

    agent.subscribe(abort_when_both_run)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert results(events) == ["tool call cancelled: the run was aborted"] * 2
    assert reasons(events) == ["aborted"]


async def test_steering_during_the_last_call_still_leads_the_next_turn() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("quick"), text("ok")), tools=[quick])
    events = await steered(agent)
    assert results(events) == ["quick"]
    assert reasons(events)[0] == TurnEndReason.STEERING_INTERRUPT
    assert "MessagesInjected" in names(events)


async def test_steering_after_a_text_turn_starts_another_turn() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("one"), text("two")))
    events = await steered(agent)
    assert reasons(events) == ["complete", "complete"]
    assert names(events).count("MessagesInjected") == 1


async def test_steering_messages_come_one_per_turn_or_all_at_once() -> None:
    async def injected(mode: Any) -> list[int]:
        agent = Agent(
            MODEL, stream_fn=scripted(*[call("quick")] * 2, text("a"), text("b")), tools=[quick], steering_mode=mode
        )
        for number in range(3):
            agent.steer(f"{number}")
        events = await collect(agent.prompt_stream("go"))
        check_events(events)
        return [len(event.messages) for event in events if isinstance(event, MessagesInjected)]

    assert await injected("one_at_a_time") == [1, 1, 1]
    assert await injected("all") == [3]


async def test_steering_comes_before_follow_ups() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("1"), text("2"), text("3")))
    agent.follow_up("later")
    events = await steered(agent)
    assert [event.source for event in events if isinstance(event, MessagesInjected)] == ["steering", "follow_up"]


async def test_polled_messages_that_never_entered_return_to_the_head_of_the_queue() -> None:
    agent = Agent(MODEL, stream_fn=scripted(BATCH, *[text("ok")] * 3), tools=[quick, endless])
    agent.steer("first")
    agent.steer("second")
    with agent.subscribe(lambda event: agent.abort() if isinstance(event, TurnEnd) else None):
        events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert "MessagesInjected" not in names(events)
    assert agent.has_queued_messages
    later: list[AgentEvent] = []
    agent.subscribe(later.append)
    await agent.continue_loop()
    entered = [event.messages[0] for event in later if isinstance(event, MessagesInjected)]
    assert [extract_text(message.content) for message in entered] == ["first", "second"]  # type: ignore[union-attr]


async def test_a_message_provider_of_ones_own_steers_the_bare_loop() -> None:
    from swink_agent import AgentContext, AgentLoopConfig, UserMessage, agent_loop

    class Provider:
        def __init__(self) -> None:
            self.waiting = [UserMessage("look here")]

        async def poll_steering(self) -> list[Any]:
            waiting, self.waiting = self.waiting, []
            return waiting

        def poll_follow_up(self) -> list[Any]:
            return []

    config = AgentLoopConfig(
        model=MODEL, stream_fn=scripted([call("quick"), call("endless")], text("ok")), message_provider=Provider()
    )
    events = await collect(agent_loop("go", AgentContext(tools=[quick, endless]), config))
    check_events(events)
    assert results(events) == ["quick", CANCELLED]


def started(agent: Agent, count: int = 1) -> asyncio.Event:
    """Set when so many tools have started."""
    event, seen = asyncio.Event(), list[AgentEvent]()

    def watch(news: AgentEvent) -> None:
        if isinstance(news, ToolExecutionStart):
            seen.append(news)
            if len(seen) == count:
                event.set()

    agent.subscribe(watch)
    return event


# -- at once -----------------------------------------------------------------------------------------------------


async def test_steering_reaches_the_only_tool_that_runs_although_none_has_finished() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("endless"), text("ok")), tools=[endless])

    def steer_it(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionStart):
            asyncio.get_running_loop().call_later(0.01, agent.steer, "stop that")

    agent.subscribe(steer_it)
    async with asyncio.timeout(30):
        events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert results(events) == [CANCELLED]
    assert reasons(events) == [TurnEndReason.STEERING_INTERRUPT, TurnEndReason.COMPLETE]
    assert [event.messages for event in events if isinstance(event, MessagesInjected)] == [(agent.messages[3],)]


async def test_steering_from_another_thread_reaches_a_running_tool() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("endless"), text("ok")), tools=[endless])
    tools = started(agent)
    running = asyncio.ensure_future(agent.prompt("go"))
    await tools.wait()
    await asyncio.to_thread(agent.steer, "stop that")
    async with asyncio.timeout(30):
        assert (await running).text == "ok"


async def test_a_tool_that_listens_has_its_own_last_word_when_it_is_steered() -> None:
    @tool
    async def listens(ctx: ToolContext) -> str:
        """Waits until it is told to stop."""
        await ctx.cancel.wait()
        return "as far as I got"

    agent = Agent(MODEL, stream_fn=scripted(call("listens"), text("ok")), tools=[listens])
    tools = started(agent)
    running = asyncio.ensure_future(collect(agent.prompt_stream("go")))
    await tools.wait()
    agent.steer("stop that")
    events = await running
    assert results(events) == ["as far as I got"]


async def test_a_tool_that_finishes_when_steered_is_not_woken_by_steering() -> None:
    go_on = asyncio.Event()

    @tool(on_steer="finish")
    async def careful() -> str:
        """Must not be interrupted."""
        await go_on.wait()
        return "whole"

    agent = Agent(MODEL, stream_fn=scripted(call("careful"), text("ok")), tools=[careful])
    tools = started(agent)
    running = asyncio.ensure_future(collect(agent.prompt_stream("go")))
    await tools.wait()
    agent.steer("hurry")
    await asyncio.sleep(0.12)  # more than the grace time of the others
    assert not running.done()
    go_on.set()
    events = await running
    check_events(events)
    assert results(events) == ["whole"]


# -- an abort ----------------------------------------------------------------------------------------------------


async def test_an_abort_lets_a_tool_that_listens_end_by_itself_and_keeps_its_result() -> None:
    listening, heard = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def listens(ctx: ToolContext) -> str:
        """Waits until it is told to stop."""
        cancel = ctx.cancel
        listening.set()
        await cancel.wait()
        await asyncio.sleep(0.01)
        return "as far as I got"

    @tool
    def listens_in_a_thread(ctx: ToolContext) -> str:
        """Looks every millisecond."""
        while not ctx.cancel.is_cancelled:
            loop.call_soon_threadsafe(heard.set)
            time.sleep(0.001)
        return "from a thread"

    @tool
    async def ignores(ctx: ToolContext) -> str:
        """Listens, and goes on all the same."""
        await ctx.cancel.wait()
        await asyncio.get_running_loop().create_future()
        return "never"

    calls = [call("listens"), call("listens_in_a_thread"), call("endless"), call("ignores")]
    aborted = "tool call cancelled: the run was aborted"
    expected = ["as far as I got", "from a thread", aborted, aborted]
    for _ in range(10):  # on a busy machine a thread may have to wait for its turn longer than the run does
        agent = Agent(MODEL, stream_fn=scripted(calls), tools=[listens, listens_in_a_thread, endless, ignores])
        tools = started(agent, 4)
        running = asyncio.ensure_future(collect(agent.prompt_stream("go")))
        await asyncio.gather(tools.wait(), listening.wait(), heard.wait())
        agent.abort()
        events = await running
        check_events(events)
        if results(events) == expected:
            break
        listening.clear()
        heard.clear()
    assert results(events) == expected
    outcomes = [message.outcome for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert outcomes == [ToolOutcome.RAN, ToolOutcome.RAN, ToolOutcome.CANCELLED, ToolOutcome.CANCELLED]
