"""What may be meant by what is being typed: a command at the beginning of the text, or a file behind an `@`.

Owns what is asked for at a cursor (`TypedWord`), the order of what fits, and what is put into the text. Files are
looked for in a thread that ends by itself, so that no folder, however large or slow, holds up a key; which of them are
to be seen is decided in `tools.listing`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from .fuzzy import fitting

__all__ = ["Completer", "Completion", "KnownCommand", "TypedWord"]

T = TypeVar("T")
_FRESH = 5.0
"""Seconds for which a look at the folder holds."""
_MOST = 50
_ELSEWHERE = ("/", "~", "./", "../")


class KnownCommand(Protocol):
    """A command as it is completed: its name with the sign before it (`/model`, `#help`), and a few words about it."""

    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...


class TypedWord(NamedTuple):
    """What is being typed at the cursor: the place of it in the text, and what is there so far."""

    kind: Literal["command", "file"]
    start: int
    end: int
    typed: str


class Completion(NamedTuple):
    """Something that may be meant: what is put into the text, how it is listed, and a few words about it."""

    text: str
    label: str
    detail: str = ""


class Completer:
    """Completes commands by their names, and files beneath a folder by parts of theirs."""

    def __init__(self, *, commands: Sequence[KnownCommand] = (), folder: Path | str = ".") -> None:
        self._commands = tuple(commands)
        self._folder = Path(folder)
        self._index: list[str] = []
        self._read_at: float | None = None
        self._reading: asyncio.Future[list[str]] | None = None
        self._is_open = True

    @property
    def folder(self) -> Path:
        """Where files are looked for."""
        return self._folder

    def close(self) -> None:
        """Lets a look at the folder that is still going on end."""
        self._is_open = False
        if self._reading is not None:
            self._reading.cancel()

    def wanted(self, text: str, cursor: int) -> TypedWord | None:
        """What there is to complete at the cursor, if anything."""
        before = text[:cursor]
        if before[:1] in ("/", "#") and not any(part.isspace() for part in before):
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
        """The commands that begin so, then those with the letters in them."""
        typed = wanted.typed.casefold()
        names = {command.name: command for command in self._commands if command.name[:1] == typed[:1]}
        first = [name for name in names if name.casefold().startswith(typed)]
        rest = [name for name in fitting(list(names), typed, _MOST) if name not in first and len(typed) > 1]
        ordered = [*sorted(first, key=lambda name: name.casefold() != typed), *rest]
        return [Completion(name, name, names[name].help) for name in ordered]

    async def files(self, wanted: TypedWord) -> list[Completion]:
        """The files and folders that fit best, the best first; nothing if the folder takes too long to answer."""
        typed = wanted.typed
        if typed.startswith(_ELSEWHERE):
            found = await self.beside(lambda: _entries_of(typed, self._folder))
        else:
            paths = await self._paths()
            found = await self.beside(lambda: fitting(paths, typed, _MOST)) if len(paths) > 2000 else None
            found = fitting(paths, typed, _MOST) if found is None else found
        return [Completion(_written(path), path) for path in found]

    async def _paths(self) -> list[str]:
        """The paths beneath the folder, as they were a few seconds ago at most."""
        if self._read_at is None or time.monotonic() - self._read_at > _FRESH:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self.beside(self._look))
                self._reading.add_done_callback(self._looked)
            if self._read_at is None:
                return await asyncio.shield(self._reading)
        return self._index  # the last look serves until the next one is done

    def _look(self) -> list[str]:
        from swink_agent.tools.files.listing import visible_paths

        return visible_paths(self._folder, goes_on=lambda: self._is_open).paths

    def _looked(self, reading: asyncio.Future[list[str]]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is None:
            self._index, self._read_at = reading.result(), time.monotonic()

    @staticmethod
    async def beside(function: Callable[[], T]) -> T:
        """The function's result, from a thread that the program's end does not wait for."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: Exception | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # pyright: ignore[reportArgumentType]

        def work() -> None:
            result: T | None = None
            problem: Exception | None = None
            try:
                result = function()
            except Exception as error:
                problem = error
            try:
                loop.call_soon_threadsafe(tell, result, problem)
            except RuntimeError:
                pass  # the loop has ended, and nobody waits any more

        threading.Thread(target=work, name="swink-completion", daemon=True).start()
        return await done


def _entries_of(typed: str, folder: Path) -> list[str]:
    """What lies in the folder that was typed and begins as its last part does."""
    from swink_agent.tools.files.listing import visible_entries

    above, _, beginning = typed.rpartition("/")
    if typed == "~":
        above, beginning = "~", ""
    where = folder / os.path.expanduser(f"{above}/" if above or typed.startswith("/") else ".")
    entries = visible_entries(where).entries
    begun = beginning.casefold()
    fit = [(name, is_folder) for name, is_folder in entries if name.casefold().startswith(begun) and name.isprintable()]
    return [f"{above}/{name}{'/' * is_folder}" for name, is_folder in fit[:_MOST]]


def _written(path: str) -> str:
    """The path as it stands in a prompt: in quotes where it has spaces."""
    return f'@"{path}"' if any(part.isspace() for part in path) else f"@{path}"
