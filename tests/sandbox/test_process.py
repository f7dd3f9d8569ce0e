"""The contract of a sandbox and its processes, for every back end of this system and the one that does not confine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from swink_agent.sandbox import ProcessLimits, Sandbox, SandboxClosed, SandboxedProcess, SandboxProfile
from swink_agent.sandbox.kernel.process_tree import can_tell_exits
from tests.sandbox.back_ends import ALL, gone, lives, open_any, run

# -- a command ---------------------------------------------------------------------------------------------------


async def test_a_command_gives_its_output_and_its_exit_code(sandbox: Sandbox) -> None:
    assert await run(sandbox, "echo out; echo err >&2; exit 3") == (3, b"out\nerr\n")
    assert await run(sandbox, "true") == (0, b"")


async def test_a_signal_is_told_as_its_negative_number(sandbox: Sandbox) -> None:
    knows = sandbox.backend != "bubblewrap" or can_tell_exits()
    for number in (signal.SIGTERM, signal.SIGSEGV):
        wanted = -number if knows else 128 + number
        assert await run(sandbox, f"sleep 0.1; kill -{number:d} $$") == (wanted, b"")


async def test_an_exit_code_that_reads_as_a_signal_is_an_exit_code(sandbox: Sandbox) -> None:
    for script in ("exit 137", "sleep 0.1; exit 137", "(kill -9 $BASHPID) 2>/dev/null; exit $?"):
        assert (await run(sandbox, script))[0] == 137


async def test_the_folder_the_arguments_and_the_input_are_as_given(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    process = await sandbox.spawn(
        ["/bin/sh", "-c", 'pwd; printf "%s|" "$@"', "sh", "a b", "", "ü\n$x"], cwd=str(tmp_path / "sub")
    )
    assert await process.output.read() == f"{tmp_path}/sub\na b||ü\n$x|".encode()
    assert await process.wait() == 0
    assert await run(sandbox, "cat; echo end") == (0, b"end\n")
    read, write = os.pipe()
    os.write(write, b"given")
    os.close(write)
    assert await run(sandbox, "cat", stdin=read) == (0, b"given")
    os.close(read)


async def test_a_descriptor_that_is_passed_is_open_and_no_other(sandbox: Sandbox) -> None:
    read, write = os.pipe()
    other, another = os.pipe()
    os.set_inheritable(other, True)
    code, output = await run(
        sandbox, f"echo through >&{write}; ls /proc/self/fd | wc -l; ls /proc/self/fd", pass_fds=(write,)
    )
    assert code == 0
    assert os.read(read, 100) == b"through\n"
    assert int(output.split()[0]) == 5  # three, the one that was passed, and the folder that ls reads
    for descriptor in (read, write, other, another):
        os.close(descriptor)


async def test_errors_go_to_a_descriptor_of_their_own_if_one_is_given(sandbox: Sandbox) -> None:
    read, write = os.pipe()
    assert await run(sandbox, "echo out; echo err >&2; exit 3", stderr=write) == (3, b"out\n")
    os.close(write)
    assert os.read(read, 100) == b"err\n"
    os.close(read)


async def test_the_environment_is_the_profile_s_and_what_is_added(name: str, tmp_path: Path) -> None:
    profile = SandboxProfile(write=(str(tmp_path),), environment={"PATH": os.environ["PATH"], "ONE": "1"})
    with open_any(name, profile) as sandbox:
        _, output = await run(sandbox, "env", environment={"TWO": "2", "GOCACHE": "/nowhere"})
    found = dict(line.split("=", 1) for line in output.decode().splitlines())
    for variable in ("PWD", "SHLVL", "_", "OLDPWD", "SWINK_COMMAND"):
        found.pop(variable, None)
    temporary = found.pop("TMPDIR")
    assert temporary.startswith("/")
    assert found.pop("UV_CACHE_DIR") == f"{temporary}/.cache/uv"
    assert found.pop("npm_config_cache") == f"{temporary}/.cache/npm"
    assert found == {"PATH": os.environ["PATH"], "ONE": "1", "TWO": "2", "GOCACHE": "/nowhere"}


async def test_the_temporary_folder_is_private_lasts_and_is_gone_in_the_end(name: str, tmp_path: Path) -> None:
    with open_any(name, SandboxProfile(write=(str(tmp_path),))) as sandbox:
        assert (await run(sandbox, "echo kept > $TMPDIR/file; stat -c %a $TMPDIR"))[1] == b"700\n"
        assert await run(
            sandbox, "cat $TMPDIR/file; mkdir $TMPDIR/locked; touch $TMPDIR/locked/x; chmod 0 $TMPDIR/locked"
        ) == (0, b"kept\n")
        folder = sandbox._private._folder  # type: ignore[attr-defined]
        assert sorted(os.listdir(folder)) == ["own", "tmp"]
    with pytest.raises(FileNotFoundError):
        os.listdir(folder)


async def test_many_commands_at_once(sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(run(sandbox, f"echo {i}; exit {i}") for i in range(12)))
    assert results == [(i, f"{i}\n".encode()) for i in range(12)]


# -- its end -----------------------------------------------------------------------------------------------------


async def test_waiting_does_not_wait_for_a_background_child_that_holds_the_pipe(sandbox: Sandbox) -> None:
    marker = f"97{os.getpid()}1"
    started = time.monotonic()
    process = await sandbox.spawn(["/bin/bash", "-c", f"sleep {marker} & echo started"], cwd=sandbox.profile.write[0])
    assert await process.wait() == 0
    process.kill()
    assert await process.output.read() == b"started\n"
    assert time.monotonic() - started < 30
    assert await gone(marker)


async def test_killing_ends_the_whole_tree_at_once(sandbox: Sandbox) -> None:
    marker = f"97{os.getpid()}2"
    script = f"setsid sleep {marker} & (setsid sleep {marker} &) ; trap '' TERM HUP; echo ready; sleep {marker}"
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0])
    assert await process.output.readline() == b"ready\n"
    process.kill()
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert await process.output.read() == b""
    assert await gone(marker)
    process.kill()
    assert "exit=-9" in repr(process)


async def test_closing_ends_what_runs_and_nothing_starts_afterwards(name: str, tmp_path: Path) -> None:
    marker = f"97{os.getpid()}3"
    sandbox = open_any(name, SandboxProfile(write=(str(tmp_path),)))
    process = await sandbox.spawn(["/bin/bash", "-c", f"echo ready; sleep {marker}"], cwd=str(tmp_path))
    assert await process.output.readline() == b"ready\n"
    sandbox.close()
    sandbox.close()
    assert await process.wait() == -signal.SIGKILL
    assert not lives(marker)
    with pytest.raises(SandboxClosed, match="closed"):
        await sandbox.spawn(["true"], cwd=str(tmp_path))


async def test_a_start_that_is_cancelled_leaves_nothing(sandbox: Sandbox) -> None:
    marker = f"97{os.getpid()}4"
    for delay in (0.0, 0.001, 0.003, 0.01):
        task = asyncio.ensure_future(sandbox.spawn(["/bin/sleep", marker], cwd=sandbox.profile.write[0]))
        await asyncio.sleep(delay)
        task.cancel()
        try:
            (await task).kill()
        except asyncio.CancelledError:
            pass
    assert await gone(marker)
    assert await run(sandbox, "echo still works") == (0, b"still works\n")


async def test_a_slow_reader_holds_the_command_up_and_loses_nothing(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "seq 200000"], cwd=sandbox.profile.write[0])
    await asyncio.sleep(0.2)
    data = await process.output.read()
    assert await process.wait() == 0
    assert data == b"".join(b"%d\n" % i for i in range(1, 200001))


async def test_output_that_nobody_reads_keeps_no_descriptor_open(sandbox: Sandbox) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        process = await sandbox.spawn(["/bin/bash", "-c", "echo ready; exec yes"], cwd=sandbox.profile.write[0])
        await process.output.readline()
        process.kill()
        await process.wait()
    async with asyncio.timeout(30):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - threads have no event
            await asyncio.sleep(0.01)


# -- where it is used from ---------------------------------------------------------------------------------------


def test_one_sandbox_serves_several_event_loops_and_threads(name: str, tmp_path: Path) -> None:
    opened: list[Sandbox] = []
    thread = threading.Thread(target=lambda: opened.append(open_any(name, SandboxProfile(write=(str(tmp_path),)))))
    thread.start()
    thread.join()  # the thread that opened it is gone, the sandbox is not
    with opened[0] as sandbox:
        assert asyncio.run(run(sandbox, "echo first")) == (0, b"first\n")
        assert asyncio.run(run(sandbox, "echo second")) == (0, b"second\n")
        results: list[tuple[int, bytes]] = []
        threads = [
            threading.Thread(target=lambda i=i: results.append(asyncio.run(run(sandbox, f"echo {i}"))))
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [(0, f"{i}\n".encode()) for i in range(3)]


def test_a_loop_that_ended_without_waiting_leaves_nothing_after_close(name: str, tmp_path: Path) -> None:
    marker = f"97{os.getpid()}5"

    async def start(sandbox: Sandbox) -> None:
        process = await sandbox.spawn(["/bin/bash", "-c", f"echo ready; sleep {marker}"], cwd=str(tmp_path))
        await process.output.readline()

    with open_any(name, SandboxProfile(write=(str(tmp_path),))) as sandbox:
        asyncio.run(start(sandbox))
    assert not lives(marker)


KILLED = """
import asyncio, sys
from swink_agent.sandbox import SandboxProfile, open_sandbox
async def main():
    sandbox = open_sandbox(SandboxProfile(write=(sys.argv[2],)), backend=sys.argv[1])
    script = f"setsid sleep {sys.argv[3]} & echo ready; sleep {sys.argv[3]}"
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sys.argv[2])
    await process.output.readline()
    print("ready", flush=True)
    await process.wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_when_we_are_killed_everything_ends(backend: str, tmp_path: Path) -> None:
    marker = f"97{os.getpid()}6"
    agent = subprocess.Popen([sys.executable, "-c", KILLED, backend, str(tmp_path), marker], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"ready\n"
    assert lives(f"sleep {marker}")
    agent.kill()
    agent.wait()
    agent.stdout.close()
    assert asyncio.run(gone(marker))


# -- limits ------------------------------------------------------------------------------------------------------


async def test_a_fork_bomb_ends_with_everything_dead(name: str, tmp_path: Path) -> None:
    """A small fork bomb, of at most 511 processes: it must do no harm if the sandbox fails."""
    marker = f"97{os.getpid()}7"
    profile = SandboxProfile(write=(str(tmp_path),), limits=ProcessLimits(processes=60))
    with open_any(name, profile) as sandbox:
        bomb = f"bomb() {{ [ $1 -gt 8 ] || {{ bomb $(($1 + 1)) & bomb $(($1 + 1)) & sleep {marker}; }}; }}; "
        bomb += "bomb 1; sleep 20"
        process = await sandbox.spawn(["/bin/bash", "-c", bomb], cwd=str(tmp_path))
        reading = asyncio.ensure_future(process.output.read())
        async with asyncio.timeout(30):
            await process.wait()
            process.kill()
            await reading
        assert await gone(marker)
        assert process.ended_because == "it had more than 60 processes"
        assert await run(sandbox, "echo fine") == (0, b"fine\n")


async def test_memory_of_all_processes_together_is_limited(name: str, tmp_path: Path) -> None:
    limits = ProcessLimits(memory=150 * 1024**2)
    taking = "python3 -c 'held = bytearray(80 << 20); import time; time.sleep(60)'"
    with open_any(name, SandboxProfile(write=(str(tmp_path),), limits=limits)) as sandbox:
        process = await sandbox.spawn(["/bin/bash", "-c", f"{taking} & {taking}; echo left"], cwd=str(tmp_path))
        async with asyncio.timeout(30):
            await process.wait()
            process.kill()
        assert process.ended_because == "it used more than 150 MiB of memory"
        code, output = await run(sandbox, "cat /proc/self/oom_score_adj")
        assert code == 0
        assert name == "off" or output == b"500\n"


FILLS = """
import asyncio, sys
from swink_agent.sandbox import SandboxProfile, open_sandbox

async def main(name, work):
    with open_sandbox(SandboxProfile(write=(work,)), backend=name) as sandbox:
        script = "head -c 50000000 /dev/zero > $TMPDIR/full; sleep 30"
        process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=work)
        await process.wait()
        process.kill()
        print(process.ended_because)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
@pytest.mark.sweep
def test_its_temporary_folder_may_be_on_a_disk_that_it_does_not_fill_either(name: str, tmp_path: Path) -> None:
    small = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "--propagation", "private"]
    if not shutil.which("unshare") or subprocess.run([*small, "true"], check=False).returncode:
        pytest.skip("this user may not mount anything")
    (tmp_path / "work").mkdir()
    (tmp_path / "small").mkdir()
    plainly = "setpriv --inh-caps=-all --ambient-caps=-all"
    script = f'mount -t tmpfs -o size=64m none "$TMPDIR" && exec {plainly} "$@"'
    line = [*small, "sh", "-c", script, "sh", sys.executable, "-c", FILLS, name, str(tmp_path / "work")]
    done = subprocess.run(
        line, env={**os.environ, "TMPDIR": str(tmp_path / "small")}, capture_output=True, check=False, timeout=60
    )
    assert done.stdout.startswith(b"less than 32 MiB was left on the disk of "), done


async def test_sizes_of_files_and_numbers_of_descriptors_are_limited(name: str, tmp_path: Path) -> None:
    profile = SandboxProfile(write=(str(tmp_path),), limits=ProcessLimits(file_size=100_000, open_files=50))
    with open_any(name, profile) as sandbox:
        # Without a sandbox a command is limited a moment after its start.
        _, output = await run(sandbox, "sleep 0.1; ulimit -c; ulimit -n; ulimit -Hn; head -c 200000 /dev/zero > big")
    lines = output.decode().split()
    assert lines[:3] == ["0", "50", "50"]
    assert (tmp_path / "big").stat().st_size <= 100_000


@pytest.mark.bubblewrap
def test_the_fingerprint_is_of_the_back_end_and_the_profile(tmp_path: Path) -> None:
    profile = SandboxProfile(write=(str(tmp_path),))
    fingerprints = set()
    for name in ALL:
        with open_any(name, profile) as first, open_any(name, profile) as second:
            assert first.fingerprint == second.fingerprint
            assert first.backend == name
            assert name in repr(first)
            fingerprints.add(first.fingerprint)
    with open_any("off", SandboxProfile(write=(str(tmp_path),), network=True)) as other:
        fingerprints.add(other.fingerprint)
        cast("dict[str, str]", other.profile.environment)["PATH"] = "/elsewhere"
        fingerprints.add(other.fingerprint)
    assert len(fingerprints) == 5


async def test_reports_during_a_look_are_kept() -> None:
    loop = asyncio.get_running_loop()
    process = SandboxedProcess(1, asyncio.StreamReader(), loop.create_future(), lambda: None)

    async def look(is_last: bool) -> list[str]:
        process.tell("one")
        return ["two"]

    process.looks_with = look
    assert await process.look_behind() == ("one", "two")
