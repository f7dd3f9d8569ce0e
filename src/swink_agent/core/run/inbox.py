"""The messages that reach a run while it goes on: steering and follow-ups, and what policies inject.

Owns an agent's two queues, and the inbox of one run, which takes from them. Any thread may add to the queues; nothing
is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from typing import Literal, TypeAlias

from ..config import MessageProvider
from ..events import InjectionSource
from ..types import AgentMessage, as_messages
from ..values.checks import is_not
from ..waits import Supervisor

QueueMode: TypeAlias = Literal["one_at_a_time", "all"]
QueueName: TypeAlias = Literal["steering", "follow_up"]

log = logging.getLogger("swink_agent")


class MessageQueues:
    """An agent's message provider: its own queues first, then the provider that the application gave, if any.

    `lock` guards the queues: any thread may add to them.
    """

    def __init__(
        self,
        steering: QueueMode,
        follow_up: QueueMode,
        provider: MessageProvider | None,
        lock: AbstractContextManager[object],
    ) -> None:
        for mode in (steering, follow_up):
            if mode not in ("one_at_a_time", "all"):
                raise ValueError(f"a queue's mode is 'one_at_a_time' or 'all', not {mode!r}")
        if provider is not None and (isinstance(provider, type) or not hasattr(provider, "poll_steering")):
            raise is_not("message_provider", provider, "a MessageProvider")
        self.steering_mode = steering
        self.follow_up_mode = follow_up
        self.steering: list[AgentMessage] = []
        self._follow_ups: list[AgentMessage] = []
        self._lock = lock
        self.provider = provider
        self.woken: Supervisor | None = None
        """The supervisor of the current run, which is woken, from any thread, when steering arrives."""

    def _queue(self, name: QueueName) -> list[AgentMessage]:
        return self.steering if name == "steering" else self._follow_ups

    def add(self, name: QueueName, messages: Sequence[AgentMessage]) -> None:
        with self._lock:
            self._queue(name).extend(messages)
            woken = self.woken
        if name == "steering" and messages and woken is not None:
            woken.wake_soon()

    def put_back(self, name: QueueName, messages: Sequence[AgentMessage]) -> None:
        """Returns messages to the head of their queue."""
        with self._lock:
            self._queue(name)[:0] = messages

    def clear(self, *names: QueueName) -> None:
        with self._lock:
            for name in names:
                self._queue(name).clear()

    def has_messages(self) -> bool:
        return bool(self.steering or self._follow_ups)

    def may_have_messages(self) -> bool:
        """Whether messages are queued, or the application's provider may have some."""
        return self.has_messages() or self.provider is not None

    def take(self, name: QueueName) -> Sequence[AgentMessage]:
        queue = self._queue(name)
        if not queue:
            return ()
        mode = self.steering_mode if name == "steering" else self.follow_up_mode
        with self._lock:
            count = len(queue) if mode == "all" else 1
            taken = queue[:count]
            del queue[:count]
            return taken

    def poll_steering(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self.take("steering")
        return messages if messages or self.provider is None else self.provider.poll_steering()

    def poll_follow_up(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self.take("follow_up")
        return messages if messages or self.provider is None else self.provider.poll_follow_up()


class Inbox:
    """The messages that reach one run while it goes on: from queues, from a message provider, and from policies.

    Messages that were taken lead the next turn. Those that never entered the history are put back at the end.
    """

    def __init__(self, provider: MessageProvider | None, supervisor: Supervisor) -> None:
        self._queues = provider if isinstance(provider, MessageQueues) else None
        self._provider = provider if self._queues is None else self._queues.provider
        """The application's own provider, which must be polled."""
        self._put_back: Callable[[QueueName, list[AgentMessage]], object] | None = getattr(provider, "put_back", None)
        self._supervisor = supervisor
        self.taken: list[tuple[InjectionSource, AgentMessage]] = []
        """The messages that lead the next turn, each with its source."""
        if self._queues is not None:
            self._queues.woken = supervisor

    def close(self) -> None:
        if self._queues is not None:
            self._queues.woken = None

    @property
    def has_steering(self) -> bool:
        """Whether steering is queued. Messages of an application's own provider are unknown until it is polled."""
        return self._queues is not None and bool(self._queues.steering)

    @property
    def has_taken_steering(self) -> bool:
        return any(source == "steering" for source, _ in self.taken)

    def add(self, source: InjectionSource, messages: Sequence[AgentMessage]) -> None:
        for message in messages:
            self.taken.append((source, message))

    def empty(self) -> Iterator[tuple[InjectionSource, list[AgentMessage]]]:
        """Removes the messages that lead this turn; yields consecutive messages from one source together."""
        taken, self.taken = self.taken, []
        for source, several in groupby(taken, itemgetter(0)):
            yield source, [message for _, message in several]

    async def poll(self, source: QueueName) -> bool:
        """Takes queued messages; returns whether there were any. A provider that fails is logged and ignored."""
        messages: Sequence[AgentMessage] = () if self._queues is None else self._queues.take(source)
        if not messages and self._provider is not None:
            poll = self._provider.poll_steering if source == "steering" else self._provider.poll_follow_up
            try:
                messages = as_messages(await self._supervisor.call(poll) or ())
            except Exception:
                log.exception("the message provider failed to give %s messages and is ignored", source)
        if not messages:
            return False
        self.add(source, messages)
        return True

    def put_back(self) -> None:
        """Gives messages that never entered the history back to their provider."""
        names: tuple[QueueName, ...] = ("steering", "follow_up")
        for source in names:
            messages = [message for origin, message in self.taken if origin == source]
            if messages and self._put_back is not None:
                try:
                    self._put_back(source, messages)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException:
                    log.exception("the message provider did not take %d %s messages back", len(messages), source)
            elif messages:
                log.warning("%d %s messages were polled but not used, and cannot be put back", len(messages), source)
        self.taken.clear()
