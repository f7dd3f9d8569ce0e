"""The lifetime of a sandbox: forks of its program, closing it while commands start, and open pipes.

Tested with every back end of this system and with the one that does not confine.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import ProcessLimits, Sandbox, SandboxClosed, SandboxProfile
from tests.sandbox.back_ends import gone, lives, open_any, run

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def in_a_fork(what: Callable[[], object], *, and_then: Callable[[], object] = lambda: None) -> bytes:
    """What the function said or raised in a fork of this process; `and_then` is done here while the fork lives."""
    said, say = os.pipe()
    go_on, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(let_go)
            try:
                result = repr(what())
            except BaseException as error:
                result = f"{type(error).__name__}: {error}"
            os.write(say, result.encode()[:4000])
            os.close(say)
            os.read(go_on, 1)
        finally:
            os._exit(0)
    os.close(say)
    os.close(go_on)
    try:
        with os.fdopen(said, "rb") as pipe:
            text = pipe.read()
        and_then()
        return text
    finally:
        os.close(let_go)
        os.waitpid(pid, 0)


# -- forks of the program ----------------------------------------------------------------------------------------


async def test_a_fork_of_the_program_that_closes_the_sandbox_closes_nothing_of_ours(sandbox: Sandbox) -> None:
    marker = f"96{os.getpid()}1"
    process = await sandbox.spawn(["/bin/bash", "-c", f"echo ready; sleep {marker}"], cwd=sandbox.profile.write[0])
    assert await process.output.readline() == b"ready\n"
    assert in_a_fork(sandbox.close) == b"None"
    assert lives(marker)
    assert await run(sandbox, "echo kept > $TMPDIR/file && cat $TMPDIR/file") == (0, b"kept\n")
    process.kill()
    assert await process.wait() == -9


FORKED = """
import asyncio, os, sys
from tests.sandbox.back_ends import open_any, run
from swink_agent.sandbox import SandboxProfile
sandbox = open_any(sys.argv[1], SandboxProfile(write=(sys.argv[2],)))
asyncio.run(run(sandbox, "echo kept > $TMPDIR/file"))
pid = os.fork()
if not pid:
    sys.exit(0)
os.waitpid(pid, 0)
print(asyncio.run(run(sandbox, "cat $TMPDIR/file")))
"""


@pytest.mark.rows(one_of=10)
def test_a_fork_of_the_program_that_ends_takes_nothing_along(name: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FORKED, name, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.stdout == "(0, b'kept\\n')\n", told.stderr


def test_a_fork_that_lives_on_does_not_hold_up_the_end(name: str, tmp_path: Path) -> None:
    sandbox = open_any(name, SandboxProfile(write=(str(tmp_path),)))
    assert asyncio.run(run(sandbox, "echo first")) == (0, b"first\n")
    took: list[float] = []

    def close() -> None:
        started = time.monotonic()
        sandbox.close()
        took.append(time.monotonic() - started)

    in_a_fork(lambda: None, and_then=close)
    assert took[0] < 6


async def test_in_a_fork_nothing_is_started_that_nobody_would_watch(name: str, tmp_path: Path) -> None:
    """Its threads are not there, so neither limits nor looks at what was left would be."""
    profile = SandboxProfile(write=(str(tmp_path),), limits=ProcessLimits(processes=10))

    def start(sandbox: Sandbox) -> object:
        starting = sandbox.spawn(["/bin/true"], cwd=str(tmp_path))
        try:
            return starting.send(None)
        finally:
            starting.close()

    with open_any(name, profile) as sandbox:
        process = await sandbox.spawn(["/bin/sleep", "30"], cwd=str(tmp_path))
        said = in_a_fork(lambda: start(sandbox))
        assert said.startswith(b"SandboxError: this process is a fork"), said
        process.kill()
        await process.wait()
        assert await run(sandbox, "echo here") == (0, b"here\n")


# -- its end -----------------------------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.02])
async def test_closing_while_a_command_starts_ends_both(name: str, tmp_path: Path, delay: float) -> None:
    marker = f"96{os.getpid()}2"
    sandbox = open_any(name, SandboxProfile(write=(str(tmp_path),)))
    starting = asyncio.ensure_future(sandbox.spawn(["/bin/sleep", marker], cwd=str(tmp_path)))
    await asyncio.sleep(delay)
    sandbox.close()
    async with asyncio.timeout(60):
        try:
            process = await starting
        except SandboxClosed:
            pass
        else:
            assert await process.wait() == -9
            assert await process.output.read() == b""
    assert await gone(marker)


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.03])
async def test_closing_in_another_thread_is_told_to_whoever_waits(name: str, tmp_path: Path, delay: float) -> None:
    marker = f"96{os.getpid()}3"
    sandbox = open_any(name, SandboxProfile(write=(str(tmp_path),)))
    closing = threading.Timer(delay, sandbox.close)
    closing.start()

    async def start_again_and_again() -> None:
        while True:
            process = await sandbox.spawn(["/bin/sleep", marker], cwd=str(tmp_path))
            assert await process.wait() == -9
            assert await process.output.read() == b""

    with pytest.raises(SandboxClosed):
        await asyncio.wait_for(start_again_and_again(), 20)
    await asyncio.to_thread(closing.join)
    assert await gone(marker)


LEFT_OPEN = """
import asyncio, sys
from tests.sandbox.back_ends import open_any
from swink_agent.sandbox import SandboxProfile
sandbox = open_any(sys.argv[1], SandboxProfile(write=(sys.argv[2],)))
script = f"echo ready; for ((i = 0;; i++)); do mkdir -p $TMPDIR/{sys.argv[3]}/$i; done"
async def main():
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sys.argv[2])
    await process.output.readline()
