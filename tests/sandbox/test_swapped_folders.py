"""Folders of a profile that another program replaces by links, before and while a command starts."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from swink_agent.sandbox import Sandbox, SandboxError, SandboxProfile

from .conftest import Playground

# Swaps a folder and a link as fast as it can, until it is killed.
SWAP = """
import ctypes, sys
exchange = ctypes.CDLL(None).renameat2
first, second = (path.encode() for path in sys.argv[1:])
print("ready", flush=True)
while True:
    exchange(-100, first, -100, second, 2)
"""
# The interpreter itself: a virtual environment beneath /tmp is out of a command's sight.
PYTHON = os.path.realpath(sys.executable)
OpenFn = Callable[[SandboxProfile], Sandbox]


@asynccontextmanager
async def swapping(open_backend: OpenFn, swapped: Swapped) -> AsyncIterator[None]:
    """Another sandbox, whose command may write the folder that the other one is in."""
    sandbox = open_backend(SandboxProfile(write=(str(swapped.folder.parent),)))
    line = [PYTHON, "-I", "-S", "-c", SWAP, str(swapped.folder), str(swapped.link)]
    process = await sandbox.spawn(line, cwd=str(swapped.folder.parent))
    assert await process.output.readline() == b"ready\n"
    yield
    process.kill()
    sandbox.close()


class Swapped:
    """A folder that a profile names, and a link to be put in its place, to a secret of the home folder."""

    def __init__(self, playground: Playground, secret: str, kind: str) -> None:
        playground.base.joinpath("other").mkdir()
        self.folder, self.link = playground.base / "other/folder", playground.base / "other/link"
        self.folder.mkdir()
        self.secret = playground.home / secret
        self.secret.mkdir(parents=True, exist_ok=True)
        self.secret.joinpath("key").write_text(f"secret {playground.canary}\n")
        self.link.symlink_to(f"../{self.secret.relative_to(playground.base)}")
        root, folder = str(playground.root), str(self.folder)
        self.profile = SandboxProfile(
            write=(root, folder) if kind == "write" else (root,), read=(folder,) if kind == "read" else None
        )
        self.script = f"cat {folder}/* $HOME/{secret}/key; echo x > {folder}/new; echo x > $HOME/{secret}/new"


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("kind", ["write", "read"])
@pytest.mark.parametrize("secret", [".ssh", "documents"])
async def test_a_link_in_place_of_a_folder_opens_nothing(
    playground: Playground, open_backend: OpenFn, kind: str, secret: str
) -> None:
    swapped = Swapped(playground, secret, kind)
    sandbox = open_backend(swapped.profile)
    assert (await playground.run(sandbox, "true")).code == 0
    swapped.folder.rename(swapped.folder.with_name("before"))
    swapped.link.rename(swapped.folder)
    (playground.home / "new").mkdir()  # so that a back end looks at the disk again
    await attempt(playground, sandbox, swapped, secret)


@pytest.mark.parametrize(("kind", "secret"), [("write", "documents"), ("read", ".ssh")])
@pytest.mark.sweep
async def test_no_more_does_one_that_comes_and_goes_while_commands_start(
    playground: Playground, open_backend: OpenFn, kind: str, secret: str
) -> None:
    swapped = Swapped(playground, secret, kind)
    async with swapping(open_backend, swapped):
        for _ in range(4):
            try:
                sandbox = open_backend(swapped.profile)
            except (SandboxError, OSError):
                continue
            await attempt(playground, sandbox, swapped, secret)
            sandbox.close()


async def attempt(playground: Playground, sandbox: Sandbox, swapped: Swapped, secret: str) -> None:
    try:
        outcome = await playground.run(sandbox, swapped.script)
    except (SandboxError, OSError):
        return  # refused
    found = sorted(path.name for path in swapped.secret.iterdir() if path.name == "new")
    # Without `read`, what is not hidden may be read anyway.
    is_secret = secret == ".ssh" or swapped.profile.read is not None
    assert (found, is_secret and playground.canary in outcome.output) == ([], False), outcome


async def test_remains_of_a_command_are_not_looked_for_behind_a_link(
    playground: Playground, open_backend: OpenFn
) -> None:
    """What is moved aside, and what is put in its place, is never in another folder."""
    swapped = Swapped(playground, "project", "write")
    (swapped.folder / ".exrc").write_text("! evil")  # what was there before the command counts as its own
    (swapped.secret / ".exrc").write_text("! theirs")
    sandbox = open_backend(swapped.profile)
    process = await sandbox.spawn(
        ["/bin/sh", "-c", "echo; read line"], cwd=str(playground.root), stdin=(ends := os.pipe())[0]
    )
    await process.output.readline()
    swapped.folder.rename(swapped.folder.with_name("before"))
    swapped.link.rename(swapped.folder)
    os.write(ends[1], b"\n")
    await process.wait()
    process.kill()
    assert sorted(os.listdir(swapped.secret)) == [".exrc", "key"]
    assert (swapped.secret / ".exrc").read_text() == "! theirs"
    for end in ends:
        os.close(end)
