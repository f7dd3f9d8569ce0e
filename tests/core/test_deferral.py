"""Calls that wait for an answer: deferred by `approve` or run outside, answered later, closed by any other run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentLoopConfig,
    AgentStart,
    AgentToolResult,
    Approve,
    ApproveWith,
    AssistantMessage,
    Defer,
    Inject,
    InvalidContinue,
    ModelSpec,
    NotPending,
    PendingCall,
    PolicyContext,
    PreDispatchContext,
    ProposedCall,
    Redactor,
    Reject,
    RunRecord,
    Skip,
    Stop,
    StopReason,
    StructuredOutputFailed,
    Text,
    ToolApprovalResolved,
    ToolCall,
    ToolCallDeferred,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    TurnResumed,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    agent_loop_resume,
    decode_event,
    decode_message,
    encode_event,
    encode_message,
    pending_calls,
    tool,
)
from swink_agent.core.secrets.masking import masked
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, check_conversation, check_events, names, reply, scripted

RAN, PENDING, REJECTED = ToolOutcome.RAN, ToolOutcome.PENDING, ToolOutcome.REJECTED
CANCELLED, INVALID = ToolOutcome.CANCELLED, ToolOutcome.INVALID


class Shop:
    """The tools of an application, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.grants: list[Any] = []

    @tool(requires_approval=True)
    def refund(self, order: int, ctx: ToolContext) -> str:
        self.done.append(f"refund {order}")
        self.grants.append(ctx.grant)
        return f"refunded {order}"

    @tool
    def look(self, order: int) -> str:
        self.done.append(f"look {order}")
        return f"order {order}"

    @tool(external=True)
    def ship(self, order: int) -> str:
        """Ships an order."""
        raise AssertionError("it runs outside")

    @property
    def tools(self) -> list[Any]:
        return [self.refund, self.look, self.ship]


REPLY = reply(call("refund", order=1), call("look", order=1), call("ship", order=1), call("refund", order=2))


def later(request: ProposedCall) -> Defer:
    return Defer(f"ask Ada about {request.arguments['order']}")


def shop_agent(*script: Any, approve: Any = later, **options: Any) -> tuple[Agent, Shop, list[AgentEvent]]:
    shop = options.pop("shop", None) or Shop()
    options.setdefault("tools", shop.tools)
    agent = Agent("test:model", stream_fn=scripted(*script), approve=approve, **options)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return agent, shop, events


def outcomes(agent: Agent) -> list[ToolOutcome]:
    return [message.outcome for message in agent.messages if isinstance(message, ToolResultMessage)]


def texts(agent: Agent) -> list[str]:
    """The texts of all messages, to compare histories without their times."""
    return [
        "".join(getattr(block, "text", getattr(block, "name", "")) for block in message.content)
        for message in agent.messages
        if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage))
    ]


# -- a run that waits --------------------------------------------------------------------------------------------


async def test_the_run_ends_with_what_waits_and_the_rest_of_the_batch_has_run() -> None:
    agent, shop, events = shop_agent(REPLY, "done")
    agent.follow_up("and then?")
    result = await agent.prompt("Refund order 1")
    first, _, third, fourth = [call.id for call in _reply(agent).tool_calls]
    assert result.pending == (
        PendingCall(first, "refund", {"order": 1}, "approval", "ask Ada about 1"),
        PendingCall(third, "ship", {"order": 1}, "external"),
        PendingCall(fourth, "refund", {"order": 2}, "approval", "ask Ada about 2"),
    )
    assert agent.pending == pending_calls(agent.messages) == result.pending
    assert (result.stop_reason, result.error) == (StopReason.TOOL_USE, None)
    assert outcomes(agent) == [PENDING, RAN, PENDING, PENDING]
    assert all(m.is_error for m in result.messages if isinstance(m, ToolResultMessage) and m.outcome is PENDING)
    assert shop.done == ["look 1"]
    assert agent.has_queued_messages, "follow-ups stay queued"
    assert names(events)[6:] == [
        *("MessageUpdate", "MessageEnd", "ToolApprovalRequested", "ToolCallDeferred", "ToolApprovalRequested"),
        *("ToolCallDeferred", "ToolCallDeferred", "ToolExecutionStart", "ToolExecutionEnd", "TurnEnd", "AgentEnd"),
    ]
    assert [event.reason for event in events if isinstance(event, TurnEnd)] == [TurnEndReason.PENDING]
    assert [event for event in events if isinstance(event, ToolCallDeferred)][2] == ToolCallDeferred(
        third, "ship", {"order": 1}, "external"
    )
    check_events(events)


def _reply(agent: Agent) -> AssistantMessage:
    return next(m for m in reversed(agent.messages) if isinstance(m, AssistantMessage) and m.tool_calls)


