"""Commits work if the repository is elsewhere, and the programs that it runs stay unchanged."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile, repository_folders

OpenFn = Callable[[SandboxProfile], Sandbox]
COMMIT = "echo more >> file; git add file && git commit -qm second && git log --oneline | wc -l"
SETTINGS = '[user]\n\tname = Test\n\temail = t@example.org\n[protocol "file"]\n\tallow = always\n'
ATTACKS = """
for g in $(git rev-parse --git-dir --git-common-dir); do
  mkdir -p $g/hooks; echo evil > $g/hooks/pre-commit; echo '[core] fsmonitor = evil' >> $g/config
  git config core.fsmonitor evil; git config --worktree core.pager evil; echo evil > $g/commondir
  mv $g/hooks $g/old; mv $g gone; rm -rf $g/hooks $g/config; echo x > $g/config.worktree
done
echo x > ../outside; echo over"""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        base = Path(made)
        (base / "home").mkdir()
        (base / "home/.gitconfig").write_text(
            '[user]\n\tname = Test\n\temail = t@example.org\n[protocol "file"]\n\tallow = always\n'
        )
        monkeypatch.setenv("HOME", str(base / "home"))
        git(base, "init", "-q", "-b", "main", "repository")
        (base / "repository/sub").mkdir()
        (base / "repository/sub/file").write_text("x\n")
        (base / "repository/other").write_text("x\n")
        git(base / "repository", "add", ".")
        git(base / "repository", "commit", "-qm", "first")
        yield base


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def linked(base: Path) -> Path:
    git(base / "repository", "worktree", "add", "-q", str(base / "tree"), "-b", "tree")
    (base / "tree/file").write_text("x\n")
    return base / "tree"


def module(base: Path) -> Path:
    git(base, "clone", "-q", "--bare", "repository", "origin.git")
    git(base / "repository", "submodule", "add", "-q", str(base / "origin.git"), "module")
    (base / "repository/module/file").write_text("x\n")
    return base / "repository/module"


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a linked work tree": (linked, "repository/.git"),
    "a subfolder": (lambda base: base / "repository/sub", "repository/.git"),
    "a module": (module, "repository/.git/modules/module"),
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", PLACES)
async def test_commits_work_and_what_git_runs_stays(name: str, base: Path, open_backend: OpenFn) -> None:
    make, expected = PLACES[name]
    folder = make(base)
    assert repository_folders(str(folder)) == (str(base / expected),)
    sandbox = open_backend(SandboxProfile(write=(str(folder), *repository_folders(str(folder)))))
    assert (await said(sandbox, COMMIT, folder)).endswith("2\n")
    before = configuration(base)
    assert (await said(sandbox, ATTACKS, folder)).endswith("over\n")
    assert configuration(base) == before
    assert not (folder.parent / "outside").exists()


async def test_a_commit_fails_where_the_repository_is_not_given(base: Path, open_backend: OpenFn) -> None:
    folder = base / "repository/sub"
    sandbox = open_backend(SandboxProfile(write=(str(folder),)))
    assert not (await said(sandbox, COMMIT, folder)).endswith("2\n")


def test_a_folder_cannot_give_itself_somebody_else_s_repository(base: Path) -> None:
    victim = base / "repository/.git"
    evil = base / "evil"
    evil.mkdir()
    linked(base)
    for text in (victim, f"{victim}/worktrees/tree", "../repository/.git", f"{victim}/modules/x", "/", ""):
        (evil / ".git").write_text(f"gitdir: {text}\n")
        assert repository_folders(str(evil)) == (), text
    (evil / ".git").unlink()
    (evil / ".git").symlink_to(victim)
    assert repository_folders(str(evil)) == ()
    (evil / "inner").mkdir()
    assert repository_folders(str(evil / "inner")) == ()


def test_a_repository_of_its_own_or_none_needs_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "plain").mkdir()
    assert repository_folders(str(base / "repository")) == ()
    assert repository_folders(str(base / "plain")) == ()
    git(base / "home", "init", "-q", ".")
    (base / "home/project").mkdir()
    assert repository_folders(str(base / "home/project")) == ()  # a home kept in git is not the project's


async def said(sandbox: Sandbox, script: str, cwd: Path) -> str:
    process = await sandbox.spawn(
        ["/bin/bash", "-c", script], cwd=str(cwd), environment={"HOME": os.environ["HOME"], "GIT_PAGER": "cat"}
    )
    await process.wait()
    process.kill()
    return (await process.output.read()).decode()


def configuration(base: Path) -> dict[str, bytes]:
    names = ("config", "config.worktree", "commondir", "hooks")
    found = [
        path for path in (base / "repository/.git").rglob("*") if path.name in names or path.parent.name == "hooks"
    ]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}
