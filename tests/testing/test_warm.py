"""A program that is forked from a loaded one has the same surroundings as one that is started."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ..warm import WarmStarts, open_warm_starts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every program is started")

ENVIRON = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SSL_CERT_FILE": os.devnull}
LOOK = """
import json, os, signal, sys, threading
streams = sys.stdin, sys.stdout, sys.stderr
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    has_terminal = True
except OSError:
    has_terminal = False
print(json.dumps({
    "arguments": sys.argv[1:],
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "has a terminal": has_terminal,
    "is the first of its session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "is the program itself": __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals(),
    "modules are looked for in": sys.path,
    "signals": {number: str(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "signals that wait": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "streams": [[file.encoding, file.errors, file.line_buffering, file.isatty()] for file in streams],
    "threads": threading.active_count(),
    "umask": os.umask(0),
    "warnings": sys.warnoptions,
}))
print("" if sys.stdin.isatty() else sys.stdin.read())
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmStarts]:
    with open_warm_starts({**ENVIRON, "HOME": os.devnull}) as starts:
        assert starts is not None
        yield starts


@pytest.mark.parametrize("stdin", [None, b"some text\n"])
async def test_it_finds_the_same(tmp_path: Path, warm: WarmStarts, stdin: bytes | None) -> None:
    environ = {**ENVIRON, "HOME": str(tmp_path), "SWINK_MODEL": "x"}
    assert warm.can_start_with(environ)
    code, stdout, stderr = await warm.run(LOOK, ["a", "ä b"], tmp_path, environ, stdin=stdin, path=[""])
    started = await asyncio.create_subprocess_exec(
        *[sys.executable, "-W", "error", "-c", LOOK, "a", "ä b"],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environ,
        start_new_session=True,
    )
    assert (stdout, stderr) == await started.communicate(stdin)
    assert code == started.returncode == 7


async def test_a_terminal_is_its_own_and_it_ends_as_it_ends(tmp_path: Path, warm: WarmStarts) -> None:
    async def at_a_terminal(start: Any) -> tuple[str, int]:
        master, slave = pty.openpty()
        with os.fdopen(master, "rb", 0) as shown:
            process = await start((slave, slave, slave))
            os.close(slave)
            code = await asyncio.wait_for(process.wait(), 30)
            text = b""
            with suppress(OSError):  # which is how the end is told
                while more := shown.read(4096):
                    text += more
            return text.decode(), code

    def started(streams: tuple[int, int, int]) -> Any:
        stdin, stdout, stderr = streams
        words = (
            sys.executable,
            "-W",
            "error",
            "-c",
            f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{LOOK}",
        )
        return asyncio.create_subprocess_exec(
            *words, stdin=stdin, stdout=stdout, stderr=stderr, cwd=tmp_path, env=ENVIRON, start_new_session=True
        )

    shown = await at_a_terminal(lambda streams: warm.start(LOOK, [], tmp_path, ENVIRON, streams, path=[""]))
    assert '"has a terminal": true' in shown[0]
    assert shown == await at_a_terminal(started)
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert (await warm.run(killed, [], tmp_path, ENVIRON))[0] == -signal.SIGKILL
    code, _, stderr = await warm.run("raise OSError('gone')", [], tmp_path, ENVIRON)
    assert (code, stderr.splitlines()[-1]) == (1, b"OSError: gone")


ENDS = [
    "print('written')",
    "import sys; print('written'); sys.exit('a reason')",
    "import sys; sys.exit(300)",
    "import sys; sys.exit(True)",
    "import atexit; atexit.register(print, 'at the end')",
    "import threading\nword = 'after it'\nthreading.Timer(0.05, lambda: print(word)).start()",
    "raise KeyboardInterrupt",
    "import sys; sys.stdout.write('x'); sys.stdout.close()",
    "import os; os.close(1); print('to nobody')",
    "import os, sys\nif child := os.fork(): print(os.waitpid(child, 0)[1])\nelse: sys.exit(3)",
    "file = open('/dev/null')",
]


async def test_it_ends_as_a_program_does_that_was_started(tmp_path: Path, warm: WarmStarts) -> None:
    for program in ENDS:
        code, stdout, stderr = await warm.run(program, [], tmp_path, ENVIRON)
        started = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-W", "error", "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=tmp_path,
            env=ENVIRON,
            check=False,
        )
        assert (code, stdout) == (started.returncode, started.stdout), program
        assert stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:], program


def test_variables_that_a_process_reads_once_are_not_passed_to_it(warm: WarmStarts) -> None:
    for name in ("PYTHONPATH", "PYTHONUTF8", "LC_ALL", "TZ"):
        assert not warm.can_start_with({**ENVIRON, name: "x"})
    assert not warm.can_start_with({"PATH": ENVIRON["PATH"]})
