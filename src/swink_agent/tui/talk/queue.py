"""What was written while a run goes on, and waits for its turn: steering, and follow-ups.

Owns the list that people see as chips. The agent has the same messages in its own queues; what was taken from those has
entered the conversation, which is told by an event, and leaves the list then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.agent import Agent
from swink_agent.core.types import AgentMessage, UserMessage

__all__ = ["MessageQueue", "Queued", "QueuedKind"]

QueuedKind: TypeAlias = Literal["steer", "follow_up"]


class Queued(NamedTuple):
    """A message that waits. `text` is what the person wrote."""

    kind: QueuedKind
    text: str
    message: UserMessage
    images: tuple[str, ...] = ()


class MessageQueue:
    """The messages that wait, the oldest first."""

    def __init__(self) -> None:
        self._waiting: list[Queued] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Queued, ...]:
        return tuple(self._waiting)

    def add(self, agent: Agent, queued: Queued) -> None:
        """Gives the agent a message at once: when it uses it is for the run to say."""
        self._waiting.append(queued)
        _hand_over(agent, queued)

    def take_back(self, agent: Agent) -> Queued | None:
        """The newest one, which the agent then does not get; `None` if nothing waits."""
        if not self._waiting:
            return None
        taken = self._waiting.pop()
        self._give_again(agent)
        return taken

    def take_all(self, agent: Agent) -> tuple[Queued, ...]:
        """All of them, which the agent then does not get."""
        taken, self._waiting = tuple(self._waiting), []
        agent.clear_queues()
        return taken

    def entered(self, messages: Sequence[AgentMessage]) -> list[Queued]:
        """Those that are among messages which have entered the conversation; they wait no longer."""
        ids = {id(message) for message in messages}
        entered = [queued for queued in self._waiting if id(queued.message) in ids]
        self._waiting = [queued for queued in self._waiting if id(queued.message) not in ids]
        return entered

    def move(self, agent: Agent) -> None:
        """Gives all of them to another agent, which takes the place of the one that had them."""
        self._give_again(agent)

    def _give_again(self, agent: Agent) -> None:
        agent.clear_queues()
        for queued in self._waiting:
            _hand_over(agent, queued)


def _hand_over(agent: Agent, queued: Queued) -> None:
    if queued.kind == "steer":
        agent.steer(queued.message)
    else:
        agent.follow_up(queued.message)
