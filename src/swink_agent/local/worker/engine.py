"""A model that is loaded on first use, in a worker process. This part runs in the agent's process.

Workers start when they are needed, one for each set of settings. All agents of this process share them. They are
started again if they die, and end with this process. `process` runs one, `server` and `states` ask it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from .process import COMMAND, WorkerProcess
from .server import LlamaServer, ServerLost
from .states import Context
from .values import Chunk, Completion, EngineError, ModelInfo, WorkerSettings

_POLL_SECONDS = 0.05


class Watcher(Protocol):
    """Is called in a thread of the engine when a worker has ended. The engine keeps only a weak reference."""

    def ended(self, engine: Engine, ending: EngineError) -> None: ...


class Engine:
    """A model in a worker process, which starts when it is needed. Safe in any thread and any event loop.

    Methods raise `EngineError`.
    """

    def __init__(self, settings: WorkerSettings, *, command: Sequence[str] = COMMAND) -> None:
        self.settings = settings
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._life: _Life | None = None
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<worker for {os.path.basename(self.settings.path)}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        """Whether the process runs, with its model loaded or loading."""
        life = self._life
        return life is not None and not life.process.is_over

    @property
    def is_loaded(self) -> bool:
        life = self._life
        return life is not None and not life.process.is_over and life.info is not None

    @property
    def pid(self) -> int | None:
        life = self._life
        return life.process.pid if life is not None and not life.process.is_over else None

    def watch(self, watcher: Watcher) -> None:
        """Calls the watcher whenever the process ends from now on. Watching twice has no effect."""
        with self._lock:
            self._watchers.add(watcher)

    async def load(self) -> ModelInfo:
        """Loads the model, if it is not loaded."""
        async with self._loaded() as life:
            assert life.info is not None
            return life.info

    async def complete(self, request: Completion) -> AsyncGenerator[Chunk, None]:
        """Yields pieces, then `Finished` or `Overflowed`. Closing the generator stops the work."""
        async with self._loaded() as life, aclosing(life.context.complete(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Applies the model's chat template, up to the assistant's reply."""
        async with self._loaded() as life:
            return await life.server.render(messages)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Returns one vector per text."""
        async with self._loaded() as life:
            return await life.server.embed(texts)

    def close(self) -> None:
        """Ends the process, if it runs. The next use starts another."""
        with self._lock:
            life, self._life = self._life, None
        if life is not None:
            life.process.close()

    @asynccontextmanager
    async def _loaded(self) -> AsyncGenerator[_Life]:
        """The process with its model in memory; it does not end as idle meanwhile."""
        life = self._entered()
        try:
            await life.load()
            yield life
        except ServerLost:
            raise await life.process.ended() from None
        finally:
            life.process.leave()

    def _entered(self) -> _Life:
        with self._lock:
            if self._life is None or not self._life.process.enter():
                self._life = _Life(self.settings, self._command, self._ended)
                self._life.process.enter()
            return self._life

    def _ended(self, ending: EngineError) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.ended(self, ending)


class _Life:
    """A process, its server, and what is known about its model."""

    def __init__(
        self, settings: WorkerSettings, command: tuple[str, ...], on_end: Callable[[EngineError], None]
    ) -> None:
        try:
            self.process = WorkerProcess(settings, command, on_end)
        except OSError as error:
            raise EngineError(f"the worker process needs a folder for its socket: {error}") from error
        self.server = LlamaServer(self.process.address)
        self.context = Context(self.server, settings)
        self.info: ModelInfo | None = None

    async def load(self) -> None:
        """Waits until the model is in memory. Raises `ServerLost` if the process ends instead."""
        while self.info is None:
            is_over = self.process.is_over
            try:
                if await self.server.is_ready():
                    self.info = await self.server.info()
            except ServerLost:
                if is_over:
                    raise
            await asyncio.sleep(0 if self.info else _POLL_SECONDS)


class Workers:
    """The engines of this process by their settings, so that agents share them."""

    def __init__(self, make: Callable[[WorkerSettings], Engine] = Engine) -> None:
        self._make = make
        self._engines: dict[WorkerSettings, Engine] = {}
        self._lock = threading.Lock()

    def engine(self, settings: WorkerSettings) -> Engine:
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
