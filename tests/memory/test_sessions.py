"""Sessions as an application uses them: create, attach, continue, read, find, copy, delete."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AgentToolResult,
    AlreadyRunning,
    AssistantMessage,
    CompactionContext,
    CompactionReport,
    Cost,
    CustomMessage,
    ModelSpec,
    Redactor,
    StopReason,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    ModelChanged,
    RunEnded,
    RunStarted,
    StateChanged,
    ToolStarted,
)
from swink_agent.memory import (
    AsyncSessionStore,
    JsonlSessionStore,
    Session,
    SessionAmbiguous,
    SessionError,
    SessionInUse,
    SessionNotFound,
    SessionStore,
    UnknownMessage,
)
from swink_agent.memory.log.records import LabelAdded, NoteAdded, SessionStarted, TitleChanged
from swink_agent.memory.search.index import SessionIndex
from swink_agent.memory.storage.files import FileOperations
from swink_agent.testing import call, scripted, text

from .conftest import record
from .kinds import Kind

RecordedFn = Callable[..., Path]


class Notice(CustomMessage, tag="notice"):
    text: str


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def agent_that(*replies: Any, **options: Any) -> Agent:
    return Agent("test:model", stream_fn=scripted(*replies), tools=[add], **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def store(kind: Kind, folder: Path) -> SessionStore:
    return kind.make(folder, types=[Notice])


@pytest.fixture
def files(folder: Path) -> JsonlSessionStore:
    """A store of files, for what only concerns files."""
    return JsonlSessionStore(folder, types=[Notice], sync=False)


def test_types_that_could_not_be_read_back_are_refused_before_anything_is_recorded(kind: Kind, tmp_path: Path) -> None:
    class Other(CustomMessage, tag="notice"):
        pass

    with pytest.raises(TypeError, match="Other and Notice have the same tag"):
        kind.make(tmp_path, types=[Notice, Other])
    with pytest.raises(TypeError, match=r"types must be a list of classes: write \[Notice\]"):
        kind.make(tmp_path, types=Notice)  # type: ignore[arg-type]


def test_metadata_is_a_mapping(store: SessionStore) -> None:
    with pytest.raises(TypeError, match="the metadata of a session must be a mapping, not list"):
        store.create(metadata=["ann"])  # type: ignore[arg-type]


# -- recording -----------------------------------------------------------------------------------------------


async def test_a_conversation_is_there_again_as_it_was(kind: Kind, tmp_path: Path) -> None:
    store = kind.make(tmp_path, sync=True)
    agent = agent_that([call("add", a=1, b=2), call("add", a=3, b=4)], text("3 and 7"))
    with store.create(title="Sums", metadata={"who": "ada"}) as session:
        session.attach(agent)
        result = await agent.prompt("add them")
        assert session.messages == tuple(agent.messages)
    loaded = store.load(session.id)
    assert loaded.messages == tuple(agent.messages)
    assert [type(record.entry) for record in loaded.records()] == [
        SessionStarted,
        ModelChanged,
        RunStarted,
        MessageAdded,
        MessageAdded,
        ToolStarted,
        ToolStarted,
        MessageAdded,
        MessageAdded,
        MessageAdded,
        RunEnded,
    ]
    assert [record.number for record in loaded.records()] == list(range(11))
    info = loaded.info
    assert (info.id, info.title, info.messages, info.model) == (session.id, "Sums", 5, ModelSpec("test", "model"))
    assert (info.usage, info.cost, info.metadata) == (result.usage, result.cost, {"who": "ada"})
    assert (info.cwd, info.parent, info.version, info.problems) == (os.getcwd(), None, 1, ())
    assert info.created <= info.updated


async def test_a_session_goes_on_in_another_agent_with_everything(store: SessionStore) -> None:
    agent = agent_that(text("one"), messages=[UserMessage("earlier"), Notice("psst")])
    agent.state["count"] = 1
    with store.create() as session:
        session.attach(agent)
        agent.model = "test:other"
        agent.thinking_level = ThinkingLevel.HIGH
        await agent.prompt("first")
        agent.state["count"] = 2
    other = agent_that(text("two"), messages=[UserMessage("not this")])
    other.state["x"] = "not this either"
    with store.open(session.id) as again:
        again.attach(other)
        assert list(other.messages) == list(agent.messages)
        assert other.model == ModelSpec("test", "other", ThinkingLevel.HIGH)
        assert dict(other.state) == {"count": 2}
        await other.prompt("second")
    loaded = store.load(session.id)
    assert loaded.messages == tuple(other.messages)
    assert len(loaded.messages) == 6
    assert loaded.state == {"count": 2}


async def test_detaching_ends_the_record_and_another_agent_may_take_over(store: SessionStore) -> None:
    first, second = agent_that(text("a"), text("unheard")), agent_that(text("b"))
    with store.create() as session:
        session.attach(first)
        await first.prompt("1")
        session.detach()
        session.detach()
        await first.prompt("off the record")
        session.attach(second)
        await second.prompt("2")
    assert [extract_text(m.content) for m in store.load(session.id).messages] == ["1", "a", "2", "b"]  # type: ignore[union-attr]


async def test_a_session_has_one_agent_and_an_agent_one_session(store: SessionStore) -> None:
    agent, other = agent_that(), agent_that()
    with store.create() as session, store.create() as second:
        session.attach(agent)
        with pytest.raises(SessionError, match="another agent already"):
            session.attach(other)
        with pytest.raises(SessionError, match="this agent already"):
            session.attach(agent)
        with pytest.raises(SessionError, match=f"attached to session {session.id} already"):
            second.attach(agent)
        session.detach()
        second.attach(agent)
    assert agent.journal is None


def test_only_an_agent_is_attached(store: SessionStore) -> None:
    wrong: Any
    for wrong, kind in (("x", "a str"), (Agent, "the class Agent")):
        with store.create() as session, pytest.raises(TypeError, match=f"^attach must be given an Agent, not {kind}"):
            session.attach(wrong)


async def test_nothing_is_attached_during_a_run(store: SessionStore) -> None:
    with store.create() as session:
        caught: list[BaseException] = []

        @tool
        async def meddle() -> str:
            """Attaches."""
            try:
                session.attach(agent)
            except AlreadyRunning as error:
                caught.append(error)
            return "ok"

        agent = Agent("test:model", stream_fn=scripted(call("meddle"), text("done")), tools=[meddle])
        await agent.prompt("go")
        assert len(caught) == 1
        assert session.messages == ()


async def test_a_closed_session_takes_nothing(store: SessionStore) -> None:
    session = store.create()
    session.close()
    session.close()
    for use in (
        lambda: session.attach(agent_that()),
        lambda: session.rename("x"),
        lambda: session.label("x"),
        lambda: session.note("x"),
    ):
        with pytest.raises(SessionError, match="closed"):
            use()
    assert session.messages == ()
    assert len(session.records()) == 1


async def test_the_first_error_is_raised_before_errors_of_closing(kind: Kind, tmp_path: Path) -> None:
    session = kind.make(tmp_path, sync=True).create()
    with pytest.raises(KeyError), session:
        raise KeyError("first")


async def test_an_application_adds_labels_notes_and_titles(store: SessionStore) -> None:
    agent = agent_that(text("hi"))
    with store.create() as session:
        session.attach(agent)
        assert session.info.title == ""
        await agent.prompt("  What is\n the   plan? " + "long " * 50)
        assert session.info.title == "What is the plan? " + "long " * 12 + "l…"
        session.label("done")
        session.label("start", at=0)
        session.note("mood", {"good": [1, None]})
        session.rename("The plan")
        assert session.info.title == "The plan"
    loaded = store.load(session.id)
    assert loaded.labels == (LabelAdded("done", 2), LabelAdded("start", 0))
    assert loaded.notes == (NoteAdded("mood", {"good": [1, None]}),)
    assert loaded.info.title == "The plan"
    assert TitleChanged("The plan") in [record.entry for record in loaded.records()]
    assert loaded.messages == tuple(agent.messages)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda session: session.label("x", at=3), ValueError),
        (lambda session: session.label("x", at=-1), ValueError),
        (lambda session: session.label("x", at=True), ValueError),
        (lambda session: session.label(3), TypeError),
        (lambda session: session.label(""), ValueError),
        (lambda session: session.note("x", object()), TypeError),
        (lambda session: session.note("x", float("nan")), TypeError),
        (lambda session: session.note("x", {"a": [float("-inf")]}), TypeError),
        (lambda session: session.note("x", {(1, 2): 3}), TypeError),
        (lambda session: session.note(None), TypeError),
        (lambda session: session.rename(b"x"), TypeError),
        (lambda session: session.rename("x" * 10_001), ValueError),
    ],
)
def test_messages_added_by_an_application_are_checked(
    store: SessionStore, use: Callable[[Session], Any], error: type[Exception]
) -> None:
    with store.create() as session:
        before = session.records()
        with pytest.raises(error):
            use(session)
        assert session.records() == before


def test_metadata_that_is_not_json_is_refused(store: SessionStore) -> None:
    with pytest.raises(TypeError, match="metadata"):
        store.create(metadata={"x": object()})
    with pytest.raises(TypeError, match="metadata"):
        store.create(metadata={"x": float("nan")})
    assert store.list() == []


# -- after a crash -------------------------------------------------------------------------------------------


REPLY = AssistantMessage([ToolCall("c", "add", {"a": 1}), ToolCall("c", "add", {"a": 2}), ToolCall("d", "add")])


LIFE = """
import sys
from swink_agent import AssistantMessage, ToolCall, UserMessage
from swink_agent.core.journal import MessageAdded, ToolStarted
from swink_agent import memory
session = getattr(memory, sys.argv[1])(sys.argv[2], sync=False).create()
session.log.record(MessageAdded(UserMessage("go"), "prompt"))
calls = [ToolCall("a", "add", {}), ToolCall("b", "add", {})]
session.log.record(MessageAdded(AssistantMessage(calls), "reply"))
session.log.record(ToolStarted(0, "a", "add"))
print(session.id, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="the system does not tell who has a lock")
def test_a_call_that_runs_elsewhere_at_this_moment_is_not_taken_for_lost(
    kind: Kind, folder: Path, store: SessionStore
) -> None:
    """And looking takes no lock: whoever wants to write is never told that a reader does."""
    folder.mkdir()
    command = [sys.executable, "-c", LIFE, kind.name, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as life:
        assert life.stdin is not None
        assert life.stdout is not None
        session_id = life.stdout.readline().strip()
        before = store.load(session_id)
        life.kill()
        life.stdin.close()
    after = store.load(session_id)
    for loaded, words in ((before, ("may still be running", "may still start")), (after, ("never recorded", ""))):
        running, waiting = [message for message in loaded.messages if isinstance(message, ToolResultMessage)]
        assert (running.outcome, waiting.outcome) == (ToolOutcome.LOST, ToolOutcome.NEVER_RAN)
        assert extract_text(running.content).startswith("outcome unknown")
        assert extract_text(waiting.content).startswith("never ran")
        assert words[0] in extract_text(running.content)
        assert words[1] in extract_text(waiting.content)
    assert "still" not in "".join(extract_text(message.content) for message in after.messages)  # type: ignore[union-attr]


def crashed(store: SessionStore, *entries: Any) -> str:
    """A session whose record ends with these entries."""
    session = store.create()
    for entry in entries:
        session.log.record(entry)
    session.log.flush(10)
    return session.id  # nobody holds it any more: it is not closed in order


async def test_calls_without_results_are_answered_by_what_is_known_of_them(store: SessionStore) -> None:
    session_id = crashed(
        store,
        MessageAdded(UserMessage("go"), "prompt"),
        MessageAdded(REPLY, "reply"),
        ToolStarted(1, "c", "add"),
        ToolStarted(2, "d", "add"),
        MessageAdded(ToolResultMessage("d", "seven", tool_name="add"), "result", 2),
    )
    _, _, first, second, third = store.load(session_id).messages
    assert isinstance(first, ToolResultMessage)
    assert isinstance(second, ToolResultMessage)
    assert isinstance(third, ToolResultMessage)
    assert extract_text(first.content).startswith("never ran")
    assert (first.outcome, first.is_error, first.tool_name) == (ToolOutcome.NEVER_RAN, True, "add")
    assert extract_text(second.content).startswith("outcome unknown")
    assert (second.outcome, second.is_error) == (ToolOutcome.LOST, True)
    assert extract_text(third.content) == "seven"

    before = store.load(session_id).messages
    with store.open(session_id) as session:
        records = session.records()
        assert session.messages == before
        assert session.records() == records, "nothing is written before it goes on"
        agent = agent_that(text("I see"))
        session.attach(agent)
        await agent.continue_loop()
    loaded = store.load(session_id)
    assert loaded.messages[:5] == before
    assert loaded.info.problems == ()
    added = [record.entry for record in loaded.records() if isinstance(record.entry, MessageAdded)]
    assert [(entry.source, entry.call) for entry in added] == [
        ("prompt", None),
        ("reply", None),
        ("result", 2),
        ("result", 0),
        ("result", 1),
        ("reply", None),
    ]


async def test_a_start_belongs_to_the_reply_before_it(store: SessionStore) -> None:
    """Ids may recur: what started long ago says nothing about the call that has the same id now."""
    one = AssistantMessage([ToolCall("c", "add", {"a": 1, "b": 1})])
    session_id = crashed(
        store,
        MessageAdded(UserMessage("go"), "prompt"),
        MessageAdded(one, "reply"),
        ToolStarted(0, "c", "add"),
        MessageAdded(ToolResultMessage("c", "2"), "result", 0),
        MessageAdded(one, "reply"),
    )
    assert extract_text(store.load(session_id).messages[-1].content).startswith("never ran")  # type: ignore[union-attr]


def test_looking_too_early_does_not_settle_what_is_open(store: SessionStore) -> None:
    with store.create() as session:
        session.log.record(MessageAdded(AssistantMessage([ToolCall("c", "add")]), "reply"))
        assert extract_text(session.messages[1].content).startswith("never ran")  # type: ignore[union-attr]
        session.log.record(ToolStarted(0, "c", "add"))
        assert extract_text(session.messages[1].content).startswith("outcome unknown")  # type: ignore[union-attr]
        session.log.record(MessageAdded(ToolResultMessage("c", "3"), "result", 0))
        assert extract_text(session.messages[1].content) == "3"  # type: ignore[union-attr]


async def test_missing_inner_records_are_recovered_and_recorded_in_their_place(store: SessionStore) -> None:
    """A result that was lost to damage, with more conversation behind it and a compacted context."""
    session_id = crashed(
        store,
        MessageAdded(UserMessage("go"), "prompt"),
        MessageAdded(REPLY, "reply"),
        ToolStarted(0, "c", "add"),
        MessageAdded(ToolResultMessage("d", "seven", tool_name="add"), "result", 2),
        MessageAdded(UserMessage("and?"), "prompt"),
        ContextReplaced((UserMessage("summary"), 2, 4, 5)),
        MessageAdded(AssistantMessage([ToolCall("e", "add"), ToolCall("f", "add")]), "reply"),
        MessageAdded(ToolResultMessage("f", "eight", tool_name="add"), "result", 1),
        ToolStarted(0, "e", "add"),
    )
    before = store.load(session_id)
    kinds = [m.outcome if isinstance(m, ToolResultMessage) else type(m).__name__ for m in before.messages]
    expected = ["lost", "never_ran", "ran"]
    assert kinds == ["UserMessage", "AssistantMessage", *expected, "UserMessage", "AssistantMessage", "lost", "ran"]
    assert before.context is not None
    assert before.context[1:] == before.messages[1:]
    with store.open(session_id) as session:
        agent = agent_that(text("so be it"))
        session.attach(agent)
        assert tuple(agent.messages) == before.messages
        assert session.context == before.context
        await agent.continue_loop()
        assert session.messages == tuple(agent.messages)
    after = store.load(session_id)
    assert after.messages[:-1] == before.messages
    assert after.context is not None
    assert after.context[:-1] == before.context
    assert after.info.problems == ()
    assert any(isinstance(record.entry, HistoryCut) for record in after.records())


def test_results_whose_call_is_lost_are_left_out_and_reported(store: SessionStore) -> None:
    session_id = crashed(
        store,
        MessageAdded(UserMessage("go"), "prompt"),
        MessageAdded(ToolResultMessage("c", "orphan"), "result", 0),
        MessageAdded(AssistantMessage("done"), "reply"),
    )
    loaded = store.load(session_id)
    assert [type(message).__name__ for message in loaded.messages] == ["UserMessage", "AssistantMessage"]
    assert loaded.info.problems == ("record 2 is a result whose call is lost",)
    assert store.list() == [loaded.info]


def test_a_history_given_by_the_application_is_not_a_problem_of_the_file(store: SessionStore) -> None:
    agent = agent_that([call("add", a=1, b=2)], text("3"), messages=[ToolResultMessage("lone", "given so")])
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("1 + 2?")
        del agent.messages[2]  # the call
        agent.messages.append(ToolResultMessage("none", "given so"))
    loaded = store.load(session.id)
    assert loaded.info.problems == session.info.problems == ()
    assert [type(message) for message in loaded.messages] == [UserMessage, AssistantMessage]


def test_a_call_has_one_result(store: SessionStore) -> None:
    reply = AssistantMessage([ToolCall("c", "add")])
    session_id = crashed(
        store,
        MessageAdded(reply, "reply"),
        MessageAdded(ToolResultMessage("c", "first"), "result", 0),
        MessageAdded(ToolResultMessage("c", "second"), "result", 0),
    )
    loaded = store.load(session_id)
    assert [extract_text(m.content) for m in loaded.messages] == ["", "first"]  # type: ignore[union-attr]
    assert loaded.info.problems == ("record 3 is a result whose call is lost",)


def test_a_compaction_of_messages_that_are_lost_falls_back(store: SessionStore) -> None:
    one = MessageAdded(UserMessage("go"), "prompt")
    some = store.load(crashed(store, one, ContextReplaced((UserMessage("made"), 1, 77))))
    assert some.context is not None
    assert [extract_text(message.content) for message in some.context] == ["made", "go"]  # type: ignore[union-attr]
    assert some.info.problems == ("1 of the messages that a compaction kept are lost (record 2)",)
    none = store.load(crashed(store, one, ContextReplaced((77, 78))))
    assert none.context is None


def test_usage_counts_runs_by_their_end_and_what_was_cut_off_by_its_replies(store: SessionStore) -> None:
    from swink_agent import Cost, StopReason, Usage

    def reply(tokens: int) -> MessageAdded:
        return MessageAdded(AssistantMessage("x", usage=Usage(tokens, total=tokens), cost=Cost(total=tokens)), "reply")

    session_id = crashed(
        store,
        RunStarted("a"),
        reply(1),
        RunEnded("a", StopReason.STOP, Usage(5, total=5), Cost(total=5.0)),
        RunStarted("b"),
        reply(10),
        RunStarted("c"),
        reply(100),
    )
    info = store.load(session_id).info
    assert (info.usage.total, info.cost.total) == (115, 115.0)


# -- secrets and odd values ----------------------------------------------------------------------------------


def test_usage_counts_a_compaction_once_in_a_run_that_was_cut_off_and_between_runs(store: SessionStore) -> None:
    def used(total: int) -> dict[str, Any]:
        return {"usage": Usage(total, total=total), "cost": Cost(total=total / 100)}

    def total(session_id: str) -> tuple[int, float]:
        (listed,) = [info for info in store.list() if info.id == session_id]
        loaded = store.load(session_id).info
        assert (listed.usage, listed.cost) == (loaded.usage, loaded.cost)
        return loaded.usage.total, round(loaded.cost.total, 6)

    report = CompactionReport(1, 100, 50, **used(7))
    prompt = [RunStarted("r1"), MessageAdded(UserMessage("hi"), "prompt")]
    compaction = ContextReplaced((UserMessage("a summary"), 2), report)
    reply = MessageAdded(AssistantMessage("yes", **used(10)), "reply")
    ended = RunEnded("r1", StopReason.STOP, **used(20))
    assert total(crashed(store, *prompt, compaction, reply)) == (17, 0.17)
    assert total(crashed(store, *prompt, compaction, reply, RunStarted("r2"))) == (17, 0.17)
    assert total(crashed(store, *prompt, compaction, reply, ended)) == (20, 0.2), "the end of a run has all of it"
    assert total(crashed(store, *prompt, reply, ended, compaction, compaction)) == (34, 0.34)
    later = [RunStarted("r2"), MessageAdded(UserMessage("on"), "prompt"), RunEnded("r2", StopReason.STOP, **used(5))]
    assert total(crashed(store, *prompt, reply, ended, compaction, *later)) == (32, 0.32)


async def test_usage_of_a_compaction_on_demand_is_on_record(store: SessionStore) -> None:
    """Whether it changed something, had nothing to change, or failed: it was paid for."""
    used: dict[str, Any] = {"usage": Usage(100, 10, total=110), "cost": Cost(total=0.25)}
    asked: list[str] = []

    async def ask(messages: Any, overflow: bool) -> Any:
        context = CompactionContext.current()
        if not overflow or context is None:
            return None
        await context.ask("Sum it up.")
        asked.append(context.instructions or "")
        if context.instructions == "fail":
            raise ValueError("no")
        return None if context.instructions == "keep" else messages[-2:]

    agent = Agent(
        "test:model", stream_fn=scripted(*["yes"] * 8, **used), async_transform_context=ask, system_prompt="Be brief."
    )
    with store.create() as session:
        session.attach(agent)
        await agent.prompt("one")
        await agent.prompt("two")
        assert session.info.usage.total == 220
        assert await agent.compact("keep") is None
        assert (session.info.usage.total, session.context) == (330, None)
        assert await agent.compact() is not None
        assert session.info.usage.total == 440
        with pytest.raises(AgentError, match="no"):
            await agent.compact("fail")
        assert (session.info.usage.total, session.info.cost.total) == (550, 1.25)
        assert session.context == tuple(agent.messages)[-2:]
        await agent.prompt("three")
        assert session.info.usage.total == 660
    assert asked == ["keep", "", "fail"]
    assert store.load(session.id).info.usage.total == 660
    (info,) = store.list()
    assert (info.usage.total, info.cost.total) == (660, 1.5)


async def test_no_secret_reaches_the_disk(kind: Kind, tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple-99"
    store = kind.make(tmp_path, sync=True)
    agent = agent_that(
        [call("add", a=1, b=2), text(f"it is {secret}")], text("ok"), redactor=Redactor([secret], environment={})
    )
    with store.create() as session:
        session.attach(agent)
        await agent.prompt(f"my password is {secret}")
        agent.state["key"] = secret
        await agent.prompt("more")
        session.note("x", secret)
        session.rename(f"about {secret}")
    assert secret not in kind.everything(tmp_path).decode(errors="replace")
    assert secret in extract_text(agent.messages[0].content)  # type: ignore[union-attr]
    loaded = store.load(session.id)
    assert len(loaded.messages) == len(agent.messages)
    assert loaded.info.problems == ()


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
async def test_no_secret_of_an_agent_that_never_ran_reaches_the_disk(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool, is_told: bool
) -> None:
    secret = "correct-horse-battery-staple-99"
    monkeypatch.setenv("SOME_API_KEY", secret)
    redactor = Redactor([secret], environment={}) if is_told else None  # else it looks at the environment
    store = kind.make(tmp_path, sync=True)
    session = store.create()
    if not is_new:
        session.attach(agent_that(messages=["earlier"]))
        session.close()
        session = store.open(session.id)
    agent = agent_that(messages=[f"my password is {secret}"], state={"key": secret}, redactor=redactor)
    with session:
        session.attach(agent)
        agent.messages.append(f"again: {secret}")
        session.label(f"where it said {secret}")
        agent.state["more"] = secret
    assert secret not in kind.everything(tmp_path).decode(errors="replace")
    assert store.load(session.id).info.problems == ()


@pytest.mark.parametrize("sync", [True, False])
async def test_a_title_and_metadata_from_before_the_agent_lose_their_secrets_with_it(
    kind: Kind, tmp_path: Path, sync: bool
) -> None:
    secret = "correct-horse-battery-staple-99"
    store = kind.make(tmp_path, sync=sync)
    with store.create(title=f"about {secret}", metadata={"who": "me", "why": [secret]}) as session:
        agent = agent_that(text("ok"), redactor=Redactor([secret], environment={}))
        session.attach(agent)
        assert (await agent.prompt("hi")).error is None
    assert secret not in kind.everything(tmp_path).decode(errors="replace")
    loaded = store.load(session.id)
    assert loaded.info.problems == ()
    assert loaded.info.title.startswith("about [redacted:")
    assert loaded.info.metadata["who"] == "me"
    assert [record.number for record in loaded.records()] == list(range(len(loaded.records())))
    assert store.list() == [loaded.info]


@pytest.mark.parametrize("step", ["empty", "write"])
async def test_a_first_line_that_cannot_be_masked_ends_the_run(tmp_path: Path, step: str) -> None:
    secret = "correct-horse-battery-staple-99"

    class Disk(FileOperations):
        is_full = False

        def empty(self, descriptor: int) -> None:
            if self.is_full and step == "empty":
                raise OSError(28, "full")
            super().empty(descriptor)

        def write(self, descriptor: int, data: bytes) -> int:  # type: ignore[override]
            if self.is_full and step == "write":
                raise OSError(28, "full")
            return os.write(descriptor, data)

    disk = Disk()
    script = scripted("never")
    session = JsonlSessionStore(tmp_path, files=disk).create(title=secret)
    disk.is_full = True
    agent = Agent("test:model", stream_fn=script, redactor=Redactor([secret], environment={}))
    session.attach(agent)
    result = await agent.prompt("hi")
    assert str(session.path) in str(result.error)
    with pytest.raises(SessionError):
        session.close()
    assert script.requests == []


async def test_a_title_holds_no_half_of_a_secret(kind: Kind, tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple-99"
    store = kind.make(tmp_path, sync=True)
    for before in range(40, 81, 5):
        agent = agent_that(text("ok"), redactor=Redactor([secret], environment={}))
        with store.create() as session:
            session.attach(agent)
            await agent.prompt("x" * (before - 1) + f" {secret} " + "long " * 5000)
        assert secret[:6] not in kind.everything(tmp_path).decode(errors="replace")
        (listed,) = [info for info in store.list() if info.id == session.id]
        assert listed == store.load(session.id).info


def test_masking_leaves_what_others_refer_to(store: SessionStore) -> None:
    secret = "correct-horse-battery-staple-99"
    redactor = Redactor([secret], environment={})
    reply = AssistantMessage(
        [Thinking("plain", secret), Thinking(secret, "signed"), Text(secret), ToolCall(secret, "add", {"a": secret})]
    )
    with store.create() as session:
        session.log.record(MessageAdded(reply, "reply"), redactor)
        session.log.record(MessageAdded(ToolResultMessage(secret, secret), "given"), redactor)
    said, result = store.load(session.id).messages
    assert isinstance(said, AssistantMessage)
    assert isinstance(result, ToolResultMessage)
    plain, changed, words, asked = said.content
    assert plain == Thinking("plain", secret), "a signature belongs to its text"
    assert isinstance(changed, Thinking)
    assert changed.signature is None
    assert isinstance(words, Text)
    assert secret not in changed.thinking + words.text
    assert isinstance(asked, ToolCall)
    assert asked.id == result.tool_call_id == secret
    assert secret not in str(asked.arguments) + extract_text(result.content)


async def test_details_that_are_not_json_are_kept_as_text(store: SessionStore) -> None:
    class Odd:
        def __str__(self) -> str:
            return "an odd thing"

    @tool
    async def odd() -> AgentToolResult:
        """Returns what no JSON can hold."""
        details = {"odd": Odd(), (1, 2): [2**70, float("nan"), {3}], "broken": "\udc80"}
        return AgentToolResult("odd", details)

    agent = Agent("test:model", stream_fn=scripted(call("odd"), text("done")), tools=[odd])
    with store.create() as session:
        session.attach(agent)
        assert (await agent.prompt("go")).error is None
    result = store.load(session.id).messages[2]
    assert isinstance(result, ToolResultMessage)
    assert result.details == {"odd": "an odd thing", "(1, 2)": [2**70, None, [3]], "broken": "?"}


async def test_messages_of_unknown_types_keep_their_place(kind: Kind, folder: Path, store: SessionStore) -> None:
    agent = agent_that(text("hi"), messages=[UserMessage("a"), Notice("psst"), UserMessage("b")])
    with store.create() as session:
        session.attach(agent)
    plain = kind.make(folder)
    loaded = plain.load(session.id)
    assert loaded.messages[1] == UnknownMessage({"role": "notice", "text": "psst"})
    assert len(loaded.info.problems) == 1
    with plain.open(session.id) as again:
        other = agent_that(text("hi"))
        again.attach(other)
        await other.prompt("c")
        other.messages = list(reversed(other.messages))[:4]
        other.messages = [UserMessage("new"), *other.messages]
        assert UnknownMessage({"role": "notice", "text": "psst"}) in list(other.messages)
    assert Notice("psst") in store.load(session.id).messages, "who knows the type has it again"


def test_a_type_that_was_not_given_is_a_problem_and_no_damage(kind: Kind, folder: Path, store: SessionStore) -> None:
    with store.create() as session:
        session.log.record(MessageAdded(Notice("psst"), "given"))
        session.log.record(MessageAdded(UserMessage("b"), "given"))
    stranger = kind.make(folder)
    for info in (stranger.load(session.id).info, *stranger.list()):
        assert info.damage == ()
    assert len(stranger.load(session.id).info.problems) == 1
    kind.write(folder, session.id, kind.read(folder, session.id)[:-1] + b"{")
    info = stranger.load(session.id).info
    assert len(info.problems) == 2
    assert info.damage == tuple(problem for problem in info.problems if "cut off" in problem)


# -- the folder ----------------------------------------------------------------------------------------------


def test_files_are_private_and_named_by_time(files: JsonlSessionStore) -> None:
    mask = os.umask(0)
    try:
        with files.create() as first, files.create() as second:
            pass
    finally:
        os.umask(mask)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700
    assert first.path.name == f"{first.id}.jsonl"
    assert sorted([second.id, first.id])[0][:19] <= second.id[:19]
    assert first.id.replace("-", "").isalnum()


def test_the_default_folder_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from swink_agent.app.settings.paths import data_folder

    assert JsonlSessionStore().folder == data_folder() / "sessions"
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path))
    assert JsonlSessionStore().folder == tmp_path / "sessions" == data_folder() / "sessions"
    assert list(tmp_path.iterdir()) == [], "asking makes nothing"


def test_an_id_may_be_shortened_as_long_as_it_is_the_only_one(store: SessionStore) -> None:
    with store.create() as first, store.create() as second:
        pass
    assert store.load(first.id[:-1]).id == first.id
    with pytest.raises(SessionAmbiguous, match=second.id):
        store.load(first.id[:8])
    for wrong in ("nothing", "", "../x", "/etc/passwd", "a/b", ".", "..", f"{first.id}.jsonl", "*", "x\0", "x\ny"):
        for use in (store.load, store.open, store.delete, store.fork):
            with pytest.raises(SessionNotFound):
                use(wrong)


def test_errors_of_sessions_are_the_librarys_own(folder: Path, store: SessionStore) -> None:
    with pytest.raises(AgentError) as caught:
        store.load("nothing")
    assert isinstance(caught.value, SessionError)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_session_has_one_writer(store: SessionStore) -> None:
    with store.create() as session:
        for use in (store.open, store.delete, lambda name: store.rename(name, "x")):
            with pytest.raises(SessionInUse, match=session.id):
                use(session.id)
        assert store.load(session.id).id == session.id
    with store.open(session.id), pytest.raises(SessionInUse):
        store.open(session.id)
    store.rename(session.id, "renamed")
    assert store.load(session.id).info.title == "renamed"
    store.delete(session.id)
    assert store.list() == []
    with pytest.raises(SessionNotFound):
        store.delete(session.id)


HOLDER = """
import sys
import threading
from swink_agent import memory
session = getattr(memory, sys.argv[1])(sys.argv[2]).open(sys.argv[3])
print("mine", flush=True)
sys.stdin.read()
"""


def test_a_session_has_one_writer_in_all_processes(kind: Kind, folder: Path, store: SessionStore) -> None:
    with store.create() as session:
        pass
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind.name, str(folder), session.id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        with pytest.raises(SessionInUse):
            store.open(session.id)
        assert store.load(session.id).messages == ()
        holder.kill()
    store.open(session.id).close()


def test_an_abandoned_session_is_free(store: SessionStore) -> None:
    session = store.create()
    name = session.id
    del session
    with store.open(name) as again:
        assert again.id == name


FORKED = """
import gc, os, sys, threading, warnings
from swink_agent import Agent
from swink_agent import memory
from swink_agent.memory import SessionError, SessionInUse
from swink_agent.testing import scripted

warnings.simplefilter("ignore")
store = getattr(memory, sys.argv[1])(sys.argv[2])
agent = Agent("test:model", stream_fn=scripted("one", "two"))
session = store.create()
session.attach(agent)
agent.prompt_sync("before")
is_held, is_forked = threading.Event(), threading.Event()

def hold():
    with session.log.guard:
        is_held.set()
        is_forked.wait()

for end in ("close", "collect", "exit"):
    for thread in threading.enumerate():
        if thread.name == f"session {session.id}":
            thread.join()  # in the child, it would keep the session alive
    is_held.clear()
    is_forked.clear()
    holding = threading.Thread(target=hold)
    holding.start()
    is_held.wait()  # no thread of the child will ever release this lock
    child = os.fork()
    if child == 0:
        print(agent.prompt_sync("from the child").error, flush=True)
        for use in (lambda: session.label("from the child"), lambda: session.messages, session.records):
            try:
                use()
            except SessionError as error:
                print(error, flush=True)
        if end == "close":
            session.close()
        elif end == "collect":
            del session, agent, use
            gc.collect()
        else:
            sys.exit()
        os._exit(0)
    is_forked.set()
    holding.join()
    os.waitpid(child, 0)
    try:
        store.open(session.id)
    except SessionInUse:
        print("in use", flush=True)
    session.note(end)
    session.log.flush(60)
print(agent.prompt_sync("after").error, len(session.messages), flush=True)
session.close()
loaded = store.load(session.id)
print(loaded.messages == tuple(agent.messages), len(loaded.notes), loaded.info.problems)
"""


@pytest.mark.rows(one_of=10)
def test_a_session_stays_the_parents_however_a_forked_child_ends(kind: Kind, folder: Path, store: SessionStore) -> None:
    folder.mkdir()
    command = [sys.executable, "-c", FORKED, kind.name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (session,) = store.list()
    refusal = f"{kind.place(folder, session.id)} is written by the process that this one was forked from: "
    refusal += "open or create another session here"
    assert done.stdout.splitlines() == [*[*[refusal] * 4, "in use"] * 3, "None 4", "True 3 ()"]
    assert done.stderr == ""


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_lock(store: SessionStore) -> None:
    session = store.create()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        session.close()
        with store.open(session.id) as again:
            assert again.id == session.id
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_folder_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = JsonlSessionStore(tmp_path / "file")
    for use in (store.list, store.create, lambda: store.load("x")):
        with pytest.raises(SessionError, match=str(tmp_path / "file")):
            use()
    assert JsonlSessionStore(tmp_path / "missing").list() == []


def test_other_things_than_files_are_not_sessions(files: JsonlSessionStore) -> None:
    files.create().close()
    (files.folder / "folder.jsonl").mkdir()
    (files.folder / "link.jsonl").symlink_to("nowhere")
    os.mkfifo(files.folder / "pipe.jsonl")
    assert [info.problems for info in files.list()] == [()]
    assert files.search("anything") == []
    for name in ("folder", "link", "pipe"):
        for use in (files.load, files.open, files.delete, files.fork):
            with pytest.raises(SessionNotFound):
                use(name)


async def test_a_run_whose_file_was_deleted_by_hand_ends_with_an_error(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    model = scripted("one", "two")
    agent = Agent("test:model", stream_fn=model)
    session = store.create()
    session.attach(agent)
    assert (await agent.prompt("first")).error is None
    session.path.unlink()
    result = await agent.prompt("second")
    assert result.error is not None
    assert result.error.startswith(f"{session.path} could not be synced: the file was deleted")
    assert len(model.requests) == 1
    with pytest.raises(SessionError, match="deleted"):
        session.close()


def test_a_deleted_session_leaves_nothing_on_the_disk(kind: Kind, folder: Path, store: SessionStore) -> None:
    with store.create() as session:
        agent = agent_that("Yes?")
        session.attach(agent)
        agent.prompt_sync("About the xylophone.")
    assert [hit.position for hit in store.search("xylophone")] == [0]
    store.delete(session.id)
    assert b"xylophone" not in kind.everything(folder)


def test_many_are_deleted_with_one_look_into_the_index(
    kind: Kind, folder: Path, store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str] = []
    for number in range(5):
        with store.create() as session:
            agent = agent_that("Yes?")
            session.attach(agent)
            agent.prompt_sync(f"About the xylophone {number}.")
        ids.append(session.id)
    assert len(store.search("xylophone")) == 5
    kind.write(folder, ids[0], kind.read(folder, ids[0]) + b"xylophone\n")
    store.open(ids[0]).close()
    assert kind.damaged(folder) == [b"xylophone"]
    forgotten: list[tuple[str, ...]] = []

    def noted(index: SessionIndex, *session_ids: str, forget: Any = SessionIndex.forget) -> None:
        forgotten.append(session_ids)
        forget(index, *session_ids)

    monkeypatch.setattr(SessionIndex, "forget", noted)
    used = store.open(ids[4])
    kept = store.delete_all([*ids, ids[0], "nope"])
    assert {session_id: type(problem) for session_id, problem in kept.items()} == {
        ids[4]: SessionInUse,
        ids[0]: SessionNotFound,
        "nope": SessionNotFound,
    }
    assert forgotten == [tuple(ids[:4])]
    used.close()
    assert [info.id for info in store.list()] == [ids[4]]
    assert [hit.session.id for hit in store.search("xylophone")] == [ids[4]]
    assert kind.damaged(folder) == []
    assert store.delete_all([]) == {}


def test_a_search_looks_at_the_folder_once_however_many_sessions_there_are(
    files: JsonlSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        files.create().close()
    looks = 0

    def counted(folder: Any, look: Any = os.scandir) -> Any:
        nonlocal looks
        looks += folder == files.folder  # other threads of this process look at folders of their own
        return look(folder)

    monkeypatch.setattr(os, "scandir", counted)
    assert files.search("anything") == []
    assert looks == 1


def test_the_list_is_newest_first_and_can_be_of_one_folder(
    kind: Kind, folder: Path, store: SessionStore, tmp_path: Path
) -> None:
    assert store.list() == []
    assert store.latest() is None
    made: list[str] = []
    for number in range(4):
        with store.create(cwd=tmp_path / ("a" if number % 2 else "b")) as session:
            asyncio.run(asyncio.sleep(0.002))
            session.note("x")
        made.append(session.id)
    assert [info.id for info in store.list()] == made[::-1]
    assert [info.id for info in store.list(limit=2)] == [made[3], made[2]]
    assert [info.id for info in store.list(cwd=str(tmp_path / "a"))] == [made[3], made[1]]
    latest = store.latest(cwd=tmp_path / "b")
    assert latest is not None
    assert latest.id == made[2]
    assert store.latest(cwd=tmp_path / "c") is None
    asyncio.run(asyncio.sleep(0.002))
    store.rename(made[0], "not used by that")
    assert [info.id for info in store.list()] == made[::-1]
    assert store.load(made[0]).info.updated == store.list()[-1].updated
    with store.open(made[0]) as session:
        session.note("used")
    assert store.list()[0].id == made[0]
    kind.write(folder, "notes", b"no session\n")
    (folder / f"{made[0]}.damaged-1").write_text("x")
    assert len(store.list()) == 4


def test_looking_changes_nothing(recorded: RecordedFn) -> None:
    path = recorded()
    store = JsonlSessionStore(path.parent)
    store.list()  # makes the index
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent)))
    store.load(path.stem).records()
    store.list()
    store.open(path.stem).close()
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


# -- forks ---------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_the_messages_of_another(store: SessionStore) -> None:
    source = record(store).id
    whole = store.load(source)
    before = whole.records()
    for at in [*range(len(whole.messages) + 1), None]:
        with store.fork(source, at) as fork:
            assert fork.info.parent == whole.id
            assert fork.info.title == "A talk"
            kept = len(whole.messages) if at is None else at
            assert fork.messages[:kept] == whole.messages[:kept]
            for extra in fork.messages[kept:]:
                assert isinstance(extra, ToolResultMessage)
                assert extra.outcome == ToolOutcome.LOST, "it ran there, whatever became of it"
                said = extract_text(extra.content)
                assert said.startswith("outcome unknown: ")
                assert "forked before its result" in said
                assert "never recorded" not in said, "it was, there"
            agent = agent_that(text("another way"))
            fork.attach(agent)
            assert agent.prompt_sync("and now?").error is None
        assert store.load(fork.id).messages == tuple(agent.messages)
        assert store.load(fork.id).info.problems == ()
    whole_fork = store.fork(source)
    assert whole_fork.context == whole.context
    assert whole_fork.state == whole.state
    assert whole_fork.info.model == whole.info.model
    assert whole_fork.labels == whole.labels
    whole_fork.close()
    for wrong in (-1, len(whole.messages) + 1, True):
        with pytest.raises(ValueError, match="messages"):
            store.fork(source, wrong)
    assert store.load(source).records() == before


async def test_a_label_goes_with_the_place_that_it_names(store: SessionStore) -> None:
    agent = agent_that(*["yes"] * 6)
    with store.create() as session:
        session.attach(agent)
        for number in range(3):
            await agent.prompt(f"question {number}")
            session.label(f"after {number}")
        agent.messages = list(agent.messages)[:4]
        assert [label.text for label in session.labels] == ["after 0", "after 1"]
        await agent.prompt("another way")
        session.label("after another way")
        agent.messages = [*list(agent.messages)[:2], UserMessage("given")]
    loaded = store.load(session.id)
    assert [(label.text, label.position) for label in loaded.labels] == [("after 0", 2)]


def test_a_label_stays_where_a_history_is_only_answered(store: SessionStore) -> None:
    """As when a session goes on after damage: what was recovered within its history is recorded then."""
    calls = AssistantMessage([ToolCall("c", "add", {"a": 1, "b": 2})])
    entries = [MessageAdded(UserMessage("go"), "prompt"), MessageAdded(calls, "reply")]
    more = [MessageAdded(UserMessage("go on"), "prompt"), LabelAdded("here", 4)]
    session_id = crashed(store, *entries, *more)
    with store.open(session_id) as session:
        session.attach(agent_that())
    labels = store.load(session_id).labels
    assert [(label.text, label.position) for label in labels] == [("here", 4)]


@pytest.mark.parametrize("answered", [None, 1])
def test_a_fork_tells_the_model_of_unanswered_calls_what_its_history_tells(
    store: SessionStore, answered: int | None
) -> None:
    """Also where a compaction stands between the two: a call that had started is never one that never ran."""
    calls = [ToolCall(f"c{number}", "add", {"a": 1, "b": number}) for number in range(3)]
    entries: list[Any] = [
        MessageAdded(UserMessage("old"), "prompt"),
        MessageAdded(AssistantMessage("older"), "reply"),
        MessageAdded(UserMessage("go"), "prompt"),
        ContextReplaced((UserMessage("a summary"), 3)),
        MessageAdded(AssistantMessage(calls), "reply"),
        ToolStarted(0, "c0", "add"),
        ToolStarted(1, "c1", "add"),
    ]
    if answered is not None:
        entries.append(MessageAdded(ToolResultMessage("c1", "2", tool_name="add"), "result", answered))
    session_id = crashed(store, *entries)
    for at in [*range(4, 8), None]:
        with store.fork(session_id, at) as fork:
            assert fork.context is not None
            assert fork.context[-4:] == fork.messages[-4:]
            agent = agent_that("done")
            fork.attach(agent)
        with store.fork(fork.id) as again:
            assert again.context is not None
            assert again.context[-4:] == fork.messages[-4:]
        outcomes = [message.outcome for message in fork.messages if isinstance(message, ToolResultMessage)]
        is_answered = answered is not None and (at is None or at > 5)
        second = ToolOutcome.RAN if is_answered else ToolOutcome.LOST
        assert outcomes == [ToolOutcome.LOST, second, ToolOutcome.NEVER_RAN]


def test_a_fork_of_a_history_that_was_changed_has_no_context_from_before(store: SessionStore) -> None:
    def last_two(messages: Any, overflow: bool) -> Any:
        return [UserMessage("what was before"), *messages[-2:]] if overflow else None

    agent = agent_that(text("one"), text("two"), transform_context=last_two)
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
        asyncio.run(agent.compact())
        agent.prompt_sync("second")
        assert session.context is not None
        agent.messages = agent.messages[-2:]
        assert session.context is None
    for at in range(3):
        with store.fork(session.id, at) as fork:
            assert fork.context is None
            assert fork.messages == session.messages[:at]
            assert fork.info.model == session.info.model


def test_a_fork_has_the_state_of_its_moment(store: SessionStore) -> None:
    source = record(store).id
    with store.fork(source, 1) as early, store.fork(source, 5) as later:
        assert early.state == {}
        assert later.state == {"looked": "a"}
        assert early.labels == ()


# -- as documents --------------------------------------------------------------------------------------------


async def test_a_session_is_exported_with_its_labels_and_notes_in_their_places(store: SessionStore) -> None:
    agent = agent_that(text("Oslo."), text("Stockholm."))
    with store.create(title="Capitals") as session:
        session.attach(agent)
        await agent.prompt("Norway?")
        session.note("rating", {"stars": 5})
        await agent.prompt("Sweden?")
        session.label("the end")
    document = json.loads(store.export(session.id, "json"))
    assert document["info"]["title"] == "Capitals"
    assert len(document["messages"]) == 4
    assert document["labels"] == [{"text": "the end", "at": 4}]
    assert document["notes"] == [{"kind": "rating", "data": {"stars": 5}, "at": 2}]
    assert "Stockholm." in store.export(session.id, "markdown")
    assert "<html" in await AsyncSessionStore(store).export(session.id, "html")
    with pytest.raises(ValueError, match="markdown, html, json"):
        store.export(session.id, "pdf")  # type: ignore[arg-type]


# -- as coroutines -------------------------------------------------------------------------------------------


async def test_a_session_is_closed_without_holding_up_the_event_loop(tmp_path: Path) -> None:
    has_begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(FileOperations):
        def sync(self, descriptor: int) -> None:
            loop.call_soon_threadsafe(has_begun.set)
            assert may_end.wait(20)
            super().sync(descriptor)

    async def let_it_end() -> None:
        await has_begun.wait()
        may_end.set()  # only a loop that goes on comes here

    store = JsonlSessionStore(tmp_path)
    session_id = store.create().id
    letting = asyncio.create_task(let_it_end())
    async with JsonlSessionStore(tmp_path, files=Slow()).open(session_id) as session:
        session.note("x", 1)
    await letting
    assert len(store.load(session_id).notes) == 1
    await session.aclose()
    store.open(session_id).close()


async def test_an_asynchronous_block_shows_what_went_wrong_first(tmp_path: Path) -> None:
    class Full(FileOperations):
        def write(self, descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    store = JsonlSessionStore(tmp_path)
    session_id = store.create().id

    async def use(raised: Exception | None) -> None:
        async with JsonlSessionStore(tmp_path, files=Full()).open(session_id) as session:
            session.note("x")
            if raised is not None:
                raise raised

    for raised, expected in ((KeyError("first"), KeyError), (None, SessionError)):
        with pytest.raises(expected):
            await use(raised)
    assert store.load(session_id).notes == ()


async def test_the_same_as_coroutines(kind: Kind, tmp_path: Path) -> None:
    store = AsyncSessionStore(kind.make(tmp_path, sync=True))
    with await store.create(title="x") as session:
        session.attach(agent_that())
    with await store.open(session.id):
        pass
    await store.rename(session.id, "y")
    assert (await store.load(session.id)).info.title == "y"
    with await store.fork(session.id) as fork:
        pass
    assert {info.id for info in await store.list()} == {session.id, fork.id}
    latest = await store.latest()
    assert latest is not None
    await store.delete(fork.id)
    await store.delete(session.id)
    assert await store.list() == []


async def test_state_that_is_not_json_is_refused_before_anything_is_recorded(store: SessionStore) -> None:
    agent = agent_that(text("a"))
    agent.state["odd"] = object()
    with store.create() as session:
        with pytest.raises(SessionError, match="not all of it is JSON"):
            session.attach(agent)
        assert agent.journal is None
        assert len(session.records()) == 1
        del agent.state["odd"]
        session.attach(agent)
        agent.state["odd"] = object()
        result = await agent.prompt("hello")
        assert "not all of it is JSON" in (result.error or "")
    store.open(session.id).close()


@pytest.mark.parametrize(
    "odd",
    [float("nan"), [float("inf")], b"bytes", {1: "a number as a key"}, {"when": datetime(2026, 1, 1)}, {"a", "b"}],
    ids=["nan", "infinite", "bytes", "key", "time", "set"],
)
async def test_state_that_would_come_back_as_something_else_is_refused(store: SessionStore, odd: Any) -> None:
    """An encoder makes null, text or a list of it, and the agent that goes on would not know what it was."""
    agent = agent_that(text("a"), text("b"))
    agent.state["odd"] = odd
    with store.create() as session:
        with pytest.raises(SessionError, match="not all of it is JSON"):
            session.attach(agent)
        agent.state["odd"] = ("a tuple", ["is", (1, 2.5)], {"a": "list"})
        session.attach(agent)
        assert (await agent.prompt("hello")).error is None
        agent.state["odd"] = odd
        assert "not all of it is JSON" in ((await agent.prompt("again")).error or "")
    assert store.load(session.id).state == {"odd": ["a tuple", ["is", [1, 2.5]], {"a": "list"}]}


def test_continuing_a_session_reports_which_state_was_masked(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"page": {"next_page_token": "CAESBgjA9f2zXk81"}, "count": 3}
    with store.create() as session:
        session.attach(agent_that(text("hi"), state=state))
        session.detach()
        session.attach(agent_that(text("hi")))  # here it is as it was
    assert caplog.messages == []
    agent = agent_that(text("hi"))
    with store.open(session.id) as session:
        session.attach(agent)
    assert agent.state["page"]["next_page_token"].startswith("[redacted:next_page_token:")
    assert caplog.messages == [
        f"the state of session {session.id} was masked on its way to disk, and holds placeholders: page"
    ]


async def test_state_is_recorded_as_it_changes(store: SessionStore) -> None:
    agent = agent_that(text("a"), text("b"))
    with store.create() as session:
        session.attach(agent)
        agent.state["n"] = 1
        await agent.prompt("x")
        assert session.state == {"n": 1}
        session.state["n"] = 5
        assert session.state == {"n": 1}, "what was handed out is a copy"
        await agent.prompt("y")
    states = [r.entry for r in store.load(session.id).records() if isinstance(r.entry, StateChanged)]
    assert states == [StateChanged({"n": 1})]


def test_a_folder_in_the_home_of_nobody_is_an_error_of_sessions() -> None:
    with pytest.raises(SessionError, match="~nobody-of-this-name/x cannot be a folder for sessions: there is no user"):
        JsonlSessionStore("~nobody-of-this-name/x")
