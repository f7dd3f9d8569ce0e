"""Waits on behalf of a run, so that a cancellation always ends the wait.

A run never awaits foreign code itself: hooks, stream functions and tools run in separate tasks, and the run sleeps
until one of them is done or the run is interrupted. So an abort ends every wait at once, even if the foreign code
ignores its `CancelledError`.

A run sleeps nowhere else. What an interrupted run still does is in `loop`. Tools that are plain functions run in
`WorkerThreads`, of which each run has its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from .cancel import CancellationToken, call_in, resolve

AFTER_ABORT = 0.06  # seconds that all running code together gets to end after an interrupt
POLICIES_AFTER_ABORT = 0.02  # seconds that policies or the journal get after an abort even if those are used up
_HELD_UP = 0.005  # if a deadline is missed by this many seconds, something blocked the event loop
_TURNS = 20  # iterations of the event loop that make up for a wait during which it was blocked
_NAME = "swink"  # the name of all tasks: formatting a number for each would take longer than the rest of its creation

_ENDS_OF_THE_PROGRAM = (KeyboardInterrupt, SystemExit)
log = logging.getLogger("swink_agent")
T = TypeVar("T")

_Job = Callable[[], Callable[[], None]]  # does the work and returns a function that delivers its outcome


class Interrupted(BaseException):
    """The run was cancelled while it waited. Not an `Exception`: handlers for failing hooks must not catch it."""


def as_exception(error: BaseException) -> BaseException:
    """Returns an error that handlers for failing hooks catch.

    Foreign code that raises `CancelledError` or the like must not look like a cancelled run. `KeyboardInterrupt` and
    `SystemExit` stay as they are.
    """
    if isinstance(error, (Exception, *_ENDS_OF_THE_PROGRAM)):
        return error
    return RuntimeError(f"it raised {type(error).__name__}")


def new_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Makes a task from a coroutine, which takes its first step in the loop's next iteration.

    If the application has set a task factory, that makes the task. It may start the task eagerly, as asyncio's eager
    factory does. A run relies on the order, so such a task first waits for the next iteration.
    """
    if loop.get_task_factory() is None:
        return asyncio.Task(work, loop=loop, name=_NAME)
    is_made: list[bool] = []
    task = loop.create_task(_after_creation(work, is_made))
    is_made.append(True)
    return task


async def _after_creation(work: Coroutine[Any, Any, Any], is_made: Sequence[bool]) -> Any:
    """Runs the work, but not before `new_task` has the task."""
    if not is_made:
        try:
            await asyncio.sleep(0)
        except BaseException:
            work.close()  # cancelled before its first step: it will never be awaited
            raise
    return await work


