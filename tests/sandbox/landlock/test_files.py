"""The guardian does what the kernel would have done for its command: the same results, modes and errors."""

# ruff: noqa: E501
from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.landlock.backend import LandlockSandbox

PYTHON = str(Path(sys.executable).resolve())

# Each line is one expression; its value or its errno is what is compared, here and in the sandbox.
OPERATIONS = r"""
put('a', b'one')
get('a')
put('a', b'two', 'ab'), get('a')
put('a', b'three', 'wb'), get('a')
flags(os.open('a', os.O_WRONLY))
flags(os.open('a', os.O_RDWR | os.O_APPEND | os.O_NONBLOCK))
flags(os.open('a', os.O_RDONLY | os.O_CREAT))
flags(os.open('new', os.O_RDONLY | os.O_CREAT, 0o640)), mode('new')
os.open('a', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.open('missing', os.O_WRONLY)
os.open('missing/x', os.O_WRONLY | os.O_CREAT)
os.open('a/x', os.O_WRONLY | os.O_CREAT)
os.open('a/', os.O_WRONLY)
os.open('b/', os.O_WRONLY | os.O_CREAT)
os.open('', os.O_WRONLY | os.O_CREAT)
os.open('.', os.O_WRONLY)
os.open('..', os.O_RDWR)
os.open('/', os.O_WRONLY)
os.open('x' * 256, os.O_WRONLY | os.O_CREAT)
os.open('x/' * 2100 + 'y', os.O_WRONLY | os.O_CREAT)
libc.open(ctypes.c_void_p(8), os.O_WRONLY | os.O_CREAT), ctypes.get_errno()
os.close(os.open('t', os.O_RDONLY | os.O_CREAT | os.O_TRUNC)), put('t', b'full'), os.close(os.open('t', os.O_RDONLY | os.O_TRUNC)), get('t')
os.open('d', os.O_WRONLY | os.O_CREAT | os.O_DIRECTORY) if sys.version_info < (3, 0) else None
os.mkdir('d'), mode('d')
os.mkdir('d')
os.mkdir('d/')
os.mkdir('e/'), mode('e')
os.mkdir('d/x/y')
os.mkdir('a/x')
os.mkdir('.')
os.mkdir('d/..')
os.mkdir('sticky', 0o1777), mode('sticky')
os.open('d', os.O_WRONLY)
os.open('d', os.O_RDONLY | os.O_CREAT)
os.open('a', os.O_WRONLY | os.O_DIRECTORY)
os.symlink('a', 'link'), os.readlink('link')
os.symlink('a', 'link')
os.symlink('a', 'nolink/')
os.symlink('nowhere', 'dangling')
os.symlink('loop', 'loop')
os.symlink('d', 'dlink')
os.symlink('', 'empty')
put('link', b'by link'), get('a')
os.open('link', os.O_WRONLY | os.O_NOFOLLOW)
os.open('link', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.open('dangling', os.O_WRONLY)
os.open('dangling', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
put('dangling', b'made'), get('nowhere'), os.path.islink('dangling')
os.open('loop', os.O_WRONLY | os.O_CREAT)
os.open('loop/x', os.O_WRONLY | os.O_CREAT)
put('dlink/in', b'in'), get('d/in')
put('dlink/../up', b'up'), get('up')
os.open('dlink/', os.O_WRONLY)
os.open('link/', os.O_WRONLY)
os.mkdir('dlink')
os.mkdir('dlink/'), 0
os.mkdir('dangling/x')
os.rmdir('dlink')
os.rmdir('dlink/')
os.unlink('d')
os.unlink('a/')
os.unlink('missing')
os.rmdir('a')
os.rmdir('d')
os.rmdir('.')
os.rmdir('d/..')
os.rmdir('e'), os.path.exists('e')
os.unlink('link'), os.path.exists('a')
os.link('a', 'hard'), os.stat('hard').st_nlink, os.stat('a').st_ino == os.stat('hard').st_ino
os.link('a', 'hard')
os.link('d', 'hardd')
os.link('missing', 'hard2')
os.link('dlink', 'hardlink', follow_symlinks=False), os.path.islink('hardlink')
os.link('a', 'nolink/')
os.rename('hard', 'moved'), os.path.exists('hard')
os.rename('missing', 'x')
os.rename('moved', 'd')
os.rename('d', 'moved')
os.rename('moved', 'd/'), 0
os.rename('moved/', 'moved2')
os.rename('d', 'd/inside')
os.rename('d', 'dd/'), os.path.isdir('dd'), os.rename('dd', 'd')
os.rename('.', 'x')
put('r1', b'1'), put('r2', b'2'), rename2('r1', 'r2', 2), get('r1'), get('r2')
rename2('r1', 'r2', 1)
rename2('r1', 'r3', 1), get('r3')
rename2('r3', 'r4', 8)
os.mkfifo('fifo'), stat.S_ISFIFO(os.stat('fifo').st_mode), mode('fifo')
os.mkfifo('fifo')
os.mknod('node', 0o600 | stat.S_IFREG), mode('node')
os.mknod('node2', 0o644), mode('node2')
os.open('fifo', os.O_WRONLY | os.O_NONBLOCK)
through_fifo(b'hello')
through_fifo(b'again', late=True)
flags(os.open('fifo', os.O_RDWR))
os.truncate('a', 3), get('a')
os.truncate('a', 5), get('a')
os.truncate('d', 0)
os.truncate('missing', 0)
os.truncate('a', -1)
write_then_truncate()
os.chmod('a', 0o751), mode('a')
os.chmod('d', 0o2755), mode('d'), os.chmod('d', 0o755)
os.chmod('missing', 0o644)
os.chmod('dangling', 0o600), mode('nowhere')
with_fd('a', lambda fd: os.fchmod(fd, 0o640)), mode('a')
os.chown('a', -1, -1), os.chown('a', os.getuid(), os.getgid()), os.stat('a').st_uid == os.getuid()
os.lchown('dlink', os.getuid(), -1)
with_fd('a', lambda fd: os.fchown(fd, -1, -1))
os.utime('a', ns=(10, 20)), os.stat('a').st_atime_ns, os.stat('a').st_mtime_ns
os.utime('dlink', ns=(30, 40), follow_symlinks=False), os.lstat('dlink').st_mtime_ns
with_fd('a', lambda fd: os.utime(fd, ns=(50, 60))), os.stat('a').st_mtime_ns
os.utime('a'), abs(os.stat('a').st_mtime - time.time()) < 60
os.utime('missing')
os.setxattr('a', 'user.x', b'value'), os.getxattr('a', 'user.x'), os.listxattr('a')
os.setxattr('a', 'user.x', b'again', os.XATTR_CREATE)
os.setxattr('a', 'user.big', b'v' * 3000), len(os.getxattr('a', 'user.big'))
os.setxattr('a', 'user.empty', b''), os.getxattr('a', 'user.empty')
with_fd('a', lambda fd: os.setxattr(fd, 'user.fd', b'fd')), os.getxattr('a', 'user.fd')
os.removexattr('a', 'user.x'), os.removexattr('a', 'user.big'), os.removexattr('a', 'user.x')
os.setxattr('dlink', 'user.x', b'v', follow_symlinks=False)
unnamed('d')
unnamed('missing')
unnamed('a')
linked_unnamed()
os.mkdir('w'), in_folder('w', lambda fd: os.close(os.open('f', os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))), mode('w/f')
in_folder('w', lambda fd: os.mkdir('g', dir_fd=fd)), mode('w/g')
in_folder('w', lambda fd: os.rename('f', 'h', src_dir_fd=fd, dst_dir_fd=fd)), os.listdir('w')
in_folder('w', lambda fd: os.unlink('h', dir_fd=fd)), os.listdir('w')
in_folder('w', lambda fd: os.symlink('q', 's', dir_fd=fd)), os.readlink('w/s')
in_folder('a', lambda fd: os.mkdir('g', dir_fd=fd))
os.mkdir('k', dir_fd=9999)
os.open('k', os.O_WRONLY | os.O_CREAT, dir_fd=9999)
in_folder('w', lambda fd: (os.rmdir('w/g'), os.unlink('w/s'), os.rmdir('w'), os.open('f', os.O_WRONLY | os.O_CREAT, dir_fd=fd)))
os.umask(0o027) and None, put('masked', b''), mode('masked'), os.mkdir('maskedd'), mode('maskedd'), os.umask(0o022) and None
put('unmasked', b''), mode('unmasked')
in_thread(lambda: os.umask(0o077) and None), put('t77', b''), mode('t77'), os.umask(0o022) and None
in_child(lambda: (os.umask(0o077), put('c77', b''))), mode('c77'), put('p22', b''), mode('p22')
put('/dev/null', b'x')
put('/dev/full', b'x')
get('/dev/zero', 4)
put('/dev/stdout', b''), put('/dev/fd/1', b''), put('/proc/self/fd/1', b''), put('/proc/thread-self/fd/1', b'')
reopened('a')
through_working_folder()
os.open('/proc/self/fd/9999', os.O_WRONLY)
os.open('/proc/self/nothing', os.O_WRONLY)
memory_file()
put('d/\udcff\udcfe', b'odd'), os.listdir(b'd')
put('sp ace\n', b'x'), get('sp ace\n')
deep()
many(200)
copied()
in_child(lambda: put('by child', b'1')), get('by child')
locked()
tempfile.TemporaryFile().write(b'x')
shutil.rmtree('d'), os.path.exists('d')
sorted(os.listdir('.'))
"""

