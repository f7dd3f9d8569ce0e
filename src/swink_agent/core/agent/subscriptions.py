"""The subscribers of an agent.

Owns the list of callbacks and the rule for calling them: in order, synchronously, and one that raises is removed.
Any thread may add and remove callbacks; a change during a dispatch takes effect with the next event.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from ..values import hints
from ..values.checks import is_not

log = logging.getLogger("swink_agent")


class Subscription:
    """A callback's registration. Ends with `unsubscribe()`, or with a `with` block."""

    __slots__ = ("_end", "callback")

    def __init__(self, callback: Callable[[hints.AgentEvent], object], end: Callable[[Subscription], None]) -> None:
        self.callback = callback
        self._end = end

    def unsubscribe(self) -> None:
        """Ends it, after the event that is being delivered. Safe from any thread, and more than once."""
        self._end(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()


class Subscriptions:
    """An agent's subscriptions, and its observers, whose `on_event` is among them.

    `lock` guards changes: any thread may make one.
    """

    __slots__ = ("_lock", "all", "observers")

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self.all: tuple[Subscription, ...] = ()  # a change during a dispatch makes a new tuple
        self.observers: tuple[hints.RunObserver, ...] = ()

    def add(self, callback: Callable[[hints.AgentEvent], object]) -> Subscription:
        """Raises `TypeError` for a callback that is not a function, or would have to be awaited."""
        if not callable(cast("object", callback)):
            raise is_not("callback", callback, "a function")
        if any(inspect.iscoroutinefunction(function) for function in (callback, callback.__call__)):
            raise TypeError("a subscriber is a plain function; read prompt_stream() to handle events in async code")
        subscription = Subscription(callback, self._remove)
        with self._lock:
            self.all = (*self.all, subscription)
        return subscription

    def observe(self, observer: hints.RunObserver) -> Subscription:
        """Adds an observer until its subscription ends.

        Raises `TypeError` for anything else, and `ValueError` if the agent already has an equal one.
        """
        if isinstance(cast("object", observer), type) or not hasattr(observer, "on_event"):
            raise is_not("observer", observer, "a RunObserver")

        def end(subscription: Subscription) -> None:
            self._remove(subscription)
            with self._lock:
                self.observers = tuple([item for item in self.observers if item is not observer])

        subscription = Subscription(observer.on_event, end)
        with self._lock:
            if observer in self.observers:
                raise ValueError("this observer observes the agent already")
            self.observers = (*self.observers, observer)
            self.all = (*self.all, subscription)
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self.all = tuple([item for item in self.all if item is not subscription])

    def notify(self, event: hints.AgentEvent) -> None:
        """Calls every subscriber."""
        for subscription in self.all:
            try:
                subscription.callback(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # even a CancelledError: the subscriber raised it, and the run was not cancelled
                log.exception("a subscriber failed on %s and is removed", type(event).__name__)
                subscription.unsubscribe()
