"""The record of a run: the fold of its events, equal from events, from their JSON, and from its session."""

from __future__ import annotations

import asyncio
import copy
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from swink_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AgentStart,
    AgentToolResult,
    ApprovalMode,
    Approve,
    ApproveWith,
    CallRecord,
    ContextCompacted,
    Cost,
    ErrorKind,
    Grant,
    Inject,
    MessageEnd,
    MessageRetry,
    ModelFallback,
    PolicyContext,
    PolicyStop,
    ProposedCall,
    Redactor,
    Reject,
    RunRecord,
    Skip,
    Stop,
    StopReason,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolOutcome,
    TurnEnd,
    TurnEndReason,
    Usage,
    UsageAdded,
    UserMessage,
    decode_event,
    encode_event,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, check_events, scripted, text
from swink_agent.testing import fail as failing


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool
def fail(why: str) -> str:
    """Fails."""
    raise ToolError(why)


@tool(requires_approval=True)
def erase(path: str) -> str:
    """Erases."""
    return f"erased {path}"


async def observed(agent: Agent, prompt: str = "go") -> tuple[RunRecord, list[AgentEvent], Any]:
    """A run, with its record, its events and its result."""
    events: list[AgentEvent] = []
    record = RunRecord()
    with agent.subscribe(record.feed), agent.subscribe(events.append):
        result = await agent.prompt(prompt)
    check_events(events)
    return record, events, result


def spent(events: list[AgentEvent]) -> tuple[Usage, Cost]:
    """What the events say that a run used."""
    usage, cost = Usage(), Cost()
    for event in events:
        match event:
            case MessageEnd(message=message):
                usage, cost = usage + message.usage, cost + message.cost
            case MessageRetry() | ModelFallback() | UsageAdded():
                usage, cost = usage + event.usage, cost + event.cost
            case ContextCompacted(report=report):
                usage, cost = usage + report.usage, cost + report.cost
            case _:
                pass
    return usage, cost


async def test_a_record_says_what_the_run_did() -> None:
    agent = Agent(
        "test:model", tools=[add, fail], stream_fn=scripted([call("add", a=1, b=2), call("fail", why="no")], text("3"))
    )

    record, events, result = await observed(agent)

    assert isinstance(events[0], AgentStart)
    assert record.run_id == events[0].run_id != ""
    assert (record.kind, record.schema, record.prompts) == ("prompt", None, result.messages[:1])
    assert record.is_over
    assert (record.messages, record.text) == (result.messages, "3")
    assert (record.stop_reason, record.error, record.stopped_by) == (StopReason.STOP, None, None)
    assert (record.usage, record.cost) == (result.usage, result.cost)
    assert [len(turn.calls) for turn in record.turns] == [2, 0]
    first, second = record.calls
    assert (first.name, first.arguments, first.outcome, first.reason) == ("add", {"a": 1, "b": 2}, ToolOutcome.RAN, "")
    assert first.is_started
    assert first.seconds is not None
    assert first.seconds >= 0
    assert first.result == AgentToolResult.text("3")
    assert (second.outcome, second.reason) == (ToolOutcome.FAILED, "no")
    assert events[-1] == AgentEnd(result.messages, None, result)


async def test_a_record_follows_the_run_and_what_was_read_stays_as_it_was() -> None:
    record = RunRecord()
    seen: list[tuple[int, int, ToolOutcome | None]] = []
    turns: list[Any] = []

    def look(event: AgentEvent) -> None:
        record.feed(event)
        if isinstance(event, ToolExecutionStart | ToolExecutionEnd | TurnEnd):
            turns.append(record.turns)
            seen.append((len(record.messages), len(record.calls), record.calls[0].outcome))
            assert record.stop_reason is None
            assert not record.is_over

    agent = Agent("test:model", tools=[add], stream_fn=scripted(call("add", a=1, b=1), text("2")))
    with agent.subscribe(look):
        await agent.prompt("go")

    ran = ToolOutcome.RAN
    assert seen == [(2, 1, None), (2, 1, ran), (3, 1, ran), (4, 1, ran)]
    assert turns[0][0].calls[0].outcome is None


