"""A command under its guardian: how it starts, what it gets, and that nothing survives it, whichever dies first."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from swink_agent.sandbox import ProcessLimits, SandboxClosed, SandboxedProcess, SandboxError, SandboxProfile, starting
from swink_agent.sandbox.landlock import backend as landlock
from swink_agent.sandbox.landlock.backend import LandlockSandbox

PYTHON = str(Path(sys.executable).resolve())
NEWEST = 1 << 16

OpenFn = Callable[..., LandlockSandbox]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def open_sandbox(root: Path) -> Iterator[OpenFn]:
    with ExitStack() as stack:

        def open_one(version: int = NEWEST, **fields: object) -> LandlockSandbox:
            profile = SandboxProfile(**{"write": (str(root),), **fields})  # type: ignore[arg-type]
            opened = stack.enter_context(LandlockSandbox(profile, landlock=version))
            assert isinstance(opened, LandlockSandbox)
            return opened

        yield open_one


@pytest.fixture
def sandbox(open_sandbox: OpenFn) -> LandlockSandbox:
    return open_sandbox()


async def run(sandbox: LandlockSandbox, script: str, **more: object) -> tuple[int, str]:
    process = await sandbox.spawn(["/bin/bash", "-c", script], **{"cwd": sandbox.profile.write[0], **more})  # type: ignore[arg-type]
    output = await process.output.read()
    return await process.wait(), output.decode()


def is_running(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def start_victim() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "300"], process_group=0)


def exists(path: str) -> bool:
    return os.path.exists(path)


def read(path: str) -> str:
    return Path(path).read_text()


def wait_until_gone(*pids: int, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in pids if is_running(pid)]


# What a command gets


async def test_a_command_gives_its_output_and_its_exit(sandbox: LandlockSandbox) -> None:
    assert await run(sandbox, "echo out; echo err >&2; exit 3") == (3, "out\nerr\n")
    assert await run(sandbox, "kill -TERM $$") == (-signal.SIGTERM, "")
    assert await run(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x") == (0, "x" * 3_000_000)


async def test_a_command_gets_the_clean_environment_and_its_own_temporary_folder(open_sandbox: OpenFn) -> None:
    sandbox = open_sandbox(environment={"PATH": "/usr/bin:/bin", "KEPT": "\udcff"})
    process = await sandbox.spawn(["env", "-0"], cwd="/", environment={"ADDED": "1"})
    entries = dict(entry.split("=", 1) for entry in os.fsdecode(await process.output.read()).split("\0")[:-1])
    assert await process.wait() == 0
    folder = entries.pop("TMPDIR")
    for name in ("GOCACHE", "UV_CACHE_DIR", "npm_config_cache"):
        assert entries.pop(name).startswith(folder)
    assert entries == {"PATH": "/usr/bin:/bin", "KEPT": "\udcff", "ADDED": "1"}
    assert await run(sandbox, "mktemp; echo kept > $TMPDIR/file") != (1, "")
    assert await run(sandbox, "cat $TMPDIR/file") == (0, "kept\n")
    sandbox.close()
    assert not exists(folder)


async def test_a_command_has_no_capability_no_terminal_and_no_way_back(sandbox: LandlockSandbox) -> None:
    _, status = await run(sandbox, "cat /proc/self/status; cat < /dev/tty")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # An ordinary user may not empty the bounding set; without new privileges nothing comes out of it.
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if os.geteuid() == 0 else [])):
        assert int(fields[name], 16) == 0, name
    assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Seccomp_filters"]) == ("1", "2", "2")
    assert "/dev/tty" in status


async def test_a_command_has_the_limits_of_its_profile(open_sandbox: OpenFn) -> None:
    sandbox = open_sandbox(limits=ProcessLimits(file_size=4096, open_files=64, core=0))
    code, output = await run(
        sandbox, "ulimit -n; ulimit -Hc; head -c 9999 /dev/zero > f; truncate -s 9999 g; stat -c %s f"
    )
    assert output.split("\n")[:2] == ["64", "0"]
    assert output.endswith("\n4096\n")
    assert code == 0


async def test_descriptors_are_passed_at_their_numbers_and_no_others(sandbox: LandlockSandbox, root: Path) -> None:
    (root / "input").write_text("from stdin\n")
    pipes = [os.pipe() for _ in range(12)]
    try:
        # The numbers are such that they meet those that the launcher and the guardian use themselves.
        passed = [write for _, write in pipes]
        with (root / "input").open() as stdin:
            script = f"cat; for fd in {' '.join(map(str, passed))}; do echo $fd >&$fd; done; ls /proc/self/fd | wc -l"
            code, output = await run(sandbox, script, stdin=stdin.fileno(), pass_fds=passed)
        assert (code, output) == (0, f"from stdin\n{3 + len(passed) + 1}\n")
        assert [os.read(read, 100) for read, _ in pipes] == [f"{write}\n".encode() for write in passed]
    finally:
        for pair in pipes:
            for descriptor in pair:
                os.close(descriptor)
    assert await run(sandbox, "ls /proc/self/fd | wc -l; cat") == (0, "4\n")


async def test_long_arguments_and_odd_bytes_arrive(sandbox: LandlockSandbox) -> None:
    word = "x" * 120_000
    process = await sandbox.spawn(["/bin/echo", word, "\udcfe"], cwd="/")
    assert await process.output.read() == word.encode() + b" \xfe\n"
    assert await process.wait() == 0


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("argv", "cwd", "complaint"),
    [
        (["/no/such/program"], "/", "could not run '/no/such/program': No such file or directory"),
        (["no-such-program"], "/", "could not run 'no-such-program': No such file or directory"),
        (["/etc/passwd"], "/", "could not run '/etc/passwd': Permission denied"),
        (["/bin/true"], "/no/such/folder", "could not start in '/no/such/folder': No such file or directory"),
        (["/bin/true", "x" * 3_000_000], "/", "could not run '/bin/true': Argument list too long"),
    ],
)
async def test_a_failed_start_is_reported(sandbox: LandlockSandbox, argv: list[str], cwd: str, complaint: str) -> None:
    with pytest.raises(SandboxError, match=f"^the command was not run: {complaint}$"):
        # Of a path with a folder that may not be looked into, the kernel would say that.
        await sandbox.spawn(argv, cwd=cwd, environment={"PATH": "/usr/bin:/bin"})
    assert await run(sandbox, "echo still works") == (0, "still works\n")


async def test_a_mistake_in_a_command_is_not_taken_for_a_missing_kernel_feature(sandbox: LandlockSandbox) -> None:
    with pytest.raises(SandboxError, match="could not run '/no/such/seccomp'") as caught:
        await sandbox.spawn(["/no/such/seccomp"], cwd="/")
    assert caught.value.remedy == ""


async def test_wrong_arguments_are_refused_before_anything_is_started(sandbox: LandlockSandbox) -> None:
    with pytest.raises(ValueError, match="at least a program"):
        await sandbox.spawn([], cwd="/")
    with pytest.raises(ValueError, match="stdin is a descriptor"):
        await sandbox.spawn(["/bin/true"], cwd="/", stdin=subprocess.PIPE)


# The end of a command


async def test_processes_left_by_a_command_are_gone_when_it_has_ended(sandbox: LandlockSandbox, root: Path) -> None:
    script = """sleep 300 & echo $! >> pids; (setsid sleep 300 & echo $! >> pids)
