"""The index of a store: full text search over all sessions, and their descriptions for lists.

The index is a cache, a file beside the sessions. Every search first updates it, and reads only sessions whose logs have
changed. If it is missing, damaged or of another version, it is created again; if it cannot be written, a search uses an
index in memory, and a list reads all logs.

Owns the index file. `words` splits texts and queries; the session store finds and loads sessions.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from swink_agent.core.machine.files import make_private
from swink_agent.core.types import AgentMessage
from swink_agent.core.values.decoders import json_decoder

from ..errors import SessionDamaged, SessionError, SessionNotFound, is_named
from ..sessions.info import SearchHit, SessionInfo
from ..storage.folder import INDEX_NAME, file_states
from ..storage.protocols import LogState
from .words import Query, parse_query, snippet_of, text_of, words_of

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import sqlite3
    except ImportError:  # Python was built without it; the first search reports that
        sqlite3 = None

_VERSION = 4
"""Version of the tables, of the splitting into words, and of `SessionInfo`. Increase it when either changes."""
_LEAST, _MOST = -(2**63), 2**63 - 1  # the range of SQLite's integers
_LONGEST_TEXT = 1_000_000  # the most characters of one message that are indexed
_PATIENCE = 2.0  # seconds to wait while another process writes the index
_MOST_AT_ONCE = 4_000_000  # characters that are indexed in one transaction, during which other writers wait
_SHIFT = 32  # a row number is the session's number, shifted by this many bits, plus the position of the message
_UNUSABLE = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "FULL", "IOERR", "PERM", "AUTH", "NOMEM", "NOLFS", "PROTOCOL")
"""Errors that mean that the index cannot be used now, though it may be intact."""

_TABLES = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, size INTEGER, time INTEGER, inode INTEGER,
    updated INTEGER, info BLOB
);
CREATE VIRTUAL TABLE messages USING fts5(words, text UNINDEXED, tokenize = 'ascii');
CREATE TABLE infos (
    id TEXT NOT NULL, kinds TEXT NOT NULL, size INTEGER, time INTEGER, inode INTEGER, info BLOB,
    PRIMARY KEY (id, kinds)
) WITHOUT ROWID;
"""
_STATES = "SELECT id, size, time, inode FROM sessions"

log = logging.getLogger("swink_agent")


_Result = TypeVar("_Result")


class Searchable(Protocol):
    """The part of a session that is indexed."""

    @property
    def info(self) -> SessionInfo: ...
    @property
    def messages(self) -> Sequence[AgentMessage]: ...


LoadFn = Callable[[str], Searchable]
ProgressFn = Callable[[int, int], None]


