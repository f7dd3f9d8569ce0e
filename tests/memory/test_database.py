"""Requirements that only a store in a database has: its file, its tables, its connections."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, tool
from swink_agent.memory import Session, SessionError, SessionInUse, SessionNotFound, SqlSessionStore
from swink_agent.testing import call, scripted, text


def test_the_database_is_a_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path / "deep" / "talks.db")
    assert (store.list(), store.latest(), store.search("x")) == ([], None, [])
    assert list(tmp_path.iterdir()) == [], "asking makes nothing"
    mask = os.umask(0)
    try:
        with store.create() as session:
            modes = [path.stat().st_mode for path in tmp_path.rglob("*")]
    finally:
        os.umask(mask)
    assert len(modes) > 3, "the database, SQLite's own files, and the lock"
    assert not any(stat.S_IMODE(mode) & 0o077 for mode in modes)
    assert session.path == store.path == tmp_path / "deep" / "talks.db"
    assert repr(store) == f"SqlSessionStore({str(store.path)!r})"


def test_a_folder_stands_for_a_database_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SqlSessionStore(tmp_path).path == tmp_path / "sessions.sqlite3"
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    assert SqlSessionStore().path == tmp_path / "data" / "sessions.sqlite3"
    with pytest.raises(SessionError, match="cannot be a file for sessions: there is no user"):
        SqlSessionStore("~nobody-of-this-name/x")


@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_database_whose_creation_a_crash_ended_is_created_at_the_next_use(
    tmp_path: Path, is_read_first: bool
) -> None:
    path = tmp_path / "talks.db"
    # As a crash leaves it: pages in the file, and the journal that takes them back.
    crash = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE half (made)")
connection.execute("INSERT INTO half VALUES (zeroblob(200000))")
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", crash, str(path)], check=False).returncode == 9
    assert path.stat().st_size > 0
    assert path.with_name("talks.db-journal").stat().st_size > 0
    if is_read_first:
        store = SqlSessionStore(path)
        assert (store.list(), store.latest(), store.search("x")) == ([], None, [])
    with SqlSessionStore(path).create(id="mine") as session:
        assert session.id == "mine"
    assert [info.id for info in SqlSessionStore(path).list()] == ["mine"]


@pytest.mark.parametrize("data", [b"hello, this is no database\n" * 100, b"x"])
def test_a_file_that_is_not_a_database_stays_as_it_is(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(data)
    store = SqlSessionStore(path)
    for use in (store.list, store.create, lambda: store.load("x"), lambda: store.search("x")):
        with pytest.raises(SessionError, match=r"notes.txt cannot be .*: file is not a database. It was left as it is"):
            use()
    assert path.read_bytes() == data


def test_tables_of_a_newer_version_are_left_as_they_are(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path / "db")
    store.create(id="old").close()
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("UPDATE swink_session_schema SET version = 2")
    before = store.path.read_bytes()
    for use in (store.list, store.create, lambda: store.open("old"), lambda: store.delete("old")):
        with pytest.raises(SessionError, match=r"newer version \(tables 2; this one knows 1\): install that version"):
            use()
    assert store.path.read_bytes() == before


def test_an_applications_own_tables_stay_beside_those_of_sessions(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE sessions (id TEXT)")
        database.execute("INSERT INTO sessions VALUES ('theirs')")
        database.execute("PRAGMA user_version = 7")
    store = SqlSessionStore(path)
    assert store.list() == []
    store.create(id="ours").close()
    assert [info.id for info in store.list()] == ["ours"]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM sessions").fetchall() == [("theirs",)]
        assert database.execute("PRAGMA user_version").fetchone() == (7,)


def test_a_damaged_database_is_one_clear_error(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path / "db", sync=False)
    with store.create(id="one") as session:
        for number in range(200):
            session.note("x", "word " * 100 + str(number))
    data = bytearray(store.path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    store.path.write_bytes(data)
    for use in (lambda: store.load("one"), lambda: store.open("one"), store.create):
        with pytest.raises(SessionError, match=str(store.path)):
            use()


def test_a_database_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path / "db")
    with store.create(id="one") as session:
        session.note("kept")
    os.chmod(store.path, 0o400)
    os.chmod(tmp_path, 0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("nothing is denied to this user")
        assert [info.id for info in store.list()] == ["one"]
        assert len(store.load("one").notes) == 1
        with pytest.raises(SessionError):
            store.open("one")
    finally:
        os.chmod(tmp_path, 0o700)


# -- durability ------------------------------------------------------------------------------------------------


class Disk:
    """Connections that note what they do, and fail where they should."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.fails_at = ""
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                disk.statements.append(sql)
                if disk.fails_at and sql.startswith(disk.fails_at):
                    raise sqlite3.OperationalError("database or disk is full")
                return super().execute(sql, *values)

        self.connect = partial(sqlite3.connect, factory=Connection)


