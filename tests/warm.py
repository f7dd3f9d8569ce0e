"""Programs that share loaded modules: one process has loaded the package, and forks for each of them.

Each fork is an ordinary process, with its own folder, environment, streams and session. Tests about the start, the end
and the imports of an interpreter start one themselves.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import ModuleType

NOT_LOADED = {"acp", "durable", "local", "mcp", "tui"}
"""Rooms that few programs need, and that take long to load. What is loaded here makes every fork slower, too."""

SWINK = "import sys\nfrom swink_agent.cli import main\nsys.exit(main())"
"""The program that `swink` is."""

READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_", "SSL_", "TZ")
"""Beginnings of the variables that a process reads once, so that a fork would not notice another value."""


class WarmStarts:
    """The process that forks, and programs in what it forked. `environ` is what it starts with itself."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._control, theirs = socket.socketpair()
        with theirs:
            # Pipes, as those who are forked get: Python looks at its streams when it starts.
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=self._environ,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )

    def close(self) -> None:
        self._control.close()
        with self._process:
            pass

    def can_start_with(self, environ: Mapping[str, str]) -> bool:
        """Whether a fork is in no way different from a process that was started with these variables."""
        names = {name for name in {*environ, *self._environ} if name.startswith(READ_AT_THE_START)}
        return all(environ.get(name) == self._environ.get(name) for name in names)

    async def run(
        self,
        program: str,
        arguments: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        *,
        stdin: bytes | None = None,
        path: Sequence[str] = (),
    ) -> tuple[int, bytes, bytes]:
        """The exit code and what was written, as soon as the program is over and nobody can write any more.

        Modules are looked for in the folders of `path` first.
        """
        given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        process = await self.open(program, arguments, folder, environ, stdin=given, path=path)
        try:
            async with asyncio.timeout(50):
                written = await process.communicate(stdin)
                return await process.wait(), *written
        except TimeoutError:
            process.kill()
            await process.wait()
            raise

    async def open(
        self,
        program: str,
        arguments: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        path: Sequence[str] = (),
    ) -> WarmProcess:
        """The program with streams as `asyncio.create_subprocess_exec` takes and gives them."""
        ours = ExitStack()
        with ExitStack() as theirs:

            async def written_to(stream: int) -> tuple[asyncio.StreamReader | None, int]:
                return await _read(ours, theirs) if stream == subprocess.PIPE else (None, _given(stream, theirs))

            writer, given = await _write(ours, theirs) if stdin == subprocess.PIPE else (None, _given(stdin, theirs))
            (out_reader, out), (err_reader, err) = await written_to(stdout), await written_to(stderr)
            process = await self.start(program, arguments, folder, environ, (given, out, err), path=path)
        process.stdin, process.stdout, process.stderr = writer, out_reader, err_reader
        process.held.push(ours.pop_all())
        return process

    async def start(
        self,
        program: str,
        arguments: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        path: Sequence[str] = (),
    ) -> WarmProcess:
        """The program with these as its stdin, stdout and stderr. If the first is a terminal, it is its own."""
        request = json.dumps([program, arguments, str(folder), dict(environ), path]).encode()
        ours = ExitStack()
        with ExitStack() as theirs:
            report, told = await _read(ours, theirs)
            socket.send_fds(self._control, [len(request).to_bytes(8, "big")], [*streams, told])
            self._control.sendall(request)
        return WarmProcess(int(await report.readline()), report, ours)


class WarmProcess:
    """One of the programs while it runs, to be waited for by whoever started it."""

    stdin: asyncio.StreamWriter | None = None
    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, pid: int, report: asyncio.StreamReader, held: ExitStack) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.held = held
        self._report = report

    async def wait(self) -> int:
        """How it ended, once it has."""
        if self.returncode is None:
            self.returncode = int(await self._report.readline())
            self.held.close()
        return self.returncode

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """What was written, as soon as the program is over and nobody can write any more."""
        if self.stdin is not None:
            self.stdin.write(given or b"")
            self.stdin.close()
        written = [await stream.read() if stream else b"" for stream in (self.stdout, self.stderr)]
        await self.wait()
        return written[0], written[1]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextmanager
def open_warm_starts(environ: Mapping[str, str]) -> Iterator[WarmStarts | None]:
    """None but on Linux, where a process may go on after a fork as if it had been started."""
    if sys.platform != "linux":
        yield None
        return
    with closing(WarmStarts(environ)) as starts:
        yield starts


def _given(stream: int, theirs: ExitStack) -> int:
    """A descriptor, or none."""
    if stream != subprocess.DEVNULL:
        return stream
    descriptor = os.open(os.devnull, os.O_RDWR)
    theirs.callback(os.close, descriptor)
    return descriptor


