"""Words for calls, sizes, times and the progress of a local model, for every front end.

Pure functions of values. The caller masks, escapes and cuts the text.
"""

from __future__ import annotations

import time
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from swink_agent.rendering.checklist import TODO, counted, current, todo_of
from swink_agent.rendering.turns import local_moment

if TYPE_CHECKING:
    from swink_agent.core.events import CompactionReport

_BAR = 20
_WARMING_UP = 1.0
"""The seconds at the start of a fetch that do not count for its speed."""
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_SKEW = 5 * _MINUTE
"""Milliseconds by which the clocks of two machines may differ."""


def summary_of(name: str, arguments: dict[str, Any]) -> str:
    """A call in a few words, such as its command, its path or its search pattern."""
    match name:
        case "bash":
            return str(arguments.get("command", ""))
        case "search":
            wanted = [arguments.get(key) for key in ("pattern", "glob", "path")]
            return " ".join(str(item) for item in wanted if item)
        case "todo" if (items := todo_of(TODO, {TODO: arguments.get("items")})) is not None:
            now = current(items)
            return f"{counted(items)}{'' if now is None else f', now: {now.text}'}" if items else "nothing to do"
        case _ if isinstance(arguments.get("path"), str):
            return cast("str", arguments["path"])
        case _ if list(arguments) == ["prompt"]:
            return str(arguments["prompt"])
        case _:
            return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def shortening_of(report: CompactionReport) -> str:
    """How a conversation that was too long was shortened, in words."""
    if report.dropped_count:
        return f"the conversation was shortened by {number_of(report.dropped_count, 'message')}"
    return f"long messages were shortened: about {report.tokens_before:,} tokens became {report.tokens_after:,}"


def size_of(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def seconds(count: float) -> str:
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 60:
        return f"{count} s" if isinstance(count, int) else f"{count:.1f} s"
    if count < 3600:
        minutes, rest = divmod(int(count), 60)
        return f"{minutes} min {rest} s" if isinstance(count, int) and rest else f"{count / 60:.0f} min"
    return f"{count / 3600:.1f} h"


def tokens(count: int) -> str:
    if count < 1000:
        return f"{count} tokens"
    return f"{count / 1000:.1f}k tokens" if count < 1_000_000 else f"{count / 1_000_000:.1f}M tokens"


def number_of(count: int, noun: str) -> str:
    """A number of things, such as `1 run` and `2 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def age(moment: int, now: int | None = None) -> str:
    """The time since `moment`, in a few characters."""
    if not moment:
        return "-"
    passed = (time.time_ns() // 1_000_000 if now is None else now) - moment
    if -_SKEW < passed < _MINUTE:
        return "now"
    if passed < 0:  # a clock is wrong
        return local_moment(moment, "%Y-%m-%d")
    for unit, name, most in ((_MINUTE, "min", _HOUR), (_HOUR, "h", 2 * _DAY), (_DAY, "d", 100 * _DAY)):
        if passed < most:
            return f"{passed // unit} {name}"
    return local_moment(moment, "%Y-%m-%d")


class FetchProgress:
    """The progress of one download, from the events of a local model."""

    def __init__(self) -> None:
        self.is_new = True
        self._first: float | None = None
        self._start = (0.0, 0)
        """Time and bytes from which the speed is measured."""
        self._milestone = -1

    def text(self, event: Any, now: float) -> str:
        """One line, with a bar if the total is known. `now` is in seconds of any clock."""
        self.is_new = self._first is None
        self._first = now if self._first is None else self._first
        if now - self._first < _WARMING_UP:  # bytes from an earlier fetch must not count for the speed
            self._start = (now, event.done)
        start, done_at_start = self._start
        head = f"fetching {event.model}"
        if not event.total:
            return f"{head}: {event.message or size_of(event.done)}"
        share = event.done / event.total
        filled = int(share * _BAR)
        speed = (event.done - done_at_start) / (now - start) if now > start else 0.0
        left = f", {seconds(ceil((event.total - event.done) / speed))} left" if speed > 0 and share < 1 else ""
        return f"{head} [{'█' * filled}{'░' * (_BAR - filled)}] {share:.0%} of {size_of(event.total)}{left}"

    def is_milestone(self, event: Any) -> bool:
        """Whether a line for a log is due: at the start, and at every tenth."""
        reached = int(10 * event.done / event.total) if event.total else 0
        is_due, self._milestone = reached > self._milestone, max(reached, self._milestone)
        return is_due
