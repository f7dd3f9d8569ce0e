"""A loss of power at any moment: everything that was relied on is on disk, whatever happened to the rest."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ToolOutcome
from swink_agent.memory import JsonlSessionStore, LoadedSession, SessionDamaged, SessionNotFound
from swink_agent.testing import check_conversation

from .checking import check_relied_on, check_work, results_of
from .life import ALL_WORK, Worker, mark
from .power import Moment, Tape

RELIED_ON = {"asked", "started", "returned", "renamed", "closed"}


class Machine:
    """A folder of sessions on a tape, and what becomes of it when the power goes."""

    def __init__(self, folder: Path, before: dict[str, bytes] | None = None) -> None:
        self.folder = folder
        self.sessions = folder / "sessions"
        self.before = before or {}
        self.tape = Tape()
        self.said: list[list[Any]] = []
        """What somebody relied on before the tape begins."""
        self.store = JsonlSessionStore(self.sessions, files=self.tape)
        folder.mkdir()
        if before:
            self.sessions.mkdir()
        self.inodes: dict[str, int] = {}
        for name, contents in self.before.items():
            (self.sessions / name).write_bytes(contents)
            self.inodes[name] = (self.sessions / name).stat().st_ino

    def every_moment(
        self, check: Callable[[list[Any], Path | None], None], *, seed: int = 1, several: int = 1, stride: int = 1
    ) -> int:
        """Calls `check` with what was said and a folder as it may be, for every moment; says how many there were.

        `several` are the tries for each kind of loss, and only one step in `stride` is looked at.
        """
        dice = random.Random(seed)
        moment = Moment(self.sessions, self.before)
        moment.said += self.said
        for name, inode in self.inodes.items():
            moment.adopt(inode, name)
        count = 0
        after = self.folder / "after"
        for number, step in enumerate([None, *self.tape.steps], seed):
            if step is not None:
                moment.add(step)
            if number % stride:
                continue
            for files in moment.folders(dice, several):
                count += 1
                shutil.rmtree(after, ignore_errors=True)
                if files is not None:
                    (after / "sessions").mkdir(parents=True)
                    for name, contents in files.items():
                        (after / "sessions" / name).write_bytes(contents)
                check(moment.said, None if files is None else after)
        return count


def load_the_one(folder: Path) -> LoadedSession | None:
    paths = [path for path in (folder / "sessions").glob("*.jsonl") if not path.name.startswith(".")]
    if not paths:
        return None
    try:
        return JsonlSessionStore(folder / "sessions").load(paths[0].stem)
    except SessionDamaged:
        return None


def check_moment(said: list[Any], folder: Path | None) -> LoadedSession | None:
    """What every moment of a session's life must allow."""
    relied = [line for line in said if line[0] in RELIED_ON]
    loaded = None if folder is None else load_the_one(folder)
    if loaded is None or folder is None:
        assert not relied, f"the session is gone, and somebody relied on {relied[-1]}"
        return None
    check_conversation(loaded.messages)
    check_relied_on(loaded, said)
    marks = Counter([line[1] for line in said if line[0] == "started"])
    check_work(loaded, marks)
    # Going on with it mends it, and loses nothing more.
    store = JsonlSessionStore(folder / "sessions", sync=False)
    with store.open(loaded.id) as session:
        assert session.messages == loaded.messages
        assert session.context == loaded.context
    again = store.load(loaded.id)
    assert again.messages == loaded.messages
    assert again.state == loaded.state
    return again


def lose_power_in_a_life(tmp_path: Path, **how: int) -> int:
    """A whole life of a session, and every moment of it; one in ten is lived to the end from there."""
    machine = Machine(tmp_path / "machine")
    worker = Worker(str(tmp_path), seed=1, say=machine.tape.say)
    with machine.store.create() as session:
        asyncio.run(worker.live(session))
    machine.tape.say("closed")
    lives = 0

    def check(said: list[Any], folder: Path | None) -> None:
        nonlocal lives
        loaded = check_moment(said, folder)
        lives += 1
        if loaded is None or folder is None or lives % 10:
            return
        for line in said:  # its work was done, and the rest of the life finds it so
            if line[0] == "started":
                mark(str(folder), line[1])
        rest = Worker(str(folder), seed=2, say=lambda *_: None)
        store = JsonlSessionStore(folder / "sessions", sync=False)
        with store.open(loaded.id) as session:
            asyncio.run(rest.live(session))
        ended = store.load(loaded.id)
        assert set(results_of(ended.messages)) == ALL_WORK
        check_work(ended, Counter((folder / "marks").read_text().split()))

    return machine.every_moment(check, **how)


