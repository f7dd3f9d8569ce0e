"""Input during a run: steering, follow-ups, taking messages back, and messages that a stop returns."""

from __future__ import annotations

import asyncio
from typing import Any

from swink_agent.app.talk.conversation import Conversation
from swink_agent.testing import ModelRequest, call, scripted, text
from swink_agent.tui.transcript import UserBlock

from .conftest import Talk, told


class Gate:
    """A reply that waits until it is let through, by a command that waits for a file."""

    def __init__(self, talk: Talk) -> None:
        self._file = talk.folder / "go"

    @property
    def reply(self) -> Any:
        return call("bash", command="while [ ! -e go ]; do sleep 0.02; done; echo went")

    def open(self) -> None:
        self._file.touch()


async def running(conversation: Conversation) -> None:
    """Returns when a tool runs."""
    while not conversation.view.running:  # noqa: ASYNC110 - the front is told often
        await asyncio.sleep(0.005)


def said(conversation: Conversation) -> list[tuple[str, str, int | None]]:
    blocks = [block for block in conversation.view.transcript.blocks if isinstance(block, UserBlock)]
    return [(block.text, block.label, block.position) for block in blocks]


def heard(request: ModelRequest) -> list[str]:
    """The texts of what people said, as the model was told."""
    return [
        part.text for message in request.messages if type(message).__name__ == "UserMessage" for part in message.content
    ]


async def test_enter_steers_and_tab_queues_and_each_enters_in_its_turn(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("Steered."), text("Followed."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    conversation.queue_follow_up("and then this")
    await asyncio.sleep(0)
    await conversation.submit("no, look here")
    assert [(queued.kind, queued.text) for queued in conversation.queue] == [
        ("follow_up", "and then this"),
        ("steer", "no, look here"),
    ]
    await conversation.settled()
    assert conversation.queue == ()
    assert said(conversation) == [("go", "", 0), ("no, look here", "steering", 3), ("and then this", "follow-up", 5)]
    assert heard(stream.requests[1])[-1] == "no, look here"
    assert heard(stream.requests[2])[-1] == "and then this"
    assert conversation.opened is not None
    for words, _, position in said(conversation):
        assert position is not None
        assert words in str(conversation.opened.agent.messages[position].content)
    await conversation.close()


async def test_the_newest_is_taken_back_and_the_others_still_come(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("One."), text("Two."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    for words in ("first", "second"):
        conversation.queue_follow_up(words)
        await asyncio.sleep(0)
    taken = conversation.take_back()
    assert taken is not None
    assert taken.text == "second"
    assert [queued.text for queued in conversation.queue] == ["first"]
    gate.open()
    await conversation.settled()
    assert heard(stream.requests[-1])[-1] == "first"
    assert conversation.take_back() is None
    await conversation.close()


async def test_pictures_come_back_with_what_is_taken_back_or_given_back(talk: Talk) -> None:
    picture = talk.folder / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    gate = Gate(talk)
    conversation = await talk.open(scripted(gate.reply, text("Never.")), approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    for words in ("first", "second"):
        await conversation.follow_up(words, [str(picture)])  # which nothing takes before the run would stop
    taken = conversation.take_back()
    assert taken is not None
    assert (taken.text, taken.images) == ("second", (str(picture),))
    conversation.stop()
    await conversation.settled()
    assert (talk.front.given_back, talk.front.pictures_back) == (["first"], [str(picture)])
    await conversation.close()


async def test_a_stop_gives_the_queue_back_and_nothing_of_it_is_sent(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("Never."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    conversation.queue_follow_up("first")
    conversation.queue_follow_up("second")
    await asyncio.sleep(0)
    conversation.stop()
    await conversation.settled()
    assert talk.front.given_back == ["first\n\nsecond"]
    assert (conversation.state, conversation.queue, len(stream.requests)) == ("aborted", (), 1)
    await conversation.close()


async def test_a_follow_up_can_be_written_as_a_command(talk: Talk) -> None:
    gate = Gate(talk)
    stream = scripted(gate.reply, text("Done."), text("Followed."))
    conversation = await talk.open(stream, approve="all", sandbox="off")
    await conversation.submit("go")
    await running(conversation)
    await conversation.submit("/queue and then this")
    await conversation.submit("/queue")
    assert told(conversation, "error") == ["/queue needs a text, which is sent when the run would stop"]
    assert [(queued.kind, queued.text) for queued in conversation.queue] == [("follow_up", "and then this")]
    gate.open()
    await conversation.settled()
    assert heard(stream.requests[-1])[-1] == "and then this"
    await conversation.close()


async def test_messages_queued_when_nothing_runs_are_sent_at_once(talk: Talk) -> None:
    conversation = await talk.open(text("Yes."))
    conversation.queue_follow_up("are you there?")
    await conversation.settled()
    assert conversation.answer == "Yes."
    await conversation.close()
