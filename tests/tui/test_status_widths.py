"""The bottom row at every width: nothing is missing while it fits, and parts are left out in order."""

from __future__ import annotations

from typing import Any

import pytest

from swink_agent.rendering.cells import cell_width
from swink_agent.tui.status_rows import Status, status_line


def row(width: int, **changes: Any) -> str:
    fields: dict[str, Any] = {
        "mode": "Execute",
        "state": "running",
        "model": "anthropic:claude-sonnet-4-6",
        "fill": 0.42,
        "tokens": 12_345,
        "cost": 0.0335,
        "elapsed": 65.0,
        "folder": "~/src/some/where/project",
    }
    text = "".join([span.text for span in status_line(Status(**{**fields, **changes}), width).spans])
    assert cell_width(text) <= width
    return text.strip()


def test_a_wide_window_has_all_of_it() -> None:
    assert row(140) == (
        "Execute · running · smart · anthropic:claude-sonnet-4-6 · ███░░░░░ 42% · 12.3k tokens · $0.0335 · 1m05s"
        " · ~/src/some/where/project"
    )


def test_the_folder_and_the_provider_are_cut_before_the_name_of_the_model() -> None:
    assert row(120).endswith(
        " · anthropic:claude-sonnet-4-6 · ███░░░░░ 42% · 12.3k tokens · $0.0335 · 1m05s · …/project"
    )
    assert (
        row(100) == "Execute · running · claude-sonnet-4-6 · ███░░░░░ 42% · 12.3k tokens · $0.0335 · 1m05s · …/project"
    )
    assert row(80) == "Execute · running · claude…-4-6 · ██░░ 42% · 12.3k · $0.0335 · 1m05s · project"


@pytest.mark.table
@pytest.mark.parametrize("width", range(60, 161))
@pytest.mark.parametrize("state", ["idle", "running", "aborted"])
def test_everything_is_said_in_sixty_columns_and_more(width: int, state: Any) -> None:
    said = row(width, state=state)
    for part in ("Execute", state, "clau", "4-6", "42%", "12.3k", "$0.0335", "1m05s", "project"):
        assert part in said


@pytest.mark.table
@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("note", ["Ctrl+C again leaves", "the mouse is the terminal's: F6 takes it back"])
def test_a_note_is_said_whatever_gives_way_for_it(width: int, note: str) -> None:
    said = row(width, state="aborted", note=note)
    assert said.startswith("Execute · aborted · ")
    assert note[:30] in said


@pytest.mark.table
@pytest.mark.parametrize("width", range(1, 60))
def test_mode_and_state_come_first_in_a_narrow_window(width: int) -> None:
    assert row(width, note="something to say").startswith("Execute · running"[: width - 1].rstrip())


def test_a_long_name_of_a_folder_or_model_leaves_room_for_the_rest() -> None:
    said = row(80, folder="/" + "deep/" * 9 + "a-folder-with-a-very-long-name", model="proxy:" + "long-" * 20 + "name")
    for part in ("42%", "12.3k", "$0.0335", "1m05s", "…"):
        assert part in said
    assert said.endswith("me")


def test_branch_hosts_and_tasks_have_a_place() -> None:
    assert row(170, approve="auto", branch="main", hosts=1, tasks=2) == (
        "Execute · running · auto · anthropic:claude-sonnet-4-6 · ███░░░░░ 42% · 12.3k tokens · $0.0335 · 1m05s"
        " · 1 host · 2 tasks · ~/src/some/where/project (main)"
    )
    long = row(170, branch="feature/" + "x" * 60)
    assert long.endswith("xxxxx)")
    assert "…" in long


@pytest.mark.parametrize(
    ("approve", "word"), [("auto", "auto"), ("ask", "ask"), ("all", "approve all"), ("none", "approve none")]
)
@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.table
def test_the_mode_of_approvals_shows_from_sixty_columns_on(approve: str, word: str, width: int) -> None:
    assert f" {word} " in row(width, approve=approve, branch="main")


@pytest.mark.parametrize("width", [80, 100, 140])
def test_hosts_and_tasks_show_from_eighty_columns_on(width: int) -> None:
    said = row(width, approve="auto", branch="main", hosts=3, tasks=1)
    assert "3 hosts" in said
    assert "1 task" in said