async def test_words_of_a_person_are_in_events_and_record() -> None:
    answers = {
        "a": Approve(),
        "b": ApproveWith({"path": "B"}, note="only this one"),
        "c": Reject("not that"),
    }
    agent = Agent(
        "test:model",
        tools=[erase],
        stream_fn=scripted([call("erase", path=name) for name in answers], text("ok")),
        approve=lambda request: answers[request.arguments["path"]],
    )

    record, events, _ = await observed(agent)

    asked = [event for event in events if isinstance(event, ToolApprovalRequested)]
    assert [event.scope for event in asked] == [{}, {}, {}]
    resolved = [event for event in events if isinstance(event, ToolApprovalResolved)]
    assert [(event.approved, event.reason, event.note) for event in resolved] == [
        (True, "", ""),
        (True, "", "only this one"),
        (False, "not that", ""),
    ]
    starts = [event for event in events if isinstance(event, ToolExecutionStart)]
    assert [event.scope for event in starts] == [{}, {}]
    one, two, three = record.calls
    assert (one.approval, one.grant) == ("approved", Grant("erase", {"path": "a"}, {}))
    assert (two.approval, two.note, two.arguments) == ("approved", "only this one", {"path": "B"})
    assert two.grant == Grant("erase", {"path": "B"}, {})
    assert (three.approval, three.outcome, three.reason, three.is_started) == (
        "rejected",
        ToolOutcome.REJECTED,
        "not that",
        False,
    )
    assert (three.seconds, three.arguments) == (0.0, {"path": "c"})


async def test_a_call_that_never_ran_says_why_in_one_word_or_sentence() -> None:
    class SkipsAdding:
        def pre_dispatch(self, ctx: Any) -> Any:
            if ctx.name == "add" and ctx.arguments.get("a") == 0:
                return Skip("no zeros")
            if ctx.name == "add":
                ctx.arguments = {**ctx.arguments, "b": 40}
            return None

    calls = [call("add", a=0, b=1), call("nowhere"), call("add", a="x", b=1), call("add", a=1, b=1)]
    agent = Agent("test:model", tools=[add], policies=[SkipsAdding()], stream_fn=scripted(calls, text("ok")))

    record, _, _ = await observed(agent)

    skipped, unknown, invalid, ran = record.calls
    assert (skipped.outcome, skipped.reason) == (ToolOutcome.SKIPPED, "no zeros")
    assert (unknown.outcome, unknown.reason) == (ToolOutcome.UNKNOWN_TOOL, "unknown tool 'nowhere'")
    assert invalid.outcome is ToolOutcome.INVALID
    assert invalid.reason.startswith("a:")
    assert (invalid.arguments, ran.arguments) == ({"a": "x", "b": 40}, {"a": 1, "b": 40})
    assert {one.seconds for one in (skipped, unknown, invalid)} == {0.0}


@pytest.mark.parametrize(("how", "expected"), [("steer", "steering"), ("abort", "aborted"), ("tool", "tool")])
async def test_a_cancelled_call_says_who_cancelled_it(how: str, expected: str) -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        started.set()
        if how == "tool":
            raise asyncio.CancelledError
        await asyncio.Event().wait()
        return ""

    agent = Agent("test:model", tools=[wait], stream_fn=scripted(call("wait"), text("ok"), text("ok")))
    record, events = RunRecord(), list[AgentEvent]()
    with agent.subscribe(record.feed), agent.subscribe(events.append):
        running = asyncio.ensure_future(agent.prompt("go"))
        await started.wait()
        if how == "steer":
            agent.steer("stop that")
        elif how == "abort":
            agent.abort()
        await running

    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert (end.outcome, end.reason) == (ToolOutcome.CANCELLED, expected)
    assert (record.calls[0].reason, record.calls[0].is_started) == (expected, True)


