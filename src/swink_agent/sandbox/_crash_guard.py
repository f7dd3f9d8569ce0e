"""Ends background commands that no kernel boundary holds together when this program dies, by any signal.

A small process of ours waits at the end of a pipe. It is told which commands run. If the pipe is closed while some do,
nobody is left to end them, and it kills their groups and, on Linux, every process that has the sandbox's mark.
"""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress

from .errors import SandboxError
from .programs import own_interpreter
from .starting import start_program

_PATIENCE = 5.0
_SCRIPT = """
import os, signal, sys, time
wanted, groups = os.fsencode(sys.argv[1]), set()
for line in sys.stdin.buffer:
    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
def marked():
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open(f"/proc/{int(name)}/environ", "rb") as file:
                if any(variable.startswith(wanted) for variable in file.read().split(b"\\0")):
                    yield int(name)
        except (OSError, ValueError):
            pass
end = time.monotonic() + 10
while time.monotonic() < end:
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass
    left = list(marked()) if groups else ()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    if not left:
        break
    time.sleep(0.01)
"""


class CrashGuard:
    """Guards the background commands of one sandbox, whose processes have a variable that begins with `mark`.

    Its process is started with the first command. Safe for several threads.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Starts the process, before a command that it guards. Raises `SandboxError`."""
        with self._lock:
            if self._process is not None:
                return
            try:
                self._process = start_program(
                    [own_interpreter(), "-I", "-S", "-c", _SCRIPT, self._mark],
                    outside=(),
                    environ={},
                    stdin=subprocess.PIPE,
                    new_session=True,
                )
            except OSError as error:
                raise SandboxError(
                    f"the command was not run: nothing could end it if this program died ({error})", remedy=""
                ) from error

    def add(self, pid: int) -> None:
        self._write(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        self._write(f"-{pid}\n")

    def close(self) -> None:
        """Ends the process. The commands must have ended. Idempotent."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _write(self, line: str) -> None:
        with self._lock, suppress(OSError):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
