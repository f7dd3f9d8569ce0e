"""The messages queued for an agent: steering and follow-ups.

Owns the two queues and the order in which a run takes from them. Any thread may add; nothing is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias

from ..config import MessageProvider
from ..types import AgentMessage
from ..values.checks import is_not
from ..waits import Supervisor

QueueMode: TypeAlias = Literal["one_at_a_time", "all"]
QueueName: TypeAlias = Literal["steering", "follow_up"]


class MessageQueues:
    """An agent's message provider: its own queues first, then the provider that the application gave, if any.

    `lock` guards the queues: any thread may add to them.
    """

    __slots__ = ("_follow_ups", "_lock", "follow_up_mode", "provider", "steering", "steering_mode", "woken")

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
        """Steering messages. Runs look at it often, so it is an attribute."""
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

    # Plain functions, which return the awaitable of the application's provider if it has one: most agents have no
    # provider, and these are called after every tool.

    def poll_steering(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self.take("steering")
        return messages if messages or self.provider is None else self.provider.poll_steering()

    def poll_follow_up(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self.take("follow_up")
        return messages if messages or self.provider is None else self.provider.poll_follow_up()
