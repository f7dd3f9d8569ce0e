"""Writes to a terminal, without hanging if the terminal does not read.

`write_patiently` writes through a descriptor that never blocks, until the caller wants it to give up. `TerminalOutput`
writes in a thread. If too much text waits, it drops drawings, and has the whole screen drawn again once the terminal
has caught up.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import IO

_PIECE = 4096


def own_descriptor(fd: int) -> int:
    """Opens the same terminal with a new descriptor that never blocks; `fd` itself is shared with the shell.
    Returns a copy of `fd` if that fails. The caller closes it."""
    try:
        own = os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)
    if os.fstat(own).st_rdev != os.fstat(fd).st_rdev:
        os.close(own)
        return os.dup(fd)
    return own


def write_patiently(fd: int, text: str, *, is_over: Callable[[float], bool]) -> bool:
    """Writes the text. Returns `False` if the terminal is gone, or if `is_over(seconds without progress)` was true."""
    rest = memoryview(text.encode("utf-8", "replace"))
    since = time.monotonic()
    while rest:
        try:
            if not select.select([], [fd], [], 0.05)[1]:
                if is_over(time.monotonic() - since):
                    return False
                continue
            rest = rest[os.write(fd, rest[:_PIECE]) :]
            since = time.monotonic()
        except BlockingIOError:
            continue
        except (OSError, ValueError):
            return False
    return True


_MOST_WAITING = 64 * 1024
"""Most characters that may wait for the terminal; above that, drawings are dropped."""
_SHORT = 64
"""Text of at most this length switches a mode and is never dropped. Longer text is a drawing, or for the clipboard."""
_CLIPBOARD = "\x1b]52;"
_END_PATIENCE = 1.0
"""Seconds without progress after which the ending program stops waiting for the terminal."""


class TerminalOutput(Thread):
    """Writes in the background. If a drawing was dropped, calls `on_caught_up` in this thread once all waiting text is
    written: the whole screen must be drawn then."""

    def __init__(self, file: IO[str], on_caught_up: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="swink-output")
        self._fd = own_descriptor(file.fileno())
        self._on_caught_up = on_caught_up
        self._changed = Condition()
        self._pieces: list[str] = []
        self._waiting = 0
        self._has_left_out = False
        self._is_lost = False
        self._is_ending = False

    def write(self, text: str) -> None:
        """Queues the text. Never waits."""
        with self._changed:
            if self._is_lost or self._is_ending:  # if the terminal is only lent, the screen is drawn again afterwards
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
        """Ends the thread when all is written, or when the terminal has stopped reading."""
        with self._changed:
            if self._is_ending:
                return
            self._is_ending = True
            self._changed.notify()
        self.join(3 * _END_PATIENCE)
        if not self.is_alive():
            os.close(self._fd)

    def _is_over(self, seconds: float) -> bool:
        return self._is_ending and seconds > _END_PATIENCE
