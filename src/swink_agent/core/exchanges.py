"""Which result answers which call: the one place that says so, for requests, records and sessions.

    a result         answers the first call of the last reply that has its id and no result yet
    a pending one    is replaced by a later result of its call; no other result ever is
    any other        answers no call

Empty replies are passed over: they are not sent, so results may follow them.

Owns exchanges, and the conversation that is made of them. `run/pending` says which calls can be answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .types import (
    FAILURES,
    AgentMessage,
    AssistantMessage,
    LlmMessage,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
)


class Exchange:
    """A reply with the results of its calls, and the other messages up to the next reply.

    The messages before the first reply are an exchange without a reply. `calls` are given if only some calls of the
    reply can be answered.
    """

    __slots__ = ("calls", "others", "reply", "results")

    def __init__(self, reply: AssistantMessage | None = None, calls: Sequence[ToolCall] | None = None) -> None:
        self.reply: AssistantMessage | None = reply
        self.calls: Sequence[ToolCall] = (() if reply is None else reply.tool_calls) if calls is None else calls
        self.results: list[ToolResultMessage | None] = [None] * len(self.calls)
        self.others: list[AgentMessage] = []

    def place(self, result: ToolResultMessage, index: int | None = None) -> int | None:
        """Puts a result with its call: the call number `index` if that is known. Returns the index of the call; `None`
        if it answers none."""
        found = self.find(result, index)
        if found is not None:
            self.results[found] = result
        return found

    def find(self, result: ToolResultMessage, index: int | None = None) -> int | None:
        """The index of the call that a result answers; `None` if it answers none."""
        indices = range(len(self.calls)) if index is None else (index,) if 0 <= index < len(self.calls) else ()
        waiting: int | None = None
        for at in indices:
            if self.calls[at].id == result.tool_call_id:
                if self.results[at] is None:
                    return at
                if waiting is None and self.is_pending(at):
                    waiting = at
        return waiting

    def is_pending(self, index: int) -> bool:
        """Whether the result of a call says that the call waits for an answer."""
        result = self.results[index]
        return result is not None and result.outcome is ToolOutcome.PENDING

    @property
    def missing(self) -> list[int]:
        """The calls without a result."""
        return [index for index, result in enumerate(self.results) if result is None]

    @property
    def pending(self) -> list[int]:
        """The calls that wait for an answer."""
        return [index for index in range(len(self.results)) if self.is_pending(index)]

    @property
    def is_left(self) -> bool:
        """Whether the user went on without the answers to calls that wait."""
        return any(type(message) is UserMessage for message in self.others)


def exchanges(messages: Iterable[AgentMessage]) -> list[Exchange]:
    """The exchanges of a history. The first has no reply; results that answer no call are left out."""
    found = [Exchange()]
    for message in messages:
        if type(message) is ToolResultMessage:
            found[-1].place(message)
        elif type(message) is AssistantMessage and not is_empty(message):
            found.append(Exchange(message))
        else:
            found[-1].others.append(message)
    return found


def last_exchange(messages: Sequence[AgentMessage]) -> Exchange:
    """The exchange of the last reply, in time that does not grow with the history. Even an empty reply begins it."""
    after: list[AgentMessage] = []
    for message in reversed(messages):
        if type(message) is AssistantMessage:
            exchange = Exchange(message)
            for later in reversed(after):
                if type(later) is ToolResultMessage:
                    exchange.place(later)
                else:
                    exchange.others.append(later)
            return exchange
        after.append(message)
    return Exchange()


def repair_pairs(messages: Iterable[LlmMessage]) -> list[LlmMessage]:
    """Returns the messages with exactly one result for each call, directly after it.

    A call without a result gets an error result, a result without a call is dropped, a late result moves up to its
    call, and empty assistant messages are dropped.
    """
    repaired: list[LlmMessage] = []
    for exchange in exchanges(messages):
        if exchange.reply is not None:
            repaired.append(exchange.reply)
            for call, result in zip(exchange.calls, exchange.results, strict=True):
                repaired.append(_missing_result(call, exchange.reply) if result is None else result)
        repaired += [message for message in exchange.others if type(message) is UserMessage]
    return repaired


def is_sendable(messages: Sequence[LlmMessage]) -> bool:
    """Whether the messages can be sent as they are: no reply has failed or says nothing, and the results of each
    directly follow it, in order."""
    missing: list[str] = []
    for message in messages:
        if type(message) is ToolResultMessage:
            if not missing or missing.pop(0) != message.tool_call_id:
                return False
        elif missing:
            return False
        elif type(message) is AssistantMessage:
            missing = [block.id for block in message.content if type(block) is ToolCall]
            if message.stop_reason in FAILURES or (not missing and is_empty(message)):
                return False
    return not missing


def _missing_result(call: ToolCall, asker: AssistantMessage) -> ToolResultMessage:
    # It has the reply's time, so that repeating the repair gives an equal message.
    text = "no result: this tool call was never completed"
    return ToolResultMessage(call.id, text, True, tool_name=call.name, timestamp=asker.timestamp)


def is_empty(message: AssistantMessage) -> bool:
    """Whether a message has no content for a provider: no call, no visible text, no signed reasoning."""
    for block in message.content:
        if type(block) is Text:
            if block.text.strip():
                return False
        elif type(block) is ToolCall or (type(block) is Thinking and block.signature is not None):
            return False
    return True
