"""Timers of tool calls: they animate the sign of a running call and fold a finished one.

No timer exists while no call runs and none is to be folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..transcript.block import Block, Transcript
from ..transcript.tool import ToolBlock

FOLD_AFTER = 3.0
"""Seconds that a finished call stays open."""
_BEAT = 0.125
_MOST_RUNNING = 64
"""Only this many of the newest blocks are searched for running calls."""


class CallTimers:
    """Animates and folds the calls of a transcript.

    `later` schedules a callback after a number of seconds; `is_held` returns whether a block must not be folded now.
    """

    def __init__(
        self,
        transcript: Transcript,
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        is_held: Callable[[Block], bool],
    ) -> None:
        self._transcript = transcript
        self._later = later
        self._is_held = is_held
        self._is_still = False
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._folds: dict[Block, asyncio.TimerHandle] = {}

    def look_after(self, block: Block) -> None:
        """Starts the timers that a block needs; call it when the block changes or is no longer held."""
        if not isinstance(block, ToolBlock):
            return
        if block.status == "running":
            self._keep_beating()
        is_left = block.opened_by_hand or block.stays_open or self._is_held(block)
        is_due = block.is_finished and block.is_open and not is_left
        if is_due and block not in self._folds:
            self._folds[block] = self._later(FOLD_AFTER, lambda: self._fold(block))

    def set_still(self, is_still: bool) -> None:
        """Stops or resumes the animation of all signs."""
        self._is_still = is_still
        running = self._running()
        if is_still:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for block in running:
                block.beat(None)
        elif running:
            self._keep_beating()

    def stop(self) -> None:
        """Cancels all timers."""
        for timer in (self._timer, *self._folds.values()):
            if timer is not None:
                timer.cancel()
        self._timer = None
        self._folds.clear()

    def _fold(self, block: ToolBlock) -> None:
        self._folds.pop(block, None)
        if not self._is_held(block) and not block.stays_open:
            block.fold()

    def _running(self) -> list[ToolBlock]:
        newest = self._transcript.blocks[-_MOST_RUNNING:]
        return [block for block in newest if isinstance(block, ToolBlock) and block.status == "running"]

    def _keep_beating(self) -> None:
        if self._timer is None and not self._is_still:
            self._timer = self._later(_BEAT, self._beat)

    def _beat(self) -> None:
        self._timer = None
        running = self._running()
        self._beats += 1
        for block in running:
            block.beat(self._beats)
        if running:
            self._keep_beating()
