"""The engine in a worker process: the part that runs in the agent's process.

Worker processes start on first use, one for each set of settings. All agents of this process share them. They are
started again if they die, and end with this process. `main` and `llama` run inside the worker.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar, cast

import msgspec

from swink_agent.core.cancel import call_in
from swink_agent.core.values.decoders import msgpack_decoder
from swink_agent.sandbox.starting import start_program

from . import wire
from .engine import Chunk, Completion, EngineError, Finished, ModelInfo, Overflowed

T = TypeVar("T")
_BLOCK = 1 << 16
_LOG_LINES = 40
_END_SECONDS = 2.0
_KEPT_VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_", "TMPDIR", "XDG_", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_"),
    *("OMP_", "GGML_", "LLAMA_", "CUDA_", "HIP_", "ROCR_", "VK_", "GOMP_", "KMP_"),
)
_COMMAND = (sys.executable, "-P", "-m", "swink_agent.local.worker.main")  # -P: import nothing from the working folder


class Watcher(Protocol):
    """Is called in a thread of the engine when a worker has ended. The engine keeps only a weak reference."""

    def ended(self, engine: WorkerEngine, ending: EngineError) -> None: ...


class WorkerEngine:
    """A model in a worker process, which starts when it is needed. Safe in any thread and any event loop."""

    def __init__(self, settings: wire.WorkerSettings, *, command: Sequence[str] = _COMMAND) -> None:
        self.settings = settings
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._life: _WorkerProcess | None = None
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<worker for {os.path.basename(self.settings.path)}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        """Whether the process runs, with its model loaded or loading."""
        life = self._life
        return life is not None and not life.is_over

    @property
    def is_loaded(self) -> bool:
        life = self._life
        return life is not None and not life.is_over and life.info is not None

    @property
    def pid(self) -> int | None:
        life = self._life
        return life.pid if life is not None and not life.is_over else None

    def watch(self, watcher: Watcher) -> None:
        """Calls the watcher whenever the process ends from now on. Watching twice has no effect."""
        with self._lock:
            self._watchers.add(watcher)

    async def load(self) -> ModelInfo:
        inbox = _Inbox()
        life = self._living()
        life.watch_loading(inbox)
        try:
            return cast("ModelInfo", await inbox.next())
        finally:
            life.forget(inbox)

    async def complete(self, request: Completion) -> AsyncIterator[Chunk]:
        with self._asked(lambda number: wire.Complete(number, request)) as inbox:
            while not inbox.is_answered:
                chunk = cast("Chunk", await inbox.next())
                inbox.is_answered = isinstance(chunk, (Finished, Overflowed))
                yield chunk

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        return await self._one(lambda number: wire.Render(number, list(messages)))

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return await self._one(lambda number: wire.Embed(number, list(texts)))

    async def _one(self, request: Callable[[int], wire.Ask]) -> Any:
        with self._asked(request) as inbox:
            answer = await inbox.next()
            inbox.is_answered = True
            return answer

    @contextmanager
    def _asked(self, request: Callable[[int], wire.Ask]) -> Generator[_Inbox]:
        """Sends a request, and cancels it if the block is left before it is answered."""
        inbox = _Inbox()
        life = self._living()
        number = life.ask(inbox, request)
        try:
            yield inbox
        finally:
            life.forget(inbox)
            if not inbox.is_answered:
                life.tell(wire.Cancel(number))

    def close(self) -> None:
        """Ends the process, if it runs. The next use starts another."""
        with self._lock:
            life, self._life = self._life, None
        if life is not None:
            life.close()

    def _living(self) -> _WorkerProcess:
        with self._lock:
            if self._life is None or self._life.is_over:
                self._life = _WorkerProcess(self.settings, self._command, self._ended)
            return self._life

    def _ended(self, ending: EngineError) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.ended(self, ending)


class _Inbox:
    """Passes the answers to one request from the reading thread to the event loop that waits."""

    __slots__ = ("_loop", "_queue", "is_answered")

    def __init__(self) -> None:
        self.is_answered = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[object] = asyncio.Queue()

    def put(self, item: object) -> None:
        call_in(self._loop, self._queue.put_nowait, item)

    async def next(self) -> object:
        item = await self._queue.get()
        if isinstance(item, EngineError):
            raise item
        return item


class _WorkerProcess:
    """One worker process from its start to its end, with the thread that starts it, reads its messages and reaps it.

    Linux kills the process when the thread that started it ends, so a caller's thread, which may be short-lived, must
    not start it.
    """

    def __init__(
        self, settings: wire.WorkerSettings, command: tuple[str, ...], on_end: Callable[[EngineError], None]
    ) -> None:
        self._on_end = on_end
        self.info: ModelInfo | None = None
        self.pid: int | None = None
        self._over: EngineError | None = None
        self._lock = threading.Lock()
        self._inboxes: dict[int, _Inbox] = {}
        self._loading: list[_Inbox] = []
        self._count = 0
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._name = os.path.basename(settings.path)
        self._ours, theirs = socket.socketpair()
        self._ours.sendall(msgspec.json.encode(settings) + b"\n")
        self._thread = threading.Thread(
            target=self._run, args=(command, theirs), name=f"swink-local-{self._name}", daemon=True
        )
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._over is not None

    # -- from callers ----------------------------------------------------------------------------------------

    def ask(self, inbox: _Inbox, request: Callable[[int], wire.Ask]) -> int:
        with self._lock:
            self._count += 1
            number = self._count
            if self._over is not None:
                inbox.put(EngineError(str(self._over), is_gone=self._over.is_gone))
                return number
            self._inboxes[number] = inbox
        self.tell(request(number))
        return number

    def watch_loading(self, inbox: _Inbox) -> None:
        with self._lock:
            if self._over is not None or self.info is not None:
                inbox.put(self._over or self.info)
            else:
                self._loading.append(inbox)

    def forget(self, inbox: _Inbox) -> None:
        with self._lock:
            self._inboxes = {number: known for number, known in self._inboxes.items() if known is not inbox}
            self._loading = [known for known in self._loading if known is not inbox]

    def tell(self, message: wire.ToWorker) -> None:
        data = wire.frame(message)
        with self._lock:
            if self._over is None:
                with suppress(OSError):  # the reading thread notices that the process has ended
                    self._ours.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self, command: tuple[str, ...], theirs: socket.socket) -> None:
        ending: EngineError
        try:
            with theirs:
                process = start_program(
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    environ=_environment(),
                    stderr=subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    new_session=True,
                )
            self.pid = process.pid
            ending = self._serve(process)
        except OSError as error:
            ending = EngineError(f"the worker process for {self._name} cannot be started: {error}")
        with self._lock:
            self._over = ending
            waiting = [*self._inboxes.values(), *self._loading]
            self._inboxes, self._loading = {}, []
            self._ours.close()
        for inbox in waiting:
            inbox.put(EngineError(str(ending), is_gone=ending.is_gone))
        self._on_end(ending)

    def _serve(self, process: subprocess.Popen[bytes]) -> EngineError:
        """Reads messages until the process ends; returns how it ended."""
        assert process.stderr is not None
        failure = unreadable = ""
        with process, process.stderr as log, selectors.DefaultSelector() as selector:
            reader = wire.FrameReader(msgpack_decoder(wire.FromWorker))
            selector.register(self._ours, selectors.EVENT_READ)
            selector.register(log, selectors.EVENT_READ)
            is_connected = True
            while is_connected:
                for key, _ in selector.select():
                    if key.fileobj is log:
                        if not self._read_log(log.fileno()):
                            selector.unregister(log)
                        continue
                    data = _received(self._ours)
                    is_connected = bool(data)
                    try:
                        for message in reader.feed(data):
                            failure = self._take(message) or failure
                    except ValueError as error:  # the package was updated since this program started
                        unreadable, is_connected = str(error), False
            # A process that is still loading does not notice that the connection was closed.
            may_end = self.info is not None or failure
            code = _ended(process, _END_SECONDS if may_end and not unreadable else 0.0)
            os.set_blocking(log.fileno(), False)
            while self._read_log(log.fileno()):
                pass
        if unreadable:
            problem = f"the worker process for {self._name} sent a message that cannot be read: {unreadable}"
            return EngineError(f"{problem}. If swink-agent was updated meanwhile, restart this program")
        return self._ending(code, failure)

    def _take(self, message: wire.FromWorker) -> str:
        """Passes a message on to the waiting request; returns the reason if the model cannot be loaded."""
        match message:
            case wire.Loaded(info):
                with self._lock:
                    self.info = info
                    waiting, self._loading = self._loading, []
                for inbox in waiting:
                    inbox.put(info)
            case wire.Answer(number, content):
                self._deliver(number, content)
            case wire.Failed(None, reason):
                return reason
            case wire.Failed(number, reason):
                self._deliver(number or 0, EngineError(reason))
        return ""

    def _deliver(self, number: int, item: object) -> None:
        with self._lock:
            inbox = self._inboxes.get(number)
        if inbox is not None:
            inbox.put(item)

    def _read_log(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _BLOCK)
        except BlockingIOError:
            return False
        self._log.extend(data.decode(errors="replace").splitlines())
        return bool(data)

    def _ending(self, code: int, failure: str) -> EngineError:
        if failure:
            return EngineError(f"{self._name} cannot be loaded: {failure}{self._last_words()}")
        if code == 0:
            return EngineError(f"the worker process for {self._name} has ended", is_gone=True)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return EngineError(f"the worker process for {self._name} {how}{self._last_words()}", is_gone=True)

    def _last_words(self) -> str:
        lines = [line for line in self._log if line.strip()]
        return f"; its last lines: {' / '.join(lines[-3:])[-600:]}" if lines else ""


def _environment() -> dict[str, str]:
    """The variables that native libraries need. API keys are not among them."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT_VARIABLES)}
    return {**kept, "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"}


