"""Read-only names beneath a writable root: no call, link or race gets around them."""

# ruff: noqa: E501
from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.landlock.backend import LandlockSandbox

PYTHON = str(Path(sys.executable).resolve())

# Tries every way to change or make what is named in the arguments, and tells which did not fail.
ATTACK = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), "")
def rename(old, new, how): check(libc.renameat2(-100, old.encode(), -100, new.encode(), how))
def by_folder(path, act):
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try: return act(os.path.basename(path), folder)
    finally: os.close(folder)
def by_descriptor(path, act):
    descriptor = os.open(path, os.O_RDONLY)
    try: return act(descriptor)
    finally: os.close(descriptor)
def fresh():
    open("mine", "w").write("evil"); os.makedirs("folder/inner", exist_ok=True); open("folder/evil", "w").close()
WAYS = {
    "write": lambda p: os.open(p, os.O_WRONLY),
    "read and write": lambda p: os.open(p, os.O_RDWR),
    "create": lambda p: os.open(p, os.O_WRONLY | os.O_CREAT, 0o755),
    "create to read": lambda p: os.stat(p) and None or os.open(p, os.O_RDONLY | os.O_CREAT) if not os.path.lexists(p) else 1 / 0,
    "exclusive": lambda p: os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "append": lambda p: os.open(p, os.O_WRONLY | os.O_APPEND),
    "truncate by open": lambda p: os.open(p, os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda p: os.truncate(p, 0),
    "by folder": lambda p: by_folder(p, lambda name, fd: os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=fd)),
    "by case": lambda p: os.open(p.upper(), os.O_WRONLY | os.O_CREAT),
    "by dots": lambda p: os.open("folder/../" + p, os.O_WRONLY | os.O_CREAT),
    "by slashes": lambda p: os.open("./" + p.replace("/", "//./"), os.O_WRONLY | os.O_CREAT),
    "by absolute path": lambda p: os.open(os.path.abspath(p), os.O_WRONLY | os.O_CREAT),
    "by /proc/self/cwd": lambda p: os.open("/proc/self/cwd/" + p, os.O_WRONLY | os.O_CREAT),
    "by /proc/self/root": lambda p: os.open("/proc/self/root" + os.path.abspath(p), os.O_WRONLY | os.O_CREAT),
    "by descriptor": lambda p: by_descriptor(p, lambda fd: os.open(f"/proc/self/fd/{fd}", os.O_RDWR)),
    "by /dev/fd": lambda p: by_descriptor(p, lambda fd: os.open(f"/dev/fd/{fd}", os.O_WRONLY)),
    "by link": lambda p: (os.path.lexists("l") and os.unlink("l"), os.symlink(os.path.abspath(p), "l"), os.open("l", os.O_WRONLY | os.O_CREAT)),
    "by link to the folder": lambda p: (os.path.lexists("l") and os.unlink("l"), os.symlink(os.path.dirname(p) or ".", "l"), os.open("l/" + os.path.basename(p), os.O_WRONLY | os.O_CREAT)),
    "by hard link": lambda p: (os.link(p, "hard"), os.open("hard", os.O_WRONLY)),
    "by hard link of descriptor": lambda p: by_descriptor(p, lambda fd: os.link(f"/proc/self/fd/{fd}", "hard", follow_symlinks=True)),
    "hard link onto": lambda p: (fresh(), os.link("mine", p)),
    "symlink": lambda p: os.symlink("/tmp", p),
    "mkdir": lambda p: os.mkdir(p),
    "makedirs": lambda p: os.makedirs(p) if not os.path.lexists(p) else 1 / 0,
    "mkfifo": lambda p: os.mkfifo(p),
    "mknod": lambda p: os.mknod(p),
    "rename onto": lambda p: (fresh(), os.rename("mine", p)),
    "rename folder onto": lambda p: (fresh(), os.rename("folder", p)),
    "exchange": lambda p: (fresh(), rename("mine", p, 2)),
    "exchange from": lambda p: (fresh(), rename(p, "mine", 2)),
    "exchange folder": lambda p: (fresh(), rename("folder", p, 2)),
    "rename away": lambda p: os.rename(p, "away"),
    "rename away by folder": lambda p: by_folder(p, lambda name, fd: os.rename(name, "away", src_dir_fd=fd)),
    "unlink": lambda p: os.unlink(p),
    "rmdir": lambda p: os.rmdir(p),
    "chmod": lambda p: os.chmod(p, 0o777),
    "fchmod": lambda p: by_descriptor(p, lambda fd: os.fchmod(fd, 0o777)),
    "chmod by descriptor": lambda p: by_descriptor(p, lambda fd: os.chmod(f"/proc/self/fd/{fd}", 0o777)),
    "chown": lambda p: os.chown(p, -1, 1),
    "utime": lambda p: os.utime(p, (1, 1)),
    "futimens": lambda p: by_descriptor(p, lambda fd: os.utime(fd, (1, 1))),
    "setxattr": lambda p: os.setxattr(p, "user.x", b"x"),
    "fsetxattr": lambda p: by_descriptor(p, lambda fd: os.setxattr(fd, "user.x", b"x")),
    "unnamed file": lambda p: os.open(p, os.O_TMPFILE | os.O_RDWR),
    "openat2": lambda p: check(libc.syscall(437, -100, p.encode(), (ctypes.c_uint64 * 3)(os.O_WRONLY | os.O_CREAT, 0o644, 0), 24)),
    "fchmodat2": lambda p: check(libc.syscall(452, -100, p.encode(), 0o777, 0)),
    "bind": lambda p: __import__("socket").socketpair()[0].bind(p),
    "rename the folder above": lambda p: os.rename(os.path.dirname(p), "above") if os.path.dirname(p) else 1 / 0,
    "exchange the folder above": lambda p: (fresh(), rename(os.path.dirname(p), "folder", 2)) if os.path.dirname(p) else 1 / 0,
}
for path in sys.argv[1:]:
    for name, way in WAYS.items():
        try:
            way(path)
        except (OSError, ZeroDivisionError):
            continue
        print(f"{name}: {path}")
