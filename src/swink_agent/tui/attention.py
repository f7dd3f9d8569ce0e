"""Notifies a user who looks elsewhere: the bell, the window's title, a desktop notification.

Owns the terminal sequences, and makes their text safe. The application decides when to notify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from swink_agent.rendering.escaping import safe_display

NotifyMode: TypeAlias = Literal["auto", "bell", "off"]
BELL = "\x07"
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_LONGEST = 100


def title(text: str) -> str:
    return f"\x1b]2;{_plain(text)}{BELL}"


def notification(text: str, environ: Mapping[str, str]) -> str:
    """Returns the sequences for a desktop notification, in both forms that terminals know (OSC 9 and OSC 777).

    A terminal ignores the form that it does not know. Inside tmux they are wrapped, so that tmux passes them on.
    """
    body = _plain(text).replace(";", ",")  # a semicolon would end the field
    sequences = (f"\x1b]9;swink: {body}{BELL}", f"\x1b]777;notify;swink;{body}{BELL}")
    if not environ.get("TMUX"):
        return "".join(sequences)
    return "".join([f"\x1bPtmux;{each.replace(chr(27), chr(27) * 2)}\x1b\\" for each in sequences])


def _plain(text: str) -> str:
    """Returns one short line without control characters."""
    shown = safe_display(" ".join(text.split()), None)
    return "".join([part for part in shown if part.isprintable()])[:_LONGEST]


class Attention:
    """Notifies the user according to the setting. `write` writes to the terminal."""

    def __init__(
        self,
        mode: NotifyMode,
        write: Callable[[str], None],
        set_title: Callable[[str], None],
        *,
        is_focused: Callable[[], bool],
        environ: Mapping[str, str],
    ) -> None:
        self._mode = mode
        self._write = write
        self._set_title = set_title
        self._is_focused = is_focused
        self._environ = environ

    def call(self, text: str) -> None:
        """Notifies of a question, or of the end of a long run."""
        if self._mode == "off":
            return
        self._write(BELL)
        if self._mode == "bell":
            return
        self._set_title(title(f"swink: {text}"))
        if not self._is_focused():
            self._write(notification(text, self._environ))

    def calm(self) -> None:
        """Resets the title, because nothing waits for the user."""
        if self._mode == "auto":
            self._set_title(title("swink"))
