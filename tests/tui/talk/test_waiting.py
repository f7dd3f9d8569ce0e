"""Sessions with calls that wait for an answer: the questions when one is opened, and how it continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swink_agent import Agent, Defer, ToolResultMessage, tool
from swink_agent.app.talk.conversation import Conversation
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, reply, scripted, text
from swink_agent.tools import standard_tools
from swink_agent.tui.transcript import ToolBlock

from .conftest import MODEL, Talk, told


@tool(external=True)
def ship(order: int) -> str:
    """Ships an order."""
    raise AssertionError


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refunds an order."""
    raise AssertionError


def write(name: str) -> Any:
    return call("write_file", path=name, content=f"{name}\n")


def application(talk: Talk, tmp_path: Path, *calls: Any) -> tuple[str, list[str]]:
    """Runs an application that lets every call wait; returns the session and the ids of the calls."""
    files = [one for one in standard_tools(talk.folder, "off") if one.name == "write_file"]
    agent = Agent(
        MODEL,
        tools=[*files, ship, refund],
        stream_fn=scripted(reply(*calls)),
        approve=lambda _: Defer("the office decides"),
    )
    with JsonlSessionStore(tmp_path / "data" / "sessions").create(talk.folder) as session:
        session.attach(agent)
        result = agent.prompt_sync("Do it.")
    return session.id, [one.call_id for one in result.pending]


class Answering:
    """A front end that answers each question with the next of these."""

    def __init__(self, talk: Talk, *answers: ApprovalAnswer | ApprovalChoice | Defer) -> None:
        self.places: list[tuple[int, int]] = []
        self._talk = talk
        self._answers = list(answers)
        self.conversation: Conversation | None = None
        talk.front.ask = self.ask  # type: ignore[method-assign]

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        self._talk.front.questions.append(question)
        assert self.conversation is not None
        self.places.append(self.conversation.place_of(question.request.call_id))
        answer = self._answers.pop(0)
        return ApprovalAnswer(answer) if isinstance(answer, ApprovalChoice) else answer

    async def open(self, *replies: Any, **chosen: Any) -> Conversation:
        self.conversation = self._talk.make(*replies, **chosen)
        await self.conversation.open()
        await self.conversation.settled()
        return self.conversation


def outcomes(conversation: Conversation) -> list[str]:
    assert conversation.opened is not None
    messages = conversation.opened.agent.messages
    return [message.outcome.value for message in messages if isinstance(message, ToolResultMessage)]


def statuses(conversation: Conversation) -> list[tuple[str, bool]]:
    blocks = [block for block in conversation.view.transcript.blocks if isinstance(block, ToolBlock)]
    return [(block.status, block.is_pending) for block in blocks]


async def test_waiting_calls_are_asked_about_in_turn_and_the_answers_continue(talk: Talk, tmp_path: Path) -> None:
    session, ids = application(talk, tmp_path, write("a.txt"), write("b.txt"), write("c.txt"))
    no = ApprovalAnswer(ApprovalChoice.NO, "the user said no, because not that one")
    front = Answering(talk, ApprovalChoice.ONCE, no, ApprovalChoice.ONCE)
    conversation = await front.open(text("Two of three."), resume=session)
    assert front.places == [(1, 3), (2, 3), (3, 3)]
    asked = talk.front.questions
    assert [(question.request.call_id, question.why, question.can_wait) for question in asked] == [
        (call_id, "the office decides", True) for call_id in ids
    ]
    assert asked[0].details is not None, "a write is shown as a change"
    assert outcomes(conversation) == ["ran", "rejected", "ran"]
    assert (conversation.answer, conversation.state) == ("Two of three.", "idle")
    assert [(talk.folder / name).exists() for name in ("a.txt", "b.txt", "c.txt")] == [True, False, True]
    assert statuses(conversation) == [("done", False), ("rejected", False), ("done", False)], "in their places"
    assert told(conversation) == []
    await conversation.close()