def _received(connected: socket.socket) -> bytes:
    try:
        return connected.recv(_BLOCK)
    except OSError:
        return b""


def _ended(process: subprocess.Popen[bytes], patience: float) -> int:
    """Returns the exit code; kills a process that does not end by itself."""
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Workers:
    """The engines of this process by their settings, so that agents share them."""

    def __init__(self, make: Callable[[wire.WorkerSettings], WorkerEngine] = WorkerEngine) -> None:
        self._make = make
        self._engines: dict[wire.WorkerSettings, WorkerEngine] = {}
        self._lock = threading.Lock()

    def engine(self, settings: wire.WorkerSettings) -> WorkerEngine:
        """Returns the engine with these settings, always the same one."""
        with self._lock:
            if settings not in self._engines:
                self._engines[settings] = self._make(settings)
            return self._engines[settings]

    def close(self) -> None:
        """Ends every worker."""
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            engine.close()


# A model takes gigabytes of memory: two agents of one process with the same file must share it.
_shared: list[Workers] = []
_shared_lock = threading.Lock()


def shared_workers() -> Workers:
    """The workers that stream functions use by default. They end with the program."""
    with _shared_lock:
        if not _shared:
            _shared.append(Workers())
            atexit.register(_shared[0].close)
        return _shared[0]
