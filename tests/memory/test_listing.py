"""A list reads the beginning and the end of each file, and gives the same as a full reading."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Agent, AssistantMessage, Cost, StopReason, ToolCall, Usage, UserMessage, tool
from swink_agent.core.journal import MessageAdded, RunEnded, RunStarted
from swink_agent.memory import JsonlSessionStore, SessionStore
from swink_agent.memory.log.records import SessionStarted, Summary, encode_line
from swink_agent.memory.sessions import listing
from swink_agent.testing import call, scripted, text

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


def test_a_list_reads_no_long_log_whole(
    kind: Kind, tmp_path: Path, store: SessionStore, counted: Callable[[], int]
) -> None:
    name = long_session(store)
    assert len(kind.read(tmp_path, name)) > 100_000
    assert store.list() == [store.load(name).info]
    assert counted() == 0
    store.rename(name, "another title")
    assert store.list()[0].title == "another title"
    assert counted() == 0


def test_a_session_in_use_is_listed_as_it_is_now(store: SessionStore, counted: Callable[[], int]) -> None:
    name = long_session(store)
    with store.open(name) as session:
        agent = Agent("test:model", stream_fn=scripted(text("x")))
        session.attach(agent)
        for message in (
            UserMessage("more"),
            AssistantMessage([ToolCall("a", "t"), ToolCall("b", "t")]),
        ):
            session.log.record(MessageAdded(message, "reply"))
            assert store.list() == [store.load(name).info]
        assert store.list()[0].messages == 304, "calls without results are answered, in a list too"
        assert counted() == 0
        agent.messages = list(agent.messages)[:10]
        assert store.list() == [store.load(name).info]
        assert counted() == 1, "a change of the history is read in full"


async def test_a_long_run_has_summaries_on_its_way(kind: Kind, tmp_path: Path, store: SessionStore) -> None:
    @tool
    async def much() -> str:
        """Says much."""
        return "much " * 5_000

    agent = Agent("test:model", stream_fn=scripted(*[[call("much"), call("much")]] * 8, text("enough")), tools=[much])
    with store.create() as session:
        session.attach(agent)
        await agent.prompt("go")
    records = store.load(session.id).records()
    summaries = [position for position, record in enumerate(records) if isinstance(record.entry, Summary)]
    assert 3 <= len(summaries) <= 10
    lines = kind.read(tmp_path, session.id).splitlines(keepends=True)
    for end in range(2, len(lines)):
        kind.write(tmp_path, session.id, b"".join(lines[:end]))
        assert store.list() == [store.load(session.id).info]


def test_a_run_that_goes_on_counts_once(kind: Kind, tmp_path: Path, store: SessionStore) -> None:
    """What its replies used is counted until its end says what all of it used."""
    with store.create() as session:
        session.log.record(RunStarted("a"))
        for number in range(8):
            used = AssistantMessage("word " * 12_000, usage=Usage(1, total=1), cost=Cost(total=0.5))
            session.log.record(MessageAdded(used, "reply"))
            assert store.list() == [store.load(session.id).info]
            assert store.list()[0].usage.total == number + 1
        session.log.record(RunEnded("a", StopReason.STOP, Usage(20, total=20), Cost(total=9.0)))
        data = kind.read(tmp_path, session.id)
    assert data.count(b'"type":"summary"') == 2, "one on the way, one at its end"
    kind.write(tmp_path, session.id, data[: data.rindex(b'{"seq"')])
    assert store.list() == [store.load(session.id).info]
    assert (store.list()[0].usage.total, store.list()[0].cost.total) == (20, 9.0)


def test_text_that_looks_like_a_summary_is_none(
    kind: Kind, tmp_path: Path, store: SessionStore, counted: Callable[[], int]
) -> None:
    name = long_session(store)
    with store.open(name) as session:
        session.note(
            "trap", {"seq": 1, "at": 1, "type": "summary", "messages": 7, "x": 'a\n{"seq":1,"at":1,"type":"summary",'}
        )
    data = kind.read(tmp_path, name)
    kind.write(tmp_path, name, data[: data.rindex(b'{"seq"')])
    assert store.list() == [store.load(name).info]
    assert counted() == 0


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


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions of which a list has read anything."""
    paths: list[str] = []
    read = listing.info_from_log

    def counting(reader: Any, storage: Any, session_id: str, *arguments: Any) -> Any:
        paths.append(session_id)
        return read(reader, storage, session_id, *arguments)

    monkeypatch.setattr("swink_agent.memory.sessions.store.info_from_log", counting)
    return paths


def test_a_short_list_reads_few_logs(kind: Kind, tmp_path: Path, store: SessionStore, opened: list[str]) -> None:
    for number in range(200):
        written(kind, tmp_path, f"s{number:03}", at := 1_700_000_000_000 + number * 60_000, at + 5)
    assert [info.id for info in store.list(limit=3)] == ["s199", "s198", "s197"]
    assert len(opened) <= 4
    opened.clear()
    latest = store.latest()
    assert latest is not None
    assert (latest.id, len(opened)) == ("s199", 1)
    opened.clear()
    assert store.list(limit=0) == []
    assert opened == []
    written(kind, tmp_path, "s005", 1_700_000_000_000 + 5 * 60_000, 1_800_000_000_000)  # a copy is newer than it says
    assert [info.id for info in store.list(limit=3)] == ["s199", "s198", "s197"]


@pytest.mark.parametrize("later", [0, 60_000, -1_000])
def test_a_short_list_of_copies_reads_few_logs(
    kind: Kind, tmp_path: Path, store: SessionStore, opened: list[str], later: int
) -> None:
    """Copies were all written after their last use, perhaps in the opposite order."""
    for number in range(100):
        at = 1_700_000_000_000 + number * 60_000
        written(kind, tmp_path, f"s{number:03}", at, 1_750_000_000_000 + number * later, cwd=f"/{number % 2}")
    assert [info.id for info in store.list(limit=3)] == ["s099", "s098", "s097"]
    assert len(opened) <= 2 * 3
    opened.clear()
    assert [info.id for info in store.list("/0", 2)] == ["s098", "s096"]
    assert len(opened) <= 4 * 2


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3, st.sampled_from([1, 20_000])), min_size=2, max_size=5))
def test_a_short_list_of_copies_has_the_sessions_that_were_used_last(logs: list[tuple[int, int, int, int]]) -> None:
    """However long their logs are, and if the clock was set back between records."""
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder, sync=False)
        for number, (first, second, third, size) in enumerate(logs):
            times = [1_700_000_000_000 + seconds * 1_000 for seconds in (first, second, third)]
            lines = encode_line(0, times[0], SessionStarted(id=f"s{number}", created=times[0], cwd="/a"))
            lines += encode_line(1, times[1], MessageAdded(UserMessage("x" * size), "prompt"))
            lines += encode_line(2, times[2], Summary(messages=1, first="x", first_number=1, updated=max(times[:2])))
            lines += encode_line(3, times[2], MessageAdded(UserMessage("y"), "prompt"))
            Files().write(store.folder, f"s{number}", lines, 1_750_000_000_000)
        whole = store.list()
        for limit in range(1, 3):
            assert store.list(limit=limit) == whole[:limit]


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