class Supervisor:
    """Waits for one run, until something happens to it.

    call          calls foreign code and waits for its answer
    until         sleeps until a condition holds
    stop          cancels tasks and waits for their end; `outlast` waits for tasks that end by themselves
    yield_once    lets everything else take one step
    """

    def __init__(self, cancel: CancellationToken) -> None:
        self.loop = asyncio.get_running_loop()
        self.cancel = cancel
        self.is_interrupted = False
        self.deadline = 0.0
        self.cancelled_from_outside: tuple[Any, ...] | None = None
        """The arguments of the `CancelledError` if the task that drives the run was cancelled. The caller gets them
        back unchanged, since some libraries recognise their own cancellation by them."""
        self._has_extended = False
        self._waiter: asyncio.Future[None] | None = None
        self._limit: float | None = None  # the loop time until which the work that the run waits for may go on
        self._key = cancel.add_callback(self._on_cancel)

    def close(self) -> None:
        self.cancel.remove_callback(self._key)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts work in a new task, which takes its first step in the loop's next iteration."""
        return new_task(self.loop, work)

    def _on_cancel(self) -> None:
        # At once, in any thread: code that polls need not wait for the event loop.
        self.deadline = self.loop.time() + AFTER_ABORT
        self.is_interrupted = True
        call_in(self.loop, self.wake)

    def wake_soon(self) -> None:
        """The same as `wake`, from any thread."""
        call_in(self.loop, self.wake)

    def wake(self, _: object = None) -> None:
        """Lets the sleeping run check again what it waits for."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- sleeping ------------------------------------------------------------------------------------------------

    async def until(
        self, is_ready: Callable[[], bool], deadline: float | None = None, *, after_abort: bool = False
    ) -> None:
        """Sleeps until ready, interrupted, or past the loop time `deadline`. Never raises.

        If the event loop, or the whole machine, was busy until then, other tasks still get some iterations. With
        `after_abort`, the sleep goes on after an interrupt, but only until the deadline of the abort.
        """
        while not is_ready():
            if self.is_interrupted:
                if not after_abort:
                    return
                deadline = self.deadline if deadline is None else min(deadline, self.deadline)
            if deadline is not None and (late := self.loop.time() - deadline) >= 0:
                if late > _HELD_UP:
                    await self._make_up(is_ready)
                return
            await self._sleep(deadline)

    async def _sleep(self, deadline: float | None = None) -> None:
        """Sleeps until the next `wake`, or the deadline. The only place where a run sleeps.

        A cancellation of the run's task becomes an interrupt here, and is raised again when the run has ended.
        """
        self._waiter = self.loop.create_future()
        timer = None if deadline is None else self.loop.call_at(deadline, self.wake)
        try:
            await self._waiter
        except asyncio.CancelledError as error:
            self._take_cancellation(error)
        finally:
            if timer is not None:
                timer.cancel()

    def _take_cancellation(self, error: asyncio.CancelledError) -> None:
        self.cancelled_from_outside = error.args
        self.cancel.cancel()

    async def _make_up(self, is_ready: Callable[[], bool]) -> None:
        """Gives other tasks the iterations that they missed while the event loop was blocked."""
        for _ in range(_TURNS):
            if is_ready():
                return
            await self.yield_once()

    async def yield_once(self) -> None:
        """Lets everything else in the event loop take one step. Never raises."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self._take_cancellation(error)

    # -- foreign code --------------------------------------------------------------------------------------------

    async def call(
        self,
        hook: Callable[..., T | Awaitable[T]],
        *arguments: Any,
        after_abort: bool = False,
        grace: float = 0.0,
    ) -> T:
        """Returns the answer of a hook, a plain or an async function. What it raises is an `Exception`.

        Raises `Interrupted` if the run is cancelled first. After a cancellation, work that has begun gets `grace`
        seconds to end by itself. With `after_abort`, the work may go on until the deadline of the abort. Raises
        `TimeoutError` if the work has set itself a limit, and goes on after it.
        """
        try:
            answer = hook(*arguments)
        except BaseException as error:
            raise as_exception(error) from error
        if answer is None or not inspect.isawaitable(answer):
            return cast("T", answer)
        self._limit = None
        task = self.spawn(self._waking(answer))
        while not task.done():
            if self.is_interrupted:
                await self._end(task, answer, after_abort, grace)
            elif self._limit is not None:
                await self._end_in_time(task, self._limit)
            else:
                await self._sleep()
        if task.cancelled():
            _close_unstarted(answer)  # an ending event loop cancels every task
            raise RuntimeError("it was cancelled from within")
        try:
            return task.result()
        except BaseException as error:
            raise as_exception(error) from error.__cause__

    async def _waking(self, work: Awaitable[T]) -> T:
        """Runs the work and wakes the run at its end: a done callback would cost one more iteration of the loop."""
        try:
            return await work
        finally:
            self.wake()

    async def _end(self, task: asyncio.Task[Any], work: object, after_abort: bool, grace: float) -> None:
        """Waits for interrupted work as long as it may go on; then stops it and raises `Interrupted`."""
        if after_abort:
            least = self.loop.time() + POLICIES_AFTER_ABORT
            if least > self.deadline and not self._has_extended:  # everything else used up the time
                self._has_extended, self.deadline = True, least
            await self.until(task.done, after_abort=True)
        elif grace and not _is_unstarted(work):
            await self.until(task.done, self.loop.time() + grace, after_abort=True)
        if not task.done():
            await self.stop([task])
            _close_unstarted(work)  # the interrupt came before its first step
            raise Interrupted

    def limit(self, seconds: float) -> None:
        """Limits the time of the work that the run waits for. The work itself calls this."""
        self._limit = self.loop.time() + seconds
        self.wake()

    async def _end_in_time(self, task: asyncio.Task[Any], limit: float) -> None:
        """Waits for work that has a limit; then stops it and raises `TimeoutError`."""
        await self.until(task.done, limit)
        if not task.done() and not self.is_interrupted:
            await self.stop([task], self.loop.time() + AFTER_ABORT)
            raise TimeoutError("it went on after its limit")

    async def stop(self, tasks: Sequence[asyncio.Task[Any]], deadline: float | None = None) -> None:
        """Cancels tasks and waits for their end; abandons a task that has not ended in time."""
        for task in tasks:
            task.cancel()
            task.add_done_callback(self._on_stopped)
        await self.until(lambda: all(task.done() for task in tasks), deadline, after_abort=True)
        if not all(task.done() for task in tasks):
            # The last moment may be over before they were cancelled: a task that only waits, for another task at most,
            # ends within two iterations.
            await self.yield_once()
            await self.yield_once()
        for task in tasks:
            if not task.done():
                log.warning("a task did not end when it was cancelled; the run continues without it")
                log.debug("the task is %r", task)

    async def outlast(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Waits for tasks that soon end by themselves, of runs that were cancelled with this one. Never raises."""
        for task in tasks:
            task.add_done_callback(self.wake)
        while not all(task.done() for task in tasks):
            await self._sleep()

    def _on_stopped(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        self.wake()


def _is_unstarted(work: object) -> bool:
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED


def _close_unstarted(work: object) -> None:
    """Closes a coroutine that will never be awaited, so that Python does not warn of it."""
    if _is_unstarted(work):
        cast("Any", work).close()


# -- threads for plain functions -----------------------------------------------------------------------------


class WorkerThreads:
    """Runs functions in threads: in an idle one, else in a new one. If `most` threads are busy, functions wait.

    Unlike the executor of the standard library, it lets the program exit while a tool hangs: its threads are daemons,
    and a cancelled run abandons them.
    """

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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> Callable[[], None]:
            try:
                outcome = (context.run(function), None)
            except BaseException as error:  # SystemExit too: a tool must not end the program
                outcome = (None, error)
            return lambda: call_in(loop, resolve, future, outcome)

        self._submit(job)
        value, error = await future
        if error is not None:
            raise error
        return cast("T", value)

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
