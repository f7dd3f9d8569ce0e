"""Where sessions are: a folder of files, one each.

Owns finding sessions by id, listing, copying and deleting them, and the same as coroutines. What is in a file is behind
`opening`, `listing` and `session`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swink_agent.core.codec import checked_types
from swink_agent.core.types import CustomMessage
from swink_agent.core.values.value import copy_json

from .errors import SessionAmbiguous, SessionDamaged, SessionError, SessionNotFound, reason_of
from .files import FileOperations, close_quietly, is_file
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
    from .search import SessionIndex

__all__ = ["AsyncSessionStore", "ExportFormat", "JsonlSessionStore"]

ExportFormat = Literal["markdown", "html", "json"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DATA_VARIABLE = "SWINK_DATA_DIR"
_FORKING = 30.0
"""Seconds that a fork waits for the disk at most."""


class JsonlSessionStore:
    """Sessions as JSONL files in a folder.

    `folder=None` is `sessions/` in the user's data folder (`SWINK_DATA_DIR`, else the platform's usual place). `types`
    are the application's own messages. With `sync=False` nothing is synced and no thread is used: what was recorded
    survives the end of the program, but perhaps not that of the machine.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        types: Sequence[type[CustomMessage]] = (),
        *,
        sync: bool = True,
        files: FileOperations | None = None,
    ) -> None:
        self.folder = _default_folder() if folder is None else _beneath_home(folder)
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
        """A new session; `cwd` is the folder that it is about, by default the current one. Raises `SessionError`.

        Title and metadata are masked when an agent is attached, by its redactor; until then they are in the file as
        they are.
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
        """The session of this id, or of the only one that begins so, to go on with.

        `cwd` is the folder that it is about from now on, if damage to its file has cost what that was.

        Raises `SessionNotFound`, `SessionAmbiguous`, `SessionInUse`, `SessionDamaged` or another `SessionError`.
        """
        folder = _folder_text(cwd, default=False)
        log, contents = open_log(self._find(session_id), self._types, files=self._files, sync=self._sync, cwd=folder)
        return Session(log, contents.start, types=self._types, problems=contents.reading.problems)

    def load(self, session_id: str) -> LoadedSession:
        """The session of this id, or of the only one that begins so, to look at, whoever uses it.

        Of a call without a result it says that it may still be running, where somebody has the session in use and the
        system tells (on Linux).
        """
        path = self._find(session_id)
        is_in_use = self._files.is_locked(path)  # before it is read: who ends meanwhile may write until then
        contents = read_contents(path, self._types)
        contents.fold.is_in_use = is_in_use
        return LoadedSession(path, contents)

    def rename(self, session_id: str, title: str) -> None:
        """Gives a session another title. Raises `SessionInUse` if somebody writes to it."""
        with self.open(session_id) as session:
            session.rename(title)

    def delete(self, session_id: str) -> None:
        """Deletes a session, what was kept of damage to it, and what the index of the search holds of it.

        Raises `SessionInUse` if somebody writes to it, and another `SessionError` for a file that is no session: one
        that holds no record, and has no name as sessions have.
        """
        for problem in self.delete_all([session_id]).values():
            raise problem

    def delete_all(self, session_ids: str | Iterable[str]) -> dict[str, SessionError]:
        """Deletes several, and has the index forget them at once, which takes no longer than to forget one.

        Returns what kept those from it that are still there, by the ids that were given.
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
        """Makes the end of sessions last, here and in the index."""
        if self._sync:
            try:
                self._files.sync_folder(self.folder)
            except OSError as error:
                words = f"{paths[0]} was deleted, and may be there again after a loss of power: {reason_of(error)}"
                raise SessionError(words, path=str(paths[0])) from error
        with suppress(SessionError):  # a Python without SQLite cannot search either
            _index_of(self.folder).forget(*[path.stem for path in paths])

    def fork(self, session_id: str, at: int | None = None) -> Session:
        """A new session that begins with the first `at` messages of another, or with all.

        Where they end within the results of a reply, the calls that are left say so. Notes stay behind. Raises
        `ValueError` if there are not so many, and what `load` and `create` raise.
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

    # -- all of them -------------------------------------------------------------------------------------------

    def list(self, cwd: str | os.PathLike[str] | None = None, limit: int | None = None) -> list[SessionInfo]:
        """The sessions, those first that were used last; with `cwd`, those of that folder.

        One that says that it was used in the future has its place by its file's time, or the last place if that lies
        there too: a clock that once ran ahead does not decide for ever.

        Files of which nothing can be read are left out. Raises `SessionError` if the folder cannot be read.
        """
        wanted = None if cwd is None else _folder_text(cwd, default=False)
        found: list[tuple[int, int, str, SessionInfo]] = []
        now = time.time_ns() // 1_000_000
        for path in self._paths():
            try:
                info = info_from_file(path, self._types)
            except (SessionDamaged, SessionNotFound, FileNotFoundError):
                continue  # no session, or one that was deleted meanwhile
            except (OSError, SessionError) as error:
                unread = (f"it cannot be read: {reason_of(error)}",)
                info = SessionInfo(id=path.stem, problems=unread, damage=unread)
            if wanted is None or info.cwd == wanted:
                found.append((used_last(path, info, now), info.updated, info.id, info))
        found.sort(key=itemgetter(0, 1, 2), reverse=True)
        return [info for _, _, _, info in (found if limit is None else found[: max(limit, 0)])]

    def latest(self, cwd: str | os.PathLike[str] | None = None) -> SessionInfo | None:
        """The session that was used last, of this folder or of any."""
        found = self.list(cwd, 1)
        return found[0] if found else None

    def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        """The messages in which all words of the query occur, the best first, then the newest.

        Words in double quotes must stand next to each other, and the last word may be the beginning of one.
        """
        return _index_of(self.folder).search(query, limit, self.load)

    def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        """The session as a document to read or to process."""
        from . import export  # on use: most programs export nothing

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
        """The files that may be sessions, in the order of their names."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(SUFFIX) and is_file(entry)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SessionError(f"{self.folder} cannot be read: {reason_of(error)}", path=str(self.folder)) from error
        stems = [name.removesuffix(SUFFIX) for name in names]
        return [self.folder / (stem + SUFFIX) for stem in sorted(stems) if _ID.fullmatch(stem)]

    def _find(self, session_id: str) -> Path:
        """The file of a session. An id is never taken for a path."""
        if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the id of a session is a string, not {type(session_id).__name__}")
        if not _ID.fullmatch(session_id):
            raise SessionNotFound(f"there is no session {session_id[:100]!r} in {self.folder}", path=str(self.folder))
        whole = self.folder / (session_id + SUFFIX)
        if os.path.isfile(whole):
            return whole  # without a look at all the others: a search may load every session there is
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
    """The same as coroutines, which wait for the disk in a thread."""

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

    async def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        return await asyncio.to_thread(self.store.search, query, limit)

    async def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        return await asyncio.to_thread(self.store.export, session_id, format)


def _index_of(folder: Path) -> SessionIndex:
    from .search import SessionIndex  # on use, as is the database behind it

    return SessionIndex(folder)


def _beneath_home(folder: str | os.PathLike[str]) -> Path:
    """The folder, in which `~` is somebody's home. Raises `SessionError` if there is no such person."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise SessionError(f"{folder} is no folder for sessions: nobody has a home folder of that name") from error


def _default_folder() -> Path:
    """The same place that the application has for its data."""
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
            return ""  # the folder is gone, and nothing depends on its name
    return "" if cwd is None else folder_name(os.path.abspath(os.path.expanduser(os.fspath(cwd))))


def _checked(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of what the application says of a session. Raises `TypeError` for what is no JSON."""
    if metadata is not None and not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the metadata of a session is a mapping, not {type(metadata).__name__}")
    return checked_json(dict(metadata or {}), "the metadata of a session")
