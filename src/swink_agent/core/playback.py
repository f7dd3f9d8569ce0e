"""Streams a known reply as if a model sent it: for recordings and scripts.

Owns the way from a message back to the events that make it. How events become a message is in `stream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .errors import ErrorKind
from .stream import (
    AssistantMessageEvent,
    StreamDone,
    StreamFailed,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from .types import AssistantMessage, StopReason, Text, Thinking, ToolCall


def events_of(reply: AssistantMessage) -> Iterator[AssistantMessageEvent]:
    """The stream events that make this reply."""
    yield StreamStart()
    is_cut = reply.stop_reason is StopReason.LENGTH
    index = 0
    for block in reply.content:
        match block:
            case Text():
                yield from (TextStart(index), TextDelta(index, block.text), TextEnd(index))
            case Thinking():
                yield from (ThinkingStart(index), ThinkingDelta(index, block.thinking))
                yield ThinkingEnd(index, block.signature)
            case ToolCall():
                yield ToolCallStart(index, block.id, block.name)
                partial = block.partial_json
                yield ToolCallDelta(index, _json(block.arguments) if partial is None else partial)
                if partial is None or not is_cut:
                    yield ToolCallEnd(index)
            case _:
                continue  # a block of another version: no stream event makes it
        index += 1
    if reply.is_failed:
        kind = reply.error_kind or ErrorKind.STREAM
        yield StreamFailed(reply.error_message or "", kind, reply.stop_reason, usage=reply.usage, cost=reply.cost)
    else:
        yield StreamDone(reply.stop_reason, reply.usage, reply.cost)


def _json(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()
