"""Completes the word at the cursor: a command at the start of the text, or a file after an `@`.

Owns which words can be completed (`TypedWord`), the order of matches, and the text that is inserted. Files are listed
and compared in threads, so that a large or slow folder never delays a key; matches can be chosen while the rest is
being read. `tools.files.listing` decides which files are visible.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from swink_agent.core.waits import in_own_thread

from .matching import fitting

if TYPE_CHECKING:
    from swink_agent.app.talk.commands import Command
    from swink_agent.tools.files.listing import VisiblePaths

T = TypeVar("T")
_FRESH = 5.0
"""Seconds for which a scan of the folder is used again."""
_MOST = 50
_MOST_PATHS = 300_000
"""Most paths that are kept; they take some tens of megabytes."""
_LONGEST_LOOK = 60.0
_SOON = 0.15
"""Seconds after which the matches so far are listed."""
_FEW = 2000
"""Most names that are compared without a thread."""
_ELSEWHERE = ("/", "~", "./", "../")


class TypedWord(NamedTuple):
    """The word being typed at the cursor: its kind, its place in the text, and its text so far."""

    kind: Literal["command", "file"]
    start: int
    end: int
    typed: str


class Completion(NamedTuple):
    """A completion: the text to insert, its label in the list, and a short description."""

    text: str
    label: str
    detail: str = ""


class Completer:
    """Completes commands by their names, and the files in a folder and its subfolders by parts of their paths."""

    def __init__(self, *, commands: Sequence[Command] = (), folder: Path | str = ".") -> None:
        self._commands = tuple(commands)
        self.folder = Path(folder)
        self._index: list[str] = []
        self._read_at: float | None = None
        self._reading: asyncio.Future[VisiblePaths] | None = None
        self._growing: list[str] = []
        self._is_cut = False
        self._asked = 0
        self._took = 0.0
        self._is_open = True

    def close(self) -> None:
        """Ends a scan of the folder that is still running."""
        self._is_open = False
        if self._reading is not None:
            self._reading.cancel()

    def wanted(self, text: str, cursor: int) -> TypedWord | None:
        """Returns the word to complete at the cursor; `None` if there is none."""
        before = text[:cursor]
        if before[:1] == "/" and not any(part.isspace() for part in before):
            return TypedWord("command", 0, cursor, before)
        line = before[before.rfind("\n") + 1 :]
        at = line.rfind("@")
        if at < 0:
            return None
        is_free = at == 0 or line[at - 1].isspace() or line[at - 1] in "([{<,;:\"'"
        typed = line[at + 1 :]
        if not is_free:
            return None
        start = len(before) - len(line) + at
        if typed.startswith('"'):
            return TypedWord("file", start, cursor, typed[1:]) if '"' not in typed[1:] else None
        return TypedWord("file", start, cursor, typed) if not any(part.isspace() for part in typed) else None

    def commands(self, wanted: TypedWord) -> list[Completion]:
        """Returns the commands that begin with the typed text, then those that contain its letters in order."""
        typed = wanted.typed.casefold()
        names = {command.name: command for command in self._commands}
        first = [name for name in names if name.casefold().startswith(typed)]
        rest = [name for name in fitting(list(names), typed, _MOST) if name not in first and len(typed) > 1]
        ordered = [*sorted(first, key=lambda name: name.casefold() != typed), *rest]
        return [Completion(name, name, names[name].help) for name in ordered]

    async def files(self, wanted: TypedWord) -> list[Completion]:
        """Returns the best matches among the files and folders that were found so far (see `note`), the best first.
        Returns nothing if another search has begun meanwhile."""
        typed = wanted.typed
        self._asked += 1
        asked = self._asked
        if typed.startswith(_ELSEWHERE):
            found = await in_own_thread(lambda: _entries_of(typed, self.folder))
        else:
            paths = await self._paths()

            def fit() -> list[str]:
                return fitting(paths, typed, _MOST, goes_on=lambda: self._is_open and asked == self._asked)

            was_reading = self.is_reading
            found = await in_own_thread(fit) if len(paths) > _FEW else fit()
            if was_reading and not self.is_reading:  # the scan has ended meanwhile
                paths = self._index
                found = await in_own_thread(fit)
        # As in a prompt, a path with spaces is in quotes.
        return [Completion(f'@"{path}"' if any(map(str.isspace, path)) else f"@{path}", path) for path in found]

    @property
    def is_reading(self) -> bool:
        """Whether the first scan of the folder still runs, so that more files may be found."""
        return self._read_at is None and self._reading is not None

    @property
    def note(self) -> str:
        """A note for the user if there are, or may be, more files than are listed; else ""."""
        if self.is_reading:
            return f"still reading the folder: {len(self._growing):,} found so far"
        return f"the folder holds more than is listed: {len(self._index):,} were read" if self._is_cut else ""

    async def more(self) -> None:
        """Returns when the scan has ended, or after a moment."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=2 * _SOON)

    async def _paths(self) -> list[str]:
        """Returns the paths of the last scan, and starts a new one if that is too old. During the first scan, returns
        the paths found so far."""
        fresh = _FRESH + 10 * self._took  # a folder that is slow to read is read less often
        if self._read_at is None or time.monotonic() - self._read_at > fresh:
            if self._reading is None:
                self._growing = []
                self._reading = asyncio.ensure_future(in_own_thread(self._look))
                self._reading.add_done_callback(self._looked)
            if self._read_at is None:
                reading = self._reading
                await asyncio.wait([reading], timeout=_SOON)
                return reading.result().paths if reading.done() else self._growing[:]
        return self._index  # the last scan is used until the next one has ended

    def _look(self) -> VisiblePaths:
        from swink_agent.tools.files.listing import visible_paths

        start = time.monotonic()
        found = visible_paths(
            self.folder, most=_MOST_PATHS, seconds=_LONGEST_LOOK, goes_on=lambda: self._is_open, into=self._growing
        )
        self._took = time.monotonic() - start
        return found

    def _looked(self, reading: asyncio.Future[VisiblePaths]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is None:
            found = reading.result()
            self._index, self._is_cut, self._read_at = found.paths, not found.is_all, time.monotonic()
            self._growing = []


def _entries_of(typed: str, folder: Path) -> list[str]:
    """Returns the entries of the typed folder whose names begin with the last typed part."""
    from swink_agent.tools.files.listing import visible_entries

    above, _, beginning = typed.rpartition("/")
    if typed == "~":
        above, beginning = "~", ""
    where = folder / os.path.expanduser(f"{above}/" if above or typed.startswith("/") else ".")
    entries = visible_entries(where).entries
    begun = beginning.casefold()
    fit = [(name, is_folder) for name, is_folder in entries if name.casefold().startswith(begun) and name.isprintable()]
    return [f"{above}/{name}{'/' * is_folder}" for name, is_folder in fit[:_MOST]]
