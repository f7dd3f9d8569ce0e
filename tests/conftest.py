"""Async tests, and what every one of them must leave behind: nothing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_collection_finish() -> None:
    """What collecting made stays: without it, the collection of garbage after each test has less to look at."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests in an event loop of their own, and fails those that leave a task running."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(_without_leftovers(pyfuncitem.obj(**arguments)))
    return True


async def _without_leftovers(test: Any) -> None:
    await test
    await asyncio.sleep(0)
    # Async generators that lost their last reference close themselves: a session's connections, for instance.
    closing = [task for task in asyncio.all_tasks() if "async_generator" in repr(task.get_coro())]
    if closing:
        await asyncio.wait(closing, timeout=1)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    assert not left, f"the test left tasks running: {left}"


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fails a test whose threads are still there a moment after its end, and collects what would warn later."""
    before = set(threading.enumerate())
    yield
    gc.collect(1)  # what a test made is young; all of it is looked at once more at the very end
    deadline = time.monotonic() + 2.0
    while (left := _ours(set(threading.enumerate()) - before)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not left, f"the test left threads running: {left}"


def pytest_sessionfinish() -> None:
    gc.unfreeze()
    gc.collect()


def _ours(threads: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threads if thread.name.startswith("swink") and thread.is_alive()]
