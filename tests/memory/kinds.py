"""The two kinds of session stores, for tests that both must pass."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from swink_agent import CustomMessage
from swink_agent.memory import JsonlSessionStore, SessionStore, SqlSessionStore

__all__ = ["Files", "Kind", "Sql"]


class Kind:
    """A kind of store, and its logs as bytes."""

    name = ""
    """Of the class."""

    def make(self, folder: Path, types: Sequence[type[CustomMessage]] = (), *, sync: bool = False) -> SessionStore:
        raise NotImplementedError

    def place(self, folder: Path, session_id: str) -> str:
        """The session, as messages name it."""
        raise NotImplementedError

    def read(self, folder: Path, session_id: str) -> bytes:
        raise NotImplementedError

    def write(self, folder: Path, session_id: str, data: bytes, at: int | None = None) -> None:
        """Makes the log these bytes, or adds a log; `at` is when it was written, in milliseconds."""
        raise NotImplementedError

    def damaged(self, folder: Path) -> list[bytes]:
        """The damaged bytes that were kept of all logs."""
        raise NotImplementedError

    def everything(self, folder: Path) -> bytes:
        """All bytes of all files, while no session is open."""
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class Files(Kind):
    name = "JsonlSessionStore"

    def make(self, folder: Path, types: Sequence[type[CustomMessage]] = (), *, sync: bool = False) -> SessionStore:
        return JsonlSessionStore(folder, types, sync=sync)

    def place(self, folder: Path, session_id: str) -> str:
        return str(folder / f"{session_id}.jsonl")

    def read(self, folder: Path, session_id: str) -> bytes:
        return (folder / f"{session_id}.jsonl").read_bytes()

    def write(self, folder: Path, session_id: str, data: bytes, at: int | None = None) -> None:
        path = folder / f"{session_id}.jsonl"
        path.write_bytes(data)
        if at is not None:
            os.utime(path, ns=(at * 1_000_000, at * 1_000_000))

    def damaged(self, folder: Path) -> list[bytes]:
        return [path.read_bytes().removesuffix(b"\n") for path in sorted(folder.glob("*.damaged-*"))]


class Sql(Kind):
    name = "SqlSessionStore"

    def make(self, folder: Path, types: Sequence[type[CustomMessage]] = (), *, sync: bool = False) -> SessionStore:
        return SqlSessionStore(folder / "sessions.sqlite3", types, sync=sync)

    def place(self, folder: Path, session_id: str) -> str:
        return f"{folder / 'sessions.sqlite3'} (session {session_id})"

    def _database(self, folder: Path) -> closing[sqlite3.Connection]:
        database = sqlite3.connect(folder / "sessions.sqlite3", isolation_level=None, timeout=30)
        database.execute("PRAGMA synchronous = OFF")
        return closing(database)

    def read(self, folder: Path, session_id: str) -> bytes:
        statement = "SELECT line FROM swink_session_lines JOIN swink_sessions ON number = session WHERE id = ?"
        with self._database(folder) as database:
            rows = database.execute(f"{statement} ORDER BY position", (session_id,)).fetchall()
        return b"".join(line for (line,) in rows)

    def write(self, folder: Path, session_id: str, data: bytes, at: int | None = None) -> None:
        if not (folder / "sessions.sqlite3").exists():
            store = self.make(folder)
            store.create(id="first").close()
            store.delete("first")
        with self._database(folder) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(
                "INSERT INTO swink_sessions (id, size, written, changes, is_unfinished) VALUES (?, 0, 0, 0, 0) "
                "ON CONFLICT DO NOTHING",
                (session_id,),
            )
            (number,) = database.execute("SELECT number FROM swink_sessions WHERE id = ?", (session_id,)).fetchone()
            database.execute("DELETE FROM swink_session_lines WHERE session = ?", (number,))
            lines = data.splitlines(keepends=True)
            rows = [(number, position, line) for position, line in enumerate(lines)]
            database.executemany("INSERT INTO swink_session_lines VALUES (?, ?, ?)", rows)
            database.execute(
                "UPDATE swink_sessions SET cwd = NULL, size = ?, written = coalesce(?, written), "
                "changes = changes + 1 WHERE number = ?",
                (len(data), at, number),
            )
            database.execute("COMMIT")

    def damaged(self, folder: Path) -> list[bytes]:
        with self._database(folder) as database:
            return [damage for (damage,) in database.execute("SELECT damage FROM swink_session_damage").fetchall()]
