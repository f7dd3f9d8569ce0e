"""The list of things to do in the terminal UI: the panel, the command, the transcript, and a resumed session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from swink_agent.app.runs.telling import summary_of
from swink_agent.rendering.cells import cell_width
from swink_agent.rendering.checklist import TodoItem
from swink_agent.testing import call, text
from swink_agent.tui.status_rows import todo_lines
from swink_agent.tui.transcript import ToolBlock
from swink_agent.tui.transcript.line import plain
from swink_agent.tui.transcript.output import checklist_lines

from .talk.conftest import Talk, talk  # noqa: F401
from .test_app import Made, in_app, made, rows_of, until  # noqa: F401

LIST = [
    {"text": "Read the code", "status": "done"},
    {"text": "Write the tests", "status": "in_progress"},
    {"text": "Document it", "status": "pending"},
]
ITEMS = tuple([TodoItem(item["text"], item["status"]) for item in LIST])  # type: ignore[arg-type]


def rows(items: Any, width: int, *, is_open: bool = True) -> list[str]:
    return [plain(line.spans) for line in todo_lines(items, width, is_open=is_open, hint="Ctrl+T")]


def test_it_is_one_row_with_what_is_worked_on_or_a_row_for_each() -> None:
    assert rows(ITEMS, 40, is_open=False) == [" ☐ 1/3 Write the tests           Ctrl+T"]
    assert [row.strip() for row in rows(ITEMS, 40)[1:]] == ["✓ Read the code", "▸ Write the tests", "☐ Document it"]


def test_of_many_it_shows_those_around_what_is_worked_on() -> None:
    many = [TodoItem(f"step {number}", "done" if number < 20 else "pending") for number in range(40)]
    shown = [row.strip() for row in rows(many, 40)[1:]]
    assert shown == ["… 19 before", "✓ step 19", *[f"☐ step {number}" for number in range(20, 25)], "… 15 more"]


def test_it_is_gone_when_all_is_done() -> None:
    assert rows([TodoItem("x", "done")], 40) == []
    assert rows([], 40) == []


@given(st.lists(st.tuples(st.text(max_size=60), st.sampled_from(["pending", "in_progress", "done"])), max_size=12))
def test_no_row_is_wider_than_the_window(items: list[tuple[str, Any]]) -> None:
    for width in (1, 5, 12, 40, 80):
        for is_open in (False, True):
            lines = rows([TodoItem(*item) for item in items], width, is_open=is_open)
            assert all(cell_width(line) <= width for line in lines)
            assert all(line.isprintable() for line in lines)


async def test_the_panel_shows_and_folds_it_and_a_low_window_has_one_row(made: Made) -> None:  # noqa: F811
    app = made(call("todo", items=LIST), text("I go on."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"go", "enter")
        await until(pilot, lambda: not app.talk.is_running and "☐ 1/3" in "\n".join(rows_of(app)))
        shown = "\n".join(rows_of(app))
        assert "  ✓ Read the code" in shown
        assert "  ▸ Write the tests" in shown
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "☐ 1/3 Write the tests" in "\n".join(rows_of(app)))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "☐ 1/3 Write the tests" not in "\n".join(rows_of(app)))
        await pilot.resize_terminal(40, 12)
        await until(pilot, lambda: "☐ 1/3 Write the tests" in "\n".join(rows_of(app)))

    await in_app(app, work)


async def test_a_session_that_goes_on_has_it_again_and_todo_shows_it(talk: Talk) -> None:  # noqa: F811
    first = await talk.open(call("todo", items=LIST), text("I go on."))
    await first.submit("go")
    await first.settled()
    assert first.todo == ITEMS
    await first.close()
    again = await talk.open("x", newest=True)
    assert again.todo == ITEMS
    await again.submit("/todo")
    shown = "\n".join([block.text for block in again.view.transcript.blocks])
    assert "1 of 3 done\n[x] Read the code\n[>] Write the tests\n[ ] Document it" in shown
    call_shown = next(block for block in again.view.transcript.blocks if isinstance(block, ToolBlock))
    assert call_shown.summary == "1 of 3 done, now: Write the tests"
    call_shown.open()
    drawn = [plain(line.spans).strip() for line in call_shown.lines(60)]
    assert drawn[1:] == ["│ [x] Read the code", "│ [>] Write the tests", "│ [ ] Document it"]
    await again.submit("/reset")
    await again.settled()
    assert again.todo == ()
    await again.submit("/todo")
    assert "the model has not made a list" in again.view.transcript.blocks[-1].text
    await again.close()


@pytest.mark.parametrize(
    ("items", "said"), [(LIST, "1 of 3 done, now: Write the tests"), (LIST[:1], "1 of 1 done"), ([], "nothing to do")]
)
def test_a_call_is_told_in_a_few_words(items: Any, said: str) -> None:
    assert summary_of("todo", {"items": items}) == said
    assert summary_of("todo", {"items": 3}) == "items=3"


def test_a_long_item_is_wrapped_at_words() -> None:
    lines = checklist_lines([TodoItem("Write the tests that fail now", "pending")], 20)
    assert [plain(line.spans).rstrip() for line in lines] == ["[ ] Write the tests", "    that fail now"]
