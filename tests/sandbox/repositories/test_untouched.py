"""When a small tree needs no check after a command, and when it does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.repositories.leftovers import Leftovers, Snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/config").write_text("[core]\n")
    (tmp_path / ".vscode").mkdir()
    return tmp_path


@pytest.fixture
def leftovers(root: Path) -> Leftovers:
    return Leftovers(SandboxProfile(write=(str(root),)), tuple)


@pytest.fixture
def snapshot(leftovers: Leftovers) -> Snapshot:
    return leftovers.begin()


def test_files_and_what_came_and_went_need_no_judgement(leftovers: Leftovers, snapshot: Snapshot, root: Path) -> None:
    (root / "notes.md").write_text("text")
    (root / "src/a.py").write_text("a = 1")
    (root / ".idea").mkdir()
    (root / ".idea").rmdir()
    assert leftovers.is_untouched(snapshot, is_last=False)
    assert leftovers.is_untouched(snapshot, is_last=True)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ["new", ".idea", ".claude", "src/.git", "src/new"])
def test_a_new_folder_is_judged(leftovers: Leftovers, snapshot: Snapshot, root: Path, name: str) -> None:
    (root / name).mkdir()
    assert not leftovers.is_untouched(snapshot, is_last=True)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", [".mcp.json", "src/.git", "src/HEAD", "src/head", ".vscode/tasks.json", ".git/config"])
def test_a_file_that_may_run_something_is_judged(
    leftovers: Leftovers, snapshot: Snapshot, root: Path, name: str
) -> None:
    (root / name).write_text("changed")
    assert not leftovers.is_untouched(snapshot, is_last=True)


def test_a_new_hook_and_a_folder_that_is_gone_are_judged(leftovers: Leftovers, snapshot: Snapshot, root: Path) -> None:
    (root / "src").rmdir()
    assert not leftovers.is_untouched(snapshot, is_last=False)
    (root / "src").mkdir()
    leftovers.end(snapshot)
    snapshot = leftovers.begin()
    (root / ".git/hooks/pre-commit").write_text("evil")
    assert not leftovers.is_untouched(snapshot, is_last=True)


def test_a_folder_with_many_files_is_listed_elsewhere(leftovers: Leftovers, snapshot: Snapshot, root: Path) -> None:
    for number in range(150):
        (root / f"src/{number}").touch()
    assert not leftovers.is_untouched(snapshot, is_last=True)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_or_link_in_place_of_a_repository_is_judged(leftovers: Leftovers, root: Path, is_link: bool) -> None:
    (root / "src/.git").mkdir()
    snapshot = leftovers.begin()
    shutil.rmtree(root / "src/.git")
    if is_link:
        (root / "src/.git").symlink_to("/elsewhere")
    else:
        (root / "src/.git").write_text("gitdir: /elsewhere\n")
    assert not leftovers.is_untouched(snapshot, is_last=True)
    assert ["it makes git use a repository that is elsewhere" in told for told in leftovers.end(snapshot)] == [True]
    assert os.listdir(root / "src") == [".git.swink-1"]


def test_an_editors_file_in_place_of_its_folder_is_told(leftovers: Leftovers, snapshot: Snapshot, root: Path) -> None:
    (root / ".vscode").rmdir()
    (root / ".vscode").write_text("x")
    assert ["VS Code would read it" in told for told in leftovers.end(snapshot)] == [True]
    assert sorted(path.name for path in root.iterdir()) == [".git", ".vscode.swink-1", "src"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_only_a_command_made_readable_is_judged(leftovers: Leftovers, root: Path) -> None:
    closed = root / "src/closed"
    closed.mkdir()
    closed.chmod(0)
    snapshot = leftovers.begin()
    closed.chmod(0o700)
    (closed / ".git").write_text("gitdir: /elsewhere\n")
    assert not leftovers.is_untouched(snapshot, is_last=True)
    assert ["it makes git use a repository that is elsewhere" in told for told in leftovers.end(snapshot)] == [True]


def stop_the_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of the file stay as they are, as on a disk that counts coarsely."""
    real = os.lstat
    before = real(path)

    def lstat(path: str, **more: int) -> object:
        state = real(path, **more)
        if os.path.samestat(state, before):
            names = ("st_dev", "st_ino", "st_mode", "st_ctime_ns")
            return SimpleNamespace(**{name: getattr(before, name) for name in names})
        return state

    monkeypatch.setattr(os, "lstat", lstat)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_change_that_the_clock_of_the_disk_is_too_coarse_for_is_judged(
    leftovers: Leftovers, root: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    """On some systems two changes within 10 ms give a folder the same time: a running command can use that."""
    server, snapshot = leftovers.begin(), leftovers.begin()
    (root / "src/a.txt").touch()
    stop_the_clock(root / "src", monkeypatch)
    if in_place:
        assert leftovers.is_untouched(snapshot, is_last=True)
    else:
        assert leftovers.end(snapshot) == []
    (root / "src/.git").write_text("gitdir: /elsewhere\n")
    assert not leftovers.is_untouched(server, is_last=True)
    assert ["it makes git use a repository that is elsewhere" in told for told in leftovers.end(server)] == [True]


def test_a_folder_in_place_of_a_link_that_was_moved_is_listed(
    leftovers: Leftovers, snapshot: Snapshot, root: Path
) -> None:
    git = root / "src/.git"
    git.symlink_to("/elsewhere")
    assert len(leftovers.end(snapshot, is_last=False)) == 1
    git.mkdir()
    assert not leftovers.is_untouched(snapshot, is_last=True)
    assert leftovers.end(snapshot) == []
    snapshot = leftovers.begin()
    for name in ("objects", "refs"):
        (git / "modules/inner" / name).mkdir(parents=True)
    (git / "modules/inner/HEAD").write_text("ref: refs/heads/main\n")
    (git / "modules/inner/config").write_text("[core]\n\tfsmonitor = evil\n")
    assert not leftovers.is_untouched(snapshot, is_last=True)
    assert ["core.fsmonitor can make git run programs" in told for told in leftovers.end(snapshot)] == [True]


def test_a_second_change_of_a_file_within_its_time_is_judged(
    leftovers: Leftovers, snapshot: Snapshot, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = root / ".git/config"
    config.write_text("[core]\n\tbare = false\n")
    (root / ".vscode/settings.json").write_text("{}")
    assert len(leftovers.end(snapshot, is_last=False)) == 1
    stop_the_clock(config, monkeypatch)
    config.write_text("[core]\n\tfsmonitor = evil\n")
    assert not leftovers.is_untouched(snapshot, is_last=True)
    assert ["core.fsmonitor can make git run programs" in told for told in leftovers.end(snapshot)] == [True]
