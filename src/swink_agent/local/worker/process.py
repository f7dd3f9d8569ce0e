"""One worker process, from its start to its end. `main` and `llama` run inside it; `engine` asks its server.

A process is started by a thread of its own, which also reads its log, ends it when it is idle, and reaps it.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from swink_agent.core.waits import in_own_thread
from swink_agent.sandbox.starting import start_program

from .main import CANNOT_LOAD
from .states import SOCKETS, clean
from .values import EngineError, WorkerSettings

_BLOCK = 1 << 16
_LOG_LINES = 40
_END_SECONDS = 2.0
_ERROR = " E "
"""Marks an error in a line of llama.cpp's log."""
_LONGEST_FOLDER = 70
"""Bytes. The path of a socket has at most 103 on macOS, 107 on Linux."""
_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_", "TMPDIR", "XDG_", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_"),
    *("OMP_", "GGML_", "LLAMA_", "CUDA_", "HIP_", "ROCR_", "VK_", "GOMP_", "KMP_"),
)
COMMAND = (sys.executable, "-P", "-m", "swink_agent.local.worker.main")  # -P: import nothing from the working folder


class WorkerProcess:
    """A process that starts at once. Safe in any thread.

    Linux kills the process when the thread that started it ends, so a caller's thread, which may be short-lived, must
    not start it.
    """

    def __init__(
        self, settings: WorkerSettings, command: tuple[str, ...], on_end: Callable[[EngineError], None]
    ) -> None:
        """Raises `OSError` if the folder for the socket cannot be made."""
        self._settings = settings
        self._on_end = on_end
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: EngineError | None = None
        self._is_closed = False
        self._users = 0
        self._last_use = time.monotonic()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._name = os.path.basename(settings.path)
        self._folder = _socket_folder(Path(settings.state_dir))
        self.address = f"{self._folder}/s.sock"
        self._thread = threading.Thread(
            target=self._run, args=(command,), name=f"swink-local-{self._name}", daemon=True
        )
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._ending is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def enter(self) -> bool:
        """Keeps the process from ending as idle until `leave`; returns false if it has ended, or is about to."""
        with self._lock:
            if self.is_over:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._last_use = time.monotonic()

    def close(self) -> None:
        """Ends the process and waits for that."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    async def ended(self) -> EngineError:
        """Waits until the process has ended, for its connection broke; returns why."""
        await in_own_thread(lambda: self._thread.join(_END_SECONDS))
        if self._ending is None:
            return EngineError(f"the worker process for {self._name} broke the connection", is_gone=True)
        return EngineError(str(self._ending), is_gone=self._ending.is_gone)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self, command: tuple[str, ...]) -> None:
        try:
            process = start_program(
                [*command, self.address, str(os.getpid())],
                environ=_environment(),
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                new_session=True,
            )
        except OSError as error:
            ending = EngineError(f"the worker process for {self._name} cannot be started: {error}")
        else:
            with process:
                ending = self._watch(process)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ending = ending
        self._on_end(ending)

    def _watch(self, process: subprocess.Popen[bytes]) -> EngineError:
        """Reads the log until the process ends; returns how it ended."""
        assert process.stdin is not None
        assert process.stderr is not None
        with self._lock:
            self._process = process
            if self._is_closed:
                process.kill()
        with suppress(BrokenPipeError):  # it has ended already
            os.write(process.stdin.fileno(), msgspec.json.encode(self._settings) + b"\n")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stderr, selectors.EVENT_READ)
            is_running = True
            while is_running:
                if selector.select(self._seconds_left()):
                    data = os.read(process.stderr.fileno(), _BLOCK)
                    self._log.extend(data.decode(errors="replace").splitlines())
                    is_running = bool(data)
                elif self._is_idle():
                    process.kill()
                    is_running = False
        return self._ended_with(process.wait())

    def _seconds_left(self) -> float:
        """How long the process may go on without being used."""
        with self._lock:
            unused = 0.0 if self._users else time.monotonic() - self._last_use
            return max(0.0, self._settings.idle_seconds - unused)

    def _is_idle(self) -> bool:
        """Whether the process may end now. Nobody can begin to use it then."""
        with self._lock:
            self._is_closed = self._is_closed or (
                not self._users and time.monotonic() - self._last_use >= self._settings.idle_seconds
            )
            return self._is_closed

    def _ended_with(self, code: int) -> EngineError:
        if self._is_closed or code == 0:
            return EngineError(f"the worker process for {self._name} has ended", is_gone=True)
        lines = [line for line in self._log if line.strip()]
        if code == CANNOT_LOAD:
            errors = [line for line in lines[:-1] if _ERROR in line]  # the first one is the cause of the others
            return EngineError(f"{self._name} cannot be loaded: {' / '.join([*lines[-1:], *errors[:2]])[:600]}")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = f"; its last lines: {' / '.join(lines[-3:])[-600:]}" if lines else ""
        return EngineError(f"the worker process for {self._name} {how}{words}", is_gone=True)


def _environment() -> dict[str, str]:
    """The variables that native libraries need. API keys are not among them."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT_VARIABLES)}
    return {**kept, "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"}


def _socket_folder(states: Path) -> str:
    """A folder that no other user can enter, for one socket: among the states, if that path is short enough."""
    states.mkdir(parents=True, exist_ok=True, mode=0o700)
    clean(states)
    parent = states if len(os.fsencode(states)) <= _LONGEST_FOLDER else None
    return tempfile.mkdtemp(prefix=f"{os.getpid()}.", suffix=SOCKETS, dir=parent)
