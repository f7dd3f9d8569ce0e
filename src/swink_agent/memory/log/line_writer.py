"""Writes records to the open log of a session: each is masked and becomes one line.

Owns masking on the way to the disk. `session_log` decides when to write and handles errors, `records` has the format of
a line, and the log itself is an `OpenLog`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec import structs

from swink_agent.core.journal import MessageAdded, MessageReplaced
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import UserMessage, extract_text

from ..sessions.info import title_from
from .masking import masked, may_need_masking
from .records import RecordEntry, Summary, fill_line


class LineWriter:
    """Writes to one log. Used by one thread at a time."""

    __slots__ = ("_append", "_line", "_masked_titles", "_prefix")

    def __init__(self, append: Callable[[bytearray], int], *, prefix: bytes = b"") -> None:
        self._append = append
        self._line = bytearray()
        """The line that is being written. The buffer is used again for the next."""
        self._prefix = prefix
        """What is missing at the end of the log: the newline of its last record."""
        self._masked_titles: dict[int | None, str] = {}
        """The titles of user messages that held secrets, by the number of the record."""

    def write(self, number: int, at: int, entry: RecordEntry, redactor: Redactor | None) -> int:
        """Writes one record with one write; returns how many bytes it took. Raises the error that prevents it."""
        if redactor is not None and may_need_masking(entry):
            entry = self._masked(number, entry, redactor)
        line = self._line
        fill_line(line, number, at, entry)
        if self._prefix:
            line[:0], self._prefix = self._prefix, b""
        append = self._append  # looked up as what it is, not as a method, which takes longer
        taken = append(line)
        if taken != len(line):
            raise OSError(f"only {taken} of {len(line)} bytes were taken")
        return taken

    def _masked(self, number: int, entry: RecordEntry, redactor: Redactor) -> RecordEntry:
        """The entry without secrets. A title is the start of a masked text, not the masked start of a text: a redactor
        does not recognise half a secret."""
        new = masked(entry, redactor)
        if type(new) is Summary:
            title = self._masked_titles.get(new.first_number)
            return new if title is None else structs.replace(new, first=title)
        if new is not entry and isinstance(new, (MessageAdded, MessageReplaced)) and type(new.message) is UserMessage:
            of = number if type(new) is MessageAdded else cast("MessageReplaced", new).number
            self._masked_titles[of] = title_from(extract_text(new.message.content))
        return new
