"""Checkpoint writes the conversation to disk after each turn."""

from __future__ import annotations

import logging
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    AssistantMessage,
    CustomMessage,
    Defer,
    PolicyContext,
    Thinking,
    ToolCall,
    ToolContext,
    ToolResultMessage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.policies import Checkpoint, PiiRedactor, Redactor
from swink_agent.testing import call, fail, scripted, text


class Notice(CustomMessage, tag="notice"):
    text: str


@tool
async def look(ctx: ToolContext) -> AgentToolResult:
    """Looks."""
    ctx.state["looks"] = ctx.state.get("looks", 0) + 1
    return AgentToolResult.text("seen by a@b.org", details={"size": 4})


def agent_with(path: Path, *replies: Any, policies: tuple[Any, ...] = (), **options: Any) -> Agent:
    checkpoint = options.pop("checkpoint", None) or Checkpoint(path)
    return Agent("test:model", stream_fn=scripted(*replies), tools=[look], policies=[*policies, checkpoint], **options)


async def test_a_conversation_is_there_again_with_its_state(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    agent = agent_with(path, call("look"), text("done"), state={"name": "x"})
    await agent.prompt("go")
    messages, state = Checkpoint.load(path)
    assert list(messages) == list(agent.messages)
    assert state == {"name": "x", "looks": 1}
    again = Agent("test:model", messages=messages, state=state, stream_fn=scripted(text("more")), tools=[look])
    assert (await again.prompt("and?")).text == "more"


async def test_it_is_written_after_each_turn_so_a_crash_loses_only_one(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    sizes: list[int] = []

    def count(request: object) -> object:
        sizes.append(len(Checkpoint.load(path).messages))
        return call("look")

    await agent_with(path, call("look"), count, count, text("done")).prompt("go")  # type: ignore[arg-type]
    assert sizes == [3, 5]
    assert len(Checkpoint.load(path).messages) == 8


async def test_turns_in_between_can_be_left_out_but_not_the_last(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    seen: list[bool] = []

    def look_for(request: object) -> object:
        seen.append(path.exists())
        return call("look")

    replies = (call("look"), look_for, look_for, text("done"))
    await agent_with(path, *replies, checkpoint=Checkpoint(path, every=2)).prompt("go")
    assert seen == [False, True]
    assert len(Checkpoint.load(path).messages) == 8


async def test_a_failed_turn_is_saved_too(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    await agent_with(path, fail("auth", "bad key")).prompt("go")
    last = Checkpoint.load(path).messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.error_message == "bad key"


async def test_messages_rewritten_by_other_policies_are_saved_so(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    agent = agent_with(path, call("look"), text("Ask a@b.org"), policies=(PiiRedactor(),))
    await agent.prompt("go")
    assert b"a@b.org" not in path.read_bytes()
    assert list(Checkpoint.load(path).messages) == list(agent.messages)


async def test_secrets_are_masked_in_the_file_and_not_in_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    redactor = Redactor(["hunter2hunter2"], environment={})
    agent = agent_with(
        path,
        text("it is hunter2hunter2"),
        checkpoint=Checkpoint(path, redactor=redactor),
        state={"k": "hunter2hunter2"},
    )
    result = await agent.prompt("what is it?")
    assert result.text == "it is hunter2hunter2"
    assert b"hunter2" not in path.read_bytes()


async def test_the_agents_own_redactor_masks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "from-the-environment-77")
    path = tmp_path / "saved.json"
    said = "swordfish-9-swordfish, from-the-environment-77, ghp_" + "a1B2" * 9
    agent = agent_with(path, text(said), redactor=Redactor(["swordfish-9-swordfish"]), state={"k": said})
    await agent.prompt("what is it?")
    held = path.read_text()
    assert [held.count(part) for part in ("swordfish-9", "from-the-environment", "a1B2")] == [0, 0, 0]
    Checkpoint(path).save([UserMessage(said)], {"k": said})
    held = path.read_text()
    assert [held.count(part) for part in ("from-the-environment", "a1B2")] == [0, 0]


async def test_a_key_that_the_run_was_given_is_masked_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    agent = agent_with(path, text("canary-from-the-vault"), get_api_key=lambda provider: "canary-from-the-vault")
    await agent.prompt("go")
    assert "canary-from-the-vault" not in path.read_text()


def test_ids_and_signatures_are_stored_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    key = "ghp_" + "a1B2" * 9
    thought = Thinking("hm", signature=key)
    messages = [AssistantMessage([thought, ToolCall(key, "look", {})]), ToolResultMessage(key, "seen")]
    Checkpoint(path).save(messages)
    assert list(Checkpoint.load(path).messages) == messages


def test_own_messages_come_back_when_their_types_are_given(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    Checkpoint(path).save([UserMessage("hi"), Notice("look out")])  # type: ignore[list-item]
    assert Checkpoint.load(path, [Notice]).messages[1] == Notice("look out")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        Checkpoint.load(path)


def test_details_that_json_cannot_hold_are_shown_instead(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    Checkpoint(path).save([ToolResultMessage("1", "ok", details={"at": object})])
    messages, _ = Checkpoint.load(path)
    assert extract_text(messages[0].content) == "ok"  # type: ignore[union-attr]


def _nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "odd",
    [object, {1, 2}, Path("x"), datetime(2020, 1, 1, tzinfo=UTC), {1: "a"}, {"in": {1: None}}, 1e400, b"x", _nested()],
    ids=lambda odd: type(odd).__name__,
)
@pytest.mark.table
def test_state_that_would_come_back_as_something_else_is_refused(odd: Any, tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    Checkpoint(path).save([UserMessage("old")], {"fine": (1, [2])})
    with pytest.raises(ValueError, match=r"the state cannot be saved.*JSON"):
        Checkpoint(path).save([UserMessage("new")], {"odd": odd})
    with pytest.raises(ValueError, match=r"the state cannot be saved.*JSON"):
        Checkpoint(path).save([UserMessage("new")], {1: None})  # type: ignore[dict-item]
    assert Checkpoint.load(path).state == {"fine": [1, [2]]}


async def test_state_that_is_not_json_costs_neither_the_run_nor_the_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "saved.json"

    @tool
    def mark(ctx: ToolContext) -> str:
        """Marks."""
        ctx.state["at"] = Path("x")
        return "marked"

    agent = agent_with(path, text("first"), call("mark"), text("ok"))
    agent.tools = [mark]
    await agent.prompt("one")
    assert (await agent.prompt("two")).text == "ok"
    assert len(Checkpoint.load(path).messages) == 2
    assert "the state cannot be saved" in caplog.text


# -- the file --------------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_alone_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "saved.json"
    checkpoint = Checkpoint(path)
    checkpoint.save([UserMessage("one")])
    with path.open("rb") as before:
        checkpoint.save([UserMessage("two")])
        assert b"one" in before.read()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["saved.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_disk_that_fails_costs_neither_the_run_nor_the_last_checkpoint(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "saved.json"
    Checkpoint(path).save([UserMessage("before")])

    def full(*arguments: Any) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, step, full)
    with caplog.at_level(logging.ERROR, "swink_agent"):
        result = await agent_with(path, text("done")).prompt("go")
    monkeypatch.undo()
    assert result.text == "done"
    assert "policy checkpoint failed" in caplog.text
    assert [extract_text(message.content) for message in Checkpoint.load(path).messages] == ["before"]  # type: ignore[union-attr]
    assert os.listdir(tmp_path) == ["saved.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version": 1}', b'{"version": 1, "messages": [{"role": "nobody"}]}', b"\xff\xfe"]
)
def test_an_invalid_checkpoint_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"saved\.json is not a readable checkpoint"):
        Checkpoint.load(path)


def test_a_newer_files_version_is_said(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_bytes(msgspec.json.encode({"version": 2, "messages": []}))
    with pytest.raises(ValueError, match=r"written by a newer version \(2\)"):
        Checkpoint.load(path)


def test_a_file_that_is_not_there_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Checkpoint.load(tmp_path / "nothing")


async def test_a_turn_with_answers_to_waiting_calls_keeps_its_reply_once_and_all_results(tmp_path: Path) -> None:
    @tool(requires_approval=True)
    def ask() -> str:
        return "it was approved"

    path = tmp_path / "saved.json"
    saved: list[object] = []

    class Reader:
        def post_turn(self, ctx: PolicyContext) -> None:
            saved.append(list(Checkpoint.load(path).messages) == list(ctx.messages))

    agent = Agent(
        "test:model",
        stream_fn=scripted((call("ask"), call("look"), call("ask")), text("done")),
        tools=[look, ask],
        approve=lambda proposed: Defer(),
        policies=[Checkpoint(path), Reader()],
    )
    first, last = (await agent.prompt("go")).pending
    await agent.resume({last.call_id: True})
    await agent.resume({first.call_id: True})
    assert saved == [True, True, True, True]
    assert list(Checkpoint.load(path).messages) == list(agent.messages)
