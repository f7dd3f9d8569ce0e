"""stderr and stdout as a person sees them: lines that stay, one line that does not, colours where they are wanted.

Owns what may be written to a terminal: no line of ours is wider than the window, so none wraps; text of somebody else
stands behind a mark of ours in every row, and its control characters are written out. Does not own what is said: that
is in `reporter`; nor how text is made safe and measured: that is in `rendering.escaping` and `rendering.cells`.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TextIO

from swink_agent.rendering.cells import FOLLOWING, cell_width, cut, laid_out
from swink_agent.rendering.escaping import safe_text

__all__ = ["FOLLOWING", "Palette", "Screen", "is_live", "wants_colour", "width_of", "write_answer"]

_STYLES = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}


def is_live(is_terminal: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a line can be taken back here: on a terminal that says what it is, and is not a dumb one."""
    return is_terminal and environ.get("TERM", "") not in ("", "dumb")


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Colours only on a terminal that can show them, and not if the user said no."""
    return is_live(stream.isatty(), environ) and not environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int | None:
    """How wide a row may be on this stream so that it does not wrap; nothing where no window is."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        columns = shutil.get_terminal_size().columns
    return max(10, columns) - 1


def write_answer(text: str) -> None:
    """Writes to stdout, to a terminal without control characters, into a pipe as it is. Raises `OSError`."""
    stream = sys.stdout
    data = (safe_text(text) if stream.isatty() else text).encode("utf-8", "replace")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


class Palette:
    """Styles, or none of them."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def style(self, text: str, *styles: str) -> str:
        """The text in these styles, if there are colours here."""
        if not self._colours or not text or not styles:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


class Screen(Palette):
    """A stream for people, usually stderr. Safe from any thread; one that is closed is written to no more."""

    def __init__(
        self,
        stream: TextIO,
        *,
        colours: bool | None = None,
        width: Callable[[], int] | None = None,
        live: bool | None = None,
    ) -> None:
        super().__init__(wants_colour(stream) if colours is None else colours)
        self._stream = stream
        self._given_width = width
        self._status = ""
        self._held: list[str] | None = None
        self._lock = threading.RLock()
        self.is_watched = stream.isatty()
        """Whether somebody is there to follow a run, on whatever kind of terminal."""
        self.is_terminal = is_live(self.is_watched) if live is None else live
        """Whether the line that does not stay can be shown."""

    @property
    def columns(self) -> int:
        """The width of the window now."""
        if self._given_width is not None:
            return max(10, self._given_width())
        return (width_of(self._stream) or 79) + 1

    @property
    def width(self) -> int | None:
        """How wide a row may be so that it does not wrap; nothing where no window is."""
        return self.columns - 1 if self.is_terminal or self.is_watched else None

    def line(self, text: str) -> None:
        """A line that stays. The caller has made its text safe, and narrow enough."""
        with self._lock:
            if self._held is not None:
                self._held.append(text)
                return
            self._write(self._erased() + text + "\n" + self._cut_status())

    def say(self, mark: str, text: str, *styles: str, following: str = FOLLOWING, most: int | None = None) -> None:
        """Foreign text as lines that stay: the first behind the mark, which gets the styles; the others behind
        `following`. Past `most` rows the middle is left out."""
        rows = laid_out(safe_text(text), mark, following, self.width, most=most)
        first = self.style(rows[0][: len(mark)].rstrip(), *styles) + rows[0][len(mark.rstrip()) :]
        self.line("\n".join([first, *rows[1:]]))

    def rows(self, mark: str, text: str, *styles: str, most: int | None = None) -> None:
        """Foreign text as lines that stay, each behind the same mark and all in the styles."""
        for row in laid_out(safe_text(text), mark, mark, self.width, most=most):
            self.line(self.style(row, *styles))

    def status(self, text: str) -> None:
        """The one line that does not stay: it is cut to the width, and replaced by the next. Only on a terminal."""
        if not self.is_terminal:
            return
        with self._lock:
            if self._held is not None:
                return
            erase = self._erased()
            self._status = safe_text(text).replace("\n", " ").replace("\t", " ")
            self._write(erase + self._cut_status())

    def clear(self) -> None:
        """Takes the status line away."""
        with self._lock:
            if self._status:
                self._write(self._erased())
                self._status = ""

    def hold(self) -> None:
        """Keeps everything back until `release`: somebody is being asked something on this very terminal."""
        with self._lock:
            self.clear()
            self._held = [] if self._held is None else self._held

    def release(self) -> None:
        """Writes the lines that were kept back."""
        with self._lock:
            held, self._held = self._held, None
            for text in held or ():
                self.line(text)

    def _cut_status(self) -> str:
        """The status line as the window has room for it now: it may have been made narrower meanwhile."""
        self._status = cut(self._status, self.columns - 1, sign="")
        return self._status

    def _erased(self) -> str:
        """What takes the status line away. In a window that was made narrower it has become several rows."""
        if not self._status:
            return ""
        rows = (cell_width(self._status) - 1) // self.columns
        # xterm alone cuts lines off instead of breaking them, and says who it is.
        return f"\r\x1b[{rows}A\x1b[J" if rows > 0 and not os.environ.get("XTERM_VERSION") else "\r\x1b[K"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it, which is no reason to fail
