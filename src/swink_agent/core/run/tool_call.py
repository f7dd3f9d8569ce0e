"""One tool call on its way to a result: what was asked, what will run, and what came of it.

Owns the state of a call. What happens to the calls of a batch, and when, is in `dispatch`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ..approval import Grant
from ..tool import AgentTool, AgentToolResult, ToolContext
from ..types import ToolResultMessage
from ..values.nesting import too_deep
from .relay import Relay
from .state import Run

__all__ = ["PendingCall", "not_an_object"]

_LONGEST_EXCERPT = 200


class PendingCall(msgspec.Struct, eq=False):
    """One call on its way to a result, with the ways to reach it once it has started."""

    run: Run
    tool: AgentTool | None
    index: int
    """Among the calls of its reply."""
    id: str
    name: str
    asked: dict[str, Any]
    """What the model asked for."""
    arguments: dict[str, Any]
    """What will run: frozen, and nothing but copies of it is handed out."""
    is_checked: bool = False
    """Whether the arguments are known to be valid."""
    grant: Grant | None = None
    note: str = ""
    """What the model is told behind the result."""
    context: ToolContext | None = None
    """What the tool is given, while it runs."""
    task: asyncio.Task[Any] | None = None
    """`None` for one that came to its end at once."""
    given: AgentToolResult | None = None
    """What the tool gave back."""
    masked: AgentToolResult | None = None
    """The same, once no secret is left in it."""
    message: ToolResultMessage | None = None
    """The result as it enters the history: there when the batch is left."""
    relays: dict[str, Relay] = {}

    @property
    def is_done(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def is_listening(self) -> bool:
        """Whether the tool looks at its token, and is given a moment to end by itself."""
        return self.context is not None and self.context.is_listening

    @property
    def finishes_when_steered(self) -> bool:
        return getattr(self.tool, "on_steer", "cancel") == "finish"

    def call_off(self) -> None:
        """Tells the tool, if it listens, that nobody waits for it any more."""
        if self.context is not None:
            self.context.cancel.cancel()

    def report(self, update: AgentToolResult) -> None:
        """Takes a partial result, from any thread."""
        if self.context is None:
            return  # it is over
        # Most tools report nothing. Of two threads that report at once, `setdefault` gives both the same relay.
        relay = self.relays.get("relay")
        if relay is None:
            relay = self.relays.setdefault("relay", Relay(self.id, self.name, self.run))
        relay.post(update)

    def close(self) -> None:
        """Lets the updates out that still wait, and takes no more."""
        self.context = None  # it holds this, and the two would keep the batch until the collector comes
        for relay in self.relays.values():
            relay.close()


def not_an_object(name: str, text: str) -> str:
    """What is wrong with arguments that are no JSON object, with enough of them for the model to know what it sent."""
    try:
        value = msgspec.json.decode(text)
        is_object = isinstance(value, dict)
        problem = too_deep() if is_object else f"JSON, but a {type(value).__name__} and no object"
    except RecursionError:
        problem = too_deep()
    except (msgspec.DecodeError, UnicodeError) as error:
        problem = f"no JSON ({error})"
    sent = text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"
    return f"invalid arguments for {name}: they are {problem}; send one JSON object. What was sent: {sent}"
