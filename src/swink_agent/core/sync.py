"""Running a coroutine to its end from code that is not async, wherever that code runs.

Owns the choice between this thread and another: a thread with a running event loop, as in a notebook, cannot run a
second one.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["run_sync"]

T = TypeVar("T")


def run_sync(work: Callable[[], Coroutine[Any, Any, T]], abort: Callable[[], None]) -> T:
    """The coroutine's result. An interrupt of the waiting thread (Ctrl+C) calls `abort` and waits for the end."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    outcome: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(asyncio.run, work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="swink-sync", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        abort()
        thread.join()
        raise
    if errors:
        raise errors[0]
    return outcome[0]
