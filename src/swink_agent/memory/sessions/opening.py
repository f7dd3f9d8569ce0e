"""Creates the file of a session, and opens one to continue it.

A file has one writer, which holds its lock while it is open. A damaged file is replaced by a copy without the damage
before anything is added, and the damaged bytes are kept in a file beside it. The copy is locked before it takes the
old file's name, so that no other process can open it in between.

Owns creating, locking and repairing. `reading` reads, and changes nothing.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from swink_agent.core.types import CustomMessage

from ..errors import SessionDamaged, SessionError, SessionInUse, SessionNotFound, reason_of
from ..log.file_journal import SessionLog
from ..log.files import FileOperations, close_quietly
from ..log.fold import Fold
from ..log.reading import ParsedFile, read_records, whole_lines
from ..log.records import VERSION, SessionStarted, encode_line

__all__ = [
    "SUFFIX",
    "SessionOnDisk",
    "clear_unfinished",
    "create_log",
    "created_from",
    "files_beside",
    "finished",
    "lock_file",
    "make_folder",
    "new_id",
    "open_log",
    "read_contents",
    "refuse_foreign",
]

SUFFIX = ".jsonl"
_UNFINISHED = "unfinished"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file counts as left by a process that died."""
_GLANCE = 0.002
"""Seconds that the write of one record usually takes at most."""
_MOST_GLANCES = 5
_LAST_NUMBER = 10**17
"""The highest number after which others may follow: readers accept numbers of 18 digits."""
_ID_TIME = re.compile(r"(\d{8}-\d{6})-(\d{3})-")
_OWN_ID = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{6}")
_LEGIBLE_FOLDER = re.compile(rb'.{0,200}?,"cwd":("(?:[^"\\\x00-\x1f]|\\.)*"),"title":"')
"""The folder in a first line whose checksum is wrong: near its start, where nothing that anybody said can stand."""


class SessionOnDisk(NamedTuple):
    """A session as it is on disk."""

    reading: ParsedFile
    fold: Fold
    start: SessionStarted
    """The metadata, made up from the file's name if they are lost."""


