"""What is written to a terminal, without ever waiting for it: a terminal that does not read stops nobody.

Owns the thread that writes, what waits for it, and what is left out when too much waits: the screen is then drawn anew
once the terminal has caught up. What is drawn is Textual's business; which modes are used is the driver's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition
from typing import IO

from textual.drivers._writer_thread import WriterThread

from .patience import own_descriptor, write_patiently

__all__ = ["TerminalOutput"]

_MOST_WAITING = 64 * 1024
"""Characters that wait for the terminal, past which what is drawn is left out."""
_SHORT = 64
"""What is shorter switches a mode and is never left out; what is longer is a drawing, or text for the clipboard."""
_CLIPBOARD = "\x1b]52;"
_PATIENCE = 1.0
"""Seconds without progress that a terminal has at the end before nobody waits for it any more."""


class TerminalOutput(WriterThread):
    """Writes in the background. `on_caught_up` is called in this thread when something was left out and all that
    waited is written: draw the whole screen then."""

    def __init__(self, file: IO[str], on_caught_up: Callable[[], None]) -> None:
        super().__init__(file)
        self._fd = own_descriptor(file.fileno())
        self._on_caught_up = on_caught_up
        self._changed = Condition()
        self._pieces: list[str] = []
        self._waiting = 0
        self._has_left_out = False
        self._is_lost = False
        self._is_ending = False

    def write(self, text: str) -> None:
        """Has it written soon. Never waits."""
        with self._changed:
            if self._is_lost or self._is_ending:  # the terminal is lent: all is drawn when it comes back
                return
            if self._waiting > _MOST_WAITING:
                if len(text) > _SHORT and not text.startswith(_CLIPBOARD):
                    self._has_left_out = True
                    return
                if self._pieces and self._pieces[-1] == text:
                    return
            self._pieces.append(text)
            self._waiting += len(text)
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces or self._is_ending)
                if not self._pieces:
                    return
                text = "".join(self._pieces)
                self._pieces.clear()
            is_written = write_patiently(self._fd, text, is_over=self._is_over)
            with self._changed:
                self._waiting -= len(text)
                if not is_written:
                    self._is_lost = True
                    self._pieces.clear()
                    return
                has_caught_up = self._has_left_out and not self._pieces
                if has_caught_up:
                    self._has_left_out = False
            if has_caught_up and not self._is_ending:
                self._on_caught_up()

    def stop(self) -> None:
        """Ends it when all is written, or when the terminal takes nothing any more."""
        with self._changed:
            if self._is_ending:
                return
            self._is_ending = True
            self._changed.notify()
        self.join(3 * _PATIENCE)
        if not self.is_alive():
            os.close(self._fd)

    def _is_over(self, seconds: float) -> bool:
        return self._is_ending and seconds > _PATIENCE
