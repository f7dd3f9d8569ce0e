"""The terminal: what is read from it, and which of its modes are used.

Owns the thread that reads, which sleeps until something is typed; the sorting of what it reads is in `keystrokes`,
the thread that writes in `output`. All else, the screen included, is Textual's driver.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable

from textual import events, messages
from textual._xterm_parser import XTermParser
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

from swink_agent.core.cancel import call_in

from .keystrokes import Keystrokes, Pasted, Piece, Pressed
from .output import TerminalOutput

__all__ = ["RefusedPaste", "TerminalDriver"]

_ESCAPE = 0.05
"""Seconds after which an escape that nothing follows is the key."""
_SETTLE = 0.12
"""Seconds after which Textual's own reader decides what a beginning was."""
_READ = 65536
_STALLED = 1.0
"""Seconds without input after which Ctrl+C ends a paste whose end was lost on the way."""
_STOPS = ("\x03", "\x1b[99;5u")


class RefusedPaste(events.Paste):
    """A paste that was too large to be taken; it has no text."""

    def __init__(self, characters: int) -> None:
        super().__init__("")
        self.characters = characters


class TerminalDriver(LinuxDriver):
    """Textual's driver, reading as `keystrokes` has it: `App(driver_class=TerminalDriver)`."""

    _wake: tuple[int, int] | None = None
    _output: TerminalOutput | None = None
    _is_on = False
    """Whether the terminal is in our modes."""

    @property
    def _writer_thread(self) -> WriterThread | None:
        """In place of Textual's writer, which has everybody wait for the terminal."""
        return self._output

    @_writer_thread.setter
    def _writer_thread(self, writer: WriterThread | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        # Textual draws on stderr; where that is a file (`2>log`), the terminal is on stdout.
        is_elsewhere = self._file is not None and not self._file.isatty()
        file = None if writer is None else sys.__stdout__ if is_elsewhere else self._file
        self._output = None if file is None else TerminalOutput(file, self._caught_up())

    def _sigcont_application(self, *_: object) -> None:
        if self._auto_restart and self._is_on:
            # Stopped from outside, if at all: the modes may be another's by now, and a second start beside the first
            # would have two threads read the keys.
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._auto_restart:
            self.resume_application_mode()

    def _caught_up(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def draw_anew() -> None:
            self._app.refresh(layout=True)

        return lambda: call_in(loop, draw_anew)

    def start_application_mode(self) -> None:
        self._wake = os.pipe()
        super().start_application_mode()
        if self._writer_thread is None:
            return  # in the background: there is no terminal to speak to yet
        self._is_on = True
        # Shift+Enter from terminals that have not the kitty protocol but xterm's way.
        self.write("\x1b[>4;1m")
        self.flush()

    def stop_application_mode(self) -> None:
        self._is_on = False
        self.write("\x1b[>4;0m")
        super().stop_application_mode()

    def disable_input(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            os.write(wake[1], b"\0")
        super().disable_input()
        if wake is not None:
            os.close(wake[0])
            os.close(wake[1])

    def set_mouse(self, is_ours: bool) -> None:
        """Takes the mouse, or gives it back to the terminal, which then selects and copies by itself."""
        if is_ours:
            self._mouse = True
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()
            self._mouse = False
        self.flush()

    def _enable_mouse_support(self) -> None:
        # Buttons, the wheel, and movements with a button held: none of ours needs every movement, and each costs.
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1002h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        self.write("\x1b[?1002l")  # which Textual has not set, and so does not take back
        super()._disable_mouse_support()

    def run_input_thread(self) -> None:
        """Reads until it is told to end."""
        wake = self._wake
        if wake is None:
            return
        keystrokes, parser = Keystrokes(), XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        timeout: float | None = None
        last = 0.0
        while True:
            ready = select.select([self.fileno, wake[0]], [], [], timeout)[0]
            if wake[0] in ready:
                return
            if ready:
                try:
                    data = os.read(self.fileno, _READ)
                except OSError:
                    data = b""
                if not data:  # nobody is there any more
                    self.send_message(messages.ExitApp())
                    return
                text = decode(data)
                now = time.monotonic()
                if keystrokes.is_pasting and text in _STOPS and now - last > _STALLED:
                    self._pass_on(keystrokes.give_up(), parser)
                self._pass_on(keystrokes.feed(text), parser)
                last = now
                timeout = _ESCAPE if keystrokes.is_waiting else _SETTLE
            elif keystrokes.is_waiting:
                self._pass_on(keystrokes.settle(), parser)
                timeout = _SETTLE
            else:
                for message in parser.tick():
                    self.process_message(message)
                timeout = None

    def _pass_on(self, pieces: list[Piece], parser: XTermParser) -> None:
        for piece in pieces:
            if isinstance(piece, Pressed):
                self.process_message(events.Key(piece.key, piece.character))
            elif isinstance(piece, Pasted):
                self.process_message(RefusedPaste(piece.refused) if piece.refused else events.Paste(piece.text))
            else:
                for message in parser.feed(piece):
                    self.process_message(message)
