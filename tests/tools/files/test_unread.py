"""write_file replaces only content that the conversation knows, and else says how to proceed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentMessage,
    AgentTool,
    Approve,
    Defer,
    ModelSpec,
    ProposedCall,
    ToolResultMessage,
    decode_message,
    encode_message,
    extract_text,
)
from swink_agent.approvals import ApprovalChoice, ApprovalQuestion, Approvals
from swink_agent.testing import call, scripted, text
from swink_agent.tools import EditFileTool, ReadFileTool, Workspace, WriteFileTool

MODEL = ModelSpec("test", "model")
REPLACE = call("write_file", path="a", content="made up\n")
READ = call("read_file", path="a")


def hands(folder: Path) -> list[AgentTool]:
    workspace = Workspace(folder, fsync=lambda fd: None)
    return [ReadFileTool(workspace), WriteFileTool(workspace), EditFileTool(workspace)]


def agent_of(tools: Sequence[AgentTool], *script: Any) -> Agent:
    return Agent(MODEL, tools=tools, stream_fn=scripted(*script, text("done")), approve=lambda request: True)


async def results(agent: Agent) -> list[tuple[bool, str]]:
    """For each call of a run: whether it was refused, and the first sentence of what the model was told."""
    done = await agent.prompt("go")
    assert done.error is None
    told = [message for message in done.messages if isinstance(message, ToolResultMessage)]
    return [(message.is_error, extract_text(message.content)) for message in told]


UNREAD = (
    "a was not written: it exists, and you have not read it.\nTo change a part of it, use edit_file. To replace all of "
    "it, call write_file again. It holds now:\n"
)


async def test_a_file_that_was_not_read_is_shown_instead_of_replaced_and_then_replaced(folder: Path) -> None:
    (folder / "a").write_text("PORT = 3000\nHOST = 'x'\n")
    first, second = await results(agent_of(hands(folder), REPLACE, REPLACE))
    assert first == (True, f"{UNREAD}PORT = 3000\nHOST = 'x'\n")
    assert second == (False, "Replaced a (1 line, 8 bytes).")
    assert (folder / "a").read_text() == "made up\n"


async def test_nobody_is_asked_about_what_would_be_refused(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    asked: list[str] = []

    def approve(request: ProposedCall) -> bool:
        asked.append((folder / "a").read_text())
        return True

    stream = scripted([REPLACE, READ], REPLACE, call("write_file", path="b", content="b"), text("done"))
    agent = Agent(MODEL, tools=hands(folder), stream_fn=stream, approve=approve)
    assert [refused for refused, _ in await results(agent)] == [True, False, False, False]
    assert asked == ["old\n", "made up\n"]


async def test_a_guess_that_failed_does_not_lead_to_a_made_up_file(folder: Path) -> None:
    (folder / "config.py").write_text("HOST = 'x'\nPORT = 3000\n")
    guess = call("edit_file", path="config.py", edits=[{"old": "PORT=8080", "new": "PORT=9000"}])
    made_up = call("write_file", path="config.py", content="PORT=9000\nDEBUG=1\n")
    right = call("edit_file", path="config.py", edits=[{"old": "PORT = 3000", "new": "PORT = 9000"}])
    first, second, third = await results(agent_of(hands(folder), guess, made_up, right))
    assert (first[0], "The nearest is at line 2:\nPORT = 3000\n" in first[1]) == (True, True)
    assert (second[0], second[1].endswith("It holds now:\nHOST = 'x'\nPORT = 3000\n")) == (True, True)
    assert third == (False, "Edited config.py: 1 replacement, at line 2.")
    assert (folder / "config.py").read_text() == "HOST = 'x'\nPORT = 9000\n"


async def test_a_file_that_was_read_is_replaced(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    assert [refused for refused, _ in await results(agent_of(hands(folder), READ, REPLACE))] == [False, False]


async def test_reading_and_replacing_in_one_reply_is_blind(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    agent = agent_of(hands(folder), [READ, REPLACE], REPLACE)
    assert [refused for refused, _ in await results(agent)] == [False, True, False]


async def test_two_replacements_in_one_reply_are_both_refused(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    other = call("write_file", path="a", content="other\n")
    assert [refused for refused, _ in await results(agent_of(hands(folder), [REPLACE, other]))] == [True, True]
    assert (folder / "a").read_text() == "old\n"


async def test_a_file_that_was_read_in_pages_counts_once_all_are_there(folder: Path) -> None:
    (folder / "a").write_text("".join(f"{number:01000}\n" for number in range(1, 11)))

    def page(offset: int, limit: int) -> Any:
        return call("read_file", path="a", offset=offset, limit=limit)

    script = [page(4, 3), page(1, 3), REPLACE, page(5, 4), REPLACE, page(9, 5), REPLACE]
    refusals = [told for told in await results(agent_of(hands(folder), *script)) if not told[1].startswith("0")]
    assert [refused for refused, _ in refusals] == [True, True, False]
    assert "you have not read all of it" in refusals[0][1]
    assert "read the rest first (read_file with offset=3). Its first 2 of 10 lines:\n0000" in refusals[0][1]


async def test_a_long_line_of_which_only_the_beginning_was_shown_is_not_known(folder: Path) -> None:
    (folder / "a").write_text("x" * 300_000)
    refusals = await results(agent_of(hands(folder), READ, REPLACE, REPLACE))
    assert [refused for refused, _ in refusals] == [False, True, True]
    assert (folder / "a").stat().st_size == 300_000


@pytest.mark.parametrize("before", ["", "short\n" * 2000], ids=["alone", "far down"])
async def test_of_a_file_with_a_line_that_cannot_be_shown_the_way_around_is_told(folder: Path, before: str) -> None:
    (folder / "a").write_text(before + "x" * 300_000)
    refused, told = (await results(agent_of(hands(folder), REPLACE)))[0]
    assert refused
    assert "read the rest first" not in told  # that would never come to an end
    assert "move it away with a command first" in told


async def test_files_changed_on_disk_are_shown_again(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    agent = agent_of(hands(folder), READ, text("read"), REPLACE, REPLACE)
    await results(agent)
    (folder / "a").write_text("somebody's work\n")
    first, second = await results(agent)
    assert first[0]
    assert "a was not written: it was changed since you read it." in first[1]
    assert first[1].endswith("It holds now:\nsomebody's work\n")
    assert not second[0]


@pytest.mark.parametrize(
    ("held", "content"), [("", "made up\n"), ("made up\n", "made up\n"), ("made up\r\n", "made up\n")]
)
async def test_harmless_replacements_are_not_refused(folder: Path, held: str, content: str) -> None:
    (folder / "a").write_bytes(held.encode())
    agent = agent_of(hands(folder), call("write_file", path="a", content=content))
    [(refused, told)] = await results(agent)
    assert not refused
    assert told == (
        "Replaced a (1 line, 8 bytes)." if not held else "Nothing was changed: a already holds exactly this."
    )


async def test_files_written_by_tools_are_known(folder: Path) -> None:
    new = call("write_file", path="new", content="one\n")
    more = call("edit_file", path="new", edits=[{"old": "", "new": "two"}])
    again = call("write_file", path="new", content="three\n")
    assert [refused for refused, _ in await results(agent_of(hands(folder), new, more, again))] == [False] * 3


async def test_an_edit_makes_known_no_more_than_was_known(folder: Path) -> None:
    (folder / "a").write_text("one\ntwo\nthree\n")
    edit = call("edit_file", path="a", edits=[{"old": "one", "new": "1"}])
    refusals = await results(agent_of(hands(folder), edit, REPLACE))
    assert [refused for refused, _ in refusals] == [False, True]
    assert "you have not read all of it" in refusals[1][1]


async def test_one_agents_reading_does_not_count_for_another(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    tools = hands(folder)
    await results(agent_of(tools, READ))
    assert [refused for refused, _ in await results(agent_of(tools, REPLACE))] == [True]


async def test_another_agents_writing_is_a_change(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    tools = hands(folder)
    mine = agent_of(tools, READ, text("read"), call("edit_file", path="a", edits=[{"old": "new", "new": "mine"}]))
    await results(mine)
    await results(agent_of(tools, READ, call("write_file", path="a", content="new\n")))
    [(refused, told)] = await results(mine)
    assert (refused, told) == (
        True,
        "a was changed since it was read: read it again with read_file, then repeat the change",
    )


def _reset(agent: Agent) -> None:
    agent.reset()


def _replace(agent: Agent) -> None:
    agent.messages = list(agent.messages)


@pytest.mark.parametrize("forget", [_reset, _replace])
async def test_a_conversation_that_starts_over_knows_nothing(folder: Path, forget: Callable[[Agent], None]) -> None:
    (folder / "a").write_text("old\n")
    agent = agent_of(hands(folder), READ, text("read"), REPLACE)
    await results(agent)
    forget(agent)
    assert [refused for refused, _ in await results(agent)] == [True]


async def test_a_conversation_goes_on_over_several_runs(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    agent = agent_of(hands(folder), READ, text("read"), REPLACE)
    await results(agent)
    assert [refused for refused, _ in await results(agent)] == [False]
    assert agent.state == {}


async def test_a_binary_file_is_not_replaced_but_the_way_is_told(folder: Path) -> None:
    (folder / "a").write_bytes(b"\x7fELF\0" * 10)
    assert await results(agent_of(hands(folder), REPLACE)) == [
        (
            True,
            "a was not written: it exists, and you have not read it.\nIt cannot be shown as text (50 bytes): to "
            "replace it anyway, move it away with a command first.",
        )
    ]


async def test_secrets_in_what_is_shown_are_masked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-live-4f9a8b7c6d5e4f3a2b1c")
    (folder / "a").write_text("KEY = 'sk-live-4f9a8b7c6d5e4f3a2b1c'\n")
    [(refused, told)] = await results(agent_of(hands(folder), REPLACE))
    assert refused
    assert "sk-live-4f9a8b7c6d5e4f3a2b1c" not in told


# -- answers that come later -------------------------------------------------------------------------------------


async def waiting_replacement(folder: Path) -> tuple[list[AgentMessage], str]:
    """The history, as a file keeps it, of an agent that read `a` and whose replacement of it waits."""
    (folder / "a").write_text("old\n")
    model = scripted(READ, REPLACE)
    agent = Agent(MODEL, tools=hands(folder), stream_fn=model, approve=lambda request: Defer())
    (waiting,) = (await agent.prompt("go")).pending
    return [decode_message(encode_message(message)) for message in agent.messages], waiting.call_id


async def test_an_approved_replacement_runs_in_another_process(folder: Path) -> None:
    messages, call_id = await waiting_replacement(folder)
    other = Agent(MODEL, tools=hands(folder), messages=messages, stream_fn=scripted("done"))
    done = await other.resume({call_id: Approve()})
    assert extract_text(done.messages[0].content) == "Replaced a (1 line, 8 bytes)."  # type: ignore[union-attr]
    assert (folder / "a").read_text() == "made up\n"


async def test_files_changed_since_the_question_are_not_replaced(folder: Path) -> None:
    messages, call_id = await waiting_replacement(folder)
    (folder / "a").write_text("somebody else's\n")
    other = Agent(MODEL, tools=hands(folder), messages=messages, stream_fn=scripted("done"))
    done = await other.resume({call_id: Approve()})
    assert "a was not written" in extract_text(done.messages[0].content)  # type: ignore[union-attr]
    assert (folder / "a").read_text() == "somebody else's\n"


async def test_files_changed_while_the_question_is_made_are_not_replaced(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    tools = hands(folder)
    write = tools[1]
    scope_of = write.approval_scope  # type: ignore[attr-defined]

    def late(arguments: Any) -> Any:
        (folder / "a").write_text("somebody else's\n")  # after the tool has foreseen that it would act
        return scope_of(arguments)

    write.approval_scope = late  # type: ignore[attr-defined]
    (_, second) = await results(agent_of(tools, READ, REPLACE))
    assert "a was not written: it was changed since you read it" in second[1]
    assert (folder / "a").read_text() == "somebody else's\n"


async def test_files_that_appeared_since_the_question_are_not_replaced(folder: Path) -> None:
    model = scripted(REPLACE)
    agent = Agent(MODEL, tools=hands(folder), stream_fn=model, approve=lambda request: Defer())
    (waiting,) = (await agent.prompt("go")).pending
    (folder / "a").write_text("somebody else's\n")
    other = Agent(MODEL, tools=hands(folder), messages=agent.messages, stream_fn=scripted("done"))
    await other.resume({waiting.call_id: Approve()})
    assert (folder / "a").read_text() == "somebody else's\n"


async def test_a_session_allows_all_files_of_the_folder_whatever_they_contain(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    (folder / "b").write_text("other\n")
    asked: list[str] = []

    def ask(question: ApprovalQuestion) -> ApprovalChoice:
        asked.append(question.request.arguments["path"])
        return ApprovalChoice.SESSION_TOOL

    reads = [READ, call("read_file", path="b")]
    model = scripted(reads, REPLACE, call("write_file", path="b", content="x"), "done")
    agent = Agent(MODEL, tools=hands(folder), stream_fn=model, approve=Approvals(ask))
    await agent.prompt("go")
    assert (asked, (folder / "b").read_text()) == (["a"], "x")
