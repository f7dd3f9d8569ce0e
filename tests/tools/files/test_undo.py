"""Undo: a copy before every change, and nothing put back over somebody else's work."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AgentTool, ModelSpec, ToolResultMessage, extract_text
from swink_agent.sandbox import SandboxProfile
from swink_agent.testing import call, scripted, text
from swink_agent.tools import EditFileTool, ReadFileTool, UndoStore, Workspace, WriteFileTool, standard_tools
from swink_agent.tools.files.rewind import plan_rewind, rewind
from swink_agent.tools.files.undo import UndoRun

MODEL = ModelSpec("test", "model")


@pytest.fixture
def store(tmp_path: Path) -> UndoStore:
    return UndoStore(tmp_path / "copies", fsync=lambda fd: None)


async def work(folder: Path, store: UndoStore, *script: Any) -> list[tuple[bool, str]]:
    """One run of an agent in the folder: whether each call failed, and what it was told."""
    workspace = Workspace(folder, fsync=lambda fd: None)
    tools: list[AgentTool] = [
        ReadFileTool(workspace),
        WriteFileTool(workspace, undo=store),
        EditFileTool(workspace, undo=store),
    ]
    agent = Agent(MODEL, tools=tools, stream_fn=scripted(*script, text("done")), approve=lambda request: True)
    result = await agent.prompt("go")
    assert result.error is None
    told = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    return [(message.is_error, extract_text(message.content)) for message in told]


def write(path: str, content: str) -> Any:
    return call("write_file", path=path, content=content)


def edit(path: str, old: str, new: str) -> Any:
    return call("edit_file", path=path, edits=[{"old": old, "new": new}])


def last(store: UndoStore, folder: Path) -> UndoRun:
    return next(run for run in store.runs(folder) if run.kind == "run")


def undo(store: UndoStore, folder: Path, *, force: bool = False) -> dict[str, str]:
    """Puts the last run back: what became of each file."""
    run = last(store, folder)
    workspace = Workspace(folder)
    plan = plan_rewind(workspace, run, force=force)
    return {"/".join(item.parts): item.what for item in rewind(workspace, store, run, plan, "the-undo")}


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


async def test_what_was_replaced_edited_and_made_is_put_back(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("a\n")
    (folder / "b").write_text("b1\nb2\n")
    (folder / "a").chmod(0o750)
    before = tree(folder)
    await work(
        folder,
        store,
        [call("read_file", path="a"), edit("b", "b1", "x")],
        [write("a", "new\n"), edit("b", "b2", "y")],
        [edit("b", "x", "z"), write("made/deep/c", "c\n"), write("made/d", "d\n")],
    )
    assert tree(folder) == {"a": "new\n", "b": "z\ny\n", "made/d": "d\n", "made/deep/c": "c\n"}
    (folder / "a").chmod(0o600)
    plan = {"/".join(item.parts): item for item in plan_rewind(Workspace(folder), last(store, folder))}
    assert (plan["b"].added, plan["b"].removed, plan["made/d"].added, plan["made/d"].removed) == (2, 2, 0, 1)
    assert undo(store, folder) == {"b": "restore", "a": "restore", "made/deep/c": "remove", "made/d": "remove"}
    assert tree(folder) == before
    assert sorted(os.listdir(folder)) == ["a", "b"]  # the folders that were made are gone too
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o750


async def test_an_undo_can_be_undone(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("a\n")
    await work(folder, store, edit("a", "a", "b"), write("sub/new", "n\n"))
    undo(store, folder)
    again = next(run for run in store.runs(folder) if run.kind == "undo")
    assert again.undoes == last(store, folder).id
    workspace = Workspace(folder)
    rewind(workspace, store, again, plan_rewind(workspace, again), "redo")
    assert tree(folder) == {"a": "b\n", "sub/new": "n\n"}


async def test_files_that_were_changed_since_are_left_alone_unless_forced(folder: Path, store: UndoStore) -> None:
    for name in "abcd":
        (folder / name).write_text("old\n")
    await work(folder, store, [edit(name, "old", "new") for name in "abcd"], write("made", "made\n"))
    (folder / "b").write_text("somebody's\n")
    (folder / "c").unlink()
    (folder / "d").write_text("old\n")
    (folder / "made").write_text("grown\n")
    kept = {"a": "restore", "b": "changed", "c": "changed", "d": "same", "made": "changed"}
    assert undo(store, folder) == kept
    assert tree(folder) == {"a": "old\n", "b": "somebody's\n", "d": "old\n", "made": "grown\n"}
    assert undo(store, folder, force=True) == kept | {"a": "same", "b": "restore", "c": "restore", "made": "remove"}
    assert tree(folder) == dict.fromkeys("abcd", "old\n")


async def test_a_change_of_somebody_else_in_between_is_where_it_stops(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("one\n")
    workspace = Workspace(folder, fsync=lambda fd: None)
    tool = EditFileTool(workspace, undo=store)
    agent = Agent(
        MODEL,
        tools=[tool, ReadFileTool(workspace)],
        approve=lambda request: True,
        stream_fn=scripted(edit("a", "one", "two"), call("read_file", path="a"), edit("a", "two", "three"), text("x")),
    )

    def meddle(event: Any) -> None:
        if event.__class__.__name__ == "ToolExecutionStart" and event.name == "read_file":
            (folder / "a").write_text("two\nfour\n")

    with agent.subscribe(meddle):
        await agent.prompt("go")
    assert (folder / "a").read_text() == "three\nfour\n"
    assert undo(store, folder) == {"a": "restore"}
    assert (folder / "a").read_text() == "two\nfour\n"


async def test_a_link_that_was_put_in_the_way_leads_nowhere(folder: Path, outside: Path, store: UndoStore) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/secret").write_text("mine\n")
    (folder / "plain").write_text("plain\n")
    await work(folder, store, [edit("sub/secret", "mine", "outside"), edit("plain", "plain", "x")])
    (folder / "sub").rename(folder / "moved")
    (folder / "sub").symlink_to(outside)
    (outside / "secret").write_text("outside\n")
    (folder / "plain").unlink()
    (folder / "plain").symlink_to(outside / "secret")
    assert undo(store, folder, force=True) == {"sub/secret": "failed", "plain": "failed"}
    assert (outside / "secret").read_text() == "outside\n"


async def test_what_cannot_be_copied_is_not_changed(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("a" * 100)
    small = UndoStore(tmp_path / "small", most_file=50)
    [(failed, told)] = await work(folder, small, edit("a", "a" * 100, "b"))
    assert failed
    assert told.startswith("a was not changed: it has 100 bytes, too much to keep a copy of (at most 50 bytes)")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    [(failed, told)] = await work(folder, UndoStore(tmp_path / "full", fsync=full), edit("a", "a" * 100, "b"))
    assert failed
    assert "no copy of it could be kept" in told
    assert "No space left on device" in told
    (tmp_path / "in-the-way").write_text("")
    blocked = UndoStore(tmp_path / "in-the-way/copies")
    assert [failed for failed, _ in await work(folder, blocked, edit("a", "a" * 100, "b"))] == [True]
    one_run = UndoStore(tmp_path / "one", most_total=300)
    results = await work(folder, one_run, edit("a", "a" * 100, "b" * 100), edit("a", "b" * 100, "c"))
    assert [failed for failed, _ in results] == [False, True]
    assert tree(folder) == {"a": "b" * 100}
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".")]


async def test_a_write_that_failed_leaves_no_copy(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("a\n")

    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(5, "Input/output error")

    tool = EditFileTool(Workspace(folder, rename=fail), undo=store)
    agent = Agent(MODEL, tools=[tool], stream_fn=scripted(edit("a", "a", "b"), text("x")), approve=lambda request: True)
    await agent.prompt("go")
    assert [run.changes() for run in store.runs(folder)] == [[]]


CRASH = """
import os, signal, sys
from swink_agent import Agent, ModelSpec
from swink_agent.testing import call, scripted, text
from swink_agent.tools import EditFileTool, UndoStore, Workspace

