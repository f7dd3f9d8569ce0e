"""Reads the lines that a user types. The terminal itself provides the line editing.

Reads stdin in the event loop, because a thread could delay the end of the program. Lines that arrive together, such as
a paste, are one text.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import select
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_TOGETHER = 0.03
"""Seconds within which the next line belongs to the same paste."""
_PIECE = 65_536


class LineReader:
    """The lines of a descriptor. `text` returns `None` at the end of the input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begins to read, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def text(self) -> str | None:
        """Returns the next typed or pasted text without its last newline; `None` at the end of the input."""
        return await self._texts.get()

    def drop(self) -> None:
        """Discards unread input, which was typed before a question appeared and cannot be its answer."""
        import termios

        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        except (OSError, termios.error):
            pass
        self._held = ""
        while not self._texts.empty():
            if self._texts.get_nowait() is None:
                self._texts.put_nowait(None)
                return

    @contextmanager
    def silent(self) -> Generator[None]:
        """Turns the terminal's echo off inside the `with` block."""
        import termios

        try:
            before: list[Any] = termios.tcgetattr(self._descriptor)
        except (OSError, termios.error):
            yield
            return
        quiet = [*before]
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, quiet)
        try:
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    @contextmanager
    def lent(self) -> Generator[None]:
        """Stops reading inside the `with` block, while another program uses the terminal."""
        was_open = self._loop is not None
        self.close()
        try:
            yield
        finally:
            if was_open:
                self.open()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self.close()
            self._hand_over()
            self._texts.put_nowait(None)
            return
        self._held += self._decoder.decode(data)
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._held.endswith("\n") and self._loop is not None:
            is_more = bool(select.select([self._descriptor], [], [], 0)[0])
            self._due = self._loop.call_later(_TOGETHER if not is_more else 2 * _TOGETHER, self._hand_over)

    def _hand_over(self) -> None:
        self._due = None
        text, self._held = self._held, ""
        if text:
            self._texts.put_nowait(text.removesuffix("\n").replace("\r", ""))
