"""Programs that a signal ends: one way to send it at a moment, and what holds of every such end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any


async def ends_cleanly(
    program: Any, number: signal.Signals, at: Awaitable[bytes], *, times: int = 1, code: int = 130
) -> tuple[bytes, bytes]:
    """What the program wrote to stdout since the wait for the moment, and to stderr after it.

    It gets the signal at that moment, as often as told, and ends soon, with this exit code and without a traceback.
    """
    async with asyncio.timeout(40):
        before = await at
        for _ in range(times):
            with suppress(ProcessLookupError):  # `send_signal` would take the exit status of one that has ended
                os.kill(program.pid, number)
            await asyncio.sleep(0.005)  # two that come at once are one
        stdout, stderr = await program.communicate()
    assert program.returncode == code, (program.returncode, stderr)
    assert b"Traceback" not in stderr, stderr
    return before + stdout, stderr


async def shows(program: Any, words: bytes) -> bytes:
    """The moment when a line on stdout has these words; returns all lines up to it."""
    seen = b""
    while words not in seen:
        line = await program.stdout.readline()
        assert line, f"it ended without {words!r}: {seen!r}"
        seen += line
    return seen


async def says(program: Any, words: bytes) -> bytes:
    """The moment when a line on stderr has these words."""
    while words not in (line := await program.stderr.readline()):
        assert line, f"it ended without {words!r}"
    return b""


async def writes(path: Path) -> bytes:
    """The moment when a file has any content. Files have no events that every system shares, so it looks."""
    while not path.exists() or not path.read_bytes():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)
    return b""