async def _write(ours: ExitStack, theirs: ExitStack) -> tuple[asyncio.StreamWriter, int]:
    """What writes to the end of a pipe that comes with it."""
    reading, writing = os.pipe()
    theirs.callback(os.close, reading)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(writing, "wb", 0)
    )
    ours.enter_context(closing(transport))
    return asyncio.StreamWriter(transport, protocol, None, loop), reading


async def _read(ours: ExitStack, theirs: ExitStack) -> tuple[asyncio.StreamReader, int]:
    """What is written to the end of a pipe that comes with it."""
    reading, writing = os.pipe()
    theirs.callback(os.close, writing)
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    ours.enter_context(closing(transport))
    return reader, writing


# -- the process that forks ----------------------------------------------------------------------------------


def _serve(control: socket.socket) -> str:
    """Forks for every request until nobody can ask any more. What was forked gets the program that it is to run."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready = select.select([control.fileno(), *running], [], [])[0]
        for ended in running.keys() & {*ready}:
            _tell_end(ended, *running.pop(ended))
        if control.fileno() not in ready:
            continue
        header, descriptors, _, _ = socket.recv_fds(control, 8, 4)
        if not header:
            sys.exit()
        request = control.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
        *streams, report = descriptors
        if (forked := os.fork()) == 0:
            for end_of_another, (_, report_of_another) in running.items():
                os.close(end_of_another)
                os.close(report_of_another)
            control.close()
            os.close(report)
            program, arguments, folder, environ, path = json.loads(request)
            _become(streams, arguments, folder, environ, path)
            return program
        for stream in streams:
            os.close(stream)
        running[os.pidfd_open(forked)] = forked, report
        _tell(report, forked)


def _tell_end(ended: int, forked: int, report: int) -> None:
    _, status = os.waitpid(forked, 0)
    _tell(report, os.waitstatus_to_exitcode(status))
    os.close(report)
    os.close(ended)


def _tell(report: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(report, b"%d\n" % number)


def _load() -> None:
    import swink_agent

    for room in pkgutil.iter_modules(swink_agent.__path__, "swink_agent."):
        if room.ispkg and room.name.rpartition(".")[2] not in NOT_LOADED:
            package = importlib.import_module(room.name)
            for module in pkgutil.walk_packages(package.__path__, f"{room.name}."):
                try:
                    importlib.import_module(module.name)
                except ImportError:  # it needs what is not installed, or is for another system
                    pass
    _prepare()
    gc.freeze()


def _prepare() -> None:
    """Loads, reads and compiles what nearly every program does: that takes as long as the rest of a short run."""
    importlib.import_module("importlib.metadata")
    importlib.import_module("platformdirs.unix")
    from swink_agent.adapters.catalog import ModelCatalog
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.policies import recommended

    ModelCatalog.load()
    recommended("/", max_turns=1)
    Redactor(environment={"TOKEN": "q7Zk29xPwmB4"}).redact("password=k3Jd82mQzx")


def _become(
    streams: Sequence[int], arguments: Sequence[str], folder: str, environ: Mapping[str, str], path: Sequence[str]
) -> None:
    """Makes this process one that was started in the folder, with the streams, the arguments and the variables."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.reconfigure(line_buffering=True)  # as Python does when it starts
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    sys.path[:0] = path


class _Ending:
    """How a program ends: as Python has it, but what was loaded is not taken apart, which takes longer than most runs.

    This is the first to be registered with `atexit`, and hence called last: no thread is left, and streams are to be
    flushed.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        atexit.register(self._leave)

    def run(self, program: str) -> None:
        main = sys.modules["__main__"] = ModuleType("__main__")
        self.status = 1
        try:
            exec(program, main.__dict__)
            self.status = 0
        except SystemExit as end:
            is_text = end.code is not None and not isinstance(end.code, int)
            self.status = 1 if is_text else int(end.code or 0) & 0xFF
            raise
        except KeyboardInterrupt:
            self.status = -signal.SIGINT
            raise

    def _leave(self) -> None:
        if self.status is None:
            return  # the process that forks
        sys.modules["__main__"].__dict__.clear()  # what is left open in there warns now
        gc.collect()
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
        except OSError:
            return  # Python says so, and has a status for it
        if self.status < 0:
            signal.signal(-self.status, signal.SIG_DFL)
            os.kill(os.getpid(), -self.status)
        os._exit(self.status)


if __name__ == "__main__":
    del sys.path[0]  # the tests' folder
    ending = _Ending()
    _load()
    with socket.socket(fileno=int(sys.argv.pop(1))) as asked:
        asked.set_inheritable(False)
        to_run = _serve(asked)
    ending.run(to_run)