def test_a_pending_call_is_json_and_its_repr_hides_values() -> None:
    waiting = PendingCall("a/b", "refund", {"card": "4111"}, "approval", "why", {"in": "/"}, ("research",))
    assert json.loads(msgspec.json.encode(waiting))["delegates"] == ["research"]
    assert msgspec.json.decode(msgspec.json.encode(waiting), type=PendingCall) == waiting
    assert "4111" not in repr(waiting)
    assert "card" in repr(waiting)


async def test_post_loop_policies_are_not_asked_while_calls_wait() -> None:
    asked: list[str] = []

    class Watch:
        def post_loop(self, ctx: PolicyContext, /) -> None:
            asked.append("post_loop")

        def post_turn(self, ctx: PolicyContext, /) -> None:
            asked.append("".join(sorted({str(result.outcome) for result in ctx.tool_results})))

    agent, _, _ = shop_agent(call("refund", order=1), "done", policies=[Watch()])
    result = await agent.prompt("go")
    assert asked == ["pending"]
    await agent.resume({result.pending[0].call_id: True})
    assert asked == ["pending", "ran", "", "post_loop"]


async def test_calls_with_invalid_arguments_do_not_wait() -> None:
    agent, _, events = shop_agent(
        reply(call("refund", order="x"), call("ship", order="x")), "done", approve=lambda _: Defer()
    )
    result = await agent.prompt("go")
    assert result.pending == ()
    assert outcomes(agent) == [INVALID, INVALID]
    check_events(events)


async def test_an_approval_of_an_external_call_makes_it_wait_for_its_result() -> None:
    @tool(external=True, requires_approval=True)
    def ship(order: int) -> str:
        """Ships."""
        raise AssertionError

    agent, _, events = shop_agent(call("ship", order=1), "done", tools=[ship])
    result = await agent.prompt("go")
    assert [one.kind for one in result.pending] == ["approval"]
    events.clear()
    result = await agent.resume({result.pending[0].call_id: Approve()})
    assert [one.kind for one in result.pending] == ["external"]
    check_events(events)
    result = await agent.resume({result.pending[0].call_id: AgentToolResult.text("shipped")})
    assert (result.text, agent.pending) == ("done", ())


async def test_messages_injected_meanwhile_enter_when_nothing_waits() -> None:
    class Remarks:
        def pre_dispatch(self, ctx: PreDispatchContext, /) -> Inject:
            return Inject([f"about {ctx.name} {ctx.arguments['order']}"])

    calls = reply(call("refund", order=1), call("look", order=1), call("refund", order=2))
    at_once, _, _ = shop_agent(calls, "done", policies=[Remarks()], approve=lambda _: True)
    await at_once.prompt("go")
    agent, _, events = shop_agent(calls, "done", policies=[Remarks()])
    first, second = (await agent.prompt("go")).pending
    check_events(events)
    record = RunRecord.of(events)
    assert record.messages[-3:] == tuple(agent.messages)[-3:]
    other = agent.replaced(messages=[decode_message(encode_message(message)) for message in agent.messages])
    for one in (second, first):
        events.clear()
        with other.subscribe(events.append):
            await other.resume({one.call_id: True})
        check_events(events)
    assert texts(other) == texts(at_once)
    assert texts(other)[-4:] == ["about refund 1", "about look 1", "about refund 2", "done"]


# -- answers -----------------------------------------------------------------------------------------------------


async def test_resume_answers_some_and_the_rest_waits_on() -> None:
    agent, shop, events = shop_agent(REPLY, "done")
    history = list(agent.messages)
    first = await agent.prompt("go")
    ids = [one.call_id for one in first.pending]
    events.clear()
    second = await agent.resume({ids[2]: False})
    assert (second.pending, second.stop_reason) == ((first.pending[0], first.pending[1]), StopReason.TOOL_USE)
    assert [m.outcome for m in second.messages if isinstance(m, ToolResultMessage)] == [REJECTED]
    assert names(events) == [
        *("AgentStart", "TurnStart", "TurnResumed", "ToolApprovalResolved", "ToolExecutionEnd", "TurnEnd", "AgentEnd"),
    ]
    resumed = next(event for event in events if isinstance(event, TurnResumed))
    assert (resumed.message, resumed.pending) == (_reply(agent), first.pending)
    check_events(events)
    events.clear()
    third = await agent.resume({ids[1]: AgentToolResult.text("shipped"), ids[0]: Approve()})
    results = [message for message in third.messages if isinstance(message, ToolResultMessage)]
    assert [result.tool_call_id for result in results] == [ids[0], ids[1]], "in call order"
    assert third.text == "done"
    assert outcomes(agent) == [RAN, RAN, RAN, REJECTED]
    assert shop.done == ["look 1", "refund 1"]
    assert agent.pending == ()
    check_events(events)
    turn = next(event for event in events if isinstance(event, TurnEnd))
    assert turn.tool_results == tuple(results), "this run's results alone"
    assert not history