asyncio.run(main())
print(sandbox._private._folder)
"""


def test_a_program_that_ends_without_closing_it_leaves_neither_command_nor_folder(name: str, tmp_path: Path) -> None:
    marker = f"96{os.getpid()}4"
    started = time.monotonic()
    told = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, name, str(tmp_path), marker], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - started < 15
    assert told.stderr == ""
    assert asyncio.run(gone(marker))
    assert not os.path.exists(told.stdout.strip())


# -- its output --------------------------------------------------------------------------------------------------


async def test_output_ends_with_the_command_whoever_holds_the_pipe(sandbox: Sandbox) -> None:
    """What was written until then is all there."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        script = f"""import os, socket
socket.send_fds(socket.socket(fileno={theirs.fileno()}), [b"x"], [1])
os.write(1, b"y" * 60_000)"""
        argv = ["/usr/bin/env", "python3", "-I", "-S", "-c", script]
        process = await sandbox.spawn(argv, cwd=sandbox.profile.write[0], pass_fds=(theirs.fileno(),))
        _, (held,), _, _ = socket.recv_fds(ours, 1, 1)
        try:
            assert await process.wait() == 0
            async with asyncio.timeout(60):
                assert await process.output.read() == b"y" * 60_000
            with pytest.raises(BrokenPipeError):
                os.write(held, b"z")
        finally:
            os.close(held)


async def test_a_fork_of_the_program_does_not_keep_output_open(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "echo begun; sleep 0.3; echo over"], cwd=sandbox.profile.write[0])
    assert await process.output.readline() == b"begun\n"
    ends = threading.Event()
    thread = threading.Thread(target=in_a_fork, args=(int,), kwargs={"and_then": ends.wait})
    thread.start()
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == 0
            assert await process.output.read() == b"over\n"
    finally:
        ends.set()
        await asyncio.to_thread(thread.join)


# -- what it is asked for ----------------------------------------------------------------------------------------


NO_COMMAND_LINES: list[tuple[Any, str]] = [
    ("ls", "a list of words, not one text"),
    (b"ls", "a list of words, not one text"),
    (None, "a list of words"),
    ({"ls": 1}, "a list of words"),
    ([], "at least a program"),
    ([""], "at least a program"),
    (["ls", 1], "argument 1 is of type int"),
    ([b"ls"], "argument 0 is of type bytes"),
    (["ls", "a\0b"], "argument 1 contains a NUL character"),
    (["ls", "\ud800"], "argument 1 contains half of a character"),
]
NOT_POSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"cwd": 5}, "cwd is of type int"),
    ({"cwd": "a\0b"}, "cwd contains a NUL"),
    ({"environment": {"A": 1}}, "variable 'A' is of type int"),
    ({"environment": {"A=B": "x"}}, "not the name of a variable"),
    ({"environment": {"A": "a\0b"}}, "variable 'A' contains a NUL"),
    ({"stdin": -5}, "stdin is a descriptor"),
    ({"stdin": 9999}, "9999 is not an open descriptor"),
    ({"stderr": -1}, "stderr is a descriptor or None"),
    ({"pass_fds": (9999,)}, "9999 is not an open descriptor"),
    ({"pass_fds": "3"}, "numbers of descriptors"),
]


async def test_impossible_requests_are_refused_with_the_reason(sandbox: Sandbox) -> None:
    cases = [*(({"argv": argv}, problem) for argv, problem in NO_COMMAND_LINES), *NOT_POSSIBLE]
    for given, problem in cases:
        with pytest.raises((TypeError, ValueError), match=problem) as raised:
            await sandbox.spawn(**{"argv": ["/bin/true"], "cwd": sandbox.profile.write[0], **given})
        assert not isinstance(raised.value, UnicodeError)
    assert await run(sandbox, "echo fine") == (0, b"fine\n")


async def test_words_that_are_not_utf8_and_path_objects_are_taken(sandbox: Sandbox) -> None:
    argv = ("/bin/echo", "\udcff", "ü")
    process = await sandbox.spawn(argv, cwd=sandbox.profile.write[0], environment={"LC_ALL": "C", "A": ""})
    assert await process.wait() == 0
    assert await process.output.read() == b"\xff " + "ü\n".encode()


# -- what it leaves while it runs --------------------------------------------------------------------------------


async def test_waiting_for_the_end_of_a_daemon_notices_it(sandbox: Sandbox) -> None:
    """As `pg_ctl stop` and the like do: a process that has ended and is not reaped still has its number."""
    script = """
pid=$( (sleep 0.2 > /dev/null & echo $!) )
for i in $(seq 100); do kill -0 $pid 2> /dev/null || { echo gone; exit; }; sleep 0.1; done
echo still there"""
    assert await run(sandbox, script) == (0, b"gone\n")
