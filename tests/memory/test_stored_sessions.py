"""A stored session opens, continues, is listed and found, and replays. Its file has runs of all kinds; the last one was
interrupted while a tool ran. The format is a contract: a change that cannot read this file is not allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, ApproveWith, Reject, ToolOutcome, ToolResultMessage, UserMessage, extract_text, tool
from swink_agent.memory import ReplayReport, SessionStore, replay
from swink_agent.memory.log.fold import message_runs
from swink_agent.testing import scripted, text

from .kinds import Kind

ID = "20261119-171612-541-7f9e81"


@tool
async def slow() -> str:
    """Waits until it is stopped."""
    await asyncio.Event().wait()
    return "never"


@tool
async def quitter() -> str:
    """Gives up."""
    raise asyncio.CancelledError


@tool(requires_approval=True)
async def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


async def approve(request: Any) -> Any:
    if request.arguments["a"] == 1:
        return Reject("not one")
    return ApproveWith({"a": 7, "b": 2}, "I made it 7") if request.arguments["a"] == 2 else True


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> SessionStore:
    kind.write(tmp_path, ID, (Path(__file__).with_name("files") / f"{ID}.jsonl").read_bytes())
    return kind.make(tmp_path)


async def replayed(store: SessionStore, **other: Any) -> ReplayReport:
    options: dict[str, Any] = {"tools": [add, slow, quitter], "approve": approve, **other}
    return await replay(
        store.load(ID), lambda stream_fn, _: Agent("test:model", stream_fn=stream_fn, **options), patience=5
    )


async def test_a_stored_session_replays_without_a_difference(store: SessionStore) -> None:
    report = await replayed(store)
    assert report.divergence is None, str(report)
    assert (report.runs, report.messages) == (6, 25)


async def test_another_answer_of_a_person_is_a_difference(store: SessionStore) -> None:
    for answer, where in ((lambda _: True, 2), (lambda _: Reject("not one"), 3), (lambda _: Reject("never"), 2)):
        found = (await replayed(store, approve=answer)).divergence
        assert found is not None
        assert (found.run, found.position) == (0, where)


async def test_a_removed_tool_is_a_difference(store: SessionStore) -> None:
    found = (await replayed(store, tools=[add, quitter])).divergence
    assert found is not None
    assert found.run == 1


async def test_a_stored_session_has_the_records_of_its_runs(store: SessionStore) -> None:
    runs = store.load(ID).runs()
    assert [run.kind for run in runs] == ["prompt", "prompt", "prompt", "structured", "prompt", "prompt"]
    assert [run.is_over for run in runs] == [True] * 5 + [False]
    assert [None if run.error_kind is None else run.error_kind.value for run in runs] == [
        *(None, None, "aborted", None, None, None)
    ]
    assert runs[3].value == {"total": 12}
    assert [(one.outcome, one.approval, one.reason, one.note) for one in runs[0].calls] == [
        (ToolOutcome.REJECTED, "rejected", "not one", ""),
        (ToolOutcome.RAN, "approved", "", "I made it 7"),
        (ToolOutcome.RAN, "approved", "", ""),
        (ToolOutcome.CANCELLED, None, "tool", ""),
    ]
    assert runs[0].calls[1].arguments == {"a": 7, "b": 2}
    done, lost = runs[-1].calls
    assert (done.outcome, lost.is_started, lost.outcome) == (ToolOutcome.RAN, True, ToolOutcome.LOST)


async def test_a_stored_session_opens_and_continues(store: SessionStore) -> None:
    assert [info.title for info in store.list()] == ["Sums of all kinds"]
    assert [hit.position for hit in store.search("steered")] == [11]
    agent = Agent("test:model", stream_fn=scripted(text("Where was I?")), tools=[add, slow, quitter])
    with store.open(ID) as session:
        session.attach(agent)
        assert len(agent.messages) == 25
        lost = agent.messages[-1]
        assert isinstance(lost, ToolResultMessage)
        assert lost.outcome is ToolOutcome.LOST
        await agent.prompt("go on")
    assert len(store.load(ID).runs()) == 7
    assert store.load(ID).info.problems == ()
    assert (await replayed(store)).divergence is None


async def test_each_message_of_a_stored_session_has_its_run(store: SessionStore) -> None:
    loaded = store.load(ID)
    entered = message_runs(loaded)
    ids = [run.run_id for run in loaded.runs()]
    assert [None if one is None else ids.index(one.run_id) for one in entered] == [
        *([0] * 7 + [1] * 5 + [2] * 3 + [3] * 3 + [None] + [4] * 2 + [5] * 3 + [None])
    ]  # the command was given outside a run, and the lost result is not on record


async def test_a_text_that_looks_like_a_command_stays_the_users(store: SessionStore) -> None:
    said = [message for message in store.load(ID).messages if isinstance(message, UserMessage)]
    command, quoted = [message for message in said if "<user_shell_command>" in extract_text(message.content)]
    assert command.origin == "shell"
    assert not quoted.origin
    assert quoted.content == command.content
