"""Memory and disk limits of a command: when it is ended, and when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from swink_agent.sandbox.kernel.usage import Usage, memory_of_machine, offer_to_the_kernel

MIB = 1024**2
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="this system has no /proc")
# Takes 150 MiB, then starts so many children that share it.
TAKES = """
import os, sys
held = bytearray(os.urandom(1 << 20) * 150)
for _ in range(int(sys.argv[1])):
    if not os.fork():
        sys.stdin.read()
        os._exit(0)
print("x", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[0, 3], ids=["alone", "shared with three others"])
def holder(request: pytest.FixtureRequest) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", TAKES, str(request.param)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def reason_within(seconds: float, usage: Usage) -> str:
    asked = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if reason := usage.reason_to_end():
            return reason
        asked.wait(0.02)
    return ""


@pytest.mark.rows(one_of=10)
@needs_proc
def test_memory_is_counted_once_however_many_share_it(holder: int) -> None:
    assert reason_within(0.3, Usage(holder, memory=400 * MIB, disk=None)) == ""
    assert reason_within(10, Usage(holder, memory=100 * MIB, disk=None)) == "it used more than 100 MiB of memory"
    assert reason_within(0.1, Usage(holder, memory=None, disk=None)) == ""


def test_a_disk_that_gets_full_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, files = 10 * 1024 * MIB, 1_000_000
    monkeypatch.setattr(
        "swink_agent.sandbox.kernel.usage.os.statvfs",
        lambda _: SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=1, f_files=2_000_000, f_favail=files),
    )
    usage = Usage(os.getpid(), memory=None, disk=1024 * MIB, folders=[str(tmp_path), str(tmp_path), "/no/such"])
    assert reason_within(0.3, usage) == ""
    free = 1023 * MIB
    assert reason_within(10, usage) == f"less than 1 GiB was left on the disk of {tmp_path}"
    begun_when_it_was_full = Usage(os.getpid(), memory=None, disk=1024 * MIB, folders=[str(tmp_path)])
    assert reason_within(0.3, begun_when_it_was_full) == ""
    free = 500 * MIB
    assert reason_within(10, begun_when_it_was_full).startswith("less than 512 MiB was left")
    full_of_files = Usage(os.getpid(), memory=None, disk=1024 * MIB, folders=[str(tmp_path)])
    files = 9_999
    assert reason_within(10, full_of_files) == f"fewer than 10,000 more files fit on the disk of {tmp_path}"
    begun_when_it_had_many = Usage(os.getpid(), memory=None, disk=1024 * MIB, folders=[str(tmp_path)])
    assert reason_within(0.3, begun_when_it_had_many) == ""
    files = 4_000
    assert reason_within(10, begun_when_it_had_many).startswith("fewer than 4,999 more files fit")


@needs_proc
def test_the_kernel_is_offered_a_command_first() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        offer_to_the_kernel(process.pid)
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "500\n"
        process.kill()
    offer_to_the_kernel(process.pid)  # that it has ended is no error


def test_the_machine_has_some_memory() -> None:
    assert (memory_of_machine() or 0) > 64 * MIB
