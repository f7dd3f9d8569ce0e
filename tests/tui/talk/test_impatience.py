"""A person who sends before the last thing is done: no input is lost, and every run can be stopped."""

from __future__ import annotations

import asyncio

import pytest

from swink_agent.app.talk.queue import Queued
from swink_agent.testing import scripted, stall, text

from .conftest import Talk, told
from .test_queue import Gate, heard, running, said


async def test_two_prompts_sent_while_a_stopped_run_ends_are_both_heard(talk: Talk) -> None:
    stream = scripted(stall(), text("One."), text("Two."))
    conversation = await talk.open(stream)
    await conversation.submit("stop me")
    while not stream.requests:  # noqa: ASYNC110 - the model tells nobody
        await asyncio.sleep(0.005)
    conversation.stop()
    await asyncio.gather(conversation.submit("first"), conversation.submit("second"))
    await conversation.settled()
    assert [words for words, _, _ in said(conversation)] == ["stop me", "first", "second"]
    assert heard(stream.requests[-1])[-2:] == ["first", "second"]
    await conversation.close()


async def test_a_prompt_sent_while_a_new_session_opens_goes_to_that_session(talk: Talk) -> None:
    stream = scripted(text("Old."), text("New."))
    conversation = await talk.open(stream)
    await conversation.submit("in the old one")
    await conversation.settled()
    before = conversation.opened
    resetting = asyncio.ensure_future(conversation.submit("/reset"))
    await asyncio.sleep(0)
    await conversation.submit("in the new one")
    await resetting
    await conversation.settled()
    assert conversation.opened is not None
    assert conversation.opened is not before
    assert heard(stream.requests[1]) == ["in the new one"]
    assert len(conversation.opened.agent.messages) == 2
    await conversation.close()


async def test_two_commands_that_change_the_session_run_one_after_the_other(talk: Talk) -> None:
    conversation = await talk.open(text("Hello."))
    await conversation.submit("hi")
    await conversation.settled()
    assert conversation.opened is not None
    assert conversation.opened.session.info is not None
    first = conversation.opened.session.info.id
    await asyncio.gather(conversation.submit("/fork"), conversation.submit("/reset"))
    await conversation.settled()
    assert told(conversation, "error") == []
    assert conversation.opened is not None
    assert not len(conversation.opened.agent.messages)
    second = await talk.open(resume=first)  # and nothing holds the one before
    assert told(second, "error") == []
    await second.close()
    await conversation.close()


async def test_a_command_sent_with_tab_is_a_command(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("Done."), text("Not asked."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    conversation.queue_follow_up("/key openai not-shaped-like-any-key")
    conversation.queue_follow_up("/quit")
    async with asyncio.timeout(30):
        while not talk.front.left:  # noqa: ASYNC110 - the front has no event
            await asyncio.sleep(0.005)
    assert conversation.queue == ()
    assert talk.front.left == [0]
    gate.open()
    await conversation.settled()
    assert len(stream.requests) == 2
    assert "not-shaped-like-any-key" not in str(conversation.view.transcript.blocks) + str(stream.requests)
    assert any("key of openai" in notice for notice in told(conversation))
    await conversation.close()


async def test_failures_beside_a_run_are_reported(talk: Talk) -> None:
    conversation = await talk.open(text("Hello."))

    async def fail() -> None:
        raise RuntimeError("a mistake")

    conversation.later(fail())
    await conversation.settled()
    assert any("RuntimeError" in notice for notice in told(conversation, "error"))
    await conversation.close()


async def test_output_of_the_shell_goes_with_the_next_prompt_if_this_one_was_stopped(
    talk: Talk,
) -> None:
    stream = scripted(text("Yes."))
    conversation = await talk.open(stream)
    await conversation.submit("!echo from-the-shell")
    await conversation.submit("never mind")
    conversation.stop()
    await conversation.settled()
    await conversation.submit("now then")
    await conversation.settled()
    assert any("from-the-shell" in words for words in heard(stream.requests[-1]))
    await conversation.close()


@pytest.mark.parametrize("line", [" /key openai not-shaped-like-any-key", "\n#KEY openai not-shaped-like-any-key\n"])
async def test_a_line_with_a_key_is_never_a_prompt(talk: Talk, line: str) -> None:
    stream = scripted(text("Never."))
    conversation = await talk.open(stream)
    talk.front.edits = [line]
    await conversation.submit(" " + line)
    await conversation.submit("/editor")
    await conversation.settled()
    assert stream.requests == []
    assert said(conversation) == []
    assert any("/key" in notice for notice in told(conversation, "error"))
    await conversation.close()


async def test_a_message_taken_back_is_not_heard_and_one_that_was_heard_cannot_be(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("One."), text("Two."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    conversation.queue_follow_up("later")
    await asyncio.sleep(0)
    taken: list[Queued | None] = []
    assert conversation.opened is not None
    listening = conversation.opened.agent.subscribe(
        lambda event: taken.append(conversation.take_back()) if type(event).__name__ == "MessagesInjected" else None
    )
    gate.open()
    await conversation.settled()
    listening.unsubscribe()
    assert [words for words, _, _ in said(conversation)] == ["go", "later"]
    assert taken == [None]
    assert conversation.queue == ()
    await conversation.close()
