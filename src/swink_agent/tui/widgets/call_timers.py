"""What happens to tool calls with time: the sign of one that runs turns, one that has ended folds.

Owns the timers for that, and none when nothing runs and nothing is to be folded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..transcript.block import Block, Transcript
from ..transcript.tool import ToolBlock

__all__ = ["FOLD_AFTER", "CallTimers"]

FOLD_AFTER = 3.0
"""Seconds that a call stays open after its end."""
_BEAT = 0.125
_MOST_RUNNING = 64
"""Calls that run are looked for among the last so many blocks."""


class CallTimers:
    """Looks after the calls of a transcript. `later` calls back after so many seconds; `is_held` says of a block that
    it must stay as it is."""

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

    @property
    def is_beating(self) -> bool:
        """Whether a sign turns."""
        return self._timer is not None

    def look_after(self, block: Block) -> None:
        """To be called when a block has changed, or is no longer held."""
        if not isinstance(block, ToolBlock):
            return
        if block.status == "running":
            self._keep_beating()
        is_due = block.is_finished and block.is_open and not block.opened_by_hand and not self._is_held(block)
        if is_due and block not in self._folds:
            self._folds[block] = self._later(FOLD_AFTER, lambda: self._fold(block))

    def set_still(self, is_still: bool) -> None:
        """Holds every sign still, or lets them turn."""
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
        """Ends all timers."""
        for timer in (self._timer, *self._folds.values()):
            if timer is not None:
                timer.cancel()
        self._timer = None
        self._folds.clear()

    def _fold(self, block: ToolBlock) -> None:
        self._folds.pop(block, None)
        if not self._is_held(block):
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