HELPERS = r"""
import os, sys, stat, time, errno, fcntl, ctypes, json, threading, tempfile, shutil, mmap
os.umask(0o022)
libc = ctypes.CDLL(None, use_errno=True)
def put(path, data, how='wb'):
    with open(path, how) as file: file.write(data)
def get(path, length=-1):
    with open(path, 'rb') as file: return file.read(length)
def mode(path): return oct(os.lstat(path).st_mode)
def flags(fd):
    kept = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_DIRECT | os.O_SYNC
    found = fcntl.fcntl(fd, fcntl.F_GETFL) & kept, fcntl.fcntl(fd, fcntl.F_GETFD)
    os.close(fd)
    return found
def with_fd(path, act):
    fd = os.open(path, os.O_RDONLY)
    try: return act(fd)
    finally: os.close(fd)
in_folder = with_fd
def rename2(old, new, how):
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), how): raise OSError(ctypes.get_errno(), '')
def through_fifo(data, late=False):
    got = []
    def read():
        if late: time.sleep(0.1)
        got.append(get('fifo'))
    thread = threading.Thread(target=read); thread.start()
    put('fifo', data); thread.join()
    return got
def write_then_truncate():
    with open('wt', 'wb') as file:
        file.write(b'12345'); file.flush(); os.ftruncate(file.fileno(), 2); os.posix_fallocate(file.fileno(), 0, 4)
        kept = mmap.mmap(file.fileno(), 4, prot=mmap.PROT_READ) if False else None
    return get('wt')
def unnamed(folder):
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b'x'); found = os.fstat(fd).st_nlink, oct(os.fstat(fd).st_mode); os.close(fd)
    return found
def linked_unnamed():
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(fd, b'named')
    os.link(f'/proc/self/fd/{fd}', 'named', follow_symlinks=True); os.close(fd)
    return get('named')
def in_thread(act):
    thread = threading.Thread(target=act); thread.start(); thread.join()
def in_child(act):
    pid = os.fork()
    if pid == 0:
        try: act(); os._exit(0)
        finally: os._exit(1)
    return os.waitpid(pid, 0)[1]
def reopened(path):
    with open(path, 'rb') as file:
        with open(f'/proc/self/fd/{file.fileno()}', 'r+b') as again: again.write(b'RE')
    return get(path)
def through_working_folder():
    put('/proc/self/cwd/cw', b'cw'); os.rename('/proc/self/cwd/cw', 'cw2')
    return get('cw2')
def memory_file():
    fd = os.memfd_create('m'); os.fchmod(fd, 0o600)
    with open(f'/proc/self/fd/{fd}', 'r+b') as file: file.write(b'mem')
    return os.pread(fd, 9, 0)
def deep():
    here = os.open('.', os.O_RDONLY)
    for _ in range(30):
        os.mkdir('n' * 200); os.chdir('n' * 200)
    put('bottom', b'b'); found = get('bottom')
    os.fchdir(here); os.close(here); shutil.rmtree('n' * 200)
    return found
def many(count):
    os.mkdir('many')
    for index in range(count): put(f'many/{index}', b'%d' % index)
    found = sum(int(get(f'many/{name}')) for name in os.listdir('many'))
    shutil.rmtree('many')
    return found
def copied():
    shutil.copy2('a', 'copy')
    return get('copy') == get('a'), os.stat('copy').st_mtime_ns == os.stat('a').st_mtime_ns
def locked():
    with open('lock', 'w') as file: fcntl.flock(file, fcntl.LOCK_EX); fcntl.lockf(file, fcntl.LOCK_EX)
def act(line):
    try: return eval(line)
    except OSError as error: return f'{type(error).__name__} {errno.errorcode.get(error.errno)}'
results = [(line, repr(act(line))) for line in sys.stdin.read().splitlines() if line.strip()]
sys.stderr.flush(); os.write(1, json.dumps(results).encode())
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def sandbox(root: Path) -> Iterator[LandlockSandbox]:
    with LandlockSandbox(SandboxProfile(write=(str(root),))) as opened:
        assert isinstance(opened, LandlockSandbox)
        yield opened


def run_bare(command: list[str], stdin: str, cwd: Path) -> str:
    return subprocess.run(
        command, input=stdin, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True, timeout=50
    ).stdout


def modes_in(folder: Path, mask: int) -> dict[str, int]:
    return {path.name: path.stat().st_mode & mask for path in folder.iterdir()}


def names_in(folder: str) -> set[str]:
    return set(os.listdir(folder))


def texts_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.glob("*/*")}


async def run(sandbox: LandlockSandbox, *argv: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
    process = await sandbox.spawn(argv, cwd=sandbox.profile.write[0], stdin=stdin)
    output = await process.output.read()
    return await process.wait(), output.decode()


async def test_files_are_made_changed_and_refused_as_without_a_sandbox(
    root: Path, sandbox: LandlockSandbox, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    command = [PYTHON, "-I", "-c", HELPERS]
    expected = run_bare(command, OPERATIONS, bare)
    (tmp_path / "operations").write_text(OPERATIONS)
    with (tmp_path / "operations").open() as file:
        code, output = await run(sandbox, *command, stdin=file.fileno())
    assert code == 0, output
    assert dict(json.loads(output)) == dict(json.loads(expected))
    assert len(json.loads(output)) > 120


async def test_the_umask_of_the_agent_is_where_a_command_begins(sandbox: LandlockSandbox, root: Path) -> None:
    _, said = await run(sandbox, "/bin/sh", "-c", "umask; touch f; umask 077; touch g; (umask 002; touch h); touch i")
    expected = run_bare(["/bin/sh", "-c", "umask"], "", root)
    assert said == expected
    mode = 0o666 & ~int(expected, 8)
    assert modes_in(root, 0o777) == {"f": mode, "g": 0o600, "h": 0o664, "i": 0o600}


async def test_nothing_that_is_made_runs_with_the_rights_of_its_owner(sandbox: LandlockSandbox, root: Path) -> None:
    script = "cp /bin/true t; chmod u+s t; chmod g+s t; chmod 6755 t; install -m 4755 /bin/true i; mkdir d; chmod g+s d"
    await run(sandbox, "/bin/sh", "-c", script)
    found = modes_in(root, 0o6000)
    assert found == {"t": 0, "d": 0o2000} | dict.fromkeys({"i"} & found.keys(), 0)


async def test_nothing_outside_the_roots_changes_mode_owner_times_or_attributes(
    sandbox: LandlockSandbox, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    before = [path.stat() for path in (outside, folder)]
    script = """
