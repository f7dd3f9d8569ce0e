"""Messages that the user sends during a run: steering and follow-ups.

The front end shows this list. The agent has the same messages in its own queues. When it adds one to the conversation,
an event reports it, and the message leaves this list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.agent.agent import Agent
from swink_agent.core.types import AgentMessage, UserMessage

QueuedKind: TypeAlias = Literal["steer", "follow_up"]


class Queued(NamedTuple):
    """A waiting message. `text` is what the user wrote."""

    kind: QueuedKind
    text: str
    message: UserMessage
    images: tuple[str, ...] = ()


class MessageQueue:
    """The waiting messages, the oldest first."""

    def __init__(self) -> None:
        self._waiting: list[Queued] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Queued, ...]:
        return tuple(self._waiting)

    def add(self, agent: Agent, queued: Queued) -> None:
        """Queues a message and gives it to the agent at once; the run decides when to use it."""
        self._waiting.append(queued)
        _send(agent, queued)

    def take_back(self, agent: Agent) -> Queued | None:
        """Removes the newest message, also from the agent's queues, and returns it; `None` if nothing waits."""
        if not self._waiting:
            return None
        taken = self._waiting.pop()
        self.move(agent)
        return taken

    def take_all(self, agent: Agent) -> tuple[Queued, ...]:
        """Removes all messages, also from the agent's queues, and returns them."""
        taken, self._waiting = tuple(self._waiting), []
        agent.clear_queues()
        return taken

    def entered(self, messages: Sequence[AgentMessage]) -> list[Queued]:
        """Removes and returns the waiting messages among `messages`, which are in the conversation now."""
        ids = {id(message) for message in messages}
        entered = [queued for queued in self._waiting if id(queued.message) in ids]
        self._waiting = [queued for queued in self._waiting if id(queued.message) not in ids]
        return entered

    def move(self, agent: Agent) -> None:
        """Fills the queues of the agent, which may be a new one, with exactly the waiting messages."""
        agent.clear_queues()
        for queued in self._waiting:
            _send(agent, queued)


def _send(agent: Agent, queued: Queued) -> None:
    if queued.kind == "steer":
        agent.steer(queued.message)
    else:
        agent.follow_up(queued.message)