async def test_acknowledged_records_are_in_a_finished_transaction_that_was_synced(tmp_path: Path) -> None:
    disk = Disk()
    store = SqlSessionStore(tmp_path, connect=disk.connect)
    other = SqlSessionStore(tmp_path)
    seen: list[int] = []

    def reply(_: Any) -> Any:
        seen.append(len(other.load("one").messages))
        return text("yes")

    agent = Agent("test:model", stream_fn=scripted(reply, reply))
    with store.create(id="one") as session:
        session.attach(agent)
        await agent.prompt("first")
        assert len(other.load("one").messages) == 2
        await agent.prompt("second")
    assert seen == [1, 3], "the user's message is there before the model is asked"
    assert "PRAGMA synchronous = FULL" in disk.statements
    assert "PRAGMA synchronous = NORMAL" not in disk.statements


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE", "COMMIT"])
async def test_a_run_whose_records_cannot_be_written_ends_with_an_error(tmp_path: Path, statement: str) -> None:
    disk = Disk()
    store = SqlSessionStore(tmp_path, connect=disk.connect)
    model = scripted("one", "two")
    agent = Agent("test:model", stream_fn=model)
    session = store.create(id="one")
    session.attach(agent)
    assert (await agent.prompt("first")).error is None
    disk.fails_at = statement
    result = await agent.prompt("second")
    assert result.error is not None
    assert result.error.startswith(f"{store.path} (session one) could not be written: database or disk is full")
    assert len(model.requests) == 1, "the model is not asked"
    with pytest.raises(SessionError, match="disk is full"):
        session.close()
    disk.fails_at = ""
    with store.open("one") as again:
        assert len(again.messages) == 2
        again.note("goes on")
    assert len(store.load("one").notes) == 1


async def test_a_transaction_that_somebody_else_left_open_is_named(tmp_path: Path) -> None:
    def at_once(*given: Any, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(*given, **{**options, "timeout": 0})

    store = SqlSessionStore(tmp_path / "app.db", connect=at_once)
    with closing(sqlite3.connect(store.path, check_same_thread=False)) as database:
        database.execute("CREATE TABLE orders (number INTEGER)")

        @tool
        def order(number: int) -> str:
            """Orders it, and forgets to commit."""
            database.execute("INSERT INTO orders VALUES (?)", (number,))
            return "ordered"

        agent = Agent("test:model", stream_fn=scripted(call("order", number=1), "done"), tools=[order])
        session = store.create(id="one")
        session.attach(agent)
        result = await agent.prompt("Order it")
        locked = r"database is locked \(another connection holds a transaction open\)"
        assert re.fullmatch(
            rf".*app.db \(session one\) could not be written: {locked}. Nothing after that is on record: "
            "commit or close that transaction, then open the session again to continue from the last record",
            result.error or "",
        )
        with pytest.raises(SessionError, match="is locked"):
            session.close()
        with pytest.raises(SessionError, match=f"app.db cannot be written: {locked}$"):
            store.create(id="two")
        database.commit()
    with store.open("one") as again:
        again.attach(Agent("test:model", stream_fn=scripted("done")))


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
def test_a_session_that_cannot_be_created_leaves_nothing(tmp_path: Path, statement: str) -> None:
    disk = Disk()
    store = SqlSessionStore(tmp_path, connect=disk.connect)
    store.create(id="first").close()
    disk.fails_at = statement
    with pytest.raises(SessionError, match="cannot be written: database or disk is full"):
        store.create(id="one")
    with pytest.raises(SessionError, match="cannot be written: database or disk is full"):
        store.fork("first")
    disk.fails_at = ""
    assert [info.id for info in store.list()] == ["first"]
    store.create(id="one").close()


async def test_a_run_whose_session_was_deleted_by_hand_ends_with_an_error(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path)
    agent = Agent("test:model", stream_fn=scripted("one", "two", "three"))
    session = store.create(id="one")
    session.attach(agent)
    assert (await agent.prompt("first")).error is None
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("DELETE FROM swink_sessions")
    result = await agent.prompt("second")
    assert "the session was deleted" in (result.error or "")
    with pytest.raises(SessionError, match="deleted"):
        session.close()


async def test_a_run_whose_database_was_deleted_by_hand_ends_with_an_error(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path)
    agent = Agent("test:model", stream_fn=scripted("one", "two"))
    session = store.create(id="one")
    session.attach(agent)
    assert (await agent.prompt("first")).error is None
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{store.path}{suffix}")
    result = await agent.prompt("second")
    assert result.error is not None
    with pytest.raises(SessionError):
        session.close()


# -- several at once ---------------------------------------------------------------------------------------------


async def test_many_sessions_of_one_database_are_written_at_once(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path)

    async def one(number: int) -> None:
        agent = Agent("test:model", stream_fn=scripted(*["yes"] * 3))
        async with store.create(id=f"n{number}") as session:
            session.attach(agent)
            for turn in range(3):
                assert (await agent.prompt(f"{number} {turn}")).error is None

    await asyncio.gather(*[one(number) for number in range(20)])
    assert {(info.messages, info.problems) for info in store.list()} == {(6, ())}
    assert len(store.list()) == 20


WRITER = """
import sys
from swink_agent.memory import SqlSessionStore
store = SqlSessionStore(sys.argv[1])
for number in range(5):
    with store.create(id=f"{sys.argv[2]}-{number}") as session:
        for note in range(5):
            session.note("n", note)
            session.log.flush(60)
"""


@pytest.mark.sweep
def test_many_processes_create_and_write_one_database_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "db")]
    running = [subprocess.Popen([*command, f"p{number}"], stderr=subprocess.PIPE, text=True) for number in range(3)]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    store = SqlSessionStore(tmp_path / "db")
    assert len(store.list()) == 15
    for info in store.list():
        assert [note.data for note in store.load(info.id).notes] == list(range(5))


