"""Replay: a recorded session runs again offline, and the first difference is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentMessage,
    ApproveWith,
    AssistantMessage,
    AuthError,
    CustomMessage,
    Defer,
    Inject,
    ModelSpec,
    PolicyContext,
    PreDispatchContext,
    Redactor,
    Skip,
    Stop,
    StructuredOutputFailed,
    Text,
    ToolCall,
    ToolContext,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.core.journal import JournalEntry, MessageAdded, RunEnded, ToolStarted
from swink_agent.memory import ReplayReport, replay
from swink_agent.memory.errors import SessionNotFound
from swink_agent.testing import assert_replays, assert_replays_sync, call, fail, scripted, stall, text, think, truncated

MODEL = ModelSpec("test", "model")


class Record(NamedTuple):
    number: int
    entry: Any


class Ledger:
    """A journal in memory, and the session that it holds."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self.entries = list(entries)
        self.messages: Sequence[AgentMessage] = ()

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        self.entries.append(entry if redactor is None else redactor.redact_value(entry))
        return len(self.entries)

    async def durable(self) -> None:
        pass

    def records(self) -> list[Record]:
        return [Record(number, entry) for number, entry in enumerate(self.entries, 1)]


@tool
async def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


@tool
async def slow() -> str:
    """Waits until it is stopped."""
    await asyncio.Event().wait()
    return "never"


class Once:
    """Injects one message, when it is asked for the first time."""

    def __init__(self, words: str = "by policy", slot: str = "post_loop") -> None:
        self.words = words
        self.done = False
        setattr(self, slot, self._speak)

    def _speak(self, ctx: object) -> Inject | None:
        if self.done:
            return None
        self.done = True
        return Inject([UserMessage(self.words)])


async def no_wait(_: float) -> None:
    pass


def recorder(stream_fn: Any, **options: Any) -> tuple[Agent, Ledger]:
    ledger = Ledger()
    agent = Agent(MODEL, stream_fn=stream_fn, sleep=no_wait, **options)
    agent.attach_journal(ledger)
    return agent, ledger


def maker(**options: Any) -> Callable[[Any, Any], Agent]:
    """What replays: an agent with these options, and its tools wrapped."""

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        tools = [wrap_tool(item) for item in options.get("tools", ())]
        return Agent(MODEL, stream_fn=stream_fn, **{**options, "tools": tools})

    return make


async def replayed(ledger: Ledger, **options: Any) -> ReplayReport:
    return await replay(ledger, maker(**options), patience=5)


def content(message: object) -> str:
    assert isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage))
    return extract_text(message.content)


# -- the same ------------------------------------------------------------------------------------------------


async def test_a_session_with_tools_and_several_runs_comes_out_the_same() -> None:
    model = scripted([think("hm"), text("let me see"), call("add", a=2, b=3)], text("5"), text("bye"))
    agent, ledger = recorder(model, tools=[add])
    await agent.prompt("2+3?")
    await agent.prompt(["thanks", "bye"])
    report = await replayed(ledger, tools=[add], system_prompt="another one")
    assert report.divergence is None
    assert (report.messages, report.total, report.runs) == (7, 7, 2)
    assert str(report) == "the same 7 messages in 2 runs"


async def test_neither_the_model_nor_a_tool_is_reached_whatever_the_agent_is_made_of() -> None:
    ran: list[str] = []

    @tool
    async def touch() -> str:
        """Does something that cannot be taken back."""
        ran.append("touch")
        return "touched"

    def summarise(messages: list[AgentMessage], overflow: bool) -> None:
        ran.append("transform")

    agent, ledger = recorder(scripted(call("touch"), fail("throttled"), fail("throttled"), fail("throttled")))
    agent.tools = [touch]
    await agent.prompt("go")
    assert ran == ["touch"]
    ran.clear()
    real, other = scripted(text("asked!")), scripted(text("asked!"))
    report = await replay(
        ledger,
        lambda stream_fn, wrap_tool: Agent(
            MODEL,
            stream_fn=real,
            tools=[touch],
            fallbacks=[("test:other", other)],
            get_api_key=lambda provider: ran.append("key"),  # type: ignore[arg-type, func-returns-value]
            transform_context=summarise,
        ),
    )
    assert report.divergence is None
    assert (ran, real.requests, other.requests) == ([], [], [])


