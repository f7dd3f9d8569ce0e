"""Checkpoints: the exact tree is restored, changes by others stay, and a crash leaves the store intact."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.tools import Checkpoint, CheckpointError, CheckpointStore
from swink_agent.tools.checkpoints.restoring import restore
from swink_agent.tools.checkpoints.tree_entries import Seen, Tree, opened_root


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """All that must come back, by path."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def back(store: CheckpointStore, root: Path, to: Checkpoint, *, force: bool = False) -> dict[str, str]:
    return {item.path: item.what for item in store.rewind(root, store.plan(root, to, force))}


def test_wrong_arguments_are_refused_and_nothing_is_recorded(tmp_path: Path) -> None:
    for options in ({"most_file": "1"}, {"most_total": 1.5}, {"most_files": True}, {"most_days": "30"}):
        with pytest.raises(TypeError, match=f"^{next(iter(options))} must be a"):
            CheckpointStore(tmp_path / "kept", **options)  # type: ignore[arg-type]
    for options in ({"most_file": 0}, {"most_days": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(options))} must be"):
            CheckpointStore(tmp_path / "kept", **options)  # type: ignore[arg-type]
    store = CheckpointStore(tmp_path / "kept")
    (tmp_path / "work").mkdir()
    with pytest.raises(ValueError, match=r"^owner must be 'other' or 'run', not 'me'$"):
        store.take(tmp_path / "work", owner="me")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^run_id must be a string, not an int$"):
        store.take(tmp_path / "work", run_id=5)  # type: ignore[arg-type]
    assert store.checkpoints(tmp_path / "work") == []


def test_a_rewind_is_given_a_plan(store: CheckpointStore, root: Path) -> None:
    checkpoint = store.take(root)
    wrong: Any
    for wrong in (checkpoint, checkpoint.id, None):
        with pytest.raises(
            TypeError, match=r"give what plan\(root, checkpoint\) returns, and not a (Checkpoint|str|None)"
        ):
            store.rewind(root, wrong)
    with pytest.raises(TypeError, match="to must be a Checkpoint or its id, not an int"):
        store.plan(root, 3)  # type: ignore[arg-type]
    assert store.checkpoints(root) == [checkpoint]


