"""stderr and stdout as a person sees them: lines that stay, one line that does not, colours where they are wanted.

Owns what may be written to a terminal: text of a model or a tool never reaches one with its control characters alive.
Does not own what is said: that is in `reporter`.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TextIO

__all__ = ["Screen", "plain_text", "wants_colour", "write_answer"]

_STYLES = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}
_KEPT = frozenset("\n\t")


def plain_text(text: str) -> str:
    """Text for a terminal, several lines of it: characters that move, hide or reorder are written out."""
    if text.isascii() and text.isprintable():
        return text
    from swink_agent.policies.display import is_deceptive

    return "".join(
        character if character in _KEPT or not is_deceptive(character) else f"\\u{{{ord(character):x}}}"
        for character in text.replace("\r\n", "\n")
    )


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Colours only on a terminal that can show them, and not if the user said no."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def write_answer(text: str) -> None:
    """Writes to stdout, to a terminal without control characters, into a pipe as it is. Raises `OSError`."""
    stream = sys.stdout
    data = (plain_text(text) if stream.isatty() else text).encode("utf-8", "replace")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


class Screen:
    """A stream for people, usually stderr. Safe from any thread; one that is closed is written to no more."""

    def __init__(
        self,
        stream: TextIO,
        *,
        colours: bool | None = None,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._stream = stream
        self._colours = wants_colour(stream) if colours is None else colours
        self._width = width
        self._status = ""
        self._lock = threading.RLock()
        self.is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        return max(20, self._width())

    def style(self, text: str, *styles: str) -> str:
        """The text in these styles, if there are colours here."""
        if not self._colours or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def line(self, text: str) -> None:
        """A line that stays. The caller has made its text safe."""
        with self._lock:
            self._write(self._erased() + text + "\n" + self._status)

    def status(self, text: str) -> None:
        """The one line that does not stay: it is cut to the width, and replaced by the next. Only on a terminal."""
        if not self.is_terminal:
            return
        with self._lock:
            erase = self._erased()
            self._status = _cut(plain_text(text).replace("\n", " ").replace("\t", " "), self.columns - 1)
            self._write(erase + self._status)

    def clear(self) -> None:
        """Takes the status line away."""
        with self._lock:
            if self._status:
                self._write(self._erased())
                self._status = ""

    def _erased(self) -> str:
        return "\r\x1b[K" if self._status else ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it, which is no reason to fail


def _cut(text: str, width: int) -> str:
    """As much as fits, wide characters counted as two."""
    if text.isascii():
        return text[:width]
    from unicodedata import east_asian_width

    used = 0
    for position, character in enumerate(text):
        used += 2 if east_asian_width(character) in "WF" else 1
        if used > width:
            return text[:position]
    return text