async def test_an_agent_may_be_made_by_a_coroutine() -> None:
    agent, ledger = recorder(scripted(text("hi")))
    await agent.prompt("go")

    async def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        await asyncio.sleep(0)
        return Agent(MODEL, stream_fn=stream_fn)

    assert (await replay(ledger, make)).divergence is None


async def test_failed_replies_retries_and_fallbacks_take_no_time(promptly: Any) -> None:
    fallback = scripted(text("from the other"))
    model = scripted(*[fail("throttled")] * 3, [text("half"), fail("network")], *[fail("network")] * 2, text("ok"))
    agent, ledger = recorder(model, fallbacks=[("test:other", fallback)])
    await agent.prompt("one")
    await agent.prompt("two")
    with promptly(1):
        assert (await replayed(ledger)).divergence is None


async def test_injections_and_replacements_come_from_the_policies_again() -> None:
    class Cleaner:
        def post_turn(self, ctx: PolicyContext) -> Inject | None:
            assert ctx.message is not None
            if ctx.message.text != "bad":
                return None
            clean = AssistantMessage([Text("good")], "test", "model", stop_reason=ctx.message.stop_reason)
            return Inject([clean])

    agent, ledger = recorder(scripted(text("bad"), text("ok")), policies=[Cleaner(), Once()])
    await agent.prompt("go")
    assert (await replayed(ledger, policies=[Cleaner(), Once()])).divergence is None
    report = await replayed(ledger, policies=[Once()])
    assert report.divergence is not None
    assert (content(report.divergence.expected), content(report.divergence.actual)) == ("good", "bad")
    assert {"-good", "+bad"} <= set(report.divergence.difference)
    assert str(report.divergence).split("\n")[1:] == report.divergence.difference


@pytest.mark.parametrize("mode", ["one_at_a_time", "all"])
async def test_steering_and_follow_ups_enter_at_the_same_places(mode: str) -> None:
    options: dict[str, Any] = {"steering_mode": mode, "follow_up_mode": mode, "tools": [add]}
    model = scripted(call("add", a=1, b=1), *[text(f"reply {n}") for n in range(8)])
    agent, ledger = recorder(model, policies=[Once(slot="pre_turn")], **options)
    agent.steer(["steered", "again"])
    agent.follow_up(["followed", "and more"])
    await agent.prompt("prompted")
    assert sum(isinstance(message, UserMessage) for message in agent.messages) == 6
    report = await replayed(ledger, policies=[Once(slot="pre_turn")], **options)
    assert report.divergence is None, str(report)


@pytest.mark.parametrize("slot", ["pre_turn", "pre_dispatch", "post_turn", "post_loop"])
async def test_steering_between_what_policies_inject_is_found_in_its_place(slot: str) -> None:
    agent, ledger = recorder(
        scripted([call("add", a=1, b=1), call("slow")], *[text("ok")] * 3),
        tools=[add, slow],
        policies=[Once(slot=slot)],
    )
    agent.subscribe(lambda event: agent.steer("stop") if type(event).__name__ == "ToolExecutionStart" else None)
    await agent.prompt("go")
    report = await replayed(ledger, tools=[add, slow], policies=[Once(slot=slot)])
    assert report.divergence is None, str(report)


@pytest.mark.table
@pytest.mark.parametrize("calls", [["slow"], ["slow", "slow"], ["add", "slow"], ["slow", "add", "slow"]])
@pytest.mark.parametrize("execution", ["concurrent", "sequential"])
@pytest.mark.parametrize("how", ["steer", "abort"])
async def test_calls_that_were_interrupted_are_interrupted_again(calls: list[str], execution: str, how: str) -> None:
    parts = [call(name, a=1, b=2) if name == "add" else call(name) for name in calls]
    agent, ledger = recorder(scripted(parts, text("ok")), tools=[add, slow], tool_execution=execution)

    has_begun = asyncio.Event()

    async def interrupt() -> None:
        await has_begun.wait()
        await asyncio.sleep(0.02)  # so that what ends by itself has ended
        agent.abort() if how == "abort" else agent.steer("enough")

    agent.subscribe(lambda event: has_begun.set() if getattr(event, "name", "") == "slow" else None)
    task = asyncio.ensure_future(interrupt())
    await agent.prompt("go")
    await task
    assert ToolOutcome.CANCELLED in [m.outcome for m in agent.messages if isinstance(m, ToolResultMessage)]
    report = await replayed(ledger, tools=[add, slow], tool_execution=execution)
    assert report.divergence is None, str(report)


