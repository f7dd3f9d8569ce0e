"""The journal: what a run records, in which order, and that nothing relies on records that are not safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AgentEvent,
    AgentMessage,
    AgentTool,
    AlreadyRunning,
    Approve,
    ApproveWith,
    AssistantMessage,
    Inject,
    ModelSpec,
    PolicyContext,
    ProposedCall,
    Redactor,
    RunRecord,
    StopReason,
    StreamOptions,
    Text,
    ToolApprovalRequested,
    ToolCallDeferred,
    ToolContext,
    ToolOutcome,
    ToolResultMessage,
    TurnEnd,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    JournalEntry,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    Past,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.testing import call, check_events, collect, fail, scripted, text

MODEL = ModelSpec("test", "model")


class Disk(AgentError):
    """What the journal of these tests refuses with."""


class Ledger:
    """A journal in memory. `refuse_at` is the number of the wait that fails, and all after it."""

    def __init__(self, refuse_at: int | None = None) -> None:
        self.entries: list[JournalEntry] = []
        self.safe = 0
        self.waits = 0
        self.refuse_at = refuse_at
        self.gate: asyncio.Event | None = None
        self.news = asyncio.Event()

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        self.news.set()
        self.entries.append(entry if redactor is None else redactor.redact_value(entry))
        return len(self.entries)

    async def durable(self) -> None:
        self.waits += 1
        self.news.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.refuse_at is not None and self.waits >= self.refuse_at:
            raise Disk("the.log: no space left")
        self.safe = len(self.entries)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.news.clear()
            await self.news.wait()

    def story(self) -> list[str]:
        return [_named(entry) for entry in self.entries]

    def safely(self) -> list[str]:
        return self.story()[: self.safe]


def _named(entry: JournalEntry) -> str:
    match entry:
        case MessageAdded():
            return f"{entry.source}: {_text(entry.message)}"
        case ToolStarted():
            return f"start {entry.name}"
        case RunEnded():
            return f"end {entry.stop_reason.value}"
        case _:
            return type(entry).__name__


def _text(message: AgentMessage) -> str:
    assert isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage))
    return extract_text(message.content)


def _recorded(stream_fn: Any, ledger: Ledger, **options: Any) -> Agent:
    agent = Agent(MODEL, stream_fn=stream_fn, **options)
    agent.attach_journal(ledger)
    return agent


async def test_a_run_with_a_tool_writes_its_whole_story_in_order() -> None:
    @tool
    async def add(a: int, b: int) -> str:
        """Adds."""
        return str(a + b)

    ledger = Ledger()
    agent = _recorded(scripted([text("let me see"), call("add", a=2, b=3)], text("5")), ledger, tools=[add])
    await agent.prompt("2+3?")
    assert ledger.story() == [
        *("ModelChanged", "RunStarted", "prompt: 2+3?", "reply: let me see", "start add", "result: 5"),
        *("reply: 5", "end stop"),
    ]
    assert ledger.safe == len(ledger.entries)


async def test_nobody_relies_on_what_is_not_safe_yet() -> None:
    ledger = Ledger()
    seen: dict[str, list[str]] = {}

    @tool
    async def look() -> str:
        """Looks at the journal."""
        seen["tool"] = ledger.safely()
        return "looked"

    inner = scripted(call("look"), text("done"))

    def asked(*arguments: Any) -> Any:
        seen[f"model {len(inner.requests)}"] = ledger.safely()
        return inner(*arguments)

    await _recorded(asked, ledger, tools=[look]).prompt("go")
    assert seen["model 0"][-1] == "prompt: go"
    assert seen["tool"][-2:] == ["reply: ", "start look"]
    assert seen["model 1"][-1] == "result: looked"


async def test_a_person_is_asked_when_the_reply_is_safe() -> None:
    """The answer may be given elsewhere: a crash must not lose the reply whose calls were asked about."""
    ledger = Ledger()
    seen: dict[str, list[str]] = {}

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    @tool(external=True)
    async def ship() -> str:
        """Ships."""
        return "shipped"

    def approve(request: ProposedCall) -> Approve:
        seen.setdefault("approve", ledger.safely())
        return Approve()

    def watch(event: AgentEvent) -> None:
        if isinstance(event, (ToolApprovalRequested, ToolCallDeferred)):
            seen.setdefault(type(event).__name__, ledger.safely())

    agent = _recorded(scripted([call("pay"), call("pay")], call("ship")), ledger, tools=[pay, ship], approve=approve)
    agent.subscribe(watch)
    assert (await agent.prompt("go")).pending
    assert seen["approve"][-2:] == seen["ToolApprovalRequested"][-2:] == ["prompt: go", "reply: "]
    assert seen["ToolCallDeferred"][-1] == "reply: "
    assert ledger.waits == 7  # as without questions, and one more for each question


async def test_a_journal_that_refuses_the_reply_lets_nobody_be_asked() -> None:
    ledger = Ledger(refuse_at=2)
    asked: list[str] = []

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pays."""
        raise AssertionError

    def approve(request: ProposedCall) -> Approve:
        asked.append(request.name)
        return Approve()

    agent = _recorded(scripted([call("pay"), call("pay")]), ledger, tools=[pay], approve=approve)
    result = await agent.prompt("go")
    assert isinstance(result.exception, Disk)
    assert [message.outcome for message in result.messages if isinstance(message, ToolResultMessage)] == [
        ToolOutcome.NEVER_RAN,
        ToolOutcome.NEVER_RAN,
    ]
    assert asked == []


