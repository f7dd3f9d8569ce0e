"""A conversation: how input from a person is handled, and what is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from swink_agent.app.errors import NoModel
from swink_agent.app.talk.conversation import Conversation
from swink_agent.approvals.approvals import ApprovalChoice
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.types import Cost, Usage
from swink_agent.testing import ModelRequest, call, fail, scripted, stall, text, think
from swink_agent.tui.transcript import NoticeBlock, ReplyBlock, ToolBlock, UserBlock
from swink_agent.tui.transcript.messages import HelpBlock

from .conftest import Talk, told


def holding(folder: Path, secret: str) -> list[Path]:
    """The files beneath a folder that hold a secret."""
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def shown(conversation: Conversation) -> list[tuple[str, str]]:
    """The blocks by kind and text, without notices."""
    names = {UserBlock: "user", ReplyBlock: "reply", ToolBlock: "tool"}
    return [
        (names[type(block)], block.summary if isinstance(block, ToolBlock) else block.text)
        for block in conversation.view.transcript.blocks
        if type(block) in names
    ]


async def test_a_prompt_is_answered_and_shown_as_it_streams(talk: Talk) -> None:
    conversation = await talk.open([think("hm"), text("Hello there.", deltas=4)])
    assert conversation.state == "idle"
    await conversation.submit("hi")
    assert conversation.state == "running"
    await conversation.settled()
    assert shown(conversation) == [("user", "hi"), ("reply", "hm\nHello there.")]
    assert (conversation.state, conversation.answer) == ("idle", "Hello there.")
    assert conversation.model == "anthropic:claude-sonnet-4-6"
    await conversation.close()


async def test_the_first_prompt_of_the_command_line_is_sent_at_once(talk: Talk) -> None:
    conversation = await talk.open(text("Done."), prompt="fix it")
    await conversation.settled()
    assert shown(conversation) == [("user", "fix it"), ("reply", "Done.")]
    await conversation.close()


async def test_prompts_sent_before_there_is_an_agent_wait_for_it(talk: Talk) -> None:
    conversation = talk.make(text("Yes."))
    sending = asyncio.ensure_future(conversation.submit("are you there?"))
    await asyncio.sleep(0)
    await conversation.open()
    await sending
    await conversation.settled()
    assert shown(conversation)[-1] == ("reply", "Yes.")
    await conversation.close()


async def test_a_tool_runs_with_the_files_of_the_folder_and_shows_its_block(talk: Talk) -> None:
    (talk.folder / "a.txt").write_text("forty-two\n")
    conversation = await talk.open(call("read_file", path="a.txt"), text("It says forty-two."))
    await conversation.submit("read a.txt")
    await conversation.settled()
    tool = next(block for block in conversation.view.transcript.blocks if isinstance(block, ToolBlock))
    assert (tool.name, tool.summary, tool.status) == ("read_file", "a.txt", "done")
    assert "forty-two" in tool.text
    assert talk.front.questions == []
    assert conversation.view.running == []
    await conversation.close()


async def test_a_task_shows_under_its_call_what_its_delegate_does(talk: Talk) -> None:
    (talk.folder / "a.txt").write_text("forty-two\n")
    progress: list[str] = []
    model = scripted(
        call("task", prompt="Read a.txt."),
        call("read_file", path="a.txt"),
        lambda _: progress.append(shown_rows(conversation)) or text("It says 42."),
        text("Done."),
        usage=Usage(input=1000, total=1000),
        cost=Cost(total=0.01),
    )
    conversation = await talk.open(model)
    await conversation.submit("what does a.txt say?")
    await conversation.settled()
    assert "\u25b8 1 call \u00b7 1.0k tokens \u00b7 $0.0100 \u00b7 thinking" in progress[0]
    tool = next(block for block in conversation.view.transcript.blocks if isinstance(block, ToolBlock))
    assert (tool.name, tool.summary, tool.status) == ("task", "Read a.txt.", "done")
    assert "read_file a.txt" in tool.text
    tool.fold()
    assert "1 call \u00b7 2.0k tokens \u00b7 $0.0200" in shown_rows(conversation)
    assert "read_file" not in shown_rows(conversation)
    tool.toggle()
    opened = shown_rows(conversation)
    assert "\u25be 1 call" in opened
    assert "\u2713 read_file a.txt" in opened
    assert "It says 42." in opened
    assert (conversation.usage.tokens, conversation.usage.cost.amount) == (4000, 0.04)  # those of the delegate too
    await conversation.close()


def shown_rows(conversation: Conversation) -> str:
    """The calls as they are drawn."""
    blocks = [block for block in conversation.view.transcript.blocks if isinstance(block, ToolBlock)]
    return "\n".join("".join(span.text for span in line.spans) for block in blocks for line in block.lines(100))


async def test_a_call_that_needs_approval_is_asked_about_and_a_no_reaches_the_model(talk: Talk) -> None:
    talk.front.answer = ApprovalChoice.NO
    seen: list[str] = []

    def last(request: ModelRequest) -> Any:
        seen.append(str(request.messages[-1]))
        return text("As you wish.")

    conversation = await talk.open(call("write_file", path="b.txt", content="x"), last)
    await conversation.submit("write b.txt")
    await conversation.settled()
    assert [question.request.name for question in talk.front.questions] == ["write_file"]
    assert not (talk.folder / "b.txt").exists()
    tool = next(block for block in conversation.view.transcript.blocks if isinstance(block, ToolBlock))
    assert tool.status == "rejected"
    assert "the user said no" in seen[0]
    await conversation.close()


async def test_a_tool_that_was_trusted_is_not_asked_about_again_in_smart_mode(talk: Talk) -> None:
    talk.front.answer = ApprovalChoice.SESSION_TOOL
    conversation = await talk.open(
        call("write_file", path="one.txt", content="1"),
        call("write_file", path="two.txt", content="2"),
        text("Both are there."),
        call("write_file", path="three.txt", content="3"),
        text("And the third."),
    )
    await conversation.submit("write them")
    await conversation.settled()
    await conversation.submit("/model anthropic:claude-opus-4-6")
    await conversation.submit("one more")
    await conversation.settled()
    assert len(talk.front.questions) == 1
    assert {path.name for path in talk.folder.iterdir()} == {"one.txt", "two.txt", "three.txt"}
    await conversation.close()


async def test_approve_all_asks_nothing_and_ask_asks_for_every_call(talk: Talk) -> None:
    conversation = await talk.open(
        call("write_file", path="one.txt", content="1"), text("ok"), call("bash", command="ls"), text("ok")
    )
    await conversation.submit("/approve all")
    assert conversation.approve == "all"
    await conversation.submit("write")
    await conversation.settled()
    assert talk.front.questions == []
    await conversation.submit("/approve on")
    assert conversation.approve == "ask"
    await conversation.submit("list")
    await conversation.settled()
    assert [question.request.name for question in talk.front.questions] == ["bash"]
    await conversation.submit("/approve perhaps")
    assert told(conversation, "error") == ["/approve takes ask, smart, auto, all or none, not 'perhaps'"]
    await conversation.close()


async def test_a_stop_ends_the_run_within_a_tenth_of_a_second_and_shows_aborted(talk: Talk, promptly: Any) -> None:
    conversation = await talk.open([text("I begin"), stall()], text("Again."))
    await conversation.submit("go")
    while not isinstance(conversation.view.transcript.blocks[-1], ReplyBlock):  # noqa: ASYNC110 - it has one listener
        await asyncio.sleep(0.001)
    with promptly(0.1):
        conversation.stop()
        assert conversation.state == "aborted"
        await conversation.settled()
    assert conversation.state == "aborted"
    await conversation.submit("once more")
    assert conversation.state == "running"
    await conversation.settled()
    assert (conversation.state, conversation.answer) == ("idle", "Again.")
    await conversation.close()


async def test_a_question_that_waits_is_taken_back_by_a_stop(talk: Talk) -> None:
    talk.front.answer = None
    conversation = await talk.open(call("write_file", path="b.txt", content="x"), text("never"))
    await conversation.submit("write")
    await talk.front.asked.wait()
    conversation.stop()
    await conversation.settled()
    assert conversation.state == "aborted"
    assert not (talk.folder / "b.txt").exists()
    await conversation.close()


async def test_a_failure_is_told_and_stays_until_the_next_prompt(talk: Talk) -> None:
    conversation = await talk.open(fail("auth", "no such key"), text("Back."))
    await conversation.submit("hi")
    await conversation.settled()
    assert conversation.state == "error"
    assert told(conversation, "error")[-1].endswith(
        "no such key\nanthropic refused the request: its key came from environment ANTHROPIC_API_KEY; "
        "/key anthropic stores another"
    )
    assert talk.front.brought_back == ["hi"]
    await conversation.submit("hi again")
    await conversation.settled()
    assert (conversation.state, conversation.answer) == ("idle", "Back.")
    await conversation.close()


async def test_turns_have_no_limit_for_a_person_unless_one_is_set(talk: Talk) -> None:
    (talk.folder / "a.txt").write_text("x\n" * 100)
    turns = [[call("read_file", path="a.txt", offset=number + 1, limit=1)] for number in range(60)]
    conversation = await talk.open(*turns, text("Done."))
    await conversation.submit("go")
    await conversation.settled()
    assert (conversation.state, conversation.answer) == ("idle", "Done.")
    await conversation.close()
    conversation = await talk.open(*turns, text("Done."), max_turns=3)
    await conversation.submit("go")
    await conversation.settled()
    assert conversation.answer != "Done."
    await conversation.close()


async def test_tokens_cost_and_the_fill_of_the_window_add_up(talk: Talk) -> None:
    stream = scripted(text("one"), text("two"), usage=Usage(10, 5, total=15), cost=Cost(total=0.25))
    conversation = await talk.open(stream)
    fill = conversation.usage.fill
    assert 0 < fill < 0.05
    await conversation.submit("first")
    await conversation.settled()
    await conversation.submit("second " * 3000)
    await conversation.settled()
    assert (conversation.usage.tokens, conversation.usage.dollars) == (30, 0.5)
    assert conversation.usage.fill - fill > 7 * 3000 / 3 / 1_000_000
    await conversation.close()


async def test_an_attempt_that_was_repeated_counts_too(talk: Talk) -> None:
    failed = fail("throttled", retry_after=0.01, usage=Usage(100, 50, total=150))
    conversation = await talk.open(scripted(failed, text("two"), usage=Usage(10, 5, total=15)))
    await conversation.submit("go")
    await conversation.settled()
    assert conversation.usage.tokens == 165
    assert any("attempt 1 failed" in text for text in told(conversation, "warning"))
    await conversation.close()


async def test_a_secret_in_a_prompt_is_masked_before_it_is_sent_or_kept(talk: Talk, tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    stream = scripted(text("ok"))
    conversation = await talk.open(stream)
    await conversation.submit(f"why does {secret} not work?")
    await conversation.settled()
    await conversation.close()
    assert secret not in str(stream.requests[0].messages[0].content)
    assert all(secret not in block.text for block in conversation.view.transcript.blocks)
    assert any("masked before the prompt was stored or sent" in text for text in told(conversation, "warning"))
    assert not holding(tmp_path, secret)


async def test_a_prompt_without_a_model_comes_back_with_what_to_do(talk: Talk, monkeypatch: Any) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setattr("swink_agent.app.agent.models.has_local_extra", lambda: False)
    conversation = talk.make(model=None)
    monkeypatch.setattr("swink_agent.app.agent.models.choose_model.__kwdefaults__", {"has_local": lambda: False})
    await conversation.open()
    assert conversation.state == "error"
    assert "there is no model to use" in told(conversation, "error")[0]
    await conversation.submit("hello?")
    assert talk.front.given_back == ["hello?"]
    await conversation.submit("/usage")
    assert ("no model yet" in told(conversation)[-1], "of 1 tokens" in told(conversation)[-1]) == (True, False)
    await conversation.close()


async def test_the_library_s_warnings_become_notices(talk: Talk) -> None:
    import logging

    conversation = await talk.open(text("x"))
    logging.getLogger("swink_agent").warning("the disk is slow")
    await asyncio.sleep(0)
    assert told(conversation, "warning")[-1] == "the disk is slow"
    await conversation.close()
    logging.getLogger("swink_agent").warning("and this is for nobody")
    await asyncio.sleep(0)
    assert told(conversation, "warning")[-1] == "the disk is slow"


async def test_a_picture_goes_with_a_prompt_and_an_invalid_one_stops_it(talk: Talk) -> None:
    good, bad = talk.folder / "a.png", talk.folder / "b.png"
    good.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    bad.write_text("no picture")
    stream = scripted(text("A picture."))
    conversation = await talk.open(stream)
    await conversation.submit("look", [str(bad)])
    assert "is not a picture of a kind that models accept" in told(conversation, "error")[0]
    assert talk.front.given_back == ["look"]
    await conversation.submit("look", [str(good)])
    await conversation.settled()
    assert [type(part).__name__ for part in stream.requests[0].messages[0].content] == ["Text", "Image"]
    block = next(block for block in conversation.view.transcript.blocks if isinstance(block, UserBlock))
    assert (block.text, tuple(block.images), block.position) == ("look", (str(good),), 0)
    await conversation.close()


async def test_a_picture_of_the_command_line_returns_with_an_unsent_prompt(
    talk: Talk,
) -> None:
    picture = talk.folder / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    conversation = await talk.open(scripted(text("A picture.")), images=(str(picture),))
    assert conversation.opened is not None

    def fetch(_: CancellationToken) -> None:
        raise NoModel("the hub cannot be reached")

    conversation.opened.made.prepare = fetch
    await conversation.submit("look")
    await conversation.settled()
    block = next(block for block in conversation.view.transcript.blocks if isinstance(block, UserBlock))
    assert tuple(block.images) == (str(picture),)
    assert (talk.front.given_back, talk.front.pictures_back) == (["look"], [str(picture)])
    await conversation.close()


async def test_a_pdf_is_attached_by_its_path_and_by_a_mention(talk: Talk) -> None:
    for name in ("a.pdf", "my report.pdf"):
        (talk.folder / name).write_bytes(b"%PDF-1.4\n")
    stream = scripted(text("Two."))
    conversation = await talk.open(stream)
    path = str(talk.folder / "a.pdf")
    await conversation.submit('compare @a.pdf with @"my report.pdf", not me@b.pdf or @none.pdf', [path])
    await conversation.settled()
    content = stream.requests[0].messages[0].content
    assert [getattr(part, "name", "text") for part in content] == ["text", "a.pdf", "my report.pdf"]
    block = next(block for block in conversation.view.transcript.blocks if isinstance(block, UserBlock))
    assert tuple(block.images) == (path, "my report.pdf")
    await conversation.close()


async def test_a_document_for_a_model_that_takes_none_is_not_sent(talk: Talk) -> None:
    (talk.folder / "a.pdf").write_bytes(b"%PDF-1.4\n")
    stream = scripted(text("Hello."))
    conversation = await talk.open(stream, model="mistral:mistral-medium-latest")
    await conversation.submit("look at @a.pdf")
    assert told(conversation, "error")[-1].startswith("mistral:mistral-medium-latest takes no documents: leave the doc")
    assert talk.front.given_back == ["look at @a.pdf"]
    await conversation.submit("hello")
    await conversation.settled()
    assert len(stream.requests) == 1
    await conversation.close()


async def test_it_says_hello_with_the_model_and_how_to_get_help(talk: Talk) -> None:
    conversation = await talk.open(text("x"))
    welcome = conversation.view.transcript.blocks[0]
    assert isinstance(welcome, NoticeBlock)
    assert welcome.kind == "welcome"
    assert "anthropic:claude-sonnet-4-6" in welcome.text
    assert "/help" in welcome.text
    await conversation.close()


async def test_requests_before_the_agent_is_there_stay_in_sight(talk: Talk) -> None:
    conversation = talk.make(text("x"))
    await conversation.submit("/help")
    await conversation.open()
    assert [isinstance(block, HelpBlock) for block in conversation.view.transcript.blocks] == [False, True]
    await conversation.close()


async def test_a_folder_is_trusted_after_its_files_were_shown(talk: Talk) -> None:
    (talk.folder / ".swink").mkdir()
    (talk.folder / ".swink" / "config.toml").write_text('thinking = "low"\nallow = ["bash: rm *"]\n')
    conversation = await talk.open(text("hi"))
    assert "/trust shows it and asks" in "\n".join(told(conversation))
    talk.front.confirmations = ["no"]
    await conversation.submit("/trust")
    assert '│ thinking = "low"' in told(conversation)[-2]
    assert "a project may not set allow" in told(conversation)[-2]
    assert told(conversation)[-1] == "nothing was changed"
    assert conversation.opening.settings.value("thinking") == "off"
    talk.front.confirmations = ["yes"]
    await conversation.submit("/trust")
    assert told(conversation)[-1].endswith("is trusted, and its files are used from now on")
    assert conversation.opening.settings.value("thinking") == "low"
    await conversation.submit("/trust")
    assert told(conversation)[-1].startswith("there is nothing to trust")
    await conversation.close()