async def test_a_reply_that_was_aborted_is_aborted_again_and_the_session_goes_on() -> None:
    agent, ledger = recorder(scripted([text("I was"), stall()], text("ok")))
    agent.subscribe(lambda event: agent.abort() if type(event).__name__ == "MessageUpdate" else None)
    await agent.prompt("go")
    await agent.continue_loop()
    report = await replayed(ledger)
    assert report.divergence is None, str(report)
    assert report.messages == 3


async def test_an_abort_while_somebody_was_asked_for_approval() -> None:
    guarded = tool(requires_approval=True)(add.function)
    asked: list[str] = []

    async def approve(request: Any) -> bool:
        asked.append(request.name)
        if len(asked) == 2:
            agent.abort()
            await asyncio.Event().wait()
        return True

    model = scripted([call("add", a=1, b=1), call("add", a=2, b=2)], text("ok"))
    agent, ledger = recorder(model, tools=[guarded], approve=approve)
    await agent.prompt("go")
    report = await replayed(ledger, tools=[guarded], approve=lambda request: True)
    assert report.divergence is None, str(report)


async def test_a_tool_that_cancels_itself_does_so_again() -> None:
    @tool
    async def quitter() -> str:
        """Gives up."""
        raise asyncio.CancelledError

    agent, ledger = recorder(scripted(call("quitter"), text("ok")), tools=[quitter])
    await agent.prompt("go")
    assert (await replayed(ledger, tools=[quitter])).divergence is None


async def test_calls_that_did_not_run_do_not_run_again() -> None:
    class NoSlow:
        def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
            return Skip("too slow") if ctx.name == "slow" else None

    guarded = tool(name="guarded", requires_approval=True)(add.function)
    parts = [call("add", a="x"), call("nobody"), call("slow"), call("guarded", a=1, b=1), call("add", a=1, b=1)]
    options: dict[str, Any] = {"tools": [add, slow, guarded], "policies": [NoSlow()]}
    agent, ledger = recorder(scripted(parts, text("ok")), **options)
    await agent.prompt("go")
    outcomes = [m.outcome.value for m in agent.messages if isinstance(m, ToolResultMessage)]
    assert outcomes == ["invalid", "unknown_tool", "skipped", "rejected", "ran"]
    report = await replayed(ledger, **options)
    assert report.divergence is None, str(report)


async def test_a_replay_handles_a_cut_reply_and_arguments_that_are_not_json() -> None:
    def odd(arguments: Any) -> Any:
        from swink_agent import StopReason, StreamDone, StreamStart, ToolCallDelta, ToolCallEnd, ToolCallStart

        async def stream(*_: Any) -> Any:
            yield StreamStart()
            yield ToolCallStart(0, "x", "add")
            yield ToolCallDelta(0, arguments)
            yield ToolCallEnd(0)
            yield StreamDone(StopReason.TOOL_USE)

        return stream

    streams = [odd("[1]"), scripted(truncated(call("add", a=1, b=2))), scripted(text("ok"))]

    def model(*given: Any) -> Any:
        return streams.pop(0)(*given)

    agent, ledger = recorder(model, tools=[add])
    await agent.prompt("go")
    report = await replayed(ledger, tools=[add])
    assert report.divergence is None, str(report)


async def test_arguments_that_a_person_changed_are_changed_again_or_it_is_a_difference() -> None:
    guarded = tool(requires_approval=True)(add.function)
    model = scripted([call("add", a=1, b=1)], text("ok"))
    agent, ledger = recorder(model, tools=[guarded], approve=lambda _: ApproveWith({"a": 7, "b": 1}))
    await agent.prompt("go")
    same = await replayed(ledger, tools=[guarded], approve=lambda _: ApproveWith({"a": 7, "b": 1}))
    assert same.divergence is None
    report = await replayed(ledger, tools=[guarded], approve=lambda _: True)
    found = report.divergence
    assert found is not None
    assert isinstance(found.expected, ToolCall)
    assert isinstance(found.actual, ToolCall)
    assert (found.position, found.expected.arguments, found.actual.arguments) == (2, {"a": 7, "b": 1}, {"a": 1, "b": 1})
    assert "the tool add is run with other arguments" in str(found)


