"""Session stores: creating, finding, listing, forking and deleting sessions, and the same as coroutines.

`SessionStore` has all of it. A `JsonlSessionStore` keeps its sessions in the files of a folder, a `SqlSessionStore` in
an SQLite database: they differ only in the `Storage`.

Owns what a store does with sessions. `opening`, `listing` and `session` read and write their logs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swink_agent.core.encoding.codec import checked_types
from swink_agent.core.types import CustomMessage

from ..errors import SessionAmbiguous, SessionError, SessionNotFound
from ..log.records import SessionStarted
from ..storage.files import FileOperations
from ..storage.folder import FolderStorage
from ..storage.protocols import LogReader, LogState, Storage, is_id
from .forking import copy_into
from .info import SearchHit, SessionInfo, folder_name
from .listing import SessionDescriptions, Wanted
from .opening import SessionOnDisk, create_log, new_id, open_log, read_contents
from .session import LoadedSession, Session, checked_json, checked_text

if TYPE_CHECKING:
    from ..search.index import SessionIndex

ExportFormat = Literal["markdown", "html", "json", "atif"]

_DATA_VARIABLE = "SWINK_DATA_DIR"
_DATABASE = "sessions.sqlite3"
_FORKING = 30.0  # the most seconds that a fork waits for the disk


class SessionStore:
    """Stores sessions. This is the common base of `JsonlSessionStore` and `SqlSessionStore`: create one of these."""

    def __init__(self, storage: Storage, types: Sequence[type[CustomMessage]], *, sync: bool) -> None:
        self._storage = storage
        self._types = checked_types(types)
        self._sync = sync

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._storage.place)!r})"

    # -- one session -------------------------------------------------------------------------------------------

    def create(
        self,
        cwd: str | os.PathLike[str] | None = None,
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the specification's name
    ) -> Session:
        """Creates a session. `cwd` is the folder that it is about, by default the current one.

        `id` is the session's id, by default made from the time. It has 1 to 128 letters, digits, `-` and `_`, and
        begins with a letter or a digit. The id is recorded unmasked.

        When an agent is attached, its redactor masks secrets in title and metadata. Until then the log contains them
        unmasked.

        Raises `SessionExists` if a session has the id, another `SessionError` if the session cannot be created, and
        `ValueError` for an id that no session can have.
        """
        created = _now()
        start = SessionStarted(
            id=new_id(created) if id is None else _checked_id(id),
            created=created,
            cwd=_folder_text(cwd, default=True),
            title=checked_text(title, "a title"),
            metadata=_checked(metadata),
        )
        return self._create(start)

    def _create(self, start: SessionStarted, *, is_unfinished: bool = False) -> Session:
        log = create_log(self._storage, start, sync=self._sync, is_unfinished=is_unfinished)
        return Session(log, start, partial(self._contents, start.id))

    def _contents(self, session_id: str) -> SessionOnDisk:
        with self._storage.reading() as reader:
            return read_contents(reader, self._storage, session_id, self._types)

    def open(self, session_id: str, *, cwd: str | os.PathLike[str] | None = None) -> Session:
        """Opens a session for writing. The beginning of its id is enough if no other id begins so.

        If the log is damaged and has lost the session's folder, `cwd` is the folder from now on.

        Raises `SessionNotFound`, `SessionAmbiguous`, `SessionInUse`, `SessionDamaged` or another `SessionError`.
        """
        folder = _folder_text(cwd, default=False)
        whole_id = self._find(session_id)
        log, contents = open_log(self._storage, whole_id, self._types, sync=self._sync, cwd=folder)
        read = partial(self._contents, whole_id)
        return Session(log, contents.start, read, problems=contents.reading.problems)

    def load(self, session_id: str) -> LoadedSession:
        """Reads a session, even while a process writes to it. The beginning of its id is enough if it is unique.

        A call without a result is shown as perhaps still running if a process has the session open. Only Linux reports
        that.
        """
        with self._storage.reading() as reader:
            whole_id = self._find(session_id, reader)
            # Checked before reading: a writer that ends during the read may write records that this read misses.
            is_in_use = self._storage.is_in_use(whole_id)
            contents = read_contents(reader, self._storage, whole_id, self._types)
        contents.fold.is_in_use = is_in_use
        return LoadedSession(self._storage.name_of(whole_id), contents)

    def rename(self, session_id: str, title: str) -> None:
        """Changes the title of a session. Raises `SessionInUse` if a process has it open for writing."""
        with self.open(session_id) as session:
            session.rename(title)

    def delete(self, session_id: str) -> None:
        """Deletes a session, the saved damaged parts of its log, and its entries in the search index.

        Raises `SessionInUse` if a process has it open for writing, and another `SessionError` for a file that is not a
        session: it contains no record, and its name does not look like one that a store made.
        """
        for problem in self.delete_all([session_id]).values():
            raise problem

    def delete_all(self, session_ids: str | Iterable[str]) -> dict[str, SessionError]:
        """Deletes several sessions, and removes them from the search index in one step.

        Returns the errors of the sessions that could not be deleted, by the ids that the caller gave.
        """
        kept: dict[str, SessionError] = {}
        gone: list[str] = []
        try:
            for session_id in [session_ids] if isinstance(session_ids, str) else session_ids:
                try:
                    whole_id = self._find(session_id)
                    self._storage.delete(whole_id)
                    gone.append(whole_id)
                except SessionError as error:
                    kept[session_id] = error
        finally:
            if gone:
                with suppress(SessionError):  # a Python without SQLite cannot search either
                    _index_of(self._storage, self._states).forget(*gone)
                self._storage.settle(gone)
        return kept

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
        self._storage.clear_unfinished()
        created = _now()
        start = SessionStarted(
            id=new_id(created),
            created=created,
            cwd=info.cwd,
            title=loaded.fold.title,
            metadata=info.metadata,
            parent=loaded.id,
        )
        session = self._create(start, is_unfinished=True)
        try:
            copy_into(session, loaded, count if at is None else at)
            session.log.finish(_FORKING)
        except BaseException:
            with suppress(SessionError):
                session.log.discard(_FORKING)
            raise
        return session

    # -- all sessions ------------------------------------------------------------------------------------------

    def list(
        self,
        cwd: str | os.PathLike[str] | None = None,
        limit: int | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[SessionInfo]:
        """Returns the sessions, most recently used first.

        With `cwd`, only those of that folder. With `metadata`, only those whose metadata has all these keys with the
        same values.

        If a session's last use is in the future, the time when its log was written counts, and if that is in the future
        too, the session comes last. So a clock that was once wrong does not change the order permanently.

        Only logs that changed since the last list are read; with a `limit`, only as many as necessary. A log is not
        written earlier than the last use that it records, unless a user set a file's time back.

        Logs without any readable record are left out. Raises `SessionError` if the sessions cannot be read.
        """
        wanted = Wanted(None if cwd is None else _folder_text(cwd, default=False), _checked(metadata))
        most = None if limit is None else max(limit, 0)
        index = _index_of(self._storage, self._states)
        with self._storage.reading() as reader:
            return SessionDescriptions(reader, self._storage, self._types, index).list(wanted, most, _now())

    def latest(
        self, cwd: str | os.PathLike[str] | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> SessionInfo | None:
        """Returns the most recently used session; with `cwd` and `metadata`, of those that `list` would return."""
        found = self.list(cwd, 1, metadata=metadata)
        return found[0] if found else None

    def search(
        self, query: str, limit: int = 20, *, on_progress: Callable[[int, int], None] | None = None
    ) -> list[SearchHit]:
        """Returns the messages in which all words of the query occur, best first, then newest first.

        Words in double quotes must be next to each other, and the last word may be the beginning of a word. New and
        changed sessions are read first; the first search reads all sessions. `on_progress` is called with the number
        of sessions read so far and the number to read.
        """
        return _index_of(self._storage, self._states).search(query, limit, self.load, on_progress)

    def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        """Returns the session as a document."""
        from .. import export  # imported here because most programs export nothing

        writers = {
            "markdown": export.export_markdown,
            "html": export.export_html,
            "json": export.export_json,
            "atif": export.export_atif,
        }
        writer = writers.get(format)
        if writer is None:
            raise ValueError(f"a session cannot be exported as {format!r}: choose one of {', '.join(writers)}")
        loaded = self.load(session_id)
        labels = [(label.text, label.position) for label in loaded.labels]
        places = zip(loaded.notes, loaded.fold.note_positions, strict=True)
        notes = [(note.kind, note.data, position) for note, position in places]
        return writer(loaded.info, loaded.messages, labels=labels, notes=notes)

    # -- finding -----------------------------------------------------------------------------------------------

    def _states(self) -> dict[str, LogState]:
        with self._storage.reading() as reader:
            return reader.states()

    def _find(self, session_id: str, reader: LogReader | None = None) -> str:
        """Returns the whole id of a session. An id cannot contain a path."""
        if reader is None:
            with self._storage.reading() as opened:
                return self._find(session_id, opened)
        if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a session id must be a string, not {type(session_id).__name__}")
        place = self._storage.place
        if not is_id(session_id):
            raise SessionNotFound(f"there is no session {session_id[:100]!r} in {place}", path=str(place))
        if reader.has(session_id):
            return session_id  # without listing all: a search may load every session
        found = reader.ids(session_id)
        if not found:
            raise SessionNotFound(f"there is no session {session_id!r} in {place}", path=str(place))
        if len(found) > 1:
            some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise SessionAmbiguous(
                f"{session_id!r} is the beginning of {len(found)} sessions in {place}: {some}", path=str(place)
            )
        return found[0]


class JsonlSessionStore(SessionStore):
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
        self.folder = data_folder() / "sessions" if folder is None else _expanded(folder, "folder")
        operations = FileOperations() if files is None else files
        super().__init__(FolderStorage(self.folder, operations, sync=sync), types, sync=sync)


class SqlSessionStore(SessionStore):
    """Stores sessions in an SQLite database, with Python's `sqlite3`. It has all functions of a `JsonlSessionStore`.

    `path` is the database file, which is created with the first session. A folder means `sessions.sqlite3` in it, and
    `None` means that file in the user's data folder. `types` are the application's message types. With
    `sync=False` no thread is used: records survive a crash of the program, but perhaps not a crash of the machine.

    The database must be on a disk of this machine. Its tables are named `swink_session…`, so that an application's own
    tables can be in the same file. `connect` replaces `sqlite3.connect`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        types: Sequence[type[CustomMessage]] = (),
        *,
        sync: bool = True,
        connect: Callable[..., Any] | None = None,
    ) -> None:
        try:
            from ..storage.database import DatabaseStorage  # imported here because it loads SQLite
        except ImportError as error:
            words = "a SqlSessionStore needs Python's sqlite3 module, which this Python was built without"
            raise SessionError(words) from error
        given = data_folder() / _DATABASE if path is None else _expanded(path, "file")
        self.path = given / _DATABASE if given.is_dir() else given
        super().__init__(DatabaseStorage(self.path, sync=sync, connect=connect), types, sync=sync)


