"""The worker process: `python -m swink_agent.local.worker.main FD PARENT`.

It holds one model in memory and serves it over the socket with descriptor FD. The first line there has its settings.

The process ends with its parent. One thread listens, another works. `llama` uses the model.
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

from swink_agent.core.values.decoders import json_decoder, msgpack_decoder

from . import wire
from .engine import Chunk

_BLOCK = 1 << 16
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0


class Worker:
    """Serves requests one after another, while the listening thread receives cancellations."""

    def __init__(self, send: Callable[[wire.FromWorker], None], model: Any) -> None:
        self._send = send
        self._model = model
        self._requests: queue.SimpleQueue[wire.Ask] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._open: set[int] = set()

    @property
    def is_idle(self) -> bool:
        return not self._open

    def take(self, message: wire.ToWorker) -> None:
        if isinstance(message, wire.Cancel):
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
                self._send(wire.Failed(request.id, f"{type(error).__name__}: {error}"))
            self._open.discard(request.id)
            self._cancelled.discard(request.id)

    def _answer(self, request: wire.Ask) -> None:
        match request:
            case wire.Complete():

                def emit(chunk: Chunk) -> bool:
                    if request.id in self._cancelled:
                        return False
                    self._send(wire.Answer(request.id, chunk))
                    return request.id not in self._cancelled

                self._model.complete(request.request, emit)
            case wire.Render():
                self._send(wire.Answer(request.id, self._model.render(request.messages)))
            case wire.Embed():
                self._send(wire.Answer(request.id, self._model.embed(request.texts)))


def serve(connected: socket.socket, open_model: Callable[[wire.WorkerSettings], Any]) -> None:
    """Loads the model and serves it until the parent closes the connection or sends nothing for `idle_seconds`."""
    lock = threading.Lock()

    def send(message: wire.FromWorker) -> None:
        """Sends a message, from any thread. If the parent has ended, this process ends too."""
        data = wire.frame(message)
        with lock:
            try:
                connected.sendall(data)
            except OSError:
                os._exit(0)

    line = connected.makefile("rb", buffering=0).readline()  # unbuffered: a buffer would take more than the line
    if not line.endswith(b"\n"):
        os._exit(0)
    settings = json_decoder(wire.WorkerSettings).decode(line)
    try:
        model = open_model(settings)
    except Exception as error:
        send(wire.Failed(None, f"{error}"))
        return
    send(wire.Loaded(model.info))
    worker = Worker(send, model)
    threading.Thread(target=worker.work, daemon=True).start()
    try:
        _listen(connected, worker, settings.idle_seconds)
    finally:
        model.close()


def _listen(connected: socket.socket, worker: Worker, idle_seconds: float) -> None:
    reader = wire.FrameReader(msgpack_decoder(wire.ToWorker))
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
            worker.take(message)


def _end_with(parent: int) -> None:
    """Ends the process when its parent has ended, even while the model is loading and without a signal."""
    while os.getppid() == parent:  # the parent may have died before `_die_with_parent`
        time.sleep(_POLL_SECONDS)
    os._exit(0)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies, on Linux."""
    if sys.platform == "linux":
        import ctypes

        try:
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):
            pass  # another C library: the socket and `_end_with` remain


def main(open_model: Callable[[wire.WorkerSettings], Any] | None = None) -> None:
    _die_with_parent()
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is meant for the agent, which then closes the connection
    connected = socket.socket(fileno=int(sys.argv[1]))
    if open_model is None:
        from .llama import LlamaModel

        open_model = LlamaModel
    serve(connected, open_model)
    # Exits at once: native threads need not finish their work.
    os._exit(0)


if __name__ == "__main__":
    main()