async def test_the_ways_to_resume_are_the_same() -> None:
    for way in ("resume", "resume_stream", "resume_sync"):
        agent, shop, _ = shop_agent(call("refund", order=1), "done")
        pending = (await agent.prompt("go")).pending
        if way == "resume":
            result = await agent.resume({pending[0].call_id: True})
        elif way == "resume_sync":
            result = await asyncio.to_thread(agent.resume_sync, {pending[0].call_id: True})
        else:
            async with agent.resume_stream({pending[0].call_id: True}) as stream:
                check_events([event async for event in stream])
                result = await stream.result()
        assert (result.text, shop.done) == ("done", ["refund 1"])


async def test_an_approved_call_runs_with_the_scope_that_was_shown() -> None:
    seen: list[Any] = []

    class Scoped:
        name = label = description = "write"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = True

        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"folder": f"/{len(seen)}"}

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
            seen.append(ctx.grant)
            return AgentToolResult.text("written")

    agent, _, _ = shop_agent(call("write", path="a"), "done", tools=[Scoped()], approve=lambda _: Defer())
    (waiting,) = (await agent.prompt("go")).pending
    assert waiting.scope == {"folder": "/0"}
    await agent.resume({waiting.call_id: True})
    assert (seen[0].arguments, seen[0].scope) == ({"path": "a"}, {"folder": "/0"})


async def test_a_policy_that_changes_approved_arguments_has_the_call_rejected() -> None:
    class Changes:
        amount = 0

        def pre_dispatch(self, ctx: PreDispatchContext, /) -> None:
            ctx.arguments["order"] += self.amount

    policy = Changes()
    agent, shop, events = shop_agent(call("refund", order=1), "done", policies=[policy])
    (waiting,) = (await agent.prompt("go")).pending
    policy.amount = 1
    events.clear()
    await agent.resume({waiting.call_id: Approve()})
    assert (outcomes(agent), shop.done) == ([REJECTED], [])
    check_events(events)


async def test_changes_of_a_policy_before_the_question_are_what_runs() -> None:
    class Fixes:
        def pre_dispatch(self, ctx: PreDispatchContext, /) -> None:
            ctx.arguments["order"] = 7

    agent, shop, _ = shop_agent(call("refund", order=1), "done", policies=[Fixes()])
    (waiting,) = (await agent.prompt("go")).pending
    assert waiting.arguments == {"order": 7}
    await agent.resume({waiting.call_id: True})
    assert shop.done == ["refund 7"]


async def test_policies_can_still_skip_or_stop_an_approved_call() -> None:
    class Closed:
        is_closed = False

        def pre_dispatch(self, ctx: PreDispatchContext, /) -> Skip | None:
            return Skip("closed") if self.is_closed else None

    policy = Closed()
    agent, shop, events = shop_agent(call("refund", order=1), "done", policies=[policy])
    (waiting,) = (await agent.prompt("go")).pending
    policy.is_closed = True
    events.clear()
    await agent.resume({waiting.call_id: True})
    assert (outcomes(agent), shop.done) == ([ToolOutcome.SKIPPED], [])
    check_events(events)


async def test_other_arguments_pass_policies_scope_and_validation() -> None:
    agent, shop, _ = shop_agent(reply(call("refund", order=1), call("refund", order=2)), "done")
    first, second = (await agent.prompt("go")).pending
    fits = {first.call_id: ApproveWith({"order": 5}, "order 5 was meant")}
    with pytest.raises(ValueError, match='"order" is a required property'):
        await agent.resume({**fits, second.call_id: ApproveWith({})})
    assert (shop.done, agent.pending) == ([], (first, second))
    await agent.resume({**fits, second.call_id: Reject()})
    assert shop.done == ["refund 5"]
    assert shop.grants[0].arguments == {"order": 5}
    assert outcomes(agent) == [RAN, ToolOutcome.REJECTED]
    assert "order 5 was meant" in texts(agent)[2]


async def test_a_tool_that_is_gone_is_unknown() -> None:
    agent, _, events = shop_agent(call("refund", order=1), "done")
    (waiting,) = (await agent.prompt("go")).pending
    agent.tools = []
    events.clear()
    await agent.resume({waiting.call_id: True})
    assert outcomes(agent) == [ToolOutcome.UNKNOWN_TOOL]
    check_events(events)


