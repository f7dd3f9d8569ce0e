"""`kill -9` at every step of operations on a whole session file: forking, renaming, repairing, locking."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from swink_agent.core.journal import ContextReplaced
from swink_agent.memory import JsonlSessionStore, LoadedSession

from .checking import Child, Nursery, check_loaded, store_in

WHERE = ["amid", pytest.param("before", marks=pytest.mark.sweep), pytest.param("after", marks=pytest.mark.sweep)]
"""Where in a step of the disk the process dies."""


@pytest.fixture(scope="module")
def source(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with compactions, that came to its end."""
    folder = tmp_path_factory.mktemp("source")
    nursery.lives("live", folder, seed=1)
    (path,) = (folder / "sessions").iterdir()
    records = JsonlSessionStore(path.parent).load(path.stem).records()
    assert any(isinstance(record.entry, ContextReplaced) for record in records)
    return path


def copied(source: Path, folder: Path, contents: bytes | None = None) -> Path:
    """The session in a folder of its own, or another content under its name."""
    (folder / "sessions").mkdir(parents=True)
    path = folder / "sessions" / source.name
    path.write_bytes(source.read_bytes() if contents is None else contents)
    return path


def every_death(nursery: Nursery, do: str, folder: Path, where: str, prepare: Any, **order: Any) -> Iterator[Child]:
    """The scenario, once for every step of the disk at which it can die; the last one lives."""
    step = 0
    while True:
        step += 1
        shutil.rmtree(folder, ignore_errors=True)
        path = prepare(folder)
        child = nursery.begin(do, folder, id=path.stem, die_at=step, where=where, **order)
        child.wait()
        yield child
        if not child.was_killed:
            assert step > 2
            return


