"""Subscribers: called in order, before the run continues, and unable to break it."""

from __future__ import annotations

import functools
import logging
import threading

import pytest

from swink_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelSpec,
    StopReason,
    Subscription,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    tool,
)
from swink_agent.testing import call, check_events, collect, names, scripted

MODEL = ModelSpec("test", "model")
ONE_TEXT_TURN = ["AgentStart", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def test_subscribers_are_called_in_the_order_in_which_they_subscribed() -> None:
    calls: list[tuple[str, str]] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    for name in ("first", "second", "third"):
        agent.subscribe(lambda event, name=name: calls.append((type(event).__name__, name)))
    await agent.prompt("hi")
    assert calls == [(event, name) for event in ONE_TEXT_TURN for name in ("first", "second", "third")]


async def test_a_subscriber_sees_every_run_until_it_ends() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"))
    subscription = agent.subscribe(events.append)
    await agent.prompt("hi")
    await collect(agent.prompt_stream("hi"))
    subscription.unsubscribe()
    await agent.prompt("hi")
    assert names(events) == ONE_TEXT_TURN * 2


async def test_the_run_does_not_go_on_before_the_subscribers_have_returned() -> None:
    order: list[str] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Works."""
        order.append("tool begins")
        ctx.update("half")
        order.append("tool ends")
        return "done"

    stream = scripted(call("work"), "ok")
    agent = Agent(
        MODEL, stream_fn=lambda *arguments: (order.append("model is asked"), stream(*arguments))[1], tools=[work]
    )
    agent.subscribe(lambda event: order.append(type(event).__name__))
    await agent.prompt("hi")
    assert order == [
        "AgentStart",
        "TurnStart",
        "MessageStart",
        "model is asked",
        "MessageUpdate",
        "MessageEnd",
        "ToolExecutionStart",
        "tool begins",
        "ToolExecutionUpdate",
        "tool ends",
        "ToolExecutionEnd",
        "TurnEnd",
        "TurnStart",
        "MessageStart",
        "model is asked",
        "MessageUpdate",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]


async def test_a_message_is_in_the_history_when_its_event_comes() -> None:
    lengths: list[tuple[str, int]] = []
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "3"), tools=[add])
    agent.subscribe(lambda event: lengths.append((type(event).__name__, len(agent.messages))))
    await agent.prompt("1+2?")
    assert [length for name, length in lengths if name == "MessageEnd"] == [2, 4]
    assert [length for name, length in lengths if name == "TurnEnd"] == [3, 4]


async def test_a_subscriber_that_raises_is_logged_and_removed_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before: list[AgentEvent] = []
    after: list[AgentEvent] = []
    failing: list[AgentEvent] = []

    def fail_at_the_message(event: AgentEvent) -> None:
        failing.append(event)
        if isinstance(event, MessageStart):
            raise RuntimeError("broken display")

    agent = Agent(MODEL, stream_fn=scripted("ok", "again"))
    agent.subscribe(before.append)
    agent.subscribe(fail_at_the_message)
    agent.subscribe(after.append)
    with caplog.at_level(logging.WARNING, "swink_agent"):
        result = await agent.prompt("hi")
        await agent.prompt("again")
    assert result.stop_reason == StopReason.STOP
    assert names(before) == names(after) == ONE_TEXT_TURN * 2
    assert names(failing) == ["AgentStart", "TurnStart", "MessageStart"]
    assert len(caplog.records) == 1
    assert "MessageStart" in caplog.text
    assert "broken display" in caplog.text


@pytest.mark.table
@pytest.mark.parametrize("moment", [AgentStart, TurnStart, MessageUpdate, ToolExecutionStart, TurnEnd, AgentEnd])
async def test_a_subscriber_may_fail_at_any_event(moment: type[AgentEvent]) -> None:
    events: list[AgentEvent] = []

    def fail(event: AgentEvent) -> None:
        if isinstance(event, moment):
            raise ValueError

    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "3"), tools=[add])
    agent.subscribe(fail)
    agent.subscribe(events.append)
    read = await collect(agent.prompt_stream("1+2?"))
    assert read == events
    check_events(events)
    assert not agent.is_running


async def test_one_that_subscribes_during_a_run_sees_what_follows() -> None:
    late: list[AgentEvent] = []

    def invite(event: AgentEvent) -> None:
        if isinstance(event, MessageStart):
            agent.subscribe(late.append)

    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(invite)
    await agent.prompt("hi")
    assert names(late) == ["MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]


async def test_one_that_subscribes_in_another_thread_during_a_run_sees_what_follows() -> None:
    late: list[AgentEvent] = []

    @tool
    def invite() -> str:
        """Subscribes from the thread that plain tools run in."""
        assert threading.current_thread() is not threading.main_thread()
        agent.subscribe(late.append)
        return "welcome"

    agent = Agent(MODEL, stream_fn=scripted(call("invite"), "ok"), tools=[invite])
    await agent.prompt("hi")
    assert names(late) == ["ToolExecutionEnd", "TurnEnd", *ONE_TEXT_TURN[1:]]


async def test_a_removal_inside_a_callback_takes_effect_after_the_event() -> None:
    second: list[AgentEvent] = []
    third: list[AgentEvent] = []

    def dismiss(event: AgentEvent) -> None:
        if isinstance(event, MessageStart):
            subscription.unsubscribe()

    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(dismiss)
    subscription = agent.subscribe(second.append)
    agent.subscribe(third.append)
    await agent.prompt("hi")
    assert names(second) == ["AgentStart", "TurnStart", "MessageStart"]
    assert names(third) == ONE_TEXT_TURN


async def test_a_subscriber_can_remove_itself() -> None:
    events: list[AgentEvent] = []

    def once(event: AgentEvent) -> None:
        events.append(event)
        subscription.unsubscribe()

    agent = Agent(MODEL, stream_fn=scripted("ok"))
    subscription = agent.subscribe(once)
    await agent.prompt("hi")
    assert names(events) == ["AgentStart"]


async def test_a_subscription_ends_with_its_with_block() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"))
    with agent.subscribe(events.append) as subscription:
        assert isinstance(subscription, Subscription)
        await agent.prompt("inside")
    await agent.prompt("outside")
    with pytest.raises(RuntimeError, match="left by an error"), agent.subscribe(events.append):
        raise RuntimeError("left by an error")
    await agent.prompt("outside")
    assert names(events) == ONE_TEXT_TURN


async def test_unsubscribing_twice_is_once() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    first = agent.subscribe(events.append)
    agent.subscribe(events.append)
    first.unsubscribe()
    first.unsubscribe()
    await agent.prompt("hi")
    assert names(events) == ONE_TEXT_TURN


async def test_one_callback_with_two_subscriptions_is_called_twice() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(events.append)
    agent.subscribe(events.append)
    await agent.prompt("hi")
    assert names(events) == [name for name in ONE_TEXT_TURN for _ in range(2)]


def test_a_coroutine_function_is_refused() -> None:
    async def watch(event: AgentEvent) -> None: ...

    async def watch_with(name: str, event: AgentEvent) -> None: ...

    agent = Agent(MODEL, stream_fn=scripted("ok"))
    for callback in (watch, functools.partial(watch_with, "name")):
        with pytest.raises(TypeError, match="plain function"):
            agent.subscribe(callback)
    assert agent.prompt_sync("hi").text == "ok"


async def test_return_values_of_subscribers_are_ignored() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(lambda event: "stop" if isinstance(event, TurnStart) else False)
    assert (await agent.prompt("hi")).text == "ok"


async def test_a_subscriber_can_steer_and_abort_the_run_that_it_watches() -> None:
    events: list[AgentEvent] = []

    def direct(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd) and len(agent.messages) < 4:
            agent.steer("rather subtract")
        if isinstance(event, MessageEnd) and event.message.text == "sorry":
            agent.abort()

    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), "sorry", "never"), tools=[add])
    agent.subscribe(events.append)
    agent.subscribe(direct)
    result = await agent.prompt("1+2?")
    check_events(events)
    assert result.stop_reason == StopReason.ABORTED
    assert [event.reason for event in events if isinstance(event, TurnEnd)] == ["steering_interrupt", "aborted"]


async def test_subscribers_see_the_events_of_a_stream_before_its_reader() -> None:
    order: list[tuple[str, str]] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(lambda event: order.append(("subscriber", type(event).__name__)))
    async for event in agent.prompt_stream("hi"):
        order.append(("reader", type(event).__name__))
    assert [name for who, name in order if who == "subscriber"] == ONE_TEXT_TURN
    assert [name for who, name in order if who == "reader"] == ONE_TEXT_TURN
    for name in ONE_TEXT_TURN:
        assert order.index(("subscriber", name)) < order.index(("reader", name))


async def test_events_that_nobody_reads_still_reach_the_subscribers() -> None:
    events: list[AgentEvent] = []
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.subscribe(events.append)
    await agent.prompt_stream("hi").result()
    assert names(events) == ONE_TEXT_TURN
