"""Cancellation that works from any thread.

Owns the one-shot `Signal` and the `CancellationToken` built on it. `waits` ends the waits of a cancelled run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from .errors import Aborted

T = TypeVar("T")


class Signal:
    """An event that happens once. Any thread may set it, any event loop may wait for it.

    A signal with a parent is set when the parent is. It is registered with the parent only while it has callbacks, so
    the parent does not keep unused children alive. Locks are taken from child to parent, and callbacks run without a
    lock, so that no order of calls can deadlock or lose a signal.
    """

    __slots__ = ("__weakref__", "_callbacks", "_is_set", "_parent", "_parent_key", "lock")

    def __init__(self, parent: Signal | None = None, lock: AbstractContextManager[object] | None = None) -> None:
        self._is_set = False
        self._callbacks: dict[object, Callable[[], None]] = {}
        # Reentrant: the garbage collector may run code that takes the lock while this thread holds it.
        self.lock = threading.RLock() if lock is None else lock
        """Guards the signal. Its holders may use it to make something only once."""
        self._parent = parent
        self._parent_key: object | None = None

    @property
    def is_set(self) -> bool:
        return self._is_set or (self._parent is not None and self._parent.is_set)

    def set(self) -> None:
        """Sets the signal and calls its callbacks, in order, in this thread. Later calls do nothing."""
        with self.lock:
            if self._is_set:
                return
            self._is_set = True
            callbacks, self._callbacks = self._callbacks, {}
            self._leave_parent()
        for callback in callbacks.values():
            try:
                callback()
            except Exception:  # the other callbacks must still be called
                logging.getLogger("swink_agent").exception("a callback of a signal failed")

    def add_callback(self, callback: Callable[[], None]) -> object | None:
        """Calls `callback` when the signal is set, or at once if it is already. Returns a key for `remove_callback`."""
        key = self._register(callback)
        if key is None:
            callback()
        return key

    def remove_callback(self, key: object | None) -> None:
        with self.lock:
            self._callbacks.pop(key, None)
            if not self._callbacks:
                self._leave_parent()

    async def wait(self) -> None:
        """Returns once the signal is set."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        key = self._register(lambda: call_in(loop, resolve, future))
        if key is None:
            return
        try:
            await future
        finally:
            self.remove_callback(key)

    def _register(self, callback: Callable[[], None]) -> object | None:
        """Returns a key, or `None` if the signal is already set and the callback was not registered."""
        with self.lock:
            if self._is_set:
                return None
            if self._parent is not None and self._parent_key is None:
                self._parent_key = self._parent._register(self.set)
                if self._parent_key is None:
                    return None
            key = object()
            self._callbacks[key] = callback
            if self._is_set:  # set meanwhile by code that the garbage collector ran
                self._callbacks.pop(key, None)
                return None
            return key

    def _leave_parent(self) -> None:
        if self._parent is not None and self._parent_key is not None:
            self._parent.remove_callback(self._parent_key)
            self._parent_key = None


class CancellationToken(Signal):
    """Signals to all its holders that the work is no longer wanted.

    A child is cancelled with its parent, but not the other way round.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<CancellationToken {'cancelled' if self.is_cancelled else 'active'}>"

    @property
    def is_cancelled(self) -> bool:
        return self.is_set

    def cancel(self) -> None:
        """Cancels this token and its children. Safe from any thread, and more than once."""
        self.set()

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone."""
        return CancellationToken(self)

    async def wait(self) -> None:
        """Returns once the token is cancelled."""
        await super().wait()


async def unless_cancelled(token: CancellationToken, work: Awaitable[T]) -> T:
    """Waits for the work. If the token is cancelled first, stops the work and raises `Aborted`."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    key = token.add_callback(lambda: call_in(loop, task.cancel))
    try:
        return await task
    except asyncio.CancelledError:
        if not task.done():  # the caller itself is being cancelled
            task.cancel()
            await asyncio.wait([task])
            raise
        if token.is_cancelled and not is_cancelled():
            raise Aborted from None
        raise
    finally:
        token.remove_callback(key)


def is_cancelled() -> bool:
    """Whether somebody cancels the running task. If not, a `CancelledError` comes from what the task waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Calls `function` in the loop's own thread; does nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def current_task() -> asyncio.Task[Any] | None:
    """The task that runs in this thread; `None` if there is no task or no event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def resolve(future: asyncio.Future[Any], value: object = None) -> None:
    if not future.done():
        future.set_result(value)