async def test_call_ids_that_recur_are_told_apart_by_their_replies() -> None:
    model = scripted(call("add", a=1, b=1).with_id("x"), call("add", a=2, b=2).with_id("x"), text("ok"))
    agent, ledger = recorder(model, tools=[add])
    await agent.prompt("go")
    assert (await replayed(ledger, tools=[add])).divergence is None


async def test_a_tool_that_says_itself_that_its_arguments_are_invalid() -> None:
    class Picky:
        name = label = description = "picky"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = False

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> Any:
            from swink_agent import AgentToolResult

            ctx.has_invalid_arguments = True
            return AgentToolResult.error("not like this")

    agent, ledger = recorder(scripted(call("picky"), text("ok")), tools=[Picky()])
    await agent.prompt("go")
    report = await replayed(ledger, tools=[Picky()])
    assert report.divergence is None, str(report)


async def test_a_refusal_that_a_tool_foresees_is_foreseen_again() -> None:
    class Careful:
        name = label = description = "careful"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = True

        def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
            from swink_agent import AgentToolResult

            return AgentToolResult.error("there is no such file")

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> Any:
            raise AssertionError

    agent, ledger = recorder(scripted(call("careful"), text("ok")), tools=[Careful()], approve=lambda _: False)
    await agent.prompt("go")
    report = await replayed(ledger, tools=[Careful()], approve=lambda _: False)
    assert report.divergence is None, str(report)


async def test_messages_given_and_cut_by_the_application_are_so_again() -> None:
    class Notice(CustomMessage, tag="notice"):
        words: str
        timestamp: int = 0

    agent = Agent(MODEL, stream_fn=scripted(text("a"), text("b"), text("c")), messages=["before"])
    ledger = Ledger()
    agent.attach_journal(ledger)
    await agent.prompt("1")
    agent.messages.append(Notice("by the way", 7))
    agent.messages = [*list(agent.messages)[:2], "new"]
    await agent.continue_loop()
    agent.messages.clear()
    await agent.prompt(Notice("hello", 8))
    report = await replayed(ledger, messages=["before"])
    assert report.divergence is None, str(report)
    assert report.messages == 4


async def test_policies_see_the_state_that_the_tools_made() -> None:
    @tool
    async def count(ctx: ToolContext) -> str:
        """Counts."""
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return "counted"

    class Enough:
        def post_turn(self, ctx: PolicyContext) -> Stop | None:
            return Stop("enough") if ctx.state.get("n", 0) >= 2 else None

    agent, ledger = recorder(scripted([call("count"), call("count")], text("never")), tools=[count])
    agent._config = msgspec.structs.replace(agent._config, post_turn_policies=(Enough(),))
    result = await agent.prompt("go")
    assert result.stopped_by is not None
    report = await replayed(ledger, tools=[count], policies=[Enough()])
    assert report.divergence is None, str(report)


async def test_compaction_changes_no_message() -> None:
    def compact(messages: list[AgentMessage], overflow: bool) -> Sequence[AgentMessage] | None:
        return [UserMessage("summary"), *messages[-1:]] if len(messages) >= 4 or overflow else None

    model = scripted(text("a"), text("b"), text("c"), fail("context_overflow"), fail("context_overflow"))
    agent, ledger = recorder(model, transform_context=compact)
    for prompt in ("1", "2", "3", "4"):
        await agent.prompt(prompt)
    assert (await replayed(ledger, transform_context=compact)).divergence is None
    assert (await replayed(ledger)).divergence is None


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.table
@pytest.mark.parametrize(
    "replies",
    [
        [call("final_answer", n=3)],
        [call("final_answer", n="x"), call("final_answer", n=3)],
        [text("three"), call("add", a=1, b=2), call("final_answer", n=3)],
        [text("no"), text("no")],
        [call("final_answer", n="x"), call("final_answer", n="y")],
        [fail("auth")],
    ],
    ids=["at once", "invalid first", "text first", "never", "always invalid", "an error"],
)
async def test_structured_output_comes_to_the_same(replies: list[Any]) -> None:
    agent, ledger = recorder(scripted(*replies, text("and then")), tools=[add])
    with suppress(StructuredOutputFailed, AuthError):
        await agent.structured_output("how many?", NUMBER, max_retries=1)
    report = await replayed(ledger, tools=[add], approval_mode="enabled", approve=lambda _: True)
    assert report.divergence is None, str(report)


