"""Steering and follow-ups: how they are queued, in which order they enter, and that none is lost."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    Inject,
    MessagesInjected,
    ModelSpec,
    PolicyContext,
    Stop,
    StopReason,
    TurnEnd,
    TurnEndReason,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, collect, fail, names, scripted

MODEL = ModelSpec("test", "model")
FINISHED = [UserMessage("hi"), AssistantMessage("hello")]
"""A conversation that only a queued message continues."""


class Notice(CustomMessage, tag="notice"):
    text: str


def texts(messages: Any) -> list[str]:
    return [extract_text(message.content) for message in messages]


def injected(events: list[AgentEvent]) -> list[tuple[str, list[str]]]:
    """Who entered, and what: one item for each injection, in order."""
    return [(event.source, texts(event.messages)) for event in events if isinstance(event, MessagesInjected)]


def agent_that_steers_itself(*words: str, **options: Any) -> tuple[Agent, list[AgentEvent]]:
    """An agent whose tool steers it with these words, and the events of all its runs."""

    @tool
    async def work() -> str:
        """Steers while it works."""
        for word in words:
            agent.steer(word)
        return "worked"

    events: list[AgentEvent] = []
    replies = [call("work"), *["ok"] * 10]
    agent = Agent(MODEL, stream_fn=scripted(*replies), tools=[work], **options)
    agent.subscribe(events.append)
    return agent, events


# -- modes ---------------------------------------------------------------------------------------------------


async def test_steering_enters_one_message_for_each_turn_by_default() -> None:
    agent, events = agent_that_steers_itself("a", "b", "c")
    await agent.prompt("hi")
    check_events(events)
    assert injected(events) == [("steering", ["a"]), ("steering", ["b"]), ("steering", ["c"])]
    assert texts(agent.messages) == ["hi", "", "worked", "a", "ok", "b", "ok", "c", "ok"]


async def test_steering_enters_all_at_once_if_the_agent_was_told_so() -> None:
    agent, events = agent_that_steers_itself("a", "b", "c", steering_mode="all")
    await agent.prompt("hi")
    check_events(events)
    assert injected(events) == [("steering", ["a", "b", "c"])]
    assert texts(agent.messages) == ["hi", "", "worked", "a", "b", "c", "ok"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("one_at_a_time", [("follow_up", ["a"]), ("follow_up", ["b"])]),
        ("all", [("follow_up", ["a", "b"])]),
    ],
)
async def test_follow_ups_enter_by_their_own_mode(mode: Any, expected: list[tuple[str, list[str]]]) -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"), follow_up_mode=mode)
    agent.follow_up("a")
    agent.follow_up("b")
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    assert injected(events) == expected
    assert not agent.has_queued_messages


async def test_the_two_modes_are_independent() -> None:
    agent, events = agent_that_steers_itself("s1", "s2", steering_mode="all", follow_up_mode="one_at_a_time")
    agent.follow_up(["f1", "f2"])
    await agent.prompt("hi")
    assert injected(events) == [("steering", ["s1", "s2"]), ("follow_up", ["f1"]), ("follow_up", ["f2"])]


async def test_steering_goes_before_follow_ups() -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"))
    agent.follow_up("later")
    agent.steer("now")
    events = await collect(agent.prompt_stream("hi"))
    assert injected(events) == [("steering", ["now"]), ("follow_up", ["later"])]


async def test_strings_messages_and_lists_can_be_queued_custom_ones_too() -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2"), follow_up_mode="all")
    agent.follow_up("a")
    agent.follow_up(UserMessage("b"))
    agent.follow_up(["c", Notice("d")])
    result = await agent.prompt("hi")
    assert [type(message).__name__ for message in result.messages[2:]] == [
        "UserMessage",
        "UserMessage",
        "UserMessage",
        "Notice",
        "AssistantMessage",
    ]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
def test_other_values_than_messages_cannot_be_queued(queue: str) -> None:
    agent = Agent(MODEL, stream_fn=scripted())
    with pytest.raises(TypeError):
        getattr(agent, queue)(42)
    assert not agent.has_queued_messages


# -- looking and clearing ------------------------------------------------------------------------------------


def test_it_can_be_seen_that_something_is_queued() -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"))
    assert not agent.has_queued_messages
    agent.steer("s")
    assert agent.has_queued_messages
    agent.clear_steering()
    assert not agent.has_queued_messages
    agent.follow_up("f")
    assert agent.has_queued_messages
    agent.prompt_sync("hi")
    assert not agent.has_queued_messages


@pytest.mark.parametrize(
    ("clear", "left"),
    [
        (Agent.clear_steering, [("follow_up", ["f"])]),
        (Agent.clear_follow_ups, [("steering", ["s"])]),
        (Agent.clear_queues, []),
    ],
)
async def test_each_queue_can_be_cleared(clear: Callable[[Agent], None], left: list[tuple[str, list[str]]]) -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2", "3"))
    agent.steer("s")
    agent.follow_up("f")
    clear(agent)
    assert agent.has_queued_messages == bool(left)
    assert injected(await collect(agent.prompt_stream("hi"))) == left


async def test_messages_cleared_during_a_run_do_not_enter() -> None:
    agent = Agent(MODEL, stream_fn=scripted("1", "2"))
    agent.follow_up("no longer wanted")
    agent.subscribe(lambda event: agent.clear_queues() if isinstance(event, TurnEnd) else None)
    events = await collect(agent.prompt_stream("hi"))
    assert injected(events) == []
    assert texts(agent.messages) == ["hi", "1"]


# -- what is not used stays ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        ("one_at_a_time", [["a"], ["b"], ["c"]]),
        ("all", [["a", "b", "c"]]),
    ],
)
async def test_steering_that_was_taken_but_did_not_enter_goes_back_to_the_head(
    mode: Any, order: list[list[str]]
) -> None:
    agent, events = agent_that_steers_itself("a", "b", steering_mode=mode)

    def abort_after_the_tool(event: AgentEvent) -> None:
        if isinstance(event, TurnEnd) and event.reason == TurnEndReason.STEERING_INTERRUPT:
            agent.steer("c")
            agent.abort()

    agent.subscribe(abort_after_the_tool)
    result = await agent.prompt("hi")
    check_events(events)
    assert result.stop_reason == StopReason.ABORTED
    assert injected(events) == []
    assert agent.has_queued_messages
    events.clear()
    await agent.continue_loop()
    check_events(events)
    assert injected(events) == [("steering", words) for words in order]
    assert not agent.has_queued_messages


async def test_taken_messages_are_back_when_the_end_of_the_run_is_announced() -> None:
    agent, events = agent_that_steers_itself("a")
    queued: list[bool] = []
    agent.subscribe(lambda event: agent.abort() if isinstance(event, TurnEnd) else None)
    agent.subscribe(lambda event: queued.append(agent.has_queued_messages))
    await agent.prompt("hi")
    assert names(events)[-2:] == ["TurnEnd", "AgentEnd"]
    assert queued[-2:] == [False, True]


async def test_steering_goes_back_if_a_policy_stops_the_run() -> None:
    class StopOnce:
        def __init__(self) -> None:
            self.verdicts: list[Stop | None] = [Stop("enough")]

        def post_turn(self, ctx: PolicyContext) -> Stop | None:
            return self.verdicts.pop() if self.verdicts else None

    agent, events = agent_that_steers_itself("a", "b", policies=[StopOnce()])
    result = await agent.prompt("hi")
    assert result.stopped_by is not None
    assert injected(events) == []
    events.clear()
    await agent.continue_loop()
    assert injected(events) == [("steering", ["a"]), ("steering", ["b"])]


async def test_an_error_leaves_the_queues_as_they_are() -> None:
    agent = Agent(MODEL, stream_fn=scripted(fail("auth"), "1", "2", "3", "4"))
    agent.steer(["s1", "s2"])
    agent.follow_up("f")
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    assert injected(events) == []
    assert agent.has_queued_messages
    events = await collect(agent.continue_loop_stream())
    assert injected(events) == [("steering", ["s1"]), ("steering", ["s2"]), ("follow_up", ["f"])]


async def test_a_follow_up_that_an_abort_kept_out_comes_in_the_next_run() -> None:
    class Provider:
        """Gives one follow-up, and aborts the run that asked for it."""

        def __init__(self) -> None:
            self.messages: list[AgentMessage] = [UserMessage("from outside")]

        def poll_steering(self) -> list[AgentMessage]:
            return []

        def poll_follow_up(self) -> list[AgentMessage]:
            taken, self.messages = self.messages, []
            if taken:
                agent.abort()
            return taken

        def put_back(self, source: str, messages: list[AgentMessage]) -> None:
            self.messages[:0] = messages

    provider = Provider()
    agent = Agent(MODEL, stream_fn=scripted("1", "2"), message_provider=provider)
    result = await agent.prompt("hi")
    assert result.stop_reason == StopReason.ABORTED
    assert texts(agent.messages) == ["hi", "1"]
    provider_has, agent_has = len(provider.messages), agent.has_queued_messages
    assert [provider_has, agent_has] in ([1, False], [0, True])
    if provider_has:
        agent.follow_up(provider.messages.pop())
    await agent.continue_loop()
    assert texts(agent.messages) == ["hi", "1", "from outside", "2"]


async def test_messages_of_a_policy_and_of_people_keep_their_sources_apart() -> None:
    class Remind:
        def __init__(self) -> None:
            self.reminders = ["do not forget"]

        def post_turn(self, ctx: PolicyContext) -> Inject | None:
            return Inject(self.reminders.pop()) if self.reminders else None

    agent, events = agent_that_steers_itself("a", "b", steering_mode="all", policies=[Remind()])
    await agent.prompt("hi")
    check_events(events)
    assert injected(events) == [("steering", ["a", "b"]), ("policy", ["do not forget"])]


# -- the application's own provider --------------------------------------------------------------------------


class Plain:
    """A message provider with plain functions."""

    def __init__(self, steering: list[str], follow_ups: list[str]) -> None:
        self.steering = steering
        self.follow_ups = follow_ups
        self.polls: list[str] = []

    def poll_steering(self) -> list[AgentMessage]:
        self.polls.append("steering")
        return [UserMessage(self.steering.pop(0))] if self.steering else []

    def poll_follow_up(self) -> list[AgentMessage]:
        self.polls.append("follow_up")
        return [UserMessage(self.follow_ups.pop(0))] if self.follow_ups else []


class Promising:
    """The same with coroutine functions."""

    def __init__(self, steering: list[str], follow_ups: list[str]) -> None:
        self.plain = Plain(steering, follow_ups)
        self.polls = self.plain.polls

    async def poll_steering(self) -> list[AgentMessage]:
        return self.plain.poll_steering()

    async def poll_follow_up(self) -> list[AgentMessage]:
        return self.plain.poll_follow_up()


@pytest.mark.parametrize("kind", [Plain, Promising])
async def test_a_provider_of_the_application_is_asked_beside_the_agents_own_queues(kind: Callable[..., Any]) -> None:
    provider = kind(["theirs, now"], ["theirs, later"])
    agent = Agent(MODEL, stream_fn=scripted(*"12345"), message_provider=provider)
    agent.steer("ours, now")
    agent.follow_up("ours, later")
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    assert sorted(injected(events)) == [
        ("follow_up", ["ours, later"]),
        ("follow_up", ["theirs, later"]),
        ("steering", ["ours, now"]),
        ("steering", ["theirs, now"]),
    ]
    sources = [source for source, _ in injected(events)]
    assert sources == ["steering", "steering", "follow_up", "follow_up"]
    assert provider.polls[-1] == "follow_up"


@pytest.mark.parametrize("kind", [Plain, Promising])
async def test_a_providers_steering_interrupts_a_batch(kind: Callable[..., Any]) -> None:
    provider = kind([], [])
    started: list[str] = []

    @tool
    async def step(name: str) -> str:
        """One step."""
        started.append(name)
        getattr(provider, "plain", provider).steering.append("stop that")
        return name

    stream = scripted(call("step", name="1") + call("step", name="2"), "ok")
    agent = Agent(MODEL, stream_fn=stream, tools=[step], message_provider=provider, tool_execution="sequential")
    provider_steering = getattr(provider, "plain", provider).steering
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    assert started == ["1"]
    assert provider_steering == []
    assert injected(events) == [("steering", ["stop that"])]
    assert texts(agent.messages)[3] == "tool call cancelled: user requested steering interrupt"


@pytest.mark.parametrize("kind", [Plain, Promising])
async def test_a_provider_with_a_message_continues_a_finished_conversation(kind: Callable[..., Any]) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"), messages=FINISHED, message_provider=kind([], ["more"]))
    result = await agent.continue_loop()
    assert texts(result.messages) == ["more", "ok"]


async def _raise_later() -> list[AgentMessage]:
    raise ConnectionError("the inbox is gone")


def _raise_now() -> list[AgentMessage]:
    raise ConnectionError("the inbox is gone")


@pytest.mark.parametrize("poll", [_raise_now, _raise_later])
async def test_a_provider_that_fails_is_logged_and_passed_over(
    poll: Callable[[], list[AgentMessage] | Awaitable[list[AgentMessage]]], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        poll_steering = staticmethod(poll)
        poll_follow_up = staticmethod(poll)

    agent = Agent(MODEL, stream_fn=scripted("1", "2"), message_provider=Broken())
    agent.follow_up("ours")
    with caplog.at_level(logging.WARNING, "swink_agent"):
        result = await agent.prompt("hi")
    assert result.stop_reason == StopReason.STOP
    assert texts(result.messages) == ["hi", "1", "ours", "2"]
    assert "the inbox is gone" in caplog.text
