"""The file of a run: a header line, then a line for each attempt, together one JSON document.

    {"schema_version": 1, "id": …, "summary": …, "attempts": [
    {"case_id": …, "attempt": {…}, "trajectory": {…}},
    {"case_id": …, "attempt": {…}, "trajectory": {…}}
    ]}

During a run, its file is the beginning of that document, with the attempts in the order in which they ended. A last
line that a crash cut off is dropped. Owns the format, reading and durable writing. `store` manages the files.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from swink_agent.core.machine.files import replacing, sync_folder, write_fully
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.value import Value

from ..cases.cases import Verdict
from ..errors import EvalStoreError, told
from ..types import StoredTrajectory, Summary
from .codec import AttemptLine, decode_line, encode_line

SCHEMA_VERSION = 1
_OPENING = b',"attempts":['
_LONGEST_HEADER = 1 << 20
_CASE_ID = re.compile(rb'"case_id":\s*"((?:[^"\\]|\\.)*)"')


class RunHeader(Value, frozen=True):
    """The fields of the first line."""

    id: str
    set_id: str
    schema_version: int = SCHEMA_VERSION
    set_name: str = ""
    set_digest: str = ""
    created: int = 0
    cases: int = 0
    repeat: int = 1
    is_complete: bool = False
    summary: Summary | None = None
    chain: str = ""
    verdict: Verdict = Verdict.ALL
    variant: str = ""
    grid: str = ""
    origin: str = ""


def _header_line(header: RunHeader) -> bytes:
    return msgspec.json.encode(header)[:-1] + _OPENING + b"\n"


# -- reading -----------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> RunHeader:
    """Reads the first line of a run. Raises `EvalStoreError`."""
    with told(path, "cannot be read"), path.open("rb") as file:
        return _header(file, path)


def _header(file: BinaryIO, path: Path) -> RunHeader:
    line = file.readline(_LONGEST_HEADER).strip()
    if line.endswith(b"["):
        line += b"]}"
    else:
        file.seek(0)  # another program has reformatted the file
        line = file.read()
    try:
        header = json_decoder(RunHeader).decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EvalStoreError(f"is not a result of an evaluation: {error}", path=str(path)) from error
    if header.schema_version > SCHEMA_VERSION:
        problem = f"is of schema version {header.schema_version}, which a newer version of swink-agent wrote; update it"
        raise EvalStoreError(problem, path=str(path))
    return header


def read_attempts(path: Path) -> Iterator[AttemptLine]:
    """Yields the attempts of a run, each with the place of its trajectory. Raises `EvalStoreError`.

    Only one line is in memory at a time. If the run is in progress or was interrupted, an incomplete last line is left
    out.
    """
    with told(path, "cannot be read"):
        file = path.open("rb")
    with file:
        header = _header(file, path)
        file.seek(0)
        if not file.readline(_LONGEST_HEADER).strip().endswith(b"["):
            yield from _loose_attempts(path)
            return
        number = 1
        while True:
            offset = file.tell()
            line = file.readline()
            number += 1
            data = line.rstrip().rstrip(b",")
            if not line or data == b"]}":
                return
            if not line.endswith(b"\n") and not header.is_complete:
                return
            try:
                attempt = decode_line(data)
            except ValueError as error:
                named = _CASE_ID.search(data)
                case = f", case {named.group(1).decode(errors='replace')}" if named else ""
                raise EvalStoreError(f"line {number}{case} is damaged: {error}", path=str(path)) from error
            stored = StoredTrajectory(str(path), offset, len(data))
            yield replace(attempt, attempt=replace(attempt.attempt, trajectory=stored))


class _LooseRun(Value, frozen=True):
    attempts: list[msgspec.Raw]


def _loose_attempts(path: Path) -> Iterator[AttemptLine]:
    """The attempts of a file that another program has reformatted; all of it is read into memory."""
    try:
        for raw in json_decoder(_LooseRun).decode(path.read_bytes()).attempts:
            yield decode_line(bytes(raw), whole=True)
    except (ValueError, OSError) as error:
        raise EvalStoreError(f"is not a result of an evaluation: {error}", path=str(path)) from error


# -- writing -----------------------------------------------------------------------------------------------------------


def write_run(path: Path, header: RunHeader, lines: Iterable[bytes]) -> list[StoredTrajectory]:
    """Writes a whole run in one step; returns the place of each line. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    places: list[StoredTrajectory] = []
    with replacing(path, sync_name=True) as file:
        file.write(_header_line(header))
        for line in lines:
            if places:
                file.write(b",\n")
            places.append(StoredTrajectory(str(path), file.tell(), len(line)))
            file.write(line)
        file.write(b"\n]}\n" if places else b"]}\n")
    return places


class AttemptLog:
    """The file of a run in progress. A lock, which a crash releases, allows one writer at a time."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # held while data is synced to the disk; `append` does not wait for it
        self._pending: list[bytes] = []
        self._synced = size
        self._is_closed = False

    @classmethod
    def create(cls, path: Path, header: RunHeader) -> AttemptLog:
        """Creates a file, which is on the disk when this returns. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            line = _header_line(header)
            write_fully(descriptor, line)
            os.fsync(descriptor)
            sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, len(line))

    @classmethod
    def reopen(cls, path: Path) -> AttemptLog | None:
        """Opens the file of an interrupted run and drops an incomplete line; `None` if another process writes to it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = _whole_lines(descriptor)
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, size, os.SEEK_SET)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, size)

    def append(self, line: AttemptLine) -> tuple[StoredTrajectory, int]:
        """Adds a line; returns its place, and the mark that `sync` returns or exceeds once the line is on the disk."""
        data = encode_line(line)
        with self._lock:
            stored = StoredTrajectory(str(self.path), self._size, len(data))
            self._pending.append(data + b",\n")
            self._size += len(data) + 2
            return stored, self._size

    def sync(self) -> int:
        """Writes all appended lines to the disk; returns the mark that was reached.

        Raises `OSError`. Lines that could not be written are written by the next call, or by `close`.
        """
        with self._writing:
            if not self._is_closed:
                self._flush()
            return self._synced

    def close(self) -> None:
        """Writes the remaining lines and closes the file. Raises `OSError`."""
        with self._writing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._flush()
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
                os.close(self._descriptor)

    def _flush(self) -> None:
        with self._lock:
            pending, size = list(self._pending), self._size
        if pending:
            try:
                write_fully(self._descriptor, b"".join(pending))
                os.fsync(self._descriptor)
            except OSError:
                # A part of a line may have been written. It must not stay before the lines of the next attempt.
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._synced)
                    os.lseek(self._descriptor, self._synced, os.SEEK_SET)
                raise
        with self._lock:
            del self._pending[: len(pending)]
        self._synced = size


def _whole_lines(descriptor: int) -> int:
    """The length of the file up to the end of its last complete line."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    step = 1 << 16
    while end > 0:
        start = max(0, end - step)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
