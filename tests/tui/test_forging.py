"""Names, commands and answers of others in our rows: none controls the terminal or breaks a row."""

from __future__ import annotations

import pytest

from swink_agent import ProposedCall
from swink_agent.app.talk.commands.rewind import named
from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.approvals import ApprovalQuestion
from swink_agent.rendering.cells import cell_width
from swink_agent.tui.inline import answer_rows
from swink_agent.tui.status_rows import Activity, Status, activity_lines, status_line
from swink_agent.tui.transcript.line import plain
from tests.edges import TEXTS

HOSTILE = [
    *TEXTS.values(),
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1b[2J\x1b[H Allow this?",
    "\x9b2J",
    "line\nExecute · idle",
    "a\rb",
    "\u202eevil",
    "\udc80",
    "\t" * 9,
    "👨‍👩‍👧‍👦" * 40,
]


def is_harmless(row: str, width: int) -> bool:
    row.encode()
    return not any(part < " " or "\x7f" <= part < "\xa0" or part == "\u202e" for part in row) and (
        cell_width(row) <= width
    )


@pytest.mark.table
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_row_of_a_call_that_runs_holds_nothing_that_obeys(text: str, width: int) -> None:
    for activity in (Activity(text, "x", 2), Activity("bash", text, 2, "out"), Activity("bash", "x" + text, 70)):
        for line in activity_lines([activity], width, 1):
            assert is_harmless(plain(line.spans), max(width, 60))


@pytest.mark.table
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [10, 80, 200])
def test_the_status_bar_holds_nothing_that_obeys(text: str, width: int) -> None:
    status = Status(
        mode="Plan", state="idle", model=text, fill=0, tokens=0, cost=0, elapsed=0, folder=f"/{text}", branch=text
    )
    assert is_harmless(plain(status_line(status, width).spans), width)


@pytest.mark.table
@pytest.mark.parametrize("text", HOSTILE)
def test_an_answer_of_a_question_in_lines_is_one_row(text: str) -> None:
    request = ProposedCall("1", text, {"command": "make"})
    question = ApprovalQuestion(request=request, display="", why="", command="command", prefix=text)
    asked = AskedQuestion(question)
    for row in (*answer_rows(asked), *asked.view.offer(79)):
        assert is_harmless(row, 10_000)


@pytest.mark.table
@pytest.mark.parametrize("text", HOSTILE)
def test_the_files_that_a_rewind_would_change_are_named_in_one_row(text: str) -> None:
    assert is_harmless(named([f"/folder/{text}", "/folder/b"]), 10_000)