FORKED = """
import os, sys, threading, warnings
from swink_agent.memory import SqlSessionStore
warnings.simplefilter("ignore")
store = SqlSessionStore(sys.argv[1])
parent = store.create(id="parent")
parent.note("before")
parent.log.flush(60)
stop = threading.Event()
def look():
    while not stop.is_set():
        store.list()
looking = threading.Thread(target=look)
looking.start()
ready, let = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    with store.create(id="child") as session:
        session.note("one")
        session.log.flush(60)
        os.write(ready[1], b"x")
        os.read(let[0], 1)  # the parent has closed its last connection
        session.note("two")
    os._exit(0)
os.read(ready[0], 1)
stop.set()
looking.join()
parent.note("after")
parent.close()
os.write(let[1], b"x")
os.waitpid(child, 0)
print([len(store.load(name).notes) for name in ("parent", "child")])
"""


def test_a_forked_child_writes_sessions_of_its_own_to_the_same_database(tmp_path: Path) -> None:
    """SQLite forbids to carry connections into a child: it would not know that its parent's locks are not its own."""
    command = [sys.executable, "-c", FORKED, str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[2, 2]\n"
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path, sync=False)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                with store.create(id=f"t{number}-{turn}", metadata={"thread": number}) as session:
                    session.note("x", turn)
                assert len(store.list(metadata={"thread": number})) == turn + 1
                assert store.load(session.id).notes[0].data == turn
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert len(store.list()) == 30


def test_a_list_of_one_folder_looks_at_no_session_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqlSessionStore(tmp_path / "db", sync=False)
    for number in range(20):
        store.create(tmp_path / "a", id=f"a{number}").close()
    store.create(tmp_path / "b", id="b").close()
    looked: list[str] = []

    def noted(reader: Any, storage: Any, session_id: str, *arguments: Any) -> None:
        looked.append(session_id)
        raise SessionNotFound("it was deleted")

    monkeypatch.setattr("swink_agent.memory.sessions.listing.read_contents", noted)
    store.latest(tmp_path / "b")
    assert looked == ["b"]
    store.latest(tmp_path / "none")
    assert looked == ["b"]


