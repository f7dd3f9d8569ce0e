"""Checkpoints around the calls of an agent: one before, one after, and no change without them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, ModelSpec, ToolContext, ToolResultMessage, extract_text
from swink_agent.sandbox import SandboxProfile
from swink_agent.testing import call, scripted, text
from swink_agent.tools import CheckpointStore, Workspace, standard_tools

MODEL = ModelSpec("test", "model")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def work(root: Path, store: CheckpointStore, *script: Any) -> list[tuple[bool, str]]:
    """One run in the folder: whether each call failed, and what it was told."""
    tools = standard_tools(root, "off", checkpoints=store)
    agent = Agent(MODEL, tools=tools, stream_fn=scripted(*script, text("done")), approve=lambda request: True)
    result = await agent.prompt("go")
    assert result.error is None
    told = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    return [(message.is_error, extract_text(message.content)) for message in told]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def back_to_the_start(root: Path, store: CheckpointStore) -> dict[str, str]:
    plan = store.plan(root, store.checkpoints(root)[-1])
    return {item.path: item.what for item in store.rewind(root, plan)}


async def test_files_and_commands_of_one_reply_are_taken_back(root: Path, store: CheckpointStore) -> None:
    (root / "a").write_text("a\n")
    (root / "b").write_text("b\n")
    results = await work(
        root,
        store,
        [
            call("edit_file", path="a", edits=[{"old": "a", "new": "A"}]),
            call("write_file", path="new/c", content="c"),
            call("bash", command="echo B > b; mkdir empty"),
        ],
    )
    assert [failed for failed, _ in results] == [False, False, False]
    owners = [(checkpoint.owner, checkpoint.changed > 0) for checkpoint in store.checkpoints(root)]
    # Calls at once are one change, or several one after the other: in both cases all of it is the run's.
    assert {owner for owner, has_changed in owners[:-1] if has_changed} == {"run"}
    outcome = back_to_the_start(root, store)
    assert outcome == {"a": "restore", "b": "restore", "empty": "remove", "new": "remove", "new/c": "remove"}
    assert names(root) == ["a", "b"]


async def test_changes_by_a_person_between_calls_stay(root: Path, store: CheckpointStore) -> None:
    tools = {tool.name: tool for tool in standard_tools(root, "off", checkpoints=store)}
    ctx = ToolContext(run_id="run")
    await tools["write_file"].execute({"path": "a", "content": "run"}, ctx)
    (root / "b").write_text("person")
    await tools["bash"].execute({"command": "echo run > c"}, ctx)
    assert back_to_the_start(root, store) == {"a": "remove", "b": "changed", "c": "remove"}
    assert names(root) == ["b"]


async def test_reading_takes_no_checkpoint(root: Path, store: CheckpointStore) -> None:
    (root / "a").write_text("a\n")
    await work(root, store, call("read_file", path="a"), call("list_dir", path="."))
    assert store.checkpoints(root) == []


async def test_without_a_checkpoint_nothing_is_changed(root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("a\n")
    (tmp_path / "file").write_text("")
    blocked = CheckpointStore(tmp_path / "file/store")
    results = await work(
        root,
        blocked,
        call("edit_file", path="a", edits=[{"old": "a", "new": "A"}]),
        call("bash", command="echo x > b"),
    )
    assert [failed for failed, _ in results] == [True, True]
    assert all("could be kept" in told and "turn undo off" in told for _, told in results)
    assert names(root) == ["a"]
    assert (root / "a").read_text() == "a\n"


async def test_a_cancelled_command_leaves_nothing_open(root: Path, store: CheckpointStore) -> None:
    tools = {tool.name: tool for tool in standard_tools(root, "off", checkpoints=store)}
    ctx = ToolContext(run_id="run")
    running = asyncio.ensure_future(tools["bash"].execute({"command": "echo x > b; sleep 60"}, ctx))
    while not (root / "b").exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await tools["write_file"].execute({"path": "c", "content": "c"}, ctx)
    assert back_to_the_start(root, store) == {"b": "remove", "c": "remove"}


def test_a_sandbox_that_does_not_hide_the_store_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "home"
    (root / "store").mkdir(parents=True)
    store = CheckpointStore(root / "store")
    with pytest.raises(ValueError, match="is not hidden by the sandbox"):
        standard_tools(root, SandboxProfile(write=(str(root),)), checkpoints=store)
    with pytest.raises(ValueError, match="is not hidden by Workspace"):
        standard_tools(Workspace(root), checkpoints=store)
    assert len(standard_tools(root, checkpoints=store)) == 8


def test_the_store_is_not_a_path(root: Path, tmp_path: Path) -> None:
    for also in ((), (tmp_path,)):
        with pytest.raises(TypeError, match=r"^checkpoints must be a CheckpointStore, or None, not a \w*Path$"):
            standard_tools(root, checkpoints=tmp_path / "store", also=also)  # type: ignore[arg-type]
