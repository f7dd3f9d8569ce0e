"""Sessions with waiting calls: on disk in time, after a crash, masked, forked, exported and replayed."""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Approve,
    ApproveWith,
    AssistantMessage,
    Defer,
    Inject,
    PendingCall,
    PolicyContext,
    PreDispatchContext,
    Redactor,
    Reject,
    RunRecord,
    Text,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    pending_calls,
    tool,
)
from swink_agent.core.journal import ToolStarted
from swink_agent.memory import JsonlSessionStore, SqlSessionStore, replay
from swink_agent.testing import call, reply, scripted

RAN, PENDING, REJECTED, LOST = ToolOutcome.RAN, ToolOutcome.PENDING, ToolOutcome.REJECTED, ToolOutcome.LOST
REPLY = reply(call("refund", order=1), call("look", order=1), call("ship", order=1), call("refund", order=2))


class Shop:
    def __init__(self, store: Any = None) -> None:
        self.done: list[str] = []
        self.seen: list[list[ToolOutcome]] = []
        self._store = store

    @tool(requires_approval=True)
    def refund(self, order: int, note: str = "") -> str:
        self.done.append(f"refund {order}{note}")
        if self._store is not None:  # as another process would find it after a crash right now
            loaded = self._store.load(self._store.list()[0].id)
            assert any(isinstance(record.entry, ToolStarted) for record in loaded.records())
            self.seen.append(outcomes(loaded.messages))
        return f"refunded {order}"

    @tool
    def look(self, order: int) -> str:
        return f"order {order}"

    @tool(external=True)
    def ship(self, order: int) -> str:
        """Ships."""
        raise AssertionError

    def agent(self, *script: Any, **options: Any) -> Agent:
        options.setdefault("approve", lambda _: Defer("ask Ada"))
        options.setdefault("stream_fn", scripted(*script))
        return Agent("test:model", tools=[self.refund, self.look, self.ship], **options)


def outcomes(messages: Any) -> list[ToolOutcome]:
    return [message.outcome for message in messages if isinstance(message, ToolResultMessage)]


@pytest.fixture
def store(tmp_path: Path) -> JsonlSessionStore:
    return JsonlSessionStore(tmp_path / "sessions")


