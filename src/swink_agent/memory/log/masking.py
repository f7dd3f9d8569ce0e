"""Makes the lines of a session's file: each record is masked, then written.

Owns the writing to the open log. `core.secrets.masking` knows which fields of a record hold text, and the agent's
redactor knows the secrets.
"""

from __future__ import annotations

from collections.abc import Callable

from swink_agent.core.secrets.masking import masked
from swink_agent.core.secrets.redaction import Redactor

from .records import RecordEntry, SessionStarted, fill_line

_TEXTS_OF_A_START = ("title", "metadata")  # its id and its folder are how it is found


class LineWriter:
    """Writes to one log. Used by one thread at a time."""

    def __init__(self, append: Callable[[bytearray], int]) -> None:
        self._append = append
        self._line = bytearray()
        """The line that is being written. The buffer is reused for the next line."""

    def write(self, number: int, at: int, entry: RecordEntry, redactor: Redactor | None) -> None:
        """Writes one record with one write. Raises if it is not written completely."""
        if redactor is not None:
            entry = masked(entry, redactor, _TEXTS_OF_A_START if isinstance(entry, SessionStarted) else None)
        line = self._line
        fill_line(line, number, at, entry)
        taken = self._append(line)
        if taken != len(line):
            raise OSError(f"only {taken} of {len(line)} bytes were written")
