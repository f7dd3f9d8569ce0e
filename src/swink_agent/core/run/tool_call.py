"""One tool call on its way to a result: what was asked, what will run, and what came of it.

Owns the state of a call. What happens to the calls of a batch, and when, is in `dispatch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from ..approval import Grant
from ..tool import AgentTool, AgentToolResult, ToolContext
from ..types import ToolCall, ToolResultMessage
from .relay import Relay
from .state import Run

__all__ = ["PendingCall", "context_for", "not_an_object"]

_LONGEST_EXCERPT = 200


class PendingCall:
    """One call on its way to a result, with the ways to reach it once it has started."""

    __slots__ = (
        "_is_over",
        "_relays",
        "_run",
        "arguments",
        "asked",
        "context",
        "given",
        "grant",
        "id",
        "index",
        "is_checked",
        "masked",
        "message",
        "name",
        "note",
        "task",
        "tool",
    )

    def __init__(self, call: ToolCall, tool: AgentTool | None, index: int, run: Run) -> None:
        self._run = run
        self.index = index
        """Among the calls of its reply."""
        self.id = call.id
        self.name = call.name
        self.asked = call.arguments
        """What the model asked for."""
        self.arguments = call.arguments
        """What will run: frozen, and nothing but copies of it is handed out."""
        self.note = ""
        """What the model is told behind the result."""
        self.tool = tool
        self.grant: Grant | None = None
        self.is_checked = False
        """Whether the arguments are known to be valid."""
        self.context: ToolContext
        """What the tool is given: there while it runs."""
        self.task: asyncio.Task[Any] | None = None
        """`None` for one that came to its end at once."""
        self.given: AgentToolResult | None = None
        """What the tool gave back."""
        self.masked: AgentToolResult | None = None
        """A long result in which no secret is left any more."""
        self.message: ToolResultMessage | None = None
        """The result as it enters the history: there when the batch is left."""
        self._is_over = False
        self._relays: dict[str, Relay] = {}

    @property
    def is_done(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def finishes_when_steered(self) -> bool:
        return getattr(self.tool, "on_steer", "cancel") == "finish"

    def report(self, update: AgentToolResult) -> None:
        """Takes a partial result, from any thread."""
        if self._is_over:
            return
        # Most tools report nothing. Of two threads that report at once, `setdefault` gives both the same relay.
        relay = self._relays.get("relay")
        if relay is None:
            relay = self._relays.setdefault("relay", Relay(self.id, self.name, self._run))
        relay.post(update)

    def close(self) -> None:
        """Lets the updates out that still wait, and takes no more."""
        self._is_over = True
        for relay in self._relays.values():
            relay.close()
        del self.context  # it holds this, and the two would keep the batch until the collector comes


def context_for(run: Run, call: PendingCall, on_update: Callable[[AgentToolResult], None] | None = None) -> ToolContext:
    return ToolContext(
        call.id,
        run.cancel,
        run.state,
        run.config.execution_root,
        on_update,
        run.threads,
        call.grant,
        run.id,
        run.transcript,
        run.redactor,
    )


def not_an_object(name: str, text: str) -> str:
    """What is wrong with arguments that are no JSON object, with enough of them for the model to know what it sent."""
    try:
        problem = f"JSON, but a {type(msgspec.json.decode(text)).__name__} and no object"
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = f"no JSON ({error})"
    sent = text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"
    return f"invalid arguments for {name}: they are {problem}; send one JSON object. What was sent: {sent}"
