"""The options of tools: time limits, retries, and how many calls run at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentToolResult,
    ToolCall,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
    ToolOutcome,
    ToolResultMessage,
    tool,
)
from swink_agent.testing import call, check_events, names, reply, scripted


def results(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def watch(agent: Agent) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return events


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": -1.0}, {"retries": -1}, {"max_concurrent": 0}, {"timeout": float("nan")}]
)
def test_values_that_do_not_fit_are_refused_when_the_tool_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it must be"):

        @tool(**options)
        def look() -> str:
            return ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": "1s"}, "timeout must be a number of seconds, or None, not a str"),
        ({"timeout": True}, "timeout must be a number of seconds, or None, not a bool"),
        ({"retries": "2"}, "retries must be a whole number, not a str"),
        ({"retries": None}, "retries must be a whole number, not a NoneType"),
        ({"max_concurrent": "2"}, "max_concurrent must be a whole number, or None, not a str"),
        ({"max_concurrent": 1.5}, "max_concurrent must be a whole number, or None, not a float"),
        ({"external": "no"}, "external must be True or False, not a str"),
        ({"external": None}, "external must be True or False, not a NoneType"),
    ],
)
def test_values_of_another_type_are_refused_in_words_that_name_them(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):

        @tool(**options)
        def look() -> str:
            return ""


def test_any_tool_may_have_options_and_an_agent_refuses_wrong_ones() -> None:
    class Slow:
        name = label = description = "slow"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = False
        timeout = -1

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
            return AgentToolResult.text("done")

    with pytest.raises(ValueError, match="timeout"):
        Agent("test:model", stream_fn=scripted("hi"), tools=[Slow()])


async def test_an_async_tool_is_cancelled_when_its_time_is_up() -> None:
    cancelled: list[bool] = []

    @tool(timeout=0.01)
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return ""

    agent = Agent("test:model", stream_fn=scripted(call("wait"), "done"), tools=[wait])
    events = watch(agent)
    await agent.prompt("go")
    (result,) = results(agent)
    assert (result.outcome, result.is_error) == (ToolOutcome.FAILED, True)
    assert result.content[0].text == "wait timed out after 0.01 s"  # type: ignore[union-attr]
    assert cancelled == [True]
    check_events(events)


async def test_of_a_thread_the_result_says_that_it_may_still_run() -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def wait(ctx: ToolContext) -> str:
        assert not ctx.cancel.is_cancelled
        release.wait(30)
        return ""

    agent = Agent("test:model", stream_fn=scripted(call("wait"), "done"), tools=[wait])
    try:
        await agent.prompt("go")
    finally:
        release.set()
    (result,) = results(agent)
    assert result.outcome == ToolOutcome.FAILED, "the token was cancelled, and the call was not"
    assert "may still be running" in result.content[0].text  # type: ignore[union-attr]


async def test_a_tool_that_ignores_its_cancellation_does_not_hold_up_the_run() -> None:
    over = asyncio.Event()

    @tool(timeout=0.01)
    async def stubborn() -> str:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    agent = Agent("test:model", stream_fn=scripted(call("stubborn"), "done"), tools=[stubborn])
    result = await agent.prompt("go")
    over.set()
    assert result.text == "done"
    assert results(agent)[0].outcome == ToolOutcome.FAILED


async def test_a_time_limit_is_not_retried_and_a_steered_call_with_one_is_cancelled() -> None:
    started = asyncio.Event()

    @tool(timeout=30)
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("test:model", stream_fn=scripted(call("wait"), "done"), tools=[wait])
    run = asyncio.create_task(agent.prompt("go"))
    await started.wait()
    agent.steer("stop")
    await run
    assert results(agent)[0].outcome == ToolOutcome.CANCELLED


async def test_a_tool_error_with_retry_after_is_tried_again() -> None:
    slept: list[float] = []
    attempts: list[int] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    @tool(retries=2)
    async def fetch() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ToolError("busy", retry_after=1.5)
        return "there"

    agent = Agent("test:model", stream_fn=scripted(call("fetch"), "done"), tools=[fetch], sleep=sleep)
    events = watch(agent)
    await agent.prompt("go")
    assert (len(attempts), slept) == (3, [1.5, 1.5])
    assert results(agent)[0].content[0].text == "there"  # type: ignore[union-attr]
    about_calls = [e for e in events if isinstance(e, (ToolExecutionStart, ToolExecutionRetry, ToolExecutionEnd))]
    assert names(about_calls) == [
        *("ToolExecutionStart", "ToolExecutionRetry", "ToolExecutionRetry", "ToolExecutionEnd"),
    ]
    call_id = results(agent)[0].tool_call_id
    assert about_calls[1:3] == [
        ToolExecutionRetry(call_id, "fetch", 1, "busy", 1.5),
        ToolExecutionRetry(call_id, "fetch", 2, "busy", 1.5),
    ]
    check_events(events)


@pytest.mark.parametrize("error", [ToolError("no"), RuntimeError("no")])
async def test_nothing_else_is_tried_again(error: Exception) -> None:
    attempts: list[int] = []

    @tool(retries=3)
    def fetch() -> str:
        attempts.append(1)
        raise error

    agent = Agent("test:model", stream_fn=scripted(call("fetch"), "done"), tools=[fetch])
    await agent.prompt("go")
    assert len(attempts) == 1
    assert results(agent)[0].outcome == ToolOutcome.FAILED


async def test_after_the_last_retry_the_error_is_the_result() -> None:
    attempts: list[int] = []

    async def sleep(seconds: float) -> None:
        pass

    @tool(retries=1)
    def fetch() -> str:
        attempts.append(1)
        raise ToolError("busy", retry_after=0)

    agent = Agent("test:model", stream_fn=scripted(call("fetch"), "done"), tools=[fetch], sleep=sleep)
    await agent.prompt("go")
    assert len(attempts) == 2
    assert results(agent)[0].content[0].text == "busy"  # type: ignore[union-attr]


async def test_a_tool_with_retries_that_is_called_without_a_run_returns_its_error() -> None:
    @tool(retries=1)
    def fetch() -> str:
        raise ToolError("busy", retry_after=0)

    result = await fetch.execute({}, ToolContext())
    assert result == AgentToolResult.error("busy")


async def test_a_tool_without_retries_may_say_retry_after() -> None:
    @tool
    def fetch() -> str:
        raise ToolError("busy", retry_after=5)

    agent = Agent("test:model", stream_fn=scripted(call("fetch"), "done"), tools=[fetch])
    await agent.prompt("go")
    assert results(agent)[0].content[0].text == "busy"  # type: ignore[union-attr]


async def test_a_wait_that_is_not_a_number_of_seconds_is_named() -> None:
    @tool(retries=1)
    def fetch() -> str:
        raise ToolError("busy", retry_after="3")  # type: ignore[arg-type]

    agent = Agent("test:model", stream_fn=scripted(call("fetch"), "done"), tools=[fetch])
    await agent.prompt("go")
    told = "TypeError: ToolError.retry_after must be a number of seconds, or None, not a str"
    assert results(agent)[0].content[0].text == told  # type: ignore[union-attr]
    for endless in (float("inf"), float("nan")):  # JSON has neither, and such a wait would not end
        with pytest.raises(ValueError, match="finite number of seconds"):
            ToolError("busy", retry_after=endless)


async def test_so_many_calls_run_at_once_and_the_others_have_not_started() -> None:
    running: list[int] = []
    most: list[int] = []
    both = asyncio.Event()

    @tool(max_concurrent=2)
    async def work(number: int) -> str:
        running.append(number)
        most.append(len(running))
        if len(running) == 2:
            both.set()
        await both.wait()
        running.remove(number)
        return str(number)

    calls = reply(*[call("work", number=number) for number in range(3)])
    agent = Agent("test:model", stream_fn=scripted(calls, "done"), tools=[work])
    events = watch(agent)
    await agent.prompt("go")
    assert max(most) == 2
    order = [type(e).__name__ for e in events if isinstance(e, (ToolExecutionStart, ToolExecutionEnd))]
    assert order[:3] == ["ToolExecutionStart", "ToolExecutionStart", "ToolExecutionEnd"], "the third waited"
    assert [result.content[0].text for result in results(agent)] == ["0", "1", "2"]  # type: ignore[union-attr]
    check_events(events)


@pytest.mark.parametrize("how", ["steer", "abort"])
async def test_a_call_that_waits_for_its_turn_is_cancelled_without_a_start(how: str) -> None:
    started = asyncio.Event()

    @tool(max_concurrent=1)
    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent("test:model", stream_fn=scripted(reply(call("work"), call("work")), "done"), tools=[work])
    events = watch(agent)
    run = asyncio.create_task(agent.prompt("go"))
    await started.wait()
    agent.steer("stop") if how == "steer" else agent.abort()
    await run
    assert [result.outcome for result in results(agent)] == [ToolOutcome.CANCELLED] * 2
    assert sum(isinstance(event, ToolExecutionStart) for event in events) == 1
    check_events(events)


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_calls_that_waited_for_their_turn_and_are_invalid_end_the_batch(others: int) -> None:
    @tool(max_concurrent=1)
    async def work(number: int) -> str:
        return str(number)

    calls = reply(call("work", number=0), *[call("work", number="x")] * others, call("work", number="y"))
    agent = Agent("test:model", stream_fn=scripted(calls, "done"), tools=[work])
    events = watch(agent)
    async with asyncio.timeout(60):
        assert (await agent.prompt("go")).text == "done"
    outcomes = [result.outcome for result in results(agent)]
    assert outcomes == [ToolOutcome.RAN, *[ToolOutcome.INVALID] * (others + 1)]
    check_events(events)


@pytest.mark.parametrize("execution", ["concurrent", "groups"])
async def test_a_journal_that_fails_before_a_waiting_call_leaves_others_their_results(
    execution: str,
) -> None:
    has_failed = asyncio.Event()

    class Disk:
        """A journal that fails once, after the first call has started."""

        def __init__(self) -> None:
            self.is_full = False

        def record(self, entry: object, redactor: object = None) -> int:
            return 1

        async def durable(self) -> None:
            if self.is_full:
                self.is_full = False
                has_failed.set()
                raise OSError("full")

    class Groups:
        def partition(self, calls: Sequence[ToolCall]) -> list[list[int]]:
            return [[0, 1, 2], [3]]

    disk = Disk()

    @tool(max_concurrent=1)
    async def work(number: int) -> str:
        disk.is_full = number == 0
        return str(number)

    @tool
    async def other() -> str:
        await has_failed.wait()
        return "other"

    calls = reply(call("work", number=0), call("work", number=1), call("other"), call("work", number=2))
    how: Any = "concurrent" if execution == "concurrent" else Groups()
    agent = Agent("test:model", stream_fn=scripted(calls, "done"), tools=[work, other], tool_execution=how)
    agent.attach_journal(disk)
    events = watch(agent)
    async with asyncio.timeout(60):
        result = await agent.prompt("go")
    assert result.error == "the journal failed: OSError: full"
    never = ToolOutcome.NEVER_RAN
    assert [message.outcome for message in results(agent)] == [ToolOutcome.RAN, never, ToolOutcome.RAN, never]
    check_events(events)


async def test_a_limit_holds_over_several_tools_of_a_reply_and_frees_what_failed() -> None:
    @tool(max_concurrent=1)
    def work(number: int) -> str:
        if number == 0:
            raise ToolError("no")
        return str(number)

    @tool
    def other() -> str:
        return "other"

    calls = reply(call("work", number=0), call("other"), call("work", number="x"), call("work", number=2))
    agent = Agent("test:model", stream_fn=scripted(calls, "done"), tools=[work, other])
    await agent.prompt("go")
    assert [result.outcome for result in results(agent)] == [
        *(ToolOutcome.FAILED, ToolOutcome.RAN, ToolOutcome.INVALID, ToolOutcome.RAN),
    ]
