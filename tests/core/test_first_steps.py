"""Foreign code whose first step the run takes itself behaves like any other task."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AssistantMessageEvent,
    MessageStart,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    tool,
)
from swink_agent.testing import call, names, reply, scripted, text

MODEL = ModelSpec("test", "model")
Body = Callable[[], Awaitable[object]]
Promptly = Callable[[float], AbstractContextManager[None]]
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def results(agent: Agent) -> list[str]:
    """The texts of all tool results."""
    return [
        "".join(getattr(block, "text", "") for block in message.content)
        for message in agent.messages
        if isinstance(message, ToolResultMessage)
    ]


def agent_with(body: Body, turns: int = 1) -> Agent:
    """An agent whose tool does `body`, once in each of its turns."""

    @tool
    async def act() -> str:
        """Acts."""
        return str(await body())

    return Agent(MODEL, stream_fn=scripted(*[reply(call("act"))] * turns, "done"), tools=[act], max_turns=None)


async def in_a_tool(body: Body) -> str:
    agent = agent_with(body, turns=2)  # in the second turn, what was kept from the first is used again
    result = await asyncio.wait_for(agent.prompt("go"), 30)
    assert result.error is None, result
    first, second = results(agent)
    assert first == second
    return first


async def in_a_stream(body: Body) -> str:
    said: list[str] = []

    async def stream(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        said.append(str(await body()))
        yield TextStart(0)
        yield TextDelta(0, said[-1])
        yield TextEnd(0)
        yield StreamDone()

    agent = Agent(MODEL, stream_fn=stream)
    for _ in range(2):
        result = await asyncio.wait_for(agent.prompt("go"), 30)
        assert result.error is None, result
    assert said[0] == said[1]
    return said[0]


async def in_a_hook(body: Body) -> str:
    said: list[str] = []

    async def key(_: str) -> str:
        said.append(str(await body()))
        return "key"

    agent = Agent(MODEL, stream_fn=scripted(reply(call("echo")), "done"), get_api_key=key)
    result = await asyncio.wait_for(agent.prompt("go"), 30)
    assert result.error is None, result
    assert said[0] == said[1]
    return said[0]


everywhere = pytest.mark.parametrize("where", [in_a_tool, in_a_stream, in_a_hook])
Where = Callable[[Body], Awaitable[str]]


# -- the task that the code is in ------------------------------------------------------------------------------


@everywhere
async def test_code_is_in_one_task_that_is_not_the_callers(where: Where) -> None:
    outer = asyncio.current_task()

    async def body() -> str:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        second = asyncio.current_task()
        assert isinstance(first, asyncio.Task)
        assert first in asyncio.all_tasks()
        return f"{first is second} {first is outer}"

    assert await where(body) == "True False"
    assert asyncio.current_task() is outer


@everywhere
async def test_the_caller_is_the_current_task_again_after_code_that_never_waits(where: Where) -> None:
    outer = asyncio.current_task()

    async def body() -> bool:
        return asyncio.current_task() is outer

    assert await where(body) == "False"
    assert asyncio.current_task() is outer


@everywhere
async def test_a_time_limit_that_is_entered_in_the_first_step_ends_the_wait(where: Where) -> None:
    async def body() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            task = asyncio.current_task()
            return f"timed out, {task.cancelling() if task else task}"
        return "went on"

    assert await where(body) == "timed out, 0"


@everywhere
async def test_a_time_limit_that_is_over_before_it_begins_ends_the_wait(where: Where) -> None:
    async def body() -> str:
        try:
            async with asyncio.timeout(-1):
                await asyncio.sleep(10)
        except TimeoutError:
            return "timed out"
        return "went on"

    assert await where(body) == "timed out"


@everywhere
async def test_a_task_group_cancels_the_code_around_it_when_a_child_fails(where: Where) -> None:
    async def broken() -> None:
        raise ValueError("broken")

    async def body() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(broken())
                await asyncio.Event().wait()
        except ExceptionGroup as errors:
            return str(errors.exceptions[0])
        return "went on"

    assert await where(body) == "broken"


@everywhere
async def test_a_task_group_gathers_its_children(where: Where) -> None:
    async def child(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def body() -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(number)) for number in range(3)]
        return sum(task.result() for task in tasks)

    assert await where(body) == "3"


async def test_a_tool_that_cancels_its_own_task_does_not_cancel_the_next_one() -> None:
    turns = 0

    async def body() -> str:
        nonlocal turns
        turns += 1
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        if turns < 3:
            task.cancel()
        if turns == 2:
            await asyncio.sleep(0)
        return "went on"

    agent = agent_with(body, turns=3)
    assert (await asyncio.wait_for(agent.prompt("go"), 30)).error is None
    assert results(agent) == ["tool call cancelled from within"] * 2 + ["went on"]


async def test_a_child_that_cancels_the_tool_early_cancels_what_it_waits_for() -> None:
    seen: list[str] = []

    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        forever = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await forever
        except asyncio.CancelledError:
            seen.append("cancelled" if forever.cancelled() else "abandoned")
            raise
        return "went on"

    agent = agent_with(body, turns=2)
    await asyncio.wait_for(agent.prompt("go"), 30)
    assert seen == ["cancelled"] * 2
    assert results(agent) == ["tool call cancelled from within"] * 2


async def test_the_kept_task_of_ended_code_cannot_cancel_other_code() -> None:
    kept: list[asyncio.Task[Any]] = []

    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        before, kept[:] = list(kept), [task]
        for other in before:
            assert other is not task
            assert other.done()
            assert not other.cancel()
            await asyncio.sleep(0.01)
        return "done"

    agent = agent_with(body, turns=3)
    assert (await asyncio.wait_for(agent.prompt("go"), 30)).error is None
    assert results(agent) == ["done"] * 3


async def test_the_kept_task_of_an_ended_hook_gives_its_answer() -> None:
    kept: list[asyncio.Task[Any]] = []

    async def get_api_key(_: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        kept.append(task)
        return "a key of mine"

    agent = Agent(MODEL, stream_fn=scripted("done"), get_api_key=get_api_key)
    assert (await agent.prompt("go")).error is None
    assert [await task for task in kept] == ["a key of mine"]


async def test_done_callbacks_of_code_that_never_waits_are_called_soon_after_its_end() -> None:
    ended = asyncio.Event()
    turns = 0

    async def body() -> str:
        nonlocal turns
        turns += 1
        task = asyncio.current_task()
        assert task is not None
        if turns == 1:
            task.add_done_callback(lambda _: ended.set())
        else:
            await ended.wait()
        return "done"

    agent = agent_with(body, turns=2)
    before = asyncio.all_tasks()
    assert (await agent.prompt("go")).error is None
    assert results(agent) == ["done"] * 2
    assert asyncio.all_tasks() == before


@everywhere
async def test_notes_of_code_about_its_task_are_not_found_by_other_code(where: Where) -> None:
    notes: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()

    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        return notes.get(task) or notes.setdefault(task, "noted") + " first"

    assert await where(body) == "noted first"


# -- what does not leak ------------------------------------------------------------------------------------------


@pytest.mark.table
@everywhere
@pytest.mark.parametrize("waits", [False, True])
async def test_context_variables_are_the_codes_own(where: Where, waits: bool) -> None:
    async def body() -> str:
        before = variable.get()
        variable.set("from inside")
        if waits:
            await asyncio.sleep(0)
        return f"{before}, {variable.get()}"

    assert await where(body) == "unset, from inside"
    assert variable.get() == "unset"


async def test_code_sees_the_context_variables_of_the_run() -> None:
    async def body() -> str:
        await asyncio.sleep(0)
        return variable.get()

    token = variable.set("from outside")
    try:
        assert await in_a_tool(body) == "from outside"
    finally:
        variable.reset(token)


async def test_a_child_task_has_the_context_variables_of_the_code_that_made_it() -> None:
    async def child() -> str:
        return variable.get()

    async def body() -> str:
        variable.set("from inside")
        await asyncio.sleep(0)
        return await asyncio.get_running_loop().create_task(child())

    assert await in_a_tool(body) == "from inside"


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_no_task_is_left_when_the_run_is_over(steps: int) -> None:
    async def body() -> str:
        for _ in range(steps):
            await asyncio.sleep(0)
        return "done"

    before = asyncio.all_tasks()
    agent = agent_with(body, turns=3)
    await agent.prompt("go")
    assert asyncio.all_tasks() == before
    await agent.prompt("again")
    assert asyncio.all_tasks() == before


def test_an_event_loop_that_is_closed_after_the_run_has_nothing_to_complain_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> str:
        return "done"

    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.DEBUG):
        result = loop.run_until_complete(agent_with(body, turns=2).prompt("go"))
        loop.close()
    assert result.error is None
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -- aborts --------------------------------------------------------------------------------------------------------


async def waits() -> object:
    return await asyncio.Event().wait()


async def spins() -> object:
    while True:  # noqa: ASYNC110 - that is what it is to do
        await asyncio.sleep(0)


async def refuses() -> object:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)
    return "refused"


async def abort_after(begun: type[AgentEvent], agent: Agent, promptly: Promptly) -> None:
    """Aborts the run a moment after that has happened, and holds it to ending in time."""
    has_begun = asyncio.Event()
    agent.subscribe(lambda event: has_begun.set() if isinstance(event, begun) else None)
    task = asyncio.ensure_future(agent.prompt("go"))
    await has_begun.wait()
    await asyncio.sleep(0.05)
    try:
        with promptly(0.3):  # 100 ms, and a machine that has other things to do
            agent.abort()
            result = await asyncio.wait_for(task, 30)
    finally:
        for left in asyncio.all_tasks() - {asyncio.current_task()}:
            await left
    assert result.stop_reason == StopReason.ABORTED


@pytest.mark.slow
@pytest.mark.parametrize("body", [waits, spins, refuses])
async def test_an_abort_ends_a_tool_that_goes_on_after_its_first_step(body: Body, promptly: Promptly) -> None:
    agent = agent_with(body)
    await abort_after(ToolExecutionStart, agent, promptly)
    assert [message.outcome for message in agent.messages if isinstance(message, ToolResultMessage)] == [
        ToolOutcome.CANCELLED
    ]


@pytest.mark.slow
@pytest.mark.parametrize("body", [waits, spins, refuses])
async def test_an_abort_ends_a_stream_that_goes_on_after_its_first_step(body: Body, promptly: Promptly) -> None:
    async def stream(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        await body()
        yield StreamDone()

    await abort_after(MessageStart, Agent(MODEL, stream_fn=stream), promptly)


async def test_an_abort_from_the_first_step_of_a_tool_reaches_the_tool() -> None:
    seen: list[str] = []

    async def body() -> str:
        agent.abort()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "went on"

    agent = agent_with(body)
    result = await asyncio.wait_for(agent.prompt("go"), 30)
    assert (result.stop_reason, seen) == (StopReason.ABORTED, ["cancelled"])


async def test_cancelling_the_task_of_a_run_in_which_nothing_waits_aborts_it() -> None:
    turns, went_on = 0, asyncio.Event()

    async def body() -> str:
        nonlocal turns
        turns += 1
        if turns == 10:
            went_on.set()
        return "done"

    events: list[AgentEvent] = []
    agent = agent_with(body, turns=1_000)
    agent.subscribe(events.append)
    task = asyncio.ensure_future(agent.prompt("go"))
    await went_on.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turns < 20
    assert names(events)[-1] == "AgentEnd"


# -- the others in the event loop ------------------------------------------------------------------------------------


async def test_a_run_in_which_nothing_waits_gives_way_once_a_turn() -> None:
    turns, seen = 0, list[int]()

    async def body() -> str:
        nonlocal turns
        turns += 1
        return "done"

    task = asyncio.ensure_future(agent_with(body, turns=20).prompt("go"))
    while not task.done():
        seen.append(turns)
        await asyncio.sleep(0)
    assert set(range(1, 20)) <= set(seen)


async def test_messages_that_come_while_nothing_waits_are_answered_in_the_same_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted("first", "second", "third"))
    replied = asyncio.Event()
    agent.subscribe(lambda event: replied.set() if isinstance(event, TurnEnd) else None)
    task = asyncio.ensure_future(agent.prompt("go"))
    await replied.wait()
    assert agent.is_running  # between the reply and the end, the event loop has its turn once more
    agent.steer("one more")
    agent.follow_up("and another")
    result = await task
    assert result.text == "third"
    assert not agent.has_queued_messages


async def test_calls_of_one_batch_all_start_before_the_first_does_anything() -> None:
    order: list[str] = []

    @tool
    async def act(name: str) -> str:
        """Acts."""
        order.append(f"begins {name}")
        return name

    events: list[AgentEvent] = []
    agent = Agent(
        MODEL, stream_fn=scripted(reply(call("act", name="a"), call("act", name="b")), text("done")), tools=[act]
    )

    def watch(event: AgentEvent) -> None:
        events.append(event)
        if isinstance(event, (ToolExecutionStart, ToolExecutionEnd)):
            order.append(type(event).__name__)

    agent.subscribe(watch)
    await agent.prompt("go")
    assert order == ["ToolExecutionStart"] * 2 + ["begins a", "begins b"] + ["ToolExecutionEnd"] * 2


async def test_agents_that_call_agents_do_not_pile_up_on_the_stack() -> None:
    async def descend(level: int) -> str:
        if level == 0:
            return "bottom"

        @tool
        async def deeper() -> str:
            """Goes deeper."""
            return await descend(level - 1)

        agent = Agent(MODEL, stream_fn=scripted(reply(call("deeper")), "done"), tools=[deeper])
        await agent.prompt("go")
        return results(agent)[0]

    assert await asyncio.wait_for(descend(100), 30) == "bottom"


@pytest.mark.sweep
async def test_a_run_of_ten_thousand_turns_comes_to_its_end() -> None:
    async def body() -> str:
        return "done"

    result = await agent_with(body, turns=10_000).prompt("go")
    assert result.error is None
    assert len(result.messages) == 20_002


@pytest.mark.slow
async def test_a_run_that_never_waits_gives_way_to_others_and_to_timers() -> None:
    """Who is ready has a turn before each reply; a timer, which shows only when the loop comes round, soon enough."""
    seen: list[int] = []
    rounds = 0

    @tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def other() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    def on_request(*arguments: Any) -> Any:
        seen.append(rounds)
        return model(*arguments)

    model = scripted(*[call("add", a=1, b=2)] * 20, text("done"), suspend=False)
    beside = asyncio.ensure_future(other())
    await Agent(MODEL, stream_fn=on_request, tools=[add]).prompt("go")
    beside.cancel()
    assert all(after > before for before, after in pairwise(seen)), seen

    turns_at_alarm: list[int] = []
    model = scripted(*[call("add", a=1, b=2)] * 5_000, text("done"), suspend=False)
    asyncio.get_running_loop().call_later(0.005, lambda: turns_at_alarm.append(len(model.requests)))
    await Agent(MODEL, stream_fn=model, tools=[add]).prompt("go")
    assert turns_at_alarm
    assert 0 < turns_at_alarm[0] < 5_000
