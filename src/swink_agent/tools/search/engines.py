"""The two search engines: how each is called, and how its output is read.

Makes the arguments of ripgrep and of the scanner, and reads their records from chunks of bytes. `search/tool` decides
which engine is used, and which matches are shown.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from .glob import NameGlob, last_segment
from .scan import BOOT, window

_LONGEST_RECORD = 4 * 1024 * 1024
_MOST_NOISE = 4096
_PLAIN_GLOB = re.compile(rb"[\w.*+@ -]+", re.ASCII)


class Query(NamedTuple):
    """A search. `start`, the place to search, is relative to the root, and ends with a file's name if `is_file`."""

    pattern: str | None
    glob: NameGlob | None
    glob_text: str | None
    ignore_case: bool
    start: tuple[bytes, ...]
    is_file: bool


class Hit(NamedTuple):
    """A matching line, at `column` of the known part `text`; or a file: then `line` is 0."""

    path: bytes
    line: int = 0
    text: str = ""
    column: int = 0


class Binary(NamedTuple):
    """A file that turned out not to be text: its matches do not count."""

    path: bytes


Record: TypeAlias = Hit | Binary


class Engine:
    """One run of an engine: its command, and the reader of its output."""

    name = ""

    def __init__(self, query: Query, separator: bytes) -> None:
        self.query = query
        self.noise = b""
        """Other output: errors of the engine, or of the sandbox around it."""
        self.is_finished = False
        """Whether it reported that it finished."""
        self.skipped = 0
        """Records that were skipped: matches on lines of megabytes."""
        self._separator = separator
        self._buffer = bytearray()
        self._is_skipping = False

    def argv(self) -> list[str]:
        raise NotImplementedError

    def folder(self, root: str) -> str:
        """Where it is started."""
        raise NotImplementedError

    def record(self, data: bytes) -> Record | None:
        """The record in one piece of output. Output in no known form is noise."""
        raise NotImplementedError

    def problem(self, code: int) -> str | None:
        """Why the run is useless, or `None` if it is good."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> Iterator[Record]:
        """The records that the chunk completes. One that is far too long is skipped."""
        self._buffer += chunk
        *pieces, rest = self._buffer.split(self._separator)
        self._buffer = rest
        for piece in pieces:
            if self._is_skipping:
                self._is_skipping = False
                continue
            record = self.record(bytes(piece))
            if record is not None:
                yield record
        if len(self._buffer) > _LONGEST_RECORD:
            record = None if self._is_skipping else self.begun_record(bytes(self._buffer))
            if record is not None:
                yield record
            elif not self._is_skipping:
                self.skipped += 1
            self._buffer.clear()
            self._is_skipping = True

    def begun_record(self, data: bytes) -> Record | None:
        """The record in the beginning of a piece that is far too long, if that is enough for one."""
        return None

    def make_noise(self, data: bytes) -> None:
        self.noise = (self.noise + data + b"\n")[:_MOST_NOISE]


class RipgrepEngine(Engine):
    """Ripgrep, which finds its files itself. `is_sorted` makes it slower, with matches in order."""

    name = "ripgrep"

    def __init__(self, query: Query, program: str, *, is_sorted: bool) -> None:
        super().__init__(query, b"\0" if query.pattern is None else b"\n")
        self._program = program
        self._is_sorted = is_sorted
        folder = query.start[:-1] if query.is_file else query.start
        self._prefix = b"".join([part + b"/" for part in folder])

    def folder(self, root: str) -> str:
        return os.path.join(root, os.fsdecode(self._prefix)).rstrip("/") or "/"

    def argv(self) -> list[str]:
        query = self.query
        argv = [self._program, "--no-config", "--no-messages", "--no-ignore-messages", "--color=never"]
        argv += ["--hidden", "--no-follow", "--no-mmap", "--glob=!.git"]
        argv += ["--no-ignore-global", "--no-ignore-dot", "--no-require-git"]
        if not self._prefix:
            argv.append("--no-ignore-parent")  # rules above the root must not be read
        if self._is_sorted:
            argv.append("--sort=path")
        argv += self._types()
        if query.pattern is None:
            argv += ["--files", "--null"]
        else:
            argv += ["--json", "--crlf", "--ignore-case" if query.ignore_case else "--case-sensitive"]
            argv.append(f"--regexp={query.pattern}")
        return [*argv, "--", f"./{os.fsdecode(query.start[-1])}" if query.is_file else "./"]

    def _types(self) -> list[str]:
        """Options that exclude files of other names.

        Not `--glob`, which would bring back ignored files. The search tool itself filters by globs that ripgrep may
        understand differently.
        """
        glob = self.query.glob
        segments = [] if glob is None or glob.negated else [last_segment(item) for item in glob.alternatives]
        if not segments or b"*" in segments or not all(map(_PLAIN_GLOB.fullmatch, segments)):
            return []
        return [*[f"--type-add=wanted:{segment.decode()}" for segment in segments], "--type=wanted"]

    def record(self, data: bytes) -> Record | None:
        if self.query.pattern is None:
            return self._name(data)
        try:
            record = json.loads(data)
            kind, content = record["type"], record["data"]
            if kind == "summary":
                self.is_finished = True
            elif kind == "match":
                return self._match(content)
            elif kind == "end" and content["binary_offset"] is not None:
                return Binary(self._path(_bytes(content["path"])))
        except (ValueError, TypeError, KeyError):
            self.make_noise(data)
        return None

    def begun_record(self, data: bytes) -> Record | None:
        """That of a line with very many matches, which come last: the first is enough."""
        if self.query.pattern is None:
            return None
        end = data.find(b'},{"match":', max(0, data.find(b',"submatches":[{')))  # not in a text, which has no bare "
        return self.record(data[:end] + b"}]}}") if end > 0 else None

    def _name(self, data: bytes) -> Record | None:
        noise, _, name = data.rpartition(b"\n./") if not data.startswith(b"./") else (b"", b"", data[2:])
        if noise or not name:
            self.make_noise(noise or data)
        return Hit(self._prefix + name) if name else None

    def _match(self, content: dict[str, Any]) -> Hit:
        line = _bytes(content["lines"]).removesuffix(b"\n").removesuffix(b"\r")
        column = content["submatches"][0]["start"] if content["submatches"] else 0
        before = len(line[:column].decode("utf-8", "replace"))
        text, column = window(line.decode("utf-8", "replace"), before)
        return Hit(self._path(_bytes(content["path"])), content["line_number"], text, column)

    def _path(self, path: bytes) -> bytes:
        return self._prefix + path.removeprefix(b"./")

    def problem(self, code: int) -> str | None:
        said = (self.noise + self._buffer)[:_MOST_NOISE].decode("utf-8", "replace").strip()
        # A folder that may not be opened makes the exit code 2, without a message.
        names_are_good = code in (0, 1) or (code == 2 and not said)
        is_good = names_are_good if self.query.pattern is None else self.is_finished
        return None if is_good else said or f"ripgrep ended with {code}"


class ScannerEngine(Engine):
    """Our own scanner, in a separate interpreter. Its matches come in order."""

    name = "scanner"

    def __init__(self, query: Query, interpreter: str) -> None:
        super().__init__(query, b"\n")
        self._interpreter = interpreter
        self._problem: str | None = None

    def folder(self, root: str) -> str:
        return root

    def argv(self) -> list[str]:
        query = self.query
        request = {
            "pattern": query.pattern,
            "glob": query.glob_text,
            "ignore_case": query.ignore_case,
            "start": [os.fsdecode(part) for part in query.start],
        }
        here = os.path.dirname(os.path.abspath(__file__))
        return [self._interpreter, "-I", "-S", "-B", "-c", BOOT, here, json.dumps(request)]

    def record(self, data: bytes) -> Record | None:
        try:
            match json.loads(data):
                case {"path": str(path), "line": int(line), "text": str(text), **rest}:
                    return Hit(os.fsencode(path), line, text, int(rest.get("column", 0)))
                case {"path": str(path)}:
                    return Hit(os.fsencode(path))
                case {"binary": str(path)}:
                    return Binary(os.fsencode(path))
                case {"finished": True}:
                    self.is_finished = True
                case {"problem": str(problem)}:
                    self._problem = f"the pattern is not valid: {problem}"
                case {"failure": str(failure)}:
                    self._problem = f"the search failed: {failure}"
                case _:
                    self.make_noise(data)
        except ValueError:
            self.make_noise(data)
        return None

    def problem(self, code: int) -> str | None:
        if self.is_finished or self._problem is not None:
            return self._problem
        said = self.noise.decode("utf-8", "replace").strip()
        return f"the search failed: {said or f'its process ended with {code}'}"


def read_folders(interpreter: str, programs: Sequence[str]) -> tuple[str, ...]:
    """The folders that the engines must read in addition to the workspace: the programs, Python's library, this
    package's folder."""
    places = [sys.base_prefix, sys.prefix, os.path.dirname(os.path.abspath(__file__))]
    places += [
        os.path.dirname(path) for program in [interpreter, *programs] for path in (program, os.path.realpath(program))
    ]
    return tuple(dict.fromkeys(place for place in places if place and place != "/"))


def _bytes(content: dict[str, str]) -> bytes:
    """The bytes of a text in ripgrep's output, which is base64 if it is not UTF-8."""
    return content["text"].encode() if "text" in content else base64.b64decode(content["bytes"])
