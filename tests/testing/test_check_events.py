"""The checker of event sequences: it accepts every real run, and refuses every altered one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec.structs
import pytest

from swink_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AgentToolResult,
    AssistantMessage,
    CompactionReport,
    ContextCompacted,
    Inject,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageUpdate,
    ModelSpec,
    PolicyContext,
    Skip,
    Stop,
    StopReason,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCall,
    ToolCallDelta,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
    tool,
)
from swink_agent.testing import (
    FakeClock,
    call,
    check_events,
    collect,
    fail,
    names,
    reply,
    scripted,
    stall,
    text,
    think,
    truncated,
)

MODEL = ModelSpec("test", "model")
Events = list[AgentEvent]
E = TypeVar("E")


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(requires_approval=True)
async def send(to: str, ctx: ToolContext) -> str:
    """Sends."""
    ctx.update("half")
    return "sent"


@tool
async def wait() -> str:
    """Waits for ever."""
    await asyncio.Event().wait()
    return "never"


# -- real runs -----------------------------------------------------------------------------------------------


class Policy:
    """Gives one verdict, once, in the slot that it is made for."""

    def __init__(self, slot: str, verdict: Any) -> None:
        self.verdicts = [verdict]
        setattr(self, slot, lambda ctx: self.verdicts.pop() if self.verdicts else None)


class Replace:
    def post_turn(self, ctx: PolicyContext) -> Inject | None:
        message = ctx.message
        if message is None or message.text != "rude":
            return None
        return Inject(msgspec.structs.replace(message, content=(Text("polite"),)))


class BrokenDelay:
    """A retry strategy that wants another attempt and cannot say when."""

    def should_retry(self, error: Exception, attempt: int) -> bool:
        return True

    def delay(self, attempt: int) -> float:
        raise RuntimeError("no idea")


def half_of(messages: Sequence[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
    return list(messages[-1:]) if overflow else None


RUNS: dict[str, dict[str, Any]] = {
    "a text": {"replies": ["ok"]},
    "nothing at all": {"replies": [[]]},
    "thinking, text and calls": {"replies": [think("hm") + text("so") + call("add", a=1, b=2), "3"]},
    "a batch": {"replies": [reply(*[call("add", a=n, b=n) for n in range(5)]), "ok"]},
    "calls one after another": {
        "replies": [reply(*[call("add", a=n, b=n) for n in range(3)]), "ok"],
        "tool_execution": "sequential",
    },
    "an unknown tool": {"replies": [call("unheard_of"), "ok"]},
    "invalid arguments": {"replies": [call("add", a="x"), "ok"]},
    "an approval": {"replies": [call("send", to="x") + call("add", a=1, b=2), "ok"], "approve": lambda request: True},
    "a rejection": {"replies": [call("send", to="x") + call("add", a=1, b=2), "ok"]},
    "a truncated call": {"replies": [truncated(call("add", a=1, b=2), call("add", a=1, b=2)), "ok"]},
    "a truncated text": {"replies": [truncated("abcdef")]},
    "retries": {"replies": [text("a") + fail("network"), think("b") + fail("throttled"), "ok"]},
    "retries to no avail": {"replies": [text("a") + fail("network")] * 3},
    "a retry strategy that fails": {"replies": [text("a") + fail("network")], "retry_strategy": BrokenDelay()},
    "a fallback": {
        "replies": [text("a") + fail("network")] * 3,
        "fallbacks": [("b:c", scripted(text("x") + fail("network"), "ok"))],
    },
    "an overflow": {
        "replies": [text("a") + fail("context_overflow"), "ok"],
        "messages": ["one", "two"],
        "transform_context": half_of,
    },
    "an overflow to no avail": {"replies": [text("a") + fail("context_overflow")], "transform_context": half_of},
    "an error": {"replies": [think("hm") + text("half") + call("add", a=1, b=2) + fail("auth")]},
    "a stop before a turn": {"replies": ["ok"], "policies": [Policy("pre_turn", Stop("no"))]},
    "a stop after a turn": {"replies": ["ok"], "policies": [Policy("post_turn", Stop("no"))]},
    "a stop before a dispatch": {
        "replies": [call("add", a=1, b=2)],
        "policies": [Policy("pre_dispatch", Stop("no"))],
    },
    "a stop after the loop": {"replies": ["ok"], "policies": [Policy("post_loop", Stop("no"))]},
    "a skipped call": {
        "replies": [call("add", a=1, b=2) + call("add", a=3, b=4), "ok"],
        "policies": [Policy("pre_dispatch", Skip("no"))],
    },
    "an injection before a turn": {"replies": ["ok"], "policies": [Policy("pre_turn", Inject("also"))]},
    "an injection after a turn": {"replies": ["ok", "ok"], "policies": [Policy("post_turn", Inject("also"))]},
    "an injection after the loop": {"replies": ["ok", "ok"], "policies": [Policy("post_loop", Inject("also"))]},
    "a reply that a policy replaces": {"replies": ["rude"], "policies": [Replace()]},
    "an abort before the first turn": {"replies": ["ok"], "abort_at": AgentStart},
    "an abort at the start of a turn": {"replies": ["ok"], "abort_at": TurnStart},
    "an abort inside a reply": {"replies": [text("a") + stall()], "abort_at": MessageUpdate},
    "an abort at the end of a reply": {"replies": [call("add", a=1, b=2)], "abort_at": MessageEnd},
    "an abort at the end of a failed reply": {"replies": [fail("auth")], "abort_at": MessageEnd},
    "an abort while an approval is asked for": {"replies": [call("send", to="x")], "abort_at": ToolApprovalRequested},
    "an abort when a tool starts": {"replies": [call("add", a=1, b=2)], "abort_at": ToolExecutionStart},
    "an abort when a tool has ended": {
        "replies": [call("wait") + call("add", a=1, b=2)],
        "abort_at": ToolExecutionEnd,
    },
    "an abort during a retry": {"replies": [text("a") + fail("network")], "abort_at": MessageRetry},
    "an abort at the end of a turn": {"replies": [call("add", a=1, b=2)], "abort_at": TurnEnd},
    "an abort of what a policy has stopped": {
        "replies": [call("add", a=1, b=2)],
        "policies": [Policy("pre_dispatch", Stop("no"))],
        "abort_at": ToolExecutionEnd,
    },
}


@pytest.mark.table
@pytest.mark.parametrize("name", RUNS)
async def test_a_real_run_is_accepted(name: str) -> None:
    options = dict(RUNS[name])
    replies, abort_at = options.pop("replies"), options.pop("abort_at", None)
    options = {"tools": [add, send, wait], "sleep": FakeClock().sleep, **options}
    agent = Agent(MODEL, stream_fn=scripted(*replies, deltas=2), **options)
    if abort_at is not None:
        agent.subscribe(lambda event: agent.abort() if isinstance(event, abort_at) else None)
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)


async def test_a_run_that_was_steered_and_followed_up_is_accepted() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2) + call("wait"), "ok", "ok"), tools=[add, wait])
    agent.subscribe(lambda event: agent.steer("stop") if is_end_of(event, "add") else None)
    agent.follow_up("later")
    events = await collect(agent.prompt_stream("hi"))
    check_events(events)
    assert [event.source for event in events if isinstance(event, MessagesInjected)] == ["steering", "follow_up"]


def is_end_of(event: AgentEvent, name: str) -> bool:
    return isinstance(event, ToolExecutionEnd) and event.name == name


async def test_a_run_that_continues_is_accepted() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"), messages=["hi"])
    check_events(await collect(agent.continue_loop_stream()))


def test_the_events_may_come_from_any_iterable() -> None:
    check_events(iter(a_run()))
    check_events(tuple(a_run()))


# -- runs that were tampered with ----------------------------------------------------------------------------


@cache
def _a_run() -> tuple[AgentEvent, ...]:
    replies = [
        text("wrong") + fail("network"),
        think("hm") + text("so") + call("send", to="x").with_id("1") + call("add", a=1, b=2).with_id("2"),
        "done",
        "and more",
    ]
    agent = Agent(
        MODEL,
        stream_fn=scripted(*replies, deltas=2),
        tools=[add, send],
        approve=lambda request: True,
        sleep=FakeClock().sleep,
    )
    agent.follow_up("more?")

    async def run() -> Events:
        return await collect(agent.prompt_stream("hi"))

    return tuple(asyncio.run(run()))


def a_run() -> Events:
    """A run with a bit of everything: a retry, a batch, an approval, an update, a follow-up."""
    return list(_a_run())


def a_stopped_run() -> Events:
    agent = Agent(MODEL, stream_fn=scripted("ok"), policies=[Policy("post_turn", Stop("no"))])
    return asyncio.run(collect_from(agent))


def a_failed_run() -> Events:
    return asyncio.run(collect_from(Agent(MODEL, stream_fn=scripted(text("half") + fail("auth")))))


async def collect_from(agent: Agent) -> Events:
    return await collect(agent.prompt_stream("hi"))


def position(events: Events, kind: type[AgentEvent], number: int = 0) -> int:
    return [index for index, event in enumerate(events) if isinstance(event, kind)][number]


def altered(events: Events, kind: type[AgentEvent], number: int = 0, **fields: Any) -> Events:
    """The events with other fields in the n-th of a kind."""
    index = position(events, kind, number)
    return [*events[:index], msgspec.structs.replace(events[index], **fields), *events[index + 1 :]]


def without(events: Events, kind: type[AgentEvent], number: int = 0) -> Events:
    index = position(events, kind, number)
    return events[:index] + events[index + 1 :]


def moved(events: Events, index: int, to: int) -> Events:
    event = events[index]
    rest = events[:index] + events[index + 1 :]
    return [*rest[:to], event, *rest[to:]]


def inserted(events: Events, index: int, event: AgentEvent) -> Events:
    return [*events[:index], event, *events[index:]]


def found(events: Events, kind: type[E], number: int = 0) -> E:
    return [event for event in events if isinstance(event, kind)][number]


def test_the_run_that_is_tampered_with_has_a_bit_of_everything() -> None:
    check_events(a_run())
    kinds = set(names(a_run()))
    assert kinds >= {
        "MessageRetry",
        "MessagesInjected",
        "ToolApprovalRequested",
        "ToolApprovalResolved",
        "ToolExecutionStart",
        "ToolExecutionUpdate",
        "ToolExecutionEnd",
    }


def is_needed(event: AgentEvent) -> bool:
    """Whether its absence, or a second one, can be told from the rest: updates of tools come in any number."""
    return not isinstance(event, ToolExecutionUpdate)


def is_accepted(events: Events) -> bool:
    try:
        check_events(events)
    except AssertionError:
        return False
    return True


def test_no_event_can_be_missing() -> None:
    events = a_run()
    void = position(events, MessageRetry)  # what was streamed before it is void, so its loss changes nothing
    accepted = [
        (index, events[index])
        for index in range(len(events))
        if is_needed(events[index])
        and not (isinstance(events[index], MessageUpdate) and index < void)
        and is_accepted(events[:index] + events[index + 1 :])
    ]
    assert accepted == []


def test_no_event_can_come_twice() -> None:
    events = a_run()
    void = position(events, MessageRetry)
    accepted = [
        (index, events[index])
        for index in range(len(events))
        if is_needed(events[index])
        and not (isinstance(events[index], MessageUpdate) and index < void)
        and is_accepted(inserted(events, index, events[index]))
    ]
    assert accepted == []


def test_no_two_neighbours_can_change_places_but_those_of_two_calls_or_two_blocks() -> None:
    events = a_run()

    def may_change_places(first: AgentEvent, second: AgentEvent) -> bool:
        if isinstance(first, MessageUpdate) and isinstance(second, MessageUpdate):
            return first.delta.index != second.delta.index
        one, other = getattr(first, "call_id", None), getattr(second, "call_id", None)
        return one is not None and other is not None and one != other

    def are_void(index: int) -> bool:
        return index + 1 < position(events, MessageRetry)

    accepted = [
        (index, names(events[index : index + 2]))
        for index in range(len(events) - 1)
        if not may_change_places(events[index], events[index + 1])
        and not are_void(index)
        and events[index] != events[index + 1]
        and is_accepted([*events[:index], events[index + 1], events[index], *events[index + 2 :]])
    ]
    assert accepted == []


def test_no_run_is_complete_before_its_end() -> None:
    events = a_run()
    assert [length for length in range(len(events)) if is_accepted(events[:length])] == []


TAMPERINGS: dict[str, Callable[[], Events]] = {
    "no events": list,
    "two runs in one": lambda: a_run() + a_run(),
    "something after the end": lambda: [*a_run(), TurnStart(3)],
    "two ends": lambda: [*a_run(), a_run()[-1]],
    "a turn with the wrong number": lambda: altered(a_run(), TurnStart, 1, turn_index=0),
    "a turn that ends with the wrong number": lambda: altered(a_run(), TurnEnd, 1, turn_index=2),
    "a turn in a turn": lambda: inserted(a_run(), position(a_run(), MessageEnd), TurnStart(1)),
    "a turn after one that failed": lambda: [
        *a_failed_run()[:-1],
        TurnStart(1),
        *altered(a_run()[2:], TurnEnd, 0, turn_index=1),
    ],
    "a piece of text that was changed": lambda: altered(a_run(), MessageUpdate, -1, delta=TextDelta(0, "other")),
    "a message that says something else": lambda: altered(
        a_run(), MessageEnd, 1, message=AssistantMessage("other", "test", "model")
    ),
    "a failed message with calls": lambda: altered(
        a_run(),
        MessageEnd,
        0,
        message=msgspec.structs.replace(found(a_run(), MessageEnd).message, stop_reason=StopReason.ERROR),
    ),
    "two calls with one id": lambda: altered(
        a_run(),
        MessageEnd,
        0,
        message=msgspec.structs.replace(
            found(a_run(), MessageEnd).message, content=[ToolCall("1", "add"), ToolCall("1", "add")]
        ),
    ),
    "a turn that has lost its message": lambda: altered(a_run(), TurnEnd, 1, message=None),
    "a turn with calls that the message did not have": lambda: altered(
        a_run(), TurnEnd, 1, message=AssistantMessage([ToolCall("9", "add")])
    ),
    "a turn with tools that says complete": lambda: altered(a_run(), TurnEnd, 0, reason=TurnEndReason.COMPLETE),
    "a turn without tools that says they ran": lambda: altered(
        a_run(), TurnEnd, 1, reason=TurnEndReason.TOOLS_EXECUTED
    ),
    "a turn without tools that was interrupted in them": lambda: altered(
        a_run(), TurnEnd, 1, reason=TurnEndReason.STEERING_INTERRUPT
    ),
    "a good turn that says error": lambda: altered(a_run(), TurnEnd, 2, reason=TurnEndReason.ERROR),
    "a failed turn that says complete": lambda: altered(a_failed_run(), TurnEnd, 0, reason=TurnEndReason.COMPLETE),
    "a failed turn that says aborted": lambda: altered(a_failed_run(), TurnEnd, 0, reason=TurnEndReason.ABORTED),
    "results in the wrong order": lambda: altered(
        a_run(), TurnEnd, 0, tool_results=found(a_run(), TurnEnd).tool_results[::-1]
    ),
    "a result too few": lambda: altered(a_run(), TurnEnd, 0, tool_results=found(a_run(), TurnEnd).tool_results[:1]),
    "a result in a turn without calls": lambda: altered(
        a_run(), TurnEnd, 1, tool_results=found(a_run(), TurnEnd).tool_results[:1]
    ),
    "an end that is an error where the result is none": lambda: altered(a_run(), ToolExecutionEnd, 0, is_error=True),
    "the start of an unknown call": lambda: altered(a_run(), ToolExecutionStart, 0, call_id="9"),
    "the end of an unknown call": lambda: altered(a_run(), ToolExecutionEnd, 0, call_id="9"),
    "a call that starts twice": lambda: inserted(
        a_run(), position(a_run(), ToolExecutionStart) + 1, found(a_run(), ToolExecutionStart)
    ),
    "an update after the end": lambda: moved(
        a_run(), position(a_run(), ToolExecutionUpdate), position(a_run(), TurnEnd) - 1
    ),
    "a start after the end": lambda: moved(
        a_run(), position(a_run(), ToolExecutionStart, 1), position(a_run(), TurnEnd) - 1
    ),
    "a tool before its message": lambda: moved(
        a_run(), position(a_run(), ToolExecutionStart, 1), position(a_run(), MessageEnd)
    ),
    "a call that ran though it was rejected": lambda: altered(a_run(), ToolApprovalResolved, 0, approved=False),
    "an answer to another question": lambda: altered(a_run(), ToolApprovalResolved, 0, call_id="2"),
    "an approval when a tool has started already": lambda: moved(
        a_run(), position(a_run(), ToolExecutionStart, 1), position(a_run(), ToolApprovalRequested)
    ),
    "an end without a start, and a good result": lambda: without(a_run(), ToolExecutionStart, 1),
    "an end under another name": lambda: altered(a_run(), ToolExecutionEnd, 0, name="other"),
    "an end with another result than the turn": lambda: altered(
        a_run(), ToolExecutionEnd, 0, result=AgentToolResult.text("other")
    ),
    "an injection of nothing": lambda: altered(a_run(), MessagesInjected, 0, messages=()),
    "an injection of something else": lambda: altered(a_run(), MessagesInjected, 0, messages=(UserMessage("other"),)),
    "an injection after the message": lambda: moved(
        a_run(), position(a_run(), MessagesInjected), position(a_run(), MessageEnd, 2)
    ),
    "a compaction of nothing": lambda: inserted(a_run(), 2, ContextCompacted(CompactionReport(0, 9, 9))),
    "a plain compaction inside a message": lambda: inserted(
        a_run(), position(a_run(), MessageUpdate), ContextCompacted(CompactionReport(1, 9, 3))
    ),
    "a compaction after the message": lambda: inserted(
        a_run(), position(a_run(), MessageEnd) + 1, ContextCompacted(CompactionReport(1, 9, 3))
    ),
    "a retry outside a message": lambda: moved(a_run(), position(a_run(), MessageRetry), 1),
    "a first retry that says it is the second": lambda: altered(a_run(), MessageRetry, 0, attempt=2),
    "an end that has lost a message": lambda: altered(
        a_run(), AgentEnd, 0, messages=found(a_run(), AgentEnd).messages[:-1]
    ),
    "an end with a message too many": lambda: altered(
        a_run(), AgentEnd, 0, messages=(*found(a_run(), AgentEnd).messages, UserMessage("more"))
    ),
    "an end with its messages in another order": lambda: altered(
        a_run(), AgentEnd, 0, messages=found(a_run(), AgentEnd).messages[::-1]
    ),
    "a run that was stopped by nobody": lambda: altered(a_stopped_run(), AgentEnd, 0, stopped_by=None),
    "something that is no event": lambda: inserted(a_run(), 2, TextDelta(0, "x")),  # type: ignore[arg-type]
}


def test_a_run_that_was_tampered_with_is_rejected() -> None:
    assert len(TAMPERINGS) > 40
    assert [name for name, tamper in TAMPERINGS.items() if is_accepted(tamper())] == []


@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta, ToolCallDelta])
def test_a_message_is_the_sum_of_its_pieces_whatever_they_are_pieces_of(kind: type) -> None:
    events = a_run()
    index = [
        index
        for index, event in enumerate(events)
        if isinstance(event, MessageUpdate) and isinstance(event.delta, kind)
    ][-1]
    with pytest.raises(AssertionError):
        check_events(events[:index] + events[index + 1 :])


def test_the_rejection_names_the_event_and_where_it_stands() -> None:
    events = altered(a_run(), TurnEnd, 1, turn_index=7)
    index = position(events, TurnEnd, 1)
    with pytest.raises(AssertionError, match=rf"event {index}\b.*TurnEnd"):
        check_events(events)


def test_a_run_without_an_end_is_told_as_such() -> None:
    with pytest.raises(AssertionError, match="no AgentEnd"):
        check_events(a_run()[:-1])
