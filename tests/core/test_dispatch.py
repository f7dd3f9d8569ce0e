"""A batch of tool calls: which calls run, which do not, and what the model reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentToolResult,
    AssistantMessageEvent,
    ModelSpec,
    Stop,
    StopReason,
    Text,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    extract_text,
    tool,
)
from swink_agent.testing import (
    call,
    check_events,
    collect,
    names,
    scripted,
    text,
    truncated,
)

MODEL = ModelSpec("test", "model")


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def results_of(agent: Agent, prompt: str = "go") -> list[ToolResultMessage]:
    """The results of the first turn, from a run whose events are in order."""
    events = await collect(agent.prompt_stream(prompt))
    check_events(events)
    return list(next(event for event in events if isinstance(event, TurnEnd)).tool_results)


def texts(results: list[ToolResultMessage]) -> list[str]:
    return [extract_text(result.content) for result in results]


async def test_all_calls_of_a_turn_run_at_once() -> None:
    started = 0
    everyone = asyncio.Event()

    @tool
    async def meet() -> str:
        nonlocal started
        started += 1
        if started == 5:
            everyone.set()
        await everyone.wait()
        return "met"

    agent = Agent(MODEL, stream_fn=scripted([call("meet")] * 5, text("ok")), tools=[meet])
    async with asyncio.timeout(30):
        assert texts(await results_of(agent)) == ["met"] * 5


async def test_results_are_in_call_order_and_ends_in_the_order_of_completion() -> None:
    gates = {name: asyncio.Event() for name in "abc"}

    @tool
    async def wait_for(own: str, next_one: str) -> str:
        if own != "c":
            await gates[own].wait()
        gates.get(next_one, asyncio.Event()).set()
        return own

    calls = [call("wait_for", own=own, next_one=following) for own, following in ("a-", "ba", "cb")]
    events = await collect(Agent(MODEL, stream_fn=scripted(calls, text("ok")), tools=[wait_for]).prompt_stream("go"))
    check_events(events)
    ends = [extract_text(event.result.content) for event in events if isinstance(event, ToolExecutionEnd)]
    assert ends == ["c", "b", "a"]
    turn = next(event for event in events if isinstance(event, TurnEnd))
    assert texts(list(turn.tool_results)) == ["a", "b", "c"]


async def test_sequential_execution_runs_one_after_another() -> None:
    running = 0
    most = 0

    @tool
    async def step() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    model = scripted([call("step")] * 3, text("ok"))
    agent = Agent(MODEL, stream_fn=model, tools=[step], tool_execution="sequential")
    await results_of(agent)
    assert most == 1


async def test_a_strategy_groups_the_calls_that_are_left_after_approval() -> None:
    class Pairs:
        def __init__(self) -> None:
            self.given: list[str] = []

        def partition(self, calls: Any) -> list[list[int]]:
            self.given = [item.arguments["name"] for item in calls]
            return [[2], [0, 1]]

    order: list[str] = []

    @tool(requires_approval=True)
    async def note(name: str) -> str:
        order.append(name)
        return name

    strategy = Pairs()
    calls = [call("note", name=name) for name in ("a", "refused", "b", "c")]
    agent = Agent(
        MODEL,
        stream_fn=scripted(calls, text("ok")),
        tools=[note],
        tool_execution=strategy,
        approve=lambda request: request.arguments["name"] != "refused",
    )
    assert [result.is_error for result in await results_of(agent)] == [False, True, False, False]
    assert strategy.given == ["a", "b", "c"]
    assert order == ["c", "a", "b"]


@pytest.mark.table
@pytest.mark.parametrize("groups", [[[0]], [[0, 0, 1]], [[0, 1, 2]], [[-1, 0]], "nonsense", None])
async def test_a_strategy_that_makes_nonsense_makes_every_call_an_error(groups: Any) -> None:
    class Broken:
        def partition(self, calls: Any) -> Any:
            return groups

    model = scripted([call("add", a=1, b=2)] * 2, text("ok"))
    results = await results_of(Agent(MODEL, stream_fn=model, tools=[add], tool_execution=Broken()))
    assert [result.is_error for result in results] == [True, True]


async def test_a_call_that_cannot_run_gets_an_error_and_the_others_go_on() -> None:
    @tool
    async def failing() -> str:
        raise ToolError("exactly this text")

    @tool
    async def exploding() -> str:
        raise KeyError("inside")

    calls = [
        call("add", a=1, b=2),
        call("nope"),
        call("add", a="one"),
        call("failing"),
        call("exploding"),
        call("add", a=1, b=2, c=3),
    ]
    agent = Agent(MODEL, stream_fn=scripted(calls, text("ok")), tools=[add, failing, exploding])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    results = list(next(event for event in events if isinstance(event, TurnEnd)).tool_results)
    assert [result.is_error for result in results] == [False, True, True, True, True, True]
    shown = texts(results)
    assert shown[0] == "3"
    assert shown[1] == "unknown tool 'nope'; available: add, failing, exploding"
    assert "a: " in shown[2]
    assert "b" in shown[2]
    assert shown[3] == "exactly this text"
    assert shown[4] == "KeyError: 'inside'"
    assert "'c'" in shown[5]
    assert names(events).count("ToolExecutionStart") == 3
    assert names(events).count("ToolExecutionEnd") == 6
    assert [result.tool_name for result in results] == ["add", "nope", "add", "failing", "exploding", "add"]


async def test_invalid_arguments_never_reach_the_tool() -> None:
    ran = False

    @tool
    async def strict(n: int) -> str:
        nonlocal ran
        ran = True
        return "ran"

    (result,) = await results_of(Agent(MODEL, stream_fn=scripted(call("strict", n="1"), text("ok")), tools=[strict]))
    assert result.is_error
    assert not ran


async def test_a_tool_that_tries_to_end_the_program_gets_an_error() -> None:
    @tool
    def leave() -> str:
        raise SystemExit(3)

    @tool
    async def leave_too() -> str:
        raise SystemExit(4)

    agent = Agent(MODEL, stream_fn=scripted([call("leave"), call("leave_too")], text("ok")), tools=[leave, leave_too])
    assert texts(await results_of(agent)) == ["SystemExit: 3", "SystemExit: 4"]


async def test_a_tool_that_cancels_itself_gets_an_error() -> None:
    @tool
    async def quitter() -> str:
        raise asyncio.CancelledError

    (result,) = await results_of(Agent(MODEL, stream_fn=scripted(call("quitter"), text("ok")), tools=[quitter]))
    assert result.is_error


async def test_changes_by_a_tool_to_its_arguments_stay_out_of_the_history() -> None:
    class Greedy:
        name = "greedy"
        label = "Greedy"
        description = "Eats its arguments."
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = False

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            arguments["deep"].clear()
            arguments.clear()
            return AgentToolResult.text("eaten")

    agent = Agent(MODEL, stream_fn=scripted(call("greedy", deep=[1, 2]), text("ok")), tools=[Greedy()])
    await results_of(agent)
    assert agent.messages[1].tool_calls[0].arguments == {"deep": [1, 2]}  # type: ignore[union-attr]


async def test_a_tool_shares_the_agents_state_and_knows_its_call_and_folder(tmp_path: Path) -> None:
    @tool
    async def count(ctx: ToolContext) -> str:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return f"{ctx.call_id} in {ctx.execution_root}"

    model = scripted(call("count").with_id("c-1"), call("count").with_id("c-2"), text("ok"))
    agent = Agent(MODEL, stream_fn=model, tools=[count], execution_root=tmp_path)
    results = await results_of(agent)
    assert texts(results) == [f"c-1 in {tmp_path}"]
    assert agent.state == {"count": 2}


async def test_a_plain_function_runs_in_a_thread_and_does_not_stop_the_loop() -> None:
    here = threading.get_ident()
    go_on = threading.Event()

    @tool
    def blocking() -> str:
        assert go_on.wait(30)
        return "elsewhere" if threading.get_ident() != here else "here"

    @tool
    async def release() -> str:
        go_on.set()
        return "released"

    model = scripted([call("blocking"), call("release")], text("ok"))
    assert texts(await results_of(Agent(MODEL, stream_fn=model, tools=[blocking, release]))) == [
        "elsewhere",
        "released",
    ]


async def test_a_hanging_thread_holds_up_neither_the_abort_nor_the_result(
    promptly: Callable[[float], AbstractContextManager[None]],
) -> None:
    release, is_hanging = threading.Event(), threading.Event()

    @tool
    def hang(ctx: ToolContext) -> str:
        is_hanging.set()
        release.wait(30)
        return "too late"

    agent = Agent(MODEL, stream_fn=scripted(call("hang"), text("never")), tools=[hang])
    task = asyncio.ensure_future(agent.prompt("go"))
    await asyncio.to_thread(is_hanging.wait)
    assert agent.pending_tool_calls
    try:
        with promptly(0.1):
            agent.abort()
            result = await task
    finally:
        release.set()
    assert result.stop_reason == StopReason.ABORTED
    assert extract_text(result.messages[-1].content) == "tool call cancelled: the run was aborted"  # type: ignore[union-attr]


# -- updates -------------------------------------------------------------------------------------------------


async def test_updates_come_between_the_start_and_the_end() -> None:
    @tool
    async def report(ctx: ToolContext) -> str:
        ctx.update("one")
        await asyncio.sleep(0)
        ctx.update(AgentToolResult([Text("two")], details={"percent": 50}))
        return "done"

    model = scripted(call("report"), text("ok"))
    events = await collect(Agent(MODEL, stream_fn=model, tools=[report]).prompt_stream("go"))
    check_events(events)
    start = names(events).index("ToolExecutionStart")
    assert names(events)[start : start + 4] == [
        "ToolExecutionStart",
        "ToolExecutionUpdate",
        "ToolExecutionUpdate",
        "ToolExecutionEnd",
    ]
    updates = [event for event in events if isinstance(event, ToolExecutionUpdate)]
    assert [extract_text(event.update.content) for event in updates] == ["one", "two"]
    assert updates[1].update.details == {"percent": 50}


@pytest.mark.parametrize("partial", [None, {"done": 0.5}])
async def test_an_update_of_another_kind_is_told_to_the_author_of_the_tool(partial: Any) -> None:
    @tool
    async def report(ctx: ToolContext) -> str:
        ctx.update(partial)
        return "done"

    result = await Agent(MODEL, stream_fn=scripted(call("report"), text("ok")), tools=[report]).prompt("go")
    told = extract_text(result.messages[2].content)  # type: ignore[union-attr]
    assert told.startswith("TypeError: the update must be a string or an AgentToolResult, not a ")


async def test_updates_from_a_thread_are_complete_and_in_order() -> None:
    @tool
    def report(ctx: ToolContext) -> str:
        for number in range(500):
            ctx.update(f"{number};")
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(call("report"), text("ok")), tools=[report])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    seen = "".join(extract_text(event.update.content) for event in events if isinstance(event, ToolExecutionUpdate))
    assert seen == "".join(f"{number};" for number in range(500))


async def test_a_flood_of_updates_is_joined_when_nobody_reads_and_flushed_before_the_end() -> None:
    @tool
    async def flood(ctx: ToolContext) -> str:
        for number in range(3_000):
            ctx.update(f"{number};")
        return "done"

    stream = Agent(MODEL, stream_fn=scripted(call("flood"), text("ok")), tools=[flood]).prompt_stream("go")
    events = await collect(stream)
    check_events(events)
    updates = [event for event in events if isinstance(event, ToolExecutionUpdate)]
    assert len(updates) < 600
    assert "".join(extract_text(event.update.content) for event in updates) == "".join(f"{n};" for n in range(3_000))


async def test_an_update_after_the_end_is_dropped() -> None:
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "done"

    agent = Agent(MODEL, stream_fn=scripted(call("keep"), text("ok")), tools=[keep])
    agent.subscribe(lambda event: kept[0].update("late") if isinstance(event, TurnEnd) else None)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert "ToolExecutionUpdate" not in names(events)


# -- how each result came about --------------------------------------------------------------------------------


@tool
async def echo(word: str) -> str:
    """Says it again."""
    return word


def outcomes(agent: Agent) -> list[tuple[str, str]]:
    return [
        (message.outcome, extract_text(message.content))
        for message in agent.messages
        if isinstance(message, ToolResultMessage)
    ]


async def test_arguments_that_are_not_an_object_go_back_and_other_calls_run() -> None:
    raw = scripted([call("echo", word="a"), call("echo", word="b")], text("ok"))

    async def model(*given: Any) -> AsyncIterator[AssistantMessageEvent]:
        async for event in raw(*given):
            is_first = type(event).__name__ == "ToolCallDelta" and event.index == 0  # type: ignore[union-attr]
            yield type(event)(0, event.delta.replace("}", "")) if is_first else event  # type: ignore[union-attr, call-arg]

    agent = Agent(MODEL, stream_fn=model, tools=[echo])
    result = await agent.prompt("go")
    assert result.text == "ok"
    (invalid, said), (ran, echoed) = outcomes(agent)
    assert (invalid, ran, echoed) == (ToolOutcome.INVALID, ToolOutcome.RAN, "b")
    assert "not JSON" in said
    assert '{"word":"a"' in said.replace(" ", "")


async def test_every_result_says_how_it_came_about() -> None:
    @tool
    async def bad() -> str:
        """Fails."""
        raise ValueError("no")

    @tool(requires_approval=True)
    async def risky() -> str:
        """Nobody allows it."""
        return "never"

    class Skips:
        def pre_dispatch(self, ctx: Any) -> Any:
            from swink_agent import Skip

            return Skip("not now") if ctx.arguments.get("word") == "skip me" else None

    calls = [call("echo", word="x"), call("echo", word=1), call("bad"), call("risky"), call("nothing")]
    agent = Agent(
        MODEL,
        stream_fn=scripted([*calls, call("echo", word="skip me")], truncated(call("echo", word="cut")), text("ok")),
        tools=[echo, bad, risky],
        policies=[Skips()],
    )
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    await agent.prompt("go")
    expected = ["ran", "invalid", "failed", "rejected", "unknown_tool", "skipped", "incomplete"]
    assert [outcome for outcome, _ in outcomes(agent)] == expected
    ends = {event.call_id: event.outcome for event in seen if type(event).__name__ == "ToolExecutionEnd"}  # type: ignore[union-attr]
    ids = {m.tool_call_id: m.outcome for m in agent.messages if isinstance(m, ToolResultMessage)}
    assert ends == ids


async def test_arguments_that_fit_the_schema_and_not_the_type_are_invalid_too() -> None:
    @tool
    async def when(day: date) -> str:
        """Takes a day."""
        return day.isoformat()

    agent = Agent(MODEL, stream_fn=scripted(call("when", day="not a day"), text("ok")), tools=[when])
    await agent.prompt("go")
    assert [outcome for outcome, _ in outcomes(agent)] == [ToolOutcome.INVALID]


async def test_calls_that_a_policy_kept_from_running_by_a_stop_were_skipped() -> None:
    class Stops:
        name = "stops"

        def pre_dispatch(self, ctx: Any) -> Stop:
            return Stop("enough")

    agent = Agent(MODEL, stream_fn=scripted(call("echo", word="x")), tools=[echo], policies=[Stops()])
    await agent.prompt("go")
    assert [outcome for outcome, _ in outcomes(agent)] == [ToolOutcome.SKIPPED]
