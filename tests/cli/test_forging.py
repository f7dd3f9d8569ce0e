"""No text of a model, tool, provider or file makes a row that looks like one of ours, at any width."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import AssistantMessage, ProposedCall, Thinking, ToolResultMessage, UserMessage
from swink_agent.app.doctor import Finding
from swink_agent.app.runs.headless import Outcome
from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.display import render_request
from swink_agent.approvals.question import QuestionView
from swink_agent.cli.commands import doctor
from swink_agent.cli.prompt.reporter import Reporter
from swink_agent.cli.screen.screen import Palette, Screen, table
from swink_agent.cli.screen.session_pages import listing, rows_of
from swink_agent.core.events import (
    AgentEvent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import TextDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import ModelSpec, Text, ToolCall
from swink_agent.memory import SessionInfo
from swink_agent.rendering.escaping import display_warnings

from .emulator import Emulator

MARKS = [
    "✓ ",
    "✗ ",
    "  │ ",
    "» ",
    "  ~ ",
    "  ┆ ",
    "error: ",
    "warning: ",
    "note: ",
    "Run it? [y]es",
    "◆ ",
    "│+ ",
    "  … ",
]
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\t", "\x1b[2K", "\x1b[1A", "\x08", "\x9b1A"]
ODD = [
    "日本語",
    "👩\u200d💻",
    "🇫🇷",
    "e\u0301",
    "\u0301",
    "\u200b",
    "\u202e",
    "é",
    "مرحبا",
    "\u3000",
    "ﾊ",
    " " * 30,
    "\ufe0f",
]
FOREIGN = st.lists(st.one_of(st.sampled_from(MARKS + ENDS + ODD), st.text(max_size=12)), max_size=14).map("".join)
WIDTHS = st.integers(12, 200)
TAKEN = "FORGED"
"""Stands behind each mark in a text that tries to pass for ours."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def forging(text: str, width: int) -> str:
    """The text, and then every mark of ours where it would have to stand to begin a row."""
    tries = [f"{end}{' ' * pad}{mark}{TAKEN}" for mark in MARKS for end in ENDS[:8] for pad in (0, width % 7)]
    filled = [f"{'x' * (width - 3 + shift)}{mark}{TAKEN}" for shift, mark in zip(range(6), MARKS, strict=False)]
    wide = [f"{'漢' * (width // 2)}{mark}{TAKEN}" for mark in MARKS]
    return text + "".join([*tries[len(text) % 9 :: 9], *filled, *wide])


def seen(written: str, width: int) -> list[str]:
    """The rows as two kinds of terminals show them. None of them was begun by the terminal."""
    for narrow in (False, True):
        window = Emulator(width, narrow=narrow)
        window.feed(written)
        assert window.wrapped == []
    return window.rows


# -- what a run says -----------------------------------------------------------------------------------------


def said(events: list[AgentEvent], width: int, loudness: Any = "normal", error: str | None = None) -> list[str]:
    stream, ticks = Terminal(), itertools.count()
    screen = Screen(stream, colours=False, width=lambda: width, live=True)
    reporter = Reporter(screen, Redactor([]), loudness, clock=lambda: float(next(ticks)))
    for event in events:
        reporter.on_event(event)
    if error is not None:
        reporter.error(error)
        reporter.warn(error)
        reporter.note(error)
        reporter.finish(Outcome(exit_code=1, model=ModelSpec("a", "b"), error=error))  # type: ignore[arg-type]
    return seen(stream.getvalue(), width)


def run_of(foreign: str) -> list[AgentEvent]:
    call = ToolCall("1", "bash", {"command": foreign})
    message = AssistantMessage([Text(foreign), call])
    failed = AgentToolResult.error(f"{foreign}\n[exit code 1]", {"exit_code": 1})
    return [
        MessageStart(),
        MessageUpdate(delta=TextDelta(0, foreign)),
        MessageEnd(message=message),
        ToolExecutionStart("1", "bash", {"command": foreign}),
        ToolExecutionUpdate("1", "bash", AgentToolResult.text(foreign)),
        ToolExecutionEnd("1", "bash", failed, True),
        ToolExecutionEnd("2", foreign, AgentToolResult.error(foreign), True),
    ]


