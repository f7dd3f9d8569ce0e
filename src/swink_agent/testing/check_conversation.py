"""Checks the messages that are sent to a provider by the rules that providers enforce."""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.core.types import AgentMessage, AssistantMessage, Text, Thinking, ToolResultMessage, UserMessage


def check_conversation(messages: Sequence[AgentMessage]) -> None:
    """Raises `AssertionError` unless every call has exactly one result, directly after it, and every result a call.

    It also refuses an empty assistant message, a message that is not for models, and a failed reply at the end, since
    the request is for that reply.
    """
    expected: list[str] = []
    for position, message in enumerate(messages):
        where = f"message {position} of {len(messages)}, {message!r}"
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id not in expected:
                raise AssertionError(f"{where}: it answers no call (open: {expected})")
            expected.remove(message.tool_call_id)
            continue
        if expected:
            raise AssertionError(f"{where}: it comes before the results of {expected}")
        if isinstance(message, AssistantMessage):
            if not any(_says_something(block) for block in message.content):
                raise AssertionError(f"{where}: it says nothing")
            expected = [call.id for call in message.tool_calls]
        elif not isinstance(message, UserMessage):
            raise AssertionError(f"{where}: it is not a message for a model")
    if expected:
        raise AssertionError(f"the conversation ends before the results of {expected}")
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage) and last.is_failed:
        raise AssertionError(f"the conversation ends with a reply that failed: {last!r}")


def _says_something(block: object) -> bool:
    if isinstance(block, Text):
        return bool(block.text.strip())
    return not isinstance(block, Thinking) or block.signature is not None
