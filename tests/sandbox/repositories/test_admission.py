"""Commands change the harmless settings of a read-only repository configuration through git, and nothing else of it.

The attacks are in `escapes.txt` ("by its lock") and in `test_leftovers.py`, the ordinary work in `ordinary.txt`. This
file tests what is reported, what a concurrent reader sees, and the comparison itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile
from swink_agent.sandbox.bubblewrap import renames
from swink_agent.sandbox.repositories.admission import Refused, compare, led_elsewhere

OpenFn = Callable[[SandboxProfile], Sandbox]


async def told(playground: Any, sandbox: Sandbox, script: str) -> tuple[int, tuple[str, ...]]:
    process = await sandbox.spawn(
        ["/bin/bash", "-c", script], cwd=str(playground.root), environment={"HOME": str(playground.home)}
    )
    code = await process.wait()
    process.kill()
    await process.output.read()
    return code, await process.look_behind()


async def test_refused_changes_are_reported_to_model_and_user(
    playground: Any, open_backend: OpenFn, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = open_backend(playground.profile())
    code, said = await told(playground, sandbox, "git config user.name A; git config core.fsmonitor evil")
    path = playground.root / ".git/config"
    assert code != 0
    assert said == (f"'{path}' was not changed: core.fsmonitor can make git run programs, or look elsewhere for them",)
    assert [record.getMessage() for record in caplog.records] == list(said)
    assert "name = A" in path.read_text()


async def test_where_pushes_go_is_told_when_it_changes_and_not_when_it_is_new(
    playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile())
    added = "git remote add o https://example.org/x && git config branch.main.remote o"
    assert await told(playground, sandbox, added) == (0, ())
    changed = "git remote set-url --push o https://token@elsewhere.example/x; git config branch.main.remote p"
    code, (said,) = await told(playground, sandbox, changed)
    assert code == 0
    assert "remote.o.pushurl, branch.main.remote changed" in said
    assert "token" not in said


@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.sweep)])
async def test_dangerous_files_never_exist_for_a_moment(playground: Any, open_backend: OpenFn, rounds: int) -> None:
    """A process that reads the configuration during a change sees the old content or the accepted one, perhaps cut off
    where the file system was writing, and never what was refused."""
    path = playground.root / ".git/config"
    plain = path.read_text()
    longer = f"{plain}[user]\n\tname = {'long ' * 30}\n"
    seen: set[str] = set()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.add(path.read_text().rstrip("\n"))

    (playground.root / "plain").write_text(plain)
    (playground.root / "longer").write_text(longer)
    (playground.root / "evil").write_text(f"{longer}[core]\n\tfsmonitor = evil\n")
    script = (
        f"for i in $(seq {rounds}); do for f in plain evil longer evil; do"
        " cp $f .git/config.lock; mv -f .git/config.lock .git/config; done; done 2>/dev/null; true"
    )
    reader = threading.Thread(target=read)
    reader.start()
    try:
        await told(playground, open_backend(playground.profile()), script)
    finally:
        is_over.set()
        reader.join()
    seen.add(path.read_text().rstrip("\n"))  # a busy machine may keep the reader from looking once more
    assert seen >= {plain.rstrip("\n"), longer.rstrip("\n")}
    assert all(longer.startswith(text) and text.startswith(plain.rstrip("\n")) for text in seen)


async def test_a_configuration_with_a_second_name_stays_as_it_is(playground: Any, open_backend: OpenFn) -> None:
    """It is written in place, so the other name, perhaps a copy of a backup, would change with it."""
    path = playground.root / ".git/config"
    os.link(path, playground.outside / "backup")
    before = path.read_text()
    code, _ = await told(playground, open_backend(playground.profile()), "git config user.name A")
    assert code != 0
    assert path.read_text() == (playground.outside / "backup").read_text() == before


async def test_a_file_that_is_only_called_like_that_stays_as_it_is(playground: Any, open_backend: OpenFn) -> None:
    (playground.root / "deploy").mkdir()
    (playground.root / "deploy/config").write_text("[user]\n\tname = a\n")
    sandbox = open_backend(playground.profile(protected=(".git/config", "deploy/config")))
    script = "printf '[user]\\n\\tname = b\\n' > deploy/config.lock; mv -f deploy/config.lock deploy/config"
    code, _ = await told(playground, sandbox, script)
    assert code != 0
    assert (playground.root / "deploy/config").read_text() == "[user]\n\tname = a\n"


@pytest.mark.bubblewrap
async def test_where_nobody_can_be_asked_the_configuration_is_held(
    playground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent.sandbox.bubblewrap.backend import BubblewrapSandbox

    def fail(program: bytes) -> int:
        raise OSError(16, "a listener is in place")

    monkeypatch.setattr(renames.kernel, "install_listener", fail)
    before = (playground.root / ".git/config").read_text()
    with BubblewrapSandbox(playground.profile()) as sandbox:
        code, said = await told(playground, sandbox, "git config user.name A")
    assert (code != 0, said) == (True, ())
    assert (playground.root / ".git/config").read_text() == before


# -- the comparison --------------------------------------------------------------------------------------------------

OLD = '[core]\n\tbare = false\n[alias]\n\tx = !run\n[user]\n\tname = "A; B"\n[include]\n\tpath = ~/more\n'


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "new",
    [
        OLD,
        f'{OLD}[branch "a\\"b"]\n\tremote = origin\n\tmerge = refs/heads/a\n',
        OLD.replace('name = "A; B"', 'name = "C # \\"D\\""'),
        OLD.replace('[user]\n\tname = "A; B"\n', ""),
        f"# a word\n{OLD}",
        f'{OLD}[remote "o"]\n\turl = C:/x/y\n\turl = ../x\n\turl = git@example.org:x/y.git\n\turl = ssh://a@b/c\n',
    ],
)
def test_harmless_changes_are_admitted(new: str) -> None:
    compare(OLD, new)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "new",
    [
        "",
        OLD.replace("!run", "!other"),
        OLD.replace("[alias]\n\tx = !run\n", ""),
        OLD.replace("bare = false", "bare = true"),
        OLD.replace("\tbare = false\n", ""),
        f"{OLD}[alias]\n\tx = !run\n",
        f"{OLD}[include]\n\tpath = ~/more\n",
        "[include]\n\tpath = ~/more\n" + OLD.replace("[include]\n\tpath = ~/more\n", ""),
        f"{OLD}[user]\r\n\tname = x\r\n",
        f"{OLD}[user]\n\tname = x \\\n y\n",
        f"{OLD}[user]\n\tname = \x1b[0m\n",
        f"{OLD}[user\n",
        f"{OLD}[core]\n\tworktree = .\n",
        f'{OLD}[remote "o"]\n\turl = made-up://x\n',
        f'{OLD}[remote "o"]\n\turl = ssh://-oProxyCommand=x/y\n',
        f'{OLD}[remote "o"]\n\turl = --upload-pack=x\n',
        f"{OLD}[core]\n\tsharedRepository = 0666\n",
        f"{OLD}[extensions]\n\tpartialClone = o\n",
        f"{OLD}[extensions]\n\trefStorage = reftable\n",
        f"{OLD}[core]\n\tignoreCase = true\n",
    ],
)
def test_dangerous_changes_are_refused(new: str) -> None:
    with pytest.raises(Refused):
        compare(OLD, new)


def test_every_setting_that_git_knows_and_is_not_listed_is_refused() -> None:
    """Those that git names itself; what it learns next is refused as well."""
    done = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=False)
    names = [line.strip() for line in done.stdout.splitlines() if "." in line and " " not in line.strip()]
    taken: set[str] = set()
    for name in names:
        section, _, rest = name.partition(".")
        subsection, _, key = rest.rpartition(".")
        heading = f'[{section} "x"]' if subsection else f"[{section}]"
        try:
            compare("", f"{heading}\n\t{key} = !evil\n")
        except Refused:
            continue
        taken.add(name.lower())
    assert len(names) > 300
    runs = re.compile(r"command|cmd|program|helper|pager|editor|hook|driver|filter|textconv|path|tool")
    odd = {name for name in taken if runs.search(name) and not name.startswith(("advice.", "color."))}
    known = {"core.quotepath", "remote.<name>.partialclonefilter", "uploadpack.allowfilter", "submodule.<name>.path"}
    assert odd <= {*known, "rebase.abbreviatecommands"}


def test_where_something_leads_is_named_without_its_value(tmp_path: Path) -> None:
    old = '[remote "o"]\n\turl = https://a\n[branch "m"]\n\tremote = o\n'
    assert led_elsewhere(old, f'{old}[remote "p"]\n\turl = https://b\n[branch "n"]\n\tremote = p\n') == ""
    assert led_elsewhere(old, old.replace("https://a", "https://b")) == "remote.o.url"
    assert led_elsewhere(old, f'{old}[remote "o"]\n\tmirror = true\n') == "remote.o.mirror"
    assert led_elsewhere(old, old.replace("remote = o", "remote = p")) == "branch.m.remote"
