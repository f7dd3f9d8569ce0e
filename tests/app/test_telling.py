"""The progress of a fetch: a bar, and a remaining time that ignores bytes from an earlier fetch."""

from __future__ import annotations

from swink_agent.app.runs.telling import FetchProgress, number_of, shortening_of
from swink_agent.core.events import CompactionReport
from swink_agent.local.events import LocalModelEvent, LocalState

MB = 1_000_000


def told(progress: FetchProgress, done: int, now: float) -> str:
    return progress.text(LocalModelEvent(LocalState.FETCHING, "qwen", done=done * MB, total=1000 * MB), now)


def test_a_fetch_that_goes_on_says_how_long_it_takes_at_the_speed_it_has_now() -> None:
    progress = FetchProgress()
    assert told(progress, 0, 10.0) == "fetching qwen [░░░░░░░░░░░░░░░░░░░░] 0% of 1.0 GB"
    assert told(progress, 500, 10.2) == "fetching qwen [██████████░░░░░░░░░░] 50% of 1.0 GB"  # from the time before
    assert told(progress, 520, 11.2).endswith(" 52% of 1.0 GB, 24 s left")
    assert told(progress, 999, 40.0).endswith(" 100% of 1.0 GB, 1 s left")
    assert told(progress, 1000, 40.0).endswith(" 100% of 1.0 GB")


def test_one_thing_is_not_several() -> None:
    assert [number_of(count, "run") for count in (0, 1, 2, 12_345)] == ["0 runs", "1 run", "2 runs", "12,345 runs"]
    report = CompactionReport(dropped_count=1, tokens_before=900, tokens_after=400, overflow=False)
    assert shortening_of(report) == "the conversation was shortened by 1 message"
