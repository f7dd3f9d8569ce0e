"""The history of sent prompts, kept in a file that programs running at the same time share.

Owns the file (one JSON object per line, readable only by its owner), its size, and which prompts are never written to
it. Secrets are masked before a prompt is kept, in memory too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from swink_agent.core.machine.files import locked, replace_file
from swink_agent.core.values.decoders import json_decoder

_LARGEST = 2 * 1024 * 1024
"""Bytes of the file above which its older half is dropped."""
_LARGEST_ENTRY = 64 * 1024
"""A prompt with more characters is kept only in memory."""
_MOST_ENTRIES = 5000
_PATIENCE = 0.2
_SECRET_LINE = re.compile(r"^\s*[/#]key(?!s\s*$)", re.IGNORECASE | re.MULTILINE)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class _Entry(msgspec.Struct):
    text: str


class PromptHistory:
    """Prompts from the oldest to the newest. Without a path they are kept only in memory.

    If the file cannot be read or written, nothing is raised, and `problem` is the reason.
    """

    def __init__(self, path: Path | None, redact: Callable[[str], str] = str) -> None:
        self._path = path
        self._redact = redact
        self._entries: list[str] = []
        self._unwritten: list[str] = []
        self._seen: tuple[int, int, int] | None = None
        self.problem = ""

    def add(self, text: str) -> None:
        """Keeps a prompt, masked, unless it has a `/key` line or equals the last one."""
        if not text.strip() or _SECRET_LINE.search(text):
            return
        masked = self._redact(text)
        if self._entries and self._entries[-1] == masked:
            return
        self._entries.append(masked)
        if self._path is None or len(masked) > _LARGEST_ENTRY:
            self._unwritten.append(masked)
            return
        line = msgspec.json.encode(_Entry(masked)) + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._path, _PATIENCE) as is_locked:
                size = self._append(line)
                if size > _LARGEST and is_locked:
                    self._trim()
        except OSError as error:
            self._unwritten.append(masked)
            self.problem = f"the history of prompts ({self._path}) cannot be written: {error.strerror or error}"

    def entries(self) -> list[str]:
        """Returns all prompts, including those of other programs. Of equal prompts, only the last is included."""
        self._read()
        return list(dict.fromkeys(reversed(self._entries)))[::-1]

    # -- the file ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Reads the file if it has changed since it was last read."""
        if self._path is None:
            return
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = f"the history of prompts ({self._path}) cannot be read: {error.strerror or error}"
            return
        with os.fdopen(fd, "rb") as file:
            about = os.fstat(fd)
            version = (about.st_ino, about.st_size, about.st_mtime_ns)
            if version == self._seen:
                return
            file.seek(max(about.st_size - _LARGEST, 0))
            data = file.read(_LARGEST)
        self._seen = version
        lines = data.split(b"\n")[1 if about.st_size > _LARGEST else 0 :]
        self._entries = [*self._decoded(lines), *self._unwritten]

    @staticmethod
    def _decoded(lines: list[bytes]) -> list[str]:
        decoder = json_decoder(_Entry)
        found: list[str] = []
        for line in lines[-_MOST_ENTRIES - 1 :]:
            try:
                found.append(decoder.decode(line).text)
            except (msgspec.MsgspecError, ValueError):
                continue  # a line that a crash cut off, or that was edited by hand
        return found

    def _append(self, line: bytes) -> int:
        """Writes a line with one system call, and returns the new size of the file."""
        assert self._path is not None
        fd = os.open(self._path, _APPEND, 0o600)
        try:
            about = os.fstat(fd)
            if about.st_mode & 0o077:
                os.fchmod(fd, 0o600)
            if about.st_size and os.pread(fd, 1, about.st_size - 1) != b"\n":
                line = b"\n" + line  # a crash cut off the last line: begin a new one
            os.write(fd, line)
            return about.st_size + len(line)
        finally:
            os.close(fd)

    def _trim(self) -> None:
        """Drops the older half. Replaces the whole file, while this program holds the lock."""
        assert self._path is not None
        with open(self._path, "rb") as file:
            file.seek(-_LARGEST // 2, os.SEEK_END)
            kept = file.read().partition(b"\n")[2]
        replace_file(self._path, kept, sync=False)


class HistoryWalk:
    """A walk through the prompts, from the newest back. It begins and ends at the draft."""

    def __init__(self, history: PromptHistory, beginning: str = "") -> None:
        self._entries = [text for text in history.entries() if text != beginning]
        self._place = len(self._entries)

    @property
    def is_at_end(self) -> bool:
        """Whether the draft is shown, not a prompt of the history."""
        return self._place >= len(self._entries)

    def older(self) -> str | None:
        """Returns the previous prompt; `None` before the first."""
        if self._place == 0:
            return None
        self._place -= 1
        return self._entries[self._place]

    def newer(self) -> str | None:
        """Returns the next prompt; `None` after the last, where the draft follows."""
        self._place = min(self._place + 1, len(self._entries))
        return None if self.is_at_end else self._entries[self._place]


class HistorySearch:
    """A search as in shells: finds the newest prompt that contains the text, and older ones on demand."""

    def __init__(self, history: PromptHistory) -> None:
        self._entries = history.entries()
        self._place = len(self._entries)
        self.query = ""
        self.found: str | None = None
        self.at = 0
        """The place of the text in the found prompt."""
        self.has_failed = False

    def type(self, text: str) -> None:
        """Adds to the searched text. The found prompt stays if it still matches."""
        self.query += text
        self._look(self._place, -1)

    def rub_out(self) -> None:
        """Removes the last character of the searched text, and searches again from the newest prompt."""
        self.query = self.query[:-1]
        self._place = len(self._entries)
        self.found, self.has_failed = None, False
        if self.query:
            self._look(self._place, -1)

    def older(self) -> None:
        """Finds the next older prompt that contains the text."""
        self._look(self._place - 1, -1)

    def newer(self) -> None:
        """Finds the next newer prompt that contains the text."""
        self._look(self._place + 1, 1)

    def _look(self, start: int, step: int) -> None:
        if not self.query:
            return
        query = self.query.casefold()
        place = min(start, len(self._entries) - 1)
        while 0 <= place < len(self._entries):
            at = self._entries[place].casefold().find(query)
            if at >= 0 and (self._entries[place] != self.found or place == self._place):
                self._place, self.found, self.at, self.has_failed = place, self._entries[place], at, False
                return
            place += step
        self.has_failed = True
