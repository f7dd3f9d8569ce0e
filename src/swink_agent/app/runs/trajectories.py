"""Makes sessions of the trajectories of other agents, so that they can be read, searched, forked and evaluated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from swink_agent.core.agent.agent import Agent
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed
from swink_agent.memory.export import TrajectoryError, read_atif
from swink_agent.memory.sessions.store import SessionStore

from ..errors import UsageProblem

_LONGEST_NAME = 200


def import_atif(data: bytes, name: str, store: SessionStore, redactor: Redactor) -> tuple[str, tuple[str, ...]]:
    """Records a trajectory as a session; returns its id, and what was left out. Raises `UsageProblem`."""
    try:
        read = read_atif(data)
    except TrajectoryError as error:
        raise UsageProblem(f"{name} cannot be imported: {error}") from error
    if not read.messages:
        raise UsageProblem(f"{name} cannot be imported: it contains no messages of a user or an agent")
    agent = Agent(read.model, stream_fn=_never_asked, messages=read.messages, redactor=redactor)
    about = {"imported_from": redactor.redact(read.agent[:_LONGEST_NAME]) or "ATIF"}
    with store.create(title=redactor.redact(read.title)[:_LONGEST_NAME], metadata=about) as session:
        session.attach(agent)
        session.detach()
        return session.id, read.left_out


async def _never_asked(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    """Answers nothing: the agent exists only to be recorded."""
    yield StreamFailed("this agent cannot be asked")
