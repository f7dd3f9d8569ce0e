"""The search engine for machines without ripgrep: a separate program, run as a child process.

Searches one tree and reports in lines of JSON. Python's `re` may take for ever on a pattern, and holds all threads
meanwhile: a process can be ended. Imports the standard library and neighbouring files that import only that too.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .glob import NameGlob
from .tree import open_file_in, walk

BOOT = (
    "import sys, types; package = types.ModuleType('scanning'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['scanning'] = package; from scanning.scan import main; main(sys.argv[2])"
)
"""The code that the child runs: it loads this file and its neighbours, without the rest of our package."""

LONGEST_EXCERPT = 300
_BEFORE_MATCH = 80
_AROUND_MATCH = 5000
_LONGEST_LINE = 64 * 1024 * 1024
_NAMES_AT_ONCE = 32 * 1024


def main(request: str) -> None:
    """Searches the current folder and writes matches to standard output. The request is JSON."""
    _give_up_writing()
    wanted = json.loads(request)
    try:
        _search(wanted)
    except (re.error, ValueError, RecursionError, OverflowError, MemoryError) as error:
        _report({"problem": str(error) or type(error).__name__})
    except OSError as error:
        _report({"failure": f"{error.strerror or error}"})
    else:
        _report({"finished": True})


def _give_up_writing() -> None:
    """Forbids this process to write files, start processes or dump core: it only reads, even without a sandbox."""
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))


def excerpt(text: str, column: int) -> str:
    """The part of a line around the match, in at most 300 characters and a `…` at each cut end."""
    if len(text) <= LONGEST_EXCERPT:
        return text
    start = max(0, min(column - _BEFORE_MATCH, len(text) - LONGEST_EXCERPT))
    end = start + LONGEST_EXCERPT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def window(text: str, column: int) -> tuple[str, int]:
    """The part of a line that is needed to tell whether the excerpt has a secret, and the match's position in it."""
    start = max(0, column - _AROUND_MATCH)
    return text[start : column + _AROUND_MATCH], column - start


def _search(wanted: dict[str, Any]) -> None:
    start = [os.fsencode(part) for part in wanted["start"]]
    glob = NameGlob(wanted["glob"]) if wanted["glob"] is not None else None
    find = None
    if wanted["pattern"] is not None:
        find = compile_pattern(wanted["pattern"], wanted["ignore_case"])
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


def compile_pattern(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    """The pattern as Python reads it. Raises `ValueError` and `re.error`, also for what ripgrep reads differently."""
    for sign in re.findall(r"\\.", pattern):
        if sign in (r"\<", r"\>"):
            raise ValueError(f"without ripgrep, {sign} is not known: write \\b")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)
    except FutureWarning:
        raise ValueError(
            "without ripgrep, classes in classes, such as [[:alpha:]] and [a&&b], are not known: write the characters"
        ) from None


def _search_file(path: bytes, fd: int | None, find: re.Pattern[str]) -> None:
    if fd is None:
        return
    shown = os.fsdecode(path)
    with os.fdopen(fd, "rb") as file:
        try:
            for number, line in enumerate(_lines(file), 1):
                if line is None:
                    _report({"binary": shown})
                    return
                found = find.search(line)
                if found is not None:
                    text, column = window(line, found.start())
                    _report({"path": shown, "line": number, "text": text, "column": column})
        except OSError:
            return


def _lines(file: io.BufferedReader) -> Iterator[str | None]:
    """The lines without their line ends; `None`, and nothing more, once the file turns out not to be text."""
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