async def test_an_abort_during_a_question_is_called_aborted_in_both_events() -> None:
    async def never(request: object) -> bool:
        agent.abort()
        await asyncio.Event().wait()
        return True

    agent = Agent("test:model", tools=[erase], approve=never, stream_fn=scripted(call("erase", path="x")))

    record, events, result = await observed(agent)

    assert [event.reason for event in events if isinstance(event, ToolApprovalResolved | ToolExecutionEnd)] == [
        "aborted",
        "aborted",
    ]
    assert (record.stop_reason, record.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)
    assert result.error_kind is ErrorKind.ABORTED


async def test_policies_see_the_calls_of_a_turn_as_the_record_has_them() -> None:
    seen: list[tuple[CallRecord, ...]] = []

    class Watch:
        def post_turn(self, ctx: PolicyContext) -> None:
            seen.append(ctx.calls)

        def pre_turn(self, ctx: PolicyContext) -> None:
            assert ctx.calls == ()

        post_loop = pre_turn

    @tool
    async def write(path: str) -> str:
        """Writes."""
        if path == "broken":
            raise ToolError("no such disk")
        return "written"

    async def approve(request: ProposedCall) -> Approve | ApproveWith | Reject:
        path = request.arguments.get("path")
        if path == "a":
            return ApproveWith({"path": "b"}, note="b instead")
        return Reject("not that") if path == "no" else Approve()

    def make() -> Agent:
        wanted = [("a", {"path": "a"}), ("b", {"path": "no"}), ("c", {"wrong": 1})]
        calls = [call("write", **arguments).with_id(call_id) for call_id, arguments in wanted]
        first = calls[0] + calls[1] + calls[2] + call("missing").with_id("d")
        model = scripted(first, call("write", path="broken").with_id("e"), text("done"))
        modes: Any = {"approve": approve, "approval_mode": ApprovalMode.ENABLED}
        return Agent("test:model", stream_fn=model, tools=[write], policies=[Watch()], **modes)

    agent, record = make(), RunRecord()
    with agent.subscribe(record.feed):
        await agent.prompt("go")
    assert [[one.outcome for one in turn] for turn in seen] == [
        [ToolOutcome.RAN, ToolOutcome.REJECTED, ToolOutcome.INVALID, ToolOutcome.UNKNOWN_TOOL],
        [ToolOutcome.FAILED],
        [],
    ]
    assert seen == [turn.calls for turn in record.turns]
    with_subscriber = [structs.replace(one, seconds=0.0) for turn in seen for one in turn]
    seen.clear()
    await make().prompt("go")
    assert [structs.replace(one, seconds=0.0) for turn in seen for one in turn] == with_subscriber


async def test_usage_adds_up_with_retries_and_fallbacks() -> None:
    def busy(tokens: int) -> Any:
        return failing(ErrorKind.THROTTLED, "busy", usage=Usage(input=tokens))

    agent = Agent(
        "test:model",
        stream_fn=scripted(busy(100), busy(10), busy(1)),
        fallbacks=[("test:other", scripted(text("ok"), usage=Usage(input=5, output=1)))],
        sleep=lambda seconds: asyncio.sleep(0),
    )

    record, events, result = await observed(agent)

    assert [event.usage.input for event in events if isinstance(event, MessageRetry)] == [100, 10]
    assert [event.usage.input for event in events if isinstance(event, ModelFallback)] == [1]
    assert spent(events) == (result.usage, result.cost) == (record.usage, record.cost)
    assert result.usage.input == 116