class SessionIndex:
    """The index of one folder of sessions, or of another store. It keeps no file open between searches.

    `path` is the index file, by default one in the folder. `states` tells the state of each session by its id, by
    default that of its file: sessions whose states have changed since they were indexed are read again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        path: Path | None = None,
        states: Callable[[], dict[str, LogState]] | None = None,
        connect: Callable[..., sqlite3.Connection] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.path = self.folder / INDEX_NAME if path is None else path
        self._states = partial(file_states, self.folder) if states is None else states
        self._connect = connect

    def __repr__(self) -> str:
        return f"SessionIndex({str(self.folder)!r})"

    def search(self, query: str, limit: int, load: LoadFn, on_progress: ProgressFn | None = None) -> list[SearchHit]:
        """Returns the messages in which all words of the query occur, best first, then newest first.

        Words in double quotes must be next to each other, and the last word may be the beginning of a word. An empty
        query finds nothing. `load` reads a session; one that it cannot read is left out. `on_progress` is called with
        the number of sessions read so far and the number of sessions that changed since the last search.

        Raises `SessionError` if the folder cannot be read, or SQLite has no full text search.
        """
        wanted = parse_query(query)
        if not wanted.terms or limit <= 0:
            return []
        states = self._states()
        if not states:
            return []

        def work(database: sqlite3.Connection) -> list[SearchHit]:
            _refresh(database, states, load, on_progress)
            return _hits(database, wanted, limit)

        return self._with_index(work)

    def forget(self, *session_ids: str) -> None:
        """Removes sessions from the index now, not at the next search. Ignores errors of SQLite and the disk."""
        if not self.path.exists():
            return
        sqlite = _sqlite()
        with suppress(sqlite.Error, OSError), closing(self._open(sqlite)) as database:
            _drop(database, *session_ids)
            # Without this, their words would stay in the file.
            database.execute("INSERT INTO messages (messages) VALUES ('optimize')")

    # -- descriptions for lists ----------------------------------------------------------------------------------

    def infos(self, kinds: str) -> dict[str, tuple[LogState, bytes]]:
        """The descriptions that `keep_infos` kept for these kinds of messages, as JSON, each with the state of its log.

        Empty if there is no index, or it cannot be used.
        """

        def work(database: sqlite3.Connection) -> dict[str, tuple[LogState, bytes]]:
            rows = database.execute("SELECT id, size, time, inode, info FROM infos WHERE kinds = ?", (kinds,))
            return {session_id: ((size, at, inode), info) for session_id, size, at, inode, info in rows}

        with suppress(SessionError):
            return (self._with_file(work) if os.path.exists(self.path) else None) or {}
        return {}

    def keep_infos(self, kinds: str, fresh: Mapping[str, tuple[LogState, SessionInfo | None]], gone: set[str]) -> None:
        """Keeps descriptions, and forgets those of sessions that are gone. Does nothing if the index cannot be used."""
        rows = [
            (session_id, kinds, *state, b"" if info is None else msgspec.json.encode(info))
            for session_id, (state, info) in fresh.items()
        ]

        def work(database: sqlite3.Connection) -> None:
            with _transaction(database):
                database.executemany("INSERT OR REPLACE INTO infos VALUES (?, ?, ?, ?, ?, ?)", rows)
                database.executemany("DELETE FROM infos WHERE id = ?", [(session_id,) for session_id in gone])

        with suppress(SessionError):
            self._with_file(work)

    # -- the index file ----------------------------------------------------------------------------------------

    def _with_index(self, work: Callable[[sqlite3.Connection], list[SearchHit]]) -> list[SearchHit]:
        """Calls `work` with the index file, or with an index in memory if that cannot be used."""
        sqlite = _sqlite()
        hits = self._with_file(work)
        if hits is not None:
            return hits
        with closing(self._in_memory(sqlite)) as database:
            return work(database)

    def _with_file(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Calls `work` with the index file; a damaged one is made anew. `None` if it cannot be used.

        Raises `SessionError` if SQLite has no full text search.
        """
        if sqlite3 is None:
            return None
        for _ in range(2):
            try:
                with closing(self._open(sqlite3)) as database:
                    return work(database)
            except sqlite3.Error as error:
                _check_module(error)
                if is_named(error, *_UNUSABLE):
                    break
                for suffix in ("", "-wal", "-shm", "-journal"):
                    with suppress(OSError):
                        os.unlink(f"{self.path}{suffix}")
            except OSError:
                break
        return None

    def _open(self, sqlite: Any) -> sqlite3.Connection:
        make_private(self.path)
        if os.stat(self.path).st_mode & 0o077:
            os.chmod(self.path, 0o600)
        database = self._connection(sqlite, str(self.path))
        try:
            database.execute("PRAGMA journal_mode = WAL")  # searches do not wait for a process that writes
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA secure_delete = ON")
            _prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _connection(self, sqlite: Any, name: str, **options: Any) -> sqlite3.Connection:
        connect = sqlite.connect if self._connect is None else self._connect
        return connect(name, timeout=_PATIENCE, isolation_level=None, **options)

    def _in_memory(self, sqlite: Any) -> sqlite3.Connection:
        """Returns an index in memory for one search. It begins as a copy of the file, if that can be read."""
        for options in ("mode=ro", "immutable=1"):
            database = sqlite.connect(":memory:", isolation_level=None)
            try:
                with closing(self._connection(sqlite, f"{self.path.absolute().as_uri()}?{options}", uri=True)) as found:
                    found.backup(database)
                _prepare(database)
                return database
            except sqlite.Error:
                database.close()
        database = sqlite.connect(":memory:", isolation_level=None)
        try:
            _prepare(database)
        except sqlite.Error as error:
            database.close()
            _check_module(error)
            raise SessionError(f"the sessions in {self.folder} cannot be searched: {error}") from error
        return database


def _sqlite() -> Any:
    module: Any = sqlite3
    if module is None:
        raise SessionError("search needs Python's sqlite3 module, which this Python was built without")
    return module


def _check_module(error: Exception) -> None:
    if "no such module" in str(error):
        raise SessionError("search needs SQLite with FTS5, which the SQLite of this Python does not have") from error


def _prepare(database: sqlite3.Connection) -> None:
    """Creates the tables, and replaces those of another version."""
    if _version(database) == _VERSION:
        return
    with _transaction(database):
        if _version(database) != _VERSION:  # no other process did it while this one waited for the lock
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('sessions', 'messages', 'infos')"
            ).fetchall():
                database.execute(f"DROP TABLE {name}")
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {_VERSION}")


def _version(database: sqlite3.Connection) -> int:
    return database.execute("PRAGMA user_version").fetchone()[0]


@contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        _roll_back(database)  # unless it is committed


def _roll_back(database: sqlite3.Connection) -> None:
    if database.in_transaction:
        database.execute("ROLLBACK")


# -- updating the index ----------------------------------------------------------------------------------------


_ReadSession: TypeAlias = tuple[str, LogState, "SessionInfo | None", list[tuple[int, str, str]]]
"""The id, the state, the information and the rows of a session that was read, to be written to the index."""


