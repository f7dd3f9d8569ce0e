"""Compaction on demand, and what a transform may know and ask of its run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentError,
    AgentMessage,
    AlreadyRunning,
    AssistantMessage,
    AuthError,
    CompactionContext,
    CompactionReport,
    ContextCompacted,
    Cost,
    ModelSpec,
    NetworkError,
    PolicyStopped,
    Redactor,
    SlidingWindow,
    Stop,
    SummarizingCompactor,
    Usage,
    UserMessage,
    agent_loop,
    estimate_tokens,
    extract_text,
)
from swink_agent.adapters import AnthropicStreamFn
from swink_agent.core.config import AgentLoopConfig
from swink_agent.core.journal import ContextReplaced, JournalEntry, MessageAdded
from swink_agent.core.types import AgentContext
from swink_agent.testing import collect, fail, names, scripted, stall

MODEL = ModelSpec("test", "model")
TALK: list[AgentMessage] = [
    message
    for number in range(6)
    for message in (UserMessage(f"question {number}", timestamp=0), AssistantMessage(f"answer {number}", timestamp=0))
]


def newest(messages: Sequence[AgentMessage], overflow: bool) -> Sequence[AgentMessage] | None:
    return messages[-2:] if overflow else None


# -- on demand -------------------------------------------------------------------------------------------------


async def test_a_plain_function_is_told_to_take_out_what_it_would_after_an_overflow() -> None:
    script = scripted("fine")
    agent = Agent(MODEL, stream_fn=script, messages=TALK, transform_context=newest)
    seen: list[Any] = []
    agent.subscribe(seen.append)
    report = await agent.compact()
    assert report == CompactionReport(10, estimate_tokens(TALK), estimate_tokens(TALK[-2:]), False)
    assert seen == [ContextCompacted(report)]
    assert list(agent.messages) == TALK, "the history stays as it is"
    assert not agent.is_running
    await agent.prompt("and now?")
    assert list(script.requests[0].messages) == [*TALK[-2:], agent.messages[12]], "but that is what is sent"


async def test_async_functions_run_too_and_in_their_order() -> None:
    order: list[tuple[str, int]] = []

    async def first(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        await asyncio.sleep(0)
        order.append(("first", len(messages)))
        return messages[-6:]

    def second(messages: list[AgentMessage], overflow: bool) -> None:
        order.append(("second", len(messages)))

    agent = Agent(MODEL, stream_fn=scripted(), messages=TALK, async_transform_context=first, transform_context=second)
    report = await agent.compact()
    assert report is not None
    assert (report.dropped_count, order) == (6, [("first", 12), ("second", 6)])


async def test_compaction_without_work_or_means_changes_nothing() -> None:
    assert await Agent(MODEL, stream_fn=scripted(), messages=TALK).compact() is None
    for messages in ([], TALK[:1], TALK[:2]):
        agent = Agent(MODEL, stream_fn=scripted(), messages=messages, transform_context=SlidingWindow())
        assert await agent.compact() is None
    unchanged = Agent(MODEL, stream_fn=scripted(), messages=TALK, transform_context=lambda messages, overflow: messages)
    assert await unchanged.compact() is None


async def test_it_needs_no_key_where_no_model_is_asked() -> None:
    agent = Agent("anthropic:claude-sonnet-4-6", stream_fn=AnthropicStreamFn(api_key=""), messages=TALK)
    with pytest.raises(AuthError):
        await agent.prompt("hello")
    assert await agent.compact() is None


async def test_during_a_run_it_is_refused_also_without_transforms() -> None:
    for transform in (None, newest):
        agent = Agent(MODEL, stream_fn=scripted(stall()), messages=TALK, transform_context=transform)
        async with agent.prompt_stream("go"):
            with pytest.raises(AlreadyRunning):
                await agent.compact()


def waiting() -> tuple[Any, asyncio.Event, asyncio.Event]:
    """A transform that says when it has begun, and ends when it is told to."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def transform(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        has_begun.set()
        await may_end.wait()
        return messages[-2:]

    return transform, has_begun, may_end


