"""A question as rows that are made on demand: the same rows as all at once, and nothing left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import ProposedCall
from swink_agent.approvals.answers import ANSWER_KEYS, offered_answers, reason_for
from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.question import QuestionView, hunk_rows
from swink_agent.rendering.cells import cell_width

FOREIGN = st.text(alphabet="ab1 \n\t│◆…\u202e\x1b漢e\u0301", max_size=300)


def question(arguments: dict[str, Any], **more: Any) -> ApprovalQuestion:
    return ApprovalQuestion(
        request=ProposedCall("1", "bash", arguments), display="", why="it runs", command="command", **more
    )


@settings(max_examples=100)
@given(FOREIGN, st.integers(12, 120), st.integers(1, 40))
def test_rows_one_by_one_are_the_rows_all_at_once(text: str, width: int, times: int) -> None:
    view = QuestionView(question({"command": text * times}))
    every = view.all_rows(width)
    title = view.title_rows(width, 20)
    assert [*title, *view.content_rows(width)] == every[: len(every)]
    assert all(cell_width(row.text) <= width for row in view.content_rows(width))


@pytest.mark.sweep
def test_the_beginning_of_a_line_without_end_is_there_without_its_end() -> None:
    view = QuestionView(question({"command": "x" * 500_000 + "END"}))
    rows = view.content_rows(80)
    assert next(rows).text == "│ " + "x" * 77
    assert next(rows).text == "│↳ " + "x" * 77
    *_, last = rows
    assert last.text.endswith("END")


def test_secrets_masked_in_the_question_are_masked_in_the_rows() -> None:
    asked = question({"command": "echo sk-secret"})
    masked = msgspec.structs.replace(asked.request, arguments={"command": "echo [masked]"})
    view = QuestionView(msgspec.structs.replace(asked, shown=masked))
    assert [row.text for row in view.content_rows(80)] == ["│ echo [masked]"]


def test_a_hunk_is_made_safe_and_masked() -> None:
    lines = [("hunk", "@@ from line 1 @@"), ("removed", "\x1b[2J"), ("added", "a sk-secret \u202e")]
    rows = [row.text for row in hunk_rows(lines, 60, lambda text: text.replace("sk-secret", "[masked]"))]  # type: ignore[arg-type]
    assert rows == ["│@@ from line 1 @@", "│- \\u{1b}[2J", "│+ a [masked] \\u{202e}"]


@pytest.mark.parametrize("width", [24, 40, 79])
def test_an_offer_on_one_line_shows_all_that_it_would_trust(width: int) -> None:
    asked = question({"command": "git commit -m x"}, prefix="git commit")
    offer = QuestionView(asked).offer(width)
    assert all(cell_width(row) <= width for row in offer)
    told = "".join([row.strip().removeprefix("│ ") for row in offer]).replace(" ", "")
    assert "[k]ept:bash:gitcommit*" in told


def test_a_key_means_one_thing_and_the_answers_that_apply_are_offered() -> None:
    keys = [key for answer in ANSWER_KEYS for key in (answer.number, answer.key) if key]
    assert len(keys) == len(set(keys))
    few = question({"command": "x"}, choices=(ApprovalChoice.ONCE, ApprovalChoice.NO))
    assert [answer.key for answer in offered_answers(few)] == ["y", "n", "b"]
    offered = offered_answers(few, has_hunks=True, has_view=True)
    assert [answer.key for answer in offered] == ["y", "n", "b", "h", "v"]
    assert list(QuestionView(few).keys) == ["y", "n", "b", "v"]
    every = question({"command": "go build"}, prefix="go build")
    assert list(QuestionView(every).keys) == ["y", "n", "b", "t", "p", "v"]
    assert reason_for(" not\x1b now\n") == "the user said no, because not now"
    assert reason_for("\n") == "the user said no"
