"""Sessions of a conversation: saved as they happen, resumed, forked, exported, rewound with their files."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.runs.sessions import open_store
from swink_agent.app.talk.conversation import Conversation
from swink_agent.app.talk.first_run import branch_of
from swink_agent.approvals.approvals import ApprovalChoice
from swink_agent.core.types import AssistantMessage, Cost, Usage, UserMessage, extract_text
from swink_agent.memory.log.masking import LineWriter
from swink_agent.testing import call, scripted, stall, text
from swink_agent.tui.transcript import ReplyBlock, ToolBlock, UserBlock

from .conftest import Talk, told


def history(conversation: Conversation) -> list[str]:
    assert conversation.opened is not None
    messages = conversation.opened.agent.messages
    return [extract_text(one.content) for one in messages if isinstance(one, (UserMessage, AssistantMessage))]


def session_id(conversation: Conversation) -> str:
    assert conversation.opened is not None
    info = conversation.opened.session.info
    assert info is not None
    return info.id


async def say(conversation: Conversation, *prompts: str) -> None:
    for prompt in prompts:
        await conversation.submit(prompt)
        await conversation.settled()


async def test_a_conversation_is_a_session_that_goes_on_where_it_was(talk: Talk) -> None:
    conversation = await talk.open(text("Blue."))
    await say(conversation, "your favourite colour?")
    farewell = await conversation.close()
    assert farewell.answer == "Blue."
    assert f"--resume {session_id_of(farewell.resume)}" in farewell.resume
    assert "Blue." in farewell.text
    assert "To continue this session: swink" in farewell.text
    again = await talk.open(text("I said blue."), newest=True)
    blocks = again.view.transcript.blocks
    shown = [block.text for block in blocks if isinstance(block, (UserBlock, ReplyBlock))]
    assert shown == ["your favourite colour?", "Blue."]
    assert again.model == "anthropic:claude-sonnet-4-6"
    assert again.answer == "Blue."
    await say(again, "what did you say?")
    assert history(again) == ["your favourite colour?", "Blue.", "what did you say?", "I said blue."]
    assert await again.close() == await again.close()


def session_id_of(command: str) -> str:
    return command.rpartition(" ")[2]


async def test_a_conversation_in_which_nothing_was_said_leaves_nothing(talk: Talk, tmp_path: Path) -> None:
    conversation = await talk.open(text("x"))
    farewell = await conversation.close()
    assert (farewell.answer, farewell.resume, farewell.text) == ("", "", "")
    assert list((tmp_path / "data" / "sessions").glob("*.jsonl")) == []


async def test_resume_picks_from_a_list_with_a_preview(talk: Talk) -> None:
    first = await talk.open(text("Blue."))
    await say(first, "your favourite colour?")
    wanted = session_id(first)
    await first.close()
    conversation = await talk.open(text("Seven."), text("Blue, as I said."))
    await say(conversation, "your favourite number?")
    left = session_id(conversation)
    talk.front.picks = [wanted]
    await conversation.submit("/resume")
    title, items = talk.front.picked[0]
    assert title == "Continue which session?"
    assert [(item.key, item.label) for item in items] == [(wanted, "your favourite colour?")]
    preview = talk.front.previews[0]
    assert preview is not None
    lines = [line.text for line in await preview(wanted)]
    assert lines == ["> your favourite colour?", "  Blue."]
    assert session_id(conversation) == wanted
    assert history(conversation) == ["your favourite colour?", "Blue."]
    await say(conversation, "again?")
    assert conversation.answer == "Blue, as I said."
    await conversation.submit(f"/resume {left}")
    assert history(conversation) == ["your favourite number?", "Seven."]
    await conversation.submit("/resume nothing-like-it")
    assert "there is no session" in told(conversation, "error")[-1]
    assert session_id(conversation) == left
    await conversation.close()


async def test_the_beginning_of_several_ids_is_not_taken_for_this_session(talk: Talk, tmp_path: Path) -> None:
    conversation = await talk.open(text("Blue."))
    await say(conversation, "colour?")
    own = session_id(conversation)
    elsewhere = tmp_path / "data" / "sessions" / f"{own[:-1]}{'0' if own[-1] != '0' else '1'}.jsonl"
    elsewhere.write_bytes((elsewhere.parent / f"{own}.jsonl").read_bytes().replace(b'"cwd":"', b'"cwd":"/elsewhere'))
    await conversation.submit(f"/resume {own[:8]}")
    assert "is the beginning of 2 sessions" in told(conversation, "error")[-1]
    await conversation.submit(f"/resume {own}")
    assert told(conversation)[-1] == "that session is already open"
    await conversation.submit("/sessions")
    assert f"▸ {own} " in told(conversation)[-1], "so much of it as tells it from those of other folders too"
    await conversation.close()


async def test_a_session_is_named_listed_and_loaded_by_its_name(talk: Talk) -> None:
    conversation = await talk.open(text("Blue."))
    await say(conversation, "colour?")
    named = session_id(conversation)
    await conversation.submit("/rename On colours")
    assert "On colours" in told(conversation)[-1]
    await conversation.submit("/reset")
    assert history(conversation) == []
    assert session_id(conversation) != named
    assert f"/resume {named}" in told(conversation)[-1]
    await conversation.submit("/sessions")
    assert "On colours" in told(conversation)[-1]
    await conversation.submit("/resume on colours")
    assert (session_id(conversation), history(conversation)) == (named, ["colour?", "Blue."])
    await conversation.close()


async def test_a_name_that_cannot_be_written_is_not_said_to_be_saved(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    conversation = await talk.open(text("Blue."))
    await say(conversation, "colour?")
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LineWriter, "write", fails)
        await conversation.submit("/rename On colours")
    assert f"{session_id(conversation)}.jsonl" in told(conversation, "error")[-1]
    assert not any("is saved" in one for one in told(conversation))
    await conversation.close()


async def test_a_listed_session_is_one_row_whatever_its_title(talk: Talk) -> None:
    conversation = await talk.open(text("Blue."))
    await say(conversation, "colour?")
    own = session_id(conversation)
    assert conversation.opened is not None
    conversation.opened.session.rename("On colours\n    20200101-000000     now     2  forged" + " and so on" * 90)
    conversation.opened.session.flush()
    await conversation.submit("/sessions")
    (row,) = told(conversation)[-1].split("\n")
    assert row.startswith(f"▸ {own[:15]}     now     2  On colours⏎")
    assert len(row) < 200
    open_store(conversation.opening.settings).fork(own, 1).close()
    await conversation.submit("/resume")
    assert [item.detail for item in talk.front.picked[0][1]] == ["now, 1 message"]
    await conversation.close()


async def test_a_fork_goes_on_apart_from_its_original(talk: Talk) -> None:
    conversation = await talk.open(text("One."), text("Two."))
    await say(conversation, "first")
    original = session_id(conversation)
    await conversation.submit("/fork")
    assert session_id(conversation) != original
    await say(conversation, "second")
    assert history(conversation) == ["first", "One.", "second", "Two."]
    await conversation.submit(f"/resume {original}")
    assert history(conversation) == ["first", "One."]
    await conversation.close()


async def test_a_hook_for_the_end_of_a_run_continues_in_a_new_session(talk: Talk, tmp_path: Path) -> None:
    begun, go_on, ended = tmp_path / "begun", tmp_path / "go-on", tmp_path / "ended"
    script = f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.01; done; touch {ended}"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(
        f'[hooks.end]\nevent = "run_end"\ncommand = ["/bin/sh", "-c", "{script}"]\n'
    )
    conversation = await talk.open("Done.")
    await say(conversation, "Do it.")
    while not begun.exists():  # noqa: ASYNC110 - files have no events
        await asyncio.sleep(0.01)
    await say(conversation, "/reset")
    go_on.touch()
    await conversation.close()
    assert ended.exists()


async def test_an_export_is_written_once_in_the_format_of_its_name(talk: Talk) -> None:
    conversation = await talk.open(text("Blue."))
    await conversation.submit("/export")
    assert "there is nothing to export" in told(conversation, "error")[-1]
    await say(conversation, "colour?")
    await conversation.submit('/export "my talk.html"')
    page = (talk.folder / "my talk.html").read_text()
    assert "<html" in page
    assert "Blue." in page
    await conversation.submit("/export pdf")
    assert told(conversation, "error")[-1].startswith("there is no format 'pdf': html, markdown, json or atif")
    await conversation.submit("/export json out.txt")
    assert (talk.folder / "out.txt").read_text().lstrip().startswith("{")
    await conversation.submit("/export json out.txt")
    assert "exists already" in told(conversation, "error")[-1]
    await conversation.submit("/export ~nobody-of-this-name/talk.md")
    assert "there is no user of that name" in told(conversation, "error")[-1]
    await conversation.submit("/export")
    assert [path.suffix for path in talk.folder.glob("swink-*")] == [".md"]
    await conversation.close()


async def test_a_model_is_chosen_by_its_alias(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "config.toml").write_text('aliases.big = "anthropic:claude-opus-4-6"\n')
    conversation = await talk.open(text("x"))
    talk.front.picks = ["big"]
    await conversation.submit("/model")
    assert ("big", "alias of anthropic:claude-opus-4-6") in [
        (item.key, item.detail) for item in talk.front.picked[0][1]
    ]
    assert conversation.model == "anthropic:claude-opus-4-6"
    await conversation.submit("/model anthropic:claude-sonnet-4-6")
    await conversation.submit("/model big")
    assert conversation.model == "anthropic:claude-opus-4-6"
    await conversation.submit("/model bigg")
    assert "no model is called 'bigg'; did you mean big?" in told(conversation, "error")[-1]
    await conversation.close()


async def test_another_model_is_asked_in_the_same_session(talk: Talk) -> None:
    stream = scripted(text("One."), text("Two."))
    conversation = await talk.open(stream)
    await say(conversation, "first")
    before = session_id(conversation)
    talk.front.picks = ["anthropic:claude-opus-4-6", "high"]
    await conversation.submit("/model")
    first, *others = talk.front.picked[0][1]
    assert (first.key, first.detail[:4]) == ("anthropic:claude-sonnet-4-6", "now,"), "what is asked now stands first"
    assert first.key not in [item.key for item in others]
    assert conversation.model == "anthropic:claude-opus-4-6"
    await conversation.submit("/thinking")
    await say(conversation, "second")
    asked = stream.requests[1]
    assert (asked.model.model_id, asked.model.thinking_level) == ("claude-opus-4-6", "high")
    assert [type(message).__name__ for message in asked.messages] == ["UserMessage", "AssistantMessage", "UserMessage"]
    assert session_id(conversation) == before
    assert history(conversation) == ["first", "One.", "second", "Two."]
    await conversation.submit("/model no-such-model-at-all")
    assert "no model is called" in told(conversation, "error")[-1]
    assert conversation.model == "anthropic:claude-opus-4-6"
    await conversation.close()


async def test_another_model_without_a_session_keeps_what_was_said(talk: Talk) -> None:
    conversation = await talk.open(text("One."), text("Two."), is_kept=False)
    await say(conversation, "first")
    await conversation.submit("/model anthropic:claude-opus-4-6")
    await say(conversation, "second")
    assert history(conversation) == ["first", "One.", "second", "Two."]
    assert (await conversation.close()).resume == ""


async def test_unrecorded_conversations_continue_without_a_session(talk: Talk) -> None:
    recorded = await talk.open(text("Blue."))
    await say(recorded, "colour?")
    wanted = session_id(recorded)
    await recorded.close()
    conversation = await talk.open(text("One."), is_kept=False)
    await say(conversation, "off the record")
    for command in (f"/resume {wanted}", f"#load {wanted}", "/resume colour?", "/resume"):
        await conversation.submit(command)
        assert told(conversation, "error")[-1].startswith("with --no-session nothing is recorded, but a continued")
    assert talk.front.picked == [], "nobody is asked which one before"
    assert history(conversation) == ["off the record", "One."]
    assert (await conversation.close()).resume == ""


async def test_the_instructions_are_shown_and_replaced(talk: Talk) -> None:
    stream = scripted(text("Arr."))
    conversation = await talk.open(stream)
    await conversation.submit("/system")
    assert "You are Swink" in told(conversation)[-1]
    await conversation.submit("/system Talk like a pirate.")
    await say(conversation, "hi")
    prompt = stream.requests[0].context.system_prompt
    assert prompt.startswith("Talk like a pirate.")
    assert str(talk.folder) in prompt
    await conversation.close()


async def test_a_compaction_sums_up_and_counts_what_it_used(talk: Talk) -> None:
    long = "a long story about nothing at all " * 900
    replies = [text(long), text("ok"), text("Summary: nothing."), text("Still here.")]
    stream = scripted(*replies, usage=Usage(90, 10, total=100), cost=Cost(total=0.25))
    conversation = await talk.open(stream, context_window=30000)
    await say(conversation, "tell me", "and more")
    fill = conversation.usage.fill
    assert (conversation.usage.tokens, conversation.usage.dollars) == (200, 0.5)
    await conversation.submit("/compact keep the names")
    await conversation.settled()
    assert "tokens became" in told(conversation)[-1]
    assert conversation.usage.fill < fill
    assert conversation.state == "idle"
    assert (conversation.usage.tokens, conversation.usage.dollars) == (300, 0.75)
    compacted = session_id(conversation)
    await say(conversation, "/fork")
    paid = "what a fork shares with its original is paid for"
    assert (conversation.usage.tokens, conversation.usage.dollars) == (0, 0.0), paid
    await say(conversation, f"/resume {compacted}")
    assert (conversation.usage.tokens, conversation.usage.dollars) == (300, 0.75)
    await say(conversation, "and now?")
    assert (conversation.usage.tokens, conversation.usage.dollars) == (400, 1.0)
    await conversation.close()


async def test_nothing_is_changed_under_a_run_that_goes_on(talk: Talk) -> None:
    talk.front.answer = None
    conversation = await talk.open(call("write_file", path="x", content="1"))
    await conversation.submit("write")
    await talk.front.asked.wait()
    for command in ("/model xai:grok-4.3", "/reset", "/rewind", "/fork", "/resume", "/compact", "/plan"):
        await conversation.submit(command)
        assert "has to wait: a run is active" in told(conversation)[-1]
    conversation.stop()
    await conversation.settled()
    await conversation.close()


# -- going back ----------------------------------------------------------------------------------------------


def writing(path: str, content: str) -> Any:
    return call("write_file", path=path, content=content)


async def test_a_rewind_brings_back_the_files_and_the_words_of_that_moment(talk: Talk) -> None:
    (talk.folder / "a.txt").write_text("before\n")
    conversation = await talk.open(
        *[writing("b.txt", "first\n"), text("One.")],
        *[[call("read_file", path="a.txt")], writing("a.txt", "changed\n"), writing("b.txt", "second\n"), text("Two.")],
        *[writing("c.txt", "third\n"), text("Three.")],
        text("Another way."),
        approve="all",
    )
    await say(conversation, "first", "second", "third")
    assert (talk.folder / "a.txt").read_text() == "changed\n"
    talk.front.picks = ["4"]
    talk.front.confirmations = ["both"]
    await conversation.submit("/rewind")
    title, items = talk.front.picked[0]
    assert [(item.label, item.detail) for item in items] == [
        ("third", "the last"),
        ("second", "2 back"),
        ("first", "3 back"),
    ]
    assert title == "Back to before which message?"
    assert "changed a.txt, b.txt, c.txt" in talk.front.confirmed[0]
    assert (talk.folder / "a.txt").read_text() == "before\n"
    assert (talk.folder / "b.txt").read_text() == "first\n"
    assert not (talk.folder / "c.txt").exists()
    assert history(conversation) == ["first", "", "One."]
    assert talk.front.given_back == ["second"]
    assert [block.text for block in conversation.view.transcript.blocks if isinstance(block, UserBlock)] == ["first"]
    await say(conversation, "second, otherwise")
    assert conversation.answer == "Another way."
    await conversation.close()
    assert "Three." in (next((talk.folder.parent / "data" / "sessions").glob("*.jsonl"))).read_text()


async def test_a_rewind_takes_back_the_shell_commands_that_it_removes_from_the_screen(talk: Talk) -> None:
    conversation = await talk.open(text("One."), text("Two."))
    await say(conversation, "first")
    await conversation.submit("!echo later")
    talk.front.picks = ["0"]
    await conversation.submit("/rewind")
    await say(conversation, "second")
    assert history(conversation) == ["second", "Two."]
    await conversation.close()


async def test_a_rewind_of_the_words_alone_leaves_the_files(talk: Talk) -> None:
    conversation = await talk.open(writing("a.txt", "one\n"), text("One."), approve="all")
    await say(conversation, "first")
    talk.front.picks = ["0"]
    talk.front.confirmations = ["talk"]
    await conversation.submit("/rewind")
    assert history(conversation) == []
    assert (talk.folder / "a.txt").read_text() == "one\n"
    await conversation.close()


async def test_a_rewind_to_the_first_message_takes_nothing_off_the_record(talk: Talk) -> None:
    conversation = await talk.open(text("Blue."))
    await say(conversation, "your favourite colour?")
    talk.front.picks = ["0"]
    await conversation.submit("/rewind")
    assert history(conversation) == []
    farewell = await conversation.close()
    assert (farewell.answer, farewell.resume) == ("", ""), "there is nothing to go on with"
    (path,) = (talk.folder.parent / "data" / "sessions").glob("*.jsonl")
    assert "Blue." in path.read_text()


async def test_a_file_that_somebody_else_changed_since_is_left_alone(talk: Talk) -> None:
    conversation = await talk.open(writing("a.txt", "one\n"), writing("b.txt", "one\n"), text("One."), approve="all")
    await say(conversation, "first")
    (talk.folder / "a.txt").write_text("by hand\n")
    talk.front.picks = ["0"]
    await conversation.submit("/rewind")
    assert (talk.folder / "a.txt").read_text() == "by hand\n"
    assert not (talk.folder / "b.txt").exists()
    assert any("a.txt was left alone" in text for text in told(conversation, "warning"))
    await conversation.close()


async def test_a_rewind_to_a_steering_message_keeps_what_the_run_did_before_it(talk: Talk) -> None:
    gate = talk.folder / "gate"
    stream = scripted(
        writing("early.txt", "1\n"),
        call("bash", command=f"touch {gate}; sleep 30"),
        writing("late.txt", "2\n"),
        text("Done."),
    )
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    while not gate.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    await conversation.submit("and late.txt")
    await conversation.settled()
    assert (talk.folder / "late.txt").exists()
    steered = next(b.position for b in conversation.view.transcript.blocks if isinstance(b, UserBlock) and b.label)
    talk.front.picks = [str(steered)]
    await conversation.submit("/rewind")
    assert (talk.folder / "early.txt").read_text() == "1\n"
    assert not (talk.folder / "late.txt").exists()
    await conversation.close()


async def test_a_fork_can_go_back_behind_what_the_original_did(talk: Talk) -> None:
    conversation = await talk.open(writing("a.txt", "one\n"), text("One."), approve="all")
    await say(conversation, "first")
    await conversation.submit("/fork")
    talk.front.picks = ["0"]
    await conversation.submit("/rewind")
    assert not (talk.folder / "a.txt").exists()
    assert history(conversation) == []
    await conversation.close()


async def test_a_prompt_that_looks_like_a_shell_command_can_be_gone_back_to(talk: Talk) -> None:
    conversation = await talk.open(text("Hm."))
    await say(conversation, "<user_shell_command>\n$ ls")
    await conversation.close()
    resumed = await talk.open(newest=True)
    talk.front.picks = [None]
    await resumed.submit("/rewind")
    assert [item.label.split() for item in talk.front.picked[-1][1]] == [["<user_shell_command>", "$", "ls"]]
    await resumed.close()


async def test_a_resumed_conversation_shows_calls_and_shell_commands_as_they_were(talk: Talk) -> None:
    (talk.folder / "a.txt").write_text("x\n")
    conversation = await talk.open(call("read_file", path="a.txt"), text("Read."))
    await conversation.submit("!echo hello")
    await say(conversation, "read it")
    await conversation.close()
    again = await talk.open(text("x"), newest=True)
    users = [(block.label, block.text) for block in again.view.transcript.blocks if isinstance(block, UserBlock)]
    assert [label for label, _ in users] == ["from the shell", ""]
    assert "$ echo hello\nhello" in users[0][1]
    tools = [(block.name, block.summary) for block in again.view.transcript.blocks if isinstance(block, ToolBlock)]
    assert tools == [("read_file", "a.txt")]
    talk.front.picks = [None]
    await again.submit("/rewind")
    assert [item.label for item in talk.front.picked[-1][1]] == ["read it"]
    await again.close()


async def test_a_new_session_trusts_nothing_and_keeps_the_model_and_the_mode_of_approval(talk: Talk) -> None:
    talk.front.answer = ApprovalChoice.SESSION_TOOL
    conversation = await talk.open(
        *[writing("a.txt", "1"), text("One."), writing("b.txt", "1"), text("Two.")],
        *[writing("c.txt", "1"), text("Three.")],
    )
    await say(conversation, "first", "second")
    assert len(talk.front.questions) == 1
    await conversation.submit("/model anthropic:claude-opus-4-6")
    await conversation.submit("/reset")
    assert conversation.model == "anthropic:claude-opus-4-6"
    await say(conversation, "third")
    assert len(talk.front.questions) == 2
    await conversation.close()


async def test_a_conversation_that_is_left_before_it_has_opened_leaves_nothing_behind(
    talk: Talk, tmp_path: Path
) -> None:
    conversation = talk.make(text("x"))
    opening = asyncio.ensure_future(conversation.open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert (await conversation.close()).text == ""
    assert list((tmp_path / "data" / "sessions").glob("*.jsonl")) == []


async def test_a_run_that_takes_too_long_is_stopped_and_says_so(talk: Talk) -> None:
    conversation = await talk.open([text("I begin"), stall()], timeout=0.05)
    await say(conversation, "go")
    assert conversation.state == "aborted"
    assert told(conversation, "warning") == ["stopped after 0.05 seconds (--timeout)"]
    await conversation.close()


async def test_totals_go_on_when_a_session_is_resumed_and_turns_are_counted_by_run(talk: Talk) -> None:
    spent = Usage(100, 20, total=120)
    first = await talk.open(scripted(text("One."), usage=spent, cost=Cost(total=0.5)))
    await first.submit("go")
    await first.settled()
    assert (first.usage.tokens, first.usage.dollars, first.usage.turns) == (120, 0.5, 1)
    assert first.opened is not None
    info = first.opened.session.info
    assert info is not None
    await first.close()
    again = await talk.open(scripted(text("Two."), usage=spent, cost=Cost(total=0.25)), resume=info.id)
    assert (again.usage.tokens, again.usage.dollars, again.usage.turns) == (120, 0.5, 0)
    await again.submit("more")
    await again.settled()
    assert (again.usage.tokens, again.usage.dollars, again.usage.turns) == (240, 0.75, 1)
    await again.close()


async def test_the_first_screen_offers_the_last_sessions_until_something_is_said(talk: Talk) -> None:
    ids: list[str] = []
    for number in range(4):
        conversation = await talk.open(text(f"Answer {number}."))
        await say(conversation, f"question {number}")
        ids.append(session_id(conversation))
        await conversation.close()
    conversation = await talk.open(text("New."))
    await conversation.offer_sessions(("F3", "F4", "F5"))
    offered = conversation.view.transcript.blocks[-1]
    rows = offered.text.split("\n")
    assert [row.split()[0] for row in rows[1:]] == ["F3", "F4", "F5"]
    assert [f"question {number}" in row for number, row in zip((3, 2, 1), rows[1:], strict=True)] == [True] * 3
    assert not offered.toggle(0)
    assert offered.toggle(2)
    await conversation.settled()
    assert session_id(conversation) == ids[2]
    conversation.resume_recent(0)
    await conversation.settled()
    assert session_id(conversation) == ids[2], "something has been said in this one"
    await conversation.close()
    fresh = await talk.open(text("New."), is_kept=False)
    count = len(fresh.view.transcript.blocks)
    await fresh.offer_sessions(("F3",))
    assert len(fresh.view.transcript.blocks) == count
    await fresh.close()


async def test_a_list_of_sessions_that_cannot_be_read_is_not_offered(talk: Talk, tmp_path: Path) -> None:
    conversation = await talk.open(text("New."))
    sessions = tmp_path / "data" / "sessions"
    sessions.rename(tmp_path / "elsewhere")
    sessions.write_text("not a folder")
    count = len(conversation.view.transcript.blocks)
    await conversation.offer_sessions(("F3",))
    assert len(conversation.view.transcript.blocks) == count
    sessions.unlink()
    await conversation.close()


def test_the_branch_is_read_from_the_repository_or_worktree(tmp_path: Path) -> None:
    assert branch_of(tmp_path / "none") == ""
    (tmp_path / "repo" / ".git" / "worktrees" / "w").mkdir(parents=True)
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (tmp_path / "repo" / "inner").mkdir()
    assert branch_of(tmp_path / "repo" / "inner") == "feature/x"
    (tmp_path / "repo" / ".git" / "worktrees" / "w" / "HEAD").write_text("ref: refs/heads/w\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {tmp_path}/repo/.git/worktrees/w\n")
    assert branch_of(tmp_path / "w") == "w"
    (tmp_path / "repo" / ".git" / "HEAD").write_text("0123456789abcdef\n")
    assert branch_of(tmp_path / "repo") == ""
