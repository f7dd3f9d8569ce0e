"""Background commands of `swink -p`: they are in the stream of events, and end with it."""

from __future__ import annotations

import asyncio
import secrets
import signal
import subprocess
import time
from typing import Any

import pytest

from swink_agent import TaskEnded, TaskStarted, decode_event
from swink_agent.testing import FakeProvider, FakeReply


def lives(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).returncode == 0


async def gone(marker: str) -> None:
    end = time.monotonic() + 30
    while lives(marker):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def command() -> tuple[str, str]:
    number = f"97{secrets.randbelow(10**6):06}"
    return f"sleep {number}", f"echo up; setsid sleep {number} & sleep {number}"


async def test_they_end_with_the_run_and_stand_in_the_stream(swink: Any) -> None:
    swink.confine()
    marker, line = command()
    served = FakeReply(calls=[("bash", {"command": line, "background": True})])
    async with FakeProvider(
        "anthropic", [served, FakeReply(calls=[("bash_output", {"id": "b1"})]), "It runs."]
    ) as provider:
        swink.use(provider)
        done = await swink("-p", "serve", "--approve", "all", "--output", "stream-json")
    assert done.code == 0
    assert provider.rejections == []
    *events, result = done.stdout.splitlines()
    assert '"type":"result"' in result
    tasks = [event for event in map(decode_event, events) if isinstance(event, (TaskStarted, TaskEnded))]
    assert tasks == [TaskStarted("b1", line), TaskEnded("b1", None)]
    assert '"type":"task_ended"' in events[-1]
    await gone(marker)


async def test_a_person_is_notified_of_an_end(swink: Any) -> None:
    swink.confine()
    served = FakeReply(calls=[("bash", {"command": "exit 3", "background": True})])
    waited = FakeReply(calls=[("bash_stop", {"id": "b1"})])
    async with FakeProvider("anthropic", [served, waited, "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "serve", "--approve", "all")
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert "note: the background command b1 ended with exit code 3" in done.stderr or "b1 was stopped" in done.stderr


@pytest.mark.sweep
async def test_nothing_is_left_after_a_kill_or_a_signal(swink: Any) -> None:
    swink.confine()
    for number in (signal.SIGKILL, signal.SIGTERM):
        marker, line = command()
        served = FakeReply(calls=[("bash", {"command": line, "background": True})])
        held = FakeReply(calls=[("bash", {"command": "sleep 300", "timeout": 400})])
        async with FakeProvider("anthropic", [served, held, "never"]) as provider:
            swink.use(provider)
            process = await swink.start("-p", "serve", "--approve", "all")
            end = time.monotonic() + 60
            while not lives(marker):
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
            process.send_signal(number)
            await process.communicate()
            await gone(marker)
