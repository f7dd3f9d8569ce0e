"""The line that shows the current activity and does not stay.

Shows the current call, its duration and its newest line of output; or what the model is doing. Ticks by itself during a
run, so that the time stays right while nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from swink_agent.app.runs.telling import seconds
from swink_agent.approvals.display import safe_display
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.rendering.cells import cut_middle, cut_start

from .screen import Screen

_EVERY = 0.1
_TICK = 1.0
_MOST_TAIL = 400
_LEAST_ROOM = 12


class LiveLine:
    """The current activity, on a screen that can erase lines. Does nothing unless `is_on`."""

    def __init__(self, screen: Screen, redactor: Redactor, clock: Callable[[], float], *, is_on: bool) -> None:
        self._screen = screen
        self._redactor = redactor
        self._clock = clock
        self._is_on = is_on
        self._running: dict[str, _Running] = {}
        self._waiting = ""
        self._since = self._shown_at = 0.0
        self._text, self._tail = redactor.stream(), ""
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, what: str) -> None:
        """Shows that the model is busy with `what`, which has no text to show."""
        if self._is_on and (what != self._waiting or self._tail):
            if not self._waiting:
                self._since = self._clock()
            self._waiting, self._tail, self._text = what, "", self._redactor.stream()
            self._draw(at_once=True)

    def write(self, text: str) -> None:
        """Adds text of the model and shows its end, with secrets masked even if they are split."""
        if self._is_on:
            self._tail = (self._tail + self._text.feed(text))[-_MOST_TAIL:]
            self._waiting = self._waiting or "writing …"
            self._draw()

    def start(self, call_id: str, shown: str) -> None:
        if self._is_on:
            self._waiting = ""
            self._running[call_id] = _Running(shown, self._clock())
            self._draw(at_once=True)

    def hear(self, call_id: str, text: str) -> None:
        running = self._running.get(call_id)
        if running is not None:
            running.hear(text)
            self._draw()

    def end(self, call_id: str) -> None:
        if self._running.pop(call_id, None) is not None and self._running:
            self._draw(at_once=True)
        elif not self._running and not self._waiting:
            self.stop()

    def stop(self) -> None:
        """Removes the line until the next event."""
        self._waiting, self._tail = "", ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._screen.clear()

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Shows another text. From any thread."""
        now = self._clock()
        if self._is_on and (at_once or now - self._shown_at >= _EVERY):
            self._shown_at = now
            self._screen.status(text)

    def _draw(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if at_once or now - self._shown_at >= _EVERY:
            self._shown_at = now
            self._screen.status(self._line(now))
        if self._timer is None:
            with suppress(RuntimeError):  # without a loop nothing takes long
                self._timer = asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _line(self, now: float) -> str:
        if self._running:
            return self._running_line(now)
        if not self._tail.strip():
            waited = now - self._since
            return f"{self._waiting}{f' {seconds(int(waited))}' if waited >= 2 else ''}"
        return f"» {cut_start(safe_display(self._tail.strip()), self._screen.columns - 3)}"

    def _running_line(self, now: float) -> str:
        """Shows the call that started last: users wonder about that one."""
        running = list(self._running.values())[-1]
        others = f" (and {len(self._running) - 1} more)" if len(self._running) > 1 else ""
        took = now - running.since
        time = f" {seconds(int(took))}" if took >= 1 else ""
        newest = self._redactor.redact(running.newest)
        room = self._screen.columns - 6 - len(time) - len(others)
        shown = cut_middle(running.shown, max(room // 2 if newest else room, _LEAST_ROOM))
        line = f"▸ {shown} …{time}{others}"
        return f"{line} │ {safe_display(newest, self._screen.columns)}" if newest else line

    def _tick(self) -> None:
        self._timer = None
        if self._running or self._waiting:
            self._draw(at_once=True)


class _Running:
    """A running call, and the end of its output."""

    def __init__(self, shown: str, since: float) -> None:
        self.shown = shown
        self.since = since
        self._printed = ""

    def hear(self, text: str) -> None:
        self._printed = (self._printed + text)[-4096:]

    @property
    def newest(self) -> str:
        """The last line that is not empty. A progress bar overwrites its line with a carriage return."""
        for line in reversed(self._printed.replace("\r", "\n").split("\n")):
            if line.strip():
                return line.strip()
        return ""