when = sys.argv[3]

def rename(*arguments, **named):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    os.rename(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

tool = EditFileTool(Workspace(sys.argv[1], rename=rename), undo=UndoStore(sys.argv[2]))
edit = call("edit_file", path="a", edits=[{"old": "old", "new": "new"}])
agent = Agent(ModelSpec("t", "m"), tools=[tool], stream_fn=scripted(edit, text("x")), approve=lambda r: True)
agent.prompt_sync("go")
"""


@pytest.mark.parametrize(("when", "held", "what"), [("before", "old\n", "same"), ("after", "new\n", "restore")])
def test_after_a_crash_undo_tells_the_truth(folder: Path, tmp_path: Path, when: str, held: str, what: str) -> None:
    (folder / "a").write_text("old\n")
    copies = tmp_path / "copies"
    ended = subprocess.run([sys.executable, "-c", CRASH, str(folder), str(copies), when], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert (folder / "a").read_text() == held
    assert undo(UndoStore(copies), folder) == {"a": what}
    assert (folder / "a").read_text() == "old\n"


async def test_a_damaged_copy_is_not_put_back(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("a\n")
    await work(folder, store, edit("a", "a", "b"))
    [copy] = store.folder.rglob("*.copy")
    copy.write_bytes(copy.read_bytes()[:-1])
    [item] = plan_rewind(Workspace(folder), last(store, folder))
    assert item.what == "failed"
    assert "is damaged" in item.note
    copy.write_bytes(b"{")  # half a header: as if it had never been
    assert plan_rewind(Workspace(folder), last(store, folder)) == []


async def test_copies_are_for_the_user_alone(folder: Path, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        store = UndoStore(tmp_path / "data/undo")
        (folder / "a").write_text("a\n")
        await work(folder, store, edit("a", "a", "b"))
        modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in store.folder.rglob("*")}
        assert modes == {True: 0o700, False: 0o600}
        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
        store.folder.chmod(0o755)
        await work(folder, UndoStore(store.folder), edit("a", "b", "c"))
        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    finally:
        os.umask(mask)


async def test_old_runs_are_forgotten_by_age_and_by_size(folder: Path, tmp_path: Path) -> None:
    now = 1_000_000_000.0
    (folder / "a").write_text("0" * 1000)

    def at(day: int) -> UndoStore:
        return UndoStore(tmp_path / "copies", most_total=6000, clock=lambda: now + day * 86400, fsync=lambda fd: None)

    for day in range(3):
        await work(folder, at(day), edit("a", f"{day}" * 1000, f"{day + 1}" * 1000))
    assert len(at(0).runs(folder)) == 3
    await work(folder, at(31), edit("a", "3" * 1000, "4" * 1000))  # the run of the first day is 31 days old
    assert [round((run.started - now) / 86400) for run in at(0).runs(folder)] == [31, 2, 1]
    for day in range(32, 38):
        await work(folder, at(day), edit("a", f"{day - 28}"[-1] * 1000, f"{day - 27}"[-1] * 1000))
    assert 2 <= len(at(0).runs(folder)) <= 6
    assert sum(path.stat().st_size for path in (tmp_path / "copies").rglob("*.copy")) < 6000 + 2000


async def test_two_edits_of_one_file_in_one_reply_are_both_put_back(folder: Path, store: UndoStore) -> None:
    (folder / "a").write_text("".join(f"line {number:02}\n" for number in range(20)))
    before = tree(folder)
    await work(folder, store, [edit("a", f"line {number:02}", f"new {number}") for number in range(20)])
    assert "line" not in (folder / "a").read_text()
    assert undo(store, folder) == {"a": "restore"}
    assert tree(folder) == before


async def test_two_agents_in_one_folder_have_runs_of_their_own(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("a\n")
    (folder / "b").write_text("b\n")
    for name in "ab":
        await work(folder, UndoStore(tmp_path / "copies"), edit(name, name, "new"))
    store = UndoStore(tmp_path / "copies")
    assert [len(run.changes()) for run in store.runs(folder)] == [1, 1]
    assert undo(store, folder) == {"b": "restore"}
    assert store.runs(tmp_path) == []


def test_walls_that_do_not_hide_the_copies_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "home"
    (root / "copies").mkdir(parents=True)
    store = UndoStore(root / "copies")
    with pytest.raises(ValueError, match="is not hidden by the sandbox"):
        standard_tools(root, SandboxProfile(write=(str(root),)), undo=store)
    with pytest.raises(ValueError, match="is not hidden by Workspace"):
        standard_tools(Workspace(root), undo=store)
    assert len(standard_tools(root, undo=store)) == 6
