"""Escape attempts, each run for real against both back ends, with the outcome read from the machine.

A script of `escapes.txt` does what a hostile model would. Its output is not trusted: afterwards the playground checks
what must not have changed (a world outside, a home, everything protected), listeners, processes, and the output for
secrets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, SandboxProfile, open_unconfined
from swink_agent.sandbox.bubblewrap.backend import BubblewrapSandbox

OpenFn = Callable[[SandboxProfile], Sandbox]

PRELUDE = """
yes() { echo "$GOT$OUT_"; }
call() { $PY -c "
import ctypes, errno, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == 'aarch64'
def syscall(x86, aarch64, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(aarch64 if arm else x86), *arguments)
    return result, ctypes.get_errno()
def long(value): return ctypes.c_long(value)
def yes(): print(os.environ['GOT'] + os.environ['OUT_'], flush=True)
out, agent, victim = os.environ['OUT'], int(os.environ['AGENT']), int(os.environ['VICTIM'])
$1"; }
"""


def read_attempts() -> dict[str, str]:
    """The scripts by their headings; a heading ends in an asterisk if the attempt succeeds without a sandbox."""
    text = (Path(__file__).parent / "escapes.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("\n=== ")[1:])
    return {heading: f"{PRELUDE}\n{script}\ntrue" for heading, _, script in blocks}


EVERYTHING = read_attempts()
ATTEMPTS = {name.removesuffix(" *"): script for name, script in EVERYTHING.items() if not name.startswith("home:")}
AT_HOME = {name: script for name, script in EVERYTHING.items() if name.startswith("home:")}
SUCCEED_WITHOUT_WALLS = [name.removesuffix(" *") for name in EVERYTHING if name.endswith(" *")]


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 140
    assert len(SUCCEED_WITHOUT_WALLS) >= 80


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ATTEMPTS)
async def test_no_attempt_gets_out(name: str, arena: Any) -> None:
    outcome, found = await arena.attempt(ATTEMPTS[name])
    assert found == [], outcome.output
    assert outcome.code in (0, -9), outcome.output


# These wait for their own first write, which never succeeds.
ENDLESS = {"repository: the configuration by its lock, under names that change meanwhile"}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", [name for name in ATTEMPTS if name not in ENDLESS])
async def test_no_attempt_gets_out_of_a_sandbox_that_can_only_read(name: str, reading_arena: Any) -> None:
    outcome, found = await reading_arena.attempt(ATTEMPTS[name])
    assert found == [], outcome.output
    assert outcome.code in (0, -9), outcome.output


@pytest.mark.sweep
@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", ATTEMPTS)
async def test_no_attempt_gets_out_from_the_network_of_a_background_command(name: str, playground: Any) -> None:
    """Only bubblewrap starts such a command in another way."""
    with BubblewrapSandbox(playground.profile()) as sandbox:
        beside = await sandbox.spawn(["/bin/sleep", "1000"], cwd=str(playground.root), background=True)
        outcome = await playground.run(sandbox, ATTEMPTS[name])
        beside.kill()
        await beside.wait()
        assert playground.check(outcome) == [], outcome.output
        assert outcome.code in (0, -9), outcome.output


@pytest.mark.sweep
@pytest.mark.parametrize("name", SUCCEED_WITHOUT_WALLS)
async def test_without_walls_the_same_attempt_succeeds(name: str, playground: Any) -> None:
    """Else it would prove nothing that it fails."""
    with open_unconfined(playground.profile()) as sandbox:
        outcome = await playground.run(sandbox, ATTEMPTS[name])
    assert playground.check(outcome) != [], outcome.output


@pytest.mark.sweep
@pytest.mark.parametrize("name", AT_HOME)
async def test_a_home_that_can_be_written_keeps_its_secrets_and_start_files(
    name: str, playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile(root=playground.home))
    for script in (AT_HOME[name], AT_HOME[name], AT_HOME["home: secrets of the second command"]):
        outcome = await playground.run(sandbox, script)
        assert playground.canary not in outcome.output
    changed = [line for line in playground.check(outcome) if "-> None" in line or "None ->" not in line]
    assert changed == []
    new = {path.name for path in playground.home.iterdir()} - {Path(path).name for path in playground.before}
    assert not new & {".bash_profile", ".zshrc", ".zshenv", ".bash_aliases", ".inputrc", ".kube", ".docker"}
    assert not new & {".vim", ".emacs", ".emacs.d", ".exrc", ".xsessionrc", ".forward", ".direnvrc", ".lessfilter"}
    for name in ("autostart", "nvim", "helix", "sway", "environment.d", "direnv", "starship.toml"):
        assert not (playground.home / ".config" / name).exists()
    assert not (playground.home / ".local/bin").exists()


async def test_a_home_that_can_be_written_can_be_worked_in(playground: Any, open_backend: OpenFn) -> None:
    sandbox = open_backend(playground.profile(root=playground.home))
    outcome = await playground.run(sandbox, "echo more >> notes.txt; mkdir -p work; echo x > work/file; cat notes.txt")
    assert outcome.output == "# as it was\nmore\n"
    assert (playground.home / "work/file").read_text() == "x\n"