nohup sleep 300 > /dev/null & echo $! >> pids
(trap '' TERM HUP; exec setsid bash -c 'sleep 300 & echo $! >> pids; echo $$ >> pids; echo > ready; wait') &
while [ ! -e ready ]; do sleep 0.01; done; echo done"""
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=str(root))
    assert await asyncio.wait_for(process.wait(), 20) == 0
    pids = [int(pid) for pid in (root / "pids").read_text().split()]
    assert len(pids) == 5
    assert not [pid for pid in pids if is_running(pid)]
    assert await process.output.read() == b"done\n"
    process.kill()


async def test_kill_ends_the_whole_tree(sandbox: LandlockSandbox, root: Path) -> None:
    script = "for i in 1 2 3; do (setsid sleep 300 & echo $! >> pids; echo; wait) & done; echo $$ >> pids; wait"
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=str(root))
    for _ in range(3):
        await process.output.readline()
    process.kill()
    process.kill()
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    assert not [pid for pid in (root / "pids").read_text().split() if is_running(int(pid))]
    process.kill()


async def test_stopped_processes_end_too(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "sleep 300 & kill -STOP $!; echo $!; kill -STOP $$"], cwd="/")
    pid = int(await process.output.readline())
    process.kill()
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    assert not is_running(pid)


@pytest.mark.alone
async def test_a_fork_bomb_is_ended_with_all_its_children(open_sandbox: OpenFn) -> None:
    sandbox = open_sandbox(limits=ProcessLimits(processes=40))
    process = await sandbox.spawn(["/bin/bash", "-c", "echo $$; f() { f | f & }; f; sleep 300"], cwd="/")
    main = int(await process.output.readline())
    assert await asyncio.wait_for(process.wait(), 40) == -signal.SIGKILL
    assert process.ended_because == "it had more than 40 processes"
    assert not is_running(main)
    assert await run(sandbox, "echo fine") == (0, "fine\n")


async def test_remains_of_a_cancelled_start_are_looked_at(sandbox: LandlockSandbox, root: Path) -> None:
    """It may have run for a moment. The next one tells."""
    (root / "n").mkdir()
    await run(sandbox, "true")
    for number in range(40):
        start = asyncio.ensure_future(sandbox.spawn(["/bin/ln", "-s", "/elsewhere", "n/.git"], cwd=str(root)))
        await asyncio.sleep(0.0005 * (number % 10))
        start.cancel()
        process = (await asyncio.gather(start, return_exceptions=True))[0]
        if isinstance(process, SandboxedProcess):  # it was too quick for us
            process.kill()
            await process.output.read()
            await process.look_behind()
        await asyncio.sleep(0.01)
        if (root / "n/.git").is_symlink():  # it has run
            break
        shutil.rmtree(root / "n")
        (root / "n").mkdir()
    else:
        pytest.skip("no start could be cancelled in time")
    async with asyncio.timeout(60):
        while not (root / "n/.git.swink-1").is_symlink():  # noqa: ASYNC110 - a thread makes it
            await asyncio.sleep(0.01)
    process = await sandbox.spawn(["/bin/true"], cwd=str(root))
    await process.wait()
    assert "it makes git use a repository that is elsewhere" in process.warnings[0]


async def test_a_command_has_the_niceness_of_the_agent(sandbox: LandlockSandbox) -> None:
    """The guardian of a root user's command has another, so that it can count a fork bomb."""
    assert await run(sandbox, "nice") == (0, f"{os.getpriority(os.PRIO_PROCESS, 0)}\n")
    assert (await run(sandbox, "nice -n -5 true"))[1].startswith("nice: cannot set niceness")


