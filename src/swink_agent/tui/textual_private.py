"""The private names of Textual that this package uses. No other file uses any.

Textual has no public equivalents. `tests/tui/test_textual_private.py` fails if the installed Textual lacks one of these
names or gives it another meaning, and `pyproject.toml` admits only the versions that were tested.
"""

from __future__ import annotations

from typing import TypeVar

from textual._xterm_parser import XTermParser
from textual.app import App

KeyParser = XTermParser
"""Turns the text that a terminal sends into key and mouse events: `feed(text)`, and `tick()` once nothing follows."""

T = TypeVar("T")


class CrashKeepingApp(App[T]):
    """An application that ends on an unhandled error, keeps the error, and prints nothing."""

    crash: BaseException | None = None
    """The first error that ended the application."""

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual would print a traceback with the values of variables, which may be keys.
        self._close_messages_no_wait()
