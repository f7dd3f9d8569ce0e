"""A folder with one JSONL file for each session.

A file has one writer, which holds its lock while it is open. A damaged file is replaced by a copy without the damage,
and the damaged bytes are kept in a file beside it. The copy is locked before it takes the old file's name, so that no
other process can open it in between.

Owns the names of the files, and creating, locking, repairing and deleting them. `files` has the operations of the
system.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path

from ..errors import SessionError, SessionExists, SessionInUse, SessionNotFound, reason_of
from ..log.reading import instead_of_records, read_records
from .files import FileOperations, close_quietly, is_file
from .protocols import NEWEST, LogName, LogReader, LogState, NewLog, OpenLog

_SUFFIX = ".jsonl"
INDEX_NAME = "search-index.sqlite3"
_UNFINISHED = "unfinished"
_ABANDONED = 3600.0  # seconds after which an unfinished file counts as left by a process that died
_GLANCE = 0.002  # seconds that the write of one record usually takes at most
_MOST_GLANCES = 5
_SESSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,127})\.jsonl")
_OWN_ID = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{6}")

_MOST = 2**63 - 1  # the largest integer of the index: some file systems have larger inode numbers


class FolderStorage:
    """The logs of a store as files in a folder. A `Storage`, and its own `LogReader`."""

    def __init__(self, folder: Path, files: FileOperations, *, sync: bool) -> None:
        self.place = folder
        self.index_path = folder / INDEX_NAME
        self._files = files
        self._sync = sync

    def name_of(self, session_id: str) -> LogName:
        return LogName(session_id, self._path_of(session_id))

    def _path_of(self, session_id: str) -> Path:
        return self.place / (session_id + _SUFFIX)

    # -- reading -----------------------------------------------------------------------------------------------

    def reading(self) -> AbstractContextManager[LogReader]:
        return nullcontext(self)

    def has(self, session_id: str) -> bool:
        return os.path.isfile(self._path_of(session_id))

    def ids(self, beginning: str = "") -> list[str]:
        found = _entries(self.place)
        return sorted([name for name, entry in found if name.startswith(beginning) and is_file(entry)])

    def by_time(self, cwd: str | None = None) -> list[tuple[int, str]]:
        timed: list[tuple[int, str]] = []
        for session_id in self.ids():
            try:
                timed.append((os.stat(self._path_of(session_id)).st_mtime_ns // 1_000_000, session_id))
            except FileNotFoundError:
                pass  # deleted in the meantime
            except OSError:
                timed.append((NEWEST, session_id))  # the attempt to read it will report the error
        timed.sort(key=itemgetter(0), reverse=True)
        return timed

    def states(self) -> dict[str, LogState]:
        return file_states(self.place)

    def read(self, session_id: str) -> bytes:
        return read_file(self._path_of(session_id))

    def is_in_use(self, session_id: str) -> bool:
        return self._files.is_locked(self._path_of(session_id))

    # -- creating ----------------------------------------------------------------------------------------------

    def create(self, new: NewLog) -> OpenLog:
        folder, files = self.place, self._files
        missing = [place for place in (folder, *folder.parents) if not os.path.exists(place)]
        make_folder(folder)
        if self._sync:  # a folder that cannot be read cannot be synced: found here, not in the first run
            try:
                os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            except OSError as error:
                raise _problem(folder, "read", error) from error
        path = self._path_of(new.id)
        if new.is_unfinished:
            path = path.with_name(_copy_prefix(path) + _UNFINISHED)
        descriptor = -1
        try:
            descriptor = _new_file(path, files)
            taken = files.write(descriptor, new.line)
            if taken != len(new.line):
                raise OSError(f"only {taken} of {len(new.line)} bytes were written")
        except FileExistsError:
            raise SessionExists(
                f"there is a session {new.id!r} in {folder} already: open it, or choose another id", path=str(path)
            ) from None
        except OSError as error:
            if descriptor >= 0:
                close_quietly(files, descriptor)
                path.unlink(missing_ok=True)
            raise _problem(path, "made", error) from error
        new_names = [folder, *[place.parent for place in missing]]
        return _FileLog(LogName(new.id, path), descriptor, files, new_names=new_names)

    def clear_unfinished(self) -> None:
        for path in self.place.glob(f".*{_SUFFIX}.{_UNFINISHED}"):
            with suppress(OSError):  # it does no harm
                if path.stat().st_mtime < time.time() - _ABANDONED:
                    self._files.unlink(path)

    # -- opening and deleting ----------------------------------------------------------------------------------

    def open(self, session_id: str) -> OpenLog:
        name = self.name_of(session_id)
        return _FileLog(name, lock_file(name.path, session_id, self.place, self._files), self._files)

    def delete(self, session_id: str) -> None:
        path = self._path_of(session_id)
        descriptor = lock_file(path, session_id, self.place, self._files)
        try:
            _refuse_foreign(path)
            for beside in _beside(path, _copy_prefix(path), _damage_prefix(path)):
                self._files.unlink(beside)
            self._files.unlink(path)
        except OSError as error:
            raise _problem(path, "deleted", error) from error
        finally:
            close_quietly(self._files, descriptor)

    def settle(self, deleted: Sequence[str]) -> None:
        if self._sync:
            try:
                self._files.sync_folder(self.place)
            except OSError as error:
                path = self._path_of(deleted[0])
                words = f"{path} was deleted, but may reappear after a power failure: {reason_of(error)}"
                raise SessionError(words, path=str(path)) from error


def file_states(folder: Path) -> dict[str, LogState]:
    """The size, change time and inode of each file that may be a session. Raises `SessionError`.

    The change time is used, because copying a file can set its modification time back.
    """
    found: dict[str, LogState] = {}
    for session_id, entry in _entries(folder):
        try:
            status = entry.stat()
        except OSError as error:
            if isinstance(error, PermissionError) and not entry.is_symlink():
                raise _problem(folder, "read", error) from error  # the folder denies access to all its files
            continue  # deleted in the meantime, or a broken link
        if stat.S_ISREG(status.st_mode):
            found[session_id] = (status.st_size, status.st_ctime_ns, status.st_ino & _MOST)
    return found


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files that may be sessions, with their ids. Raises `SessionError`."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if (match := _SESSION.fullmatch(entry.name)) is not None:
                    yield match[1], entry
    except FileNotFoundError:
        return
    except OSError as error:
        raise _problem(folder, "read", error) from error


def _problem(path: Path, what: str, error: OSError) -> SessionError:
    return SessionError(f"{path} cannot be {what}: {reason_of(error)}", path=str(path))


# -- an open file ----------------------------------------------------------------------------------------------


class _FileLog:
    """One open file, locked. An `OpenLog`."""

    def __init__(
        self, name: LogName, descriptor: int, files: FileOperations, *, new_names: Sequence[Path] = ()
    ) -> None:
        self.name = name
        self._descriptor = descriptor
        self._files = files
        self._new_names = tuple(new_names)  # folders with new names that are not synced yet

    @property
    def is_synced(self) -> bool:
        return not self._new_names

    @property
    def append(self) -> Callable[[bytearray], int]:
        return partial(self._files.write, self._descriptor)  # without a wrapper: it is called for every record

    def push(self) -> None:
        """Nothing to do: the lines are in the file already."""

    def sync(self) -> None:
        self._files.sync(self._descriptor)
        if os.fstat(self._descriptor).st_nlink == 0:
            raise OSError("the file was deleted")  # nothing could ever be read from it
        for folder in self._new_names:
            self._files.sync_folder(folder)
        self._new_names = ()

    def empty(self) -> None:
        self._files.empty(self._descriptor)

    def read(self) -> bytes:
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            return file.read()

    def finish(self, *, sync: bool) -> None:
        """Renames the file in one step."""
        path = self.name.path
        finished = path.with_name(path.name.removeprefix(".").removesuffix(f".{_UNFINISHED}"))
        if sync:
            self._files.sync(self._descriptor)
        self._files.replace(path, finished)
        self.name = self.name._replace(path=finished)

    def discard(self) -> None:
        self._files.unlink(self.name.path)

    def close(self) -> None:
        close_quietly(self._files, self._descriptor)

    # -- mending -----------------------------------------------------------------------------------------------

    def mend(self, damaged: Sequence[bytes], lines: Sequence[bytes], cut: int | None) -> None:
        bad = b"".join([part + b"\n" for part in damaged])
        if cut is not None:
            self._cut_off(bad, cut)
        else:
            self._replace(bad, lines)

    def _cut_off(self, torn: bytes, size: int) -> None:
        """Moves an incomplete record from the end of the file to a file beside it, without copying the rest.

        The bytes are synced there before the file loses them. If the process is killed in between, both files have
        them.
        """
        files, path = self._files, self.name.path
        kept = None if _is_kept(path, torn) else _keep(path, torn, files)
        try:
            files.truncate(self._descriptor, size)
        except BaseException:
            if kept is not None:
                kept.unlink(missing_ok=True)  # the log still has the bytes: the next attempt keeps them again
            raise
        files.sync(self._descriptor)

    def _replace(self, bad: bytes, lines: Sequence[bytes]) -> None:
        """Replaces the file with a copy of its undamaged lines, and keeps the damaged bytes in another file."""
        files, path = self._files, self.name.path
        for unused in _beside(path, _copy_prefix(path)):
            files.unlink(unused)  # left by a process that died during a repair: this one has the lock
        kept = _keep(path, bad, files) if bad else None
        copy = path.with_name(f"{_copy_prefix(path)}{secrets.token_hex(4)}")
        new = -1
        try:
            new = files.open(copy, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            if not files.lock(new):
                raise OSError("another process has locked the mended copy")
            files.write_all(new, b"\n".join(lines) + b"\n")
            files.sync(new)
            files.replace(copy, path)
        except BaseException:
            if new >= 0:
                close_quietly(files, new)
            copy.unlink(missing_ok=True)
            if kept is not None:
                kept.unlink(missing_ok=True)  # the log still has the bytes: the next attempt keeps them again
            raise
        old, self._descriptor = self._descriptor, new
        close_quietly(files, old)
        files.sync_folder(path.parent)


def _beside(path: Path, *prefixes: str) -> list[Path]:
    """The other files of a session whose names have one of these prefixes."""
    return [path.with_name(name) for name in os.listdir(path.parent) if name.startswith(prefixes)]


def _copy_prefix(path: Path) -> str:
    """The prefix of the names of copies. If its process is killed, a copy keeps such a name."""
    return f".{path.name}."


def _damage_prefix(path: Path) -> str:
    """The prefix of the names of files with damaged bytes."""
    return f"{path.stem}.damaged-"


def _is_kept(path: Path, damaged: bytes) -> bool:
    """Whether a process was killed after it kept these bytes and before it cut them off the file."""
    kept = _beside(path, _damage_prefix(path))
    return any(beside.stat().st_size == len(damaged) and beside.read_bytes() == damaged for beside in kept)


def _keep(path: Path, damaged: bytes, files: FileOperations) -> Path:
    """Writes damaged bytes to a separate file, which is not listed as a session."""
    for attempt in range(1, 10_000):
        beside = path.with_name(f"{_damage_prefix(path)}{attempt}")
        try:
            descriptor = files.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        try:
            files.write_all(descriptor, damaged)
            files.sync(descriptor)
            files.sync_folder(path.parent)  # before the log loses them: else a power failure might lose both
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            close_quietly(files, descriptor)
        return beside
    raise OSError("there are too many files with damaged parts beside it: move them away")


# -- files and folders -----------------------------------------------------------------------------------------


def make_folder(folder: Path) -> None:
    """Makes the folder for sessions if it is missing. Raises `SessionError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "a file with that name is in the way" if isinstance(error, FileExistsError) else reason_of(error)
        raise SessionError(f"the folder {folder} cannot be created: {why}", path=str(folder)) from error


def _new_file(path: Path, files: FileOperations) -> int:
    """Makes a file and locks it. A process that was killed before it wrote the first line leaves an empty file: that
    counts as new. Raises `FileExistsError` for any other, and `OSError`."""
    try:
        descriptor = files.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size:
            raise
        descriptor = files.open(path, os.O_RDWR | os.O_APPEND)
    try:
        if not files.lock(descriptor) or os.fstat(descriptor).st_size or not _is_still(path, descriptor):
            raise FileExistsError("another process created it in the meantime")
    except BaseException:
        close_quietly(files, descriptor)
        raise
    return descriptor


def read_file(path: Path) -> bytes:
    """The bytes of a session's file. Raises `SessionNotFound`, or `SessionError` if it cannot be read.

    If it ends within a line, a process may be writing it: it is read again.
    """
    try:
        data = path.read_bytes()
        for _ in range(_MOST_GLANCES):
            if not data or data.endswith(b"\n"):
                break
            time.sleep(_GLANCE)
            before, data = data, path.read_bytes()
            if data == before:
                break
        return data
    except FileNotFoundError:
        raise SessionNotFound(f"there is no session {path.stem!r} in {path.parent}", path=str(path)) from None
    except OSError as error:
        raise _problem(path, "read", error) from error


def lock_file(path: Path, session_id: str, place: Path, files: FileOperations, *, flags: int = os.O_APPEND) -> int:
    """Opens and locks the file whose lock makes a process the writer of a session. Raises `SessionInUse`,
    `SessionNotFound` or `SessionError`."""
    while True:
        try:
            descriptor = files.open(path, os.O_RDWR | flags)
        except FileNotFoundError:
            raise SessionNotFound(f"there is no session {session_id!r} in {place}", path=str(path)) from None
        except OSError as error:
            raise _problem(path, "opened", error) from error
        try:
            is_ours = files.lock(descriptor)
            if is_ours and _is_still(path, descriptor):
                return descriptor
        except OSError as error:
            close_quietly(files, descriptor)
            raise _problem(path, "locked", error) from error
        close_quietly(files, descriptor)  # if it is ours, it was replaced or deleted meanwhile: look again
        if not is_ours:
            words = f"session {session_id} is in use, here or by another process: close it there first, or fork it"
            raise SessionInUse(words, path=str(path))


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _refuse_foreign(path: Path) -> None:
    """Raises `SessionError` for a file that is not the rest of a session: it contains no record, and its name is not
    one that a store made. Raises `OSError` if it cannot be read."""
    if _OWN_ID.fullmatch(path.stem):
        return
    data = path.read_bytes()
    if not read_records(data).records:
        words = f"{path} is not a session: {instead_of_records(data)}. It stays; delete it yourself if no one needs it"
        raise SessionError(f"{words}: rm {shlex.quote(str(path))}", path=str(path))
