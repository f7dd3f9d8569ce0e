"""The open file of a session: each record is masked and written as one line, with one write.

Owns the descriptor. `file_journal` decides when to write and handles errors, `records` has the format of a line, and
`opening` finds, locks and repairs files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from msgspec import structs

from swink_agent.core.journal import MessageAdded, MessageReplaced
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import UserMessage, extract_text

from ..sessions.info import title_from
from .files import FileOperations, close_quietly
from .masking import masked, may_need_masking
from .records import RecordEntry, Summary, fill_line

__all__ = ["SessionFile"]


class SessionFile:
    """One open file. Used by one thread at a time."""

    __slots__ = ("_descriptor", "_files", "_line", "_masked_titles", "_new_names", "_prefix", "_write_bytes")

    def __init__(
        self, descriptor: int, files: FileOperations, *, new_names: Sequence[Path] = (), prefix: bytes = b""
    ) -> None:
        self._descriptor = descriptor
        self._files = files
        self._write_bytes = files.write
        self._line = bytearray()
        """The line that is being written. The buffer is used again for the next."""
        self._new_names = tuple(new_names)
        """Folders with new names that are not synced yet."""
        self._prefix = prefix
        """What is missing at the end of the file: the newline of its last record."""
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
        write = self._write_bytes  # looked up as what it is, not as a method, which takes longer
        taken = write(self._descriptor, line)
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

    def empty(self) -> None:
        """Deletes the content of the file."""
        self._files.empty(self._descriptor)

    def sync(self) -> None:
        """Returns when the content and the name of the file survive a loss of power."""
        self._files.sync(self._descriptor)
        if os.fstat(self._descriptor).st_nlink == 0:
            raise OSError("somebody deleted the file")  # nothing could ever be read from it
        for folder in self._new_names:
            self._files.sync_folder(folder)
        self._new_names = ()

    def rename(self, path: Path, new_path: Path, *, sync: bool) -> None:
        """Renames the file in one step."""
        if sync:
            self._files.sync(self._descriptor)
        self._files.replace(path, new_path)

    def close(self, *, is_inherited: bool = False) -> None:
        """Closes the file. The lock is released, unless it belongs to the process that this one was forked from."""
        if is_inherited:
            with suppress(OSError):
                self._files.close(self._descriptor)
        else:
            close_quietly(self._files, self._descriptor)
