"""A task for foreign code, lent out again as long as the code ends in its first step.

Most hooks, simple tools and scripted or cached streams never wait for anything. A task for each would cost them two
turns of the event loop and several times the work that they do. So a run takes their first step itself, with a task
that it keeps for that as the current one; and only code that goes on after it, or that leaves a reference to it with
somebody, gets that task for good.

Owns that task. To the code inside nothing is different from a task made for it: `asyncio.current_task()` is the same
one in all its steps, time limits and task groups can cancel it, and context variables that it sets are its own.
"""

from __future__ import annotations

import asyncio

# What asyncio documents for whoever steps a task by himself ("Extending"), underscores and all.
from asyncio import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

__all__ = ["Host", "is_cancelling"]

_NOTHING = object()
_ENDED = object()

is_cancelling = asyncio.Task[Any].cancelling
"""As a function: to find a task's method takes longer than to call it."""


class Host(Coroutine[Any, Any, Any]):
    """What the task of a host runs: nothing, until it is lent for good; then the rest of that work."""

    __slots__ = (
        "_context",
        "_error",
        "_idle",
        "_is_closed",
        "_loop",
        "_outer",
        "_waits_for",
        "_work",
        "is_free",
        "task",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, outer: asyncio.Task[Any]) -> None:
        self._loop = loop
        self._outer = outer
        """The task of the caller, which steps aside for a first step."""
        self._is_closed = False
        self._idle: asyncio.Future[None] | None = None
        """What the task sleeps on while it has no work, once the event loop has been there."""
        self._work: Coroutine[Any, Any, Any] | None = None
        self.is_free = True
        """Whether the task can be lent out again."""
        self._context: Context
        self._waits_for: Any = _NOTHING
        """What the first step ended with, for the task to wait for."""
        self._error: BaseException | None = None
        """What the first step raised, for the task to raise."""
        self.task: asyncio.Task[Any] = asyncio.Task(self, loop=loop)

    def begin(self, work: Coroutine[Any, Any, Any], answer: Sequence[Any] = ()) -> bool:
        """Takes the first step of `work` in the task; says whether that was all of it.

        If it was not, or if it raised, the task goes on with it and ends as the work does. So it does, at the next
        turn of the event loop, if the work left somebody behind who still knows the task (`is_free`). `answer` holds
        what the work has returned, if it returns anything.
        """
        loop, task, context = self._loop, self.task, copy_context()
        has_ended = False
        _leave_task(loop, self._outer)
        _enter_task(loop, task)
        holders, weakly = getrefcount(task), getweakrefcount(task)
        try:
            # Not by `send`, which tells the end of the work with an exception: that costs as much as all the rest.
            waits_for = context.run(next, work.__await__(), _ENDED)
            if waits_for is not _ENDED:
                self._waits_for = waits_for
            elif is_cancelling(task):
                self._error = asyncio.CancelledError()  # it cancelled the task that it was in, and ended there
            elif (
                getrefcount(task) == holders
                and getweakrefcount(task) == weakly
                and not task._callbacks  # there is no other way to ask
            ):
                return True
            else:  # somebody keeps hold of the task: it ends as the work did
                self._error, has_ended = StopIteration(*answer), True
        except BaseException as error:
            self._error = error
        finally:
            _leave_task(loop, task)
            _enter_task(loop, self._outer)
        self._work, self._context = work, context
        self.is_free = False
        self._wake()
        return has_ended

    @property
    def has_raised(self) -> bool:
        """Whether the first step raised: the task does not know it yet."""
        return self._error is not None

    def retire(self) -> None:
        """Lets the task, which nothing has, end at the next turn of the event loop."""
        del self.task
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # -- what the event loop calls, as it calls a coroutine ---------------------------------------------------------

    def send(self, value: Any, /) -> Any:
        if self._work is None:
            if self._is_closed:
                raise StopIteration
            self._idle = self._loop.create_future()
            return self._idle.__await__().send(None)
        if self._waits_for is not _NOTHING:
            waits_for, self._waits_for = self._waits_for, _NOTHING
            return waits_for
        if self._error is not None:
            raise self._error
        return self._context.run(self._work.send, value)

    def throw(self, error: Any, *_: Any) -> Any:
        if self._work is None:
            raise error
        if self._error is not None:
            raise self._error
        if self._waits_for is not _NOTHING:
            # Cancelled before the event loop was here: that is for what the work waits for, as in any task.
            waits_for, self._waits_for = self._waits_for, _NOTHING
            if waits_for is not None and waits_for.cancel():
                return waits_for
        return self._context.run(self._work.throw, error)

    def close(self) -> None:
        if self._work is not None:
            self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError("a host is for its task alone")