async def test_a_given_result_is_masked_and_an_error_has_failed() -> None:
    agent, _, _ = shop_agent(reply(call("ship", order=1), call("ship", order=2)), "done")
    first, second = (await agent.prompt("go")).pending
    token = "ghp_" + "a1B2" * 9
    await agent.resume({first.call_id: AgentToolResult.text(token), second.call_id: AgentToolResult.error("broken")})
    assert outcomes(agent) == [RAN, ToolOutcome.FAILED]
    assert token not in "".join(texts(agent))


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({}, ValueError),
        ({"none": True}, NotPending),
        ({"refund": True, "none": True}, NotPending),
        ({"refund": "yes"}, TypeError),
        ({"refund": Defer()}, TypeError),
        ({"ship": True}, TypeError),
        ({"ship": Approve()}, TypeError),
        ({"ship": ApproveWith({})}, TypeError),
        ({"refund": True, "ship": "shipped"}, TypeError),
        ({"ship": AgentToolResult.text(3)}, TypeError),  # type: ignore[arg-type]
        ({"refund": AgentToolResult((Text(3),))}, TypeError),  # type: ignore[arg-type]
        ({"refund": ApproveWith("x")}, TypeError),  # type: ignore[arg-type]
        ({"refund": ApproveWith({"order": 1}, 3)}, TypeError),  # type: ignore[arg-type]
    ],
)
@pytest.mark.table
async def test_wrong_answers_are_refused_before_anything_happens(answers: Mapping[str, Any], error: type) -> None:
    agent, shop, events = shop_agent(REPLY, "done")
    waiting = {one.name: one.call_id for one in reversed((await agent.prompt("go")).pending)}
    before = list(agent.messages)
    events.clear()
    given = {waiting.get(name, name): answer for name, answer in answers.items()}
    for resume in (agent.resume_sync, agent.resume_stream):
        with pytest.raises(error) as raised:
            resume(given)
        if error is NotPending:
            assert raised.value.call_ids == ("none",)
    context = AgentContext("", agent.messages, shop.tools)
    with pytest.raises(error):
        agent_loop_resume(given, context, agent.config)
    assert (list(agent.messages), events, shop.done) == (before, [], ["look 1"])


@pytest.mark.parametrize("answers", [None, [("refund", True)], "refund"])
async def test_answers_that_are_not_a_mapping_are_refused_and_never_continue(answers: Any) -> None:
    agent, _, _ = shop_agent(call("refund", order=1))
    await agent.prompt("go")
    agent.messages.append(UserMessage("and then?"))  # now `continue_loop` would run
    for resume in (agent.resume_sync, agent.resume_stream):
        with pytest.raises(TypeError, match="mapping"):
            resume(answers)


async def test_arguments_that_are_not_an_object_are_named() -> None:
    agent, _, _ = shop_agent(call("refund", order=1))
    (waiting,) = (await agent.prompt("go")).pending
    says = r"^ApproveWith.arguments for the call '\w+' of refund must be a dict, not a str$"
    with pytest.raises(TypeError, match=says):
        await agent.resume({waiting.call_id: ApproveWith("x")})  # type: ignore[arg-type]


async def test_an_answered_call_does_not_wait() -> None:
    agent, shop, _ = shop_agent(REPLY, "done")
    waiting = (await agent.prompt("go")).pending
    await agent.resume({waiting[0].call_id: True})
    with pytest.raises(NotPending):
        await agent.resume({waiting[0].call_id: True, waiting[1].call_id: AgentToolResult()})
    assert shop.done == ["look 1", "refund 1"]


# -- closing -----------------------------------------------------------------------------------------------------


async def test_a_prompt_closes_what_waits() -> None:
    agent, shop, events = shop_agent(REPLY, "never mind", "bye")
    ids = [one.call_id for one in (await agent.prompt("go")).pending]
    before = list(agent.messages)
    events.clear()
    result = await agent.prompt("forget it")
    closed = result.messages[:3]
    assert [m.outcome for m in closed if isinstance(m, ToolResultMessage)] == [REJECTED] * 3
    assert [m.tool_call_id for m in closed if isinstance(m, ToolResultMessage)] == ids
    assert names(events)[:5] == ["AgentStart", *["ToolExecutionEnd"] * 3, "TurnStart"]
    assert outcomes(agent) == [REJECTED, RAN, REJECTED, REJECTED]
    assert len(agent.messages) == len(before) + len(result.messages) - 3
    assert (agent.pending, shop.done) == ((), ["look 1"])
    check_events(events)
    record = RunRecord.of(events)
    assert (len(record.turns), record.calls, record.messages) == (1, (), result.messages)