@pytest.fixture(scope="module")
def database(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a database with such a session."""
    folder = tmp_path_factory.mktemp("database")
    nursery.lives("live", folder, seed=1, store="sql")
    return folder


def every_death_in(nursery: Nursery, do: str, source: Path, folder: Path, where: str, **order: Any) -> Iterator[Child]:
    """The scenario, once for every statement at which it can die; the last one lives."""
    (info,) = store_in(source, "sql").list()
    step = 0
    while True:
        step += 1
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        child = nursery.begin(do, folder, store="sql", id=info.id, die_at=step, where=where, **order)
        child.wait()
        yield child
        if not child.was_killed:
            assert step > 2
            return


def load(path: Path) -> LoadedSession:
    return JsonlSessionStore(path.parent).load(path.stem)


@pytest.mark.parametrize("where", WHERE)
def test_a_kill_while_forking_harms_no_session(nursery: Nursery, source: Path, tmp_path: Path, where: str) -> None:
    folder = tmp_path / "one"
    whole = load(source).messages
    at = len(whole) - 2  # in the midst of a reply's results or not: whatever it is, it is made valid
    deaths = every_death(nursery, "fork", folder, where, lambda to: copied(source, to), at=at)
    for child in deaths:
        store = JsonlSessionStore(folder / "sessions")
        assert (folder / "sessions" / source.name).read_bytes() == source.read_bytes()
        others = [info.id for info in store.list() if info.id != source.stem]
        assert len(others) <= 1
        assert others or child.was_killed
        for session_id in others:  # a fork that is seen at all is all of it
            loaded = store.load(session_id)
            check_loaded(loaded)
            assert loaded.messages[:at] == whole[:at]
            assert loaded.context is not None
        with store.open(source.stem) as session:
            assert session.messages == whole


def test_a_later_fork_clears_the_remains_of_a_killed_one(nursery: Nursery, source: Path, tmp_path: Path) -> None:
    path = copied(source, tmp_path)
    nursery.lives("fork", tmp_path, id=path.stem, die_at=5, where="amid")
    (left,) = [one for one in path.parent.iterdir() if one != path]
    store = JsonlSessionStore(path.parent)
    with store.fork(path.stem) as young:
        assert left.exists(), "somebody may still be at it"
    os.utime(left, (0, 0))
    with store.fork(path.stem) as fork:
        pass
    assert sorted(os.listdir(path.parent)) == sorted([path.name, young.path.name, fork.path.name])


@pytest.mark.parametrize("where", WHERE)
def test_a_kill_while_renaming_leaves_the_old_title_or_the_new(
    nursery: Nursery, source: Path, tmp_path: Path, where: str
) -> None:
    whole = load(source)
    for child in every_death(
        nursery, "rename", tmp_path / "one", where, lambda to: copied(source, to), title="another"
    ):
        path = tmp_path / "one" / "sessions" / source.name
        loaded = load(path)
        assert loaded.messages == whole.messages
        assert loaded.info.title == "another" or (child.was_killed and loaded.info.title == whole.info.title)
        assert [info.title for info in JsonlSessionStore(path.parent).list()] == [loaded.info.title]
        with JsonlSessionStore(path.parent).open(path.stem) as session:
            session.rename("a third")
        assert load(path).info.problems == ()
        assert load(path).info.title == "a third"


def damaged(source: Path) -> dict[str, bytes]:
    """The session's file with its end cut, its middle hit, its first line lost, and zeros behind it."""
    data = source.read_bytes()
    lines = data.splitlines(keepends=True)
    return {
        "cut": data[: -len(lines[-1]) // 2],
        "hit": b"".join([*lines[:9], lines[9].replace(b'"seq"', b'"s\0q"'), *lines[10:]]),
        "headless": b"".join([lines[0][:-9] + b"\n", *lines[1:]]),
        "zeros": data + bytes(500),
    }


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["cut", "hit", "headless", "zeros"])
def test_a_kill_while_mending_loses_neither_the_good_nor_the_bad(
    nursery: Nursery, source: Path, tmp_path: Path, how: str, where: str
) -> None:
    contents = damaged(source)[how]
    path = copied(source, tmp_path / "before", contents)
    before = load(path)
    for _ in every_death(nursery, "mend", tmp_path / "one", where, lambda to: copied(source, to, contents)):
        path = tmp_path / "one" / "sessions" / source.name
        assert load(path).messages == before.messages
        with JsonlSessionStore(path.parent).open(path.stem) as session:
            assert session.messages == before.messages
        assert load(path).messages == before.messages
        assert not [problem for problem in load(path).info.problems if "damaged" in problem or "cut off" in problem]
        kept = sorted(path.parent.glob("*.damaged-*"))
        assert kept, "the damaged bytes are gone"
        if how == "zeros":
            assert bytes(500) in kept[-1].read_bytes()
        others = set(os.listdir(path.parent)) - {path.name, *[one.name for one in kept]}
        assert not others, "copies that were never used are left"


def test_deleting_a_session_deletes_what_a_kill_left_of_mending_it(
    nursery: Nursery, source: Path, tmp_path: Path
) -> None:
    contents, found = damaged(source)["hit"], 0
    for _ in every_death(nursery, "mend", tmp_path / "one", "before", lambda to: copied(source, to, contents)):
        path = tmp_path / "one" / "sessions" / source.name
        found += len(list(path.parent.glob(f".{path.name}.*")))
        JsonlSessionStore(path.parent).delete(path.stem)
        assert os.listdir(path.parent) == []
    assert found


def test_one_of_two_processes_gets_the_session_and_a_kill_frees_it_at_once(
    nursery: Nursery, source: Path, tmp_path: Path
) -> None:
    path = copied(source, tmp_path)
    with Nursery() as other:
        for _ in range(5):
            both = [one.begin("compete", tmp_path, id=path.stem) for one in (nursery, other)]
            for child in both:
                child.read(1)
            assert sorted(child.said[0][0] for child in both) == ["held", "in use"]
            holder = next(child for child in both if child.said[0] == ["held"])
            holder.kill()
            for child in both:
                child.wait()
            with JsonlSessionStore(path.parent).open(path.stem) as session:
                assert session.messages == load(path).messages


# -- in a database -----------------------------------------------------------------------------------------------

STATEMENT = ["before", pytest.param("after", marks=pytest.mark.sweep)]


@pytest.mark.parametrize("where", STATEMENT)
def test_a_kill_while_forking_harms_no_session_in_a_database(
    nursery: Nursery, database: Path, tmp_path: Path, where: str
) -> None:
    (info,) = store_in(database, "sql").list()
    whole = store_in(database, "sql").load(info.id)
    at = len(whole.messages) - 2
    for child in every_death_in(nursery, "fork", database, tmp_path / "one", where, at=at):
        store = store_in(tmp_path / "one", "sql")
        assert store.load(info.id).records() == whole.records()
        others = [one.id for one in store.list() if one.id != info.id]
        assert len(others) <= 1
        assert others or child.was_killed
        for session_id in others:  # a fork that is seen at all is all of it
            loaded = store.load(session_id)
            check_loaded(loaded)
            assert loaded.messages[:at] == whole.messages[:at]
            assert loaded.context is not None
        with store.open(info.id) as session:
            assert session.messages == whole.messages


@pytest.mark.parametrize("where", STATEMENT)
def test_a_kill_while_renaming_leaves_the_old_title_or_the_new_in_a_database(
    nursery: Nursery, database: Path, tmp_path: Path, where: str
) -> None:
    (info,) = store_in(database, "sql").list()
    for child in every_death_in(nursery, "rename", database, tmp_path / "one", where, title="another"):
        store = store_in(tmp_path / "one", "sql")
        (found,) = store.list()
        assert found.title == "another" or (child.was_killed and found.title == info.title)
        store.rename(info.id, "a third")
        assert [(one.title, one.problems) for one in store.list()] == [("a third", ())]


@pytest.mark.parametrize("where", STATEMENT)
def test_a_kill_while_mending_loses_neither_the_good_nor_the_bad_in_a_database(
    nursery: Nursery, database: Path, tmp_path: Path, where: str
) -> None:
    hit = tmp_path / "hit"
    shutil.copytree(database, hit)
    with closing(sqlite3.connect(hit / "sessions" / "sessions.sqlite3")) as connection, connection:
        connection.execute(
            "UPDATE swink_session_lines SET line = replace(line, '\"seq\"', '\"soq\"') WHERE position = 9"
        )
    (info,) = store_in(hit, "sql").list()
    before = store_in(hit, "sql").load(info.id)
    assert before.info.damage
    for _ in every_death_in(nursery, "mend", hit, tmp_path / "one", where):
        store = store_in(tmp_path / "one", "sql")
        assert store.load(info.id).messages == before.messages
        with store.open(info.id) as session:
            assert session.messages == before.messages
        after = store.load(info.id)
        assert after.messages == before.messages
        assert not [problem for problem in after.info.problems if "damaged" in problem]
        with closing(sqlite3.connect(tmp_path / "one" / "sessions" / "sessions.sqlite3")) as connection:
            kept = connection.execute("SELECT CAST(damage AS BLOB) FROM swink_session_damage").fetchall()
        assert len(kept) == 1, "the damaged bytes are kept once"
        assert b'"soq"' in kept[0][0]


@pytest.mark.sweep
def test_one_of_two_processes_gets_a_session_and_a_kill_frees_it_at_once(
    nursery: Nursery, database: Path, tmp_path: Path
) -> None:
    shutil.copytree(database, tmp_path / "one")
    store = store_in(tmp_path / "one", "sql")
    (info,) = store.list()
    with Nursery() as other:
        for _ in range(3):
            both = [one.begin("compete", tmp_path / "one", store="sql", id=info.id) for one in (nursery, other)]
            for child in both:
                child.read(1)
            assert sorted(child.said[0][0] for child in both) == ["held", "in use"]
            holder = next(child for child in both if child.said[0] == ["held"])
            holder.kill()
            for child in both:
                child.wait()
            with store.open(info.id) as session:
                assert session.messages == store.load(info.id).messages
