"""Replay and search of stored sessions: on disk, cut off anywhere, continued, forked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, CustomMessage, Inject, PolicyContext, ToolContext, UserMessage, tool
from swink_agent.memory import JsonlSessionStore, SessionIndex, replay
from swink_agent.testing import assert_replays, call, scripted, text, think

from .kinds import Kind


class Notice(CustomMessage, tag="notice"):
    words: str


@tool
async def look(ctx: ToolContext, where: str) -> str:
    """Looks somewhere."""
    ctx.state["looked"] = where
    return f"seen {where}"


class Reminder:
    """Reminds the agent once of what it has not said yet."""

    def post_loop(self, ctx: PolicyContext) -> Inject | None:
        said = any(message == UserMessage("say goodbye", message.timestamp) for message in _users(ctx))
        return None if said else Inject([UserMessage("say goodbye")])


def _users(ctx: PolicyContext) -> list[UserMessage]:
    return [message for message in ctx.messages if isinstance(message, UserMessage)]


REPLIES = (
    [think("hm", signature="s"), text("I look."), call("look", where="a"), call("look", where="b")],
    text("Both."),
    text("Goodbye."),
    call("look", where="c"),
    call("look"),
    text("There."),
    text("Then."),
)


def make(stream_fn: Any, wrap_tool: Any) -> Agent:
    return Agent("test:model", stream_fn=stream_fn, tools=[wrap_tool(look)], policies=[Reminder()])


def folder_store(folder: Path) -> Any:
    return JsonlSessionStore(folder, [Notice], sync=False)


async def recorded(store: Any) -> Path:
    agent = Agent("test:model", stream_fn=scripted(*REPLIES), tools=[look], policies=[Reminder()])
    with store.create(title="A talk") as session:
        session.attach(agent)
        await agent.prompt(["What is there?", Notice("by the way")])
        agent.follow_up("And then?")
        await agent.prompt("Look again")
        session.note("mood", {"good": True})
    return session.path


async def test_a_session_of_either_kind_of_store_replays(kind: Kind, tmp_path: Path) -> None:
    store = kind.make(tmp_path, [Notice])
    await recorded(store)
    (info,) = store.list()
    report = await replay(store.load(info.id), make)
    assert report.divergence is None, str(report)
    assert len(store.load(info.id).runs()) == report.runs > 0


async def test_a_file_replays_in_one_line(tmp_path: Path) -> None:
    path = await recorded(folder_store(tmp_path))
    report = await assert_replays(path, make, types=[Notice])
    assert (report.messages, report.runs) == (16, 2)
    assert (await assert_replays(str(path), make)).divergence is None  # custom messages keep their places
    with pytest.raises(AssertionError, match="the run ended, and more was recorded"):
        await assert_replays(path, lambda stream_fn, _: Agent("test:model", stream_fn=stream_fn, tools=[look]))


@pytest.mark.parametrize("name", ["monday.txt", "bug #7, the ünlikely one.jsonl", ".hidden", "v1.2.jsonl"])
async def test_a_recording_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = await recorded(folder_store(tmp_path / "sessions"))
    (tmp_path / "monday.jsonl").write_text("another file\n")
    kept = path.rename(tmp_path / name)
    assert (await assert_replays(kept, make, types=[Notice])).messages == 16


async def test_a_session_replays_while_it_is_written(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    agent = Agent("test:model", stream_fn=scripted(*REPLIES), tools=[look], policies=[Reminder()])
    with store.create() as session:
        session.attach(agent)
        await agent.prompt("What is there?")
        for one in (session, store.load(session.id)):
            report = await replay(one, make)
            assert report.divergence is None, str(report)
            assert report.messages == 7


async def test_a_file_that_was_cut_off_replays_and_so_does_what_went_on_from_it(tmp_path: Path) -> None:
    source = await recorded(folder_store(tmp_path / "whole"))
    lines = source.read_bytes().splitlines(keepends=True)
    store = folder_store(tmp_path / "cut")
    store.folder.mkdir()
    for count in range(1, len(lines) + 1):
        path = store.folder / source.name
        path.write_bytes(b"".join(lines[:count]))
        report = await replay(store.load(path.stem), make)
        assert report.divergence is None, f"{count} lines: {report}"
        with store.open(path.stem) as session:
            agent = Agent("test:model", stream_fn=scripted(text("I am back"), text("Bye")), policies=[Reminder()])
            session.attach(agent)
            await agent.prompt("go on")
            messages = list(agent.messages)
        loaded = store.load(path.stem)
        report = await replay(loaded, make)
        assert report.divergence is None, f"{count} lines and more: {report}"
        assert report.messages == len(messages) == len(loaded.messages)


async def test_a_file_with_any_line_gone_neither_breaks_nor_hangs_a_replay(tmp_path: Path) -> None:
    source = await recorded(folder_store(tmp_path / "whole"))
    lines = source.read_bytes().splitlines(keepends=True)
    store = folder_store(tmp_path / "cut")
    store.folder.mkdir()
    for gone in range(len(lines)):
        (store.folder / source.name).write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
        report = await replay(store.load(source.stem), make, patience=5)
        assert report.divergence is not None or report.messages == report.total, f"without {gone}: {report}"


async def test_a_fork_replays_from_wherever_it_began(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    path = await recorded(store)
    for at in range(17):
        with store.fork(path.stem, at) as fork:
            agent = Agent("test:model", stream_fn=scripted(text("here"), text("bye")), policies=[Reminder()])
            fork.attach(agent)
            await agent.prompt("from here")
        report = await replay(store.load(fork.id), make)
        assert report.divergence is None, f"at {at}: {report}"


class Counter:
    """Says before each turn how many messages there are."""

    def pre_turn(self, ctx: PolicyContext) -> Inject:
        return Inject([UserMessage(f"{len(ctx.messages)} messages")])


def make_counting(stream_fn: Any, wrap_tool: Any) -> Agent:
    return Agent("test:model", stream_fn=stream_fn, tools=[wrap_tool(look)], policies=[Counter()])


async def test_policies_of_a_fork_see_the_results_that_it_was_given(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    path = await recorded(store)
    for at in range(2, 5):  # its first reply has two calls
        with store.fork(path.stem, at) as fork:
            agent = make_counting(scripted("So."), lambda tool: tool)
            fork.attach(agent)
            await agent.prompt("Go on")
        report = await replay(store.load(fork.id), make_counting, patience=5)
        assert report.divergence is None, f"forked at {at}: {report}"
        assert report.total == len(store.load(fork.id).messages)


async def test_policies_see_the_results_of_a_history_cut_before_its_result(
    tmp_path: Path,
) -> None:
    store = folder_store(tmp_path)
    with store.create() as session:
        agent = make_counting(scripted([call("look", where="a"), call("look", where="b")], "Both."), lambda tool: tool)
        session.attach(agent)
        await agent.prompt("What is there?")
        agent.messages = list(agent.messages)[:4]  # with the first result of two
    with store.open(session.id) as session:
        agent = make_counting(scripted("So."), lambda tool: tool)
        session.attach(agent)
        assert len(agent.messages) == 5
        await agent.prompt("Go on")
    report = await replay(store.load(session.id), make_counting, patience=5)
    assert report.divergence is None, str(report)


async def test_sessions_of_the_store_are_searched_also_while_one_is_written(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    path = await recorded(store)
    index = SessionIndex(store.folder)
    (hit,) = store.search("both")
    assert (hit.session.id, hit.session.title, hit.position, hit.snippet) == (path.stem, "A talk", 5, "Both.")
    assert {hit.position for hit in index.search("where c", 20, store.load)} == {9}
    assert [hit.position for hit in index.search("by the way", 20, store.load)] == [1]
    agent = Agent("test:model", stream_fn=scripted(text("a heron")))
    with store.create() as session:
        session.attach(agent)
        await agent.prompt("what is it?")
        assert [hit.session.id for hit in index.search("heron", 20, store.load)] == [session.id]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)
    assert [hit.session.id for hit in index.search("both", 20, store.load)] == [path.stem]
    path.write_bytes(b"this is no session any more\n" * 50)
    assert index.search("both", 20, store.load) == []
    store.delete(session.id)
    assert index.search("heron", 20, store.load) == []
