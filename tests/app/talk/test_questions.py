"""A question as data, and what each choice answers."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.answers import SAID_NO
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.core.approval import Defer, ProposedCall
from swink_agent.tui.inline import answer_rows

OLD = "".join([f"line {number}\n" for number in range(30)])
NEW = OLD.replace("line 2\n", "two\n").replace("line 25\n", "twenty-five\n")


def asked(name: str = "write_file", *, command: str | None = None, **more: Any) -> AskedQuestion:
    arguments = {"command": "npm test"} if command else {"path": "a.txt", "content": NEW}
    details = None if command else {"path": "a.txt", "old": OLD, "new": NEW, "is_new": False}
    request = ProposedCall("c1", name, arguments)
    return AskedQuestion(
        ApprovalQuestion(request=request, display=name, why="it writes", command=command, details=details, **more)
    )


def test_a_change_is_lines_and_parts() -> None:
    question = asked()
    assert question.view.title == "write_file a.txt"
    kinds = [line.kind for line in question.view.lines]
    assert (kinds.count("added"), kinds.count("removed"), kinds.count("hunk")) == (2, 2, 2)
    assert question.hunks is not None
    assert len(question.hunks.hunks) == 2
    assert [answer.means for answer in question.answers] == ["once", "session_tool", "no", "because", "hunks", "keep"]


@pytest.mark.parametrize(("command", "prefix"), [(None, None), ("npm test", "npm"), ("npm test", None)])
def test_every_front_end_offers_the_same_answers(command: str | None, prefix: str | None) -> None:
    question = asked(command=command, prefix=prefix)
    means = {answer.means for answer in question.answers}
    in_lines = [row.split(":")[0].split() for row in answer_rows(question)]
    # On one line and line by line, a change is accepted as a whole.
    for number, _, letter in in_lines:
        answer = question.named(letter)
        assert answer is not None
        assert answer == question.named(number)
        assert question.view.named(letter) == question.view.named(number) == answer.means
    assert {question.view.named(letter) for _, _, letter in in_lines} == means - {"hunks"}
    assert {answer.means for answer in question.view.keys.values()} == means - {"hunks"} | {"view"}
    assert ("session_prefix" in means) == (prefix is not None)


def test_accepted_parts_become_arguments_of_the_call() -> None:
    answer = asked().answer("once", hunks=[1])
    assert isinstance(answer, ApprovalAnswer)
    assert answer.choice is ApprovalChoice.ONCE
    assert answer.arguments == {"path": "a.txt", "content": OLD.replace("line 25\n", "twenty-five\n")}
    assert asked().answer("once", hunks=[0, 1]) == ApprovalAnswer(ApprovalChoice.ONCE)
    none = asked().answer("once", hunks=[])
    assert isinstance(none, ApprovalAnswer)
    assert none.choice is ApprovalChoice.NO


@pytest.mark.parametrize(
    ("choice", "hunks"), [("once", [2]), ("once", [-1]), ("no", [0]), ("always", None), ("later", None), ("?", None)]
)
def test_answers_that_are_not_offered_are_refused(choice: str, hunks: list[int] | None) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        asked().answer(choice, hunks=hunks)


def test_a_command_cannot_be_accepted_in_parts() -> None:
    with pytest.raises(ValueError, match="in parts"):
        asked("bash", command="command", prefix="npm test").answer("once", hunks=[0])


def test_the_words_of_a_no_reach_the_model() -> None:
    assert asked().answer("no", "use yarn") == ApprovalAnswer(ApprovalChoice.NO, f"{SAID_NO}, because use yarn")
    assert asked().answer("no") == ApprovalAnswer(ApprovalChoice.NO, SAID_NO)


def test_keeping_a_rule_trusts_for_the_session_too() -> None:
    question = asked("bash", command="command", prefix="npm test")
    assert question.rule == "bash: npm test *"
    assert question.answer("keep") == ApprovalAnswer(ApprovalChoice.SESSION_PREFIX)
    assert asked(can_wait=True).answer("later") == Defer()
