"""Waiting on behalf of a run, in a way that a cancellation always ends.

A run never awaits foreign code itself: hooks, stream functions and tools run in tasks of their own, and the run
parks until one of them is done or the run is interrupted. So an abort costs nothing until it comes, ends every
wait at once, and cannot be held up by code that swallows its `CancelledError`.

Owns the one place where a run sleeps. What an interrupted run still does is in `loop`; how code that never waits is
spared a task of its own is in `host`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar, cast

from ..cancel import CancellationToken, call_in
from .host import Host, is_cancelling

__all__ = ["LAST_MOMENTS", "Interrupted", "Supervisor", "as_exception", "call"]

LAST_MOMENTS = 0.06
"""Seconds that everything still running gets, together, to end after an interrupt."""

_ROUND = 0.001
"""Seconds after which a run that nothing holds up lets the event loop come round."""

LAST_WORDS = 0.02
"""Seconds that the policies which see the aborted turn have at least."""

_HELD_UP = 0.005
"""Seconds by which a moment must be over for somebody to have held up the event loop in it."""

_TURNS = 20
"""Turns of the event loop that make up for a moment in which it was held up."""

T = TypeVar("T")
_ENDS_OF_THE_PROGRAM = (KeyboardInterrupt, SystemExit)
log = logging.getLogger("swink_agent")


class Interrupted(BaseException):
    """The run was cancelled while it waited. Not an `Exception`: handlers for failing hooks must not catch it."""


def as_exception(error: BaseException) -> BaseException:
    """What foreign code raised, as something that a handler for failing hooks catches.

    Code that raises `CancelledError` or the like by itself must not be taken for a run that was cancelled; what ends
    the whole program passes.
    """
    if isinstance(error, (Exception, *_ENDS_OF_THE_PROGRAM)):
        return error
    return RuntimeError(f"it raised {type(error).__name__}")


def call(hook: Callable[..., T], *arguments: Any) -> T:
    """What a hook returns, which may be the promise of an answer. What it raises is an `Exception`."""
    try:
        return hook(*arguments)
    except BaseException as error:
        raise as_exception(error) from error


class Supervisor:
    """Parks one run until something happens to it."""

    __slots__ = (
        "_has_extended",
        "_host",
        "_is_one_leaving",
        "_key",
        "_next_round",
        "_ready",
        "_task",
        "_waiter",
        "cancel",
        "cancelled_from_outside",
        "deadline",
        "is_eager",
        "is_interrupted",
        "loop",
        "spawn",
    )

    def __init__(self, cancel: CancellationToken, *, is_watched: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        has_factory = self.loop.get_task_factory() is not None
        # What `create_task` comes to where nobody has changed it, without the way there.
        self.spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = (
            self.loop.create_task if has_factory else partial(asyncio.Task, loop=self.loop)
        )
        self._task = None if is_watched or has_factory else asyncio.current_task(self.loop)
        """The one that drives the run, from its beginning to its end, if foreign code may take first steps in it."""
        self.is_eager = self._task is not None
        """Whether foreign code takes its first step at once. Where somebody reads the events, he sees them first."""
        self._host: Host | None = None
        self._is_one_leaving = False
        """Whether a task of a first step ends at the next turn of the event loop."""
        self._ready: Sequence[object] | None = getattr(self.loop, "_ready", None)
        """What waits for its turn in asyncio's own event loops; of others nothing is known."""
        self._next_round = 0.0
        self.cancel = cancel
        self.is_interrupted = False
        self.deadline = 0.0
        self.cancelled_from_outside: tuple[Any, ...] | None = None
        """What the `CancelledError` said if the task that drives the run was cancelled: it is owed to the caller, word
        for word, since some libraries know a cancellation of theirs by that."""
        self._has_extended = False
        self._waiter: asyncio.Future[None] | None = None
        self._key = cancel.add_callback(self._on_cancel)

    async def close(self) -> None:
        """Leaves no task behind but those that did not end when they were told to."""
        self.cancel.remove_callback(self._key)
        await self.rest()

    def _on_cancel(self) -> None:
        # At once, from whatever thread: code that polls need not wait for the loop.
        self.deadline = self.loop.time() + LAST_MOMENTS
        self.is_interrupted = True
        call_in(self.loop, self.wake)

    def wake_soon(self) -> None:
        """The same as `wake`, from any thread."""
        call_in(self.loop, self.wake)

    def wake(self, _: object = None) -> None:
        """Lets the parked run look again at what it waits for."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def park(
        self, is_ready: Callable[[], bool], until: float | None = None, *, through_interrupt: bool = False
    ) -> None:
        """Sleeps until ready, interrupted, or past the loop time `until`. Never raises.

        A moment that the event loop, or the whole machine, was busy with something else is made up for with some turns.
        `through_interrupt` sleeps on after an interrupt, but only until the last moment. A cancellation of the task
        itself becomes an interrupt here, and is raised again when the run has ended.
        """
        while not is_ready():
            if self.is_interrupted:
                if not through_interrupt:
                    return
                until = self.deadline if until is None else min(until, self.deadline)
            if until is not None and (late := self.loop.time() - until) >= 0:
                if late > _HELD_UP:
                    await self._make_up(is_ready)
                return
            self._waiter = self.loop.create_future()
            timer = None if until is None else self.loop.call_at(until, self.wake)
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                self.cancelled_from_outside = error.args
                self.cancel.cancel()
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()

    async def _make_up(self, is_ready: Callable[[], bool]) -> None:
        """Gives those who are waited for the turns that nobody could take while the time ran."""
        for _ in range(_TURNS):
            if is_ready():
                return
            await self.give_way()

    def is_held_up(self) -> bool:
        """Whether something else in the event loop waits for its turn, or may.

        What comes from outside, or with time, shows only when the loop comes round: at least once in a millisecond.
        """
        if self._ready is None or self._ready:
            return True
        now = monotonic()
        if now < self._next_round:
            return False
        self._next_round = now + _ROUND
        return True

    async def give_way(self) -> None:
        """Lets everything else in the event loop have its turn."""
        try:
            await _ONE_TURN
        except asyncio.CancelledError as error:
            self.cancelled_from_outside = error.args
            self.cancel.cancel()

    async def rest(self) -> None:
        """Lets the tasks of first steps end, if there are any. It takes a turn of the event loop."""
        if self._host is not None:
            self._host.retire()
            self._host = None
        elif not self._is_one_leaving:
            return
        self._is_one_leaving = False
        await self.give_way()

    def begin(self, work: Coroutine[Any, Any, Any], answer: Sequence[Any] = ()) -> asyncio.Task[Any] | None:
        """Begins work in a task; `None` if it came to its end in its first step, which is taken at once if it may.

        `answer` is where the work puts what it returns, if it returns anything.
        """
        if self._task is None or self.is_interrupted:
            return self.spawn(work)
        host, self._host = self._host, None  # not to be had while there is work in it
        if host is None or is_cancelling(host.task):  # one that was cancelled is nobody else's to use
            host = Host(self.loop, self._task)
        if host.begin(work, answer):
            if host.is_free:
                self._host = host
            else:
                del host.task
                self._is_one_leaving = True
            return None
        task = host.task
        del host.task  # it holds the host, and the two would stay until the collector comes
        if host.has_raised:
            task.add_done_callback(self.wake)  # the work's own wake-up came before the task has ended
        return task

    async def ask(self, hook: Callable[..., T | Awaitable[T]], *arguments: Any, last_words: bool = False) -> T:
        """A hook's answer, whether the hook is a plain or an async function. What it raises is an `Exception`."""
        return await self.settle(call(hook, *arguments), last_words=last_words)

    async def settle(self, value: T | Awaitable[T], *, last_words: bool = False) -> T:
        """A hook's answer, once it is there."""
        if value is not None and inspect.isawaitable(value):
            return await self.wait(value, last_words=last_words)
        return cast("T", value)

    async def wait(self, work: Awaitable[T], *, last_words: bool = False) -> T:
        """The result of `work`, or what it raises; `Interrupted` if the run is cancelled first.

        `last_words` is for what is still to be done when the run has been cancelled already: it may go on until the
        last moment.
        """
        answer: list[T] = []
        task = self.begin(self._waking(work, answer), answer)
        return answer[0] if task is None else await self.wait_for(task, work, last_words=last_words)

    async def wait_for(
        self, task: asyncio.Task[T], work: Awaitable[T], *, last_words: bool = False, grace: float = 0.0
    ) -> T:
        """The same for a task that wakes the run when `work`, which it does, is over.

        `grace` are the seconds that work which was begun has to end by itself when the run is cancelled.
        """
        if last_words and self.is_interrupted and not self._has_extended:
            self._has_extended = True  # even if everything else took all of the last moments
            self.deadline = max(self.deadline, self.loop.time() + LAST_WORDS)
        has_begun = not self.is_interrupted or not _is_unbegun(work)
        await self.park(task.done, through_interrupt=last_words and self.is_interrupted)
        if grace and has_begun and not task.done():
            await self.park(task.done, self.loop.time() + grace, through_interrupt=True)
        if not task.done():
            await self.stop([task])
            if _is_unbegun(work):
                cast("Any", work).close()  # the interrupt came before its first step: nobody will ever await it
            raise Interrupted
        if task.cancelled():
            if _is_unbegun(work):
                cast("Any", work).close()  # as an event loop that ends does it to every task
            raise RuntimeError("it was cancelled from within")
        try:
            return task.result()
        except BaseException as error:
            raise as_exception(error) from error.__cause__

    async def _waking(self, work: Awaitable[T], answer: list[T]) -> T:
        """The work, with a wake-up at its end: a done callback would cost one more turn of the event loop."""
        try:
            answer.append(await work)
            return answer[0]
        finally:
            self.wake()

    async def stop(self, tasks: Sequence[asyncio.Future[Any]], until: float | None = None) -> None:
        """Cancels tasks and waits for their end; one that has not ended in time is left to itself."""
        for task in tasks:
            task.cancel()
            task.add_done_callback(self._on_stopped)
        await self.park(lambda: all(task.done() for task in tasks), until, through_interrupt=True)
        if not all(task.done() for task in tasks):
            await self._step()  # the last moment may be over before they were cancelled: who only waits ends at once
        for task in tasks:
            if not task.done():
                log.warning("something did not end when it was cancelled; the run goes on without it")
                log.debug("it is %r", task)

    async def _step(self) -> None:
        """Lets everything else go one step further. Never raises."""
        self._waiter = self.loop.create_future()
        self.loop.call_soon(self.wake)
        try:
            await self._waiter
        except asyncio.CancelledError as error:
            self.cancelled_from_outside = error.args
            self.cancel.cancel()
        finally:
            self._waiter = None

    def _on_stopped(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled():
            task.exception()  # somebody looked at it: asyncio need not complain that nobody did
        self.wake()


def _is_unbegun(work: object) -> bool:
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED


class _OneTurn:
    """Awaited, it lets the event loop come round once: `asyncio.sleep(0)` with less around it."""

    __slots__ = ()

    def __await__(self) -> Any:  # any iterator will do
        return iter((None,))


_ONE_TURN = _OneTurn()