"""


def git(folder: Path, *arguments: str) -> None:
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    for arguments in (("init", "-q", "-b", "main"), ("config", "user.name", "a"), ("config", "user.email", "a@b")):
        git(root, *arguments)
    (root / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    return root


@pytest.fixture
def sandbox(root: Path) -> Iterator[LandlockSandbox]:
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as opened:
        assert isinstance(opened, LandlockSandbox)
        yield opened


async def run(sandbox: LandlockSandbox, *argv: str, cwd: str | None = None) -> tuple[int, str]:
    process = await sandbox.spawn(argv, cwd=cwd or sandbox.profile.write[0])
    output = await process.output.read()
    return await process.wait(), output.decode()


def snapshot(paths: Sequence[Path]) -> dict[str, object]:
    """Everything about the files beneath, but when they were last read."""
    found: dict[str, object] = {}
    for top in paths:
        for path in (top, *top.rglob("*")) if top.is_dir() else (top,):
            if path.is_symlink() or path.exists():
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else None
                found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, status.st_nlink, content)
    return found


async def test_no_way_to_change_leads_to_what_exists(sandbox: LandlockSandbox, root: Path) -> None:
    targets = [".git/config", ".git/hooks/pre-commit", ".git/hooks"]
    paths = [root / ".git" / "config", root / ".git" / "hooks"]
    before = snapshot(paths)
    assert await run(sandbox, PYTHON, "-I", "-c", ATTACK, *targets) == (0, "")
    assert snapshot(paths) == before
    assert (root / ".git").is_dir()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed, and the command runs it")
async def test_a_planted_repository_has_no_hooks(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as sandbox:
        assert isinstance(sandbox, LandlockSandbox)
        script = (
            "mkdir -p x/hooks; echo evil > x/hooks/pre-commit; chmod +x x/hooks/*; mv x .git; git init -q; echo made"
        )
        code, output = await run(sandbox, "/bin/bash", "-c", script)
        assert (code, output.splitlines()[-1]) == (0, "made")
        assert (root / ".git/HEAD").exists()
        assert not (root / ".git/hooks/pre-commit").exists()
        attack = (PYTHON, "-I", "-c", ATTACK, ".git/config", ".git/hooks", ".git/hooks/pre-commit")
        assert await run(sandbox, *attack) == (0, "")
        assert not (root / ".git/hooks/pre-commit").exists()


async def test_git_works_but_for_its_configuration(sandbox: LandlockSandbox, root: Path) -> None:
    (root / ".git" / "hooks" / "pre-commit").unlink()
    script = """set -e