def _refresh(
    database: sqlite3.Connection, states: dict[str, LogState], load: LoadFn, on_progress: ProgressFn | None = None
) -> None:
    """Indexes changed sessions and drops deleted ones, in short transactions, so other processes do not wait long."""
    known: dict[str, LogState] = {row[0]: row[1:] for row in database.execute(_STATES)}
    for session_id in known.keys() - states.keys():
        _drop(database, session_id)
    fresh: list[_ReadSession] = []
    size = 0
    changed = [(session_id, state) for session_id, state in states.items() if known.get(session_id) != state]
    for done, (session_id, state) in enumerate(changed):
        if on_progress is not None:
            on_progress(done, len(changed))
        row = database.execute(f"{_STATES} WHERE id = ?", (session_id,)).fetchone()
        if row is not None and row[1:] == state:
            continue  # another process has indexed it in the meantime
        try:
            session = load(session_id)
            info, rows = session.info, list(_rows(session.messages))
        except SessionDamaged:
            info, rows = None, []  # nothing in it is readable: not tried again until the file changes
        except SessionNotFound:
            _drop(database, session_id)  # deleted in the meantime
            continue
        except Exception:
            log.warning("session %s could not be read: the search uses its earlier contents", session_id)
            log.debug("reading session %s failed", session_id, exc_info=True)
            continue  # its earlier entries, if any, stay in the index
        fresh.append((session_id, state, info, rows))
        size += sum(len(text) for _, _, text in rows)
        if size > _MOST_AT_ONCE:
            _store(database, fresh)
            fresh, size = [], 0
    _store(database, fresh)
    if on_progress is not None and changed:
        on_progress(len(changed), len(changed))


def _store(database: sqlite3.Connection, sessions: Sequence[_ReadSession]) -> None:
    if not sessions:
        return
    with _transaction(database):
        for session_id, state, info, found in sessions:
            number = _clear(database, session_id)
            encoded = None if info is None else msgspec.json.encode(info)
            updated = 0 if info is None else min(max(info.updated, _LEAST), _MOST)
            values = (number, session_id, *state, updated, encoded)
            stored = database.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            first = (stored.lastrowid or 0) << _SHIFT
            rows = [(first + position, words, text) for position, words, text in found]
            database.executemany("INSERT INTO messages (rowid, words, text) VALUES (?, ?, ?)", rows)


def _rows(messages: Sequence[AgentMessage]) -> Iterator[tuple[int, str, str]]:
    for position, message in enumerate(messages):
        text = text_of(message)[:_LONGEST_TEXT].encode("utf-8", "replace").decode().replace("\0", " ")
        if text.strip():
            yield position, " ".join(words_of(text)), text


def _clear(database: sqlite3.Connection, session_id: str) -> int | None:
    """Removes the messages of a session from the index. Returns the number of the session, if it has one."""
    row = database.execute("SELECT number FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        return None
    first = row[0] << _SHIFT
    database.execute("DELETE FROM messages WHERE rowid BETWEEN ? AND ?", (first, first + (1 << _SHIFT) - 1))
    return row[0]


def _drop(database: sqlite3.Connection, *session_ids: str) -> None:
    with _transaction(database):
        for session_id in session_ids:
            _clear(database, session_id)
            database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            database.execute("DELETE FROM infos WHERE id = ?", (session_id,))


# -- queries ---------------------------------------------------------------------------------------------------


def _hits(database: sqlite3.Connection, query: Query, limit: int) -> list[SearchHit]:
    """Returns the hits by relevance, then by the last use of their session, then later messages first."""
    expression, literals = query.expression, query.literals
    conditions = ["messages MATCH ?"] if expression else []
    conditions += ["instr(lower(messages.text), lower(?)) > 0"] * len(literals)
    order = "messages.rank, " if expression else ""
    statement = (
        "SELECT messages.rowid, sessions.info FROM messages "
        f"JOIN sessions ON sessions.number = messages.rowid >> {_SHIFT} WHERE {' AND '.join(conditions)} "
        f"ORDER BY {order}sessions.updated DESC, messages.rowid DESC LIMIT ?"
    )
    values = [*([expression] if expression else []), *literals, min(limit, 2**31)]
    infos: dict[bytes, SessionInfo] = {}
    hits: list[SearchHit] = []
    database.execute("BEGIN")  # so that no other process deletes a hit before its text is read
    try:
        for row, encoded in database.execute(statement, values).fetchall():
            (text,) = database.execute("SELECT text FROM messages WHERE rowid = ?", (row,)).fetchone()
            info = infos.get(encoded)
            if info is None:
                info = infos[encoded] = json_decoder(SessionInfo).decode(encoded)
            hits.append(SearchHit(info, row & ((1 << _SHIFT) - 1), snippet_of(text, query)))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise _sqlite().DatabaseError(f"the index contains invalid data: {error}") from error
    finally:
        _roll_back(database)
    return hits
