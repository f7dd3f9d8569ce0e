"""Shows the progress of an evaluation: one changing line on a terminal, plain lines elsewhere.

A terminal keeps a line for each case that failed, a log for every case.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from swink_agent.approvals.display import safe_display
from swink_agent.rendering.amounts import dollars

from .live import seconds
from .screen import Screen

if TYPE_CHECKING:
    from swink_agent.evals import CaseResult, Progress

_TICK = 1.0
_MOST_RUNNING = 3
_LONGEST_ID, _LONGEST_REASON = 48, 200


class ProgressLine:
    """Receives the progress of a run and shows it. If `is_quiet`, shows nothing."""

    def __init__(self, screen: Screen, repeat: int, *, is_quiet: bool = False) -> None:
        self._screen = screen
        self._repeat = repeat
        self._is_quiet = is_quiet
        self._progress: Progress | None = None
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, progress: Progress) -> None:
        if self._is_quiet:
            return
        self._progress, self._at = progress, time.monotonic()
        result = progress.latest
        if result is not None and len(result.attempts) == self._repeat:
            self._tell(result, progress)
        if progress.done < progress.total:
            self._draw()

    def begin(self, progress: Progress) -> None:
        """Shows the line before the first attempt, which may take minutes."""
        self(progress)

    def stop(self) -> None:
        self._progress = None
        if self._timer is not None:
            self._timer.cancel()
        self._screen.clear()

    def _tell(self, result: CaseResult, progress: Progress) -> None:
        if self._screen.is_terminal and result.passed:
            return
        word, colour = ("passed", "green") if result.passed else ("FAILED", "red")
        if not result.is_measured:
            word, colour = "not measured", "yellow"
        cost = f", {dollars(result.cost)}" if result.cost else ""
        count = f"[{progress.done}/{progress.total}]"
        variant = f" [{safe_display(progress.variant, _LONGEST_ID)}]" if progress.variant else ""
        line = f"{variant} {safe_display(result.case_id, _LONGEST_ID)} ({seconds(result.seconds)}{cost})"
        self._screen.line(f"{count} {self._screen.style(word, colour)}{line}")
        if not result.passed:
            self._screen.rows("  │ ", _reason(result), most=2)

    def _draw(self) -> None:
        progress = self._progress
        if progress is None or not self._screen.is_terminal:
            return
        self._screen.status(self._line(progress, time.monotonic() - self._at))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_TICK, self._draw)

    @staticmethod
    def _line(progress: Progress, since: float) -> str:
        """The counts, the cost, the time left and the running cases, `since` seconds after the report."""
        elapsed = progress.seconds + since
        variant = f"{safe_display(progress.variant, _LONGEST_ID)}: " if progress.variant else ""
        parts = [f"▸ {variant}{progress.done} of {progress.total} cases", f"{progress.passed} passed"]
        parts += [f"{progress.failed} failed"] if progress.failed else []
        parts += [f"{progress.not_measured} not measured"] if progress.not_measured else []
        parts += [dollars(progress.cost)] if progress.cost else []
        parts.append(seconds(int(elapsed)))
        if (left := _time_left(progress, elapsed)) is not None:
            parts.append(f"about {seconds(max(1, int(left)))} left")
        names = [safe_display(case_id, _LONGEST_ID) for case_id in dict.fromkeys(progress.running)]
        running = ", ".join(names[:_MOST_RUNNING]) + (" …" if len(names) > _MOST_RUNNING else "")
        return " · ".join(parts) + (f" │ {running}" if running else "")


def _time_left(progress: Progress, elapsed: float) -> float | None:
    """An estimate of the time left at the pace so far; `None` before the first attempt has ended."""
    made = progress.attempts_done - progress.resumed
    if made < 1:
        return None
    return elapsed / made * (progress.attempts_total - progress.attempts_done)


def _reason(result: CaseResult) -> str:
    if result.error is not None:
        return safe_display(result.error, _LONGEST_REASON)
    for name, score in result.scores.items():
        if not score.passed:
            return safe_display(f"{name}: {score.reason or 'below its threshold'}", _LONGEST_REASON)
    return "nothing was scored"
