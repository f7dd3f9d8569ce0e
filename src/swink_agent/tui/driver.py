"""The driver of the terminal: input, output, and the terminal's modes.

Owns the thread that reads, which sleeps until input arrives, and the mouse. `keystrokes` sorts the input,
`terminal_output` has the thread that writes. Textual's own driver does the rest; this one overrides only its public
methods.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import select
import signal
import sys
import termios
import time
import tty
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from textual import events, messages
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.message import Message

from swink_agent.core.cancel import call_in

from .attention import RESTORE_TITLE, SAVE_TITLE
from .keystrokes import LARGEST_PASTE, Background, Keystrokes, Pasted, Piece, Pressed
from .terminal_output import TerminalOutput
from .textual_private import CrashKeepingApp, KeyParser

if TYPE_CHECKING:
    from .widgets.page import Turn

T = TypeVar("T")

_ESCAPE = 0.05
"""Seconds to wait for the rest of a sequence before an escape character counts as the Escape key."""
_SETTLE = 0.12
"""Seconds after which Textual's parser decides what an unfinished sequence was."""
_READ = 65536
_STALLED = 1.0
"""Seconds without input after which Ctrl+C ends a paste whose end was lost."""
_SYNC, _SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that support these show everything between them at once."""
_STOPS = ("\x03", "\x1b[99;5u")
_MOUSE = "\x1b[?1000h\x1b[?1002h\x1b[?1006h"
"""Buttons, the wheel, and movements with a button held. Nothing needs every movement, and each report costs time."""
_NO_MOUSE = "\x1b[?1000l\x1b[?1002l\x1b[?1006l"
_MOUSE_IN_PIXELS = "\x1b[?1016h"
_COOKED_INPUT = termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
_COOKED_LINES = termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG


class TerminalApp(CrashKeepingApp[T]):
    """An application that knows its terminal."""

    terminal: TerminalDriver | None = None
    """Set once the application has a terminal; `None` in tests without one."""

    def paint(self, region: Region, turn: Turn) -> bool:
        """Paints directly onto the terminal. Returns whether this program has one."""
        return self.terminal is not None and self.terminal.paint(self, region, turn)


class RefusedPaste(events.Paste):
    """A paste that is too large to accept; it has no text."""

    def __init__(self, characters: int) -> None:
        super().__init__("")
        self.characters = characters


class TerminalDriver(LinuxDriver):
    """Textual's driver with our own input, output and mouse modes: `App(driver_class=TerminalDriver)`."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        # This class sets the mouse modes, not Textual.
        super().__init__(app, debug=debug, mouse=False, size=size)  # pyright: ignore[reportUnknownMemberType]
        self._owner = app
        self._is_debugging = debug
        self._has_mouse = mouse
        self._wake: tuple[int, int] | None = None
        self._output: TerminalOutput | None = None
        self._early = b""
        """Input from before the program had the terminal, not yet read as keys."""
        self._has_started = False
        self._restarts = True
        self._on_escape: Callable[[], None] | None = None
        self._hold: Callable[[], None] | None = None
        self._is_settled = Event()
        """Cleared while the reading thread cannot tell yet whether an escape character is the Escape key."""
        self._on_background: Callable[[str], None] | None = None
        self._is_on = False
        """Whether the terminal is in the modes of this program."""
        self._has_title = False
        self._has_written = False
        signal.signal(signal.SIGCONT, self._go_on)
        if isinstance(app, TerminalApp):
            app.terminal = self

    # -- starting and stopping ---------------------------------------------------------------------------------

    @contextmanager
    def no_automatic_restart(self) -> Generator[None]:
        restarts, self._restarts = self._restarts, False
        try:
            with super().no_automatic_restart():
                yield
        finally:
            self._restarts = restarts

    def _go_on(self, *_: object) -> None:
        """Handles SIGCONT: the shell has given the terminal back."""
        if not self._restarts:
            return
        was_on = self._is_on
        if was_on:
            # Another program sent the stop, if there was one, so the modes may have changed. Resuming without
            # suspending first would leave two threads that read keys.
            self.suspend_application_mode()
        self.resume_application_mode()
        if was_on:
            self.send_message(self.SignalResume())

    def _caught_up(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def draw_anew() -> None:
            self._owner.refresh(layout=True)

        return lambda: call_in(loop, draw_anew)

    def start_application_mode(self) -> None:
        self._wake = self._wake or os.pipe()
        before = None if self._has_started else self._take_early()
        self._has_started = True
        # Textual draws on stderr; where that is a file (`2>log`), the terminal is on stdout.
        file = sys.__stderr__ if sys.__stderr__ is not None and sys.__stderr__.isatty() else sys.__stdout__
        self._output = None if file is None else TerminalOutput(file, self._caught_up())
        if self._output is not None:
            self._output.start()
        self._has_written = False
        super().start_application_mode()
        if before is not None:
            self.attrs_before = before
        if not self._has_written:  # in the background: Textual found that it may not use the terminal yet
            self.close()
            self._output = None
            return
        self._is_on = True
        # Terminals without the kitty protocol report Shift+Enter in xterm's form.
        self.write("\x1b[>4;1m")
        self._write_mouse()

    def write(self, data: str) -> None:
        self._has_written = True
        if self._output is not None:
            self._output.write(data)

    def close(self) -> None:
        if self._output is not None:
            self._output.stop()
        super().close()

    def _take_early(self) -> list[Any] | None:
        """Takes input from before the program had the terminal; returns the terminal's previous settings.

        The terminal still edited lines then and turned Enter into a line feed, which is turned back here.
        """
        try:
            before: list[Any] = termios.tcgetattr(self.fileno)
            raw = [*before]
            raw[tty.IFLAG], raw[tty.LFLAG] = before[tty.IFLAG] & ~_COOKED_INPUT, before[tty.LFLAG] & ~_COOKED_LINES
            termios.tcsetattr(self.fileno, termios.TCSANOW, raw)
            if before[tty.LFLAG] & termios.ICANON:
                while len(self._early) < LARGEST_PASTE and select.select([self.fileno], [], [], 0)[0]:
                    data = os.read(self.fileno, _READ)
                    if not data:
                        break
                    self._early += data
        except (OSError, termios.error):
            return None
        if before[tty.IFLAG] & termios.ICRNL:
            self._early = self._early.replace(b"\n", b"\r")
        self._early = self._early.replace(b"\0", b"")  # Ctrl+D
        return before

    def stop_application_mode(self) -> None:
        self._is_on = False
        self.write("\x1b[>4;0m")
        if self._has_title:
            self._has_title = False
            self.write(RESTORE_TITLE)
        super().stop_application_mode()

    def disable_input(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            os.write(wake[1], b"\0")
        if self._has_mouse:
            self.write(_NO_MOUSE)
        super().disable_input()
        if wake is not None:
            os.close(wake[0])
            os.close(wake[1])

    def paint(self, app: App[Any], region: Region, turn: Turn) -> bool:
        """Draws the changes of a region as wide as the screen. Returns `False`, without drawing, if the region is
        narrower or the terminal is not in this program's modes.

        Moves rows by deleting and inserting lines: scrolling would put them into the terminal's scrollback.
        """
        if not self._is_on or region.width != app.size.width:
            return False
        up = turn.up
        parts: list[str] = []
        if up:
            first, many = region.y + 1, f"{abs(up)}{'M' if up > 0 else 'L'}"
            parts.append(f"{_SYNC}\x1b[{first};{region.bottom}r\x1b[{first}H\x1b[{many}\x1b[r")
        for y, x, strip in turn.patches:
            parts.append(f"\x1b[{region.y + y + 1};{region.x + x + 1}H{strip.render(app.console)}")
        column, row = app.cursor_position
        parts.append(f"\x1b[{row + 1};{column + 1}H{_SYNC_END if up else ''}")
        self.write("".join(parts))
        return True

    def set_title(self, sequence: str) -> None:
        """Sets the window's title; the previous one comes back when the program leaves the screen."""
        if not self._has_title:
            self._has_title = True
            self.write(SAVE_TITLE)
        self.write(sequence)

    def set_mouse(self, is_ours: bool) -> None:
        """Takes the mouse, or gives it back to the terminal for its own selecting and copying."""
        self._has_mouse = is_ours
        self._write_mouse()

    def _write_mouse(self) -> None:
        self.write(_MOUSE if self._has_mouse else _NO_MOUSE)

    # -- reading -----------------------------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        """Reads until `disable_input` wakes it."""
        wake = self._wake
        if wake is None:
            return
        keystrokes, parser = Keystrokes(), KeyParser(self._is_debugging)
        decode = getincrementaldecoder("utf-8")("replace").decode
        timeout: float | None = None
        last = 0.0
        early, self._early = self._early, b""
        if early:
            self._pass_on(keystrokes.feed(decode(early)), parser)
            timeout = _ESCAPE if keystrokes.is_waiting else _SETTLE
        while True:
            ready = select.select([self.fileno, wake[0]], [], [], timeout)[0]
            if wake[0] in ready:
                return
            if ready:
                try:
                    data = os.read(self.fileno, _READ)
                except OSError:
                    data = b""
                if not data:  # the terminal is gone
                    self.send_message(messages.ExitApp())
                    return
                text = decode(data)
                now = time.monotonic()
                if keystrokes.is_pasting and text in _STOPS and now - last > _STALLED:
                    self._pass_on(keystrokes.give_up(), parser)
                self._pass_on(keystrokes.feed(text), parser)
                last = now
                timeout = _ESCAPE if keystrokes.is_waiting else _SETTLE
                self._is_settled.set()
                if keystrokes.is_waiting and text.endswith("\x1b") and self._hold is not None:
                    self._is_settled.clear()
                    self._hold()
            elif keystrokes.is_waiting:
                self._pass_on(keystrokes.settle(), parser)
                self._is_settled.set()
                timeout = _SETTLE
            else:
                for message in parser.tick():
                    self.process_message(message)
                timeout = None

    def process_message(self, message: Message) -> None:
        """Reports Escape before other events in the event loop's queue, which is long when many deltas arrive."""
        if isinstance(message, events.Key) and message.key == "escape" and self._on_escape is not None:
            self._on_escape()
        if isinstance(message, messages.InBandWindowResize) and message.supported and self._has_mouse:
            self.write(_MOUSE_IN_PIXELS)  # Textual's parser reads positions as pixels from here on
        super().process_message(message)

    def on_escape(self, call: Callable[[], None]) -> None:
        """Sets a function to call in the running event loop when Escape is pressed, before the key event arrives.

        After an escape character the loop pauses until the rest of a sequence arrives or, after 50 ms, the character
        counts as the Escape key. Otherwise it would go on processing deltas that the user no longer wants.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        self._on_escape = lambda: call_in(loop, context.run, call)
        self._hold = lambda: call_in(loop, self._is_settled.wait, 4 * _ESCAPE)

    def ask_background(self, call: Callable[[str], None]) -> None:
        """Asks the terminal for its background colour; if it answers, `call` runs in the running event loop."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        self._on_background = lambda colour: call_in(loop, context.run, call, colour)
        self.write("\x1b]11;?\x1b\\")
        self.flush()

    def _pass_on(self, pieces: list[Piece], parser: KeyParser) -> None:
        for piece in pieces:
            if isinstance(piece, Pressed):
                self.process_message(events.Key(piece.key, piece.character))
            elif isinstance(piece, Background):
                if self._on_background is not None:
                    self._on_background(piece.colour)
            elif isinstance(piece, Pasted):
                self.process_message(RefusedPaste(piece.refused) if piece.refused else events.Paste(piece.text))
            else:
                for message in parser.feed(piece):
                    self.process_message(message)