async def test_continue_alone_is_refused_and_with_a_message_closes() -> None:
    agent, _, events = shop_agent(REPLY, "fine", "bye")
    first, second, third = (await agent.prompt("go")).pending
    waiting = f"'{first.call_id}' (refund), '{second.call_id}' (ship), '{third.call_id}' (refund)"
    says = re.escape(f"calls wait for an answer: {waiting}; resume() with answers, or prompt()")
    with pytest.raises(InvalidContinue, match=says):
        await agent.continue_loop()
    with pytest.raises(InvalidContinue, match=says):
        agent_loop_continue(
            AgentContext("", agent.messages, agent.tools), AgentLoopConfig(model=agent.model, stream_fn=scripted("x"))
        )
    assert len(agent.pending) == 3
    events.clear()
    agent.messages.append(UserMessage("forget it"))
    assert agent.pending == ()
    result = await agent.continue_loop()
    assert outcomes(agent) == [REJECTED, RAN, REJECTED, REJECTED]
    assert [type(message).__name__ for message in result.messages] == [*["ToolResultMessage"] * 3, "AssistantMessage"]
    check_events(events)


async def test_a_queued_message_lets_continue_close() -> None:
    agent, _, events = shop_agent(REPLY, "fine")
    await agent.prompt("go")
    agent.follow_up("go on without")
    events.clear()
    await agent.continue_loop()
    assert outcomes(agent) == [REJECTED, RAN, REJECTED, REJECTED]
    assert texts(agent)[-2:] == ["go on without", "fine"]
    check_events(events)


@pytest.mark.parametrize("how", ["steer", "abort"])
async def test_steering_during_the_batch_and_aborts_cancel_deferred_calls(how: str) -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    shop = Shop()
    agent, _, events = shop_agent(
        reply(call("refund", order=1), call("wait")), "fine", shop=shop, tools=[shop.refund, wait]
    )
    run = asyncio.create_task(agent.prompt("go"))
    await started.wait()
    agent.steer("stop") if how == "steer" else agent.abort()
    result = await run
    assert (outcomes(agent), result.pending, agent.pending) == ([CANCELLED, CANCELLED], (), ())
    check_events(events)


async def test_steering_that_came_while_everything_was_deferred_leads_the_next_turn() -> None:
    agent, _, events = shop_agent(call("refund", order=1), "fine", approve=None)

    def steer(request: ProposedCall) -> Defer:
        agent.steer("no, wait")
        return Defer()

    agent = agent.replaced(approve=steer)
    agent.subscribe(events.append)
    result = await agent.prompt("go")
    assert (outcomes(agent), result.text, result.pending) == ([CANCELLED], "fine", ())
    check_events(events)


async def test_steering_during_a_resumed_batch_also_ends_what_waits_on() -> None:
    started = asyncio.Event()

    @tool(requires_approval=True)
    async def wait(order: int) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    agent, _, events = shop_agent(reply(call("wait", order=1), call("wait", order=2)), "fine", tools=[wait])
    first, _ = (await agent.prompt("go")).pending
    events.clear()
    run = asyncio.create_task(agent.resume({first.call_id: True}))
    await started.wait()
    agent.steer("stop")
    result = await run
    assert (outcomes(agent), result.text, agent.pending) == ([CANCELLED, CANCELLED], "fine", ())
    check_events(events)


async def test_an_abort_of_a_resumed_run_leaves_the_rest_waiting() -> None:
    started = asyncio.Event()

    @tool(requires_approval=True)
    async def wait(order: int) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    agent, _, events = shop_agent(reply(call("wait", order=1), call("wait", order=2)), "fine", tools=[wait])
    first, second = (await agent.prompt("go")).pending
    events.clear()
    run = asyncio.create_task(agent.resume({first.call_id: True}))
    await started.wait()
    agent.abort()
    result = await run
    assert (result.stop_reason, agent.pending) == (StopReason.ABORTED, (second,))
    check_events(events)


@pytest.mark.parametrize("when", ["before the turn", "while its tools are made"])
async def test_after_an_abort_before_the_batch_the_answers_of_a_resumed_run_do_not_count(
    when: str, tmp_path: Path
) -> None:
    shop = Shop()
    is_resumed = False

    async def tools() -> list[Any]:
        if is_resumed and when == "while its tools are made":
            agent.abort()
            await asyncio.Event().wait()
        return shop.tools

    def watch(event: AgentEvent) -> None:
        if is_resumed and when == "before the turn" and isinstance(event, AgentStart):
            agent.abort()

    agent, _, events = shop_agent(REPLY, "done", tools=tools)
    agent.subscribe(watch)
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(agent)
        pending = (await agent.prompt("go")).pending
        events.clear()
        is_resumed = True
        result = await agent.resume({pending[0].call_id: True})
        assert names(events) == ["AgentStart", "TurnStart", "TurnResumed", "TurnEnd", "AgentEnd"]
        check_events(events)
        assert (result.stop_reason, result.messages, agent.pending) == (StopReason.ABORTED, (), pending)
        assert session.runs()[-1] == RunRecord.of(events)


