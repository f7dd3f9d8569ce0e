"""A list reads the logs that changed, and shows the same as a full reading."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Agent, AssistantMessage, Cost, CustomMessage, StopReason, ToolCall, Usage, UserMessage
from swink_agent.core.journal import MessageAdded, RunEnded, RunStarted
from swink_agent.memory import JsonlSessionStore, SessionStore
from swink_agent.memory.log.records import SessionStarted, encode_line
from swink_agent.memory.sessions import listing
from swink_agent.testing import scripted, text

from .kinds import Files, Kind


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> SessionStore:
    return kind.make(tmp_path)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many files were read whole since it was asked last."""
    read = listing.read_contents
    seen: list[Any] = []

    def counting(*arguments: Any) -> Any:
        seen.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(listing, "read_contents", counting)

    def count() -> int:
        number = len(seen)
        seen.clear()
        return number

    return count


def long_session(store: SessionStore, messages: int = 300) -> str:
    agent = Agent("test:model", stream_fn=scripted(*[text("word " * 50)] * messages))
    with store.create() as session:
        session.attach(agent)

        async def talk() -> None:
            for number in range(messages // 2):
                await agent.prompt(f"question {number}")

        asyncio.run(talk())
    return session.id


def test_a_list_reads_only_logs_that_changed(store: SessionStore, counted: Callable[[], int]) -> None:
    names = [long_session(store, 4) for _ in range(3)]
    assert {info.id for info in store.list()} == {*names}
    assert counted() == 3
    assert store.list() == sorted([store.load(name).info for name in names], key=lambda info: -info.updated)
    assert counted() == 0
    store.rename(names[0], "another title")
    assert {info.title for info in store.list() if info.id == names[0]} == {"another title"}
    assert counted() == 1
    store.delete(names[1])
    assert {info.id for info in store.list()} == {names[0], names[2]}
    assert counted() == 0


def test_a_session_in_use_is_listed_as_it_is_now(store: SessionStore) -> None:
    name = long_session(store, 30)
    with store.open(name) as session:
        agent = Agent("test:model", stream_fn=scripted(text("x")))
        session.attach(agent)
        for message in (
            UserMessage("more"),
            AssistantMessage([ToolCall("a", "t"), ToolCall("b", "t")]),
        ):
            session.log.record(MessageAdded(message, "reply"))
            assert store.list() == [store.load(name).info]
        assert store.list()[0].messages == 34, "calls without results are answered, in a list too"
        agent.messages = list(agent.messages)[:10]
        assert store.list() == [store.load(name).info]


def test_a_list_without_a_usable_index_reads_all_logs(
    kind: Kind, tmp_path: Path, store: SessionStore, counted: Callable[[], int]
) -> None:
    name = long_session(store, 4)
    index = tmp_path / ("search-index.sqlite3" if kind.name == "JsonlSessionStore" else "sessions-search-index.sqlite3")
    index.mkdir()
    for _ in range(2):
        assert store.list() == [store.load(name).info]
    assert counted() == 2
    index.rmdir()
    index.write_bytes(b"damage" * 1_000)
    for _ in range(2):
        assert store.list() == [store.load(name).info]
    assert counted() == 1, "a damaged index is made anew"


def test_stores_with_other_types_of_messages_describe_a_log_apart(kind: Kind, tmp_path: Path) -> None:
    class Notice(CustomMessage, tag="notice"):
        text: str

    informed, plain = kind.make(tmp_path, [Notice]), kind.make(tmp_path)
    with informed.create() as session:
        session.attach(Agent("test:model", stream_fn=scripted("x"), messages=[Notice("hello")]))
    for _ in range(2):
        assert [info.problems for info in informed.list()] == [()]
        assert ["'notice'" in info.problems[0] for info in plain.list()] == [True]


def test_a_file_that_is_not_a_session_is_read_once(tmp_path: Path, counted: Callable[[], int]) -> None:
    store = JsonlSessionStore(tmp_path)
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n')
    assert [store.list(), store.list()] == [[], []]
    assert counted() == 1


def test_usage_of_replies_counts_once_when_their_run_ends(kind: Kind, tmp_path: Path, store: SessionStore) -> None:
    """What its replies used is counted until its end says what all of it used."""
    with store.create() as session:
        session.log.record(RunStarted("a"))
        for number in range(3):
            used = AssistantMessage("word", usage=Usage(1, total=1), cost=Cost(total=0.5))
            session.log.record(MessageAdded(used, "reply"))
            assert store.list()[0].usage.total == number + 1
        session.log.record(RunEnded("a", StopReason.STOP, Usage(20, total=20), Cost(total=9.0)))
    assert (store.list()[0].usage.total, store.list()[0].cost.total) == (20, 9.0)


def test_damage_at_the_end_is_in_the_list(kind: Kind, tmp_path: Path, store: SessionStore) -> None:
    name = long_session(store)
    kind.write(tmp_path, name, kind.read(tmp_path, name) + b'{"seq":9999,"at"')
    info = store.list()[0]
    assert info.messages == 300
    assert len(info.problems) == 1
    assert "cut off" in info.problems[0]


def written(kind: Kind, folder: Path, name: str, at: int, mtime: int, cwd: str = "/a") -> None:
    """A session that was used at `at`, in a log that was written at `mtime`."""
    start = SessionStarted(id=name, created=at, cwd=cwd)
    lines = encode_line(0, at, start) + encode_line(1, at, MessageAdded(UserMessage("hello"), "prompt"))
    kind.write(folder, name, lines, mtime)


def test_a_short_list_reads_few_logs(
    kind: Kind, tmp_path: Path, store: SessionStore, counted: Callable[[], int]
) -> None:
    for number in range(50):
        written(kind, tmp_path, f"s{number:03}", at := 1_700_000_000_000 + number * 60_000, at + 5)
    assert [info.id for info in store.list(limit=3)] == ["s049", "s048", "s047"]
    assert counted() <= 4
    latest = store.latest()
    assert latest is not None
    assert latest.id == "s049"
    assert store.list(limit=0) == []
    assert counted() == 0
    written(kind, tmp_path, "s005", 1_700_000_000_000 + 5 * 60_000, 1_800_000_000_000)  # a copy is newer than it says
    assert [info.id for info in store.list(limit=3)] == ["s049", "s048", "s047"]
    assert counted() <= 2


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 40), st.sampled_from(["/a", "/b"])), max_size=12),
    st.integers(0, 6),
)
def test_a_short_list_is_the_beginning_of_the_long_one(sessions: list[tuple[int, int, str]], limit: int) -> None:
    """However much later than its last record each file was written."""
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder, sync=False)
        for number, (used, later, cwd) in enumerate(sessions):
            at = 1_700_000_000_000 + used * 1_000
            written(Files(), store.folder, f"s{number}", at, at + later * 900, cwd)
        for cwd in (None, "/a", "/b"):
            assert store.list(cwd, limit) == store.list(cwd)[:limit]
            assert store.latest(cwd) == next(iter(store.list(cwd)), None)


def test_the_title_is_not_the_output_of_a_command(store: SessionStore) -> None:
    with store.create() as session:
        session.log.record(MessageAdded(UserMessage("<user_shell_command>", origin="shell"), "prompt"))
        session.log.record(MessageAdded(UserMessage("How many files?"), "prompt"))
        session.log.record(MessageAdded(UserMessage("And now?"), "prompt"))
    assert [info.title for info in store.list()] == ["How many files?"]
    assert store.load(session.id).info.title == "How many files?"
