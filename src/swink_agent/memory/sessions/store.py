"""Session stores: a folder with one JSONL file for each session.

Owns creating, finding, listing, forking and deleting sessions, and the same as coroutines. `opening`, `listing` and
`session` read and write the contents of the files.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swink_agent.core.codec import checked_types
from swink_agent.core.types import CustomMessage
from swink_agent.core.values.value import copy_json

from ..errors import SessionAmbiguous, SessionDamaged, SessionError, SessionNotFound, reason_of
from ..log.files import FileOperations, close_quietly, is_file
from .forking import copy_into
from .info import SearchHit, SessionInfo, folder_name
from .listing import info_from_file, used_last
from .opening import (
    SUFFIX,
    clear_unfinished,
    create_log,
    files_beside,
    finished,
    lock_file,
    open_log,
    read_contents,
    refuse_foreign,
)
from .session import LoadedSession, Session, checked_json, checked_text

if TYPE_CHECKING:
    from ..search.index import SessionIndex

__all__ = ["AsyncSessionStore", "ExportFormat", "JsonlSessionStore"]

ExportFormat = Literal["markdown", "html", "json"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DATA_VARIABLE = "SWINK_DATA_DIR"
_NEWEST = 2**63
_CLOCK = 2_000
"""Milliseconds by which a file's time may be earlier than its last record's, though that is taken before the write."""
_FORKING = 30.0
"""The most seconds that a fork waits for the disk."""


class JsonlSessionStore:
    """Stores sessions as JSONL files in a folder.

    `folder=None` is `sessions/` in the user's data folder (`SWINK_DATA_DIR`, else the platform's usual place). `types`
    are the application's message types. With `sync=False` files are not synced and no thread is used: records survive
    a crash of the program, but perhaps not a crash of the machine.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        types: Sequence[type[CustomMessage]] = (),
        *,
        sync: bool = True,
        files: FileOperations | None = None,
    ) -> None:
        self.folder = _default_folder() if folder is None else _expanded(folder)
        self._types = checked_types(types)
        self._sync = sync
        self._files = FileOperations() if files is None else files

    def __repr__(self) -> str:
        return f"JsonlSessionStore({str(self.folder)!r})"

    # -- one session -------------------------------------------------------------------------------------------

    def create(
        self,
        cwd: str | os.PathLike[str] | None = None,
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Creates a session. `cwd` is the folder that it is about, by default the current one. Raises `SessionError`.

        When an agent is attached, its redactor masks secrets in title and metadata. Until then the file contains them
        unmasked.
        """
        return self._create(_folder_text(cwd, default=True), checked_text(title, "a title"), _checked(metadata), None)

    def _create(
        self, cwd: str, title: str, metadata: dict[str, Any], parent: str | None, *, is_unfinished: bool = False
    ) -> Session:
        log, start = create_log(
            self.folder,
            files=self._files,
            sync=self._sync,
            cwd=cwd,
            title=title,
            metadata=metadata,
            parent=parent,
            is_unfinished=is_unfinished,
        )
        return Session(log, start, types=self._types)

    def open(self, session_id: str, *, cwd: str | os.PathLike[str] | None = None) -> Session:
        """Opens a session for writing. The beginning of its id is enough if no other id begins so.

        If the file is damaged and has lost the session's folder, `cwd` is the folder from now on.

        Raises `SessionNotFound`, `SessionAmbiguous`, `SessionInUse`, `SessionDamaged` or another `SessionError`.
        """
        folder = _folder_text(cwd, default=False)
        log, contents = open_log(self._find(session_id), self._types, files=self._files, sync=self._sync, cwd=folder)
        return Session(log, contents.start, types=self._types, problems=contents.reading.problems)

    def load(self, session_id: str) -> LoadedSession:
        """Reads a session, even while a process writes to it. The beginning of its id is enough if it is unique.

        A call without a result is shown as perhaps still running if a process has the session open. Only Linux reports
        that.
        """
        path = self._find(session_id)
        # Checked before reading: a writer that ends during the read may write records that this read misses.
        is_in_use = self._files.is_locked(path)
        contents = read_contents(path, self._types)
        contents.fold.is_in_use = is_in_use
        return LoadedSession(path, contents)

    def rename(self, session_id: str, title: str) -> None:
        """Changes the title of a session. Raises `SessionInUse` if a process has it open for writing."""
        with self.open(session_id) as session:
            session.rename(title)

    def delete(self, session_id: str) -> None:
        """Deletes a session, the saved damaged parts of its file, and its entries in the search index.

        Raises `SessionInUse` if a process has it open for writing, and another `SessionError` for a file that is not a
        session: it contains no record, and its name does not look like a session's.
        """
        for problem in self.delete_all([session_id]).values():
            raise problem

    def delete_all(self, session_ids: str | Iterable[str]) -> dict[str, SessionError]:
        """Deletes several sessions, and removes them from the search index in one step.

        Returns the errors of the sessions that could not be deleted, by the ids that the caller gave.
        """
        kept: dict[str, SessionError] = {}
        gone: list[Path] = []
        try:
            for session_id in [session_ids] if isinstance(session_ids, str) else session_ids:
                try:
                    gone.append(self._delete_files(self._find(session_id)))
                except SessionError as error:
                    kept[session_id] = error
        finally:
            if gone:
                self._forget(gone)
        return kept

    def _delete_files(self, path: Path) -> Path:
        descriptor = lock_file(path, self._files)
        try:
            refuse_foreign(path)
            for beside in files_beside(path):
                self._files.unlink(beside)
            self._files.unlink(path)
        except OSError as error:
            raise SessionError(f"{path} cannot be deleted: {reason_of(error)}", path=str(path)) from error
        finally:
            close_quietly(self._files, descriptor)
        return path

    def _forget(self, paths: Sequence[Path]) -> None:
        """Syncs the folder, so that the deletion is permanent, and removes the sessions from the search index."""
        if self._sync:
            try:
                self._files.sync_folder(self.folder)
            except OSError as error:
                words = f"{paths[0]} was deleted, but may reappear after a power failure: {reason_of(error)}"
                raise SessionError(words, path=str(paths[0])) from error
        with suppress(SessionError):  # a Python without SQLite cannot search either
            _index_of(self.folder).forget(*[path.stem for path in paths])

    def fork(self, session_id: str, at: int | None = None) -> Session:
        """Creates a session that begins with the first `at` messages of another, or with all of them.

        If they end between the results of a reply, its other calls get a result that says so. Notes are not copied.
        Raises `ValueError` if the session has fewer messages, and the errors of `load` and `create`.
        """
        loaded = self.load(session_id)
        count = len(loaded.messages)
        if at is not None and (type(at) is not int or not 0 <= at <= count):
            raise ValueError(f"session {loaded.id} has {count} messages: it cannot be forked at {at}")
        info = loaded.info
        clear_unfinished(self.folder, self._files)
        metadata = copy_json(dict(info.metadata))
        session = self._create(info.cwd, loaded.fold.title, metadata, loaded.id, is_unfinished=True)
        try:
            copy_into(session, loaded, count if at is None else at)
            session.log.finish(finished(session.path), _FORKING)
        except BaseException:
            with suppress(SessionError):
                session.close()
            with suppress(OSError):
                self._files.unlink(session.path)
            raise
        return session

    # -- all sessions ------------------------------------------------------------------------------------------

    def list(self, cwd: str | os.PathLike[str] | None = None, limit: int | None = None) -> list[SessionInfo]:
        """Returns the sessions, most recently used first; with `cwd`, only those of that folder.

        If a session's last use is in the future, its file's time counts, and if that is in the future too, the session
        comes last. So a clock that was once wrong does not change the order for ever.

        With a `limit`, the most recently written files are read first, and only as many as necessary: a file's time is
        not earlier than the last use that it records, unless a user set the file's time back.

        Files without any readable record are left out. Raises `SessionError` if the folder cannot be read.
        """
        wanted = None if cwd is None else _folder_text(cwd, default=False)
        found: list[tuple[int, int, str, SessionInfo]] = []
        now = time.time_ns() // 1_000_000
        most = None if limit is None else max(limit, 0)
        places: list[int] = []
        """The negated times of last use of the sessions found so far, sorted."""
        for written, path in self._paths_by_time():
            if most is not None and len(found) >= most and (not most or -places[most - 1] > written + _CLOCK):
                break
            try:
                info = info_from_file(path, self._types, wanted)
            except (SessionDamaged, SessionNotFound, FileNotFoundError):
                continue  # not a session, or deleted in the meantime
            except (OSError, SessionError) as error:
                unread = (f"it cannot be read: {reason_of(error)}",)
                info = SessionInfo(id=path.stem, problems=unread, damage=unread)
            if info is not None and (wanted is None or info.cwd == wanted):
                found.append((used_last(path, info, now), info.updated, info.id, info))
                insort(places, -found[-1][0])
        found.sort(key=itemgetter(0, 1, 2), reverse=True)
        return [info for _, _, _, info in found[:most]]

    def latest(self, cwd: str | os.PathLike[str] | None = None) -> SessionInfo | None:
        """Returns the most recently used session; with `cwd`, of that folder."""
        found = self.list(cwd, 1)
        return found[0] if found else None

    def search(
        self, query: str, limit: int = 20, *, on_progress: Callable[[int, int], None] | None = None
    ) -> list[SearchHit]:
        """Returns the messages in which all words of the query occur, best first, then newest first.

        Words in double quotes must be next to each other, and the last word may be the beginning of a word. New and
        changed sessions are read first; the first search reads all sessions. `on_progress` is called with the number
        of sessions read so far and the number to read.
        """
        return _index_of(self.folder).search(query, limit, self.load, on_progress)

    def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        """Returns the session as a document."""
        from .. import export  # imported here because most programs export nothing

        writers = {"markdown": export.export_markdown, "html": export.export_html, "json": export.export_json}
        writer = writers.get(format)
        if writer is None:
            raise ValueError(f"a session cannot be exported as {format!r}: choose one of {', '.join(writers)}")
        loaded = self.load(session_id)
        labels = [(label.text, label.position) for label in loaded.labels]
        places = zip(loaded.notes, loaded.fold.note_positions, strict=True)
        notes = [(note.kind, note.data, position) for note, position in places]
        return writer(loaded.info, loaded.messages, labels=labels, notes=notes)

    # -- finding -----------------------------------------------------------------------------------------------

    def _paths(self) -> list[Path]:
        """Returns the files that may be sessions, sorted by name."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(SUFFIX) and is_file(entry)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SessionError(f"{self.folder} cannot be read: {reason_of(error)}", path=str(self.folder)) from error
        stems = [name.removesuffix(SUFFIX) for name in names]
        return [self.folder / (stem + SUFFIX) for stem in sorted(stems) if _ID.fullmatch(stem)]

    def _paths_by_time(self) -> list[tuple[int, Path]]:
        """Returns these files with their modification times in milliseconds, newest first."""
        timed: list[tuple[int, Path]] = []
        for path in self._paths():
            try:
                timed.append((path.stat().st_mtime_ns // 1_000_000, path))
            except FileNotFoundError:
                pass  # deleted in the meantime
            except OSError:
                timed.append((_NEWEST, path))  # the attempt to read it will report the error
        timed.sort(key=itemgetter(0), reverse=True)
        return timed

    def _find(self, session_id: str) -> Path:
        """Returns the file of a session. An id cannot contain a path."""
        if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a session id must be a string, not {type(session_id).__name__}")
        if not _ID.fullmatch(session_id):
            raise SessionNotFound(f"there is no session {session_id[:100]!r} in {self.folder}", path=str(self.folder))
        whole = self.folder / (session_id + SUFFIX)
        if os.path.isfile(whole):
            return whole  # without listing the folder: a search may load every session
        found = [path for path in self._paths() if path.stem.startswith(session_id)]
        if not found:
            raise SessionNotFound(f"there is no session {session_id!r} in {self.folder}", path=str(self.folder))
        if len(found) > 1:
            some = ", ".join(path.stem for path in found[:5]) + (", …" if len(found) > 5 else "")
            raise SessionAmbiguous(
                f"{session_id!r} is the beginning of {len(found)} sessions in {self.folder}: {some}",
                path=str(self.folder),
            )
        return found[0]


class AsyncSessionStore:
    """A `JsonlSessionStore` with coroutines, which do their disk access in a thread."""

    def __init__(self, store: JsonlSessionStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"AsyncSessionStore({self.store!r})"

    async def create(
        self,
        cwd: str | os.PathLike[str] | None = None,
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        return await asyncio.to_thread(self.store.create, cwd, title, metadata)

    async def open(self, session_id: str, *, cwd: str | os.PathLike[str] | None = None) -> Session:
        return await asyncio.to_thread(self.store.open, session_id, cwd=cwd)

    async def load(self, session_id: str) -> LoadedSession:
        return await asyncio.to_thread(self.store.load, session_id)

    async def rename(self, session_id: str, title: str) -> None:
        await asyncio.to_thread(self.store.rename, session_id, title)

    async def delete(self, session_id: str) -> None:
        await asyncio.to_thread(self.store.delete, session_id)

    async def delete_all(self, session_ids: str | Iterable[str]) -> dict[str, SessionError]:
        return await asyncio.to_thread(self.store.delete_all, session_ids)

    async def fork(self, session_id: str, at: int | None = None) -> Session:
        return await asyncio.to_thread(self.store.fork, session_id, at)

    async def list(self, cwd: str | os.PathLike[str] | None = None, limit: int | None = None) -> list[SessionInfo]:
        return await asyncio.to_thread(self.store.list, cwd, limit)

    async def latest(self, cwd: str | os.PathLike[str] | None = None) -> SessionInfo | None:
        return await asyncio.to_thread(self.store.latest, cwd)

    async def search(
        self, query: str, limit: int = 20, *, on_progress: Callable[[int, int], None] | None = None
    ) -> list[SearchHit]:
        """As `JsonlSessionStore.search`; `on_progress` is called in the thread that reads."""
        return await asyncio.to_thread(self.store.search, query, limit, on_progress=on_progress)

    async def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        return await asyncio.to_thread(self.store.export, session_id, format)


def _index_of(folder: Path) -> SessionIndex:
    from ..search.index import SessionIndex  # imported here because it loads SQLite

    return SessionIndex(folder)


def _expanded(folder: str | os.PathLike[str]) -> Path:
    """Returns the absolute path, with `~` expanded. Raises `SessionError` if that user does not exist."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise SessionError(f"{folder} cannot be a folder for sessions: there is no user of that name") from error


def _default_folder() -> Path:
    """Returns `sessions/` in the data folder that the command line program uses, too."""
    given = os.environ.get(_DATA_VARIABLE)
    if given:
        return Path(given).expanduser().absolute() / "sessions"
    import platformdirs

    return Path(platformdirs.user_data_dir("swink-agent", appauthor=False)) / "sessions"


def _folder_text(cwd: str | os.PathLike[str] | None, *, default: bool) -> str:
    if cwd is None and default:
        try:
            return folder_name(os.getcwd())
        except OSError:
            return ""  # the current folder was deleted; the name is optional
    return "" if cwd is None else folder_name(os.path.abspath(os.path.expanduser(os.fspath(cwd))))


def _checked(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a copy of the metadata. Raises `TypeError` if it is not a JSON object."""
    if metadata is not None and not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the metadata of a session must be a mapping, not {type(metadata).__name__}")
    return checked_json(dict(metadata or {}), "the metadata of a session")