class AsyncSessionStore:
    """A `SessionStore` with coroutines, which do their disk access in a thread."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"AsyncSessionStore({self.store!r})"

    async def create(
        self,
        cwd: str | os.PathLike[str] | None = None,
        title: str = "",
        metadata: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the specification's name
    ) -> Session:
        return await asyncio.to_thread(self.store.create, cwd, title, metadata, id=id)

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

    async def list(
        self,
        cwd: str | os.PathLike[str] | None = None,
        limit: int | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[SessionInfo]:
        return await asyncio.to_thread(self.store.list, cwd, limit, metadata=metadata)

    async def latest(
        self, cwd: str | os.PathLike[str] | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> SessionInfo | None:
        return await asyncio.to_thread(self.store.latest, cwd, metadata=metadata)

    async def search(
        self, query: str, limit: int = 20, *, on_progress: Callable[[int, int], None] | None = None
    ) -> list[SearchHit]:
        """As `SessionStore.search`; `on_progress` is called in the thread that reads."""
        return await asyncio.to_thread(self.store.search, query, limit, on_progress=on_progress)

    async def export(self, session_id: str, format: ExportFormat) -> str:  # noqa: A002 - the specification's name
        return await asyncio.to_thread(self.store.export, session_id, format)


def _index_of(storage: Storage, states: Callable[[], dict[str, LogState]]) -> SessionIndex:
    from ..search.index import SessionIndex  # imported here because it loads SQLite

    return SessionIndex(storage.index_path.parent, path=storage.index_path, states=states)


def _expanded(path: str | os.PathLike[str], what: str) -> Path:
    """Returns the absolute path, with `~` expanded. Raises `SessionError` if that user does not exist."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise SessionError(f"{path} cannot be a {what} for sessions: there is no user of that name") from error


def data_folder() -> Path:
    """Returns the data folder that the command line program uses, too."""
    given = os.environ.get(_DATA_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("swink-agent", appauthor=False))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _checked_id(session_id: object) -> str:
    """Raises `TypeError` or `ValueError` for what cannot be the id of a session."""
    if not isinstance(session_id, str):
        raise TypeError(f"the id of a session must be a string, not {type(session_id).__name__}")
    if not is_id(session_id):
        raise ValueError(
            f"{session_id[:200]!r} cannot be the id of a session: an id has 1 to 128 letters, digits, '-' and '_', and "
            "begins with a letter or a digit"
        )
    return session_id


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