@pytest.mark.parametrize(
    ("target", "replies"),
    [
        (NUMBER, [text('{"n": 3}')]),
        (NUMBER, [text("three"), text('{"n": "x"}'), text('{"n": 3}')]),
        (NUMBER, [text("Let me see.") + call("add", a=1, b=2), text('{"n": 3}')]),
        (NUMBER, [text("no"), text("no"), text("no")]),
        (NUMBER, [text("no"), fail("auth")]),
        (list[int], [text('{"value": ["x"]}'), text('{"value": [3]}')]),
        (int | None, [text('{"value": null}')]),
    ],
    ids=["at once", "invalid first", "a tool first", "never", "an error", "a list", "null"],
)
async def test_a_value_that_was_given_as_text_comes_to_the_same(target: Any, replies: list[Any]) -> None:
    agent, ledger = recorder(scripted(*replies, text("and then"), native_schema=True), tools=[add])
    with suppress(StructuredOutputFailed, AuthError):
        await agent.structured_output("how many?", target, max_retries=2)
    report = await replayed(ledger, tools=[add])
    assert report.divergence is None, str(report)


async def test_a_value_that_was_checked_by_the_application_comes_to_the_same() -> None:
    texts = [text('{"n": 3}')] * 2
    agent, ledger = recorder(scripted(*texts, native_schema=True))
    seen: list[Any] = []

    def second_time(value: Any) -> None:
        seen.append(value)
        if len(seen) == 1:
            raise ValueError("are you sure?")

    assert await agent.structured_output("how many?", NUMBER, validate=second_time) == {"n": 3}
    report = await replayed(ledger)
    assert report.divergence is None, str(report)
    assert len(seen) == 2


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "by tool"])
async def test_a_value_after_a_call_that_waited_comes_to_the_same(is_native: bool) -> None:
    @tool(requires_approval=True)
    async def measure(what: str) -> str:
        """Measures something."""
        return f"{what}: 3"

    options: dict[str, Any] = {"tools": [measure], "approve": lambda _: Defer("the boss decides")}
    answer = text('{"n": 3}') if is_native else call("final_answer", n=3)
    model = scripted(call("measure", what="it").with_id("c1"), text("no"), answer, native_schema=is_native)
    agent, ledger = recorder(model, **options)
    assert (await agent.structured_run("how many?", NUMBER)).pending
    assert (await agent.structured_run({"c1": True}, NUMBER)).value == {"n": 3}
    report = await replayed(ledger, **options)
    assert report.divergence is None, str(report)


async def test_a_recording_without_its_secrets_replays_with_and_without_them() -> None:
    secret = "kX9-very-secret-value-42"

    def knowing() -> Redactor:
        redactor = Redactor()
        redactor.register(secret, "token")
        return redactor

    @tool
    async def show_it(what: str) -> str:
        """Shows it."""
        return f"{what} is {secret}"

    model = scripted(
        [text(f"I use {secret}"), call("show_it", what=secret)], text(f"it was {secret}"), fail("auth", secret)
    )
    agent, ledger = recorder(model, tools=[show_it], redactor=knowing())
    await agent.prompt(f"it is {secret}")
    await agent.prompt("again")
    assert "very-secret" not in msgspec.json.encode(ledger.entries).decode()
    for redactor in (None, knowing()):
        report = await replayed(ledger, tools=[show_it], redactor=redactor)
        assert report.divergence is None, str(report)


# -- crashes -------------------------------------------------------------------------------------------------


async def _everything(policies: Sequence[object] = ()) -> tuple[Ledger, dict[str, Any]]:
    """A session in which much happens, and the options of its agent."""
    options: dict[str, Any] = {"tools": [add, slow], "follow_up_mode": "all"}
    model = scripted(
        [text("first"), call("add", a=1, b=1), call("add", a=2, b=2)],
        [call("add", a=1, b=1), call("slow")],
        *[text("fine"), text("again")],
        *[call("add", a=1, b=1), text("thanks")],
    )
    agent, ledger = recorder(model, policies=policies, **options)
    agent.follow_up(["more", "and more"])
    agent.subscribe(
        lambda event: (
            agent.steer("stop") if getattr(event, "name", "") == "slow" and hasattr(event, "arguments") else None
        )
    )
    await agent.prompt("go")
    await agent.prompt("add again")
    return ledger, options


