"""No secret is on a command line, which every user of the machine can read: the starts themselves, with canaries."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from swink_agent.app.agent.own_program import OwnProgram
from swink_agent.app.browser import leading_page, open_in_browser
from swink_agent.evals.scoring.matching import _found_elsewhere
from swink_agent.mcp import McpError, McpServer
from swink_agent.sandbox import SandboxError, SandboxProfile, open_sandbox
from swink_agent.tui.clipboard import copy_beside

CANARY = "canary-aB3xyz12kk9"
_listening: list[list[list[str]]] = []
"""The lists that get the command lines of this process's children."""


@cache
def _listen() -> None:
    def hear(event: str, given: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            for heard in _listening:
                heard.append([str(word) for word in given[1]])

    sys.addaudithook(hear)  # it cannot be removed


@pytest.fixture
def started() -> Iterator[list[list[str]]]:
    """The command lines of the children that the test starts."""
    _listen()
    heard: list[list[str]] = []
    _listening.append(heard)
    yield heard
    _listening.remove(heard)


def program(folder: Path, name: str) -> Path:
    made = folder / name
    made.write_text("#!/bin/sh\ncat > /dev/null\n")
    made.chmod(0o755)
    return made


def test_own_programs_get_secrets_by_their_input(tmp_path: Path, started: list[list[str]]) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("xdg-open", "wl-copy", "pbcopy", "open"):
        program(programs, name)
    environ = {"PATH": f"{programs}:/usr/bin:/bin", "WAYLAND_DISPLAY": "w", "A_TOKEN": CANARY}
    with leading_page(f"http://127.0.0.1:1/?code={CANARY}", tmp_path, "web-1") as page:
        open_in_browser(page.as_uri(), environ, [])
    copying = copy_beside(CANARY, environ, [])
    assert copying is not None
    copying.join(20)
    hook = OwnProgram([str(program(programs, "hook"))], timeout=20, outside=tuple, environ=environ)
    hook.run(CANARY.encode())
    assert _found_elsewhere(CANARY, f"a {CANARY}")
    assert len(started) == 4
    assert CANARY not in str(started)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "sandbox-exec"])
async def test_commands_get_secrets_by_their_variables(tmp_path: Path, backend: Any, started: list[list[str]]) -> None:
    profile = SandboxProfile(write=(str(tmp_path),), environment={"ONE": CANARY}, hosts=("example.org",))
    try:
        sandbox = open_sandbox(profile, backend=backend)
    except (SandboxError, ValueError) as error:
        pytest.skip(f"this back end does not work here: {error}")
    with sandbox:
        process = await sandbox.spawn(["/bin/sh", "-c", "true"], cwd=str(tmp_path), environment={"TWO": CANARY})
        await asyncio.wait_for(process.wait(), 30)
    assert started
    assert CANARY not in str(started)


async def test_servers_of_tools_get_secrets_by_their_variables(tmp_path: Path, started: list[list[str]]) -> None:
    server = McpServer.stdio("/bin/false", cwd=str(tmp_path), env={"TOKEN": CANARY}, sandbox="off", name="ends")
    with pytest.raises(McpError):  # what counts is how it was started
        async with server:
            pass
    assert started
    assert CANARY not in str(started)