async def test_usage_of_overflows_and_failed_summaries_is_reported() -> None:
    from swink_agent.core.context.compaction import CompactionContext

    aside = scripted(text("a summary"), text("another"), usage=Usage(output=7))

    async def shorten(messages: list[Any], overflow: bool) -> list[Any] | None:
        context = CompactionContext.current()
        assert context is not None
        await context.ask("sum it up", stream_fn=aside)
        return messages[1:] if overflow else None

    too_long = failing(ErrorKind.CONTEXT_OVERFLOW, "too long", usage=Usage(input=50))
    agent = Agent(
        "test:model",
        messages=["before", UserMessage("and before")],
        async_transform_context=shorten,
        stream_fn=scripted(too_long, text("ok"), usage=Usage(output=1)),
    )

    record, events, result = await observed(agent)

    added = [(event.source, event.usage.input, event.usage.output) for event in events if isinstance(event, UsageAdded)]
    assert added == [("compaction", 0, 7), ("overflow", 50, 0)]
    assert spent(events) == (result.usage, result.cost) == (record.usage, record.cost)


async def test_a_reply_that_a_policy_replaces_counts_as_the_model_sent_it() -> None:
    class Shouts:
        def post_turn(self, ctx: Any) -> Inject:
            return Inject([type(ctx.message)("LOUD", provider="p", model_id="m", usage=Usage(output=1000))])

    agent = Agent("test:model", policies=[Shouts()], stream_fn=scripted(text("quiet"), usage=Usage(output=3)))

    record, events, result = await observed(agent)

    assert record.turns[0].reply == result.messages[-1]
    assert record.text == "LOUD"
    assert record.usage == result.usage == spent(events)[0] == Usage(output=3)


@dataclass
class City:
    name: str


async def test_a_run_for_a_value_has_the_callers_schema_and_the_value_as_json() -> None:
    agent = Agent("test:model", stream_fn=scripted(call("final_answer", value=[{"name": "Oslo"}])))
    record = RunRecord()

    with agent.subscribe(record.feed):
        assert await agent.structured_output("which?", list[City]) == [City("Oslo")]

    assert record.kind == "structured"
    assert record.schema is not None
    assert record.schema["type"] == "array"
    assert (record.value, record.has_value) == ([{"name": "Oslo"}], True)
    assert agent.last_result is not None
    assert (agent.last_result.value, agent.last_result.has_value) == ([{"name": "Oslo"}], True)


async def test_one_record_is_one_run() -> None:
    agent = Agent("test:model", stream_fn=scripted(text("1"), text("2")))
    record, events, _ = await observed(agent)
    before = copy.deepcopy(record)

    for event in events[1:]:
        record.feed(event)  # after the end: passed over
    assert record == before
    with pytest.raises(ValueError, match="another"):
        record.feed(events[0])


async def test_a_record_from_the_middle_of_a_run_ends_with_the_whole_result() -> None:
    agent = Agent("test:model", tools=[add], stream_fn=scripted(call("add", a=1, b=1), text("2")))
    whole, events, result = await observed(agent)

    for skipped in range(len(events)):
        record = RunRecord.of(events[skipped:])
        assert (record.messages, record.usage, record.stop_reason) == (result.messages, result.usage, StopReason.STOP)
        if skipped <= 3:  # what comes before the first reply
            assert record.turns == whole.turns


def test_an_end_that_does_not_say_how_follows_from_the_last_turn_and_reply() -> None:
    from swink_agent import AssistantMessage, ToolCall

    prompt, reply = UserMessage("go"), AssistantMessage("well", stop_reason=StopReason.LENGTH)
    ended = RunRecord.of(
        [AgentStart(), MessageEnd(reply), TurnEnd(0, reply, (), TurnEndReason.COMPLETE), AgentEnd((prompt, reply))]
    )
    assert (ended.stop_reason, ended.error) == (StopReason.LENGTH, None)

    calling = AssistantMessage([ToolCall("1", "add")], stop_reason=StopReason.TOOL_USE)
    aborted = RunRecord.of(
        [AgentStart(), MessageEnd(calling), TurnEnd(0, calling, (), TurnEndReason.ABORTED), AgentEnd((calling,))]
    )
    assert (aborted.stop_reason, aborted.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)

    broken = AssistantMessage("", stop_reason=StopReason.ERROR, error_message="no net", error_kind=ErrorKind.NETWORK)
    failed = RunRecord.of(
        [AgentStart(), MessageEnd(broken), TurnEnd(0, broken, (), TurnEndReason.ERROR), AgentEnd((broken,))]
    )
    assert (failed.stop_reason, failed.error, failed.error_kind) == (StopReason.ERROR, "no net", ErrorKind.NETWORK)