async def test_postponed_questions_wait_until_they_are_asked_again(talk: Talk, tmp_path: Path) -> None:
    session, (first, _) = application(talk, tmp_path, write("a.txt"), write("b.txt"))
    front = Answering(talk, Defer(), ApprovalChoice.ONCE, ApprovalChoice.ONCE)
    conversation = await front.open(text("Both."), resume=session)
    assert outcomes(conversation) == ["pending", "ran"]
    assert statuses(conversation) == [("asking", True), ("done", False)]
    assert told(conversation) == [
        "a call waits for an answer; a new prompt rejects all calls that wait:\n"
        f"{first}: write_file a.txt (waits for an approval: the office decides); /answer asks about it"
    ]
    await conversation.submit("/answer")
    await conversation.settled()
    assert front.places == [(1, 2), (2, 2), (1, 1)]
    assert (outcomes(conversation), conversation.answer) == (["ran", "ran"], "Both.")
    await conversation.submit("/answer")
    assert told(conversation)[-1] == "no call waits for an answer"
    await conversation.close()


async def test_calls_that_cannot_be_approved_here_are_named_and_not_asked(talk: Talk, tmp_path: Path) -> None:
    session, (outside, foreign) = application(talk, tmp_path, call("ship", order=7), call("refund", order=8))
    conversation = await Answering(talk).open(text("x"), resume=session)
    assert talk.front.questions == []
    assert told(conversation) == [
        "2 calls wait for an answer; a new prompt rejects all calls that wait:\n"
        f"{outside}: ship order=7 (waits for its result from outside); it runs outside: its application gives the "
        "result with `agent.resume`\n"
        f"{foreign}: refund order=8 (waits for an approval: the office decides); there is no tool refund here: its "
        "application continues the session with `agent.resume`"
    ]
    assert outcomes(conversation) == ["pending", "pending"]
    await conversation.close()


async def test_a_prompt_goes_on_without_an_answer_and_says_so(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"))
    conversation = await Answering(talk, Defer()).open(text("As you like."), resume=session)
    await conversation.submit("never mind")
    await conversation.settled()
    assert told(conversation)[-1] == (
        "the call that waited is rejected, because the conversation continues without an answer"
    )
    assert (outcomes(conversation), conversation.answer) == (["rejected"], "As you like.")
    assert statuses(conversation) == [("rejected", False)]
    await conversation.close()


async def test_a_stop_while_it_asks_changes_nothing(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"), write("b.txt"))
    talk.front.answer = None
    conversation = await talk.open(text("x"), resume=session)
    await talk.front.asked.wait()
    conversation.stop()
    await conversation.settled()
    assert (outcomes(conversation), conversation.state) == (["pending", "pending"], "aborted")
    assert told(conversation)[0].startswith("2 calls wait for an answer")
    await conversation.close()


async def test_a_program_that_ends_while_it_asks_leaves_them_waiting(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"))
    talk.front.answer = None
    conversation = await talk.open(text("x"), resume=session)
    await talk.front.asked.wait()
    await conversation.close()
    assert JsonlSessionStore(tmp_path / "data" / "sessions").load(session).info.pending == 1


async def test_a_session_that_is_resumed_in_a_conversation_is_asked_about_too(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"))
    front = Answering(talk, ApprovalChoice.ONCE)
    conversation = await front.open(text("Done."))
    await conversation.submit(f"/resume {session}")
    await conversation.settled()
    assert (outcomes(conversation), conversation.answer) == (["ran"], "Done.")
    await conversation.close()


async def test_calls_that_may_not_run_here_are_not_asked_about_and_wait(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"))
    for flags in ({"deny": ["write_file: a.txt"]}, {"approve": "none"}):
        conversation = await Answering(talk).open(text("x"), resume=session, **flags)
        assert (talk.front.questions, outcomes(conversation)) == ([], ["pending"])
        assert "; it cannot be approved here: " in told(conversation)[-1]
        await conversation.close()


async def test_calls_that_need_no_question_otherwise_are_asked_about(talk: Talk, tmp_path: Path) -> None:
    session, _ = application(talk, tmp_path, write("a.txt"))
    front = Answering(talk, ApprovalChoice.ONCE)
    conversation = await front.open(text("Done."), resume=session, approve="all")
    assert (len(talk.front.questions), outcomes(conversation)) == (1, ["ran"])
    await conversation.close()