async def test_nothing_runs_with_a_real_time_priority(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "echo; sleep 300"], cwd="/")
    await process.output.readline()
    guardian = int(read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()[1])
    try:
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        assert os.sched_getscheduler(guardian) == os.SCHED_OTHER
    finally:
        process.kill()
        await process.wait()


CHAINS = {
    "in one group": "",
    "each in a session of its own": "os.setsid()",
    "each in a group of its own": "os.setpgid(0, 0)",
    "whose parents ignore their end": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "two at a time": "os.fork()",
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("kind", CHAINS)
async def test_a_process_that_is_always_another_is_ended(kind: str, open_sandbox: OpenFn) -> None:
    """Each process lives for a moment, starts the next and ends, so that no search for its number finds it in time."""
    sandbox = open_sandbox(limits=ProcessLimits(processes=400))
    script = f"""
import os, signal, time
end = time.monotonic() + 20  # if the sandbox fails
if os.fork():
    print("on", flush=True)
    time.sleep(300)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    {CHAINS[kind]}
"""
    reading, writing = os.pipe()  # at its end when the last of them is gone
    try:
        process = await sandbox.spawn([PYTHON, "-I", "-S", "-c", script], cwd="/", pass_fds=[writing])
    finally:
        os.close(writing)
    try:
        assert await process.output.readline() == b"on\n"
        process.kill()
        assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(os.read, reading, 1) == b""  # comes when no process can write any longer
    finally:
        os.close(reading)


@pytest.mark.sweep
async def test_pipelines_of_a_shell_that_hears_of_its_children_s_end(sandbox: LandlockSandbox) -> None:
    """`fork` does not wait: with a handler that does not restart calls, a signal would make it fail."""
    script = """
import os, signal
signal.signal(signal.SIGCHLD, lambda *_: None)
for _ in range(400):
    if not os.fork(): os._exit(0)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
print("all")
"""
    process = await sandbox.spawn([PYTHON, "-I", "-S", "-c", script], cwd="/")
    assert await process.output.read() == b"all\n"
    loop = "i=0; while [ $i -lt 150 ]; do echo x | cat | cat > /dev/null; i=$((i+1)); done; echo all"
    process = await sandbox.spawn(["/bin/sh", "-c", loop], cwd="/")
    assert await process.output.read() == b"all\n"


async def test_a_thread_bomb_is_ended(open_sandbox: OpenFn) -> None:
    sandbox = open_sandbox(limits=ProcessLimits(processes=3))
    script = """
import threading, time
try:
    for _ in range(2000): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
except RuntimeError: pass  # the kernel's own limit, for an ordinary user
time.sleep(300)
"""
    process = await sandbox.spawn([PYTHON, "-I", "-c", script], cwd="/")
    assert await asyncio.wait_for(process.wait(), 40) == -signal.SIGKILL
    assert "more than 3" in process.ended_because


async def test_many_processes_one_after_another_are_not_a_bomb(open_sandbox: OpenFn) -> None:
    sandbox = open_sandbox(limits=ProcessLimits(processes=12))
    assert await run(
        sandbox, "for i in {1..60}; do /bin/true; done; for i in 1 2 3 4 5; do sleep 0.01 & done; wait; echo all"
    ) == (
        0,
        "all\n",
    )


async def test_a_cancelled_wait_leaves_the_command_and_a_cancelled_spawn_does_not(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/sleep", "300"], cwd="/")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.wait(), 0.05)
    assert is_running(process.pid)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    starting = asyncio.ensure_future(sandbox.spawn(["/bin/sleep", "300"], cwd="/"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await run(sandbox, "echo next") == (0, "next\n")


async def test_kill_is_safe_from_another_thread(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/sleep", "300"], cwd="/")
    thread = threading.Thread(target=process.kill)
    thread.start()
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    thread.join()


# The end of the sandbox, and of those around it


async def test_close_ends_every_command_and_is_final(sandbox: LandlockSandbox) -> None:
    processes = [await sandbox.spawn(["/bin/sleep", "300"], cwd="/") for _ in range(3)]
    launcher = sandbox._launcher._process.pid
    sandbox.close()
    sandbox.close()
    assert [await process.wait() for process in processes] == [-signal.SIGKILL] * 3
    assert [await process.output.read() for process in processes] == [b""] * 3
    assert not [pid for pid in (launcher, *(process.pid for process in processes)) if is_running(pid)]
    with pytest.raises(SandboxClosed):
        await sandbox.spawn(["/bin/true"], cwd="/")


def test_a_sandbox_works_in_one_event_loop_after_another(sandbox: LandlockSandbox) -> None:
    async def start() -> int:
        return (await sandbox.spawn(["/bin/sleep", "300"], cwd="/")).pid

    assert asyncio.run(run(sandbox, "echo one")) == (0, "one\n")
    left = asyncio.run(start())
    assert asyncio.run(run(sandbox, "echo two")) == (0, "two\n")
    sandbox.close()
    assert not is_running(left)


def test_a_sandbox_that_is_forgotten_leaves_nothing(root: Path) -> None:
    forgotten = LandlockSandbox(SandboxProfile(write=(str(root),)))
    launcher = forgotten._launcher._process.pid
    _, output = asyncio.run(run(forgotten, "echo $TMPDIR"))
    del forgotten
    gc.collect()
    assert not is_running(launcher)
    assert not Path(output.strip()).exists()


@pytest.mark.sweep
async def test_descriptors_of_ours_do_not_pile_up(sandbox: LandlockSandbox) -> None:
    await run(sandbox, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await run(sandbox, "true")
        with suppress(SandboxError):
            await sandbox.spawn(["/no/such"], cwd="/")
    async with asyncio.timeout(30):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - threads have no event
            await asyncio.sleep(0.01)


AGENT = """
import asyncio, os, sys
from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.landlock.backend import LandlockSandbox
async def main():
    sandbox = LandlockSandbox(SandboxProfile(write=(sys.argv[1],)))
    script = "setsid sleep 300 & (trap '' TERM; sleep 301) & echo $! $PPID; wait"
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd="/")
    inner, guardian = (await process.output.readline()).decode().split()
    if os.fork() == 0:
        import time; time.sleep(20); os._exit(0)  # holds a copy of every descriptor, as workers of an agent do
    print(sandbox._launcher._process.pid, process.pid, inner, guardian, flush=True)
    await process.wait()
asyncio.run(main())
"""


def test_an_agent_that_is_killed_leaves_nothing(root: Path) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", AGENT, str(root)], stdout=subprocess.PIPE, process_group=0
    )
    try:
        assert agent.stdout is not None
        pids = [int(word) for word in agent.stdout.readline().split()]
        assert len(pids) == 4
        assert all(map(is_running, pids))
        agent.kill()
        wait_until_gone(*pids)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        agent.stdout.close()


async def test_a_killed_launcher_takes_its_commands_along(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "setsid sleep 300 & echo $!; wait"], cwd="/")
    inner = int(await process.output.readline())
    os.kill(sandbox._launcher._process.pid, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    wait_until_gone(inner)
    with pytest.raises(SandboxError, match="open the sandbox again"):
        await sandbox.spawn(["/bin/true"], cwd="/")


async def test_a_killed_guardian_takes_its_command_along(sandbox: LandlockSandbox) -> None:
    process = await sandbox.spawn(["/bin/bash", "-c", "setsid sleep 300 & echo $! $PPID; wait"], cwd="/")
    inner, guardian = map(int, (await process.output.readline()).split())
    os.kill(guardian, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    wait_until_gone(inner, process.pid)
    assert await run(sandbox, "echo next") == (0, "next\n")


async def test_a_guardian_that_waited_and_was_killed_is_replaced(sandbox: LandlockSandbox) -> None:
    for _ in range(3):
        await asyncio.sleep(0.05)
        children = read(
            f"/proc/{sandbox._launcher._process.pid}/task/{sandbox._launcher._process.pid}/children"
        ).split()
        for child in children:
            with suppress(ProcessLookupError):  # the one before may be leaving just now
                os.kill(int(child), signal.SIGKILL)
        wait_until_gone(*map(int, children))
        assert await run(sandbox, "echo next") == (0, "next\n")


# Signals, on this kernel and as on older ones


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("version", [NEWEST, 5, 1])
async def test_no_signal_reaches_anybody_outside(open_sandbox: OpenFn, version: int) -> None:
    sandbox = open_sandbox(version)
    victim = start_victim()
    try:
        pids = f"{victim.pid} -{victim.pid} {os.getpid()} {sandbox._launcher._process.pid} 1"
        script = f"""for pid in {pids} $PPID; do for how in 0 USR2 TERM KILL; do
    kill -$how -- $pid && echo sent $how $pid
done; done
{PYTHON} -I - {victim.pid} <<'END'
import ctypes, fcntl, os, signal, sys
victim, libc = int(sys.argv[1]), ctypes.CDLL(None)
if not libc.syscall({"234" if os.uname().machine == "x86_64" else "131"}, victim, victim, 9): print("tgkill")
if not libc.syscall({"200" if os.uname().machine == "x86_64" else "130"}, victim, 9): print("tkill")
try: signal.pidfd_send_signal(os.pidfd_open(victim), 9); print("pidfd")
except OSError: pass
END
true"""
        _, output = await run(sandbox, f"({script}) 2>/dev/null")
        assert output == ""
        await run(sandbox, "kill -KILL -1; true")
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("version", [NEWEST, 5])
async def test_signals_among_its_own_processes_work(open_sandbox: OpenFn, version: int) -> None:
    sandbox = open_sandbox(version)
    script = """sleep 300 & kill $!; wait $!; echo $?
set -m; (sleep 300 | sleep 300) & kill -TERM -- -$!; wait $!; echo $?
trap 'echo got it' USR1; kill -USR1 $$; kill -0 $$ && echo here; timeout 0.1 sleep 300; echo $?
python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)'; echo $?; kill -0 999999 || echo nobody"""
    code, output = await run(sandbox, f"exec 2>/dev/null; {script}")
    assert (code, output.split("\n")) == (0, ["143", "143", "got it", "here", "124", "143", "nobody", ""])


@pytest.mark.rows(one_of=10)
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed, and the command runs it")
@pytest.mark.parametrize("version", [5, 3, 2, 1])
async def test_older_landlock_holds_as_well(open_sandbox: OpenFn, tmp_path: Path, version: int) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    script = f"""echo in > a; mkdir d; mv a d/b; cat d/b; ln d/b d/c; git init -q x && echo made
echo bad > {outside}; truncate -s 0 {outside}; : > {outside}; rm {outside}; mv {outside} .; ln {outside} l
touch .swink; chmod 777 {outside}
python3 -c 'import os; os.open("{outside}", os.O_RDONLY | os.O_TRUNC)'"""
    _, output = await run(open_sandbox(version), f"({script}) 2>/dev/null")
    assert output == "in\nmade\n"
    assert outside.read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o644


# What does not work is said


def test_a_missing_root_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"the write root '.*/missing' is not a folder that exists"):
        LandlockSandbox(SandboxProfile(write=(str(tmp_path / "missing"),)))


@pytest.mark.parametrize(
    ("boot", "complaint"),
    [
        ("raise SystemExit('no luck here')", "the launcher failed: no luck here"),
        ("pass", "the launcher failed: it ended without a message"),
        ("import time; time.sleep(300)", "the launcher does not answer: timed out"),
    ],
)
def test_a_launcher_that_does_not_start_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, boot: str, complaint: str
) -> None:
    monkeypatch.setattr(starting, "_BOOT", boot)
    monkeypatch.setattr(landlock, "_START_DEADLINE", 0.5)
    monkeypatch.setattr(landlock, "_END_DEADLINE", 0.1)
    with pytest.raises(SandboxError, match=complaint):
        LandlockSandbox(SandboxProfile(write=(str(root),)))


def test_a_python_without_a_program_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(SandboxError, match="does not know its own program"):
        LandlockSandbox(SandboxProfile(write=(str(root),)))


def test_a_kernel_without_landlock_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.sandbox.kernel import calls

    def missing() -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(calls, "landlock_version", missing)
    with pytest.raises(SandboxError, match=r"Landlock is not in this kernel, or is switched off \(Function not"):
        LandlockSandbox(SandboxProfile(write=(str(root),)))
