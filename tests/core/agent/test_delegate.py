"""Delegates: an agent as a tool of another agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentStart,
    AgentTool,
    Approve,
    Cost,
    DelegateEvent,
    MessageUpdate,
    ProposedCall,
    Redactor,
    Reject,
    RunRecord,
    Stop,
    TextDelta,
    ToolApprovalRequested,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    decode_event,
    encode_event,
    extract_text,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.policies import Budget
from swink_agent.testing import call, check_events, collect, fail, names, scripted, stall, text
from swink_agent.testing.script import ModelRequest

USAGE, COST = Usage(input=10, output=1, total=11), Cost(input=0.25, total=0.25)


def caller(*tools: AgentTool, prompts: tuple[str, ...] = ("look",), **arguments: Any) -> Agent:
    """An agent that calls the first tool once for each prompt, and says "done"."""
    calls = [call(tools[0].name, prompt=prompt) for prompt in prompts]
    return Agent("test:caller", stream_fn=scripted(calls, "done"), tools=tools, **arguments)


def answering(*replies: Any, count: int = 1, **options: Any) -> Agent:
    """An agent that gives these replies, each `count` times."""
    return Agent("test:research", stream_fn=scripted(*[one for one in replies for _ in range(count)], **options))


def answer_of(agent: Agent, position: int = 0) -> ToolResultMessage:
    found = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    return found[position]


def inside(events: list[AgentEvent], depth: int = 1) -> list[AgentEvent]:
    """The events of the delegates at a depth."""
    for _ in range(depth):
        events = [event.event for event in events if isinstance(event, DelegateEvent)]
    return events


async def test_the_last_reply_is_the_result_and_the_events_stand_between_start_and_end() -> None:
    agent = caller(answering("found it").as_tool("research", "Looks things up."))
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert names(events) == [
        *("AgentStart", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "ToolExecutionStart"),
        *["DelegateEvent"] * 7,
        *("ToolExecutionEnd", "TurnEnd", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd"),
        "AgentEnd",
    ]
    assert names(inside(events)) == [
        *("AgentStart", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"),
    ]
    assert {(event.call_id, event.name) for event in events if isinstance(event, DelegateEvent)} == {
        ("call_1", "research")
    }
    assert answer_of(agent).content == (ToolResultMessage("", "found it").content)
    assert answer_of(agent).outcome is ToolOutcome.RAN
    assert len(agent.messages) == 4  # nothing of the delegate's


async def test_the_tool_has_one_argument_and_the_options_that_it_is_given() -> None:
    made: Any = answering("x").as_tool(
        "look_up", "Looks.", requires_approval=True, on_steer="finish", timeout=5, max_concurrent=2, max_depth=0
    )
    assert (made.name, made.label, made.description) == ("look_up", "Look up", "Looks.")
    assert (made.requires_approval, made.on_steer) == (True, "finish")
    assert (made.timeout, made.max_concurrent, made.max_depth) == (5, 2, 0)
    assert list(made.parameters_schema["properties"]) == ["prompt"] == made.parameters_schema["required"]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"name": ""}, ValueError),
        ({"name": None}, TypeError),
        ({"name": "look up"}, ValueError),
        ({"name": "look\nup"}, ValueError),
        ({"description": 5}, TypeError),
        ({"on_steer": "maybe"}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"max_concurrent": 0}, ValueError),
        ({"max_depth": -1}, ValueError),
        ({"max_depth": "3"}, TypeError),
    ],
)
@pytest.mark.table
def test_wrong_options_are_refused_at_once(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        answering("x").as_tool(**{"name": "research", "description": "Looks.", **arguments})


def test_an_agent_itself_is_not_a_tool_and_the_error_says_what_makes_one() -> None:
    tools: Any = [answering("x")]
    with pytest.raises(TypeError, match="as_tool"):
        Agent("test:m", tools=tools)


@pytest.mark.parametrize(("prompt", "outcome"), [("  ", "invalid"), (5, "invalid")])
async def test_a_prompt_without_content_is_an_invalid_argument(prompt: Any, outcome: str) -> None:
    agent = caller(answering("x").as_tool("research", "Looks."), prompts=(prompt,))
    await agent.prompt("go")
    assert (answer_of(agent).outcome, answer_of(agent).is_error) == (outcome, True)


async def test_a_copy_begins_with_the_messages_and_state_that_the_agent_was_made_with() -> None:
    seen: list[Any] = []

    @tool
    def note(word: str, ctx: ToolContext) -> str:
        seen.append(dict(ctx.state))
        ctx.state["word"] = word
        return "noted"

    model = scripted("later", *[call("note", word="b"), "one"] * 2)
    research = Agent("test:m", stream_fn=model, tools=[note], messages=["before"], state={"word": "a"})
    await research.prompt("a conversation of its own")
    research.state["word"] = "changed"
    agent = caller(research.as_tool("research", "Looks."), prompts=("first", "second"))
    model_calls = len(model.requests)
    await agent.replaced(tool_execution="sequential").prompt("go")
    assert seen == [{"word": "a"}, {"word": "a"}]
    begins = [extract_text(request.messages[0].content) for request in model.requests[model_calls:]]
    prompts = [extract_text(request.messages[1].content) for request in model.requests[model_calls:]]
    assert begins == ["before"] * 4
    assert prompts == ["first", "first", "second", "second"]
    assert len(research.messages) == 3
    assert research.state == {"word": "changed"}


async def test_any_number_run_at_once_also_while_the_agent_itself_runs() -> None:
    gate = asyncio.Event()
    here: list[str] = []

    @tool
    async def meet(who: str) -> str:
        here.append(who)
        if len(here) == 4:
            gate.set()
        await gate.wait()  # all four are here at once, or this never ends
        return who

    def play(request: ModelRequest) -> Any:
        words = extract_text(request.messages[0].content)
        return call("meet", who=words) if len(request.messages) == 1 else f"met {words}"

    research = Agent("test:m", stream_fn=scripted(*[play] * 8), tools=[meet])
    agent = caller(research.as_tool("research", "Looks."), prompts=("a", "b", "c"))
    events, own = await asyncio.gather(collect(agent.prompt_stream("go")), research.prompt("itself"))
    check_events(events)
    assert own.text == "met itself"
    assert sorted(here) == ["a", "b", "c", "itself"]
    assert [extract_text(answer_of(agent, index).content) for index in range(3)] == ["met a", "met b", "met c"]


async def test_an_error_and_a_stop_are_error_results() -> None:
    class Never:
        def pre_turn(self, ctx: Any) -> Stop:
            return Stop("not today")

    failing = answering(fail("auth", "no key"))
    agent = caller(failing.as_tool("research", "Looks."))
    await agent.prompt("go")
    assert answer_of(agent).outcome is ToolOutcome.FAILED
    assert "research failed: " in extract_text(answer_of(agent).content)
    assert "no key" in extract_text(answer_of(agent).content)
    agent = caller(answering("x").replaced(policies=[Never()]).as_tool("research", "Looks."))
    await agent.prompt("go")
    assert extract_text(answer_of(agent).content) == "research was stopped by the policy Never: not today"
    assert answer_of(agent).is_error


async def test_an_agent_without_a_model_to_ask_is_an_error_result_and_no_run() -> None:
    agent = caller(Agent("nobody:model").as_tool("research", "Looks."))
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert not inside(events)
    assert answer_of(agent).outcome is ToolOutcome.FAILED
    assert "nobody" in extract_text(answer_of(agent).content)


# -- depth -----------------------------------------------------------------------------------------------------


def recursive(max_depth: int) -> tuple[Agent, list[int]]:
    """An agent that calls itself as long as it may; and how deep it was when it did not."""
    refused: list[int] = []

    def play(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            if last.is_error:
                refused.append(len(refused))
            return extract_text(last.content)
        return call("again", prompt="deeper")

    agent = Agent("test:m", stream_fn=scripted(*[play] * 20, usage=USAGE, cost=COST))
    agent.tools = [agent.as_tool("again", "Itself.", max_depth=max_depth)]
    return agent, refused


@pytest.mark.parametrize("max_depth", [0, 1, 3])
async def test_a_call_inside_more_than_max_depth_delegates_is_an_error_result(max_depth: int) -> None:
    agent, refused = recursive(max_depth)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert len(refused) == 1
    assert names(inside(events, max_depth + 1)).count("AgentStart") == 1
    assert not inside(events, max_depth + 2)
    said = extract_text(answer_of(agent).content)
    assert f"inside {max_depth + 1} delegates (again" in said
    assert f"{max_depth} are the most" in said


async def test_usage_and_cost_are_counted_to_any_depth_in_results_records_and_events() -> None:
    agent, _ = recursive(2)
    events = await collect(agent.prompt_stream("go"))
    result = agent.last_result
    assert result is not None
    assert (result.usage, result.cost) == (USAGE + USAGE, COST + COST)
    assert result.total_usage.tokens == 8 * 11
    assert result.total_cost.amount == 8 * 0.25
    assert (agent.total_usage, agent.total_cost) == (result.total_usage, result.total_cost)
    read = [decode_event(encode_event(event)) for event in events]
    assert read == events
    for record in (RunRecord.of(events), RunRecord.of(read)):
        assert (record.usage, record.total_usage, record.total_cost) == (
            result.usage,
            result.total_usage,
            result.total_cost,
        )
        (one,) = record.calls
        assert (one.usage.tokens, one.cost.amount) == (6 * 11, 6 * 0.25)
    delegate = RunRecord.of(inside(events))
    assert delegate.total_usage.tokens == 6 * 11
    assert delegate.usage.tokens == 2 * 11


async def test_a_record_counts_delegates_while_they_run() -> None:
    agent, _ = recursive(1)
    record, seen = RunRecord(), list[int]()

    def follow(event: AgentEvent) -> None:
        record.feed(event)
        seen.append(record.total_usage.tokens)

    with agent.subscribe(follow):
        await agent.prompt("go")
    assert seen == sorted(seen)
    assert sorted(set(seen)) == [11 * count for count in range(7)]


async def test_a_result_of_an_agent_without_delegates_is_written_as_ever() -> None:
    events = await collect(answering("x", usage=USAGE).prompt_stream("go"))
    assert b"delegated" not in encode_event(events[-1])


# -- cancellation ----------------------------------------------------------------------------------------------


def waiting(on_steer: Any = "cancel") -> tuple[Agent, asyncio.Event, Agent]:
    """A caller whose delegate has asked the model once, and then waits in a tool; and when it does."""
    is_waiting = asyncio.Event()

    @tool
    async def endless() -> str:
        is_waiting.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    research = Agent("test:m", stream_fn=scripted(call("endless"), "x", usage=USAGE, cost=COST), tools=[endless])
    agent = Agent(
        "test:caller",
        stream_fn=scripted(call("research", prompt="look"), "done"),
        tools=[research.as_tool("research", "Looks.", on_steer=on_steer)],
    )
    return agent, is_waiting, research


async def collected(agent: Agent, is_waiting: asyncio.Event, then: Callable[[], object]) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    with agent.subscribe(events.append):
        running = asyncio.ensure_future(agent.prompt("go"))
        await is_waiting.wait()
        then()
        await running
    check_events(events)
    return events


async def test_an_abort_ends_the_delegate_and_its_usage_counts(
    promptly: Callable[[float], AbstractContextManager[None]],
) -> None:
    agent, is_waiting, _ = waiting()
    events: list[AgentEvent] = []
    with agent.subscribe(events.append):
        running = asyncio.ensure_future(agent.prompt("go"))
        await is_waiting.wait()
        with promptly(0.1):
            agent.abort()
            result = await running
    check_events(events)
    assert result.stop_reason == "aborted"
    assert (result.total_usage, result.total_cost) == (USAGE, COST)
    end = next(event for event in events if isinstance(event, ToolExecutionEnd))
    assert (end.outcome, end.reason) == (ToolOutcome.CANCELLED, "aborted")
    inner = inside(events)[-1]
    assert isinstance(inner, AgentEnd)
    assert inner.result is not None
    assert inner.result.stop_reason == "aborted"
    assert RunRecord.of(events).calls[0].usage == USAGE


async def test_steering_cancels_a_delegate_and_its_usage_counts() -> None:
    agent, is_waiting, _ = waiting()
    events = await collected(agent, is_waiting, lambda: agent.steer("stop that"))
    end = next(event for event in events if isinstance(event, ToolExecutionEnd))
    assert (end.outcome, end.reason) == (ToolOutcome.CANCELLED, "steering")
    assert extract_text(end.result.content) == "tool call cancelled: user requested steering interrupt"
    assert agent.last_result is not None
    assert agent.last_result.total_usage == USAGE
    assert agent.last_result.text == "done"


async def test_a_delegate_that_finishes_when_steered_keeps_its_result() -> None:
    go_on = asyncio.Event()

    @tool
    async def patient() -> str:
        agent.steer("hurry")
        await go_on.wait()
        return "x"

    research = Agent("test:m", stream_fn=scripted(call("patient"), "all of it"), tools=[patient])
    agent = caller(research.as_tool("research", "Looks.", on_steer="finish"))
    events: list[AgentEvent] = []

    def follow(event: AgentEvent) -> None:
        events.append(event)
        if isinstance(event, DelegateEvent) and isinstance(event.event, ToolExecutionStart):
            asyncio.get_running_loop().call_later(0.02, go_on.set)

    with agent.subscribe(follow):
        await agent.prompt("go")
    check_events(events)
    assert extract_text(answer_of(agent).content) == "all of it"


async def test_an_abort_ends_every_level_in_order(promptly: Callable[[float], AbstractContextManager[None]]) -> None:
    is_waiting = asyncio.Event()

    @tool
    async def stubborn(ctx: ToolContext) -> str:
        is_waiting.set()
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if ctx.cancel.is_cancelled:
                    raise

    lower: Agent = Agent("test:m", stream_fn=scripted(call("stubborn"), usage=USAGE), tools=[stubborn])
    for depth in range(3):
        tools = [lower.as_tool(f"level_{depth}", "Goes on.")]
        lower = Agent("test:m", stream_fn=scripted(call(f"level_{depth}", prompt="go"), usage=USAGE), tools=tools)
    events: list[AgentEvent] = []
    with lower.subscribe(events.append):
        running = asyncio.ensure_future(lower.prompt("go"))
        await is_waiting.wait()
        with promptly(0.1):
            lower.abort()
            result = await running
    check_events(events)
    assert result.total_usage.tokens == 4 * 11
    assert names(inside(events, 3))[-1] == "AgentEnd"


async def test_leaving_the_stream_ends_the_delegate() -> None:
    agent, _, _ = waiting()
    async for event in agent.prompt_stream("go"):
        if isinstance(event, DelegateEvent) and isinstance(event.event, ToolExecutionStart):
            break
    await agent.wait_for_idle()
    assert agent.last_error is not None
    assert agent.total_usage == USAGE


async def test_a_slow_reader_slows_a_delegate_down() -> None:
    agent = caller(answering(text("x" * 5000, deltas=5000)).as_tool("research", "Looks."))
    stream = agent.prompt_stream("go")
    most = 0
    async for event in stream:
        most = max(most, len(stream.channel.events))
        if isinstance(event, DelegateEvent) and isinstance(event.event, MessageUpdate):
            await asyncio.sleep(0)
    assert most <= 300


# -- what comes from the caller --------------------------------------------------------------------------------


@tool(requires_approval=True)
def risky(ctx: ToolContext) -> str:
    """Needs a person's word."""
    return str(ctx.execution_root)


