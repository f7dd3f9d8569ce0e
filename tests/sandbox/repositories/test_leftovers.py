"""Files that a command leaves do not run later, when the user works in the folder with git or an editor.

Scripts of `leftovers.txt` run in the sandbox. Then the user's commands run in real bash with real git and no sandbox. A
mark file shows whether the attack's program ran.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import NAMES, Sandbox, SandboxProfile, open_unconfined
from swink_agent.sandbox.names import row_of
from swink_agent.sandbox.repositories import leftovers

pytestmark = pytest.mark.sweep

OpenFn = Callable[[SandboxProfile], Sandbox]


def read_leftovers() -> dict[str, tuple[list[str], str]]:
    """The scripts by their headings, one after another, and what the user types then."""
    text = (Path(__file__).parent / "leftovers.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[list[str], str]] = {}
    for block in text.split("\n=== ")[1:]:
        heading, _, rest = block.partition("\n")
        script, _, typed = rest.partition("\n---\n")
        found[heading] = script.split("\n===> and later\n"), typed
    return found


LEFTOVERS = {name: work for name, work in read_leftovers().items() if "vim " not in work[1] or shutil.which("vim")}


def furnish(playground: Any) -> Path:
    evil = playground.root / "evil"
    evil.write_text(f"#!/bin/sh\necho ran > {playground.outside}/mark\n")
    evil.chmod(0o755)
    playground.variables["EVIL"] = str(evil)
    return playground.outside / "mark"


def type_(playground: Any, typed: str) -> str:
    """Runs what the user types, in the user's own shell."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(playground.home),
        "EDITOR": "true",
        "GIT_TERMINAL_PROMPT": "0",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", typed],
        cwd=playground.root,
        env={**environment, "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_remains_of_a_command_do_not_run(name: str, playground: Any, open_backend: OpenFn) -> None:
    mark = furnish(playground)
    sandbox = open_backend(playground.profile())
    scripts, typed = LEFTOVERS[name]
    for script in scripts:
        await playground.run(sandbox, script)
    said = type_(playground, typed)
    assert not mark.exists(), said


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_without_walls_it_does(name: str, playground: Any) -> None:
    """Else it would prove nothing that it does not."""
    mark = furnish(playground)
    scripts, typed = LEFTOVERS[name]
    with open_unconfined(playground.profile()) as sandbox:
        for script in scripts:
            outcome = await playground.run(sandbox, script)
    said = type_(playground, typed)
    assert mark.exists(), f"{outcome.output}\n{said}"


FOLDERS = frozenset({".vscode", ".idea", ".swink", ".cursor", ".devcontainer", ".codex", ".gemini", ".zed"})


# -- ordinary work ---------------------------------------------------------------------------------------------------

ORDINARY = {
    "init and settings": "git init -q n; cd n; git config user.name 'A \"B\" C; #1'; git config core.autocrlf false;"
    " git config commit.gpgsign false; git config pull.rebase true; git remote add o https://example.org/x.git;"
    " git remote add p git@example.org:x/y.git; git config --get user.name",
    "clone, branch and track": "git clone -q . n 2>&1; cd n; git checkout -q -b x --track origin/main;"
    " git branch -q --set-upstream-to=origin/main; git stash list; git tag v1; git status --short",
    "a bare clone": "git clone -q --bare . b; git clone -q b c 2>&1; cd c;"
    " git commit -q --allow-empty -m x; git push -q",
    "a work tree": "git worktree add -q t -b t; cd t; echo x > y; git add y; git commit -q -m y; git log --oneline",
    "a work tree of a clone": "git clone -q . n 2>&1; cd n; git worktree add -q ../m -b m; cd ../m; git status --short",
    "a repository with its folder elsewhere": "git init -q --separate-git-dir=$PWD/g n; git -C n status --short",
    "a module": "git clone -q . n 2>&1; cd n; git clone -q . m 2>&1; git submodule --quiet add ./m 2>&1 || true;"
    " git submodule --quiet absorbgitdirs 2>&1 || true; git status --short",
    "a rebase that stops": "echo a > hello.txt; git commit -qam a; git checkout -q -b o HEAD~1; echo b > hello.txt;"
    " git commit -qam b; git rebase main > /dev/null 2>&1; echo c > hello.txt; git add hello.txt; git status --short",
    "a cherry-pick that stops": "echo a > hello.txt; git commit -qam a; git commit -q --allow-empty -m z;"
    " git checkout -q -b o HEAD~2; echo b > hello.txt; git commit -qam b;"
    " git cherry-pick main~1 main > /dev/null 2>&1; git status --short",
    "a folder with such names": "mkdir -p src/objects src/refs src/hooks; echo '{}' > src/config;"
    " echo x > src/hooks/pre; chmod +x src/hooks/pre; cat src/config",
    "files of the environment": "echo A=1 > .env; echo 3.12 > .python-version; cat .env",
}


async def leave(playground: Any, sandbox: Sandbox, script: str) -> tuple[int, tuple[str, ...], str]:
    """The exit code of a script, what is reported about what it left, and its output."""
    who = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    process = await sandbox.spawn(
        ["/bin/bash", "-c", script],
        cwd=str(playground.root),
        environment={**playground.variables, **who, "HOME": str(playground.home)},
    )
    code = await process.wait()
    process.kill()
    told = await process.look_behind()
    return code, told, (await process.output.read()).decode("utf-8", "replace")


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_work_is_left_alone(name: str, playground: Any, open_backend: OpenFn) -> None:
    code, told, output = await leave(playground, open_backend(playground.profile()), ORDINARY[name])
    assert (code, told) == (0, ()), output
    assert list(playground.root.rglob("*.swink-*")) == []


async def test_settings_of_the_user_stay_when_commands_work_there(playground: Any, open_backend: OpenFn) -> None:
    """In a repository that is too deep in the tree to be held; set before the first command, and between two."""
    furnish(playground)
    deep = playground.root / "a/b/c/d/e"
    deep.mkdir(parents=True)
    setting = "git init -q && git config alias.x '!true' && cp ../../../../../evil .git/hooks/pre-push"
    type_(playground, f"cd {deep} && {setting}")
    sandbox = open_backend(playground.profile())
    work = f"cd {deep}; echo $RANDOM > f; git add f; git commit -qm x; git status --short"
    await leave(playground, sandbox, work)
    type_(
        playground,
        f"cd {deep} && git config alias.y '!true' && git init -q ../new && git -C ../new config alias.z '!true'",
    )
    await asyncio.sleep(0.1)  # what changes in the moment before a command begins counts as its doing
    code, told, output = await leave(playground, sandbox, f"{work}; cat ../new/.git/config")
    assert (code, told) == (0, ()), output
    assert (deep / ".git/config").read_text().count("!true") == 2
    assert "!true" in (deep.parent / "new/.git/config").read_text()
    assert (deep / ".git/hooks/pre-push").exists()


@pytest.mark.parametrize(
    "path",
    [
        "sub/deep/" * (number % 2) + (f"{row.name}/file" if row.name in FOLDERS else row.name).replace("*", "")
        for number, row in enumerate(NAMES)
        if not row.name.startswith(".git/")
    ],
)
async def test_each_name_is_moved_aside_or_reported(path: str, playground: Any, open_backend: OpenFn) -> None:
    """And what was there before the command is read-only, or judged as well."""
    row = row_of(path.split("/"))
    assert row is not None
    script = f"mkdir -p $(dirname {path}); echo new > {path}"
    sandbox = open_backend(playground.profile())
    _, told, _ = await leave(playground, sandbox, script)
    place, text = playground.root / path, "\n".join(told)
    assert row.program in text
    assert row.when in text
    if row.treatment == "reported":
        assert place.read_text() == "new\n"
        return
    assert not place.exists()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("mine\n")
    await asyncio.sleep(0.1)  # what changes in the moment before a command begins counts as its doing
    await leave(playground, open_backend(playground.profile()), script)
    assert place.read_text() == "mine\n"


async def test_repairs_are_reported(playground: Any, open_backend: OpenFn, caplog: pytest.LogCaptureFixture) -> None:
    furnish(playground)
    script = (
        "git init -q n; git -C n config core.fsmonitor $EVIL; cp $EVIL n/.git/hooks/pre-commit; mkdir -p n/.vscode;"
    )
    script += "echo '{}' > n/.vscode/settings.json; mkdir -p m/.vscode; echo '{\"runOn\": 1}' >m/.vscode/tasks.json"
    _, told, _ = await leave(playground, open_backend(playground.profile()), script)
    root, text = playground.root, "\n".join(told)
    assert f"'{root}/n/.git/config': core.fsmonitor can make git run programs" in text
    assert f"'{root}/n/.git/hooks/pre-commit': git would run this hook" in text
    assert f"'{root}/n/.vscode/settings.json' is new or changed" in text  # a clone has brought it
    assert f"'{root}/m/.vscode': VS Code would read it" in text
    assert [record.getMessage() for record in caplog.records] == list(told)
    assert "fsmonitor" in (root / "n/.git/config.swink-1").read_text()
    assert not (root / "n/.git/config").exists()
    assert (root / "m/.vscode.swink-1/tasks.json").exists()


# -- files are left as they are, or moved as a whole -----------------------------------------------------------------

HARMLESS = {
    "a comment and quotes": '# mine\n[user]\n\tname = "A # B" ; c\n',
    "no spaces": "[user]name=A\n   email =a@b\n\n\n[core]bare",
    "escapes": '[user]\n\tname = A \\"B\\" \\\\ C\n[branch "a \\"b"]\n\tmerge = refs/heads/a\n',
    "line ends of another system": "\r\n[user]\r\n\tname = A # b\r\n",
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_a_harmless_configuration_stays_byte_for_byte(name: str, playground: Any, open_backend: OpenFn) -> None:
    (playground.root / "added").write_bytes(HARMLESS[name].encode())
    script = "git init -q sub && cat added >> sub/.git/config && cp sub/.git/config copy"
    sandbox = open_backend(playground.profile())
    assert (await leave(playground, sandbox, script))[:2] == (0, ())
    assert (await leave(playground, sandbox, "touch sub/.git/config"))[:2] == (0, ())
    assert (playground.root / "sub/.git/config").read_bytes() == (playground.root / "copy").read_bytes()
    assert [path.name for path in playground.root.rglob("*.swink-*")] == []


async def deep_repository(playground: Any) -> Path:
    """A repository of the user's that is too deep in the tree to be read-only, with a hook and an alias."""
    furnish(playground)
    deep = playground.root / "a/b/c/d/e"
    deep.mkdir(parents=True)
    type_(playground, f"cd {deep} && git init -q && git config alias.mine '!true' && echo '# mine' >> .git/config")
    hook = deep / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o751)
    await asyncio.sleep(0.1)  # what changes in the moment before a command begins counts as its doing
    return deep / ".git"


async def test_a_dangerous_file_is_moved_as_a_whole_and_the_one_from_before_is_back(
    playground: Any, open_backend: OpenFn
) -> None:
    git = await deep_repository(playground)
    before = (git / "config").read_bytes()
    sandbox = open_backend(playground.profile())
    hooks = "cp $EVIL hooks/pre-commit; cp $EVIL hooks/pre-push"
    script = f"cd {git}; git config core.fsmonitor $EVIL; cp config ../copy; {hooks}"
    for number in (1, 2):
        _, told, _ = await leave(playground, sandbox, script)
        back = "; the file from before the command is back"
        assert set(told) == {
            f"'{git}/config': core.fsmonitor can make git run programs. "
            f"It was moved to 'config.swink-{number}' in the same folder{back}",
            f"'{git}/hooks/pre-commit': git would run this hook. "
            f"It was moved to 'pre-commit.swink-{number}' in the same folder{back}",
            f"'{git}/hooks/pre-push': git would run this hook. "
            f"It was moved to 'pre-push.swink-{number}' in the same folder",
        }
        assert (git / "config").read_bytes() == before
        assert (git / f"config.swink-{number}").read_bytes() == (git / "../copy").read_bytes()
        hook = git / "hooks/pre-commit"
        assert (hook.read_text(), hook.stat().st_mode & 0o777) == ("#!/bin/sh\nexit 0\n", 0o751)
    assert (git / "hooks/pre-push.swink-2").read_bytes() == (playground.root / "evil").read_bytes()
    assert list(git.rglob(".new*")) == []


async def test_the_users_own_dangerous_settings_stay_when_a_command_adds_a_harmless_one(
    playground: Any, open_backend: OpenFn
) -> None:
    git = await deep_repository(playground)
    script = f"git -C {git.parent} config user.name A"
    assert (await leave(playground, open_backend(playground.profile()), script))[:2] == (0, ())
    assert (git / "config").read_text().endswith("mine = !true\n# mine\n[user]\n\tname = A\n")


async def test_restored_files_are_not_judged_again(playground: Any, open_backend: OpenFn) -> None:
    """While another command still runs, the user's own file, with its alias, looks new."""
    git = await deep_repository(playground)
    before = (git / "config").read_bytes()
    sandbox = open_backend(playground.profile())
    reader, writer = os.pipe()
    other = await sandbox.spawn(["/bin/sh", "-c", "read line"], cwd=str(playground.root), stdin=reader)
    try:
        script = f"git -C {git.parent} config core.fsmonitor $EVIL"
        assert len((await leave(playground, sandbox, script))[1]) == 1
        assert (await leave(playground, sandbox, "touch x"))[1] == ()
    finally:
        other.kill()
        os.close(reader)
        os.close(writer)
    assert (git / "config").read_bytes() == before
    assert not (git / "config.swink-2").exists()


async def test_files_that_programs_read_differently_are_moved(playground: Any, open_backend: OpenFn) -> None:
    script = (
        "git init -q n; printf '[user]\\n\\tname = A \\\\\\n\\temail = b\\n' >> n/.git/config; cp n/.git/config copy"
    )
    _, (told,), _ = await leave(playground, open_backend(playground.profile()), script)
    assert "programs do not agree on what some of its lines mean. It was moved to 'config.swink-1'" in told
    assert (playground.root / "n/.git/config.swink-1").read_bytes() == (playground.root / "copy").read_bytes()


EXPOSED = {
    "an include that is missing": ("[include] path = ../common", 'echo "[core] fsmonitor = $EVIL" > common'),
    "an include in an include": ("[include] path = ../here", 'echo "[core] fsmonitor = $EVIL" > there'),
    "an include by a link": ("[include] path = ../link", "ln -sf evil.config link"),
}


@pytest.mark.parametrize("name", EXPOSED)
async def test_targets_of_the_users_own_settings_cannot_be_planted(
    name: str, playground: Any, open_backend: OpenFn
) -> None:
    mark = furnish(playground)
    setting, script = EXPOSED[name]
    root = playground.root
    for file, text in {"here": "[include] path = there", "plain": ""}.items():
        (root / file).write_text(f"{text}\n")
    (root / "evil.config").write_text(f"[core] fsmonitor = {root}/evil\n")
    (root / "link").symlink_to("plain")
    with (root / ".git/config").open("a") as config:
        config.write(f"{setting}\n")
    await leave(playground, open_backend(playground.profile()), script)
    typed = "git status; git commit -q --allow-empty -m x; mkdir -p s; cd s; git branch y"
    said = type_(playground, f"{typed}; git branch -D y")
    assert not mark.exists(), said
    with open_unconfined(playground.profile()) as sandbox:
        await leave(playground, sandbox, script)
    said = type_(playground, typed)
    assert mark.exists(), said


# -- project code ----------------------------------------------------------------------------------------------------


async def test_hooks_in_a_folder_of_the_project_may_be_changed(playground: Any, open_backend: OpenFn) -> None:
    """The setting that names the folder may not."""
    hooks = playground.root / ".husky"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("npm test\n")
    (hooks / "linked").symlink_to("../tool")
    (playground.root / "tool").touch()
    (playground.root / ".git/hooks/pre-push").symlink_to("../../tool")
    type_(playground, "git config core.hooksPath .husky")
    config = (playground.root / ".git/config").read_text()
    script = "echo lint >> .husky/pre-commit; echo lint >> tool; touch .husky/new; git config core.hooksPath other"
    _, told, _ = await leave(playground, open_backend(playground.profile()), script)
    assert ["core.hookspath can make git run programs" in text for text in told] == [True]
    assert (hooks / "pre-commit").read_text() == "npm test\nlint\n"
    assert (playground.root / "tool").read_text() == "lint\n"
    assert (playground.root / ".git/config").read_text() == config


async def test_commands_in_the_list_of_a_rebase_are_reported(playground: Any, open_backend: OpenFn) -> None:
    script = (
        "git commit -q --allow-empty -m two; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1 2>/dev/null;"
        " printf ' \\tx\\ttrue\\n' >> .git/rebase-merge/git-rebase-todo"
    )
    _, told, output = await leave(playground, open_backend(playground.profile()), script)
    (text,) = told
    assert "git-rebase-todo': it has commands that git runs when you continue the rebase" in text, output
    assert "\tx\ttrue\n" in (playground.root / ".git/rebase-merge/git-rebase-todo").read_text()


# -- a folder that is not a repository yet ---------------------------------------------------------------------------

UNMADE = {
    "a monitor": ("git init -q; git config core.fsmonitor $EVIL", "git status"),
    "hooks": ("git init -q; cp $EVIL .git/hooks/pre-commit", "git commit -q --allow-empty -m x"),
    "hooks elsewhere": ("git init -q; mkdir h; cp $EVIL h/pre-commit; git config core.hooksPath h", "git commit -qm x"),
    "an include": ('git init -q; git config include.path ../i; echo "[core] fsmonitor = $EVIL" > i', "git status"),
    "a file that leads elsewhere": (
        "git init -q n; git -C n config core.fsmonitor $EVIL; mv n/.git else; rm -rf .git; echo gitdir: else > .git",
        "git status",
    ),
    "a link that leads elsewhere": (
        "git init -q n; git -C n config core.fsmonitor $EVIL; mv n/.git else; rm -rf .git; ln -s else .git",
        "git status",
    ),
    "a repository that is moved there": (
        "git init -q n; git -C n config core.fsmonitor $EVIL; mv n/.git/* .git/ || mv n/.git .git",
        "git status",
    ),
}


@pytest.fixture
def bare_folder(playground: Any) -> Any:
    """The playground, whose folder is not a repository."""
    shutil.rmtree(playground.root)
    playground.root.mkdir()
    furnish(playground)
    return playground


@pytest.mark.parametrize("name", UNMADE)
async def test_a_repository_that_a_command_makes_of_the_folder_runs_nothing(
    name: str, bare_folder: Any, open_backend: OpenFn
) -> None:
    script, typed = UNMADE[name]
    typed = f"export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; {typed}"
    sandbox = open_backend(bare_folder.profile())
    await leave(bare_folder, sandbox, script)
    said = type_(bare_folder, f"{typed}; {typed} --allow-empty")
    assert not (bare_folder.outside / "mark").exists(), said
    shutil.rmtree(bare_folder.root / ".git", ignore_errors=True)
    with open_unconfined(bare_folder.profile()) as unconfined:
        await leave(bare_folder, unconfined, f"rm -rf .git n else h; {script}")
    said = type_(bare_folder, f"{typed}; {typed} --allow-empty")
    assert (bare_folder.outside / "mark").exists(), said


async def test_in_a_vast_tree_the_repository_of_the_folder_is_still_looked_at(
    bare_folder: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_MOST_FOLDERS", 5)
    for number in range(10):
        (bare_folder.root / f"folder{number}").mkdir()
    script = "git init -q; git config core.fsmonitor $EVIL; cp -r .git m; mkdir -p .git/modules; mv m .git/modules/m"
    _, told, _ = await leave(bare_folder, open_backend(bare_folder.profile()), script)
    assert len([text for text in told if "core.fsmonitor can make git run programs" in text]) == 2
    type_(bare_folder, "git status; git --git-dir=.git/modules/m --work-tree=. status")
    assert not (bare_folder.outside / "mark").exists()


async def test_a_folder_becomes_a_repository_and_is_held_from_then_on(bare_folder: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(bare_folder.profile())
    work = "git init -q -b main && git config user.name A && git remote add o https://example.org/x.git && echo x > f"
    code, told, output = await leave(
        bare_folder, sandbox, f"{work} && git add f && git commit -qm x && git log --oneline"
    )
    assert (code, told) == (0, ()), output
    assert type_(bare_folder, "git config user.name; git remote; git status --short f") == "A\no\n"
    code, told, output = await leave(
        bare_folder, sandbox, "echo y > f; git commit -qam y && git branch b && git switch -q b"
    )
    assert (code, told) == (0, ()), output
    before = (bare_folder.root / ".git/config").read_text()
    await leave(
        bare_folder,
        sandbox,
        f"git config core.fsmonitor $EVIL; echo x >> .git/config; {'cp $EVIL .git/hooks/pre-commit'}",
    )
    assert (bare_folder.root / ".git/config").read_text() == before
    assert not (bare_folder.root / ".git/hooks/pre-commit").exists()


async def test_a_folder_that_stays_none_has_nothing_in_it(bare_folder: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(bare_folder.profile())
    for script in ("true", "git init -q; rm -rf .git/* .git", "mkdir -p .git/x; rmdir .git/x"):
        await leave(bare_folder, sandbox, script)
    assert [path.name for path in bare_folder.root.iterdir() if path.name not in ("evil", ".git")] == []
    assert type_(bare_folder, "find . -path './.git/*'") == ""


def test_a_repository_that_an_ended_command_made_does_not_excuse_the_next_one(tmp_path: Path) -> None:
    """A clone brings its editors' folders. A later command does not."""
    watch = leftovers.Leftovers(SandboxProfile(write=(str(tmp_path),)), lambda: ())
    first = watch.begin()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    watch.end(first, is_last=False)
    first.is_over = lambda: True
    second = watch.begin()
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/settings.json").write_text("{}")
    (told,) = watch.end(second)
    assert "It was moved to" in told