async def test_compaction_excludes_runs_and_changes_of_the_history() -> None:
    transform, has_begun, may_end = waiting()
    agent = Agent(MODEL, stream_fn=scripted("fine"), messages=TALK, async_transform_context=transform)
    compacting = asyncio.ensure_future(agent.compact())
    await has_begun.wait()
    assert agent.is_running
    with pytest.raises(AlreadyRunning):
        await agent.prompt("and now?")
    with pytest.raises(AlreadyRunning):
        await agent.compact()
    with pytest.raises(AlreadyRunning):
        agent.messages.append("more")
    may_end.set()
    await agent.wait_for_idle()
    assert (await compacting) is not None
    assert (await agent.prompt("and now?")).text == "fine"


async def test_an_abort_ends_it_at_once_and_leaves_the_context_as_it_was() -> None:
    transform, has_begun, _ = waiting()
    script = scripted("fine")
    agent = Agent(MODEL, stream_fn=script, messages=TALK, async_transform_context=transform)
    compacting = asyncio.ensure_future(agent.compact())
    await has_begun.wait()
    agent.abort()
    with pytest.raises(Aborted):
        await compacting
    assert not agent.is_running
    agent = Agent(MODEL, stream_fn=script, messages=list(agent.messages))
    await agent.prompt("and now?")
    assert len(script.requests[0].messages) == 13


async def test_a_task_that_is_cancelled_ends_it_too() -> None:
    transform, has_begun, _ = waiting()
    agent = Agent(MODEL, stream_fn=scripted("fine"), messages=TALK, async_transform_context=transform)
    compacting = asyncio.ensure_future(agent.compact())
    await has_begun.wait()
    compacting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await compacting
    assert not agent.is_running


async def test_it_waits_for_a_run_that_was_aborted() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()), messages=TALK, transform_context=SlidingWindow())
    stream = agent.prompt_stream("go")
    async for event in stream:
        if type(event).__name__ == "MessageStart":
            agent.abort()
            report = await agent.compact()
            assert report is not None
            break
    assert not agent.is_running


async def test_failures_are_our_errors_and_change_nothing() -> None:
    def broken(messages: Any, overflow: bool) -> Any:
        raise KeyError("x")

    agent = Agent(MODEL, stream_fn=scripted(), messages=TALK, transform_context=broken)
    with pytest.raises(AgentError, match="transform_context failed: KeyError"):
        await agent.compact()
    assert not agent.is_running


NO_MESSAGES: dict[str, Any] = {
    "nothing in a list": [None],
    "a text": "abc",
    "an empty text": "",
    "texts": ["a"],
    "a number": 5,
    "yes": True,
    "a dict": {1: 2},
    "a type": [UserMessage],
    "an iterator": iter(()),
    "bytes": b"ab",
}


@pytest.mark.table
@pytest.mark.parametrize("hook", ["transform_context", "async_transform_context"])
@pytest.mark.parametrize("returned", NO_MESSAGES, ids=repr)
async def test_an_invalid_list_of_messages_is_an_error_and_later_requests_are_whole(hook: str, returned: Any) -> None:
    answers = [returned]
    script = scripted("fine")
    agent = Agent(MODEL, stream_fn=script, **{hook: lambda messages, overflow: answers.pop() if answers else None})
    result = await agent.prompt("first")
    assert result.error is not None
    assert "transform_context failed" in result.error
    assert "which is no" in result.error
    assert script.requests == []
    assert (await agent.prompt("second")).text == "fine"
    assert [extract_text(message.content) for message in script.requests[0].messages] == ["first", "second"]


async def test_the_next_run_has_no_compaction_of_its_own_to_do() -> None:
    agent = Agent(MODEL, stream_fn=scripted("fine"), messages=TALK, transform_context=SlidingWindow())
    assert await agent.compact() is not None
    assert "ContextCompacted" not in names(await collect(agent.prompt_stream("and now?")))