@settings(max_examples=25)
@given(FOREIGN, WIDTHS, st.sampled_from(["normal", "verbose"]))
def test_every_row_of_a_run_begins_with_a_mark_of_ours(text: str, width: int, loudness: str) -> None:
    foreign = forging(text, width)
    rows = said(run_of(foreign), width, loudness, foreign)
    ours = ("✓ ", "✗ ", "  │", "»", "  ┆", "error:", "warning:", "note:", "a:b:")
    assert all(row.startswith(ours) for row in rows if row), rows
    # Of each kind there are as many rows as there were things to tell.
    assert sum(row.startswith(("✓ ", "✗ ")) for row in rows) == 2
    assert sum(row.startswith("error:") for row in rows) == 2
    assert sum(row.startswith("warning:") for row in rows) == 1
    assert sum(row.startswith("note:") for row in rows) == 1


@pytest.mark.parametrize("width", [12, 21, 80, 133])
@pytest.mark.parametrize(
    "joined", ["👩\u200d" * 300, "👩🏽\u200d" * 80, "☺\ufe0f\u200d" * 90, "👩\u200d👩\u200d👧\u200d👦" * 9]
)
@pytest.mark.table
def test_emoji_that_are_joined_without_end_do_not_fill_a_row(joined: str, width: int) -> None:
    foreign = f"{joined}👩✓ {TAKEN}\n{joined}👩error: {TAKEN}"
    rows = said(run_of(foreign), width, "verbose", foreign)
    assert sum(row.startswith(("✓ ", "✗ ")) for row in rows) == 2
    assert sum(row.startswith("error:") for row in rows) == 2


# -- what is asked -------------------------------------------------------------------------------------------


USUAL_CHOICES = (
    ApprovalChoice.ONCE,
    ApprovalChoice.SESSION_TOOL,
    ApprovalChoice.SESSION_PREFIX,
    ApprovalChoice.NO,
)


def question_about(request: ProposedCall, foreign: str, details: dict[str, Any] | None) -> ApprovalQuestion:
    return ApprovalQuestion(
        request=request,
        display=render_request(request, details=details),
        why="no rule allows it",
        warnings=display_warnings(foreign),
        choices=tuple(ApprovalChoice) if "access" in request.scope else USUAL_CHOICES,
        prefix="npm test",
        access=request.scope.get("access"),
        command="command" if "command" in request.arguments else None,
        details=details,
    )


CALLS = ["bash", "access", "write_file", "edit_file", "diff", "other"]


def call_with(kind: str, foreign: str) -> tuple[ProposedCall, dict[str, Any] | None]:
    match kind:
        case "bash":
            return ProposedCall("1", "bash", {"command": foreign, "note": foreign}), None
        case "write_file":
            return ProposedCall("1", "write_file", {"path": foreign, "content": foreign}), None
        case "edit_file":
            edits = [{"old": foreign, "new": foreign[::-1]}]
            return ProposedCall("1", "edit_file", {"path": "a", "edits": edits}), None
        case "access":
            opens = {"network": ["a.org"], "write": [f"/opt/{foreign}"]}
            return ProposedCall("1", "bash", {"command": foreign, "access": foreign}, {"access": opens}), None
        case "diff":
            details = {"path": foreign, "old": "a\nb\n", "new": foreign, "is_new": False, "notes": [foreign]}
            return ProposedCall("1", "write_file", {"path": "a", "content": foreign}), details
        case _:
            return ProposedCall("1", foreign[:60] or "x", {foreign: foreign, "list": [foreign]}), None


