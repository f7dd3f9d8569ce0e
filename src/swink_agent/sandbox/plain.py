"""Child processes without namespaces: in a new session, with a search for processes that they left behind.

For commands that no kernel boundary holds together: those that the user runs unconfined, and those that macOS confines.
A process that left its group and lost its parent is found only on Linux, and only if it kept its environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .errors import SandboxClosed, SandboxError
from .kernel.process_tree import Watch, count_heads, kill_descendants, limit_process, with_variable
from .kernel.usage import Usage
from .network.reached import ReachedLog
from .output import OutputPipe, watch_exit
from .private import PrivateFolder
from .process import Sandbox, SandboxedProcess, SpawnRequest
from .profile import SandboxProfile
from .programs import own_interpreter
from .starting import end_helper, start_program

if TYPE_CHECKING:
    from .network.serving import SharedProxy

_MARK = "SWINK_COMMAND"
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


class PlainSandbox(Sandbox):
    """The common part of `UnconfinedSandbox` and `SeatbeltSandbox`. A subclass defines the command line."""

    def __init__(self, profile: SandboxProfile) -> None:
        super().__init__(profile)
        self._private = PrivateFolder(avoid=() if self.backend == "off" else profile.write)
        self._running: set[_PlainCommand] = set()
        self._mark = secrets.token_hex(8)
        self._guard = _CrashGuard(f"{_MARK}={self._mark}")
        # Even if the sandbox is never closed, commands are killed and the folder is removed.
        self._finalizer = weakref.finalize(self, _end, self._running, self._private, self._guard, os.getpid())
        self._watch = Watch()

    def command_line(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def read_only(self) -> Sequence[str]:
        """The paths beneath the write roots that are read-only for commands."""
        return ()

    def proxy(self) -> SharedProxy | None:
        """The proxy through which commands reach hosts by name, if there is one."""
        return None

    async def _start(self, request: SpawnRequest) -> tuple[SandboxedProcess, Sequence[str]]:
        if request.background:
            self._guard.prepare()
        proxy = self.proxy()
        command = _PlainCommand(self.profile, self._watch, self._ended, self._mark, proxy)
        variables = self.child_environment(self._private.path, request.environment, proxy and proxy.variables)
        process = command.start(self.command_line(request.argv), variables, request)
        self._running.add(command)
        self._guard.add(process.pid)
        if self._closed:  # in another thread
            command.abandon()
            raise SandboxClosed
        return process, self.read_only()

    def close(self) -> None:
        if self._begin_to_close():
            self._finalizer()
            self._watch.close()

    def _ended(self, command: _PlainCommand) -> None:
        self._running.discard(command)
        self._guard.remove(command.pid)


class UnconfinedSandbox(PlainSandbox):
    """Runs commands without a sandbox, by the user's explicit choice. Reads, writes and the network are not limited."""

    backend = "off"

    async def _before_command(self) -> None:
        return None  # a command may write everywhere


def _end(running: set[_PlainCommand], private: PrivateFolder, guard: _CrashGuard, owner: int) -> None:
    if os.getpid() == owner:  # a fork of ours that ends must not kill them
        for command in tuple(running):
            command.abandon()
        guard.close()
        private.close()


class _CrashGuard:
    """Kills background commands if this program dies, by any signal. Safe for several threads.

    A small process of ours gets the numbers of running commands through a pipe. If this program dies, the pipe ends.
    Then the process kills the groups of these commands and, on Linux, every process with a variable that begins with
    `mark`. It starts with the first background command.
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
            end_helper(process, _PATIENCE)

    def _write(self, line: str) -> None:
        with self._lock, suppress(OSError):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()


class _PlainCommand:
    def __init__(
        self,
        profile: SandboxProfile,
        watch: Watch,
        ended: Callable[[_PlainCommand], None],
        mark: str,
        proxy: SharedProxy | None,
    ) -> None:
        self._proxy = proxy
        self._reached = ReachedLog()
        self._limits = profile.limits
        self._write = profile.write
        self._watch = watch
        self._on_end = ended
        self._mark = f"{mark}-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._is_swept = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, argv: list[str], environment: dict[str, str], request: SpawnRequest) -> SandboxedProcess:
        self._loop = loop = asyncio.get_running_loop()
        self._pipe = OutputPipe(loop)
        try:
            self._process = subprocess.Popen(
                argv,
                env={**environment, _MARK: self._mark},
                cwd=request.cwd,
                stdin=request.stdin,
                stdout=self._pipe.write_end,
                stderr=self._pipe.write_end if request.stderr is None else request.stderr,
                pass_fds=tuple(request.pass_fds),
                start_new_session=True,
            )
        except OSError as error:
            self._pipe.close()
            raise SandboxError(f"{argv[0]!r} could not be started in {request.cwd!r}: {error.strerror}") from error
        self._pipe.close_write_end()
        with suppress(OSError, ValueError):  # it may have ended already; its first moments are without limits
            limit_process(self._process.pid, self._limits)
        exited: asyncio.Future[int] = loop.create_future()
        if self._proxy is not None:
            self._proxy.begin(self._reached)
        self._handle = SandboxedProcess(self._process.pid, self._pipe.reader, exited, self.kill, self._reached)
        watch_exit(self._process, exited, self._exited)
        pid, limits = self._process.pid, self._limits
        headcount = count_heads(pid, limits.processes)
        usage = Usage(pid, memory=limits.memory, disk=limits.disk_left, folders=self._write)
        self._watch.add(self, lambda: headcount.reason_to_end() or usage.reason_to_end(), self._end_because)
        return self._handle

    def kill(self) -> None:
        """Kills the command's process group, its descendants and, on Linux, every process with its mark.

        Any thread may call it.
        """
        with self._lock:
            if not self._is_swept:
                kill_descendants(self._process.pid, partial(with_variable, _MARK, self._mark))
                if self._process.poll() is not None:
                    self._is_swept = True

    def abandon(self) -> None:
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._exited()

    def _exited(self) -> None:
        self._watch.remove(self)
        self.kill()
        self._on_end(self)
        if self._proxy is not None:
            self._proxy.end(self._loop, self._reached)
        self._pipe.drain()

    def _end_because(self, reason: str) -> None:
        self._handle.ended_because = reason
        self.kill()
