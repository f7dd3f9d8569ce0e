"""Which calls the user is asked about: the first mode, the order of Shift+Tab, and the question for a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.trust.folder_rules import WorkedFolders
from swink_agent.sandbox import probe_backends
from swink_agent.testing import call, scripted, text
from swink_agent.tui.transcript.messages import ChoiceBlock

from .conftest import Talk, told


@pytest.fixture(scope="module")
def confined() -> None:
    if not any(report.works for report in probe_backends()):
        pytest.skip("no sandbox works on this machine")


def welcome(conversation: Conversation) -> str:
    return "\n".join([block.text for block in conversation.view.transcript.blocks])


def choices(conversation: Conversation) -> list[ChoiceBlock]:
    return [block for block in conversation.view.transcript.blocks if isinstance(block, ChoiceBlock)]


@pytest.mark.usefixtures("confined")
async def test_the_folder_is_asked_about_once_and_a_yes_is_kept(talk: Talk) -> None:
    stream = scripted(call("bash", command="echo 1 > made"), text("ok"))
    conversation = await talk.open(stream)
    assert conversation.approve == "smart"
    assert "approvals are smart: you have not yet allowed commands and edits to run unasked" in welcome(conversation)
    conversation.modes.offer_work(("F7", "F8"))
    [block] = choices(conversation)
    assert block.text.splitlines()[0] == "Run commands and edits in this folder without asking?"
    block.toggle(1)
    await conversation.settled()
    assert conversation.approve == "auto"
    assert WorkedFolders().answer(talk.folder) is True
    block.toggle(2)  # an answered question is not answered again
    await conversation.submit("go")
    await conversation.settled()
    assert talk.front.questions == []
    assert (talk.folder / "made").read_text() == "1\n"
    assert conversation.approve == "auto"
    await conversation.close()

    again = await talk.open(text("ok"))
    assert again.approve == "auto"
    assert "approvals are auto: commands and edits in this folder run unasked in the sandbox" in welcome(again)
    again.modes.offer_work(("F7", "F8"))
    assert choices(again) == []
    await again.close()


async def test_the_status_promises_nothing_until_the_folder_was_looked_at(talk: Talk) -> None:
    assert talk.make(text("ok")).approve == "smart"
    assert talk.make(text("ok"), approve="auto").approve == "auto"
    assert talk.make(text("ok"), approve="ask").approve == "ask"


@pytest.mark.usefixtures("confined")
async def test_a_no_is_kept_too(talk: Talk) -> None:
    conversation = await talk.open(text("ok"))
    conversation.modes.offer_work()
    assert told(conversation)[-1] == (
        "Run commands and edits in this folder without asking?\n"
        "/work yes: in the sandbox, and /rewind undoes them; stored for this folder\n"
        "/work no: you are asked about them; stored for this folder"
    )
    await conversation.submit("/work no")
    assert conversation.approve == "smart"
    await conversation.close()
    again = await talk.open(text("ok"))
    again.modes.offer_work()
    assert told(again) == []
    assert "you chose to be asked in this folder" in welcome(again)
    await again.submit("/work")
    assert told(again)[-1].startswith("you have not allowed commands and edits to run unasked in ")
    await again.submit("/work perhaps")
    assert told(again, "error") == ["/work takes yes or no, not 'perhaps'"]
    await again.close()


async def test_where_nothing_confines_commands_nothing_is_asked_and_it_is_told(talk: Talk) -> None:
    WorkedFolders().keep(talk.folder, True)
    conversation = await talk.open(call("bash", command="touch made"), text("ok"), sandbox="off")
    conversation.modes.offer_work()
    assert conversation.approve == "smart"
    assert "approvals are smart: nothing confines commands (sandbox = off)" in welcome(conversation)
    conversation.modes.cycle()
    conversation.modes.cycle()
    conversation.modes.cycle()
    assert (conversation.mode, conversation.approve) == ("Execute", "smart")
    assert told(conversation)[-1] == (
        "approvals are smart: harmless calls run without a question; you are asked about others; auto is not "
        "possible here, because nothing confines commands (sandbox = off)"
    )
    await conversation.submit("/approve auto")
    assert told(conversation)[-1] == (
        "approvals are auto, but you are still asked about commands, because nothing confines commands (sandbox = off)"
    )
    await conversation.submit("go")
    await conversation.settled()
    assert [question.request.name for question in talk.front.questions] == ["bash"]
    await conversation.close()


@pytest.mark.usefixtures("confined")
async def test_shift_tab_leads_from_ask_to_auto_to_plan(talk: Talk) -> None:
    conversation = await talk.open(text("1. Do it."), text("x"))
    seen: list[tuple[str, str]] = []
    for _ in range(5):
        conversation.modes.cycle()
        seen.append((conversation.mode, conversation.approve))
    assert seen == [("Plan", "smart"), ("Execute", "ask"), ("Execute", "auto"), ("Plan", "auto"), ("Execute", "ask")]
    assert WorkedFolders().answer(talk.folder) is None, "the keys are for this session"
    conversation.modes.cycle()
    conversation.modes.cycle()
    await conversation.submit("plan")
    await conversation.settled()
    talk.front.confirmations = ["no"]
    conversation.modes.cycle()
    await conversation.settled()
    assert talk.front.confirmed == ["Carry out this plan?"]
    assert (conversation.mode, conversation.approve) == ("Execute", "ask")
    await conversation.close()


@pytest.mark.parametrize("approve", ["all", "none"])
async def test_a_mode_that_is_not_in_the_order_comes_back_after_a_plan(talk: Talk, approve: str) -> None:
    conversation = await talk.open(text("x"), approve=approve)
    conversation.modes.cycle()
    assert conversation.mode == "Plan"
    conversation.modes.cycle()
    assert (conversation.mode, conversation.approve) == ("Execute", approve)
    await conversation.close()


@pytest.mark.usefixtures("confined")
async def test_during_a_run_the_keys_change_only_who_is_asked(talk: Talk) -> None:
    talk.front.answer = None
    conversation = await talk.open(call("bash", command="touch made"), text("ok"), approve="ask")
    await conversation.submit("go")
    async with asyncio.timeout(60):
        await talk.front.asked.wait()
    seen: list[tuple[str, str]] = []
    for _ in range(2):
        conversation.modes.cycle()
        seen.append((conversation.mode, conversation.approve))
    assert seen == [("Execute", "auto"), ("Execute", "ask")]
    conversation.stop()
    await conversation.settled()
    await conversation.close()


async def test_the_branch_is_known_and_looked_at_again_after_a_run(talk: Talk) -> None:
    git = talk.folder / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")

    def switch(_: Any) -> Any:
        (git / "HEAD").write_text("ref: refs/heads/other\n")
        return text("ok")

    conversation = await talk.open(switch)
    assert conversation.branch == "main"
    await conversation.submit("go")
    await conversation.settled()
    assert conversation.branch == "other"
    await conversation.close()


def test_an_answer_holds_beneath_but_not_in_another_repository(tmp_path: Path) -> None:
    folders = WorkedFolders(tmp_path / "folders.json")
    work = tmp_path / "work"
    for place in ("src/deep", "vendor/lib/.git", "vendor/lib/src", "private"):
        (work / place).mkdir(parents=True)
    assert folders.keep(work, True)
    assert not folders.keep(work, True)
    folders.keep(work / "private", False)
    (tmp_path / "link").symlink_to(work)
    said = {
        str(place.relative_to(tmp_path)): folders.answer(place)
        for place in (
            *(work, work / "src/deep", work / "vendor", work / "vendor/lib", work / "vendor/lib/src"),
            *(work / "private", tmp_path, tmp_path / "link"),
        )
    }
    assert said == {
        "work": True,
        "work/src/deep": True,
        "work/vendor": True,
        "work/vendor/lib": None,
        "work/vendor/lib/src": None,
        "work/private": False,
        ".": None,
        "link": True,
    }
    assert (tmp_path / "folders.json").stat().st_mode & 0o777 == 0o600
    assert folders.keep(work, None)
    assert folders.answer(work) is None