echo one > a; git add a; git commit -qm first; git checkout -qb side; echo two >> a; git commit -qam second
git checkout -q main; git merge -q side; git tag t; git stash list; git gc -q; git status --porcelain; git log --oneline | wc -l
git rm -q a; git commit -qm third; git branch -D side; ! git config a.b c; ! git init -q 2>/dev/null; git fsck"""
    code, output = await run(sandbox, "/bin/bash", "-c", script)
    assert code == 0, output
    assert "2\n" in output
    assert "could not write config file" in output or "could not lock config file" in output
    assert not (root / ".git" / "config.lock").exists()
    git(root, "fsck")


async def test_a_new_repository_further_in_can_be_made_and_an_old_one_is_protected(root: Path) -> None:
    inner = root / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as sandbox:
        assert isinstance(sandbox, LandlockSandbox)
        before = snapshot([inner / ".git" / "hooks", inner / ".git" / "config"])
        targets = ["inner/.git/config", "inner/.git/hooks/pre-commit"]
        assert await run(sandbox, PYTHON, "-I", "-c", ATTACK, *targets) == (0, "")
        code, output = await run(
            sandbox, "/bin/bash", "-c", "! mv inner other && git init -q new && test -d new/.git/hooks"
        )
        assert code == 0, output
    assert snapshot([inner / ".git" / "hooks", inner / ".git" / "config"]) == before


async def test_the_target_of_a_protected_link_is_protected(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / "common-hooks").mkdir()
    (root / "common-hooks" / "pre-commit").write_text("kept")
    (root / ".git" / "hooks").symlink_to("../common-hooks")
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as sandbox:
        assert isinstance(sandbox, LandlockSandbox)
        targets = ["common-hooks/pre-commit", "common-hooks/post-commit", ".git/hooks/pre-commit", ".git/hooks"]
        before = snapshot([root / ".git", root / "common-hooks"])
        assert await run(sandbox, PYTHON, "-I", "-c", ATTACK, *targets) == (0, "")
    after = snapshot([root / ".git", root / "common-hooks"])
    assert {path: state for path, state in after.items() if path in before} == before
    assert set(after) == set(before)


async def test_a_file_that_was_linked_before_is_protected_under_its_other_name(root: Path) -> None:
    (root / "alias").hardlink_to(root / ".git" / "config")
    before = (root / ".git" / "config").read_text()
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as sandbox:
        assert isinstance(sandbox, LandlockSandbox)
        script = "echo evil >> alias; echo evil > alias; : > alias; truncate -s 0 alias; chmod 777 alias; sed -i s/a/b/ alias"
        await run(sandbox, "/bin/bash", "-c", script)
    assert (root / ".git" / "config").read_text() == before


async def test_a_root_in_another_root_stays_where_it_is(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "way" / "inner"
    inner.mkdir(parents=True)
    with LandlockSandbox(SandboxProfile(write=(str(outer), str(inner)), protected=())) as sandbox:
        assert isinstance(sandbox, LandlockSandbox)
        script = (
            "mv way other; mv way/inner x; rm -rf way/inner; rmdir way/inner; ln -sfn /etc way; ln -sfn /etc way/inner"
        )
        await run(sandbox, "/bin/bash", "-c", f"{script}; touch way/inner/works")
    assert (inner / "works").is_file()
    assert not (outer / "way").is_symlink()


# Races: a guardian that judged first and let the kernel act afterwards would lose these within a second.

SWAP = r"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
allowed, forbidden = (name.encode() + b"\0" for name in sys.argv[2:4])
buffer = ctypes.create_string_buffer(max(len(allowed), len(forbidden)))
tries, running = int(sys.argv[1]), True
def rewrite():
    while running:
        for text in (forbidden, allowed) * 50: ctypes.memmove(buffer, text, len(text))
threads = [threading.Thread(target=rewrite) for _ in range(2)]
for thread in threads: thread.start()
sys.setswitchinterval(0.00001)
done = 0
for _ in range(tries):
    fd = libc.open(buffer, os.O_WRONLY | os.O_CREAT, 0o644)
    if fd >= 0: done += 1; libc.write(fd, b"x", 1); libc.close(fd)
    libc.chmod(buffer, 0o666)
    libc.rename(b"mine", buffer)
    libc.link(b"mine", buffer)
    libc.truncate(buffer, ctypes.c_long(1))
    libc.unlink(buffer)
    libc.mkdir(buffer, 0o755); libc.rmdir(buffer)
running = False
for thread in threads: thread.join()
print(0 <= done <= tries)  # how many got through to the harmless one is the scheduler's choice
"""

