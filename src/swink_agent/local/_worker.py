"""The worker process: `python -m swink_agent.local._worker FD PARENT`, which holds one model in memory and serves it.

Owns the process: its end with its parent's, its two threads (one listens, one works), what it says. What is done with
the model is in `_llama`. It reads its settings as the first line on the socket whose descriptor it is given.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ._wire import (
    Ask,
    Cancel,
    Complete,
    Embed,
    Failed,
    FrameReader,
    FromWorker,
    Loaded,
    Render,
    Rendered,
    Said,
    ToWorker,
    Vectors,
    frame,
)
from .engine import Chunk

_BLOCK = 1 << 16
_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is to be loaded."""

    path: str
    state_dir: str
    context_length: int = 8_192
    batch: int = 128
    threads: int = 0
    gpu_layers: int | None = None
    embedding: bool = False
    idle_seconds: float = 900.0


class Connection:
    """The socket to the parent. Any thread may say something."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()

    def say(self, message: FromWorker) -> None:
        """Sends it; a parent that is gone ends this process."""
        data = frame(message)
        with self._lock:
            try:
                self._socket.sendall(data)
            except OSError:
                os._exit(0)


class Worker:
    """Serves requests one after another, while the thread that listens takes cancellations."""

    def __init__(self, connection: Connection, model: Any) -> None:
        self._connection = connection
        self._model = model
        self._requests: queue.SimpleQueue[Ask] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._open: set[int] = set()

    @property
    def is_idle(self) -> bool:
        return not self._open

    def take(self, message: ToWorker) -> None:
        """A message from the parent."""
        if isinstance(message, Cancel):
            if message.id in self._open:
                self._cancelled.add(message.id)
        else:
            self._open.add(message.id)
            self._requests.put(message)

    def work(self) -> None:
        """Answers requests for as long as the process lives."""
        while True:
            request = self._requests.get()
            try:
                if request.id not in self._cancelled:
                    self._answer(request)
            except Exception as error:
                self._connection.say(Failed(request.id, f"{type(error).__name__}: {error}"))
            self._open.discard(request.id)
            self._cancelled.discard(request.id)

    def _answer(self, request: Ask) -> None:
        match request:
            case Complete():

                def emit(chunk: Chunk) -> bool:
                    if request.id in self._cancelled:
                        return False
                    self._connection.say(Said(request.id, chunk))
                    return request.id not in self._cancelled

                self._model.complete(request.request, emit)
            case Render():
                self._connection.say(Rendered(request.id, self._model.render(request.messages)))
            case Embed():
                self._connection.say(Vectors(request.id, self._model.embed(request.texts)))


def serve(connected: socket.socket, open_model: Callable[[WorkerSettings], Any]) -> None:
    """Loads the model, then serves it until the parent closes the connection or has no use for it for a while."""
    connection = Connection(connected)
    settings = msgspec.json.decode(_first_line(connected), type=WorkerSettings)
    try:
        model = open_model(settings)
    except Exception as error:
        connection.say(Failed(None, f"{error}"))
        return
    connection.say(Loaded(model.info))
    worker = Worker(connection, model)
    threading.Thread(target=worker.work, daemon=True).start()
    try:
        _listen(connected, worker, settings.idle_seconds)
    finally:
        model.close()


def _listen(connected: socket.socket, worker: Worker, idle_seconds: float) -> None:
    reader = FrameReader(msgspec.msgpack.Decoder(ToWorker))
    connected.settimeout(idle_seconds)
    while True:
        try:
            data = connected.recv(_BLOCK)
        except TimeoutError:
            if worker.is_idle:
                return
            continue
        if not data:
            return
        for message in reader.feed(data):
            worker.take(message)  # pyright: ignore[reportArgumentType] - the decoder's type


def _first_line(connected: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = connected.recv(1)
        if not byte:
            os._exit(0)
        line += byte
    return line


def _end_with(parent: int) -> None:
    """Ends the process when its parent is gone, also while the model is loaded, and where no signal says so."""
    while os.getppid() == parent:  # at first also against a parent that died before anything else could tell
        time.sleep(_LOOK_SECONDS)
    os._exit(0)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process with its parent, where it can be asked."""
    if sys.platform == "linux":
        import ctypes

        try:
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):
            pass  # another C library: the socket and the look at the parent's id remain


def main(open_model: Callable[[WorkerSettings], Any] | None = None) -> None:
    _die_with_parent()
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the agent, which then closes the connection
    connected = socket.socket(fileno=int(sys.argv[1]))
    if open_model is None:
        from ._llama import LlamaModel

        open_model = LlamaModel
    serve(connected, open_model)
    # At once: what a native thread is doing is of no use to anybody.
    os._exit(0)


if __name__ == "__main__":
    main()