def test_files_come_back_on_a_disk_without_hard_links(
    store: CheckpointStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as FAT does

    (root / "file").write_text("kept\n")
    (root / "link").symlink_to("file")
    before, checkpoint = tree(root), store.take(root)
    (root / "file").unlink()
    (root / "link").unlink()
    store.take(root, "run", "run")
    monkeypatch.setattr(os, "link", refuse)
    assert back(store, root, checkpoint) == {"file": "restore", "link": "restore"}
    assert tree(root) == before


def test_the_exact_tree_comes_back(store: CheckpointStore, root: Path) -> None:
    (root / "kept").write_text("kept\n")
    (root / "program").write_text("#!/bin/sh\n")
    (root / "program").chmod(0o755)
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/file").write_bytes(b"\x00\xff")
    (root / "empty").mkdir()
    (root / "link").symlink_to("kept")
    (root / "away").symlink_to("/nowhere/at/all")
    (root / os.fsdecode(b"caf\xe9")).write_text("not UTF-8")
    before = tree(root)
    start = store.take(root, "run")
    (root / "kept").write_text("changed\n")
    (root / "program").chmod(0o644)
    shutil.rmtree(root / "deep")
    (root / "deep").write_text("a file now\n")
    (root / "empty").rmdir()
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link/inside").write_text("x")
    (root / "away").unlink()
    (root / "away").symlink_to("kept")
    (root / "made/of/folders").mkdir(parents=True)
    (root / "made/of/file").write_text("new")
    (root / os.fsdecode(b"caf\xe9")).unlink()
    after = tree(root)
    end = store.take(root, "run", "run")
    assert (end.owner, end.run_id, end.changed) == ("run", "run", 14)
    outcome = back(store, root, start)
    assert set(outcome.values()) == {"restore", "remove"}
    assert tree(root) == before
    # The rewind is a change of its own, which can be taken back.
    assert {item.what for item in store.rewind(root, store.plan(root, end))} == {"restore", "remove"}
    assert tree(root) == after


def test_changes_by_others_stay(store: CheckpointStore, root: Path) -> None:
    for name in "abcde":
        (root / name).write_text("0")
    start = store.take(root)
    for name in "abc":
        (root / name).write_text("1 by the run")
    (root / "made").mkdir()
    (root / "made/run").write_text("by the run")
    store.take(root, "r", "run")
    (root / "a").write_text("2 by a person")  # behind the run's change: stays
    (root / "b").write_text("2 by a person")
    (root / "made/person").write_text("by a person")
    store.take(root, "r", "other")
    (root / "b").write_text("3 by the run")  # goes back to what the person wrote
    (root / "d").write_text("3 by the run")
    store.take(root, "r", "run")
    (root / "e").write_text("4 by a person")  # since the last checkpoint
    plan = {item.path: item for item in store.plan(root, start)}
    assert {name: item.what for name, item in plan.items()} == {
        "a": "changed",
        "b": "restore",
        "c": "restore",
        "d": "restore",
        "e": "changed",
        "made": "remove",
        "made/run": "remove",
        "made/person": "changed",
    }
    assert plan["b"].note == "only back to where something else changed it"
    assert store.content(root, plan["b"].before or "") == b"2 by a person"
    outcome = {item.path: item for item in store.rewind(root, list(plan.values()))}
    assert (outcome["made"].what, outcome["made"].note) == ("changed", "has files that are not the run's")
    assert {path.name: path.read_text() for path in root.iterdir() if path.is_file()} == {
        "a": "2 by a person",
        "b": "2 by a person",
        "c": "0",
        "d": "0",
        "e": "4 by a person",
    }
    assert [path.name for path in (root / "made").iterdir()] == ["person"]


def test_files_removed_by_others_stay_gone(store: CheckpointStore, root: Path) -> None:
    """A run that first removes a file and then writes it anew leaves a state in between that looks like theirs."""
    for name in "ab":
        (root / name).write_text("0")
    start = store.take(root)
    for name in "ab":
        (root / name).unlink()
    store.take(root, "r", "run")
    for name in "ab":
        (root / name).write_text("1 by the run")
    store.take(root, "r", "run")
    (root / "a").unlink()
    (root / "b").write_text("2 by a person")
    store.take(root, "r", "other")
    (root / "b").unlink()
    (root / "b").write_text("1 by the run")
    plan = {item.path: (item.what, item.note) for item in store.plan(root, start)}
    assert plan == {"a": ("changed", "is gone"), "b": ("changed", "was changed since")}
    assert {item.what for item in store.plan(root, start, force=True)} == {"restore"}


def test_force_goes_back_over_everybody(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    start = store.take(root)
    (root / "a").write_text("1")
    (root / "b").write_text("1")
    assert back(store, root, start, force=True) == {"a": "restore", "b": "remove"}
    assert tree(root) == {"a": ("file", 0o644, b"0")}


def test_a_path_that_changes_between_plan_and_rewind_fails(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    start = store.take(root)
    (root / "a").write_text("1")
    (root / "b").write_text("1")
    store.take(root, "r", "run")
    plan = store.plan(root, start)
    (root / "a").write_text("2")
    (root / "b").unlink()
    outcome = store.rewind(root, plan)
    assert [(item.path, item.what, item.note) for item in outcome] == [
        ("a", "failed", "was changed meanwhile"),
        ("b", "failed", "was changed meanwhile"),
    ]
    assert (root / "a").read_text() == "2"


def test_nothing_is_brought_back_through_a_link_in_place_of_the_folder(
    store: CheckpointStore, root: Path, tmp_path: Path
) -> None:
    (root / "a").write_text("one")
    before = store.take(root)
    (root / "a").write_text("two")
    store.take(root, "r", "run")
    plan = store.plan(root, before)
    real = Path(os.path.realpath(root))
    real.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "theirs")
    real.symlink_to(tmp_path / "theirs")
    # A moment after the path was resolved.
    with pytest.raises(OSError, match=r"[Nn]ot a directory|symbolic"):
        restore(str(real), plan, lambda found: b"one", 1000)
    assert (tmp_path / "theirs/a").read_text() == "two"


def test_only_one_run_is_taken_back(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    (root / "b").write_text("0")
    start = store.take(root, "one")
    (root / "a").write_text("1")
    (root / "b").write_text("1")
    store.take(root, "one", "run")
    store.take(root, "two")
    (root / "a").write_text("2")
    store.take(root, "two", "run")
    plan = store.plan(root, start, runs={"one"})
    assert {item.path: item.what for item in plan} == {"a": "changed", "b": "restore"}


def test_ignored_files_are_decided_when_they_are_first_seen(store: CheckpointStore, root: Path) -> None:
    (root / ".gitignore").write_text("modules/\n.env\n")
    (root / "modules").mkdir()
    (root / "modules/big").write_text("x")
    (root / ".env").write_text("KEY=1")
    (root / "src").mkdir()
    (root / "src/main").write_text("main")
    start = store.take(root, "r")
    (root / ".gitignore").write_text("src/\n")  # hides the sources, and shows what was ignored
    (root / "src/main").write_text("broken")
    (root / ".env").unlink()
    (root / "src/build").mkdir()
    store.take(root, "r", "run")
    assert back(store, root, start) == {
        ".env": "restore",
        ".gitignore": "restore",
        "src/build": "remove",
        "src/main": "restore",
    }
    assert (root / "src/main").read_text() == "main"
    assert (root / ".env").read_text() == "KEY=1"
    assert (root / "modules/big").exists()


def test_an_ignored_folder_that_is_gone_cannot_come_back_and_a_new_one_stays(
    store: CheckpointStore, root: Path
) -> None:
    (root / ".gitignore").write_text("old/\nnew/\n")
    (root / "old").mkdir()
    start = store.take(root, "r")
    (root / "old").rmdir()
    (root / "new").mkdir()
    store.take(root, "r", "run")
    plan = store.plan(root, start)
    assert [(item.path, item.what, item.note) for item in plan] == [("old", "failed", "no copy of it was kept")]


def test_an_unchanged_file_is_the_same_object_and_not_read_again(root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir()
    for path in (root / "kept", root / "sub/kept", root / "mode", root / "changed"):
        path.write_text("text")
        os.utime(path, ns=(0, 0))

    def look(known: dict[bytes, Seen]) -> tuple[Tree, list[bytes]]:
        read: list[bytes] = []
        with opened_root(root) as folder:
            return Tree(
                folder, known, lambda _, data: read.append(data), most_file=100, most_files=10, without=tmp_path
            ), read

    first = look({})[0].entries
    while any(seen.signature is None for seen in first.values() if seen.entry.kind == "file"):
        first = look({})[0].entries  # files that changed just now are read again
    (root / "mode").chmod(0o700)
    (root / "changed").write_text("new")
    second, read = look(first)
    assert sorted(read) == [b"new", b"text"]
    assert second.changed == {b"mode", b"changed"}
    assert all(second.entries[path] is first[path] for path in (b"kept", b"sub/kept"))


def test_git_itself_is_not_touched(store: CheckpointStore, root: Path) -> None:
    for folder in (".git", "vendor/.git"):
        (root / folder).mkdir(parents=True)
        (root / folder / "config").write_text("[core]\n")
    start = store.take(root)
    (root / ".git/config").write_text("[alias]\n")
    (root / "vendor/.git/HEAD").write_text("ref")
    store.take(root, "r", "run")
    assert store.plan(root, start) == []


def test_a_large_file_is_named_and_left_alone(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_file=10)
    (root / "large").write_text("x" * 11)
    (root / "grows").write_text("small")
    os.mkfifo(root / "pipe")
    start = store.take(root)
    assert (start.skipped, start.files) == (("large",), 1)
    (root / "grows").write_text("x" * 11)
    (root / "large").unlink()
    store.take(root, "r", "run")
    assert back(store, root, start) == {"grows": "restore", "large": "failed"}
    assert (root / "grows").read_text() == "small"
    assert (root / "grows.swink-1").read_text() == "x" * 11, "what no copy is kept of is moved aside"


def test_set_id_bits_do_not_come_back(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    (root / "a").chmod(0o4755)
    start = store.take(root)
    (root / "a").write_text("1")
    store.take(root, "r", "run")
    back(store, root, start)
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755


def test_a_read_only_folder_comes_back_with_its_files(store: CheckpointStore, root: Path) -> None:
    (root / "locked").mkdir()
    (root / "locked/file").write_text("0")
    (root / "locked").chmod(0o555)
    before = tree(root)
    start = store.take(root)
    (root / "locked").chmod(0o755)
    shutil.rmtree(root / "locked")
    store.take(root, "r", "run")
    back(store, root, start)
    assert tree(root) == before
    (root / "locked").chmod(0o755)


def test_nothing_is_written_through_a_link(store: CheckpointStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("theirs")
    (root / "folder").mkdir()
    (root / "folder/file").write_text("0")
    start = store.take(root)
    (root / "folder/file").write_text("1")
    store.take(root, "r", "run")
    plan = store.plan(root, start)
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(outside)
    outcome = store.rewind(root, plan)
    assert [(item.what, item.note) for item in outcome] == [("failed", "is behind a link now")]
    assert (outside / "file").read_text() == "theirs"


def test_the_store_is_for_the_user_alone(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("secret")
    store.take(root)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (store.folder, *store.folder.iterdir())]
    assert modes == [0o700, 0o600]


def test_too_many_files_and_too_much_are_refused_and_nothing_is_recorded(tmp_path: Path, root: Path) -> None:
    for number in range(5):
        (root / str(number)).write_bytes(os.urandom(20_000))
    with pytest.raises(CheckpointError, match="more than 4 files"):
        CheckpointStore(tmp_path / "few", most_files=4).take(root)
    small = CheckpointStore(tmp_path / "small", most_total=50_000)
    with pytest.raises(CheckpointError, match="turn undo off"):
        small.take(root)
    assert small.checkpoints(root) == []


def test_the_oldest_make_room(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_total=400_000)
    for number in range(12):
        (root / "a").write_bytes(os.urandom(100_000))
        last = store.take(root, f"run{number}", "run")
    kept = store.checkpoints(root)
    assert kept[0] == last
    assert 1 <= len(kept) < 12
    assert sum(path.stat().st_size for path in store.folder.iterdir()) <= 400_000


def test_old_checkpoints_are_forgotten(tmp_path: Path, root: Path) -> None:
    now = [1_000_000_000.0]
    store = CheckpointStore(tmp_path / "store", most_days=2, clock=lambda: now[0])
    (root / "a").write_text("0")
    old = store.take(root)
    now[0] += 3 * 24 * 3600
    store.forget()
    assert store.checkpoints(root) == []
    with pytest.raises(CheckpointError, match=old.id):
        store.plan(root, old)


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path, root: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(CheckpointError, match="could be kept in"):
        CheckpointStore(tmp_path / "store").take(root)


def test_a_damaged_database_says_so(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    start = store.take(root)
    (path,) = store.folder.iterdir()
    path.write_bytes(b"not a database" * 100)
    for act in (lambda: store.take(root), lambda: store.checkpoints(root), lambda: store.plan(root, start)):
        with pytest.raises(CheckpointError):
            act()


def test_threads_take_at_once(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    other = CheckpointStore(store.folder)
    threads = [threading.Thread(target=s.take, args=(root, str(n))) for n in range(4) for s in (store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.checkpoints(root)) == 8


def test_a_process_that_is_killed_leaves_the_store_whole(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    start = store.take(root)
    script = (
        "import os, sys, threading\n"
        "from swink_agent.tools import CheckpointStore\n"
        "store = CheckpointStore(sys.argv[1])\n"
        "for number in range(10**6):\n"
        "    open(os.path.join(sys.argv[2], 'b'), 'w').write('x' * 1000 + str(number))\n"
        "    store.take(sys.argv[2], 'r', 'run')\n"
        "    if number == 2: print('going', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(store.folder), str(root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    process.kill()
    process.wait()
    process.stdout.close()
    (path,) = [path for path in store.folder.iterdir() if path.suffix == ".sqlite"]
    store.take(root)
    with sqlite3.connect(path) as base:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    base.close()
    assert "b" in {item.path for item in store.plan(root, start, force=True)}


def test_changes_of_a_call_belong_to_the_run_also_if_its_program_dies(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("0")
    start = store.take(root, "run", opens=True)
    (root / "a").write_text("by the run")
    # No checkpoint after it: the program was killed, or none could be kept.
    assert [item.what for item in store.plan(root, start)] == ["restore"]
    assert [item.what for item in store.plan(root, start, runs="another")] == []
    CheckpointStore(store.folder).settle(root)
    (root / "b").write_text("by a person")
    newest = store.checkpoints(root)
    assert [(taken.run_id, taken.owner, taken.changed) for taken in newest[:2]] == [("", "other", 0), ("run", "run", 1)]
    assert back(store, root, start) == {"a": "restore", "b": "changed"}


def test_a_checkpoint_that_could_not_be_written_is_not_remembered(
    store: CheckpointStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    (root / "a").write_text("0")
    store.take(root)
    (root / "a").write_text("1")
    with monkeypatch.context() as patched:
        patched.setattr("swink_agent.tools.checkpoints.store._set_open_run", full)
        with pytest.raises(CheckpointError, match="disk is full"):
            store.take(root, "r", "run")
    (root / "a").write_text("0")
    CheckpointStore(store.folder).take(root)  # gets the number that the failed one would have had
    (root / "a").write_text("1")
    assert store.take(root, "r", "run").changed == 1


def test_a_time_of_any_size_is_fine(root: Path, store: CheckpointStore) -> None:
    (root / "old").write_text("0")
    os.utime(root / "old", ns=(-(2**62), -(2**62)))
    store.take(root)
    (root / "old").write_text("1")
    assert store.take(root, "r", "run").changed == 1


def test_a_damaged_copy_is_not_put_back(store: CheckpointStore, root: Path) -> None:
    (root / "a").write_text("a" * 1000)
    (root / "b").write_text("b")
    start = store.take(root)
    for name in "ab":
        (root / name).write_text("new")
    store.take(root, "r", "run")
    (path,) = store.folder.iterdir()
    with sqlite3.connect(path) as base:
        base.execute("update contents set data = substr(data, 1, length(data) - 1)")
    base.close()
    assert {(item.what, item.note) for item in store.plan(root, start)} == {("failed", "no good copy of it is kept")}


def test_a_folder_that_was_kept_is_not_hidden_by_moving_it_away_and_back(store: CheckpointStore, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/a").write_text("0")
    start = store.take(root, "r")
    (root / ".gitignore").write_text("src/\n")
    (root / "src").rename(root / "x")
    store.take(root, "r", "run")
    (root / "x").rename(root / "src")
    store.take(root, "r", "run")
    (root / "src/a").write_text("evil")
    store.take(root, "r", "run")
    back(store, root, start)
    assert tree(root) == {"src": ("folder", 0o755), "src/a": ("file", 0o644, b"0")}


def test_a_folder_that_a_person_no_longer_ignores_is_kept_from_then_on(store: CheckpointStore, root: Path) -> None:
    (root / ".gitignore").write_text("data/\n")
    (root / "data").mkdir()
    (root / "data/a").write_text("0")
    store.take(root, "r")
    (root / ".gitignore").write_text("")
    start = store.take(root, "r")
    (root / "data/a").write_text("1")
    store.take(root, "r", "run")
    assert back(store, root, start) == {"data/a": "restore"}


def test_a_run_does_not_push_out_its_own_beginning(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_total=300_000)
    (root / "a").write_text("0")
    start = store.take(root, "r", opens=True)
    (root / "a").write_text("1")
    store.take(root, "r", "run")
    for _ in range(2):
        (root / "junk").write_bytes(os.urandom(100_000))
        store.take(root, "r", "run")
    store.take(root, "r", opens=True)
    (root / "junk").write_bytes(os.urandom(100_000))
    with pytest.raises(CheckpointError, match=r"what this run has changed in them need more than 300\.0 KB"):
        store.take(root, "r", "run")
    assert {item.path: item.what for item in store.plan(root, start)}["a"] == "restore"
    # It fills the store, and is taken back all the same.
    store.settle(root)
    assert back(store, root, start) == {"a": "restore", "junk": "remove"}
    assert tree(root) == {"a": ("file", 0o644, b"0")}


def test_a_run_that_filled_the_store_makes_room_for_the_next_one(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_total=300_000)
    store.take(root, "r", opens=True)
    for _ in range(2):
        (root / "junk").write_bytes(os.urandom(100_000))
        store.take(root, "r", "run", opens=True)
    (root / "junk").write_bytes(os.urandom(100_000))
    with pytest.raises(CheckpointError, match="need more than"):
        store.take(root, "r", "run")
    next_one = store.take(root, "next", opens=True)
    assert store.checkpoints(root)[0] == next_one
    assert sum(path.stat().st_size for path in store.folder.iterdir()) <= 300_000


def test_a_rewind_keeps_what_it_brings_back_in_a_store_that_is_nearly_full(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_total=400_000)
    (root / "a").write_bytes(old := os.urandom(100_000))
    start = store.take(root, "first")
    for _ in range(2):
        (root / "a").write_bytes(os.urandom(100_000))
        store.take(root, "first", "run")
    (root / "person").write_bytes(theirs := os.urandom(140_000))
    plan = store.plan(root, start)
    assert [(item.path, item.what) for item in plan] == [("a", "restore"), ("person", "changed")]
    done = store.rewind(root, plan)
    assert [(item.path, item.what, item.note) for item in done] == [(item.path, item.what, item.note) for item in plan]
    assert ((root / "a").read_bytes(), (root / "person").read_bytes()) == (old, theirs)
    assert sum(path.stat().st_size for path in store.folder.iterdir()) <= 400_000


def test_checkpoints_of_other_folders_are_named_if_they_fill_the_store(tmp_path: Path, root: Path) -> None:
    store = CheckpointStore(tmp_path / "store", most_total=200_000)
    other = tmp_path / "other"
    other.mkdir()
    for folder in (other, root):
        (folder / "a").write_bytes(os.urandom(120_000))
    store.take(other)
    with pytest.raises(CheckpointError, match="those of other folders fill the store"):
        store.take(root)


def test_a_checkpoint_that_does_not_fit_deletes_no_other(tmp_path: Path, root: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("0")
    store = CheckpointStore(tmp_path / "store", most_total=100_000)
    store.take(other)
    (path,) = store.folder.iterdir()
    os.utime(path, (0, 0))
    (root / "big").write_bytes(os.urandom(200_000))
    with pytest.raises(CheckpointError):
        store.take(root)
    assert len(store.checkpoints(other)) == 1


def test_a_rewind_leaves_nothing_that_starts_a_program(store: CheckpointStore, root: Path) -> None:
    (root / "x").mkdir()
    (root / "x/config").write_text("[core]\n\tfsmonitor = touch RAN\n")  # not a repository
    start = store.take(root, "r")
    (root / "x/config").unlink()
    for name in ("objects", "refs"):
        (root / "x" / name).mkdir()
        os.mkfifo(root / "x" / name / "pipe")
    (root / "x/HEAD").write_text("ref: refs/heads/main\n")
    plan = [item for item in store.plan(root, start, force=True) if item.path == "x/config"]
    outcome = store.rewind(root, plan)
    assert [item.path for item in outcome] == ["x/config", "."]
    assert "fsmonitor" in outcome[-1].note
    assert not (root / "x/config").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_became_unreadable_are_restored(store: CheckpointStore, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/a").write_text("0")
    (root / "f").write_text("0")
    os.utime(root / "f", (0, 0))
    time.sleep(0.2)  # a file that has just changed is read again, which is not possible here
    before = tree(root)
    store.take(root)
    start = store.take(root)
    (root / "f").chmod(0)
    (root / "src").chmod(0)
    store.take(root, "r", "run")
    assert back(store, root, start) == {"f": "restore", "src": "restore"}
    assert tree(root) == before


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e/a", "e"])
STEPS = st.tuples(st.sampled_from(["write", "remove", "folder", "link", "mode"]), NAMES, st.integers(0, 3))


def act(root: Path, step: tuple[str, str, int]) -> None:
    what, name, number = step
    path = root / name
    try:
        if what == "write" and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number))
        elif what == "remove" and (path.is_symlink() or path.is_file()):
            path.unlink()
        elif what == "remove":
            shutil.rmtree(path, ignore_errors=True)
        elif what == "folder":
            path.mkdir(parents=True)
        elif what == "link":
            path.symlink_to(str(number))
        elif what == "mode" and not path.is_symlink():
            path.chmod(0o700 | number)
    except OSError:
        pass  # a step that cannot be made in this tree


@settings(max_examples=60)
@given(first=st.lists(STEPS, max_size=8), runs=st.lists(st.lists(STEPS, max_size=6), min_size=1, max_size=3))
def test_any_work_of_a_run_is_taken_back_exactly(
    first: list[Any], runs: list[list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("any")
    root = base / "work"
    root.mkdir()
    store = CheckpointStore(base / "store")
    for step in first:
        act(root, step)
    trees, taken = [], []
    for number, steps in enumerate(runs):
        taken.append(store.take(root, str(number)))
        trees.append(tree(root))
        for step in steps:
            act(root, step)
        store.take(root, str(number), "run")
    for checkpoint, before in reversed(list(zip(taken, trees, strict=True))):
        assert not {"changed", "failed"} & {*back(store, root, checkpoint).values()}
        assert tree(root) == before
    shutil.rmtree(base)


@settings(max_examples=60)
@given(
    first=st.lists(STEPS, max_size=6),
    work=st.lists(st.tuples(st.booleans(), st.lists(STEPS, min_size=1, max_size=4)), min_size=1, max_size=5),
)
def test_no_rewind_touches_what_somebody_else_changed_last(
    first: list[Any], work: list[tuple[bool, list[Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("any")
    root = base / "work"
    root.mkdir()
    store = CheckpointStore(base / "store")
    for step in first:
        act(root, step)
    start, now = store.take(root), tree(root)
    theirs: dict[str, bool] = {}
    for is_theirs, steps in work:
        for step in steps:
            act(root, step)
        before, now = now, tree(root)
        theirs |= {path: is_theirs for path in {**before, **now} if before.get(path) != now.get(path)}
        store.take(root, "r", "other" if is_theirs else "run")
    store.rewind(root, store.plan(root, start))
    after = tree(root)
    assert {path: after.get(path) for path in {**now, **after} if theirs.get(path)} == {
        path: now.get(path) for path in {**now, **after} if theirs.get(path)
    }
    shutil.rmtree(base)