async def test_an_answer_without_a_question_waits_for_no_disk() -> None:
    class Rules:
        def __call__(self, request: ProposedCall) -> Approve:
            raise AssertionError("it is prepared")

        def prepare_approval(self, request: ProposedCall) -> Approve:
            return Approve()

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    pay.approval_scope = lambda arguments: {}  # type: ignore[attr-defined]
    ledger = Ledger()
    await _recorded(scripted(call("pay"), text("ok")), ledger, tools=[pay], approve=Rules()).prompt("go")
    assert ledger.waits == 4  # as without approval


async def test_the_model_is_not_asked_while_the_journal_waits_and_an_abort_ends_the_wait(promptly: Any) -> None:
    ledger = Ledger()
    model = scripted(text("never"))
    agent = _recorded(model, ledger)
    ledger.gate = asyncio.Event()
    running = asyncio.ensure_future(agent.prompt("go"))
    await ledger.until(lambda: ledger.waits > 0)
    assert model.requests == []
    with promptly(0.5):  # 0.1 by the rules, and a loaded machine
        agent.abort()
        result = await running
    assert result.stop_reason == StopReason.ABORTED
    assert model.requests == []


def _touching(ran: list[str]) -> AgentTool:
    @tool
    async def touch() -> str:
        """Does something that cannot be taken back."""
        ran.append("touch")
        return "touched"

    return touch


@pytest.mark.parametrize("refuse_at", [1, 2, 3, 4])
async def test_a_refused_record_ends_the_run_at_once(refuse_at: int) -> None:
    ran: list[str] = []
    ledger = Ledger(refuse_at)
    model = scripted(call("touch"), text("done"))
    agent = _recorded(model, ledger, tools=[_touching(ran)])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    result_error = agent.last_error
    assert result_error is not None
    assert "the.log: no space left" in result_error
    assert len(model.requests) == {1: 0, 2: 1, 3: 1, 4: 2}[refuse_at]
    assert ran == ([] if refuse_at < 3 else ["touch"])
    if refuse_at == 2:
        (result,) = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
        assert result.outcome is ToolOutcome.NEVER_RAN
        assert "no space left" in extract_text(result.content)


class Locked(Ledger):
    """Breaks its word: raises where it is to record, from the entry of this number on."""

    def __init__(self, locked_at: int) -> None:
        super().__init__()
        self.locked_at = locked_at

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        if len(self.entries) + 1 >= self.locked_at:
            raise OSError("the database is locked")
        return super().record(entry, redactor)


@pytest.mark.table
@pytest.mark.parametrize("locked_at", [1, 2, 3, 4, 5, 6, 7, 8])
async def test_a_journal_that_raises_ends_the_run_like_one_that_refuses(locked_at: int) -> None:
    ran: list[str] = []
    ledger = Locked(locked_at)
    model = scripted(call("touch"), text("done"))
    agent = _recorded(model, ledger, tools=[_touching(ran)])
    check_events(await collect(agent.prompt_stream("go")))
    assert agent.last_error == "the journal failed: OSError: the database is locked"
    assert len(model.requests) == {4: 1, 5: 1, 6: 1, 7: 2, 8: 2}.get(locked_at, 0)
    assert ran == (["touch"] if locked_at > 5 else [])

    ledger.locked_at = 100  # it has a gap now: nothing more is recorded before it is attached again
    asked = len(model.requests)
    assert (await agent.prompt("again")).error == "the journal failed: OSError: the database is locked"
    assert (len(model.requests), len(ledger.entries)) == (asked, locked_at - 1)