async def test_the_caller_is_asked_and_told_through_which_tools(tmp_path: Path) -> None:
    asked: list[ProposedCall] = []

    def approve(request: ProposedCall) -> Approve:
        asked.append(request)
        return Approve()

    lowest = Agent("test:m", stream_fn=scripted(call("risky"), "ok"), tools=[risky])
    middle = Agent(
        "test:m", stream_fn=scripted(call("inner", prompt="go"), "ok"), tools=[lowest.as_tool("inner", "I.")]
    )
    agent = caller(middle.as_tool("outer", "O."), approve=approve, execution_root=tmp_path)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert [(request.name, request.delegates) for request in asked] == [("risky", ("outer", "inner"))]
    assert names(inside(events, 2)).count("ToolApprovalRequested") == 1
    ended = next(event for event in inside(events, 2) if isinstance(event, ToolExecutionEnd))
    assert extract_text(ended.result.content) == str(tmp_path)


async def test_a_call_of_the_agent_itself_has_no_delegates() -> None:
    asked: list[ProposedCall] = []
    agent = Agent(
        "test:m", stream_fn=scripted(call("risky"), "x"), tools=[risky], approve=lambda r: asked.append(r) or True
    )
    await agent.prompt("go")
    assert asked[0].delegates == ()


async def test_its_own_approve_redactor_and_folder_go_before_the_callers(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def own(request: ProposedCall) -> Reject:
        asked.append(request.delegates)
        return Reject("not for hunter2secret")

    redactor = Redactor()
    redactor.learn("hunter2secret", "password")
    research = Agent("test:m", stream_fn=scripted(call("risky"), "x"), tools=[risky], approve=own, redactor=redactor)
    agent = caller(research.as_tool("research", "Looks."), approve=lambda _: pytest.fail("the caller is not asked"))
    events = await collect(agent.prompt_stream("go"))
    assert asked == [("research",)]
    ended = next(event for event in inside(events) if isinstance(event, ToolExecutionEnd))
    assert "hunter2secret" not in extract_text(ended.result.content)

    own_folder = Agent(
        "test:m",
        stream_fn=scripted(call("risky"), "x"),
        tools=[risky],
        approval_mode="bypassed",
        execution_root=tmp_path / "own",
    )
    agent = caller(own_folder.as_tool("research", "Looks."), execution_root=tmp_path)
    events = await collect(agent.prompt_stream("go"))
    ended = next(event for event in inside(events) if isinstance(event, ToolExecutionEnd))
    assert extract_text(ended.result.content) == str(tmp_path / "own")


async def test_the_callers_redactor_masks_inside() -> None:
    redactor = Redactor()
    redactor.learn("hunter2secret", "password")

    @tool
    def leak() -> str:
        return "it is hunter2secret"

    model = scripted(call("leak"), "x")
    research = Agent("test:m", stream_fn=model, tools=[leak])
    agent = caller(research.as_tool("research", "Looks."), redactor=redactor)
    await agent.prompt("go")
    assert "hunter2secret" not in str([extract_text(m.content) for m in model.requests[1].messages])


@tool
def who(ctx: ToolContext) -> str:
    """Says what the run was given."""
    return str(ctx.deps)


async def said_inside(agent: Agent, **given: Any) -> str:
    events = await collect(agent.prompt_stream("go", **given))
    check_events(events)
    ended = next(event for event in inside(events) if isinstance(event, ToolExecutionEnd))
    return extract_text(ended.result.content)


async def test_the_callers_deps_reach_it_else_it_has_its_own() -> None:
    research = Agent("test:m", stream_fn=scripted(*[call("who"), "x"] * 3), tools=[who], deps="its own")
    made = research.as_tool("research", "Looks.")
    assert await said_inside(caller(made)) == "its own"
    assert await said_inside(caller(made, deps="the caller's")) == "the caller's"
    assert await said_inside(caller(made, deps="the caller's"), deps="the run's") == "the run's"


async def test_a_delegate_without_the_deps_that_it_needs_is_an_error_result() -> None:
    @tool
    def strict(ctx: ToolContext[int]) -> str:
        return str(ctx.deps + 1)

    research = Agent[int]("test:m", stream_fn=scripted(call("strict"), "x"), tools=[strict])
    made = research.as_tool("research", "Looks.")
    agent = caller(made)
    await agent.prompt("go")
    assert "strict" in extract_text(answer_of(agent).content)
    assert answer_of(agent).outcome is ToolOutcome.FAILED
    assert await said_inside(caller(made), deps=1) == "2"


async def test_an_override_holds_for_copies() -> None:
    research = Agent("nobody:model", tools=[who], system_prompt="old")
    agent = caller(research.as_tool("research", "Looks."), deps="the caller's")
    fake = scripted(call("who"), "x")
    with research.override(stream_fn=fake, deps="fake", system_prompt="new"):
        assert await said_inside(agent) == "fake"
    assert [request.context.system_prompt for request in fake.requests] == ["new", "new"]


async def test_tools_of_the_turn_are_asked_for_each_copy() -> None:
    asked: list[Any] = []

    def tools(ctx: Any) -> list[AgentTool]:
        asked.append(ctx.deps)
        return [who]

    research: Agent = Agent("test:m", stream_fn=scripted(call("who"), "x"), tools=tools)
    assert await said_inside(caller(research.as_tool("research", "Looks."), deps=5)) == "5"
    assert asked == [5, 5]
    assert research.tools == ()


async def test_nobody_to_ask_is_a_rejection_inside_too() -> None:
    research = Agent("test:m", stream_fn=scripted(call("risky"), "x"), tools=[risky])
    events = await collect(caller(research.as_tool("research", "Looks.")).prompt_stream("go"))
    ended = next(event for event in inside(events) if isinstance(event, ToolExecutionEnd))
    assert ended.outcome is ToolOutcome.REJECTED


async def test_a_delegate_that_requires_approval_is_asked_about_itself() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []
    research = answering("x").as_tool("research", "Looks.", requires_approval=True)
    agent = caller(research, approve=lambda request: not asked.append((request.name, request.delegates)))
    events = await collect(agent.prompt_stream("go"))
    assert asked == [("research", ())]
    assert any(isinstance(event, ToolApprovalRequested) for event in events)


# -- budgets ---------------------------------------------------------------------------------------------------


def budget(most: float) -> Budget:
    return Budget(max_cost=most, worst_case=lambda model, tokens, output: (0.25, 10))


async def test_the_callers_budget_counts_and_stops_a_delegate() -> None:
    limit = budget(0.75)

    @tool
    def again() -> str:
        return "again"

    model = scripted(*[call("again")] * 9, usage=USAGE, cost=COST)
    research = Agent("test:m", stream_fn=model, tools=[again])
    agent = Agent(
        "test:caller",
        stream_fn=scripted(call("research", prompt="look"), "done", usage=USAGE, cost=COST),
        tools=[research.as_tool("research", "Looks.")],
        policies=[limit],
    )
    result = await agent.prompt("go")
    assert len(model.requests) == 2
    assert limit.spent == 0.75 == result.total_cost.amount
    assert "research was stopped by the policy budget: " in extract_text(answer_of(agent).content)
    assert result.stopped_by is not None  # nothing is left for the caller either


async def test_a_budget_that_both_have_counts_once() -> None:
    limit = budget(10)
    research = Agent("test:m", stream_fn=scripted("x", usage=USAGE, cost=COST), policies=[limit])
    agent = caller(research.as_tool("research", "Looks."), policies=[limit])
    await agent.prompt("go")
    assert limit.spent == 3 * 0.25  # replies without usage cost what they may cost at most


# -- sessions --------------------------------------------------------------------------------------------------


async def test_a_session_counts_delegates_and_keeps_nothing_else_of_them(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    agent, _ = recursive(2)
    events: list[AgentEvent] = []
    with store.create() as session:
        session.attach(agent)
        with agent.subscribe(events.append):
            result = await agent.prompt("go")
        assert (session.info.usage, session.info.cost) == (result.total_usage, result.total_cost)
    loaded = store.load(session.id)
    assert (loaded.info.usage, loaded.info.cost) == (result.total_usage, result.total_cost)
    assert store.list()[0].cost == result.total_cost
    assert len(loaded.messages) == 4
    assert loaded.messages == agent.messages
    assert loaded.runs() == (RunRecord.of(events),)
    assert "deeper" in session.path.read_text()
    assert session.path.read_text().count("deeper") == 1


async def test_a_session_counts_a_cancelled_delegate(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    agent, is_waiting, _ = waiting()
    with store.create() as session:
        session.attach(agent)
        events = await collected(agent, is_waiting, agent.abort)
    loaded = store.load(session.id)
    assert loaded.info.usage == USAGE
    assert loaded.info.cost == COST
    assert loaded.runs() == (RunRecord.of(events),)


# -- events ----------------------------------------------------------------------------------------------------


def test_check_events_knows_where_they_may_stand() -> None:
    start = DelegateEvent("call_1", "research", AgentStart())
    with pytest.raises(AssertionError, match="cannot occur"):
        check_events([AgentStart(), start])


async def test_check_events_wants_the_whole_run_of_a_delegate() -> None:
    events = await collect(caller(answering("x").as_tool("research", "Looks.")).prompt_stream("go"))
    last = max(index for index, event in enumerate(events) if isinstance(event, DelegateEvent))
    with pytest.raises(AssertionError, match="no AgentEnd"):
        check_events([*events[:last], *events[last + 1 :]])
    with pytest.raises(AssertionError, match="its call is ended"):
        check_events([*events[: last + 2], events[last], *events[last + 2 :]])


async def test_a_redactor_masks_texts_that_several_delegates_stream_in_turns() -> None:
    redactor = Redactor()
    redactor.learn("hunter2secret", "password")
    said = text("say hunter2secret twice", deltas=12)
    agent = caller(
        answering(said, count=2, suspend=True).as_tool("research", "Looks."), prompts=("a", "b"), redactor=redactor
    )
    masks = redactor.events()
    shown: list[AgentEvent] = []
    async for event in agent.prompt_stream("go"):
        shown += masks.feed(event)
    shown += masks.finish()
    for call_id in ("call_1", "call_2"):
        inner = [event.event for event in shown if isinstance(event, DelegateEvent) and event.call_id == call_id]
        deltas = [event.delta for event in inner if isinstance(event, MessageUpdate)]
        streamed = "".join([delta.delta for delta in deltas if isinstance(delta, TextDelta)])
        assert streamed.startswith("say ")
        assert streamed.endswith(" twice")
        assert "hunter" not in streamed
    assert "hunter2secret" not in repr([encode_event(event) for event in shown])


async def test_the_tool_works_outside_of_a_run() -> None:
    result = await answering("alone").as_tool("research", "Looks.").execute({"prompt": "go"}, ToolContext())
    assert extract_text(result.content) == "alone"


async def test_a_cancelled_token_outside_of_a_run_ends_it() -> None:
    ctx = ToolContext()
    running = asyncio.ensure_future(answering(stall()).as_tool("research", "Looks.").execute({"prompt": "go"}, ctx))
    await asyncio.sleep(0)
    ctx.cancel.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
