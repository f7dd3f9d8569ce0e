"""Every way to run a command, and a check for leftover processes, for tests that hold for all back ends."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

from swink_agent.sandbox import Sandbox, SandboxProfile, open_sandbox, open_unconfined

ALL = ("bubblewrap", "landlock", "off")


def open_any(name: str, profile: SandboxProfile) -> Sandbox:
    return open_unconfined(profile) if name == "off" else open_sandbox(profile, backend=name)


async def run(sandbox: Sandbox, script: str, **more: Any) -> tuple[int, bytes]:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0], **more)
    reading = asyncio.ensure_future(process.output.read())
    code = await process.wait()
    process.kill()
    return code, await reading


def lives(marker: str) -> bool:
    return count(marker) > 0


def count(marker: str) -> int:
    return int(subprocess.run(["pgrep", "-fc", marker], capture_output=True, check=False).stdout)


async def gone(marker: str, within: float = 30.0) -> bool:
    end = time.monotonic() + within
    while is_there := lives(marker):
        await asyncio.sleep(0.01)
        if time.monotonic() > end:
            break
    return not is_there
