"""One tool call on its way to a result: what was asked, what will run, and the execution once it has started.

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

__all__ = ["Execution", "PendingCall", "context_for", "not_an_object"]

_LONGEST_EXCERPT = 200


class PendingCall:
    """One call on its way to a result."""

    __slots__ = (
        "arguments",
        "asked",
        "grant",
        "id",
        "index",
        "is_checked",
        "masked",
        "message",
        "name",
        "note",
        "result",
        "tool",
    )

    def __init__(self, call: ToolCall, tool: AgentTool | None, index: int) -> None:
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
        self.masked: AgentToolResult | None = None
        """A long result in which no secret is left any more."""
        self.result: AgentToolResult | None = None
        self.message: ToolResultMessage
        """The result as it enters the history: there when the batch is left."""
        self.is_checked = False
        """Whether the arguments are known to be valid."""


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


class Execution:
    """A call that has started: its task, and the ways to reach it."""

    __slots__ = ("_run", "call", "context", "is_over", "relays", "result", "task")

    def __init__(self, call: PendingCall, run: Run) -> None:
        self._run = run
        self.call = call
        self.is_over = False
        self.relays: dict[str, Relay] = {}
        self.context = context_for(run, call, self._update)
        self.task: asyncio.Task[Any] | None = None
        """`None` for one that came to its end at once."""
        self.result: AgentToolResult | None = None

    @property
    def is_done(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def finishes_when_steered(self) -> bool:
        return getattr(self.call.tool, "on_steer", "cancel") == "finish"

    def _update(self, update: AgentToolResult) -> None:
        if self.is_over:
            return
        # Most tools report nothing. Of two threads that report at once, `setdefault` gives both the same relay.
        relay = self.relays.get("relay")
        if relay is None:
            made = Relay(self.call.id, self.call.name, self._run)
            relay = self.relays.setdefault("relay", made)
        relay.post(update)

    def close(self) -> None:
        """Lets the updates out that still wait, and takes no more."""
        self.is_over = True
        for relay in self.relays.values():
            relay.close()
        del self.context  # it holds this, and the two would keep the batch until the collector comes


def not_an_object(name: str, text: str) -> str:
    """What is wrong with arguments that are no JSON object, with enough of them for the model to know what it sent."""
    try:
        problem = f"JSON, but a {type(msgspec.json.decode(text)).__name__} and no object"
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = f"no JSON ({error})"
    sent = text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"
    return f"invalid arguments for {name}: they are {problem}; send one JSON object. What was sent: {sent}"
