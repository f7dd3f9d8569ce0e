"""Everyday commands still work in the sandbox, with both back ends."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile

OpenFn = Callable[[SandboxProfile], Sandbox]


def read_ordinary() -> dict[str, tuple[str, str]]:
    """The scripts by their headings, and what they write."""
    text = (Path(__file__).parent / "ordinary.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("\n=== ")[1:])
    parts = {heading: rest.partition("\n---\n") for heading, _, rest in blocks}
    return {heading: (script, expected.strip("\n")) for heading, (script, _, expected) in parts.items()}


NEEDS = {"node": "node", "a C program": "gcc", "make": "make"}
ORDINARY = {name: work for name, work in read_ordinary().items() if shutil.which(NEEDS.get(name, "sh"))}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_work_goes_on(name: str, playground: Any, repository: Path, open_backend: OpenFn) -> None:
    script, expected = ORDINARY[name]
    sandbox = open_backend(playground.profile())
    outcome = await playground.run(sandbox, script)
    assert outcome.output.strip("\n") == expected
    assert outcome.code == (7 if name == "an exit code" else 0)
    found = playground.check(outcome)
    if "settings" in name or "module" in name:  # which is what they do
        found = [text for text in found if not re.match(r"changed: \S+/\.git/config(\.worktree)?:", text)]
    assert found == []


async def test_two_megabytes_come_through_whole(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile())
    outcome = await playground.run(sandbox, "head -c 2000000 /dev/zero | tr '\\0' x")
    assert outcome.output == "x" * 2_000_000


async def test_a_setting_that_runs_programs_fails_cleanly_and_leaves_nothing(
    playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile())
    before = sorted(path.name for path in (playground.root / ".git").iterdir())
    outcome = await playground.run(sandbox, "git config core.fsmonitor evil")
    assert outcome.code != 0
    assert "config" in outcome.output
    await playground.run(sandbox, "rm -f .git/config.lock")
    assert sorted(path.name for path in (playground.root / ".git").iterdir()) == before
    assert (await playground.run(sandbox, "git status --short hello.txt; git log --oneline | wc -l")).output == "1\n"


async def test_the_network_is_there_when_it_is_allowed_but_sockets_of_daemons_are_not(
    playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile(network=True))
    outcome = await playground.run(sandbox, "exec 3<>/dev/tcp/127.0.0.1/$TCP && echo reached")
    assert outcome.output == "reached\n"
    tcp = playground.listeners[0]
    tcp.accept()[0].close()
    script = (
        'open_one() { $PY -c "import socket, sys; socket.socket(*map(int, sys.argv[1:]))" $@; };'
        "open_one 10 1 && open_one 16 2 0 && echo families; open_one 1 1; open_one 17 3; open_one 40 1;"
        "for name in $STREAM $INSIDE; do curl -s --unix-socket $name http://x; done; true"
    )
    outcome = await playground.run(sandbox, script)
    assert outcome.output.startswith("families\n")
    assert playground.check(outcome) == []


async def test_everything_may_be_read_and_the_temporary_folder_still_be_written(
    playground: Any, open_backend: OpenFn
) -> None:
    for folders in (("/",), ("/tmp", "/usr"), ("/tmp", "/var/tmp", "/proc")):
        sandbox = open_backend(playground.profile(read=folders))
        script = "f=$(mktemp) && echo x > $f && cat $f; echo y > $OUT/canary; cat ~/.netrc; ls -d /proc/self && echo z"
        outcome = await playground.run(sandbox, script)
        assert [line for line in outcome.output.splitlines() if len(line) == 1] == ["x", "z"]
        assert playground.check(outcome) == []


async def test_only_what_may_be_read_can_be_read(playground: Any, open_backend: OpenFn) -> None:
    (playground.base / "given").mkdir()
    (playground.base / "given/file").write_text("given\n")
    (playground.base / "given/.netrc").write_text(f"{playground.canary}\n")
    hidden = str(playground.base / "given/.netrc")
    sandbox = open_backend(playground.profile(read=(str(playground.base / "given"),), hidden=(hidden,)))
    outcome = await playground.run(
        sandbox,
        f"cat {playground.base}/given/file; cat {hidden} ~/notes.txt $OUT/canary; cat hello.txt; "
        "ls /usr >/dev/null && echo usr; echo x > new && cat new",
    )
    lines = [line for line in outcome.output.splitlines() if not line.startswith("cat:")]
    assert lines == ["given", "hello", "usr", "x"]
    assert playground.check(outcome) == []


# Makers of projects, most of which refuse a folder that is not empty.
MAKERS = {
    "git clone": "git clone -q $SOURCE .",
    "git init": "git init -q && git config user.name A",
    "a maker like npm create": "sh -c '[ -z \"$(ls -A)\" ] && touch package.json'",
    "django-admin": "django-admin startproject site .",
    "uv init": "uv init --offline --quiet .",
}


@pytest.mark.parametrize("name", [name for name, maker in MAKERS.items() if shutil.which(maker.split()[0])])
async def test_a_project_is_made_in_an_empty_folder(name: str, playground: Any, open_backend: OpenFn) -> None:
    root = playground.base / "new"
    root.mkdir()
    playground.variables["SOURCE"] = str(playground.root / "vendor/lib")
    sandbox = open_backend(playground.profile(root=root))
    outcome = await playground.run(sandbox, f"ls -A && {MAKERS[name]}")
    assert (outcome.code, outcome.output) == (0, "")
    assert list(root.iterdir()) != []
    assert list(root.rglob("*.swink-*")) == []