import os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    for act in (
        lambda: os.chmod(path, 0o777), lambda: os.fchmod(fd, 0o777), lambda: os.chmod(f"/proc/self/fd/{fd}", 0o777),
        lambda: os.chown(path, -1, 0), lambda: os.fchown(fd, -1, 0), lambda: os.lchown(path, -1, 0),
        lambda: os.utime(path, (1, 1)), lambda: os.utime(fd, (1, 1)), lambda: os.utime(path, (1, 1), follow_symlinks=False),
        lambda: os.setxattr(path, "user.x", b""), lambda: os.setxattr(fd, "user.x", b""),
        lambda: os.truncate(path, 0), lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(path, os.O_WRONLY), lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR),
        lambda: os.link(path, "linked"), lambda: os.link(f"/proc/self/fd/{fd}", "linked", follow_symlinks=True),
        lambda: os.rename(path, "moved"), lambda: os.unlink(path), lambda: os.rmdir(path), lambda: os.mkdir(path + "/x"),
    ):
        try:
            act()
        except OSError:
            continue
        print("done", path)
"""
    assert await run(sandbox, PYTHON, "-I", "-c", script, str(outside), str(folder)) == (0, "")
    assert [path.stat() for path in (outside, folder)] == before
    assert outside.read_text() == "kept"


async def test_semaphores_and_shared_memory_work_and_stay_private(sandbox: LandlockSandbox) -> None:
    before = names_in("/dev/shm")
    script = """
