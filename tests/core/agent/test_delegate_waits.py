"""Calls that wait for an answer inside delegates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AgentToolResult,
    Approve,
    ApproveWith,
    AssistantMessage,
    Cost,
    Defer,
    DelegateEvent,
    NotPending,
    ProposedCall,
    Redactor,
    Reject,
    RunRecord,
    StopReason,
    ToolCall,
    ToolCallDeferred,
    ToolContext,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    decode_event,
    decode_message,
    encode_event,
    encode_message,
    extract_text,
    pending_calls,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, check_events, collect, names, scripted
from swink_agent.testing.script import Call, ModelRequest

USAGE, COST = Usage(input=10, output=1, total=11), Cost(input=0.25, total=0.25)
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    ran.clear()


@tool(requires_approval=True)
def refund(order: int, ctx: ToolContext) -> str:
    """Pays money back."""
    ctx.state["refunds"] = ctx.state.get("refunds", 0) + 1
    ran.append(f"refund {order}")
    return f"refunded {order}, number {ctx.state['refunds']}"


@tool(external=True)
def stamp(order: int) -> str:
    """Somebody stamps the order."""
    raise AssertionError("it never runs here")


def desk(*calls: Call, tools: Any = (refund, stamp), name: str = "desk") -> Any:
    """A delegate that makes these calls in one batch, and then says what it got."""

    def play(request: ModelRequest) -> Any:
        last = [message for message in request.messages if isinstance(message, ToolResultMessage)]
        return list(calls) if not last else " | ".join([extract_text(result.content) for result in last])

    agent = Agent("test:desk", stream_fn=scripted(*[play] * 40, usage=USAGE, cost=COST), tools=list(tools))
    return agent.as_tool(name, "Does it.")


def caller(*tools: Any, approve: Any = lambda request: Defer("ask Ada"), **arguments: Any) -> Agent:
    """An agent that calls each tool once, and then says what it got."""

    def play(request: ModelRequest) -> Any:
        last = [message for message in request.messages if isinstance(message, ToolResultMessage)]
        return (
            [call(made.name, prompt="go").with_id(f"call_{made.name}") for made in tools]
            if not last
            else " | ".join([extract_text(result.content) for result in last])
        )

    model = scripted(*[play] * 40, usage=USAGE, cost=COST)
    return Agent("test:caller", stream_fn=model, tools=tools, approve=approve, **arguments)


def again(agent: Agent, messages: Any) -> Agent:
    """The same agent in another process: it has the messages alone, from JSON."""
    read: list[AgentMessage] = [decode_message(encode_message(message)) for message in messages]
    return agent.replaced(messages=read)


def refunds(*orders: int) -> list[Call]:
    return [call("refund", order=order).with_id(f"r{order}") for order in orders]


def plain(messages: Any) -> list[Any]:
    """A history without times."""
    kept: list[Any] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            kept.append((message.tool_call_id, extract_text(message.content), message.outcome, message.is_error))
        else:
            kept.append((type(message).__name__, message.content))
    return kept


async def test_a_call_that_waits_in_a_delegate_waits_in_the_caller() -> None:
    agent = caller(desk(*refunds(17)))
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    result = agent.last_result
    assert result is not None
    assert (result.stop_reason, result.error) == ("tool_use", None)
    (waiting,) = result.pending
    assert (waiting.call_id, waiting.name, waiting.arguments) == ("call_desk/r17", "refund", {"order": 17})
    assert (waiting.kind, waiting.reason, waiting.delegates) == ("approval", "ask Ada", ("desk",))
    assert agent.pending == pending_calls(again(agent, agent.messages).messages) == result.pending
    deferred = [event for event in events if isinstance(event, ToolCallDeferred)]
    assert [(event.call_id, event.kind) for event in deferred] == [("call_desk", "delegate")]
    assert names(events)[-4:] == ["DelegateEvent", "ToolCallDeferred", "TurnEnd", "AgentEnd"]
    assert ran == []

    resumed = await collect(agent.resume_stream({"call_desk/r17": Approve()}))
    check_events(resumed)
    assert ran == ["refund 17"]
    assert agent.last_result is not None
    assert agent.last_result.text == "refunded 17, number 1"
    assert agent.pending == ()
    inner = [event.event for event in resumed if isinstance(event, DelegateEvent)]
    assert names(inner)[:4] == ["AgentStart", "TurnStart", "TurnResumed", "ToolApprovalResolved"]
    assert [decode_event(encode_event(event)) for event in resumed] == resumed


async def test_usage_counts_in_the_run_in_which_it_was_used() -> None:
    agent = caller(desk(*refunds(17)))
    events: list[AgentEvent] = []
    with agent.subscribe(events.append):
        first = await agent.prompt("go")
    assert first.total_usage.tokens == 2 * 11
    assert RunRecord.of(events).total_usage == first.total_usage
    events.clear()
    with agent.subscribe(events.append):
        second = await agent.resume({"call_desk/r17": True})
    assert second.total_usage.tokens == 2 * 11
    assert RunRecord.of(events).total_cost == second.total_cost
    assert agent.total_cost.amount == 1.0


async def at_once(tools: Callable[[], list[Any]], answers: Mapping[str, Any]) -> list[Any]:
    """The history of a run in which `approve` gave all answers itself."""
    agent = caller(*tools(), approve=lambda request: answers[request.call_id])
    await agent.prompt("go")
    return plain(agent.messages)


async def test_however_the_answers_are_split_the_history_is_that_of_one_run() -> None:
    def tools() -> list[Any]:
        return [desk(*refunds(1, 2)), desk(*refunds(3), name="other")]

    answers: dict[str, Any] = {"r1": Approve(), "r2": Reject("too late"), "r3": ApproveWith({"order": 4}, "it is 4")}
    whole = await at_once(tools, answers)
    assert sorted(ran) == ["refund 1", "refund 4"]
    path = {"r1": "call_desk/r1", "r2": "call_desk/r2", "r3": "call_other/r3"}
    for split in ([["r1", "r2", "r3"]], [["r1"], ["r2"], ["r3"]], [["r3"], ["r2", "r1"]], [["r2", "r3"], ["r1"]]):
        for elsewhere in (False, True):
            ran.clear()
            agent = caller(*tools())
            await agent.prompt("go")
            for part in split:
                if elsewhere:
                    agent = again(agent, agent.messages)
                events = await collect(agent.resume_stream({path[one]: answers[one] for one in part}))
                check_events(events)
            assert plain(agent.messages) == whole
            assert sorted(ran) == ["refund 1", "refund 4"]


async def test_it_works_to_any_depth_also_with_slashes_in_the_ids() -> None:
    lowest = desk(call("refund", order=5).with_id("a/b"), call("stamp", order=5).with_id("c"))
    middle = Agent(
        "test:middle",
        stream_fn=scripted(call("desk", prompt="go").with_id("x/y"), "the middle is done", usage=USAGE, cost=COST),
        tools=[lowest],
    )
    agent = Agent(
        "test:caller",
        stream_fn=scripted(call("middle", prompt="go").with_id("o/p"), "all is done", usage=USAGE, cost=COST),
        tools=[middle.as_tool("middle", "Does it.")],
        approve=lambda request: Defer(),
    )
    await agent.prompt("go")
    assert {one.call_id: (one.kind, one.delegates) for one in agent.pending} == {
        "o/p/x/y/a/b": ("approval", ("middle", "desk")),
        "o/p/x/y/c": ("external", ("middle", "desk")),
    }
    elsewhere = again(agent, agent.messages)
    events = await collect(elsewhere.resume_stream({"o/p/x/y/c": AgentToolResult.text("stamped")}))
    check_events(events)
    assert [one.call_id for one in elsewhere.pending] == ["o/p/x/y/a/b"]
    result = await elsewhere.resume({"o/p/x/y/a/b": True})
    assert result.text == "all is done"
    assert ran == ["refund 5"]


async def test_an_answer_that_could_be_for_two_calls_is_refused() -> None:
    one, two = desk(*refunds(1), name="one"), desk(call("refund", order=2).with_id("b/r1"), name="two")
    calls = [call("one", prompt="go").with_id("a/b"), call("two", prompt="go").with_id("a")]
    agent = Agent("test:m", stream_fn=scripted(calls), tools=[one, two], approve=lambda request: Defer())
    await agent.prompt("go")
    assert [waiting.call_id for waiting in agent.pending] == ["a/b/r1", "a/b/r1"]
    with pytest.raises(ValueError, match="it is unclear which"):
        await agent.resume({"a/b/r1": True})
    assert ran == []


async def test_a_call_with_the_id_of_one_inside_a_delegate_can_only_be_closed() -> None:
    calls = [call("desk", prompt="go").with_id("o"), call("refund", order=2).with_id("o/r1")]
    script = scripted(calls, "done")
    agent = Agent("test:m", stream_fn=script, tools=[desk(*refunds(1)), refund], approve=lambda request: Defer())
    await agent.prompt("go")
    assert [waiting.call_id for waiting in agent.pending] == ["o/r1", "o/r1"]
    with pytest.raises(ValueError, match=r"neither can be answered; prompt\(\) rejects both"):
        await agent.resume({"o/r1": True})
    assert (await agent.prompt("never mind")).text == "done"
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert [result.outcome for result in results] == [ToolOutcome.REJECTED] * 2
    assert ran == []


async def test_wrong_answers_are_refused_before_anything_happens() -> None:
    agent = caller(desk(*refunds(1), call("stamp", order=1).with_id("s")))
    await agent.prompt("go")
    before = list(agent.messages)
    for answers, kind in (
        ({}, ValueError),
        ({"call_desk": True}, NotPending),
        ({"r1": True}, NotPending),
        ({"call_desk/r1": True, "call_desk/r2": True}, NotPending),
        ({"call_desk/s": Approve()}, TypeError),
    ):
        with pytest.raises(kind):
            await agent.resume(answers)
    assert list(agent.messages) == before
    assert ran == []


async def test_another_run_closes_what_waits_inside() -> None:
    agent = caller(desk(*refunds(1)))
    await agent.prompt("go")
    result = await agent.prompt("never mind")
    assert isinstance(result.messages[0], ToolResultMessage)
    assert result.messages[0].outcome is ToolOutcome.REJECTED
    assert agent.pending == ()
    assert ran == []


async def test_the_state_of_a_delegate_that_waits_is_kept() -> None:
    agent = caller(desk(*refunds(1, 2)), approve=lambda request: Approve() if request.call_id == "r1" else Defer())
    await agent.prompt("go")
    assert ran == ["refund 1"]
    agent = again(agent, agent.messages)
    result = await agent.resume({"call_desk/r2": True})
    assert result.text == "refunded 1, number 1 | refunded 2, number 2"


async def test_a_tool_that_is_gone_is_unknown() -> None:
    agent = caller(desk(*refunds(1)))
    await agent.prompt("go")
    agent.tools = []
    await agent.resume({"call_desk/r1": True})
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert [result.outcome for result in results] == [ToolOutcome.UNKNOWN_TOOL]
    assert ran == []


def forged(outer: ToolCall, *inner: ToolCall) -> list[AgentMessage]:
    """A history that says that the outer call is one of a delegate, in which the inner calls wait."""
    asked = {"kind": "approval", "arguments": {"order": 1}}
    kept: list[AgentMessage] = [
        UserMessage("go"),
        AssistantMessage(inner, stop_reason=StopReason.TOOL_USE),
        *[ToolResultMessage(one.id, "waits", True, asked, one.name, outcome=ToolOutcome.PENDING) for one in inner],
    ]
    details = {
        "kind": "delegate",
        "arguments": outer.arguments,
        "messages": [json.loads(encode_message(message)) for message in kept],
    }
    return [
        UserMessage("go"),
        AssistantMessage([outer], stop_reason=StopReason.TOOL_USE),
        ToolResultMessage(outer.id, "waits", True, details, outer.name, outcome=ToolOutcome.PENDING),
    ]


@pytest.mark.parametrize("answer", [Approve(), Reject("no"), AgentToolResult.text("given")])
async def test_only_a_delegate_goes_on_inside(answer: Any) -> None:
    """A forged or outdated history does not run another tool, whatever the answer to the call inside is."""
    history = forged(ToolCall("o", "refund", {"order": 99}), ToolCall("q", "stamp", {"order": 1}))
    agent = Agent("test:m", stream_fn=scripted("done"), tools=[refund], messages=history)
    assert [one.call_id for one in agent.pending] == ["o/q"]
    events = await collect(agent.resume_stream({"o/q": answer}))
    check_events(events)
    assert ran == []
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.outcome is ToolOutcome.REJECTED
    assert "this tool is not a delegate" in extract_text(result.content)


async def test_a_later_call_with_the_same_id_begins_anew() -> None:
    """What a delegate was to go on with is for the answered call alone, also if that one did not run."""
    history = forged(ToolCall("o", "desk", {}), ToolCall("r1", "refund", {"order": 1}))
    script = scripted(call("desk", prompt="again").with_id("o"), "done")
    agent = Agent("test:m", stream_fn=script, tools=[desk()], messages=history, approve=lambda request: Reject())
    await agent.resume({"o/r1": Approve()})
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert [result.outcome for result in results] == [ToolOutcome.INVALID, ToolOutcome.RAN]
    assert ran == []


async def test_steering_and_aborts_cancel_what_waits_inside() -> None:
    is_waiting = asyncio.Event()

    @tool
    async def endless() -> str:
        is_waiting.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    agent = caller(desk(*refunds(1), call("endless"), tools=[refund, endless]))
    events: list[AgentEvent] = []
    with agent.subscribe(events.append):
        running = asyncio.ensure_future(agent.prompt("go"))
        await is_waiting.wait()
        agent.abort()
        result = await running
    check_events(events)
    assert result.pending == ()
    assert result.total_usage.tokens == 2 * 11
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert [one.outcome for one in results] == [ToolOutcome.CANCELLED]


# -- sessions --------------------------------------------------------------------------------------------------


async def test_a_session_counts_a_delegate_once_if_its_call_waited_and_was_then_cancelled(tmp_path: Path) -> None:
    @tool
    async def endless(prompt: str) -> str:
        """Waits until it is stopped."""
        await asyncio.Event().wait()
        return "never"

    def abort_when_it_waits(event: AgentEvent) -> None:
        if isinstance(event, ToolCallDeferred):
            agent.abort()

    agent = caller(desk(*refunds(1)), endless)
    live = RunRecord()
    store = JsonlSessionStore(tmp_path)
    with store.create() as session, agent.subscribe(live.feed), agent.subscribe(abort_when_it_waits):
        session.attach(agent)
        result = await agent.prompt("go")
        assert session.info.usage == result.total_usage
    assert result.total_usage.tokens == 2 * 11
    assert [one.outcome for one in live.calls] == [ToolOutcome.CANCELLED] * 2
    loaded = store.load(session.id)
    assert loaded.info.usage == store.list()[0].usage == result.total_usage
    assert loaded.info.cost == result.total_cost
    assert loaded.runs() == (live,)


async def test_a_session_keeps_what_waits_inside_and_another_process_goes_on(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    made = desk(*refunds(1, 2))
    agent = caller(made)
    with store.create() as session:
        session.attach(agent)
        first = await agent.prompt("go")
    assert store.load(session.id).info.usage == first.total_usage
    assert [one.call_id for one in pending_calls(store.load(session.id).messages)] == ["call_desk/r1", "call_desk/r2"]
    for step, answers in enumerate([{"call_desk/r2": True}, {"call_desk/r1": True}]):
        agent = caller(made)
        events: list[AgentEvent] = []
        with store.open(session.id) as session:
            session.attach(agent)
            with agent.subscribe(events.append):
                result = await agent.resume(answers)
        check_events(events)
        assert ran == ["refund 2", "refund 1"][: step + 1]
        assert store.load(session.id).runs()[-1] == RunRecord.of(events)
    assert result.text == "refunded 1, number 2 | refunded 2, number 1"
    loaded = store.load(session.id)
    assert pending_calls(loaded.messages) == ()
    assert loaded.info.usage.tokens == agent_tokens(loaded.runs())
    for form in ("markdown", "html", "json"):
        assert store.export(session.id, form)


def agent_tokens(runs: Any) -> int:
    return sum(run.total_usage.tokens for run in runs)


async def test_calls_masked_on_disk_do_not_run_inside_a_delegate(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.learn("hunter2secret", "password")

    @tool(requires_approval=True)
    def login(password: str) -> str:
        ran.append(password)
        return "in"

    made = desk(call("login", password="hunter2secret").with_id("l"), tools=[login])
    store = JsonlSessionStore(tmp_path)
    agent = caller(made, redactor=redactor)
    with store.create() as session:
        session.attach(agent)
        await agent.prompt("go")
        assert "hunter2secret" not in session.path.read_text()
    other = caller(made, redactor=redactor)
    with store.open(session.id) as session:
        session.attach(other)
        await other.resume({"call_desk/l": True})
    assert ran == []
    await agent.resume({"call_desk/l": True})  # in this process nothing was masked
    assert ran == ["hunter2secret"]


# -- tool options ----------------------------------------------------------------------------------------------


async def test_a_timeout_ends_a_delegate_and_fails_the_call() -> None:
    @tool
    async def endless() -> str:
        await asyncio.get_running_loop().create_future()
        return "never"

    research = Agent("test:m", stream_fn=scripted(call("endless"), usage=USAGE), tools=[endless])
    agent = caller(research.as_tool("research", "Looks.", timeout=0.05))
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.outcome is ToolOutcome.FAILED
    assert "timed out after 0.05 s" in extract_text(result.content)
    assert agent.last_result is not None
    assert agent.last_result.total_usage.tokens == 3 * 11


async def test_max_concurrent_holds_for_delegates_and_does_not_count_the_way() -> None:
    most = now = 0

    @tool(max_concurrent=1)
    async def alone() -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return "alone"

    def inner(name: str) -> Any:
        agent = Agent("test:m", stream_fn=scripted([call("alone"), call("alone")], "x"), tools=[alone])
        return agent.as_tool(name, "Looks.")

    agent = caller(inner("one"), inner("two"))
    check_events(await collect(agent.prompt_stream("go")))
    assert most == 1


async def test_a_call_that_lost_its_turn_to_another_delegate_hears_of_the_next_one() -> None:
    @tool(max_concurrent=1)
    async def alone() -> str:
        await asyncio.sleep(0.01)
        return "alone"

    def inner(name: str, calls: int) -> Any:
        agent = Agent("test:m", stream_fn=scripted([call("alone")] * calls, "x"), tools=[alone])
        return agent.as_tool(name, "Looks.")

    agent = caller(inner("one", 3), inner("two", 3), inner("three", 3))
    async with asyncio.timeout(60):
        result = await agent.prompt("go")
    assert result.text == "x | x | x"


async def test_a_recursive_delegate_that_runs_once_at_a_time_does_not_block_itself() -> None:
    def play(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return extract_text(last.content) if isinstance(last, ToolResultMessage) else call("again", prompt="deeper")

    agent = Agent("test:m", stream_fn=scripted(*[play] * 20))
    agent.tools = [agent.as_tool("again", "Itself.", max_concurrent=1, max_depth=2)]
    async with asyncio.timeout(60):
        result = await agent.prompt("go")
    assert "inside 3 delegates" in result.text


async def test_the_question_names_the_delegate_that_proposes_the_call() -> None:
    asked: list[ProposedCall] = []

    def approve(request: ProposedCall) -> Defer:
        asked.append(request)
        return Defer()

    agent = caller(desk(*refunds(1)), approve=approve)
    await agent.prompt("go")
    assert [request.delegates for request in asked] == [("desk",)]