async def test_a_policy_that_stops_the_run_ends_a_deferred_call() -> None:
    class StopsAtChanges:
        def pre_dispatch(self, ctx: PreDispatchContext) -> Stop | None:
            return Stop("no changes") if ctx.arguments == {"order": 3} else None

    def approve(request: ProposedCall) -> Any:
        return later(request) if request.arguments["order"] == 1 else ApproveWith({"order": 3})

    agent, shop, events = shop_agent(
        reply(call("refund", order=1), call("refund", order=2)), approve=approve, policies=[StopsAtChanges()]
    )
    result = await agent.prompt("go")
    assert result.stopped_by is not None
    assert (outcomes(agent), agent.pending, shop.done) == ([ToolOutcome.SKIPPED] * 2, (), [])
    check_events(events)


# -- histories ---------------------------------------------------------------------------------------------------


async def test_the_loop_alone_resumes_by_appending() -> None:
    shop = Shop()
    stream = scripted(REPLY, "done")
    config = AgentLoopConfig(model=ModelSpec("test", "model"), stream_fn=stream, approve=later)
    first = await agent_loop("go", AgentContext("", (), shop.tools), config).result()
    messages = list(first.messages)
    ids = [one.call_id for one in first.pending]
    answers: dict[str, Any] = {ids[0]: True, ids[1]: AgentToolResult.text("shipped"), ids[2]: Reject("no")}
    for call_id in reversed(ids):
        context = AgentContext("", messages, shop.tools)
        events = [event async for event in agent_loop_resume({call_id: answers[call_id]}, context, config)]
        check_events(events)
        end = events[-1]
        assert isinstance(end, AgentEnd)
        messages += end.messages
    assert pending_calls(messages) == ()
    assert shop.done == ["look 1", "refund 1"]
    sent = stream.requests[-1].messages
    check_conversation(sent)
    assert [m.outcome for m in sent if isinstance(m, ToolResultMessage)] == [RAN, RAN, RAN, REJECTED]


def test_results_take_only_the_places_of_pending_ones() -> None:
    asked = AssistantMessage([ToolCall("a", "look"), ToolCall("b", "look")], stop_reason=StopReason.TOOL_USE)
    waiting = ToolResultMessage(
        "a", "waits", True, {"kind": "approval", "arguments": {}}, "look", outcome=ToolOutcome.PENDING
    )
    given = ToolResultMessage("b", "there", tool_name="look")
    history = [UserMessage("go"), asked, waiting, given]
    assert [one.call_id for one in pending_calls(history)] == ["a"]
    again = [*history, ToolResultMessage("b", "another", tool_name="look")]
    assert [one.call_id for one in pending_calls(again)] == ["a"]
    assert pending_calls([*history, ToolResultMessage("a", "answered", tool_name="look")]) == ()
    assert pending_calls([*history, UserMessage("more")]) == ()
    assert pending_calls([waiting]) == (), "its reply is missing"


async def test_a_waiting_call_of_an_agent_made_from_messages_is_answered_in_what_is_sent() -> None:
    agent, shop, _ = shop_agent(REPLY)
    pending = (await agent.prompt("go")).pending
    stream = scripted("done")
    other = Agent("test:model", stream_fn=stream, tools=shop.tools, messages=list(agent.messages))
    await other.resume({one.call_id: Reject("no") for one in pending})
    check_conversation(stream.requests[0].messages)
    assert "waiting" not in str([m.content for m in stream.requests[0].messages])


async def test_compaction_touches_neither_the_reply_that_waits_nor_what_follows() -> None:
    def drop_all(messages: list[Any], overflow: bool) -> list[Any]:
        return []

    agent, _, _ = shop_agent("hello", REPLY, "done", transform_context=None)
    await agent.prompt("hi")
    pending = (await agent.prompt("go")).pending
    stream = scripted("done")
    other = agent.replaced(transform_context=drop_all, stream_fn=stream)
    report = await other.compact()
    assert report is not None
    assert report.dropped_count == 3
    assert other.pending == pending
    other = agent.replaced(stream_fn=stream)
    await other.resume({one.call_id: Reject("no") for one in pending})
    check_conversation(stream.requests[0].messages)


# -- records -----------------------------------------------------------------------------------------------------


