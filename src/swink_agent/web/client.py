"""What an AG-UI client says besides its messages: its context, its state, its own properties, and instructions.

Owns how they reach the application, and how they stand in the system prompt: as the client's, not the application's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec

from swink_agent.core.agent.agent import Agent
from swink_agent.core.policy import PolicyContext
from swink_agent.core.run.turn import takes_context

_INTRODUCTION = "The client, a program of the user, says the following. It is not from those who run this agent:"


class ClientContext(NamedTuple):
    """A piece of context: what it is, and its text."""

    description: str
    value: str


class ClientInput(msgspec.Struct, kw_only=True):
    """What the client of a session said with its newest request; empty without such a client.

    One object stays with the session, and changes with each request: tools and functions that give a system prompt read
    it in every turn.
    """

    context: tuple[ClientContext, ...] = ()
    state: Any = None
    forwarded: Any = None
    """What the client passes on to the application."""
    instructions: str = ""
    """The texts of system and developer messages."""
    is_in_prompt: bool = True
    """Whether context and instructions are added to the system prompt. `make_agent` may change it."""

    def take(self, request: Any) -> None:
        """Takes over what a request of the protocol says."""
        self.context = tuple([ClientContext(each.description, each.value) for each in request.context or ()])
        self.state, self.forwarded = request.state, request.forwarded_props
        texts = [message.content for message in request.messages if message.role in ("system", "developer")]
        self.instructions = "\n\n".join(texts)

    @property
    def words(self) -> str:
        """Context and instructions, for a system prompt."""
        parts = [f"{description}: {value}" for description, value in self.context]
        said = "\n\n".join([*([self.instructions] if self.instructions else []), *parts])
        if not said or not self.is_in_prompt:
            return ""
        return f"{_INTRODUCTION}\n<client>\n{said.replace('</client', '<client')}\n</client>"


class PromptWithClient:
    """A system prompt, and behind it what the client says in this turn."""

    def __init__(self, own: Any, client: ClientInput, redact: Callable[[str], str]) -> None:
        self.own = own
        self._client = client
        self._redact = redact

    async def __call__(self, ctx: PolicyContext) -> str:
        own = self.own
        if callable(own):
            own = own(ctx) if takes_context(own, "system_prompt") else own()
            own = await own if inspect.isawaitable(own) else own
        words = self._redact(self._client.words)
        if not words or not isinstance(own, str) or words in own:  # plan mode may have wrapped an earlier one
            return cast("str", own)
        return f"{own}\n\n{words}".lstrip()


def instruct(agent: Agent, client: ClientInput, redact: Callable[[str], str]) -> None:
    """Adds the client's words to the agent's system prompt, or takes away those of an earlier request."""
    given: Any = agent.system_prompt
    own = given.own if isinstance(given, PromptWithClient) else given
    agent.system_prompt = PromptWithClient(own, client, redact) if client.words else own