async def test_an_abort_causes_no_warning_about_a_slow_journal(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    agent = Agent(MODEL, stream_fn=scripted(text("never")))
    agent.attach_journal(ledger)
    ledger.gate = asyncio.Event()
    run = asyncio.ensure_future(agent.prompt("hello"))
    await ledger.until(lambda: ledger.waits > 0)
    agent.abort()
    assert (await run).stop_reason is StopReason.ABORTED
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


async def test_an_abort_after_the_end_was_recorded_does_not_change_the_end() -> None:
    ledger = Ledger()
    agent = _recorded(scripted(text("hi")), ledger)
    live = RunRecord()
    agent.subscribe(live.feed)

    def hold_the_end(event: AgentEvent) -> None:
        if isinstance(event, TurnEnd):
            ledger.gate = asyncio.Event()

    agent.subscribe(hold_the_end)
    run = asyncio.ensure_future(agent.prompt("hello"))
    await ledger.until(lambda: "end stop" in ledger.story())
    await asyncio.sleep(0)
    agent.abort()
    assert ledger.gate is not None
    ledger.gate.set()

    assert (await run).stop_reason is live.stop_reason is StopReason.STOP
    assert ledger.story()[-1] == "end stop"


async def test_a_policy_that_uses_up_the_last_moments_leaves_the_journal_time_for_the_end() -> None:
    is_asked = asyncio.Event()

    class Judge:
        async def post_turn(self, ctx: PolicyContext) -> None:
            is_asked.set()
            await asyncio.Event().wait()

    ledger = Ledger()
    agent = _recorded(scripted(text("hi")), ledger, policies=[Judge()])
    run = asyncio.ensure_future(agent.prompt("hello"))
    await is_asked.wait()
    agent.abort()
    assert (await run).stop_reason is StopReason.ABORTED
    assert ledger.safely()[-1] == "end aborted"


async def test_a_refusal_is_the_exception_of_the_result() -> None:
    agent = _recorded(scripted(text("hi")), Ledger(refuse_at=1))
    result = await agent.prompt("go")
    assert isinstance(result.exception, Disk)
    with pytest.raises(Disk):
        result.raise_for_error()


async def test_results_are_written_as_tools_finish_and_stand_in_the_order_of_the_calls() -> None:
    first_may_end = asyncio.Event()

    @tool
    async def slow() -> str:
        """Ends last."""
        await first_may_end.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """Ends first."""
        return "quick"

    ledger = Ledger()
    agent = _recorded(scripted([call("slow"), call("quick")], text("ok")), ledger, tools=[slow, quick])
    running = asyncio.ensure_future(agent.prompt("go"))
    await ledger.until(lambda: "result: quick" in ledger.story())
    first_may_end.set()
    await running
    results = [entry for entry in ledger.entries if isinstance(entry, MessageAdded) and entry.source == "result"]
    assert [(_text(entry.message), entry.call) for entry in results] == [("quick", 1), ("slow", 0)]
    assert [_text(message) for message in agent.messages][2:4] == ["slow", "quick"]


async def test_the_starts_of_a_batch_share_one_wait() -> None:
    @tool
    async def one() -> str:
        """Is quick."""
        return "1"

    ledger = Ledger()
    await _recorded(scripted([call("one")] * 5, text("ok")), ledger, tools=[one]).prompt("go")
    assert ledger.waits == 4  # before the request, before the tools, before the next request, at the end


async def test_a_call_that_does_not_run_has_no_start() -> None:
    @tool
    async def add(a: int) -> str:
        """Adds."""
        return str(a)

    ledger = Ledger()
    model = scripted([call("add", a="x"), call("nobody"), call("add", a=1)], text("ok"))
    await _recorded(model, ledger, tools=[add]).prompt("go")
    assert [entry.call for entry in ledger.entries if isinstance(entry, ToolStarted)] == [2]


async def test_arguments_that_a_person_changed_are_in_the_start() -> None:
    @tool(requires_approval=True)
    async def add(a: int) -> str:
        """Adds."""
        return str(a)

    ledger = Ledger()
    model = scripted([call("add", a=1)], text("ok"))
    await _recorded(model, ledger, tools=[add], approve=lambda _: ApproveWith({"a": 7})).prompt("go")
    assert [entry.arguments for entry in ledger.entries if isinstance(entry, ToolStarted)] == [{"a": 7}]


async def test_the_end_says_how_and_counts_what_is_in_no_message() -> None:
    ledger = Ledger()

    async def no_wait(_: float) -> None:
        pass

    model = scripted(fail("throttled"), text("ok"))
    agent = _recorded(model, ledger, sleep=no_wait)
    result = await agent.prompt("go")
    (end,) = [entry for entry in ledger.entries if isinstance(entry, RunEnded)]
    (start,) = [entry for entry in ledger.entries if isinstance(entry, RunStarted)]
    assert (end.run_id, end.stop_reason, end.usage) == (start.run_id, StopReason.STOP, result.usage)


async def test_steering_follow_ups_and_policies_are_told_apart() -> None:
    class Once:
        done = False

        def post_loop(self, ctx: PolicyContext) -> Inject | None:
            if self.done:
                return None
            self.done = True
            return Inject([UserMessage("by policy")])

    ledger = Ledger()
    agent = _recorded(scripted(*[text("ok")] * 4), ledger, policies=[Once()])
    agent.steer("steered")
    agent.follow_up("followed")
    await agent.prompt("prompted")
    assert [line for line in ledger.story() if line.split(":")[0] in ("prompt", "steering", "follow_up", "policy")] == [
        *("prompt: prompted", "steering: steered", "policy: by policy", "follow_up: followed"),
    ]


async def test_a_message_that_a_policy_replaces_is_replaced_in_the_journal() -> None:
    class Cleaner:
        def post_turn(self, ctx: PolicyContext) -> Inject | None:
            assert ctx.message is not None
            if ctx.message.text != "bad":
                return None
            clean = AssistantMessage(
                [Text("good")], provider="test", model_id="model", stop_reason=ctx.message.stop_reason
            )
            return Inject([clean])

    ledger = Ledger()
    agent = _recorded(scripted(text("bad")), ledger, policies=[Cleaner()])
    await agent.prompt("go")
    (replaced,) = [entry for entry in ledger.entries if isinstance(entry, MessageReplaced)]
    added = ledger.entries[replaced.number - 1]
    assert isinstance(added, MessageAdded)
    assert (_text(added.message), _text(replaced.message)) == ("bad", "good")
    assert agent.messages[-1] == replaced.message


async def test_a_compaction_is_written_as_what_it_made_of_the_context() -> None:
    summary = UserMessage("summary of the past")

    def compact(messages: list[AgentMessage], overflow: bool) -> Sequence[AgentMessage] | None:
        return [summary, *messages[-1:]] if len(messages) >= 4 else None

    ledger = Ledger()
    agent = _recorded(scripted(text("a"), text("b"), text("c")), ledger, transform_context=compact)
    for prompt in ("1", "2", "3"):
        await agent.prompt(prompt)
    (context,) = [entry for entry in ledger.entries if isinstance(entry, ContextReplaced)]
    assert context.parts[0] == summary
    last = ledger.entries[int(str(context.parts[1])) - 1]
    assert isinstance(last, MessageAdded)
    assert _text(last.message) == "3"
    assert context.report is not None
    assert context.report.dropped_count == 3


async def test_changes_by_the_application_between_runs_are_written() -> None:
    ledger = Ledger()
    agent = Agent(MODEL, stream_fn=scripted(text("a"), text("b")), messages=["before"], state={"n": 0})
    agent.attach_journal(ledger)
    assert ledger.story() == ["ModelChanged", "given: before", "StateChanged"]
    await agent.prompt("1")
    agent.messages.append(UserMessage("appended"))
    agent.thinking_level = "high"
    agent.state["n"] = 1
    kept = list(agent.messages)[:2]
    agent.messages = [*kept, "new"]
    await agent.prompt("2")
    story = ledger.story()[ledger.story().index("end stop") + 1 :]
    assert story == [
        *("given: appended", "ModelChanged", "given: new", "HistoryCut", "RunStarted", "prompt: 2"),
        *("StateChanged", "reply: b", "end stop"),
    ]
    (cut,) = [entry for entry in ledger.entries if isinstance(entry, HistoryCut)]
    assert [ledger.entries[number - 1].message for number in cut.numbers[:-1]] == kept  # type: ignore[union-attr]
    assert ledger.entries.index(cut) == cut.numbers[-1], "the change stands behind what is new in it"
    models = [entry.model.thinking_level for entry in ledger.entries if isinstance(entry, ModelChanged)]
    assert models == ["off", "high"]
    assert [entry.state for entry in ledger.entries if isinstance(entry, StateChanged)] == [{"n": 0}, {"n": 1}]


async def test_state_that_is_not_json_ends_the_run_with_the_reason() -> None:
    ledger = Ledger()
    agent = _recorded(scripted(text("a")), ledger)
    agent.state["where"] = object()
    result = await agent.prompt("1")
    assert result.error is not None
    assert "state" in result.error


async def test_state_is_written_with_the_result_of_the_tool_that_changed_it() -> None:
    others_may_end = asyncio.Event()

    @tool
    async def remember(ctx: ToolContext) -> str:
        """Changes the state."""
        ctx.state["known"] = True
        return "remembered"

    @tool
    async def slow() -> str:
        """Ends last."""
        await others_may_end.wait()
        return "slow"

    ledger = Ledger()
    agent = _recorded(scripted([call("remember"), call("slow")], text("ok")), ledger, tools=[remember, slow])
    running = asyncio.ensure_future(agent.prompt("go"))
    await ledger.until(lambda: "result: remembered" in ledger.story())
    assert ledger.story()[-2:] == ["StateChanged", "result: remembered"]
    others_may_end.set()
    await running


async def test_an_agent_goes_on_from_a_past() -> None:
    ledger = Ledger()
    first, second = UserMessage("one"), UserMessage("two")
    past = Past(
        messages=(first, second),
        numbers=(4, 9),
        context=(second,),
        model=ModelSpec("test", "other"),
        state={"n": 3},
    )
    model = scripted(text("ok"))
    agent = Agent(MODEL, stream_fn=model, messages=["gone"], state={"old": 1})
    agent.attach_journal(ledger, past)
    assert list(agent.messages) == [first, second]
    assert (agent.model.model_id, dict(agent.state)) == ("other", {"n": 3})
    await agent.prompt("three")
    assert [_text(message) for message in model.requests[0].messages] == ["two", "three"]
    assert ledger.story() == ["RunStarted", "prompt: three", "reply: ok", "end stop"]
    agent.messages = [second]
    assert ledger.entries[-1] == HistoryCut((9,))


async def test_secrets_do_not_reach_the_journal() -> None:
    redactor = Redactor()
    redactor.register("kX9-very-secret-value-42", "token")
    ledger = Ledger()
    agent = _recorded(scripted(text("you said kX9-very-secret-value-42")), ledger, redactor=redactor)
    await agent.prompt("it is kX9-very-secret-value-42")
    assert "very-secret" not in repr(ledger.story())


async def test_a_key_that_only_the_options_hold_does_not_reach_the_journal() -> None:
    key = "Zq8-only-in-the-options-77"
    ledger = Ledger()
    options = StreamOptions(api_key=key, headers={"X-Auth-Token": f"Bearer {key[::-1]}"})
    agent = _recorded(scripted(text("ok")), ledger, stream_options=options)
    await agent.prompt(f"is it {key} or {key[::-1]}?")
    assert key not in repr(ledger.story())
    assert key[::-1] not in repr(ledger.story())


async def test_a_journal_can_be_taken_off_but_not_during_a_run() -> None:
    ledger = Ledger()
    agent = _recorded(scripted(text("a"), text("b")), ledger)

    def meddle(_: object) -> None:
        with pytest.raises(AlreadyRunning):
            agent.detach_journal()
        with pytest.raises(AlreadyRunning):
            agent.attach_journal(Ledger())

    with agent.subscribe(meddle):
        await agent.prompt("1")
    assert agent.detach_journal() is ledger
    count = len(ledger.entries)
    await agent.prompt("2")
    assert len(ledger.entries) == count
    assert agent.detach_journal() is None