async def test_records_of_runs_that_wait_and_resume() -> None:
    agent, _, events = shop_agent(REPLY, "done")
    ids = [one.call_id for one in (await agent.prompt("go")).pending]
    record = RunRecord.of(events)
    assert [(one.outcome, one.approval, one.reason) for one in record.calls] == [
        (PENDING, "asked", "ask Ada about 1"),
        (RAN, None, ""),
        (PENDING, None, ""),
        (PENDING, "asked", "ask Ada about 2"),
    ]
    events.clear()
    result = await agent.resume({ids[0]: True})
    record = RunRecord.of(events)
    assert (record.kind, record.messages) == ("resume", result.messages)
    assert [(one.id, one.outcome, one.approval, one.is_started) for one in record.calls] == [
        (ids[0], RAN, "approved", True),
        (ids[1], PENDING, None, False),
        (ids[2], PENDING, "asked", False),
    ]
    assert record.turns[0].reply == _reply(agent)
    assert RunRecord.of([decode_event(encode_event(event)) for event in events]) == record
    assert not [event for event in events if isinstance(event, ToolApprovalResolved) and event.call_id != ids[0]]
    starts = [event.call_id for event in events if isinstance(event, ToolExecutionStart)]
    assert starts == [ids[0]]
    assert [event.call_id for event in events if isinstance(event, ToolExecutionEnd)] == [ids[0]]


async def test_text_of_a_pending_result_is_plain() -> None:
    agent, _, _ = shop_agent(REPLY)
    await agent.prompt("go")
    blocks = [m.content[0] for m in agent.messages if isinstance(m, ToolResultMessage) and m.outcome is PENDING]
    assert all(isinstance(block, Text) and block.text.startswith("tool call waiting: ") for block in blocks)


# -- other ways to run -------------------------------------------------------------------------------------------


async def test_a_structured_run_waits_and_its_answers_resume_it() -> None:
    agent, shop, events = shop_agent(call("refund", order=1), call("final_answer", total=20))
    target = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    waiting = await agent.structured_run("go", target)
    (one,) = waiting.pending
    with pytest.raises(StructuredOutputFailed):
        _ = waiting.value
    events.clear()
    done = await agent.structured_run({one.call_id: True}, target)
    assert (done.value, shop.done) == ({"total": 20}, ["refund 1"])
    check_events(events)


async def test_tools_as_a_function_of_the_turn_are_asked_before_the_answers_are_acted_on() -> None:
    shop = Shop()
    turns: list[int] = []

    def tools(ctx: PolicyContext) -> list[Any]:
        turns.append(ctx.turn_index)
        return [shop.refund]

    agent = Agent("test:model", stream_fn=scripted(call("refund", order=1), "done"), tools=tools, approve=later)
    (one,) = (await agent.prompt("go")).pending
    assert (await agent.resume({one.call_id: True})).text == "done"
    assert (shop.done, turns) == (["refund 1"], [0, 0, 1])


async def test_if_the_tools_cannot_be_had_the_calls_wait_on() -> None:
    shop = Shop()
    broken: list[str] = []

    def tools() -> list[Any]:
        if broken:
            raise RuntimeError("no tools today")
        return [shop.refund]

    agent = Agent("test:model", stream_fn=scripted(call("refund", order=1), "done"), tools=tools, approve=later)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    pending = (await agent.prompt("go")).pending
    broken.append("yes")
    events.clear()
    result = await agent.resume({pending[0].call_id: True})
    assert "no tools today" in (result.error or "")
    assert result.pending == agent.pending == pending
    check_events(events)
    broken.clear()
    assert (await agent.resume({pending[0].call_id: True})).text == "done"
    assert shop.done == ["refund 1"]


async def test_tools_for_one_run_hold_for_its_answers() -> None:
    shop, other = Shop(), Shop()
    agent, _, _ = shop_agent(call("refund", order=1), "done", shop=shop)
    (one,) = (await agent.prompt("go")).pending
    await agent.resume({one.call_id: True}, tools=other.tools)
    assert (shop.done, other.done) == ([], ["refund 1"])


# -- the grammar -------------------------------------------------------------------------------------------------


async def test_check_events_refuses_what_cannot_happen() -> None:
    agent, _, events = shop_agent(REPLY, "done")
    (one, *_) = (await agent.prompt("go")).pending
    check_events(events)
    deferred = next(at for at, event in enumerate(events) if isinstance(event, ToolCallDeferred))
    with pytest.raises(AssertionError, match="open calls"):
        check_events([*events[:deferred], *events[deferred + 1 :]])
    turn = events[-2]
    assert isinstance(turn, TurnEnd)
    executed = TurnEnd(turn.turn_index, turn.message, turn.tool_results, TurnEndReason.TOOLS_EXECUTED)
    with pytest.raises(AssertionError, match="waiting calls"):
        check_events([*events[:-2], executed, events[-1]])
    events.clear()
    await agent.resume({one.call_id: True})
    check_events(events)
    with pytest.raises(AssertionError):
        check_events([*events[:2], *events[3:]])


