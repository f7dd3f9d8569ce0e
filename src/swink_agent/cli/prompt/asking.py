"""Asks the user at the terminal before a tool runs.

The question and the key that answers it go through `/dev/tty`, whatever stdin and stdout are. Only a key pressed after
the choices were shown counts, and only a key that means yes is a yes. `approvals.question` lays out a question, and
`approvals.approvals` decides which calls are asked about.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.answers import SAID_NO
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.display import safe_display
from swink_agent.approvals.question import QuestionView, Row
from swink_agent.core.approval import Defer
from swink_agent.core.machine.files import write_fully
from swink_agent.rendering.cells import FOLLOWING, cut, laid_out

from ..screen.screen import Palette, Screen, is_live

TERMINAL = "/dev/tty"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
_NO_BECAUSE = re.compile(r"no\b[\s,.:;-]*(?:because\b)?[\s:…]*(.*)", re.IGNORECASE | re.DOTALL)
_GRACE = 0.25
"""Seconds between showing a call and offering the keys: a user who was typing something else has stopped by then."""
_LOOK_AT_SIZE = 0.3
_TOLD = "  · "


class _NoAnswer(Exception):
    """The question ends without an answer: it was withdrawn, or the user closed the input. Its text closes the row."""


class TerminalAsk:
    """Asks the user at the terminal. `open` returns `None` if there is no terminal.

    `keep` stores a rule for the project, and returns what to tell the user.
    """

    def __init__(
        self, descriptor: int, screen: Screen, redact: Callable[[str], str], keep: Callable[[str], str]
    ) -> None:
        self._descriptor = descriptor
        self._screen = screen
        self._redact = redact
        self._keep = keep
        self._is_live = is_live(True)
        self._palette = Palette(self._is_live and not os.environ.get("NO_COLOR"))
        self._settings: list[Any] | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, screen: Screen, redact: Callable[[str], str], keep: Callable[[str], str], path: str = TERMINAL
    ) -> TerminalAsk | None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        if not os.isatty(descriptor):
            os.close(descriptor)
            return None
        return cls(descriptor, screen, redact, keep)

    def close(self) -> None:
        self.restore()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def __call__(self, question: ApprovalQuestion) -> ApprovalAnswer | Defer:
        """Shows the call and waits for a key in a thread. If the run is aborted, a byte in a pipe ends the thread."""
        ending, end = os.pipe()
        talking = asyncio.get_running_loop().run_in_executor(None, self._talk, question, ending)
        try:
            return await asyncio.shield(talking)
        finally:
            os.write(end, b"x")
            while not talking.done():  # it ends at once, and must end before its descriptors are closed
                try:
                    await asyncio.wait([talking])
                except asyncio.CancelledError:
                    continue
            os.close(ending)
            os.close(end)

    def restore(self) -> None:
        """Restores the terminal. Safe to call again, and from a signal handler."""
        settings, self._settings = self._settings, None
        if settings is not None:
            import termios

            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, settings)
            except (OSError, termios.error):
                pass

    # -- the talk ----------------------------------------------------------------------------------------------

    def _talk(self, question: ApprovalQuestion, ending: int) -> ApprovalAnswer | Defer:
        import termios

        while not self._lock.acquire(timeout=0.1):  # another question is on this terminal
            if select.select([ending], [], [], 0)[0]:
                return ApprovalAnswer(ApprovalChoice.NO, SAID_NO)
        self._screen.hold()
        try:
            return self._ask(AskedQuestion(question, self._redact), ending)
        except (_NoAnswer, OSError, termios.error) as end:
            self._write(f"{end}\n" if isinstance(end, _NoAnswer) else "\n")
            return ApprovalAnswer(ApprovalChoice.NO, SAID_NO)
        finally:
            self.restore()
            self._screen.release()
            self._lock.release()

    def _ask(self, asked: AskedQuestion, ending: int) -> ApprovalAnswer | Defer:
        import termios
        import tty

        view = asked.view
        self._settings = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        while True:
            size = self._size()
            self._show(view.rows(*size))
            if select.select([ending], [], [], _GRACE)[0]:
                raise _NoAnswer
            termios.tcflush(self._descriptor, termios.TCIFLUSH)  # text typed before is not an answer to this question
            typed = self._answer(view, size, ending)
            if typed is None:  # the window changed its size: show everything again
                self._write("\n")
                continue
            key = _pressed(typed)
            self._write(f"{key or 'no'}\n")
            means = view.named(key) or ApprovalChoice.NO
            if means == "view":
                self._page(view, ending)
                continue
            reason = self._because(ending) if means == "because" else _reason_in(typed) or ""
            if means == "keep":
                told = laid_out(self._keep(asked.rule), _TOLD, FOLLOWING, size[0])
                self._show([Row(row, ("dim",)) for row in told])
            return asked.answer(means, reason)

    def _answer(self, view: QuestionView, size: tuple[int, int], ending: int) -> str | None:
        """Returns the typed keys once they answer the question or ask for more; `None` if the window was resized.

        For any other key, a line below the question names the valid keys.
        """
        keys = list(view.keys)
        offer = view.offer(size[0])
        self._offer(offer)
        told = 0
        while (typed := self._read(ending, size)) is not None:
            if view.named(_pressed(typed)) or _reason_in(typed) is not None:
                return typed
            shown = safe_display(_pressed(typed), 8)
            names = f"{', '.join(keys[:-1])} or {keys[-1]}"
            if shown.strip():
                hint = f"{shown}? Press {names}"
            elif len(_typed(typed).strip()) > 1:
                hint = f"A key, not a text: {names}"
            else:
                hint = f"Press {names}"
            self._erase(len(offer) + told)
            self._write(self._palette.style(cut(f"  ! {hint}", size[0]), "yellow") + "\n")
            self._offer(offer)
            told = 1
        return None

    def _because(self, ending: int) -> str:
        """Reads one line with the reason. The terminal itself lets the user edit it."""
        import termios

        settings = termios.tcgetattr(self._descriptor)
        settings[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, settings)  # before the user types
        self._write(self._palette.style("No, because: ", "bold"))
        said = b""
        while not said.endswith(b"\n"):
            typed = self._bytes(ending)
            if not typed:
                self._write("\n")
                break
            said += typed
        return said.decode(errors="replace")

    def _page(self, view: QuestionView, ending: int) -> None:
        """Shows the whole call, one window at a time."""
        width, height = self._size()
        rows = view.all_rows(width)
        step = max(height - 1, 2)
        for start in range(0, len(rows), step):
            self._show(rows[start : start + step])
            left = len(rows) - start - step
            if left <= 0:
                return
            self._write(self._palette.style(cut(f"  … {left:,} more rows (space: on, q: back) ", width), "dim"))
            while (key := _pressed(self._read(ending) or "") or " ") not in (" ", "q", "v"):
                pass
            self._erase(1)
            if key == "q":
                return

    # -- the terminal ------------------------------------------------------------------------------------------

    def _size(self) -> tuple[int, int]:
        """The usable width of a row, and the number of rows."""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 79, 24
        return max((size.columns or 80) - 1, 9), size.lines or 24

    def _read(self, ending: int, size: tuple[int, int] | None = None) -> str | None:
        """The next typed keys; `None` once the window has a new size."""
        while True:
            typed = self._bytes(ending, _LOOK_AT_SIZE if size is not None else None)
            if typed is None:
                if self._size() != size:
                    return None
                continue
            if not typed or _typed(typed.decode(errors="replace")).strip() == "\x04":
                raise _NoAnswer("no answer")
            return typed.decode(errors="replace")

    def _bytes(self, ending: int, timeout: float | None = None) -> bytes | None:
        ready = select.select([self._descriptor, ending], [], [], timeout)[0]
        if ending in ready:
            raise _NoAnswer
        return os.read(self._descriptor, 4096) if ready else None

    def _show(self, rows: Sequence[Row]) -> None:
        self._write("".join([f"{self._palette.style(row.text, *row.styles)}\n" for row in rows]))

    def _offer(self, rows: list[str]) -> None:
        *before, last = rows
        shown = [self._palette.style(row, "bold") for row in (*before, last.rstrip())]
        self._write("\n".join(shown) + " ")

    def _erase(self, count: int) -> None:
        """Removes the last rows if the terminal can do that; otherwise begins a new row."""
        if not self._is_live:
            self._write("\n")
        else:
            self._write(f"\r\x1b[{count - 1}A\x1b[J" if count > 1 else "\r\x1b[J")

    def _write(self, text: str) -> None:
        try:
            write_fully(self._descriptor, text.encode("utf-8", "replace"))
        except OSError:
            pass


def _typed(text: str) -> str:
    """The typed text without cursor keys and other control sequences."""
    return _SEQUENCE.sub("", text)


def _pressed(typed: str) -> str:
    """The single key that was pressed, perhaps followed by Enter or a cursor key; nothing for pasted text."""
    text = _typed(typed).strip().lower()
    return text if len(text) == 1 else ""


def _reason_in(typed: str) -> str | None:
    """The words after "no" in a text that begins with it; else `None`. A no may be pasted, a yes may not."""
    found = _NO_BECAUSE.fullmatch(_typed(typed).strip())
    return None if found is None else found.group(1)