@pytest.mark.parametrize("is_made_first", [True, False])
def test_a_session_has_one_writer_through_links_to_the_database_too(tmp_path: Path, is_made_first: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "talks.db")
    real = SqlSessionStore(tmp_path / "real" / "talks.db")
    if is_made_first:
        real.create(id="other").close()
    links = [SqlSessionStore(tmp_path / "link.db"), SqlSessionStore(tmp_path / "folder" / "talks.db")]
    with links[0].create(id="one", title="words") as session:
        assert session.path == links[0].path == tmp_path / "link.db"
        for store in (real, *links):
            with pytest.raises(SessionInUse):
                store.open("one")
    for store in (real, *links):
        store.search("words")
        with store.open("one"), pytest.raises(SessionInUse):
            real.delete("one")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"real", "folder", "link.db"}, "locks and the search index are beside the database"


def add_row(store: SqlSessionStore, session_id: str | bytes) -> None:
    """Adds a copy of the first session with an id that no store would give."""
    with closing(sqlite3.connect(store.path)) as database, database:
        added = database.execute(
            "INSERT INTO swink_sessions (id, cwd, size, written, changes, is_unfinished) "
            "SELECT CAST(? AS TEXT), cwd, size, written, 0, 0 FROM swink_sessions WHERE number = 1",
            (session_id,),
        )
        database.execute(
            "INSERT INTO swink_session_lines SELECT ?, position, line FROM swink_session_lines WHERE session = 1",
            (added.lastrowid,),
        )


@pytest.mark.parametrize(
    "bad", ["abc/../../victim", "../victim", "abc\0", "abc\n", "abcé", "", "-abc", "abc" * 50, b"abc\xff"]
)
def test_a_row_whose_id_is_not_an_id_is_not_a_session(tmp_path: Path, bad: str | bytes) -> None:
    store = SqlSessionStore(tmp_path / "db")
    with store.create(id="good", title="words"):
        (tmp_path / "db.locks" / "abc").mkdir()
        (tmp_path / "victim").write_text("kept")
    add_row(store, bad)
    assert [info.id for info in store.list()] == ["good"]
    assert [info.id for info in store.list(limit=1)] == ["good"]
    assert store.search("words") == []
    for use in (store.open, store.load, store.delete):
        with pytest.raises(SessionNotFound):
            use("abc")
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_row_whose_id_is_not_an_id_does_not_make_a_beginning_ambiguous(tmp_path: Path) -> None:
    store = SqlSessionStore(tmp_path / "db")
    store.create(id="abc-1").close()
    add_row(store, "abc/../../victim")
    assert store.load("abc").id == "abc-1"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("value", ["x", b"x", b"\xff", 1.5, -5, 2**62])
@pytest.mark.parametrize("column", ["size", "written", "changes", "cwd", "is_unfinished"])
def test_a_damaged_row_does_not_take_the_other_sessions_away(tmp_path: Path, column: str, value: Any) -> None:
    store = SqlSessionStore(tmp_path / "db")
    good = [f"good-{number}" for number in range(3)]
    for session_id in ("bad-1", *good, "bad-2"):
        store.create(tmp_path, id=session_id).close()
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute(f"UPDATE swink_sessions SET {column} = ? WHERE id LIKE 'bad%'", (value,))
    for listed in (store.list(), store.list(tmp_path), store.list(limit=5)):
        assert set(good) <= {info.id for info in listed}
    assert len(store.list(limit=2)) == 2
    assert store.latest() is not None
    assert store.search("words") == []
    for session_id in good:
        store.open(session_id).close()


@pytest.mark.parametrize("position", ["p", b"p", 1000.5, 2**63 - 1])
async def test_a_session_with_a_damaged_position_goes_on_after_its_last_line(tmp_path: Path, position: Any) -> None:
    store = SqlSessionStore(tmp_path / "db")

    async def say(session: Session, words: str) -> None:
        with session:
            agent = Agent("test:model", stream_fn=scripted(f"{words}, too"))
            session.attach(agent)
            assert (await agent.prompt(words)).error is None

    await say(store.create(id="one"), "first")
    with closing(sqlite3.connect(store.path)) as database, database:
        last = "(SELECT max(position) FROM swink_session_lines)"
        database.execute(f"UPDATE swink_session_lines SET position = ? WHERE position = {last}", (position,))
    await say(store.open("one"), "second")
    await say(store.open("one"), "third")
    loaded = store.load("one")
    assert loaded.info.problems == ()
    assert [message.content[0].text for message in loaded.messages] == [
        "first",
        "first, too",
        "second",
        "second, too",
        "third",
        "third, too",
    ]
