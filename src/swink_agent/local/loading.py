"""Loads a model by its name into an engine.

Finds or fetches the file, shares the worker process, and reports events. `stream` then uses the engine.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.waits import in_own_thread

from .events import LocalModelError, LocalModelEvent, LocalState, OnStateFn, notify
from .weights.presets import preset_named
from .weights.store import ModelStore, is_path
from .worker.engine import Engine, Workers, shared_workers
from .worker.values import EngineError, ModelInfo, WorkerSettings

_SMALL_BYTES = 3_000_000_000


class EngineLoader:
    """Makes the engines of a stream function, with these settings except for the file and perhaps a shorter window."""

    def __init__(
        self,
        store: ModelStore,
        settings: WorkerSettings,
        *,
        on_state: OnStateFn | None = None,
        may_fetch: bool = True,
        workers: Workers | None = None,
    ) -> None:
        self.store = store
        self._on_state = on_state
        self._may_fetch = may_fetch
        self._settings = settings
        self._workers = workers
        self._names: dict[Engine, str] = {}

    def check(self, name: str) -> None:
        """Raises `LocalModelError` if there is no model of that name."""
        if not is_path(name):
            preset_named(name, self.store.presets)

    async def engine(self, name: str, cancel: CancellationToken, *, embedding: bool = False) -> Engine:
        """Finds or fetches the model's file and returns its engine.

        Raises `LocalModelError`, and `Aborted` when cancelled.
        """
        token = cancel.child()
        try:
            path = await in_own_thread(partial(self._file, name, token))
        finally:
            token.cancel()  # if the caller was cancelled, the fetch must end too
        longest = self._settings.context_length
        if not is_path(name):
            longest = min(longest, preset_named(name, self.store.presets).context_length)
        settings = replace(self._settings, path=str(path), context_length=longest, embedding=embedding)
        engine = self._shared().engine(settings)
        self._names[engine] = name
        engine.watch(self)
        return engine

    def ended(self, engine: Engine, ending: EngineError) -> None:
        """Reports that a model is no longer in memory. Called by the engine."""
        self.tell(LocalState.UNLOADED, self._names.get(engine, ""), str(ending))

    async def loaded(self, engine: Engine, name: str) -> ModelInfo:
        """Waits until the model is in memory. Raises `EngineError`."""
        if engine.is_loaded:
            return await engine.load()
        self.tell(LocalState.LOADING, name)
        info = await engine.load()
        self.tell(LocalState.READY, name)
        return info

    def is_small(self, engine: Engine) -> bool:
        """Whether the model is so small that tools must be described briefly."""
        try:
            return os.path.getsize(engine.settings.path) < _SMALL_BYTES
        except OSError:  # the file was deleted while the worker has it in memory
            return True

    def tell(self, state: LocalState, name: str, message: str = "", done: int = 0, total: int = 0) -> None:
        notify(self._on_state, LocalModelEvent(state, name, message, done, total))

    def close(self) -> None:
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