def new_id(created: int) -> str:
    """A unique name that sorts by time."""
    moment = datetime.fromtimestamp(created / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{created % 1000:03d}-{secrets.token_hex(3)}"


def created_from(session_id: str) -> int | None:
    """When a session was created, from its id; `None` if the id does not say."""
    match = _ID_TIME.match(session_id)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1000 + int(match[2])


# -- reading -------------------------------------------------------------------------------------------------


def read_contents(path: Path, types: Sequence[type[CustomMessage]]) -> SessionOnDisk:
    """All of a session. Raises `SessionNotFound`, `SessionDamaged`, or `SessionError` if it cannot be read."""
    try:
        data = _read_at_rest(path)
    except FileNotFoundError:
        raise SessionNotFound(f"there is no session {path.stem!r} in {path.parent}", path=str(path)) from None
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {reason_of(error)}", path=str(path)) from error
    return contents_of(path, data, types)


def _read_at_rest(path: Path) -> bytes:
    """The bytes of a file. If it ends within a line, a process may be writing it: it is read again."""
    data = path.read_bytes()
    for _ in range(_MOST_GLANCES):
        if not data or data.endswith(b"\n"):
            break
        time.sleep(_GLANCE)
        before, data = data, path.read_bytes()
        if data == before:
            break
    return data


def contents_of(path: Path, data: bytes, types: Sequence[type[CustomMessage]]) -> SessionOnDisk:
    reading = read_records(data, types)
    if not reading.records:
        what = _instead_of_records(data)
        raise SessionDamaged(
            f"{path} is not a session that can be read: {what}. It was left as it is",
            path=str(path),
        )
    fold = Fold()
    add = fold.add
    for record in reading.records:
        add(record.number, record.entry, record.at)
    start = reading.start or SessionStarted(
        id=path.stem,
        created=created_from(path.stem) or min(record.at for record in reading.records),
        cwd=_legible_folder(data, reading),
        title=fold.title,
    )
    return SessionOnDisk(reading, fold, start)


def _instead_of_records(data: bytes) -> str:
    return f"nothing in its {len(data)} bytes is a record" if data else "it is empty"


def _legible_folder(data: bytes, reading: ParsedFile) -> str:
    """The folder that a damaged first line names, if what is damaged is another part of it; else nothing."""
    if not reading.damaged or reading.damaged[0].start:
        return ""
    found = _LEGIBLE_FOLDER.match(data, 0, reading.damaged[0].end)
    try:
        folder = "" if found is None else msgspec.json.decode(found[1], type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return folder if os.path.isabs(folder) else ""


def refuse_foreign(path: Path) -> None:
    """Raises `SessionError` for a file that somebody else put there: one without a record, and without a name as we
    give them. What is left of a session has one or the other. And `OSError`."""
    if _OWN_ID.fullmatch(path.stem):
        return
    data = path.read_bytes()
    if not read_records(data).records:
        raise SessionError(
            f"{path} is not a session: {_instead_of_records(data)}. It stays; delete it yourself if nobody needs it: "
            f"rm {shlex.quote(str(path))}",
            path=str(path),
        )


# -- creating ------------------------------------------------------------------------------------------------


def create_log(
    folder: Path,
    *,
    files: FileOperations,
    sync: bool,
    cwd: str,
    title: str,
    metadata: dict[str, object],
    parent: str | None,
    is_unfinished: bool = False,
) -> tuple[SessionLog, SessionStarted]:
    """A new file with its first line, locked. Raises `SessionError`.

    An unfinished file is not listed as a session before `SessionLog.finish` gives it its name.
    """
    missing = [place for place in (folder, *folder.parents) if not os.path.exists(place)]
    make_folder(folder)
    if sync:
        _refuse_unsyncable(folder)
    created = time.time_ns() // 1_000_000
    session_id = new_id(created)
    path = folder / (session_id + SUFFIX)
    if is_unfinished:
        path = path.with_name(_copy_prefix(path) + _UNFINISHED)
    start = SessionStarted(id=session_id, created=created, cwd=cwd, title=title, metadata=metadata, parent=parent)
    line = encode_line(0, created, start)
    descriptor = -1
    try:
        descriptor = files.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        if not files.lock(descriptor):
            raise OSError("somebody else has locked it")
        taken = files.write(descriptor, line)
        if taken != len(line):
            raise OSError(f"only {taken} of {len(line)} bytes were taken")
    except OSError as error:
        if descriptor >= 0:
            close_quietly(files, descriptor)
            path.unlink(missing_ok=True)
        raise SessionError(f"{path} cannot be made: {reason_of(error)}", path=str(path)) from error
    fold = Fold()
    fold.add(0, start, created)
    folders = [folder, *[place.parent for place in missing]]
    return SessionLog(path, descriptor, fold, 0, files=files, sync=sync, folders=folders, start=start), start


def make_folder(folder: Path) -> None:
    """Makes the folder for sessions if it is missing. Raises `SessionError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "something else has its name" if isinstance(error, FileExistsError) else reason_of(error)
        raise SessionError(f"the folder {folder} cannot be made: {why}", path=str(folder)) from error


def _refuse_unsyncable(folder: Path) -> None:
    """Raises `SessionError` for a folder that cannot be read: its names cannot be synced, and without this check only a
    run that waits for that would fail."""
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise SessionError(f"{folder} cannot be read: {reason_of(error)}", path=str(folder)) from error


def finished(path: Path) -> Path:
    """The name that an unfinished file is to have."""
    return path.with_name(path.name.removeprefix(".").removesuffix(f".{_UNFINISHED}"))


def clear_unfinished(folder: Path, files: FileOperations) -> None:
    """Removes unfinished files of processes that died, once they are old enough."""
    for path in folder.glob(f".*{SUFFIX}.{_UNFINISHED}"):
        try:
            if path.stat().st_mtime < time.time() - _ABANDONED:
                files.unlink(path)
        except OSError:
            continue  # it does no harm


# -- opening -------------------------------------------------------------------------------------------------


def lock_file(path: Path, files: FileOperations) -> int:
    """Opens a session's file as its one writer. Raises `SessionInUse`, `SessionNotFound` or `SessionError`."""
    while True:
        try:
            descriptor = files.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise SessionNotFound(f"there is no session {path.stem!r} in {path.parent}", path=str(path)) from None
        except OSError as error:
            raise SessionError(f"{path} cannot be opened: {reason_of(error)}", path=str(path)) from error
        try:
            if not files.lock(descriptor):
                raise SessionInUse(
                    f"session {path.stem} is in use, here or by another process: close it there first, or fork it",
                    path=str(path),
                )
            if _is_still(path, descriptor):
                return descriptor
        except OSError as error:
            close_quietly(files, descriptor)
            raise SessionError(f"{path} cannot be locked: {reason_of(error)}", path=str(path)) from error
        except SessionInUse:
            close_quietly(files, descriptor)
            raise
        close_quietly(files, descriptor)  # it was replaced or deleted meanwhile: look again


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def open_log(
    path: Path, types: Sequence[type[CustomMessage]], *, files: FileOperations, sync: bool, cwd: str = ""
) -> tuple[SessionLog, SessionOnDisk]:
    """Opens a session to continue it, and repairs it if it is damaged: then `cwd` is its folder, if the file names
    none. Raises `SessionError`s."""
    descriptor = lock_file(path, files)
    try:
        data = _read(descriptor)
        contents = contents_of(path, data, types)
        if contents.reading.start is None and not contents.start.cwd:
            contents = contents._replace(start=msgspec.structs.replace(contents.start, cwd=cwd))
        _refuse_newer(path, contents.start)
        number = contents.reading.records[-1].number
        _refuse_full(path, number)
        prefix = b"" if contents.reading.ends_with_newline else b"\n"
        if (torn := _torn_at(data, contents.reading)) is not None:
            _cut_off(path, descriptor, data, torn, files)
            prefix = b""
        elif contents.reading.damaged or contents.reading.start is None:
            descriptor = _mended(path, descriptor, data, contents, files)
            prefix = b""
    except OSError as error:
        close_quietly(files, descriptor)
        raise SessionError(f"{path} cannot be opened: {reason_of(error)}", path=str(path)) from error
    except BaseException:
        close_quietly(files, descriptor)
        raise
    return SessionLog(path, descriptor, contents.fold, number, files=files, sync=sync, prefix=prefix), contents


def _read(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _refuse_newer(path: Path, start: SessionStarted) -> None:
    if start.version > VERSION:
        raise SessionError(
            f"{path} was written by a newer version (format {start.version}; this one knows {VERSION}): "
            "it can be read, not continued. Install that version, or fork the session",
            path=str(path),
        )


def _refuse_full(path: Path, number: int) -> None:
    """No session comes to such a number by itself: but what came after it would have one that no reader takes."""
    if number >= _LAST_NUMBER:
        raise SessionError(
            f"{path} has a record with the number {number}, behind which there is no room for others: it can be read, "
            "not continued. Fork the session",
            path=str(path),
        )


# -- mending -------------------------------------------------------------------------------------------------


def _torn_at(data: bytes, reading: ParsedFile) -> int | None:
    """Where an incomplete last record begins, if the file has no other damage."""
    if reading.start is None or len(reading.damaged) != 1 or data.endswith(b"\n"):
        return None
    start, end = reading.damaged[0]
    return start if end == len(data) and data[start - 1 : start] == b"\n" else None


def _cut_off(path: Path, descriptor: int, data: bytes, size: int, files: FileOperations) -> None:
    """Moves an incomplete record from the end of the file to a file beside it, without copying the rest.

    The bytes are synced there before the file loses them. If the process is killed in between, both files have them.
    """
    torn = data[size:] + b"\n"
    if not _is_kept(path, torn):
        kept = _keep(path, torn, files)
        try:
            files.truncate(descriptor, size)
        except BaseException:
            kept.unlink(missing_ok=True)  # the log still has it: who tries again keeps it again
            raise
    else:
        files.truncate(descriptor, size)
    files.sync(descriptor)


def _is_kept(path: Path, damaged: bytes) -> bool:
    """Whether a process was killed after it kept these bytes and before it cut them off the file."""
    kept = [beside for beside in files_beside(path) if not beside.name.startswith(".")]
    return any(beside.stat().st_size == len(damaged) and beside.read_bytes() == damaged for beside in kept)


def _mended(path: Path, descriptor: int, data: bytes, contents: SessionOnDisk, files: FileOperations) -> int:
    """Replaces the file by a copy of what is whole in it, and keeps what is not; returns the copy, locked."""
    reading = contents.reading
    for unused in copies_beside(path):
        files.unlink(unused)  # of a process that died while repairing: this one has the lock
    bad = b"".join([data[span.start : span.end] + b"\n" for span in reading.damaged])
    kept = _keep(path, bad, files) if reading.damaged else None
    lines = whole_lines(data)
    if reading.start is None:
        first = encode_line(0, contents.start.created, contents.start)
        lines.insert(0, first[:-1])
    copy = path.with_name(f"{_copy_prefix(path)}{secrets.token_hex(4)}")
    new = -1
    try:
        new = files.open(copy, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        if not files.lock(new):
            raise OSError("somebody else has locked the mended copy")
        files.write_all(new, b"\n".join(lines) + b"\n")
        files.sync(new)
        files.replace(copy, path)
    except BaseException:
        if new >= 0:
            close_quietly(files, new)
        copy.unlink(missing_ok=True)
        if kept is not None:
            kept.unlink(missing_ok=True)  # the log still has it: who tries again keeps it again
        raise
    try:
        files.sync_folder(path.parent)
    except BaseException:
        close_quietly(files, new)
        raise
    close_quietly(files, descriptor)
    return new


def files_beside(path: Path) -> list[Path]:
    """The other files of a session: damaged bytes that were kept, and copies that never took its name."""
    prefixes = (_copy_prefix(path), f"{path.stem}.damaged-")
    return [path.with_name(name) for name in os.listdir(path.parent) if name.startswith(prefixes)]


def copies_beside(path: Path) -> list[Path]:
    """Repaired copies that never took the name of the file, because their process was killed."""
    prefix = _copy_prefix(path)
    return [path.with_name(name) for name in os.listdir(path.parent) if name.startswith(prefix)]


def _copy_prefix(path: Path) -> str:
    return f".{path.name}."


def _keep(path: Path, damaged: bytes, files: FileOperations) -> Path:
    """Writes damaged bytes to a separate file, which is not listed as a session."""
    for attempt in range(1, 10_000):
        beside = path.with_name(f"{path.stem}.damaged-{attempt}")
        try:
            descriptor = files.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        try:
            files.write_all(descriptor, damaged)
            files.sync(descriptor)
            files.sync_folder(path.parent)  # before the log loses them: else a loss of power might take both
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            close_quietly(files, descriptor)
        return beside
    raise OSError("there are too many files with damaged parts beside it: move them away")
