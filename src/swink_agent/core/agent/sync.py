"""Runs a coroutine to its end for code that is not async.

Owns the thread in which the coroutine runs: the caller may already be in an event loop, and can be interrupted while it
waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_LAST_MOMENTS = 0.05
_PART = 0.2


def run_sync(work: Callable[[], Coroutine[Any, Any, T]], abort: Callable[[], None]) -> T:
    """Returns the coroutine's result. Ctrl+C in the waiting thread calls `abort` and waits for the end."""
    outcome: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()
    interrupted = threading.Event()
    ended = threading.Event()

    async def main() -> T:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        if interrupted.is_set():
            abort()
        return await task

    def run() -> None:
        try:
            if not interrupted.is_set():
                outcome.append(context.run(_run, main()))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="swink-sync", daemon=True)
    try:
        thread.start()
        _wait(ended)
        thread.join()
    except BaseException:
        interrupted.set()
        abort()
        _wait(ended)
        raise
    if errors:
        raise errors[0]
    return outcome[0]


def _wait(ended: threading.Event) -> None:
    """Waits for the event, in parts: a signal that comes just before a wait begins does not end that wait."""
    while not ended.wait(_PART):
        pass


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Does what `asyncio.run` does, but does not wait for tasks that ignore their cancellation."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                _, stubborn = loop.run_until_complete(asyncio.wait(left, timeout=_LAST_MOMENTS))
                if stubborn:
                    loop.set_exception_handler(_ignore_unfinished_tasks)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _ignore_unfinished_tasks(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handles what asyncio reports about the closed loop. Tasks that are still pending are expected, and ignored."""
    if "task" not in context or "exception" in context:
        loop.default_exception_handler(context)
