"""From the name of a model to an engine that holds it.

Finds or fetches the file, shares the worker process, and reports events on the way. `stream` then uses the engine.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TypeVar

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.run.threads import in_own_thread

from .events import LocalModelError, LocalModelEvent, LocalState, OnStateFn
from .weights.presets import preset_named
from .weights.store import ModelStore, is_path
from .worker.engine import Engine, EngineError, ModelInfo
from .worker.process import WorkerEngine, Workers, shared_workers
from .worker.wire import WorkerSettings

T = TypeVar("T")
_SMALL_BYTES = 3_000_000_000


class EngineLoader:
    """Gives a stream function its engines. If `engine` is given, it is used for every model name."""

    def __init__(
        self,
        store: ModelStore,
        *,
        on_state: OnStateFn | None = None,
        may_fetch: bool = True,
        context_length: int,
        threads: int = 0,
        gpu_layers: int | None = None,
        idle_seconds: float = 900.0,
        workers: Workers | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.store = store
        self._on_state = on_state
        self._may_fetch = may_fetch
        self._context_length = context_length
        self._threads = threads
        self._gpu_layers = gpu_layers
        self._idle_seconds = idle_seconds
        self._workers = workers
        self._engine = engine
        self._names: dict[WorkerEngine, str] = {}

    def check(self, name: str) -> None:
        """Raises `LocalModelError` if there is no model of that name."""
        if self._engine is None and not is_path(name):
            preset_named(name, self.store.presets)

    async def engine(self, name: str, cancel: CancellationToken, *, embedding: bool = False) -> Engine:
        """Finds or fetches the model's file and returns its engine.

        Raises `LocalModelError`, and `Aborted` when cancelled.
        """
        if self._engine is not None:
            return self._engine
        token = cancel.child()
        try:
            path = await in_own_thread(partial(self._file, name, token))
        finally:
            token.cancel()  # if the caller was cancelled, the fetch must end too
        longest = self._context_length if is_path(name) else preset_named(name, self.store.presets).context_length
        settings = WorkerSettings(
            path=str(path),
            state_dir=str(self.store.folder / ".states"),
            context_length=min(self._context_length, longest),
            threads=self._threads,
            gpu_layers=self._gpu_layers,
            embedding=embedding,
            idle_seconds=self._idle_seconds,
        )
        engine = self._shared().engine(settings)
        self._names[engine] = name
        engine.watch(self)
        return engine

    def ended(self, engine: WorkerEngine, ending: EngineError) -> None:
        """Reports that a model is no longer in memory. Called by the engine."""
        self.tell(LocalState.UNLOADED, self._names.get(engine, ""), str(ending))

    async def loaded(self, engine: Engine, name: str) -> ModelInfo:
        """Waits until the model is in memory. Raises `EngineError`."""
        if isinstance(engine, WorkerEngine) and engine.is_loaded:
            return await engine.load()
        self.tell(LocalState.LOADING, name)
        info = await engine.load()
        self.tell(LocalState.READY, name)
        return info

    def is_small(self, engine: Engine) -> bool:
        """Whether the model is so small that tools must be described briefly."""
        return not isinstance(engine, WorkerEngine) or os.path.getsize(engine.settings.path) < _SMALL_BYTES

    def tell(self, state: LocalState, name: str, message: str = "", done: int = 0, total: int = 0) -> None:
        """Passes an event on to the listener."""
        if self._on_state is not None:
            try:
                self._on_state(LocalModelEvent(state, name, message, done, total))
            except Exception:  # a listener must not fail a reply
                logging.getLogger("swink_agent").exception("a listener of a local model failed")

    def close(self) -> None:
        """Ends the workers."""
        self._shared().close()

    def _shared(self) -> Workers:
        return self._workers or shared_workers()

    def _file(self, name: str, cancel: CancellationToken) -> Path:
        path = self.store.find(name)
        if path is not None:
            return path
        if not self._may_fetch:
            raise LocalModelError(f"{name} is not on this machine yet: swink models pull {name}", model=name)
        return self.store.fetch(name, self._on_state, cancel=cancel)