async def test_a_session_that_broke_off_anywhere_replays_as_far_as_it_came() -> None:
    ledger, options = await _everything([Once()])
    for end in range(len(ledger.entries) + 1):
        report = await replayed(Ledger(ledger.entries[:end]), policies=[Once()], **options)
        assert report.divergence is None, f"after {end} entries: {report}"


async def test_a_session_that_went_on_after_a_crash_goes_on_in_the_replay() -> None:
    whole, options = await _everything()
    for end in range(len(whole.entries) + 1):
        cut = Ledger(whole.entries[:end])
        agent = Agent(MODEL, stream_fn=scripted(text("I am back")))
        agent.attach_journal(cut)
        del cut.entries[end:]  # what an agent with nothing in it records of itself
        await agent.prompt("go on")
        report = await replayed(cut, **options)
        assert report.divergence is None, f"after {end} entries: {report}"


async def test_results_that_recovery_wrote_are_taken_as_they_are() -> None:
    whole, options = await _everything()
    started = next(n for n, entry in enumerate(whole.entries) if isinstance(entry, ToolStarted)) + 2
    reply = next(e.message for e in whole.entries if isinstance(e, MessageAdded) and e.source == "reply")
    assert isinstance(reply, AssistantMessage)
    lost = [
        ToolResultMessage(reply.tool_calls[0].id, "outcome unknown", True, None, "add", outcome=ToolOutcome.LOST),
        ToolResultMessage(reply.tool_calls[1].id, "never ran", True, None, "add", outcome=ToolOutcome.NEVER_RAN),
    ]
    cut = Ledger(whole.entries[:started])
    for index, result in enumerate(lost):
        cut.record(MessageAdded(result, "result", index))
    agent = Agent(MODEL, stream_fn=scripted(text("I am back")))
    there = len(cut.entries)
    agent.attach_journal(cut)
    del cut.entries[there:]
    await agent.prompt("go on")
    report = await replayed(cut, **options)
    assert report.divergence is None, str(report)
    assert report.messages == 6


async def test_records_that_are_missing_never_break_or_hang_a_replay() -> None:
    whole, options = await _everything()
    for gone in range(len(whole.entries)):
        ledger = Ledger([*whole.entries[:gone], *whole.entries[gone + 1 :]])
        report = await replayed(ledger, **options)
        assert report.divergence is not None or report.messages == report.total, f"without {gone}: {report}"


# -- another way ---------------------------------------------------------------------------------------------


async def _adding() -> Ledger:
    agent, ledger = recorder(scripted([call("add", a=2, b=3)], text("5"), text("bye")), tools=[add])
    await agent.prompt("2+3?")
    await agent.prompt("bye")
    return ledger


async def test_a_tool_that_is_gone() -> None:
    report = await replayed(await _adding())
    found = report.divergence
    assert found is not None
    assert isinstance(found.actual, ToolResultMessage)
    assert (found.position, found.run, report.messages, content(found.expected)) == (2, 0, 2, "5")
    assert found.actual.outcome is ToolOutcome.UNKNOWN_TOOL
    assert str(report).splitlines()[:6] == [
        "the replay differs after 2 of 6 messages",
        "message 3, in run 1: another result of the tool add",
        "--- recorded",
        "+++ replayed",
        "@@ -1,2 +1,2 @@",
        "-result of add (ran):",
    ]


async def test_a_tool_that_is_gone_and_had_started_when_the_recording_broke_off() -> None:
    whole = await _adding()
    started = next(n for n, entry in enumerate(whole.entries) if isinstance(entry, ToolStarted))
    killed = Ledger(whole.entries[: started + 1])
    assert (await replayed(killed, tools=[add])).divergence is None
    found = (await replayed(killed)).divergence
    assert found is not None
    assert (found.position, found.run) == (2, 0)
    assert found.reason == "the tool add had started when it was recorded, and the agent does not have it now"
    assert isinstance(found.expected, ToolCall)
    # What had not started may not have been meant to: nothing tells.
    assert (await replayed(Ledger(whole.entries[:started]))).divergence is None


