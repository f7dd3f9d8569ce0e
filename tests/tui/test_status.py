"""The bottom row and the rows of running calls: their texts, and what is left out in a narrow window."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.rendering.cells import cell_width
from swink_agent.rendering.escaping import safe_display
from swink_agent.tui.status_rows import Activity, Status, activity_lines, status_line
from swink_agent.tui.transcript.line import plain

USUAL = Status(
    mode="Execute",
    state="running",
    model="anthropic:claude-sonnet-4-6",
    fill=0.42,
    tokens=12_345,
    cost=0.0312,
    elapsed=75.0,
    folder="~/projects/swink",
)


def words(status: Status, width: int) -> str:
    return plain(status_line(status, width).spans)


@pytest.mark.parametrize("width", [100, 120, 200])
def test_everything_is_said(width: int) -> None:
    row = words(USUAL, width)
    for part in ("Execute", "running", "claude-sonnet-4-6", "42%", "12.3k", "$0.0312", "1m15s", "swink"):
        assert part in row


@pytest.mark.parametrize(("width", "said"), [(80, "t12"), (100, "turn 12"), (200, "turn 12")])
def test_the_turn_is_counted_where_there_is_room(width: int, said: str) -> None:
    assert said in words(msgspec.structs.replace(USUAL, turn=12), width)
    assert "turn" not in words(USUAL, width)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_window_has_the_words_and_figures_too(width: int) -> None:
    row = words(USUAL, width)
    for part in ("Execute", "running", "cl", "42%", "12.3k", "$0.0312"):
        assert part in row


@given(
    st.integers(1, 220),
    st.sampled_from(["Plan", "Execute"]),
    st.sampled_from(["idle", "running", "error", "aborted"]),
    st.text(max_size=40),
    st.floats(0, 2),
    st.integers(0, 10**9),
    st.one_of(st.none(), st.floats(0, 10_000)),
    st.text(max_size=60),
)
def test_no_row_is_wider_than_the_window(width, mode, state, model, fill, tokens, cost, folder) -> None:  # type: ignore[no-untyped-def]
    status = Status(
        mode=mode, state=state, model=model, fill=fill, tokens=tokens, cost=cost, elapsed=3.0, folder=folder
    )
    assert cell_width(words(status, width)) <= max(width, 1)
    if width >= 24:
        assert mode in words(status, width)
        assert state in words(status, width)


@pytest.mark.parametrize(
    ("fill", "role"),
    [(0.0, "gauge.low"), (0.59, "gauge.low"), (0.6, "gauge.middle"), (0.85, "gauge.middle"), (0.86, "gauge.high")],
)
def test_the_gauge_has_the_colour_of_how_full_it_is(fill: float, role: str) -> None:
    status = Status(mode="Plan", state="idle", model="m", fill=fill, tokens=0, cost=None, elapsed=0, folder="f")
    roles = {span.role for span in status_line(status, 120).spans if "%" in span.text}
    assert roles == {role}


def test_running_calls_have_a_row_each_up_to_four() -> None:
    running = [Activity("bash", f"make part{number}", number, f"line {number}") for number in range(7)]
    rows = [plain(line.spans) for line in activity_lines(running, 80, 0)]
    assert len(rows) == 4
    assert rows[0].strip() == "… and 4 more"
    assert "make part6" in rows[-1]
    assert "6s" in rows[-1]
    assert "line 6" in rows[-1]


@given(st.integers(10, 200), st.text(max_size=30), st.text(max_size=300), st.text(max_size=300))
def test_no_row_of_what_runs_is_wider_than_the_window(width: int, name: str, summary: str, newest: str) -> None:
    width = max(width, cell_width(safe_display(name, 60)) + 12)
    for line in activity_lines([Activity(name, summary, 100, newest)], width, None):
        assert cell_width(plain(line.spans)) <= width


def test_without_motion_nothing_turns() -> None:
    still = activity_lines([Activity("bash", "make", 5)], 60, None)
    assert plain(still[0].spans).startswith(" ▸ bash make")
