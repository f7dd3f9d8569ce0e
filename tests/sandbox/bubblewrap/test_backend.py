"""Behaviour that only bubblewrap has: mounts, links, and a private /tmp that commands can write."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from swink_agent.sandbox import ProcessLimits, SandboxError, SandboxProfile, open_sandbox
from swink_agent.sandbox.bubblewrap.backend import BubblewrapSandbox, find_bubblewrap
from swink_agent.sandbox.kernel.process_tree import Watch
from swink_agent.sandbox.protected import Protection, protected_now, protected_paths

pytestmark = pytest.mark.bubblewrap

PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture
def sandbox(playground: Any) -> Iterator[BubblewrapSandbox]:
    with BubblewrapSandbox(playground.profile()) as opened:
        yield opened


async def output_of(sandbox: BubblewrapSandbox, script: str) -> str:
    process = await sandbox.spawn(["/bin/bash", "-c", script], cwd=sandbox.profile.write[0])
    await process.wait()
    return (await process.output.read()).decode()


async def started(sandbox: BubblewrapSandbox, script: str) -> Any:
    process = await sandbox.spawn(["/bin/bash", "-c", f"echo ready; {script}"], cwd=sandbox.profile.write[0])
    assert await process.output.readline() == b"ready\n"
    return process


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


# -- what is held --------------------------------------------------------------------------------------------------


async def test_a_replaced_protected_file_ends_the_command_and_is_reported(
    playground: Any, sandbox: BubblewrapSandbox
) -> None:
    process = await started(sandbox, "sleep 100")
    git(playground.root, "config", "user.name", "Somebody")
    assert await process.wait() == -9
    assert process.ended_because.startswith(f"'{playground.root}/.git/config' was replaced by another program")


def test_a_link_in_place_of_something_protected_is_left_to_the_other_back_end(playground: Any) -> None:
    hooks = playground.root / ".git/hooks"
    hooks.rmdir()
    hooks.symlink_to("../vendor")
    with pytest.raises(SandboxError, match=r"'.*/\.git/hooks' is a symbolic link"):
        BubblewrapSandbox(playground.profile())
    with open_sandbox(playground.profile()) as sandbox:
        assert sandbox.backend == "landlock"


async def test_a_repository_that_is_a_file_is_read_only(playground: Any, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text(f"gitdir: {playground.root}/.git/worktrees/tree\n")
    with BubblewrapSandbox(SandboxProfile(write=(str(tmp_path),))) as sandbox:
        await output_of(sandbox, "echo gitdir: evil > .git; rm .git; mv .git x; mv -f x .git; ln -sf x .git")
    assert (tmp_path / ".git").read_text() == f"gitdir: {playground.root}/.git/worktrees/tree\n"


def test_held_files_follow_the_disk(playground: Any) -> None:
    root = playground.root
    profile = playground.profile()
    found = {
        name.path.removeprefix(f"{root}/"): name.kind
        for name in protected_now(profile.write, protected_paths(profile), ())
    }
    assert found == {
        ".git": Protection.PINNED,
        ".git/config": Protection.READ_ONLY,
        ".git/hooks": Protection.READ_ONLY,
        ".git/modules": Protection.PINNED,
        ".git/modules/sub": Protection.PINNED,
        ".git/modules/sub/config": Protection.READ_ONLY,
        ".git/modules/sub/hooks": Protection.READ_ONLY,
        ".git/worktrees": Protection.PINNED,
        ".git/worktrees/tree": Protection.PINNED,
        ".git/worktrees/tree/commondir": Protection.READ_ONLY,
        "vendor": Protection.PINNED,
        "vendor/lib": Protection.PINNED,
        "vendor/lib/.git": Protection.PINNED,
        "vendor/lib/.git/config": Protection.READ_ONLY,
        "vendor/lib/.git/hooks": Protection.READ_ONLY,
    }


def test_included_configuration_is_found_and_folders_of_hooks_are_not(playground: Any) -> None:
    root = playground.root
    (root / "githooks").mkdir()
    (root / "common.config").touch()
    with (root / ".git/config").open("a") as file:
        file.write(
            "[core]\n\thooksPath = githooks\n[include]\n\tpath = ../common.config\n[include] path = ../missing\n"
        )
        file.write('[remote "x"]\n\tpath = ../hello.txt\n')
    found = set(protected_paths(playground.profile()))
    assert str(root / "common.config") in found
    assert not {str(root / "hello.txt"), str(root / "missing"), str(root / "githooks")} & found


def test_a_bare_repository_as_a_root_is_held_too(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
    found = protected_paths(SandboxProfile(write=(str(tmp_path / "bare"),)))
    assert {str(tmp_path / "bare" / name) for name in ("hooks", "config")} <= set(found)


def test_a_very_large_tree_is_searched_for_a_moment_only(tmp_path: Path) -> None:
    for i in range(40):
        for j in range(40):
            (tmp_path / f"{i}/{j}").mkdir(parents=True)
    (tmp_path / "0/.git").mkdir()
    found = protected_paths(SandboxProfile(write=(str(tmp_path),)))
    assert str(tmp_path / "0/.git/config") in found


async def test_roots_inside_of_roots_and_roots_that_are_links(playground: Any) -> None:
    inner = playground.root / "vendor/lib"
    link = playground.base / "link"
    link.symlink_to(playground.root)
    with BubblewrapSandbox(SandboxProfile(write=(str(link), str(inner)))) as sandbox:
        output = await output_of(
            sandbox,
            "pwd; echo x > new; echo y > vendor/lib/new; mv vendor v; mv vendor/lib w; "
            "echo x >> vendor/lib/.git/config; ls vendor",
        )
    assert output.startswith(f"{playground.root}\n")
    assert output.endswith("lib\n")
    assert (playground.root / "new").read_text() == "x\n"
    assert (playground.root / "w/new").read_text() == "y\n"  # what may be moved is copied from mount to mount
    assert (inner / ".git/config").read_bytes() != b""


# -- the private /tmp ----------------------------------------------------------------------------------------------


@pytest.fixture
def root_in_tmp() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="swink-test-", dir="/tmp"))
    (base / "a/root").mkdir(parents=True)
    yield base / "a/root"
    shutil.rmtree(base)


async def test_a_root_beneath_tmp_is_reached_and_the_rest_of_tmp_is_private(root_in_tmp: Path) -> None:
    (root_in_tmp.parent / "other").write_text("not to be seen")
    with BubblewrapSandbox(SandboxProfile(write=(str(root_in_tmp),))) as sandbox:
        assert await output_of(sandbox, "echo x > new; pwd; ls ..; echo kept > /tmp/file") == f"{root_in_tmp}\nroot\n"
        assert await output_of(sandbox, "cat /tmp/file new") == "kept\nx\n"
    assert (root_in_tmp / "new").read_text() == "x\n"
    assert "file" not in os.listdir("/tmp")


async def test_links_on_the_way_to_a_root_beneath_tmp_lead_nowhere(root_in_tmp: Path, playground: Any) -> None:
    first = f"/tmp/{root_in_tmp.relative_to('/tmp').parts[0]}"
    with BubblewrapSandbox(SandboxProfile(write=(str(root_in_tmp),))) as sandbox:
        await output_of(
            sandbox,
            f"mv {first} /tmp/x; rm -rf {first}; ln -s ../oldroot{playground.outside} {first}; "
            f"ln -s {playground.outside} {first}; "
            f"mv {first}/a {first}/b; ln -s ../../../oldroot{playground.outside} {first}/a",
        )
        assert await output_of(sandbox, "pwd; echo x > new") == f"{root_in_tmp}\n"
    assert (root_in_tmp / "new").read_text() == "x\n"
    assert playground.check(type("Nothing", (), {"output": ""})()) == []


@pytest.mark.sweep
async def test_a_command_that_swaps_folders_for_links_gains_nothing_while_others_start(playground: Any) -> None:
    """A nested repository, its folders and a temporary folder change places with links all the time."""
    swap = """
    while :; do
      for name in vendor vendor/lib vendor/lib/.git .git .git/modules .swink; do
        mv $name $name.old 2>/dev/null && ln -s $OUT $name && rm $name && mv $name.old $name
      done
      mkdir -p new/.git 2>/dev/null; rm -rf new; ln -s $OUT new; rm new
    done
    """
    with BubblewrapSandbox(playground.profile()) as sandbox:
        swapping = await sandbox.spawn(
            ["/bin/bash", "-c", f"echo ready; {swap}"],
            cwd=str(playground.root),
            environment={"OUT": str(playground.outside)},
        )
        assert await swapping.output.readline() == b"ready\n"
        for _ in range(20):
            output = await output_of(
                sandbox, "echo x > vendor/lib/.git/config; echo x > .git/config; touch .git/hooks/x; cat ~/.ssh/*; true"
            )
            assert playground.canary not in output
        swapping.kill()
        await swapping.wait()
        outcome = type("Nothing", (), {"output": (await swapping.output.read()).decode()})()
    assert playground.check(outcome) == []


async def test_our_own_files_are_never_where_a_command_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with BubblewrapSandbox(SandboxProfile(write=(str(tmp_path),))) as sandbox:
        assert not sandbox._private.path.startswith(f"{tmp_path}/")
        assert await output_of(sandbox, "echo fine") == "fine\n"


# -- the program itself --------------------------------------------------------------------------------------------


def test_a_program_that_a_command_could_have_put_there_is_not_used(tmp_path: Path) -> None:
    fake = tmp_path / "bin/bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    path = f"bin:{tmp_path}/bin:/usr/bin"
    assert find_bubblewrap(SandboxProfile(write=(str(tmp_path),)), path) != str(fake)
    assert find_bubblewrap(SandboxProfile(), path) == str(fake)


class _LooksAtOnce(Watch):
    """A watch that finds something before the command has begun, as one can on a busy machine."""

    def add(self, key: object, look: Callable[[], str], end: Callable[[str], None]) -> None:
        super().add(key, look, end)
        end("a hidden file came to be")


async def test_the_reason_for_an_end_before_the_start_is_reported(tmp_path: Path) -> None:
    with BubblewrapSandbox(SandboxProfile(write=(str(tmp_path),))) as sandbox:
        usual, sandbox._watch = sandbox._watch, _LooksAtOnce()
        with pytest.raises(SandboxError, match="the command was not run: a hidden file came to be"):
            await output_of(sandbox, "touch ran")
        sandbox._watch.close()
        sandbox._watch = usual
        assert await output_of(sandbox, "ls") == "", "nothing ran, and the sandbox is good for others"


async def test_a_root_that_goes_away_is_an_error_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with BubblewrapSandbox(SandboxProfile(write=(str(tmp_path / "root"),))) as sandbox:
        (tmp_path / "root").rmdir()
        with pytest.raises(SandboxError):
            await output_of(sandbox, "echo ran")
    with pytest.raises(SandboxError, match="not a folder"):
        BubblewrapSandbox(SandboxProfile(write=(str(tmp_path / "root"),)))


async def test_its_own_terminals_and_shared_memory_work(sandbox: BubblewrapSandbox) -> None:
    program = "import pty, os; pid, fd = pty.fork(); pid or os.execlp('tty', 'tty'); print(os.read(fd, 99)[:8])"
    assert await output_of(sandbox, f'{PYTHON} -c "{program}"') == "b'/dev/pts'\n"
    assert await output_of(sandbox, "echo x > /dev/shm/x && cat /dev/shm/x") == "x\n"
    assert await output_of(sandbox, "ls /dev/shm") == ""


async def test_the_command_is_alone_in_its_namespace(sandbox: BubblewrapSandbox) -> None:
    output = await output_of(sandbox, "cd /proc; echo [0-9]*; tail -n +3 net/dev | cut -d: -f1")
    processes, network = output.splitlines()
    assert max(map(int, processes.split())) < 10
    assert network.strip() == "lo"


async def test_commands_that_end_at_once_leave_no_descriptor_and_no_process(sandbox: BubblewrapSandbox) -> None:
    await output_of(sandbox, "true")
    await asyncio.sleep(0.2)
    before = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(output_of(sandbox, "true") for _ in range(8)))
    async with asyncio.timeout(30):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - threads have no event
            await asyncio.sleep(0.02)


@pytest.mark.sweep
async def test_two_sandboxes_that_know_different_repositories_do_not_help_each_other_out(playground: Any) -> None:
    """What one sandbox holds in place and another does not could be swapped for a link while it is mounted."""
    swap = "while :; do mv n o && ln -s ../outside n && rm n && mv o n; done 2>/dev/null"
    with BubblewrapSandbox(playground.profile()) as one:
        (playground.root / "n/.git/hooks").mkdir(parents=True)
        (playground.root / "n/.git/config").touch()
        with BubblewrapSandbox(playground.profile()) as other:
            swapping = await started(one, swap)
            refused = 0
            for _ in range(40):
                try:
                    await output_of(other, f"touch {playground.outside}/new")
                except SandboxError:
                    refused += 1
            swapping.kill()
            await swapping.wait()
    assert playground.check(type("Nothing", (), {"output": ""})()) == []


@pytest.mark.sweep
async def test_a_command_beside_another_sandboxs_cannot_have_swapped_mounts(
    playground: Any,
) -> None:
    swap = "while :; do mv vendor o && ln -s ../outside vendor && rm vendor && mv o vendor; done 2>/dev/null"
    with BubblewrapSandbox(playground.profile()) as one, BubblewrapSandbox(playground.profile()) as other:
        resting = await started(one, "sleep 100")
        swapping = await started(other, swap)
        resting.kill()
        await resting.wait()
        for _ in range(20):
            await output_of(
                other, f"touch {playground.outside}/new; echo evil > .git/hooks/x; echo evil >> .git/config"
            )
        swapping.kill()
        await swapping.wait()
        found = playground.check(type("Nothing", (), {"output": ""})())
        assert [line for line in found if "/outside" in line or "root/.git/" in line] == []
        assert (
            await output_of(other, "cat ~/.ssh/* 2>/dev/null; echo evil 2>/dev/null > .git/config; echo over")
            == "over\n"
        )


async def test_secrets_in_the_folder_are_hidden_while_another_sandbox_runs_there(playground: Any) -> None:
    profile = playground.profile(root=playground.home)
    with BubblewrapSandbox(profile) as one, BubblewrapSandbox(profile) as other:
        resting = await started(one, "sleep 100")
        for sandbox in (other, one):
            assert "secret" not in await output_of(sandbox, "cat .ssh/*")
        resting.kill()
        await resting.wait()


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not count root's processes")
async def test_the_kernel_limits_an_ordinary_users_processes_in_the_namespace_alone(playground: Any) -> None:
    others = sleepers(30)  # the user's own, which do not count
    try:
        with BubblewrapSandbox(playground.profile(limits=ProcessLimits(processes=5))) as sandbox:
            assert await output_of(sandbox, "ulimit -u") == "20\n"
            threads = (
                "import threading, time\nn = 0\ntry:\n  while n < 100: threading.Thread(target=time.sleep, args=(9,), "
                "daemon=True).start(); n += 1\nexcept RuntimeError: pass\nprint(n < 20)"
            )
            assert await output_of(sandbox, f"{PYTHON} -c '{threads}'") == "True\n"
            assert await output_of(sandbox, "echo still") == "still\n"
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.alone
@pytest.mark.parametrize("child", ["None", "os.setsid()"], ids=["in one group", "each in a session of its own"])
async def test_a_bomb_of_roots_is_ended_long_before_it_has_grown(playground: Any, child: str) -> None:
    """It is counted from outside: the kernel does not count root's processes. At most 2047 if nothing kills it."""
    code = (
        f"import os, time\nfor _ in range(11):\n  try: os.fork() or {child}\n  except OSError: break\n"
        "  os.close(os.open(f'made-{os.getpid()}', os.O_CREAT))\ntime.sleep(20)"
    )
    limits = ProcessLimits(processes=60)
    with BubblewrapSandbox(playground.profile(limits=limits)) as sandbox:
        process = await sandbox.spawn([PYTHON, "-c", code], cwd=str(playground.root))
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL
        assert process.ended_because == "it had more than 60 processes"
        assert len(list(playground.root.glob("made-*"))) < 1500
        assert await output_of(sandbox, "echo still") == "still\n"


def sleepers(number: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(["sleep", "60"]) for _ in range(number)]


@pytest.mark.parametrize("has_perl", [True, False])
async def test_a_command_starts_alike_with_and_without_perl(
    has_perl: bool, playground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_perl:
        monkeypatch.setattr("swink_agent.sandbox.bubblewrap.backend.find_perl", lambda outside: None)
    monkeypatch.setenv("LC_ALL", "none_NONE")  # Perl would write about it
    script = "mkdir a b; echo x > a/f; mv a/f b/; cat b/f; echo y > /dev/shm/f; cat /dev/shm/f; env | grep PERL"
    with BubblewrapSandbox(playground.profile()) as sandbox:
        outcome = await playground.run(sandbox, f"{script}; kill -FPE $$")
        assert outcome.code in (-8, 136)
        assert outcome.output.endswith("x\ny\n")
        assert "perl" not in outcome.output


async def test_a_program_that_is_missing_is_named(sandbox: BubblewrapSandbox) -> None:
    process = await sandbox.spawn(["/nowhere/program"], cwd=sandbox.profile.write[0])
    with suppress(SandboxError):  # without Perl
        assert await process.wait() == 127
    assert b"/nowhere/program: No such file or directory" in await process.output.read()