def test_whenever_the_power_goes_what_was_relied_on_is_there(tmp_path: Path) -> None:
    assert lose_power_in_a_life(tmp_path, stride=6) > 100


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_whenever_the_power_goes_and_whatever_it_leaves_what_was_relied_on_is_there(tmp_path: Path, seed: int) -> None:
    assert lose_power_in_a_life(tmp_path, seed=seed, several=3) > 1_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """The name and the contents of a session that came to its end."""
    folder = tmp_path_factory.mktemp("recorded")
    worker = Worker(str(folder), seed=1, say=lambda *_: None)
    with JsonlSessionStore(folder / "sessions", sync=False).create() as session:
        asyncio.run(worker.live(session))
    return session.path.name, session.path.read_bytes()


@pytest.mark.sweep
def test_whenever_the_power_goes_a_session_that_goes_on_is_there(tmp_path: Path, recorded: tuple[str, bytes]) -> None:
    name, contents = recorded
    lines = contents.splitlines(keepends=True)
    cut = b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:40]
    machine = Machine(tmp_path / "machine", {name: cut})
    before = machine.store.load(name.removesuffix(".jsonl"))
    for item, result in results_of(before.messages).items():
        if result.outcome != ToolOutcome.NEVER_RAN:
            machine.said.append(["started", item])
            mark(str(tmp_path), item)
    worker = Worker(str(tmp_path), seed=2, say=machine.tape.say)
    with machine.store.open(before.id) as session:
        asyncio.run(worker.live(session))
    machine.tape.say("closed")

    def check(said: list[Any], folder: Path | None) -> None:
        loaded = check_moment(said, folder)
        assert loaded is not None
        assert loaded.messages[: len(before.messages)] == before.messages

    machine.every_moment(check, stride=8)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("how", ["cut", "hit"])
def test_whenever_the_power_goes_while_mending_neither_the_good_nor_the_bad_is_lost(
    tmp_path: Path, recorded: tuple[str, bytes], how: str
) -> None:
    name, contents = recorded
    lines = contents.splitlines(keepends=True)
    hit = {"cut": len(lines) - 1, "hit": 9}[how]
    bad = lines[hit][: len(lines[hit]) // 2]
    damaged = b"".join([*lines[:hit], bad, *([b"\n", *lines[hit + 1 :]] if how != "cut" else [])])
    machine = Machine(tmp_path / "machine", {name: damaged})
    before = machine.store.load(name.removesuffix(".jsonl"))
    with machine.store.open(before.id) as session:
        session.rename("mended")
    machine.tape.say("renamed", "mended")

    def check(said: list[Any], folder: Path | None) -> None:
        assert folder is not None
        loaded = load_the_one(folder)
        assert loaded is not None
        assert loaded.messages == before.messages
        assert loaded.info.title == "mended" or not said
        files = [path.read_bytes() for path in (folder / "sessions").iterdir() if not path.name.startswith(".")]
        assert any(bad in data for data in files), "the damaged bytes are gone"

    machine.every_moment(check, several=2)


@pytest.mark.sweep
def test_a_loss_of_power_while_forking_leaves_both_sessions_whole(tmp_path: Path, recorded: tuple[str, bytes]) -> None:
    name, contents = recorded
    machine = Machine(tmp_path / "machine", {name: contents})
    session_id = name.removesuffix(".jsonl")
    with machine.store.fork(session_id) as fork:
        pass
    machine.tape.say("closed", fork.id)
    assert len(fork.messages) > 30

    def check(said: list[Any], folder: Path | None) -> None:
        assert folder is not None
        assert (folder / "sessions" / name).read_bytes() == contents
        try:
            loaded = JsonlSessionStore(folder / "sessions").load(fork.id)
        except SessionNotFound:
            assert not said
            return
        assert loaded.messages == fork.messages, "a fork that is seen at all is all of it"

    machine.every_moment(check, several=0)
