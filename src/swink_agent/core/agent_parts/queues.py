"""The messages that wait for an agent: steering and follow-ups.

Owns the two queues and the order in which a run takes from them. Any thread may add; nothing is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from ..config import MessageProvider
from ..types import AgentMessage

__all__ = ["MessageQueues", "QueueMode", "QueueName"]

QueueMode: TypeAlias = Literal["one_at_a_time", "all"]
QueueName: TypeAlias = Literal["steering", "follow_up"]


class MessageQueues:
    """An agent's message provider: its own queues first, then the provider that the application gave, if any."""

    __slots__ = ("_lock", "_modes", "_queues", "on_steering", "provider", "steering")

    def __init__(self, steering: QueueMode, follow_up: QueueMode, provider: MessageProvider | None) -> None:
        for mode in (steering, follow_up):
            if mode not in ("one_at_a_time", "all"):
                raise ValueError(f"a queue's mode is 'one_at_a_time' or 'all', not {mode!r}")
        if provider is not None and not hasattr(provider, "poll_steering"):
            raise TypeError(f"message_provider is a MessageProvider, and not a {type(provider).__name__}")
        self._modes: dict[QueueName, QueueMode] = {"steering": steering, "follow_up": follow_up}
        self.steering: deque[AgentMessage] = deque()
        """What waits to interrupt: for a look, as often as one likes."""
        self._queues: dict[QueueName, deque[AgentMessage]] = {"steering": self.steering, "follow_up": deque()}
        self._lock = threading.Lock()
        self.provider = provider
        self.on_steering: Callable[[], None] | None = None
        """Called, in whatever thread, when there is news for running tools: set by the run that goes on."""

    def add(self, name: QueueName, messages: Sequence[AgentMessage]) -> None:
        with self._lock:
            self._queues[name].extend(messages)
            on_steering = self.on_steering
        if name == "steering" and messages and on_steering is not None:
            on_steering()

    def put_back(self, name: QueueName, messages: Sequence[AgentMessage]) -> None:
        """Returns messages to the head of their queue."""
        with self._lock:
            self._queues[name].extendleft(reversed(messages))

    def clear(self, *names: QueueName) -> None:
        with self._lock:
            for name in names:
                self._queues[name].clear()

    def has_messages(self) -> bool:
        return any(self._queues.values())

    def _take(self, name: QueueName) -> list[AgentMessage]:
        queue = self._queues[name]
        if not queue:
            return []
        with self._lock:
            count = len(queue) if self._modes[name] == "all" else min(1, len(queue))
            return [queue.popleft() for _ in range(count)]

    # Plain functions that hand on an awaitable if the application's provider has one: most agents have none, and
    # these are called after every tool.

    def poll_steering(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self._take("steering")
        return messages if messages or self.provider is None else self.provider.poll_steering()

    def poll_follow_up(self) -> Sequence[AgentMessage] | Awaitable[Sequence[AgentMessage]]:
        messages = self._take("follow_up")
        return messages if messages or self.provider is None else self.provider.poll_follow_up()