async def test_a_tool_whose_schema_does_not_take_the_recorded_arguments() -> None:
    @tool(name="add")
    async def other(first: int) -> str:
        """Adds."""
        return str(first)

    found = (await replayed(await _adding(), tools=[other])).divergence
    assert found is not None
    assert isinstance(found.actual, ToolResultMessage)
    assert found.actual.outcome is ToolOutcome.INVALID


async def test_an_approval_that_is_refused_now_and_one_that_was_refused() -> None:
    guarded = tool(requires_approval=True)(add.function)
    found = (await replayed(await _adding(), tools=[guarded], approve=lambda _: False)).divergence
    assert found is not None
    assert isinstance(found.actual, ToolResultMessage)
    assert found.actual.outcome is ToolOutcome.REJECTED

    agent, ledger = recorder(scripted([call("add", a=1, b=2)], text("5")), tools=[guarded], approve=lambda _: False)
    await agent.prompt("go")
    found = (await replayed(ledger, tools=[guarded], approve=lambda _: True)).divergence
    assert found is not None
    assert isinstance(found.expected, ToolResultMessage)
    assert found.expected.outcome is ToolOutcome.REJECTED
    assert isinstance(found.actual, ToolCall)
    assert found.reason == "the tool add runs now, and did not when it was recorded"


async def test_a_policy_that_is_gone_and_one_that_is_new() -> None:
    agent, ledger = recorder(scripted(text("a"), text("b")), policies=[Once(slot="pre_turn")])
    await agent.prompt("go")
    found = (await replayed(ledger)).divergence
    assert found is not None
    assert (found.position, content(found.expected), found.actual) == (1, "by policy", None)
    assert found.reason == "a policy's message is missing"

    found = (await replayed(await _adding(), tools=[add], policies=[Once()])).divergence
    assert found is not None
    assert (found.position, found.expected, content(found.actual)) == (4, None, "by policy")


async def test_a_policy_that_stops_earlier_or_no_more() -> None:
    class StopAfter:
        def __init__(self, turns: int) -> None:
            self.turns = turns

        def post_turn(self, ctx: PolicyContext) -> Stop | None:
            return Stop("enough") if ctx.turn_index + 1 >= self.turns else None

    found = (await replayed(await _adding(), tools=[add], policies=[StopAfter(1)])).divergence
    assert found is not None
    assert (found.position, content(found.expected), found.actual) == (3, "5", None)
    assert found.reason == "policy StopAfter stopped the run (enough), and more was recorded"

    agent, ledger = recorder(scripted([call("add", a=1, b=1)]), tools=[add], policies=[StopAfter(1)])
    await agent.prompt("go")
    found = (await replayed(ledger, tools=[add])).divergence
    assert found is not None
    assert (found.position, found.expected, found.actual) == (3, None, None)
    assert found.reason == "the agent asks the model again, and the recorded run ends here"


async def test_a_policy_that_never_lets_go_ends_with_the_recorded_replies() -> None:
    class Again:
        def post_loop(self, ctx: PolicyContext) -> Inject:
            return Inject([UserMessage("again")])

    found = (await replayed(await _adding(), tools=[add], policies=[Again()])).divergence
    assert found is not None
    assert found.position == 4


async def test_a_system_prompt_that_fails() -> None:
    def prompt() -> str:
        raise ValueError("no such template")

    found = (await replayed(await _adding(), tools=[add], system_prompt=prompt)).divergence
    assert found is not None
    assert found.position == 1
    assert isinstance(found.actual, AssistantMessage)
    assert "no such template" in str(found)


async def test_an_approval_that_waits_for_somebody_does_not_hang() -> None:
    guarded = tool(requires_approval=True)(add.function)

    async def never(_: object) -> bool:
        await asyncio.Event().wait()
        return True

    report = await replay(await _adding(), maker(tools=[guarded], approve=never), patience=0.1)
    assert report.divergence is not None
    assert report.divergence.reason == "nothing happened for 0.1 s: `approve` has not answered about the tool add"
    assert (report.divergence.position, report.messages) == (2, 2)


async def test_a_policy_that_waits_for_somebody_does_not_hang() -> None:
    class Waits:
        async def post_turn(self, ctx: PolicyContext) -> None:
            await asyncio.Event().wait()

    report = await replay(await _adding(), maker(tools=[add], policies=[Waits()]), patience=0.1)
    assert report.divergence is not None
    assert report.divergence.reason == "nothing happened for 0.1 s"


