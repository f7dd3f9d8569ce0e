"""Creates the logs of sessions, reads them, and opens them to continue.

Owns the ids of sessions, the reading of logs, and which logs cannot be continued. `storage` finds, locks and repairs
logs.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from swink_agent.core.types import CustomMessage

from ..errors import SessionDamaged, SessionError, reason_of
from ..log.fold import Fold
from ..log.reading import ParsedFile, instead_of_records, read_records, whole_lines
from ..log.records import VERSION, SessionStarted, encode_line
from ..log.session_log import SessionLog
from ..storage.protocols import LogName, LogReader, NewLog, Storage

_LAST_NUMBER = 10**17  # the highest number after which others may follow: readers accept numbers of 18 digits
_ID_TIME = re.compile(r"(\d{8}-\d{6})-(\d{3})-")
_LEGIBLE_FOLDER = re.compile(rb'.{0,200}?,"cwd":("(?:[^"\\\x00-\x1f]|\\.)*"),"title":"')
"""The folder in a first line whose checksum is wrong. It must be near the start, which holds no text of messages."""


class SessionOnDisk(NamedTuple):
    """A session as it is on disk."""

    reading: ParsedFile
    fold: Fold
    start: SessionStarted
    """The metadata, made up from the session's id if they are lost."""


def new_id(created: int) -> str:
    """A unique name that sorts by time."""
    moment = datetime.fromtimestamp(created / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{created % 1000:03d}-{secrets.token_hex(3)}"


def created_from(session_id: str) -> int | None:
    """When a session was created, from its id; `None` if the id contains no time."""
    match = _ID_TIME.match(session_id)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1000 + int(match[2])


# -- reading -------------------------------------------------------------------------------------------------


def read_contents(
    reader: LogReader, storage: Storage, session_id: str, types: Sequence[type[CustomMessage]]
) -> SessionOnDisk:
    """All of a session. Raises `SessionNotFound`, `SessionDamaged`, or `SessionError` if it cannot be read."""
    return contents_of(storage.name_of(session_id), reader.read(session_id), types)


def contents_of(name: LogName, data: bytes, types: Sequence[type[CustomMessage]]) -> SessionOnDisk:
    """Reads the bytes of a log. Raises `SessionDamaged`."""
    reading = read_records(data, types)
    if not reading.records:
        what = instead_of_records(data)
        raise SessionDamaged(
            f"{name} is not a session that can be read: {what}. It was left as it is",
            path=str(name.path),
        )
    fold = Fold()
    add = fold.add
    for record in reading.records:
        add(record.number, record.entry, record.at)
    start = reading.start or SessionStarted(
        id=name.id,
        created=created_from(name.id) or min(record.at for record in reading.records),
        cwd=_legible_folder(data, reading),
        title=fold.title,
    )
    return SessionOnDisk(reading, fold, start)


def _legible_folder(data: bytes, reading: ParsedFile) -> str:
    """The folder in a damaged first line, if another part of the line is damaged; else an empty string."""
    if not reading.damaged or reading.damaged[0].start:
        return ""
    found = _LEGIBLE_FOLDER.match(data, 0, reading.damaged[0].end)
    try:
        folder = "" if found is None else msgspec.json.decode(found[1], type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return folder if os.path.isabs(folder) else ""


# -- creating ------------------------------------------------------------------------------------------------


def create_log(storage: Storage, start: SessionStarted, *, sync: bool, is_unfinished: bool) -> SessionLog:
    """A new log with its first line, locked. Raises `SessionExists` or another `SessionError`.

    An unfinished log is not listed as a session before `SessionLog.finish`.
    """
    log = storage.create(NewLog(start.id, start.cwd, encode_line(0, start.created, start), is_unfinished))
    fold = Fold()
    fold.add(0, start, start.created)
    return SessionLog(log, fold, 0, sync=sync)


# -- opening -------------------------------------------------------------------------------------------------


def open_log(
    storage: Storage, session_id: str, types: Sequence[type[CustomMessage]], *, sync: bool, cwd: str = ""
) -> tuple[SessionLog, SessionOnDisk]:
    """Opens a session to continue it, and repairs it if it is damaged. If the damage has destroyed the name of its
    folder, `cwd` is used. Raises `SessionError`s."""
    log = storage.open(session_id)
    try:
        data = log.read()
        contents = contents_of(log.name, data, types)
        if contents.reading.start is None and not contents.start.cwd:
            contents = contents._replace(start=msgspec.structs.replace(contents.start, cwd=cwd))
        _refuse_newer(log.name, contents.start)
        number = contents.reading.records[-1].number
        _refuse_full(log.name, number)
        if contents.reading.damaged or contents.reading.start is None:
            damaged = [data[span.start : span.end] for span in contents.reading.damaged]
            log.mend(damaged, _mended(data, contents), _torn_at(data, contents.reading))
        elif not contents.reading.ends_with_newline:
            log.append(bytearray(b"\n"))
            log.push()
    except OSError as error:
        log.close()
        raise SessionError(f"{log.name} cannot be opened: {reason_of(error)}", path=str(log.name.path)) from error
    except BaseException:
        log.close()
        raise
    return SessionLog(log, contents.fold, number, sync=sync), contents


def _mended(data: bytes, contents: SessionOnDisk) -> list[bytes]:
    """The lines of the log without the damage, and with a first line."""
    lines = whole_lines(data)
    if contents.reading.start is None:
        lines.insert(0, encode_line(0, contents.start.created, contents.start)[:-1])
    return lines


def _refuse_newer(name: LogName, start: SessionStarted) -> None:
    if start.version > VERSION:
        raise SessionError(
            f"{name} was written by a newer version (format {start.version}; this one knows {VERSION}): "
            "it can be read, not continued. Install that version, or fork the session",
            path=str(name.path),
        )


def _refuse_full(name: LogName, number: int) -> None:
    """Refuses a log with a number that no session reaches by itself: readers do not accept the numbers after it."""
    if number >= _LAST_NUMBER:
        raise SessionError(
            f"{name} has a record with the number {number}, after which no others are possible: it can be read, "
            "not continued. Fork the session",
            path=str(name.path),
        )


def _torn_at(data: bytes, reading: ParsedFile) -> int | None:
    """Where an incomplete last record begins, if the log has no other damage."""
    if reading.start is None or len(reading.damaged) != 1 or data.endswith(b"\n"):
        return None
    start, end = reading.damaged[0]
    return start if end == len(data) and data[start - 1 : start] == b"\n" else None