# -- what a transform is told, and may ask -----------------------------------------------------------------------


class Asking:
    """A transform that asks a model for something before every turn."""

    def __init__(self, ask: Callable[[CompactionContext], Any]) -> None:
        self.ask = ask
        self.contexts: list[CompactionContext] = []
        self.answers: list[Any] = []

    async def __call__(self, messages: Sequence[AgentMessage], overflow: bool) -> None:
        context = CompactionContext.current()
        assert context is not None
        self.contexts.append(context)
        try:
            self.answers.append(extract_text((await self.ask(context)).content))
        except AgentError as error:
            self.answers.append(error)


async def test_a_transform_learns_who_asked_for_it_and_what_for() -> None:
    asking = Asking(lambda context: context.ask("?"))
    agent = Agent(MODEL, stream_fn=scripted("one", "fine", "two"), messages=TALK, transform_context=asking)
    await agent.prompt("and now?")
    await agent.compact("the names")
    assert [(each.is_on_demand, each.instructions, each.model) for each in asking.contexts] == [
        (False, None, MODEL),
        (True, "the names", MODEL),
    ]
    assert asking.answers == ["one", "two"]


async def test_there_is_a_context_only_while_a_transform_is_at_work() -> None:
    seen: list[Any] = []

    def look(messages: Sequence[AgentMessage], overflow: bool) -> None:
        seen.append(CompactionContext.current())

    def answers(request: Any) -> str:
        seen.append(CompactionContext.current())
        return "fine"

    await Agent(MODEL, stream_fn=scripted(answers), transform_context=look).prompt("hello")
    seen.append(CompactionContext.current())
    assert [each is None for each in seen] == [False, True, True]


async def test_transforms_can_be_put_together_and_an_agent_in_one_has_a_context_of_its_own() -> None:
    inner: list[Any] = []

    async def outer(messages: list[AgentMessage], overflow: bool) -> Any:
        def look(messages: Sequence[AgentMessage], overflow: bool) -> None:
            inner.append(CompactionContext.current())

        before = CompactionContext.current()
        await Agent("inner:one", stream_fn=scripted("so"), transform_context=look).prompt("?")
        assert CompactionContext.current() is before
        return await compactor(messages, overflow)

    compactor = SummarizingCompactor(max_tokens=60, keep_recent=20)
    script = scripted("the summary", "fine")
    result = await Agent(MODEL, stream_fn=script, messages=TALK, transform_context=outer).prompt("and now?")
    assert result.text == "fine"
    assert "the summary" in extract_text(script.requests[1].messages[0].content)  # type: ignore[union-attr]
    assert [str(each.model) for each in inner] == ["inner:one"]


async def test_a_side_request_counts_into_the_run_and_raises_where_it_was_made() -> None:
    usage, cost = Usage(10, 1, total=11), Cost(total=0.5)
    asking = Asking(lambda context: context.ask("?"))
    agent = Agent(
        MODEL, stream_fn=scripted("one", "fine", usage=usage, cost=cost), messages=TALK, transform_context=asking
    )
    result = await agent.prompt("and now?")
    assert (result.usage.total, result.cost.total) == (22, 1.0)
    script = scripted(fail("network", usage=usage), "fine")
    asking = Asking(lambda context: context.ask("?"))
    result = await Agent(MODEL, stream_fn=script, messages=TALK, transform_context=asking).prompt("and now?")
    assert (result.text, result.usage.total, len(script.requests)) == ("fine", 11, 2)
    assert isinstance(asking.answers[0], NetworkError)


async def test_a_policy_that_sees_every_call_may_refuse_a_side_request() -> None:
    class Strict:
        on_every_request = True
        name = "strict"

        def pre_turn(self, ctx: Any) -> Stop | None:
            return Stop("no") if len(ctx.messages) == 1 else None

    asking = Asking(lambda context: context.ask("?"))
    agent = Agent(MODEL, stream_fn=scripted("fine"), messages=TALK, policies=[Strict()], transform_context=asking)
    result = await agent.prompt("and now?")
    assert (result.text, result.stopped_by) == ("fine", None)
    (error,) = asking.answers
    assert isinstance(error, PolicyStopped)
    assert (error.policy, error.reason) == ("strict", "no")


