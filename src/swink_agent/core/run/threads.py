"""Threads for tools that are plain functions.

Each run has a pool. Unlike the executor of the standard library, it lets the program exit while a tool hangs: its
threads are daemons, and a cancelled run abandons them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from ..cancel import call_in, resolve

T = TypeVar("T")
Outcome: TypeAlias = "tuple[T | None, BaseException | None]"
"""The result of a function, or its exception."""
_Job = Callable[[], Callable[[], None]]  # does the work and returns a function that delivers its outcome


class WorkerThreads:
    """Runs functions in threads: in an idle one, else in a new one. If `most` threads are busy, functions wait."""

    __slots__ = ("_idle", "_is_closed", "_jobs", "_news", "_threads", "most")

    def __init__(self, most: int = 256) -> None:
        self.most = most
        self._threads = 0
        self._idle = 0
        self._jobs: list[_Job] = []
        self._news: threading.Condition | None = None  # most runs never need one
        self._is_closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Returns the function's result or raises its exception. Cancelling the wait does not stop the function."""
        return result_of(await self.begin(function))

    def begin(self, function: Callable[[], T], then: Callable[[], None] | None = None) -> asyncio.Future[Outcome[T]]:
        """Starts the function. `then` is called in the current event loop when the function has ended."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome[T]] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> Callable[[], None]:
            try:
                outcome = (context.run(function), None)
            except BaseException as error:  # SystemExit too: a tool must not end the program
                outcome = (None, error)
            return lambda: call_in(loop, _deliver, future, outcome, then)

        self._submit(job)
        return future

    @property
    def are_used(self) -> bool:
        """Whether any function was started in them."""
        return self._news is not None

    def close(self) -> None:
        """Lets the threads end once they are idle."""
        self._is_closed = True
        if self._news is not None:
            with self._news:
                self._news.notify_all()

    def _submit(self, job: _Job) -> None:
        news = self._news = self._news or threading.Condition()
        with news:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                news.notify()
                return
            if self._threads >= self.most:
                return
            self._threads += 1
        threading.Thread(target=self._work, args=(news,), name="swink-tool", daemon=True).start()

    def _work(self, news: threading.Condition) -> None:
        deliver: Callable[[], None] | None = None
        while True:
            with news:
                self._idle += 1
            if deliver is not None:
                deliver()  # while the thread counts as idle: work that the outcome leads to needs no other thread
                deliver = None
            with news:
                while not self._jobs and not self._is_closed:
                    news.wait()
                self._idle -= 1
                if not self._jobs:
                    self._threads -= 1
                    return
                job = self._jobs.pop(0)
            deliver = job()
            del job  # nothing of a finished call stays alive in an idle thread


async def in_own_thread(function: Callable[[], T]) -> T:
    """Runs the function in a separate daemon thread: it may take long, and must not keep the program alive."""
    thread = WorkerThreads(most=1)
    try:
        return await thread.run(function)
    finally:
        thread.close()


def result_of(outcome: Outcome[T]) -> T:
    """Returns the function's result, or raises its exception."""
    value, error = outcome
    if error is not None:
        raise error
    return cast("T", value)


def _deliver(future: asyncio.Future[Any], outcome: object, then: Callable[[], None] | None) -> None:
    resolve(future, outcome)
    if then is not None:
        then()