async def test_calls_with_one_id_are_told_apart_by_turn() -> None:
    script = scripted(call("add", a=1, b=1).with_id("x"), call("add", a=2, b=2).with_id("x"), text("ok"))
    record, _, _ = await observed(Agent("test:model", tools=[add], stream_fn=script))

    assert [(one.id, one.arguments["a"]) for one in record.calls] == [("x", 1), ("x", 2)]


STEPS = st.sampled_from(["add", "fail", "unknown", "invalid", "erase yes", "erase with", "erase no", "two", "retry"])


@given(steps=st.lists(STEPS, max_size=5), end=st.sampled_from(["text", "error", "stop", "value"]))
def test_events_their_json_and_the_session_give_equal_records(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], end: str
) -> None:
    asyncio.run(_check_equal_records(tmp_path_factory.mktemp("sessions"), steps, end))


async def _check_equal_records(folder: Path, steps: list[str], end: str) -> None:
    replies: list[Any] = []
    for step in steps:
        match step:
            case "add":
                replies.append(call("add", a=1, b=2).with_id("x"))
            case "fail":
                replies.append(call("fail", why="it did"))
            case "unknown":
                replies.append(call("nobody"))
            case "invalid":
                replies.append(call("add", a="one", b=2))
            case "two":
                replies.append([text("both"), call("add", a=1, b=2), call("erase", path="no")])
            case "retry":
                replies.append(failing(ErrorKind.THROTTLED, "busy", usage=Usage(input=9)))
                replies.append(call("add", a=3, b=3))
            case _:
                replies.append(call("erase", path=step.split()[1]))
    if end == "error":
        replies.append(failing(ErrorKind.AUTH, "gone"))
    elif end == "value":
        replies.append(call("final_answer", name="Oslo"))
    else:
        replies.append(text("done"))

    class StopsAtDone:
        def post_turn(self, ctx: Any) -> Stop | None:
            return Stop("enough") if end == "stop" and ctx.message.text == "done" else None

    def approve(request: Any) -> Any:
        answers = {"yes": True, "with": ApproveWith({"path": "less"}, "less of it"), "no": Reject("never")}
        return answers[request.arguments["path"]]

    agent = Agent(
        "test:model",
        tools=[add, fail, erase],
        stream_fn=scripted(*replies, usage=Usage(output=4)),
        policies=[StopsAtDone()],
        approve=approve,
        sleep=lambda seconds: asyncio.sleep(0),
    )
    events: list[AgentEvent] = []
    live = RunRecord()
    store = JsonlSessionStore(folder)
    with store.create() as session, agent.subscribe(live.feed), agent.subscribe(events.append):
        session.attach(agent)
        if end == "value":
            await agent.structured_output("go", {"type": "object", "properties": {"name": {"type": "string"}}})
        else:
            await agent.prompt("go")
        assert session.runs() == (live,)

    assert RunRecord.of(events) == live
    assert RunRecord.of([decode_event(encode_event(event)) for event in events]) == live
    assert store.load(session.id).runs() == (live,)
    assert pickle.loads(pickle.dumps(live)) == live
    assert spent(events) == (live.usage, live.cost)


async def test_a_call_that_is_aborted_in_its_first_moment_has_the_same_seconds_everywhere(tmp_path: Path) -> None:
    agent = Agent("test:model", tools=[add], stream_fn=scripted(call("add", a=1, b=2)))
    live = RunRecord()

    def abort_at_the_start(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionStart):
            agent.abort()

    store = JsonlSessionStore(tmp_path)
    with store.create() as session, agent.subscribe(live.feed), agent.subscribe(abort_at_the_start):
        session.attach(agent)
        await agent.prompt("go")

    assert live.calls[0].reason == "aborted"
    assert store.load(session.id).runs() == (live,)