async def test_a_time_limit_around_a_side_request_ends_that_alone() -> None:
    async def hurry(context: CompactionContext) -> AssistantMessage:
        try:
            async with asyncio.timeout(0.01):
                return await context.ask("?", stream_fn=scripted(stall()))
        except TimeoutError:
            return AssistantMessage("too slow")

    asking = Asking(hurry)
    result = await Agent(MODEL, stream_fn=scripted("fine"), transform_context=asking).prompt("and now?")
    assert (result.text, asking.answers) == ("fine", ["too slow"])


# -- what is written down ----------------------------------------------------------------------------------------


class Ledger:
    """A journal in memory, whose disk may be full."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.safe = 0
        self.is_full = False

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        self.entries.append(entry)
        return len(self.entries)

    async def durable(self) -> None:
        if self.is_full:
            raise OSError("the.log: no space left")
        self.safe = len(self.entries)


async def test_compaction_on_demand_is_safe_before_it_is_announced() -> None:
    agent, ledger = Agent(MODEL, stream_fn=scripted(), messages=TALK, transform_context=newest), Ledger()
    agent.attach_journal(ledger)
    report = await agent.compact()
    assert ledger.entries[-1] == ContextReplaced(_numbers(ledger, TALK[-2:]), report)
    assert ledger.safe == len(ledger.entries)
    ledger.is_full = True
    agent = Agent(MODEL, stream_fn=scripted(), messages=TALK, transform_context=newest)
    agent.attach_journal(ledger)
    with pytest.raises(AgentError, match=r"the\.log"):
        await agent.compact()


def _numbers(ledger: Ledger, messages: Sequence[AgentMessage]) -> tuple[int, ...]:
    """The numbers of the entries that added these messages."""
    added = {id(entry.message): at for at, entry in enumerate(ledger.entries, 1) if isinstance(entry, MessageAdded)}
    return tuple([added[id(message)] for message in messages])


async def test_a_side_request_follows_a_safe_record_and_is_not_written_itself() -> None:
    ledger = Ledger()
    unsafe: list[int] = []

    def answers(request: Any) -> str:
        unsafe.append(len(ledger.entries) - ledger.safe)
        return "fine"

    asking = Asking(lambda context: context.ask("?"))
    agent = Agent(MODEL, stream_fn=scripted(answers, answers), messages=TALK, transform_context=asking)
    agent.attach_journal(ledger)
    await agent.prompt("and now?")
    assert (unsafe, asking.answers) == ([0, 0], ["fine"])
    written = [entry.message for entry in ledger.entries if isinstance(entry, MessageAdded)]
    assert written == list(agent.messages)


async def test_a_journal_that_refuses_ends_the_run_before_a_summary_is_asked_for() -> None:
    ledger, script = Ledger(), scripted("never")
    agent = Agent(
        MODEL, stream_fn=script, messages=TALK, transform_context=SummarizingCompactor(max_tokens=30, keep_recent=9)
    )
    agent.attach_journal(ledger)
    ledger.is_full = True
    result = await agent.prompt("and now?")
    assert "the.log" in str(result.error)
    assert script.requests == []
    assert not any(isinstance(entry, ContextReplaced) for entry in ledger.entries), "and nothing is left out"


# -- without an agent --------------------------------------------------------------------------------------------


async def test_the_bare_loop_has_the_same() -> None:
    asking = Asking(lambda context: context.ask("?"))
    config = AgentLoopConfig(model=MODEL, stream_fn=scripted("one", "fine"), transform_context=asking)
    stream = agent_loop("hello", AgentContext("", TALK, ()), config)
    await collect(stream)
    assert asking.answers == ["one"]