@pytest.mark.parametrize("where", ["class", "instance", "property"])
async def test_an_error_that_says_what_it_waits_for_is_an_ordinary_error(where: str) -> None:
    class Locked(Exception):
        if where == "class":
            waits_for = "table x"
        elif where == "property":

            @property
            def waits_for(self) -> str:
                raise ValueError("unknown")

    class Query:
        name = label = description = "query"
        parameters_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
        requires_approval = False

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
            error = Locked("deadlock")
            if where == "instance":
                error.waits_for = "table x"  # pyright: ignore
            raise error

    agent = Agent("test:m", stream_fn=scripted(call("query"), "done"), tools=[Query()])
    result = await agent.prompt("go")
    assert (result.text, result.error, result.pending) == ("done", None, ())
    (failed,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert failed.outcome is ToolOutcome.FAILED


# -- damaged or forged details -------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": "delegate", "arguments": {}, "messages": []}
    for _ in range(levels):
        kept = [json.loads(encode_message(message)) for message in waits_with(details)]
        details = {"kind": "delegate", "arguments": {}, "messages": kept}
    return details


def waits_with(details: Any) -> list[Any]:
    asked = AssistantMessage([ToolCall("r", "refund", {"order": 1})], stop_reason=StopReason.TOOL_USE)
    return [UserMessage("go"), asked, ToolResultMessage("r", "waits", True, details, "refund", outcome=PENDING)]


DAMAGED: dict[str, Any] = {
    "messages of an unknown role": {"kind": "delegate", "arguments": {}, "messages": [{"role": "bogus"}]},
    "messages that are numbers": {"kind": "delegate", "arguments": {}, "messages": [3]},
    "messages that are a text": {"kind": "delegate", "arguments": {}, "messages": "x"},
    "no messages": {"kind": "delegate", "arguments": {}},
    "nothing waits inside": nested(3),
    "injected": {"kind": "approval", "arguments": {"order": 1}, "injected": [{"role": "zz"}]},
    "injected is null": {"kind": "approval", "arguments": {"order": 1}, "injected": [None]},
}


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_call_with_damaged_details_cannot_be_answered_and_nothing_raises(damage: str) -> None:
    shop = Shop()
    agent = Agent(
        "test:m", stream_fn=scripted("done"), tools=[shop.refund, shop.look], messages=waits_with(DAMAGED[damage])
    )
    assert agent.pending == pending_calls(agent.messages) == ()
    with pytest.raises(NotPending):
        await agent.resume({"r": True})
    events: list[AgentEvent] = []
    with agent.subscribe(events.append):
        result = await agent.prompt("never mind")
    check_events(events)
    assert (result.text, result.error, result.pending) == ("done", None, ())
    assert shop.done == []


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_call_with_damaged_details_does_not_keep_another_from_its_answer(damage: str) -> None:
    shop = Shop()
    first, asked, damaged = waits_with(DAMAGED[damage])
    calls = [*asked.tool_calls, ToolCall("s", "refund", {"order": 2})]
    good = ToolResultMessage(
        "s", "waits", True, {"kind": "approval", "arguments": {"order": 2}}, "refund", outcome=PENDING
    )
    history = [first, AssistantMessage(calls, stop_reason=StopReason.TOOL_USE), damaged, good]
    agent = Agent("test:m", stream_fn=scripted("done"), tools=[shop.refund, shop.look], messages=history)
    assert [one.call_id for one in agent.pending] == ["s"]
    result = await agent.resume({"s": True})
    assert (result.text, result.pending, shop.done) == ("done", (), ["refund 2"])


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_session_takes_damaged_details(damage: str, tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    agent = Agent("test:m", stream_fn=scripted("done"), messages=waits_with(DAMAGED[damage]))
    events: list[AgentEvent] = []
    with store.create() as session, agent.subscribe(events.append):
        session.attach(agent)
        await agent.prompt("never mind")
    loaded = store.load(session.id)
    assert list(loaded.messages) == list(agent.messages)
    assert loaded.runs()[-1] == RunRecord.of(events)


def test_secrets_in_damaged_details_are_masked() -> None:
    redactor = Redactor()
    redactor.learn("hunter2secret", "password")
    details = {"kind": "delegate", "arguments": {}, "messages": [{"role": "bogus", "text": "hunter2secret"}]}
    assert "hunter2secret" not in repr(masked(waits_with(details)[-1], redactor))
