"""The interface of an open conversation on the server.

`standard` implements it with the conversation of the terminal UI, `embedded` with an application's own agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from swink_agent.app.talk.queue import Queued, QueuedKind
from swink_agent.core.agent.agent import Agent
from swink_agent.core.run.pending import Answer
from swink_agent.core.types import Document, Image
from swink_agent.memory import SessionInfo


class Figures(NamedTuple):
    """The state of a conversation for its readers, without its model."""

    queue: Sequence[Queued]
    plan: bool
    fill: float
    tokens: int
    cost: float | None
    """Dollars of the whole session; `None` if the prices are unknown."""
    outcome: str
    """How the last run ended: `idle`, `error` or `aborted`."""
    progress: str = ""
    """The current activity of a local model before it answers."""


class Talk(Protocol):
    """An open conversation in one session. Methods raise `Problem`, `ApplicationError` or `SessionError`."""

    @property
    def agent(self) -> Agent: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def has_background(self) -> bool:
        """Whether commands run in the background."""
        ...

    @property
    def figures(self) -> Figures: ...

    @property
    def info(self) -> SessionInfo | None:
        """The session's data for lists; `None` while the session is not open."""
        ...

    @property
    def holds_session(self) -> bool:
        """Whether the session is open, with this process as its only writer."""
        ...

    def redact(self, text: str) -> str: ...

    async def prompt(self, text: str, files: Sequence[str], linked: Sequence[Image | Document] = ()) -> None:
        """Starts a run; returns when the prompt is on disk. `files` are paths, `linked` is fetched by the provider."""
        ...

    async def resume(self, answers: Mapping[str, Answer]) -> None:
        """Starts a run with answers to calls that wait."""
        ...

    async def add(self, kind: QueuedKind, text: str, files: Sequence[str]) -> None:
        """Gives the active run another message."""
        ...

    async def stop(self) -> list[str]:
        """Stops the run and returns the texts that were queued."""
        ...

    async def command(self, line: str) -> None: ...

    async def set_model(self, model: str | None, thinking: str | None) -> None: ...

    async def set_plan(self, is_on: bool) -> None: ...

    async def rename(self, title: str) -> None: ...

    async def let_go(self) -> None:
        """Closes the session, unless something uses it, so that other programs can; `take_up` opens it again."""
        ...

    async def take_up(self, by: str | None) -> None:
        """Opens the session again if it is closed, for a run that this user starts, or for a change (`None`)."""
        ...

    async def close(self) -> None: ...
