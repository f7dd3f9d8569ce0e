"""The file of a run: a header line, then a line for each attempt, together one JSON document.

    {"schema_version": 1, "id": …, "summary": …, "attempts": [
    {"case_id": …, "attempt": {…}, "trajectory": {…}},
    {"case_id": …, "attempt": {…}, "trajectory": {…}}
    ]}

While a run goes on, its file is the beginning of that document, in the order in which attempts ended; a line that was
cut off by a crash is dropped. Owns the format, reading it, and writing it so that what was said to be on the disk is.
Which files there are is for `store`.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from swink_agent.core.values.value import Value

from .codec import AttemptLine, decode_line, encode_line
from .errors import EvalStoreError
from .types import StoredTrajectory, Summary

__all__ = ["SCHEMA_VERSION", "AttemptLog", "RunHeader", "read_attempts", "read_header", "write_run"]

SCHEMA_VERSION = 1
_OPENING = b',"attempts":['
_LONGEST_HEADER = 1 << 20
_CASE_ID = re.compile(rb'"case_id":\s*"((?:[^"\\]|\\.)*)"')


class RunHeader(Value, frozen=True):
    """What the first line says."""

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


def _header_line(header: RunHeader) -> bytes:
    return msgspec.json.encode(header)[:-1] + _OPENING + b"\n"


# -- reading -----------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> RunHeader:
    """What the first line of a run says. Raises `EvalStoreError`."""
    try:
        with path.open("rb") as file:
            return _header(file, path)
    except OSError as error:
        raise EvalStoreError(f"cannot be read: {error.strerror}", path=str(path)) from error


def _header(file: BinaryIO, path: Path) -> RunHeader:
    line = file.readline(_LONGEST_HEADER).strip()
    try:
        if line.endswith(b"["):
            return _checked(msgspec.json.decode(line + b"]}", type=RunHeader), path)
        file.seek(0)  # somebody wrote it anew, in lines of their own
        return _checked(msgspec.json.decode(file.read(), type=RunHeader), path)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EvalStoreError(f"is no result of an evaluation: {error}", path=str(path)) from error


def _checked(header: RunHeader, path: Path) -> RunHeader:
    if header.schema_version > SCHEMA_VERSION:
        raise EvalStoreError(
            f"is of schema version {header.schema_version}, which a newer version of swink-agent wrote; update it",
            path=str(path),
        )
    return header


def read_attempts(path: Path) -> Iterator[AttemptLine]:
    """The attempts of a run, each knowing where what the agent did lies. Raises `EvalStoreError`.

    A line is in memory for as long as the caller looks at it. Of a run that is under way or was interrupted, a last
    line that is not whole is left out.
    """
    with _opened(path) as file:
        header = _header(file, path)
        if not _is_in_lines(file):
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


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise EvalStoreError(f"cannot be read: {error.strerror}", path=str(path)) from error


def _is_in_lines(file: BinaryIO) -> bool:
    """Whether the file is as we write it; it is left where the attempts begin."""
    file.seek(0)
    return file.readline(_LONGEST_HEADER).strip().endswith(b"[")


class _LooseRun(Value, frozen=True):
    attempts: list[msgspec.Raw]


def _loose_attempts(path: Path) -> Iterator[AttemptLine]:
    """The attempts of a document that somebody wrote anew: all of it in memory."""
    try:
        for raw in msgspec.json.decode(path.read_bytes(), type=_LooseRun).attempts:
            yield decode_line(bytes(raw), whole=True)
    except (ValueError, OSError) as error:
        raise EvalStoreError(f"is no result of an evaluation: {error}", path=str(path)) from error


# -- writing -----------------------------------------------------------------------------------------------------------


def write_run(path: Path, header: RunHeader, lines: Iterable[bytes]) -> list[StoredTrajectory]:
    """Puts a whole run in place, at once or not at all, and says where each line lies. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    places: list[StoredTrajectory] = []
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(draft, "xb", opener=_private) as file:
            file.write(_header_line(header))
            is_first = True
            for line in lines:
                if not is_first:
                    file.write(b",\n")
                is_first = False
                places.append(StoredTrajectory(str(path), file.tell(), len(line)))
                file.write(line)
            file.write(b"\n]}\n" if not is_first else b"]}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return places


def _private(path: str, flags: int) -> int:
    """Opens for the owner alone: a run holds all that its agents read."""
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AttemptLog:
    """The file of a run that goes on. One writer at a time, held by a lock that a crash gives back."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held through a trip to the disk, which `append` does not wait for."""
        self._pending: list[bytes] = []
        self._synced = size
        self._is_closed = False

    @classmethod
    def create(cls, path: Path, header: RunHeader) -> AttemptLog:
        """A new file, on the disk when this returns. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            line = _header_line(header)
            _write_all(descriptor, line)
            os.fsync(descriptor)
            _sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, len(line))

    @classmethod
    def reopen(cls, path: Path) -> AttemptLog | None:
        """The file of a run that was interrupted, without a line that was cut off; `None` if somebody writes to it."""
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
        """Takes a line, and says where it will lie, and the mark that `sync` will have passed when it does."""
        data = encode_line(line)
        with self._lock:
            stored = StoredTrajectory(str(self.path), self._size, len(data))
            self._pending.append(data + b",\n")
            self._size += len(data) + 2
            return stored, self._size

    def sync(self) -> int:
        """Takes to the disk whatever was appended before, and says up to which mark. Raises `OSError`."""
        with self._writing:
            if not self._is_closed:
                self._flush()
            return self._synced

    def close(self) -> None:
        """Writes what is left, and gives the file up. Raises `OSError`."""
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
            pending, self._pending = self._pending, []
            size = self._size
        if pending:
            _write_all(self._descriptor, b"".join(pending))
            os.fsync(self._descriptor)
        self._synced = size


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _whole_lines(descriptor: int) -> int:
    """The length of the file up to the end of its last whole line."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    step = 1 << 16
    while end > 0:
        start = max(0, end - step)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
