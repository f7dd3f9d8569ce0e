"""Opens and closes an agent together with its session and redactor.

If the agent cannot be created, the session is closed. Call this in a thread: it reads files, looks for a sandbox, and
may unlock a keyring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.core.agent.agent import Agent
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import ModelSpec

from ..runs.sessions import RunSession, WantedSession
from .opening import GivenToAgent, Opening
from .standard import StandardAgent

if TYPE_CHECKING:
    from .servers import McpServers


class OpenAgent:
    """An agent and its open session. A conversation has another one when it changes the model or the session."""

    def __init__(self, opening: Opening, session: RunSession, made: StandardAgent) -> None:
        self.opening = opening
        self.session = session
        self.made = made

        self.holds_session = True
        """Whether the session is open, with this process as its only writer."""

    @property
    def agent(self) -> Agent:
        return self.made.agent

    @property
    def redactor(self) -> Redactor:
        return self.made.redactor

    @classmethod
    def open(
        cls,
        opening: Opening,
        around: GivenToAgent,
        wanted: WantedSession | None = None,
        session: RunSession | None = None,
        *,
        model: ModelSpec | None = None,
        servers: McpServers | None = None,
    ) -> OpenAgent:
        """Opens the session, unless an open one is given, and creates the agent. `servers` already run.

        Raises `ApplicationError`; nothing stays open then.
        """
        if session is None:
            session = opening.session(wanted)
            session.__enter__()
        try:
            redactor = opening.redactor(session)
            made = opening.agent(session, redactor, model=model, **{**around, "servers": servers})
            try:
                session.attach(made.agent)
            except BaseException:
                made.servers = None if servers is not None else made.servers
                made.close()
                raise
        except BaseException:
            session.close()
            raise
        return cls(opening, session, made)

    def with_agent(self, opening: Opening, around: GivenToAgent, model: ModelSpec | None) -> OpenAgent:
        """Continues the same session and history with another agent, and closes this one.

        Raises `ApplicationError`; nothing is changed then.
        """
        trust, servers = self.made.approvals.trust, self.made.servers
        if servers is not None and servers.settings != tuple(opening.settings.servers()[0]):
            servers = None  # the settings changed: new servers are started, and these end below
        given: GivenToAgent = {**around, "trust": trust, "servers": servers}
        made = opening.agent(self.session, self.redactor, model=model, **given)
        made.approvals.mode = self.made.approvals.mode
        before = list(self.agent.messages)
        self.session.detach()
        try:
            self.session.attach(made.agent)
        except BaseException:
            made.servers = None if servers is not None else made.servers
            made.close()
            self.session.attach(self.agent)
            raise
        if len(made.agent.messages) != len(before):  # an unrecorded session could not supply them
            made.agent.messages = before
        if servers is not None:
            self.made.servers = None  # the new agent has them
        made.take_over_hooks(self.made)
        self.made.close()
        return OpenAgent(opening, self.session, made)

    def let_go(self) -> str:
        """Closes the session and keeps the agent; returns a message if records could not be written."""
        if not self.holds_session or self.session.id is None:
            return ""
        self.session.detach()
        self.holds_session = False
        return self.session.close()

    def take_up(self) -> bool:
        """Opens the session again; returns whether another program added to it. Raises `ApplicationError`."""
        before = _end_of(self.agent)
        session = self.opening.session(WantedSession(id=self.session.id))
        session.__enter__()
        try:
            session.attach(self.agent)
        except BaseException:
            session.close()
            raise
        self.session, self.holds_session = session, True
        return _end_of(self.agent) != before

    def close(self) -> str:
        """Closes the agent and the session; returns a message if records could not be written."""
        self.made.close()
        return self.session.close()


def _end_of(agent: Agent) -> tuple[int, int]:
    """The number of messages, and the timestamp of the last."""
    messages = agent.messages
    return len(messages), getattr(messages[-1], "timestamp", 0) if messages else 0