async def test_a_run_that_broke_off_is_not_over_in_its_session(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    at_work = asyncio.Event()

    @tool
    async def hang(ctx: ToolContext) -> str:
        """Hangs."""
        at_work.set()
        await asyncio.Event().wait()
        return ""

    calls = [call("hang"), call("nobody")]
    agent = Agent("test:model", tools=[hang], stream_fn=scripted(calls, text("ok")))
    with store.create() as session:
        session.attach(agent)
        running = asyncio.ensure_future(agent.prompt("go"))
        await at_work.wait()
        (record,) = store.load(session.id).runs()
        agent.abort()
        await running

    assert not record.is_over
    assert record.stop_reason is None
    assert [one.outcome for one in record.calls] == [ToolOutcome.LOST, ToolOutcome.UNKNOWN_TOOL]
    (ended,) = store.load(session.id).runs()
    assert ended.is_over
    assert ended.calls[0].reason == "aborted"


async def test_the_approval_of_a_call_that_was_lost_is_on_record(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    at_work = asyncio.Event()
    token = "xyzzy-plugh-1"

    class Pay:
        name, label, description = "pay", "Pay", "Pays."
        parameters_schema: ClassVar = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        requires_approval = True

        def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"place": f"vault {token}"}

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            at_work.set()
            await asyncio.Event().wait()
            return AgentToolResult("")

    agent = Agent(
        "test:model",
        tools=[Pay()],
        approve=lambda request: ApproveWith({"amount": 5}, "not more"),
        redactor=Redactor([token]),
        stream_fn=scripted(call("pay", amount=500), text("ok")),
    )
    live = RunRecord()
    with store.create() as session:
        session.attach(agent)
        with agent.subscribe(live.feed):
            running = asyncio.ensure_future(agent.prompt("go"))
            await at_work.wait()
            (record,) = store.load(session.id).runs()  # as it is after a crash
            told = live.calls[0]
            agent.abort()
            await running

    (lost,) = record.calls
    assert lost.outcome is ToolOutcome.LOST
    assert (lost.approval, lost.note, lost.arguments) == ("approved", "not more", {"amount": 5})
    assert (told.approval, told.note, told.arguments) == ("approved", "not more", {"amount": 5})
    assert lost.grant is not None
    assert lost.grant.scope["place"].startswith("vault [redacted:")
    assert token not in session.path.read_text()


@pytest.mark.parametrize("wrong", [b'{"type":"agent_start"}', '{"type":"agent_start"}', {"type": "agent_start"}, None])
def test_undecoded_parts_are_not_skipped_silently(wrong: Any) -> None:
    with pytest.raises(TypeError, match="decode_event"):
        RunRecord.of([wrong])


async def test_secrets_are_masked_before_a_reason_or_a_note_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-live-0123456789abcdefghij"
    monkeypatch.setenv("SOME_API_KEY", secret)
    answers = iter([Reject(f"leaks {secret}"), ApproveWith({"path": "x"}, f"see {secret}")])
    agent = Agent(
        "test:model",
        tools=[erase, fail],
        approve=lambda request: next(answers),
        stream_fn=scripted([call("erase", path="a"), call("erase", path="b"), call("fail", why=secret)], text("ok")),
    )

    record, events, _ = await observed(agent)

    told = [event.reason + event.note for event in events if isinstance(event, ToolApprovalResolved)]
    told += [event.reason for event in events if isinstance(event, ToolExecutionEnd)]
    assert not any(secret in words for words in told)
    assert all(secret not in one.reason + one.note for one in record.calls)
    assert any("leaks" in words for words in told)


async def test_a_policy_stop_is_in_the_record() -> None:
    class Halts:
        name = "halts"

        def pre_turn(self, ctx: Any) -> Stop:
            return Stop("not today")

    record, _, result = await observed(Agent("test:model", policies=[Halts()], stream_fn=scripted(text("no"))))

    assert record.turns == ()
    assert record.stopped_by == result.stopped_by == PolicyStop("halts", "not today")
