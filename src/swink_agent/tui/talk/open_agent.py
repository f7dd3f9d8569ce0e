"""An agent, its session and its redactor, opened together and closed together.

Owns the order of both, and that a session is let go of when no agent can be had for it. To be called beside the event
loop: it reads files, looks for a sandbox, and may unlock a keyring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swink_agent.app.agent import StandardAgent
from swink_agent.app.opening import Opening
from swink_agent.app.sessions import RunSession, WantedSession
from swink_agent.core.agent import Agent
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec

if TYPE_CHECKING:
    from swink_agent.approvals import SessionTrust
    from swink_agent.approvals.approvals import AskFn

__all__ = ["OpenAgent", "SharedAgentOptions"]


class SharedAgentOptions:
    """What every agent of a conversation is made with, whichever it is."""

    def __init__(self, *, ask: AskFn, on_local_state: Callable[[Any], None], stream_fn: StreamFn | None = None) -> None:
        self.ask = ask
        self.on_local_state = on_local_state
        self.stream_fn = stream_fn

    def agent(
        self,
        opening: Opening,
        session: RunSession,
        redactor: Redactor,
        *,
        model: ModelSpec | None = None,
        trust: SessionTrust | None = None,
    ) -> StandardAgent:
        return opening.agent(
            session,
            redactor,
            ask=self.ask,
            on_local_state=self.on_local_state,
            trust=trust,
            model=model,
            stream_fn=self.stream_fn,
        )


class OpenAgent:
    """What a conversation works with until it goes on with another model or in another session."""

    def __init__(self, opening: Opening, session: RunSession, made: StandardAgent) -> None:
        self.opening = opening
        self.session = session
        self.made = made

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
        around: SharedAgentOptions,
        wanted: WantedSession | None = None,
        session: RunSession | None = None,
        *,
        model: ModelSpec | None = None,
        trust: SessionTrust | None = None,
    ) -> OpenAgent:
        """Opens both, or the agent alone for a session that is open. Raises `ApplicationError`; nothing is left open
        then."""
        if session is None:
            session = opening.session(wanted)
            session.__enter__()
        try:
            made = around.agent(opening, session, opening.redactor(session), model=model, trust=trust)
            try:
                session.attach(made.agent)
            except BaseException:
                made.close()
                raise
        except BaseException:
            session.close()
            raise
        return cls(opening, session, made)

    def with_agent(self, opening: Opening, around: SharedAgentOptions, model: ModelSpec | None) -> OpenAgent:
        """The same session and its history with another agent, which takes the place of this one.

        Raises `ApplicationError`, and then all is as it was.
        """
        trust = self.made.approvals.trust
        made = around.agent(opening, self.session, self.redactor, model=model, trust=trust)
        made.approvals.mode = self.made.approvals.mode
        before = list(self.agent.messages)
        self.session.detach()
        try:
            self.session.attach(made.agent)
        except BaseException:
            made.close()
            self.session.attach(self.agent)
            raise
        if len(made.agent.messages) != len(before):  # there is no session that could have given them
            made.agent.messages = before
        self.made.close()
        return OpenAgent(opening, self.session, made)

    def close(self) -> str:
        """Ends what tools started and lets go of the session; returns what could not be written, in words."""
        self.made.close()
        return self.session.close()
