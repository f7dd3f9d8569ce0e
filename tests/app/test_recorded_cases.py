"""Recorded sessions as cases: which parts are kept, and which are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, ApprovalMode, ModelSpec, standard_tools
from swink_agent.app.errors import UsageProblem
from swink_agent.app.evals.recorded_cases import case_of, recorded_replies
from swink_agent.app.evals.written_cases import case_text
from swink_agent.evals.cases.loading import read_set
from swink_agent.memory import JsonlSessionStore, LoadedSession
from swink_agent.testing import call, scripted

SPEC = ModelSpec("test", "model")


async def recorded(folder: Path, *replies: Any, prompts: tuple[str, ...] = ("Do it.",)) -> LoadedSession:
    """A session of an agent with the file tools in the folder."""
    store = JsonlSessionStore(folder.parent / "sessions")
    tools = [tool for tool in standard_tools(folder) if tool.name in ("read_file", "write_file", "edit_file")]
    agent = Agent(SPEC, stream_fn=scripted(*replies), tools=tools, approval_mode=ApprovalMode.BYPASSED)
    with store.create(cwd=str(folder)) as session:
        session.attach(agent)
        for prompt in prompts:
            await agent.prompt(prompt)
        session_id = session.id
    return store.load(session_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def test_only_the_sessions_own_folder_becomes_relative(folder: Path) -> None:
    beside, above = f"{folder}-old/b.txt", f"/backup{folder}/c.txt"
    command = f"cd {folder} && diff a.txt {beside} && cat '{folder}/a.txt' {above}"
    command += f" && ls {folder}/ {folder}/*.py; cp {folder}.tar {folder}"
    loaded = await recorded(folder, call("write_file", path="x", content=command), "Done.")
    (reply, _) = recorded_replies(loaded)
    assert reply.tool_calls[0].arguments["content"] == (
        f"cd . && diff a.txt {beside} && cat 'a.txt' {above} && ls ./ *.py; cp {folder}.tar ."
    )


async def test_messages_calls_and_files_are_kept(folder: Path) -> None:
    (folder / "a.txt").write_text("one\ntwo\n")
    loaded = await recorded(
        folder,
        call("read_file", path=str(folder / "a.txt")),
        call("edit_file", path="a.txt", edits=[{"old": "two", "new": "three"}]),
        call("write_file", path="b/new.txt", content="new\n"),
        "Done.",
        "Yes.",
        prompts=("Change it.", "Really?"),
    )
    case = case_of(loaded)
    assert (case.id, case.name, case.user_messages) == ("change-it", "Change it.", ("Change it.", "Really?"))
    assert case.setup == {"a.txt": "one\ntwo\n"}
    assert {file.path: file.content for file in case.expected_files} == {
        "a.txt": "one\nthree\n",
        "b/new.txt": "new\n",
    }
    expected = case.expected_trajectory
    assert expected is not None
    assert [(one.name, one.arguments["path"]) for one in expected.calls if one.arguments] == [
        *(("read_file", "a.txt"), ("edit_file", "a.txt"), ("write_file", "b/new.txt"))
    ]
    assert case.metadata == {"session": loaded.id}


async def test_a_file_that_was_read_in_part_is_not_made_up(folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(50)))
    loaded = await recorded(folder, call("read_file", path="long.txt", offset=1, limit=3), "Seen.")
    assert case_of(loaded).setup == {}


async def test_a_file_made_by_the_session_is_not_part_of_the_case(folder: Path) -> None:
    loaded = await recorded(
        folder, call("write_file", path="n.txt", content="x\n"), call("read_file", path="n.txt"), "Done."
    )
    case = case_of(loaded)
    assert case.setup == {}
    assert [file.path for file in case.expected_files] == ["n.txt"]


async def test_the_replies_name_files_of_any_folder(folder: Path) -> None:
    loaded = await recorded(folder, call("read_file", path=f"{folder}/a.txt"), call("read_file", path=str(folder)), "x")
    first, second, last = recorded_replies(loaded)
    assert first.tool_calls[0].arguments == {"path": "a.txt"}
    assert second.tool_calls[0].arguments == {"path": "."}
    assert last.text == "x"


async def test_a_session_without_a_prompt_is_not_a_case(folder: Path) -> None:
    store = JsonlSessionStore(folder.parent / "sessions")
    with store.create(cwd=str(folder)) as session:
        session_id = session.id
    with pytest.raises(UsageProblem, match="has no prompt"):
        case_of(store.load(session_id))


@pytest.mark.parametrize(
    "odd",
    ["a: b", "# no comment", "two\nlines\n", "trailing \nspace", "no", "1.5", "'\"\\", "\u202e\x85", "- item", "☃ {x}"],
)
async def test_a_case_that_is_written_reads_as_it_was(folder: Path, odd: str) -> None:
    loaded = await recorded(folder, call("write_file", path="a.txt", content=odd), odd, prompts=(odd,))
    case = case_of(loaded, "odd")
    again = read_set(f"id: s\nname: s\ncases:\n{case_text(case)}").cases[0]
    assert again == case
    assert "\u202e" not in case_text(case)