@pytest.fixture(params=["files", "sql"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> JsonlSessionStore | SqlSessionStore:
    return JsonlSessionStore(tmp_path / "s") if request.param == "files" else SqlSessionStore(tmp_path / "s.db")


async def waiting_session(store: Any, *script: Any, **options: Any) -> tuple[str, tuple[PendingCall, ...]]:
    with store.create() as session:
        agent = Shop().agent(*(script or (REPLY,)), **options)
        session.attach(agent)
        return session.id, (await agent.prompt("go")).pending


async def test_waiting_calls_are_on_disk_and_another_process_answers(any_store: Any) -> None:
    store = any_store
    session_id, pending = await waiting_session(store)
    assert (store.list()[0].pending, store.load(session_id).info.pending) == (3, 3)
    assert pending_calls(store.load(session_id).messages) == pending
    shop = Shop(store)
    with store.open(session_id) as session:
        agent = shop.agent("done")
        session.attach(agent)
        assert agent.pending == pending
        await agent.resume({pending[0].call_id: Approve()})
        assert store.load(session_id).info.pending == 2
        result = await agent.resume({pending[1].call_id: AgentToolResult.text("shipped"), pending[2].call_id: Reject()})
        assert result.text == "done"
    assert shop.done == ["refund 1"]
    assert shop.seen == [[LOST, RAN, PENDING, PENDING]], "the start was on disk before the tool started"
    assert store.list()[0].pending == 0
    loaded = store.load(session_id)
    assert outcomes(loaded.messages) == [RAN, RAN, RAN, REJECTED]
    assert not loaded.info.problems
    with store.open(session_id) as session:
        agent = shop.agent("more")
        session.attach(agent)
        assert list(agent.messages) == list(loaded.messages)


async def test_after_a_crash_a_started_call_is_unknown_and_the_others_still_wait(
    store: JsonlSessionStore, tmp_path: Path
) -> None:
    session_id, pending = await waiting_session(store)
    with store.open(session_id) as session:
        agent = Shop(store).agent("done")
        session.attach(agent)
        await agent.resume({pending[0].call_id: True})
    # The file up to the start of the call is what a crash leaves.
    path = next((tmp_path / "sessions").glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if b'"tool_started"' in line and b'"refund"' in line]
    path.write_bytes(b"".join(lines[: starts[0] + 1]))
    assert store.load(session_id).info.pending == 2
    with store.open(session_id) as session:
        shop = Shop()
        agent = shop.agent("done")
        session.attach(agent)
        assert outcomes(agent.messages) == [LOST, RAN, PENDING, PENDING]
        assert [one.call_id for one in agent.pending] == [pending[1].call_id, pending[2].call_id]
        await agent.resume({pending[1].call_id: AgentToolResult(), pending[2].call_id: False})
        assert (outcomes(agent.messages), shop.done) == ([LOST, RAN, RAN, REJECTED], [])


@pytest.mark.parametrize("depth", [1, 2])
async def test_after_a_crash_in_a_delegate_the_other_calls_in_it_still_wait(
    store: JsonlSessionStore, tmp_path: Path, depth: int
) -> None:
    done: list[str] = []

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pays."""
        done.append(f"pay {order}")
        if order == 3 and len(done) == 1:  # the files as they are now are what a crash leaves
            shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
        return "paid"

    @tool(external=True)
    def ship(order: int) -> str:
        """Ships."""
        raise AssertionError

    def outer(inner_script: Any, *script: Any) -> Agent:
        agent = Agent("test:inner", stream_fn=scripted(inner_script), tools=[pay, ship], approve=lambda _: Defer())
        for level in range(depth - 1):
            middle = scripted(call("help0", prompt="do").with_id(f"m{level}") if inner_script != "inner" else "middle")
            agent = Agent("test:middle", stream_fn=middle, tools=[agent.as_tool("help0", "Helps.")])
        tools = [agent.as_tool("helper", "Helps."), ship]
        return Agent("test:outer", stream_fn=scripted(*script), tools=tools, approve=lambda _: Defer())

    def again(stream_fn: Any, wrap_tool: Any) -> Agent:
        agent = outer("never asked")
        return agent.replaced(stream_fn=stream_fn, tools=[wrap_tool(one) for one in agent.tools])

    names = {3: "pay", 4: "ship", 5: "pay", 6: "pay"}
    first = reply(*[call(name, order=order).with_id(f"i{order}") for order, name in names.items()])
    with store.create() as session:
        agent = outer(first, reply(call("helper", prompt="do").with_id("h"), call("ship", order=2).with_id("s")))
        session.attach(agent)
        waiting = [one.call_id for one in (await agent.prompt("go")).pending]
        way = "h/" + "m0/" * (depth - 1)
        assert waiting == [f"{way}i3", f"{way}i4", f"{way}i5", f"{way}i6", "s"]
        result = await agent.resume({f"{way}i3": Approve(), f"{way}i5": Reject("no")})
        assert [one.call_id for one in result.pending] == [f"{way}i4", f"{way}i6", "s"]
        messages = list(agent.messages)
    loaded = store.load(session.id)
    assert (list(loaded.messages), loaded.info.problems) == (messages, ())
    assert (await replay(loaded, again)).divergence is None

    crashed = JsonlSessionStore(tmp_path / "crashed")
    assert crashed.load(session.id).info.pending == 4
    with crashed.open(session.id) as session:
        agent = outer("inner", "fin")
        session.attach(agent)
        # The rejection did not run anything, so its call waits again.
        assert [one.call_id for one in agent.pending] == [f"{way}i4", f"{way}i5", f"{way}i6", "s"]
        answers: dict[str, Any] = {"s": AgentToolResult.text("2"), f"{way}i4": AgentToolResult.text("4")}
        result = await agent.resume({**answers, f"{way}i5": True, f"{way}i6": False})
        assert (result.text, result.pending, done) == ("fin", (), ["pay 3", "pay 5"])
    assert not crashed.load(session.id).info.problems
    assert (await replay(crashed.load(session.id), again)).divergence is None
    assert done == ["pay 3", "pay 5"]


async def test_after_a_crash_in_a_delegate_with_all_answers_its_call_is_unknown(
    store: JsonlSessionStore, tmp_path: Path
) -> None:
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pays."""
        shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
        return "paid"

    inner = Agent("test:inner", stream_fn=scripted(call("pay", order=3), "inner"), tools=[pay])
    model = scripted(call("helper", prompt="do"), "fin")
    agent = Agent("test:outer", stream_fn=model, tools=[inner.as_tool("helper", "Helps.")], approve=lambda _: Defer())
    with store.create() as session:
        session.attach(agent)
        (one,) = (await agent.prompt("go")).pending
        assert (await agent.resume({one.call_id: True})).text == "fin"
    loaded = JsonlSessionStore(tmp_path / "crashed").load(session.id)
    assert (outcomes(loaded.messages), loaded.info.pending) == ([LOST], 0)


async def test_after_a_crash_with_nothing_left_to_wait_for_continue_goes_on(
    store: JsonlSessionStore, tmp_path: Path
) -> None:
    session_id, pending = await waiting_session(store, call("refund", order=1))
    with store.open(session_id) as session:
        agent = Shop(store).agent("done")
        session.attach(agent)
        await agent.resume({pending[0].call_id: True})
    path = next((tmp_path / "sessions").glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    start = next(at for at, line in enumerate(lines) if b'"tool_started"' in line)
    path.write_bytes(b"".join(lines[: start + 1]))
    with store.open(session_id) as session:
        agent = Shop().agent("looked")
        session.attach(agent)
        assert (outcomes(agent.messages), agent.pending) == ([LOST], ())
        assert (await agent.continue_loop()).text == "looked"


async def test_a_crash_in_the_batch_leaves_a_deferred_call_waiting(store: JsonlSessionStore, tmp_path: Path) -> None:
    session_id, pending = await waiting_session(store)
    path = next((tmp_path / "sessions").glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    look = next(at for at, line in enumerate(lines) if b'"tool_started"' in line)
    path.write_bytes(b"".join(lines[: look + 1]))
    assert pending_calls(store.load(session_id).messages) == pending
    assert outcomes(store.load(session_id).messages) == [PENDING, LOST, PENDING, PENDING]


async def test_a_prompt_closes_what_waits_on_disk_too(any_store: Any) -> None:
    store = any_store
    session_id, _ = await waiting_session(store)
    watched = RunRecord()
    with store.open(session_id) as session:
        agent = Shop().agent("fine", "bye")
        session.attach(agent)
        agent.subscribe(watched.feed)
        await agent.prompt("forget it")
        history = list(agent.messages)
    loaded = store.load(session_id)
    assert list(loaded.messages) == history
    assert outcomes(history) == [REJECTED, RAN, REJECTED, REJECTED]
    assert (loaded.info.pending, loaded.runs()[-1]) == (0, watched)


async def test_a_message_behind_what_waits_and_continue(store: JsonlSessionStore) -> None:
    session_id, _ = await waiting_session(store)
    with store.open(session_id) as session:
        agent = Shop().agent("fine")
        session.attach(agent)
        agent.messages.append(UserMessage("forget it"))
        await agent.continue_loop()
        history = list(agent.messages)
    assert list(store.load(session_id).messages) == history
    assert outcomes(history) == [REJECTED, RAN, REJECTED, REJECTED]


class PutsIn:
    """Puts a secret into the arguments, which the model never sees."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def pre_dispatch(self, ctx: PreDispatchContext, /) -> None:
        if ctx.name == "refund":
            ctx.arguments["note"] = self._secret


async def test_a_secret_runs_in_memory_but_never_from_disk(store: JsonlSessionStore, tmp_path: Path) -> None:
    secret = "s3cr3t-of-the-shop-99"
    redactor = Redactor([secret])
    shop = Shop()
    with store.create() as session:
        agent = shop.agent(reply(call("refund", order=1), call("refund", order=2)), "done", redactor=redactor)
        agent = agent.replaced(policies=[PutsIn(secret)])
        session.attach(agent)
        first, second = (await agent.prompt("go")).pending
        await agent.resume({first.call_id: True})
    assert shop.done == [f"refund 1{secret}"]
    assert secret.encode() not in next((tmp_path / "sessions").glob("*.jsonl")).read_bytes()
    with store.open(session.id) as session:
        agent = shop.agent("done", redactor=redactor)
        session.attach(agent)
        await agent.resume({second.call_id: True})
        history = list(agent.messages)
    assert len(shop.done) == 1
    rejected = [message for message in history if isinstance(message, ToolResultMessage)][1]
    assert rejected.outcome is REJECTED
    assert "masked" in str(rejected.content)


async def test_masked_arguments_can_be_given_again(store: JsonlSessionStore) -> None:
    secret = "s3cr3t-of-the-shop-99"
    shop = Shop()
    session_id, (waiting,) = await waiting_session(
        store, call("refund", order=1, note=secret), redactor=Redactor([secret])
    )
    with store.open(session_id) as session:
        agent = shop.agent("done", redactor=Redactor([secret]))
        session.attach(agent)
        await agent.resume({waiting.call_id: ApproveWith({"order": 1, "note": " again"})})
    assert shop.done == ["refund 1 again"]


async def test_exports_and_forks_know_what_waits(any_store: Any) -> None:
    store = any_store
    session_id, pending = await waiting_session(store)
    for kind in ("markdown", "html", "json"):
        assert store.export(session_id, kind)
    assert "waiting" in store.export(session_id, "markdown")
    with store.fork(session_id) as fork:
        shop = Shop()
        agent = shop.agent("done")
        fork.attach(agent)
        assert agent.pending == pending
        await agent.resume({one.call_id: False for one in pending})
        assert outcomes(agent.messages) == [REJECTED, RAN, REJECTED, REJECTED]
    assert store.load(session_id).info.pending == 3
    with store.fork(session_id, 3) as fork:
        assert outcomes(fork.messages)[0] is PENDING


async def test_the_records_of_a_session_equal_those_of_the_events_and_it_replays(any_store: Any) -> None:
    store = any_store
    watched: list[RunRecord] = []

    def watch(agent: Agent) -> Agent:
        watched.append(RunRecord())
        agent.subscribe(watched[-1].feed)
        return agent

    with store.create() as session:
        agent = watch(Shop().agent(REPLY))
        session.attach(agent)
        pending = (await agent.prompt("go")).pending
    answers: list[dict[str, Any]] = [
        {pending[2].call_id: ApproveWith({"order": 5}, "order 5 was meant")},
        {pending[1].call_id: AgentToolResult.text("shipped"), pending[0].call_id: Reject("not now")},
    ]
    for some in answers:
        with store.open(session.id) as again:
            agent = watch(Shop().agent("done"))
            again.attach(agent)
            await agent.resume(some)
    with store.open(session.id) as again:
        agent = watch(Shop().agent("well"))
        again.attach(agent)
        await agent.prompt("and?")
    loaded = store.load(session.id)
    assert loaded.runs() == tuple(watched)
    shop = Shop()
    report = await replay(loaded, lambda stream_fn, wrap: shop.agent(stream_fn=stream_fn))
    assert (report.divergence, shop.done) == (None, [])
    asks_now = await replay(loaded, lambda stream_fn, wrap: shop.agent(stream_fn=stream_fn, approval_mode="bypassed"))
    assert asks_now.divergence is not None


async def test_a_policy_that_replaces_the_reply_of_a_resumed_turn_is_on_record(any_store: Any) -> None:
    class Rewrites:
        """Adds a text to replies: to that of a resumed turn too, which an earlier run recorded."""

        def post_turn(self, ctx: PolicyContext) -> Inject | None:
            reply = ctx.message
            assert reply is not None
            if not reply.tool_calls:
                return None
            return Inject([AssistantMessage([*reply.content, Text("seen")], stop_reason=reply.stop_reason)])

    def agent_of(**options: Any) -> Agent:
        options.setdefault("stream_fn", scripted(REPLY, "done"))
        return Shop().agent(policies=[Rewrites()], **options)

    watched: list[RunRecord] = []
    with any_store.create() as session:
        agent = agent_of()
        session.attach(agent)
        pending = (await agent.prompt("go")).pending
        for one in pending:
            watched.append(RunRecord())
            with agent.subscribe(watched[-1].feed):
                answer = AgentToolResult.text("shipped") if one.kind == "external" else Approve()
                await agent.resume({one.call_id: answer})
        assert session.runs()[1:] == tuple(watched)
        assert session.messages == tuple(agent.messages)
    loaded = any_store.load(session.id)
    assert loaded.runs()[1:] == tuple(watched)
    report = await replay(loaded, lambda stream_fn, wrap: agent_of(stream_fn=stream_fn))
    assert report.divergence is None


async def test_a_session_that_waits_and_was_closed_replays(store: JsonlSessionStore) -> None:
    session_id, _ = await waiting_session(store)
    with store.open(session_id) as session:
        agent = Shop().agent("fine")
        session.attach(agent)
        await agent.prompt("forget it")
    report = await replay(store.load(session_id), lambda stream_fn, wrap: Shop().agent(stream_fn=stream_fn))
    assert report.divergence is None


async def test_a_history_that_waits_can_be_recorded_later(store: JsonlSessionStore, tmp_path: Path) -> None:
    agent = Shop().agent(REPLY)
    pending = (await agent.prompt("go")).pending
    with store.create() as session:
        session.attach(agent)
    assert pending_calls(store.load(session.id).messages) == pending
    copied = tmp_path / "copy"
    shutil.copytree(tmp_path / "sessions", copied)
    with JsonlSessionStore(copied).open(session.id) as session:
        again = Shop().agent("done")
        session.attach(again)
        result = await again.resume({one.call_id: Reject("no") for one in pending})
        assert isinstance(result.messages[-1], AssistantMessage)
    assert store.load(session.id).info.pending == 3


def _splits(ids: list[str]) -> list[list[list[str]]]:
    """Every way to give the answers in some order, some of them together."""
    if not ids:
        return [[]]
    found: list[list[list[str]]] = []
    for count in range(1, len(ids) + 1):
        for some in combinations(ids, count):
            rest = [one for one in ids if one not in some]
            found += [[list(some), *others] for others in _splits(rest)]
    return found


async def test_however_answers_are_split_over_processes_the_session_ends_the_same(store: JsonlSessionStore) -> None:
    names = ["call_1", "call_3", "call_4"]
    answers: dict[str, Any] = {
        "call_1": True,
        "call_3": AgentToolResult.text("shipped"),
        "call_4": ApproveWith({"order": 9}, "another"),
    }
    endings: list[Any] = []
    for split in _splits(names):
        session_id, _ = await waiting_session(store)
        shop = Shop()
        for some in split:
            with store.open(session_id) as session:
                agent = shop.agent("done")
                session.attach(agent)
                await agent.resume({one: answers[one] for one in some})
        messages = store.load(session_id).messages
        endings.append(([_shown(message) for message in messages], sorted(shop.done)))
    assert len(endings) == 13
    assert all(ending == endings[0] for ending in endings)


def _shown(message: Any) -> Any:
    return type(message).__name__, message.content, getattr(message, "outcome", None)


async def test_a_call_that_waits_for_its_turn_has_no_start_on_record(store: JsonlSessionStore) -> None:
    starts: list[int] = []

    @tool(max_concurrent=1)
    def work() -> str:
        records = store.load(store.list()[0].id).records()
        starts.append(sum(isinstance(record.entry, ToolStarted) for record in records))
        return "done"

    with store.create() as session:
        agent = Agent("test:model", stream_fn=scripted(reply(call("work"), call("work")), "done"), tools=[work])
        session.attach(agent)
        await agent.prompt("go")
    assert starts == [1, 2]
