"""Plan mode, the user's own commands, and unknown commands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.settings.paths import config_folder
from swink_agent.app.talk.commands import COMMANDS, command_in
from swink_agent.core.types import extract_text
from swink_agent.testing import call, scripted, text
from swink_agent.tui.transcript import ReplyBlock, ShellBlock, ToolBlock

from .conftest import Talk, told


async def gone(pid: int) -> None:
    """Waits until a process has ended, whoever is to take note of it."""
    async with asyncio.timeout(30):
        while runs(pid):  # noqa: ASYNC110 - a process that is no child of ours tells nobody
            await asyncio.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


# -- plan mode -----------------------------------------------------------------------------------------------


async def test_plan_mode_has_only_tools_that_need_no_approval_and_labels_what_is_said(talk: Talk) -> None:
    stream = scripted(
        call("list_dir", path="."), text("1. Write a file."), call("write_file", path="x", content="1"), text("Done.")
    )
    conversation = await talk.open(stream)
    conversation.modes.change_plan()
    assert conversation.mode == "Plan"
    await conversation.submit("how would you do it?")
    await conversation.settled()
    assert {tool.name for tool in stream.requests[0].context.tools} == {
        *("list_dir", "read_file", "search", "task", "todo")
    }
    assert "plan mode" in stream.requests[0].context.system_prompt
    labels = {
        block.label for block in conversation.view.transcript.blocks if isinstance(block, (ReplyBlock, ToolBlock))
    }
    assert labels == {"PLAN"}
    await conversation.submit("/plan")
    assert conversation.mode == "Execute"
    await conversation.settled()
    assert talk.front.confirmed == ["Carry out this plan?"]
    handed = extract_text(stream.requests[2].messages[-1].content)
    assert "Carry out this plan now" in handed
    assert "1. Write a file." in handed
    assert {tool.name for tool in stream.requests[2].context.tools} >= {"write_file", "edit_file", "bash"}
    assert "plan mode" not in stream.requests[2].context.system_prompt
    assert (talk.folder / "x").read_text() == "1"
    await conversation.close()


async def test_a_plan_that_is_declined_is_not_sent_and_the_tools_are_back(talk: Talk) -> None:
    stream = scripted(text("1. Nothing."))
    conversation = await talk.open(stream)
    conversation.modes.change_plan()
    await conversation.submit("plan")
    await conversation.settled()
    talk.front.confirmations = [None]
    conversation.modes.change_plan()
    await conversation.settled()
    assert len(stream.requests) == 1
    assert conversation.opened is not None
    assert "bash" in [tool.name for tool in conversation.opened.agent.tools]
    await conversation.close()


async def test_without_a_plan_nothing_is_offered(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    conversation.modes.change_plan()
    conversation.modes.change_plan()
    await conversation.settled()
    assert talk.front.confirmed == []
    await conversation.close()


async def test_another_model_in_plan_mode_still_only_plans(talk: Talk) -> None:
    stream = scripted(text("1. Look."))
    conversation = await talk.open(stream)
    conversation.modes.change_plan()
    await conversation.submit("/model anthropic:claude-opus-4-6")
    await conversation.submit("plan")
    await conversation.settled()
    assert "bash" not in {tool.name for tool in stream.requests[0].context.tools}
    talk.front.confirmations = ["no"]
    conversation.modes.change_plan()
    await conversation.settled()
    assert conversation.opened is not None
    assert "bash" in [tool.name for tool in conversation.opened.agent.tools]
    await conversation.close()


# -- the person's own commands -------------------------------------------------------------------------------


async def test_a_persons_command_runs_in_the_folder_and_the_next_prompt_shows_it(
    talk: Talk,
) -> None:
    (talk.folder / "here.txt").touch()
    stream = scripted(text("I see it."))
    conversation = await talk.open(stream)
    await conversation.submit("!ls; exit 3")
    block = conversation.view.transcript.blocks[-1]
    assert isinstance(block, ShellBlock)
    assert (block.status, "here.txt" in block.text, "[exit code 3]" in block.text) == ("failed", True, True)
    assert stream.requests == []
    await conversation.submit("what is there?")
    await conversation.settled()
    first, second = stream.requests[0].messages
    assert "$ ls; exit 3\nhere.txt\n[exit code 3]" in str(first.content[0].text)
    assert second.content[0].text == "what is there?"
    assert talk.front.questions == []
    await conversation.close()


async def test_a_command_of_the_person_can_be_stopped_with_all_that_it_started(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    running = asyncio.ensure_future(conversation.submit("!sleep 60 & echo $! > pid; wait"))
    pid = talk.folder / "pid"
    while not (pid.exists() and pid.read_text().strip()):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    conversation.stop()
    await running
    block = conversation.view.transcript.blocks[-1]
    assert isinstance(block, ShellBlock)
    assert block.status == "cancelled"
    await gone(int(pid.read_text()))
    await conversation.close()


async def test_a_command_in_the_background_is_not_waited_for_and_runs_on(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    os.mkfifo(talk.folder / "gate")
    command = "(read line < gate; echo late; echo $line > done) & echo started"
    await asyncio.wait_for(conversation.submit(f"!{command}"), 60)
    block = conversation.view.transcript.blocks[-1]
    assert isinstance(block, ShellBlock)
    shown = f"! {command}\nstarted"
    assert (block.status, block.text.strip()) == ("done", shown)
    await asyncio.to_thread((talk.folder / "gate").write_text, "go\n")
    done = talk.folder / "done"
    while not (done.exists() and done.read_text() == "go\n"):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    assert block.text.strip() == shown
    await conversation.close()


async def test_all_that_a_command_wrote_before_it_ended_is_shown(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    await conversation.submit("!sleep 30 & pid=$!; seq 1 11000; kill $pid; echo end")
    block = conversation.view.transcript.blocks[-1]
    assert isinstance(block, ShellBlock)
    assert block.text.split()[-1] == "end"
    assert "5000" in block.text
    await conversation.close()


async def test_the_output_of_a_command_is_bounded_and_its_secrets_masked(talk: Talk, monkeypatch: Any) -> None:
    secret = "hunter2-hunter2-hunter2"
    monkeypatch.setenv("DB_PASSWORD", secret)
    stream = scripted(text("ok"))
    conversation = await talk.open(stream)
    await conversation.submit("!echo $DB_PASSWORD; seq 1 200000")
    await conversation.submit("go on")
    await conversation.settled()
    shown = str(stream.requests[0].messages[0].content[0].text)
    assert secret not in shown
    assert secret not in conversation.view.transcript.blocks[-3].text
    assert "characters left out" in shown
    assert len(shown) < 25_000
    assert shown.rstrip().endswith("I ran this myself, for you to see.")
    await conversation.close()


async def test_closing_ends_a_command_that_still_runs(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    running = asyncio.ensure_future(conversation.submit("!trap '' TERM; echo $$ > pid; while :; do sleep 1; done"))
    pid = talk.folder / "pid"
    while not (pid.exists() and pid.read_text().strip()):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    await conversation.close()
    await running
    await gone(int(pid.read_text()))


# -- what is a command ---------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("/model anthropic:x", ("/model", "anthropic:x")),
        ("/help", ("/help", "")),
        ("#help", ("/help", "")),
        ("#load x", ("/resume", "x")),
        ("/save A name", ("/rename", "A name")),
        ("/Help", ("/help", "")),
        ("#model x", ("/model", "x")),
        ("/key secret", ("/key", "secret")),
        ("/wat", ("/wat", "")),
        ("/v2 a b", ("/v2", "a b")),
        ("#v2 is broken", None),
        ("/compact keep\nthe names", ("/compact", "keep\nthe names")),
        ("/usr/bin/env is odd", None),
        ("# A heading", None),
        ("#12 is broken", None),
        (" /model", None),
        ("/", None),
        ("what does /help do", None),
    ],
)
def test_a_path_a_heading_and_a_number_are_not_commands(words: str, found: tuple[str, str] | None) -> None:
    assert command_in(words) == found


async def test_a_wrong_command_names_the_nearest_and_sends_nothing(talk: Talk) -> None:
    stream = scripted(text("x"))
    conversation = await talk.open(stream)
    for wrong, meant in (("/modle x", "/model"), ("#hepl", "/help"), ("/themes", "/theme")):
        await conversation.submit(wrong)
        assert f"did you mean {meant}?" in told(conversation, "error")[-1]
        assert talk.front.given_back[-1] == wrong
    await conversation.submit("/xyzzy is odd", ["picture.png"])
    assert "/help lists them" in told(conversation, "error")[-1]
    assert talk.front.given_back[-1] == "/xyzzy is odd"
    assert stream.requests == []
    await conversation.close()


async def test_a_text_that_begins_with_a_folder_of_this_machine_is_a_prompt(talk: Talk) -> None:
    stream = scripted(text("Delete logs."))
    conversation = await talk.open(stream)
    place = next(name for name in sorted(os.listdir("/")) if command_in(f"/{name}") is not None)
    await conversation.submit(f"/{place} is full, what can I do?")
    await conversation.settled()
    assert stream.requests[0].messages[-1].content[0].text == f"/{place} is full, what can I do?"
    assert talk.front.given_back == []
    await conversation.close()


async def test_help_lists_every_command_and_the_keys(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    await conversation.submit("/help")
    shown = told(conversation)[-1]
    for word in (*[command.name for command in COMMANDS], *[key for key, _ in talk.front.keys]):
        assert word in shown
    await conversation.close()


async def test_commands_of_ones_own_are_sent_and_listed(talk: Talk) -> None:
    place = config_folder() / "commands"
    place.mkdir(parents=True)
    (place / "v2.md").write_text("---\ndescription: Says it again.\n---\nAgain: $ARGUMENTS")
    (place / "quit.md").write_text("not this one")
    (place / "odd.md").symlink_to(place / "v2.md")
    stream = scripted(text("Again."))
    conversation = await talk.open(stream)
    await conversation.submit("/help")
    assert "/v2 [words]" in told(conversation)[-1]
    assert "Says it again." in told(conversation)[-1]
    assert "not this one" not in told(conversation)[-1]
    await conversation.submit("/odd")
    assert "/odd cannot be used: odd.md is a link" in told(conversation, "error")[-1]
    await conversation.submit("/v2 a b")
    await conversation.settled()
    assert stream.requests[0].messages[-1].content[0].text == "Again: a b"
    await conversation.close()


async def test_every_command_is_there() -> None:
    wanted = (
        "/help /clear /info /copy /sessions /rename /keys /key /approve /quit /q /model /thinking /system /reset "
        "/compact /editor /plan /usage /resume /fork /rewind /export /theme"
    )
    assert {command.name for command in COMMANDS} == {
        *wanted.split(),
        "/trust",
        "/answer",
        "/skill",
        "/work",
        "/mcp",
        "/queue",
        "/tasks",
        "/todo",
        "/bindings",
    }  # which is Tab, in lines


async def test_the_small_ones_do_what_they_say(talk: Talk) -> None:
    stream = scripted(text("The answer."), text("From the editor."))
    conversation = await talk.open(stream)
    await conversation.submit("hi")
    await conversation.settled()
    await conversation.submit("/copy")
    assert talk.front.copied == ["The answer."]
    await conversation.submit("/theme")
    assert [(item.key, item.detail) for item in talk.front.picked[-1][1]][:2] == [("dark", "now"), ("light", "")]
    await conversation.submit("/theme light")
    assert talk.front.themes == ["light"]
    await conversation.submit("/theme purple")
    assert "there is no theme 'purple'" in told(conversation, "error")[-1]
    await conversation.submit("/usage")
    assert "together" in told(conversation)[-1]
    await conversation.submit("/info")
    assert "anthropic:claude-sonnet-4-6" in told(conversation)[-1]
    assert str(talk.folder) in told(conversation)[-1]
    talk.front.edits = ["written elsewhere\n", None]
    await conversation.submit("/editor")
    await conversation.settled()
    assert stream.requests[1].messages[-1].content[0].text == "written elsewhere"
    await conversation.submit("/editor")
    assert "nothing was sent" in told(conversation)[-1]
    await conversation.submit("/clear")
    assert list(conversation.view.transcript.blocks) == []
    assert conversation.opened is not None
    assert len(conversation.opened.agent.messages) == 4
    await conversation.submit("/quit")
    assert talk.front.left == [0]
    await conversation.close()


async def test_a_skill_goes_before_the_prompt(talk: Talk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "skilled" / ".agents" / "skills" / "greeting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet.\n---\nSay ahoy.\n")
    monkeypatch.setenv("HOME", str(tmp_path / "skilled"))
    stream = scripted("Ahoy!")
    conversation = await talk.open(stream)
    await conversation.submit("/skill")
    assert "greeting: How to greet." in told(conversation)[-1]
    await conversation.submit("/skill nothing")
    assert "no skill is called" in told(conversation)[-1]
    await conversation.submit("/skill greeting Greet Ada.")
    await conversation.settled()
    [request] = stream.requests
    assert extract_text(request.context.messages[-1].content) == "Say ahoy.\n\nGreet Ada."
    await conversation.close()


async def test_a_command_of_ones_own_is_a_prompt(talk: Talk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own" / "commands").mkdir(parents=True)
    (tmp_path / "own" / "commands" / "review.md").write_text("Review $ARGUMENTS.")
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "own"))
    stream = scripted("Good.")
    conversation = await talk.open(stream)
    await conversation.submit("/review a.py")
    await conversation.settled()
    [request] = stream.requests
    assert extract_text(request.context.messages[-1].content) == "Review a.py."
    await conversation.submit("/revue")
    assert "no command is called /revue" in told(conversation)[-1]
    await conversation.close()