SWITCH = r"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
name, good, bad = sys.argv[2:5]
tries, running = int(sys.argv[1]), True
os.symlink(good, "one"); os.symlink(bad, "two")
def switch():
    while running: libc.renameat2(-100, b"one", -100, b"two", 2)
threads = [threading.Thread(target=switch)]
for thread in threads: thread.start()
done = 0
path = b"one/" + name.encode()
for _ in range(tries):
    fd = libc.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
    if fd >= 0: done += 1; libc.write(fd, b"evil", 4); libc.close(fd)
    libc.chmod(path, 0o777)
    libc.rename(b"mine", path)
    libc.unlink(path)
running = False
for thread in threads: thread.join()
print(0 <= done <= tries)  # how many got through to the harmless one is the scheduler's choice
"""


@pytest.mark.parametrize("tries", [20, pytest.param(600, marks=pytest.mark.sweep)])
async def test_no_path_that_is_rewritten_while_it_is_judged_gets_through(
    sandbox: LandlockSandbox, root: Path, tries: int
) -> None:
    before = snapshot([root / ".git" / "config", root / ".git" / "hooks"])
    (root / "mine").write_text("evil")
    arguments = ("-I", "-c", SWAP, str(tries), "a/harmless-ok", ".git/hooks/aa")
    (root / "a").mkdir()
    assert await run(sandbox, PYTHON, *arguments) == (0, "True\n")
    assert snapshot([root / ".git" / "config", root / ".git" / "hooks"]) == before
    assert await run(sandbox, PYTHON, "-I", "-c", SWAP, str(tries // 2), "a/harmle-ok", ".git/config") == (0, "True\n")
    assert snapshot([root / ".git" / "config", root / ".git" / "hooks"]) == before


@pytest.mark.sweep
async def test_no_link_that_is_switched_while_it_is_followed_gets_through(
    sandbox: LandlockSandbox, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "good").mkdir()
    paths = [root / ".git" / "config", root / ".git" / "hooks", outside]
    before = snapshot(paths)
    arguments = (PYTHON, "-I", "-c", SWITCH, "800", "pre-commit")
    assert await run(sandbox, *arguments, "good", ".git/hooks") == (0, "True\n")
    assert snapshot(paths) == before
    assert await run(sandbox, "/bin/rm", "-f", "one", "two") == (0, "")
    assert await run(sandbox, *arguments, "good", str(outside)) == (0, "True\n")
    assert snapshot(paths) == before


@pytest.mark.sweep
async def test_no_folder_that_is_moved_while_it_is_used_gets_through(sandbox: LandlockSandbox, root: Path) -> None:
    """Two commands with two guardians: one moves a folder about, the other writes into it."""
    (root / "carrier" / "hooks").mkdir(parents=True)
    before = snapshot([root / ".git" / "config", root / ".git" / "hooks"])
    move = "end=$((SECONDS+2)); while [ $SECONDS -lt $end ]; do mv carrier .git/x; mv carrier y; mv y .git; mv .git z; mv .git/x carrier; mv y carrier; done 2>/dev/null"
    write = "end=$((SECONDS+2)); while [ $SECONDS -lt $end ]; do echo evil > carrier/hooks/pre-commit; echo evil > y/hooks/pre-commit; echo > y/config; done 2>/dev/null"
    await asyncio.gather(*(run(sandbox, "/bin/bash", "-c", script) for script in (move, write, write)))
    assert snapshot([root / ".git" / "config", root / ".git" / "hooks"]) == before
