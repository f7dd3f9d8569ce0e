"""Changes are attributed to the right one of several commands: a command that has ended is no longer blamed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from swink_agent.sandbox import Sandbox, open_sandbox


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest, playground: Any) -> Iterator[Sandbox]:
    """Opened as a program opens it, with a trial. Python collects no garbage meanwhile."""
    (playground.root / ".git/hooks").mkdir(parents=True, exist_ok=True)
    gc.collect()
    gc.disable()
    try:
        with open_sandbox(playground.profile(), backend=request.param) as opened:
            yield opened
    finally:
        gc.enable()


async def run(sandbox: Sandbox, script: str) -> tuple[str, ...]:
    """Runs a script as the tool does. Returns what is told about it."""
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0])
    await process.wait(look=False)
    process.kill()
    await process.output.read()
    return await process.look_behind()


async def run_without_a_look(sandbox: Sandbox, script: str) -> None:
    """Runs a script as an application may, which does not ask at the end what is left."""
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0])
    await process.wait()
    process.kill()
    await process.output.read()


async def test_a_new_file_is_told_once(sandbox: Sandbox) -> None:
    told = await run(sandbox, "mkdir .cursor; touch .cursor/rules")
    assert len(told) == 1
    assert "/.cursor/rules' is new or changed" in told[0]
    assert [await run(sandbox, script) for script in ("echo 1 > a", "ls", "echo 2 > b")] == [(), (), ()]


async def test_a_new_file_is_told_once_while_another_command_runs(sandbox: Sandbox) -> None:
    server = await sandbox.spawn(["/bin/bash", "-c", "echo up; sleep 60"], cwd=sandbox.profile.write[0])
    assert await server.output.readline() == b"up\n"
    try:
        told = await run(sandbox, "mkdir .cursor; touch .cursor/rules")
        assert len(told) == 1
        assert "/.cursor/rules' is new or changed" in told[0]
        assert await run(sandbox, "echo 1 > a") == ()
        told = await run(sandbox, "touch .cursor/rules")
        assert len(told) == 1, "it has changed once more"
    finally:
        server.kill()
        await server.output.read()
        await server.look_behind()


async def test_changes_by_the_user_between_two_commands_stay(sandbox: Sandbox, playground: Any) -> None:
    await run(sandbox, "echo 1 > a")
    await run_without_a_look(sandbox, "echo 2 > a")
    hook = playground.root / "deep/.git/hooks/pre-commit"
    await run(sandbox, "git init -q deep")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    await asyncio.sleep(0.2)  # what changes in the moment before a command begins counts as its doing
    assert await run(sandbox, "echo 3 > a") == ()
    assert hook.exists()