async def test_a_replay_handles_a_tool_that_can_no_longer_be_cancelled() -> None:
    agent, ledger = recorder(scripted([call("slow")], text("ok")), tools=[slow])
    agent.subscribe(lambda event: agent.steer("stop") if type(event).__name__ == "ToolExecutionStart" else None)
    await agent.prompt("go")
    stubborn = tool(name="slow", on_steer="finish")(slow.function)
    report = await replay(ledger, maker(tools=[stubborn]), patience=0.2)
    assert report.divergence is not None


async def test_only_the_agent_itself_is_answered() -> None:
    said: list[str] = []

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        class Judge:
            async def post_turn(self, ctx: PolicyContext) -> None:
                other = Agent(MODEL, stream_fn=stream_fn)
                said.append((await other.prompt("is this good?")).error or "")

        return Agent(MODEL, stream_fn=stream_fn, tools=[wrap_tool(add)], policies=[Judge()])

    assert (await replay(await _adding(), make)).divergence is None
    assert said[0] == "this is a replay: only the agent's own replies are on record"


async def test_an_agent_with_a_journal_writes_nothing_of_a_replay() -> None:
    ledger, other = await _adding(), Ledger()

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        agent = Agent(MODEL, stream_fn=stream_fn, tools=[wrap_tool(add)])
        agent.attach_journal(other)
        return agent

    assert (await replay(ledger, make)).divergence is None
    assert not [entry for entry in other.entries if isinstance(entry, (MessageAdded, RunEnded))]


async def test_an_empty_session_replays_to_nothing() -> None:
    assert await replayed(Ledger()) == ReplayReport()


# -- in a test -------------------------------------------------------------------------------------------------


async def test_the_assertion_holds_for_the_same_agent_and_shows_the_difference_of_another() -> None:
    ledger = await _adding()
    report = await assert_replays(ledger, maker(tools=[add]))
    assert report.messages == 6
    with pytest.raises(AssertionError) as raised:
        await assert_replays(ledger, maker())
    assert str(raised.value).splitlines() == [
        "the session: the replay differs after 2 of 6 messages",
        "message 3, in run 1: another result of the tool add",
        "--- recorded",
        "+++ replayed",
        "@@ -1,2 +1,2 @@",
        "-result of add (ran):",
        "-5",
        "+result of add (unknown_tool):",
        "+unknown tool 'add'; available: none",
    ]


def test_the_assertion_in_a_test_that_is_not_async() -> None:
    ledger = asyncio.run(_adding())
    assert assert_replays_sync(ledger, maker(tools=[add])).divergence is None
    with pytest.raises(AssertionError, match="unknown tool") as raised:
        assert_replays_sync(ledger, maker())
    shown = [frame.name for frame in raised.traceback.filter(raised)]
    assert shown == ["test_the_assertion_in_a_test_that_is_not_async"]  # and none of how it is run


async def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound, match=r"there is no session .*gone\.jsonl"):
        await assert_replays(tmp_path / "gone.jsonl", maker())


async def test_a_make_agent_that_makes_none_is_said_so() -> None:
    with pytest.raises(TypeError, match="make_agent returned None, not an Agent"):
        await replay(Ledger(), lambda stream_fn, wrap_tool: None)  # type: ignore[arg-type,return-value]

    async def make(stream_fn: Any, wrap_tool: Any) -> Any:
        return "agent"

    with pytest.raises(TypeError, match="make_agent returned a str, not an Agent"):
        await replay(Ledger(), make)


@pytest.mark.parametrize("is_async", [False, True])
async def test_tools_as_a_function_of_the_turn_and_tools_with_deps_are_replayed(is_async: bool) -> None:
    @tool
    def name(ctx: ToolContext[str]) -> str:
        return ctx.deps

    def tools(ctx: PolicyContext) -> list[Any]:
        return [add] if ctx.turn_index == 0 else [name]

    async def tools_later(ctx: PolicyContext) -> list[Any]:
        return tools(ctx)

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        return Agent(MODEL, stream_fn=stream_fn, tools=tools_later if is_async else tools)

    ledger = Ledger()
    agent = make(scripted(call("add", a=1, b=2), call("name"), "done"), None)
    agent.attach_journal(ledger)
    assert (await agent.prompt("go", deps="ann")).error is None
    await assert_replays(ledger, make)