@settings(max_examples=40)
@given(FOREIGN, st.integers(20, 200), st.integers(3, 60), st.sampled_from(CALLS))
def test_every_row_of_a_question_is_ours_and_all_of_it_is_in_the_window(
    text: str, width: int, height: int, kind: str
) -> None:
    foreign = forging(text, width)
    request, details = call_with(kind, foreign)
    view = QuestionView(question_about(request, foreign, details))
    offer = view.offer(width - 1)
    written = "".join([f"{row.text}\n" for row in view.rows(width - 1, height)]) + "\n".join(offer)
    rows = seen(written, width)
    shown, asked = rows[: -len(offer)], rows[-len(offer) :]
    assert asked[0].startswith("Run it? [y]es")
    assert asked[-1].endswith("all:")
    assert all(row.startswith(("◆", "│", "  ┆", "  ·", "  !", "  …")) for row in shown if row), shown
    assert sum(row.startswith("◆") for row in shown) == 1
    assert len(rows) < height or "◆" in "".join(rows[-len(offer) - 1 :])
    marks = ("│ ", "│+", "│-", "│@", "│↳", "│!")
    assert all(row == "│" or row.startswith(marks) for row in shown if row.startswith("│"))


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_long_diff_leaves_the_path_and_the_keys_in_the_window(width: int) -> None:
    new = "\n".join(f"line {number} " + "x" * 90 for number in range(3000))
    details = {"path": "src/app.py", "old": "", "new": new, "is_new": True}
    request = ProposedCall("1", "write_file", {"path": "src/app.py", "content": new})
    view = QuestionView(question_about(request, "", details))
    rows = [row.text for row in view.rows(width - 1, 24)]
    assert len(rows) + len(view.offer(width - 1)) <= 24
    assert rows[1].startswith("◆ write_file")
    assert "src/app.py" in f"{rows[1]} {rows[2]}"
    assert sum(row.startswith(("  … 2,9", "  … 3,0")) for row in rows) == 1
    assert any("line 0" in row for row in rows)
    everything = [row.text for row in view.all_rows(width - 1)]
    assert sum(row.startswith("│+ ") for row in everything) == 3000


# -- the rest of the command ---------------------------------------------------------------------------------


@pytest.mark.sweep
@settings(max_examples=40)
@given(FOREIGN, st.integers(20, 120))
def test_a_finding_of_the_doctor_is_ours_in_every_row(text: str, width: int) -> None:
    foreign = forging(text, width)
    shown: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor.click, "echo", lambda row, **_: shown.append(row))
        doctor._show(Finding("model", "problem", foreign, foreign), width - 1, colours=False)
    rows = seen("".join([f"{row}\n" for row in shown]), width)
    rows = [row for row in rows if row]
    assert rows[0].startswith("✗ model") or rows[0].startswith("\x1b")
    assert all(row.lstrip().startswith(("┆", "→")) for row in rows[1:])
    assert sum(row.lstrip().startswith("→") for row in rows) == 1


@given(FOREIGN, st.integers(20, 120))
def test_a_row_of_a_table_is_one_row(text: str, width: int) -> None:
    rows = [("model", forging(text, width), "default"), ("tools", "all", forging(text, width))]
    shown = seen(table(rows, room=width - 1) + "\n", width)
    assert len([row for row in shown if row]) == 2
    assert shown[0].startswith("model")
    assert shown[1].startswith("tools")


@pytest.mark.sweep
@settings(max_examples=40)
@given(FOREIGN, st.integers(20, 120))
def test_every_row_of_a_session_begins_with_a_mark_of_ours(text: str, width: int) -> None:
    foreign = forging(text, width)
    call = ToolCall("1", foreign, {"path": foreign})
    messages = [
        UserMessage([Text(foreign)]),
        AssistantMessage(
            [Thinking(foreign), Text(foreign), call], provider=foreign, model_id=foreign, error_message=foreign
        ),
        ToolResultMessage("1", [Text(foreign)], is_error=True, tool_name=foreign),
    ]
    rows: list[str] = []
    for number, message in enumerate(messages, 1):
        rows += rows_of(number, message, Redactor([]), Palette(False), width=width - 1, full=text == "")
    shown = [row for row in seen("".join([f"{row}\n" for row in rows]), width) if row]
    assert [row[:4] for row in shown if row.startswith("[")] == ["[1] ", "[2] ", "[3] "]
    assert all(row.startswith(("[", "  │", "  ~", "  ▸", "  ┆")) for row in shown), shown
    assert sum(row.startswith("  ▸") for row in shown) == 1


@pytest.mark.sweep
@given(FOREIGN, st.integers(24, 120))
def test_a_listed_session_is_one_row(text: str, width: int) -> None:
    foreign = forging(text, width)
    info = SessionInfo(id="20260131-235959-000-abcdef", title=foreign, cwd=foreign, model=ModelSpec(foreign, "x"))
    shown = listing([info], {info.id: info.id[:15]}, Redactor([]), width=width - 1, with_folder=True)
    rows = [row for row in seen(shown + "\n", width) if row]
    assert len(rows) == 2
    assert rows[1].startswith("20260131-235959  ")