import multiprocessing, multiprocessing.pool
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    lock, value = context.Lock(), context.Value("i", 0)
    def work(count):
        for _ in range(count):
            with value.get_lock(): value.value += 1
    workers = [context.Process(target=work, args=(50,)) for _ in range(3)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    print(value.value)
"""
    assert await run(sandbox, PYTHON, "-I", "-c", script) == (0, "150\n")
    assert names_in("/dev/shm") == before


@pytest.mark.sweep
async def test_two_thousand_files_are_quick(sandbox: LandlockSandbox, root: Path, tmp_path: Path) -> None:
    script = "import os\nfor i in range(2000):\n    with open(f'f{i}', 'w') as f: f.write('x')"
    assert await run(sandbox, PYTHON, "-I", "-c", script) == (0, "")
    assert len(names_in(str(root))) == 2000
    assert await run(sandbox, "/bin/sh", "-c", "rm f*") == (0, "")
    assert names_in(str(root)) == set()


async def test_paths_are_the_callers_own_whatever_the_threads_do(sandbox: LandlockSandbox, root: Path) -> None:
    """Many processes with different working folders, served by one guardian."""
    script = "for i in 1 2 3 4 5 6; do (mkdir d$i; cd d$i; for j in 1 2 3 4 5; do echo $i > f$j; done) & done; wait"
    assert await run(sandbox, "/bin/bash", "-c", script) == (0, "")
    assert texts_in(root) == {f"d{i}/f{j}": f"{i}\n" for i in range(1, 7) for j in range(1, 6)}


async def test_commands_run_next_to_each_other(sandbox: LandlockSandbox, root: Path) -> None:
    scripts = [f"for i in 1 2 3; do echo {number} >> f{number}; done; cat f{number}" for number in range(8)]
    results = await asyncio.gather(*(run(sandbox, "/bin/bash", "-c", script) for script in scripts))
    assert results == [(0, f"{number}\n" * 3) for number in range(8)]
