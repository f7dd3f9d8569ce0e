"""Starts llama.cpp's HTTP server through xllamacpp. Imported only in the worker process: only this module uses the
native library.
"""

from __future__ import annotations

import os
from typing import Any

from swink_agent.core.machine.extras import require

from .values import WorkerSettings


def serve(settings: WorkerSettings, address: str) -> object:
    """Loads the model and serves it on the Unix socket until the process ends, or the returned object is deleted.

    The server listens at once, and answers `/health` with 503 until the model is loaded. Raises `RuntimeError`.
    """
    os.environ["OMP_WAIT_POLICY"] = "passive"  # else idle threads spin; the library reads this when it loads
    library: Any = require("xllamacpp", extra="local")  # it has no types
    return library.Server(_params(library, settings, address))


def _params(library: Any, settings: WorkerSettings, address: str) -> Any:
    params = library.CommonParams()
    params.model.path = settings.path
    params.n_ctx = settings.context_length
    params.n_batch = params.n_ubatch = settings.batch
    params.n_parallel = 1
    if settings.gpu_layers is not None:
        params.n_gpu_layers = settings.gpu_layers
    threads = settings.threads or _cores()
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.hostnames = [address]
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    params.offline = True
    params.endpoint_props = True
    params.endpoint_slots = True
    params.slot_save_path = f"{settings.state_dir}/"
    if settings.embedding:
        params.embedding = True
        params.n_ubatch = params.n_batch = settings.context_length  # a text is embedded in one go
        pooling = library.llama_pooling_type
        params.pooling_type = pooling.LLAMA_POOLING_TYPE_MEAN
    return params


def _cores() -> int:
    """The number of cores that this process may use; more threads would only wait for each other."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 2
