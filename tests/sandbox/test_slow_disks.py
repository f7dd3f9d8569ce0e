"""A disk that does not answer delays only the command that uses it; a timeout ends that command within a second."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ToolContext, extract_text
from swink_agent.sandbox import Sandbox, SandboxProfile
from swink_agent.tools import BashTool

OpenFn = Callable[[SandboxProfile], Sandbox]

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="mounting needs root"),
]

_INIT = struct.Struct("=IIIIHHIHHI32x")  # major, minor, readahead, flags, background, congestion, write, time, pages


@pytest.fixture
def slow(playground: Any) -> Iterator[Path]:
    """A mounted folder that never answers."""
    libc = ctypes.CDLL(None, use_errno=True)
    point = playground.base / "slow"
    point.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    assert libc.mount(b"slow", os.fsencode(point), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
    try:
        asked = os.read(device, 1 << 17)
        unique = struct.unpack_from("=Q", asked, 8)[0]
        answer = _INIT.pack(7, 31, 0, 0, 1, 1, 4096, 1, 1, 0)
        os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
        yield point
    finally:
        os.close(device)  # waiting processes get an error: the connection has ended
        libc.umount2(os.fsencode(point), 2)


@pytest.fixture
def deaf(slow: Path) -> Iterator[Path]:
    """The same, but a process that asks it waits for an answer that is on its way: no signal ends that wait."""
    (device,) = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}") and os.readlink(f"/proc/self/fd/{name}") == "/dev/fuse"
    ]
    done = threading.Event()

    def take_requests() -> None:
        while not done.is_set():
            if select.select([device], [], [], 0.05)[0]:
                os.read(device, 1 << 17)

    thread = threading.Thread(target=take_requests)
    thread.start()
    yield slow
    done.set()
    thread.join()


WITHOUT_FIRST_THREAD = """$PY -c 'if True:
    import ctypes, os, sys, threading, time
    threading.Thread(target=os.stat, args=sys.argv[1:]).start()
    time.sleep(0.05)
    ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)' {slow}/x"""


@pytest.mark.parametrize("script", ["cat {slow}/x", "setsid cat {slow}/x & sleep 60", WITHOUT_FIRST_THREAD])
async def test_a_process_that_no_signal_ends_is_reported_and_delays_nobody(
    script: str, deaf: Path, playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile())
    command = script.replace("$PY", playground.variables["PY"]).replace("{slow}", str(deaf))
    tool = BashTool(playground.root, sandbox)
    result = await tool.execute({"command": command, "timeout": 0.5}, ToolContext())
    assert "was told to end, but something of it is still held by the system" in extract_text(result.content)
    process = await sandbox.spawn(["/bin/bash", "-c", f"echo begun; {command}"], cwd=str(playground.root))
    assert await process.output.readline() == b"begun\n"
    await asyncio.sleep(0.3)  # there is nothing to see of its way to the disk
    process.kill()
    async with asyncio.timeout(60):
        assert await process.wait() == -9
        assert process.left_behind
        assert await process.output.read() == b""
        assert (await playground.run(sandbox, "echo x > new; cat new")).output == "x\n"
    started = time.monotonic()
    sandbox.close()
    assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    "script", ["cat {slow}/file", "touch {slow}/file", "chmod 600 {slow}/x", "ls {slow}", "mv hello.txt {slow}/there"]
)
async def test_a_command_that_waits_for_a_disk_ends_in_time(
    script: str, slow: Path, playground: Any, open_backend: OpenFn
) -> None:
    sandbox = open_backend(playground.profile())
    tool = BashTool(playground.root, sandbox)
    text = script.format(slow=slow)
    started = time.monotonic()
    result = await tool.execute({"command": f"echo begun; {text} & {text}", "timeout": 0.5}, ToolContext())
    assert time.monotonic() - started < 5
    said = extract_text(result.content)
    assert said.startswith("begun\n[timed out after 0.5 s and was ")
    if "ended with everything" in said:
        assert not still_running(str(slow))
    other = await playground.run(sandbox, "echo x > new; cat new")  # and others are served as ever
    assert other.output == "x\n"


async def test_one_in_the_folder_that_is_worked_in_holds_up_nobody_else(
    slow: Path, playground: Any, open_backend: OpenFn
) -> None:
    async with asyncio.timeout(60):
        sandbox = open_backend(SandboxProfile(write=(str(playground.base),)))
        process = await sandbox.spawn(["/bin/bash", "-c", "echo x > new; cat new"], cwd=str(playground.base))
        assert await process.wait() == 0
        assert await process.output.read() == b"x\n"


async def test_a_held_lease_delays_the_command_and_nobody_else(
    playground: Any, open_backend: OpenFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that breaks it is kept waiting by the kernel, up to three quarters of a minute."""
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    sandbox = open_backend(playground.profile())
    file = os.open(playground.root / "hello.txt", os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    try:
        tool = BashTool(playground.root, sandbox)
        for script in ("echo x > hello.txt", "truncate -s 1 hello.txt"):
            started = time.monotonic()
            await tool.execute(
                {"command": f"{script} & echo y > other; cat other; wait", "timeout": 0.4}, ToolContext()
            )
            assert time.monotonic() - started < 5
            assert (await playground.run(sandbox, "cat other")).output == "y\n"
    finally:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(file)
        signal.signal(signal.SIGIO, old)


async def test_a_timeout_that_is_true_is_said_so(playground: Any, open_backend: OpenFn) -> None:
    tool = BashTool(playground.root, open_backend(playground.profile()))
    result = await tool.execute({"command": "trap '' TERM; setsid sleep 77 & sleep 77", "timeout": 0.3}, ToolContext())
    assert "ended with everything that it started" in extract_text(result.content)
    await asyncio.sleep(0)
    assert not still_running("77")


def still_running(word: str) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if any(word.encode() == part or part.startswith(word.encode() + b"/") for part in line) and state != b"Z":
                found.append(f"{entry.name} {line}")
    return found
