"""What a command leaves behind does not run later, when the user works in the folder with git or an editor.

Scripts of `leftovers.txt` run in the sandbox, then what the user types, in real bash with real git and no walls. Whether
the program ran is told by the mark that it leaves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile, open_unconfined

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
    """What the user types, in a shell of their own."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(playground.home),
        "EDITOR": "true",
        "GIT_TERMINAL_PROMPT": "0",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", typed],
        cwd=playground.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_what_a_command_leaves_behind_does_not_run(name: str, playground: Any, open_backend: OpenFn) -> None:
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
