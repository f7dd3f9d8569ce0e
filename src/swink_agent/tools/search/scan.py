"""The search engine for where ripgrep is not: a program of its own, run as a child process.

Owns the search of one tree with Python's regular expressions, and the lines of JSON in which it reports. It runs apart
because an expression can take for ever: a child can be ended, a thread cannot. Imports the standard library and its
neighbours that do the same.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .glob import NameGlob
from .tree import open_file_in, walk

__all__ = ["BOOT", "LONGEST_EXCERPT", "excerpt", "main", "window"]

BOOT = (
    "import sys, types; package = types.ModuleType('scanning'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['scanning'] = package; from scanning.scan import main; main(sys.argv[2])"
)
"""What the child runs: this file and its neighbours, without the package around them and what that would load."""

LONGEST_EXCERPT = 300
_BEFORE_MATCH = 80
_AROUND_MATCH = 5000
_LONGEST_LINE = 1024 * 1024
_NAMES_AT_ONCE = 32 * 1024


def main(request: str) -> None:
    """Searches the current folder as the request says, and writes what it finds to standard output."""
    _give_up_writing()
    wanted = json.loads(request)
    try:
        _search(wanted)
    except (ValueError, RecursionError, OverflowError, MemoryError, FutureWarning, re.error) as error:
        _report({"problem": str(error) or type(error).__name__})
    except OSError as error:
        _report({"failure": f"{error.strerror or error}"})
    else:
        _report({"finished": True})


def _give_up_writing() -> None:
    """No byte in any file, no process and no dump from now on: where no sandbox works, it only reads all the same."""
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))


def excerpt(text: str, column: int) -> str:
    """A line in few enough characters, the match among them."""
    if len(text) <= LONGEST_EXCERPT:
        return text
    start = max(0, min(column - _BEFORE_MATCH, len(text) - LONGEST_EXCERPT))
    end = start + LONGEST_EXCERPT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def window(text: str, column: int) -> tuple[str, int]:
    """As much of a line around the match as it takes to tell whether there is a secret in its excerpt, and where in it
    the match is."""
    start = max(0, column - _AROUND_MATCH)
    return text[start : column + _AROUND_MATCH], column - start


def _search(wanted: dict[str, Any]) -> None:
    start = [os.fsencode(part) for part in wanted["start"]]
    glob = NameGlob(wanted["glob"]) if wanted["glob"] is not None else None
    find = None if wanted["pattern"] is None else _compile(wanted["pattern"], wanted["ignore_case"])
    beneath = len(b"/".join(start)) + 1 if start else 0
    names = bytearray()
    root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for found in walk(root, start):
        if glob is not None and not glob.matches(found.path[beneath:] or found.name):
            continue
        if find is not None:
            _search_file(found.path, open_file_in(found.folder, found.name), find)
            continue
        names += _line({"path": os.fsdecode(found.path)})
        if len(names) >= _NAMES_AT_ONCE:
            _write(names)
            names.clear()
    _write(names)


def _compile(pattern: str, ignore_case: bool) -> Callable[[str], re.Match[str] | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # a class of classes: it does not mean what it seems to
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0).search


def _search_file(path: bytes, fd: int | None, find: Callable[[str], re.Match[str] | None]) -> None:
    if fd is None:
        return
    shown = os.fsdecode(path)
    with os.fdopen(fd, "rb") as file:
        try:
            for number, line in enumerate(_lines(file), 1):
                if line is None:
                    _report({"binary": shown})
                    return
                match = find(line)
                if match is not None:
                    text, column = window(line, match.start())
                    _report({"path": shown, "line": number, "text": text, "column": column})
        except OSError:
            return


def _lines(file: io.BufferedReader) -> Iterator[str | None]:
    """The lines without their ends; `None`, and no more, once the file turns out to be no text."""
    start = file.peek(3)[:3]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        with io.TextIOWrapper(file, "utf-16", "replace", newline="\n") as text:
            while line := text.readline(_LONGEST_LINE):
                yield line.removesuffix("\n").removesuffix("\r")
        return
    if start == b"\xef\xbb\xbf":
        file.read(3)
    while raw := file.readline(_LONGEST_LINE):
        if b"\0" in raw:
            yield None
            return
        yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        while len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):  # the rest of a line that is far too long
            raw = file.readline(_LONGEST_LINE)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _report(record: dict[str, Any]) -> None:
    _write(_line(record))


def _write(data: bytes | bytearray) -> None:
    view = memoryview(bytes(data))
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
