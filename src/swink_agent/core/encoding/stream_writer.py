"""Writes the stream events of one reply in the right order.

Keeps track of the indices of blocks and which of them are open, so that a parser only reports what it read. Also
streams a known reply as if a model sent it, for recordings and scripts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from ..errors import ErrorKind
from ..stream import (
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
from ..types import AssistantMessage, Cost, StopReason, Text, Thinking, ToolCall, Usage


class ReplyWriter:
    """Converts the output of a parser to events. `take()` returns the events since its last call.

    Consecutive pieces of text, or of thinking, belong to one block until another block opens or `end_speech` is called.
    Tool calls are identified by a key of the provider (an index, an id) and may be written in any order.
    """

    __slots__ = (
        *("_calls", "_events", "_next", "_response_id", "_served_model", "_signature", "_speech", "_speech_index"),
        "is_finished",
    )

    def __init__(self) -> None:
        self._events: list[AssistantMessageEvent] = [StreamStart()]
        self._next = 0
        self._speech = ""
        self._speech_index = -1
        self._signature: str | None = None
        self._calls: dict[Hashable, int] = {}
        self._served_model: str | None = None
        self._response_id: str | None = None
        self.is_finished = False
        """Whether the terminal event has been written; then nothing more is written."""

    def take(self) -> list[AssistantMessageEvent]:
        events, self._events = self._events, []
        return events

    def answered_by(self, model: object, response_id: object = None) -> None:
        """Notes what the provider calls its model and its reply. The first that is text and not empty counts."""
        if self._served_model is None and isinstance(model, str):
            self._served_model = model or None
        if self._response_id is None and isinstance(response_id, str):
            self._response_id = response_id or None

    def text(self, delta: str) -> None:
        """Writes a piece of text; an empty one opens no block."""
        if not delta or self.is_finished:
            return
        if self._speech != "text":
            self.end_speech()
            self._speech, self._speech_index = "text", self._open()
            self._events.append(TextStart(self._speech_index))
        self._events.append(TextDelta(self._speech_index, delta))

    def thinking(self, delta: str) -> None:
        """Writes a piece of reasoning; an empty one opens no block."""
        if not delta or self.is_finished:
            return
        self._open_thinking()
        self._events.append(ThinkingDelta(self._speech_index, delta))

    def signature(self, signature: str) -> None:
        """Writes the signature of the open thinking block. If there is none, opens an empty one."""
        if not signature or self.is_finished:
            return
        self._open_thinking()
        self._signature = (self._signature or "") + signature

    def end_speech(self) -> None:
        """Closes the open text or thinking block, if any."""
        if self._speech == "text":
            self._events.append(TextEnd(self._speech_index))
        elif self._speech == "thinking":
            self._events.append(ThinkingEnd(self._speech_index, self._signature))
        self._speech, self._speech_index, self._signature = "", -1, None

    def _open_thinking(self) -> None:
        if self._speech != "thinking":
            self.end_speech()
            self._speech, self._speech_index = "thinking", self._open()
            self._events.append(ThinkingStart(self._speech_index))

    def has_call(self, key: Hashable) -> bool:
        """Whether a call with this key is open."""
        return key in self._calls

    def start_call(self, key: Hashable, call_id: str, name: str) -> None:
        if self.is_finished or key in self._calls:
            return
        self.end_speech()
        index = self._calls[key] = self._open()
        self._events.append(ToolCallStart(index, call_id, name))

    def arguments(self, key: Hashable, delta: str) -> None:
        """Writes a piece of the arguments of an open call."""
        if delta and not self.is_finished and key in self._calls:
            self._events.append(ToolCallDelta(self._calls[key], delta))

    def end_call(self, key: Hashable) -> None:
        index = self._calls.pop(key, None)
        if index is not None and not self.is_finished:
            self._events.append(ToolCallEnd(index))

    def _open(self) -> int:
        self._next += 1
        return self._next - 1

    def done(self, stop_reason: StopReason, usage: Usage, cost: Cost | None = None) -> None:
        """Ends a complete reply. Closes all blocks, except a call that the length limit cut off."""
        if self.is_finished:
            return
        self.end_speech()
        if stop_reason != StopReason.LENGTH:
            self._end_calls()
        self._finish(StreamDone(stop_reason, usage, cost or Cost(), self._served_model, self._response_id))

    def fail(
        self,
        message: str,
        kind: ErrorKind,
        *,
        retry_after: float | None = None,
        usage: Usage | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Ends a failed reply and closes all blocks."""
        if self.is_finished:
            return
        self.end_speech()
        self._end_calls()
        self._finish(StreamFailed(message, kind, retry_after=retry_after, usage=usage, cost=cost))

    def _end_calls(self) -> None:
        for key in list(self._calls):
            self.end_call(key)

    def _finish(self, event: StreamDone | StreamFailed) -> None:
        self._events.append(event)
        self.is_finished = True


def events_of(reply: AssistantMessage) -> Iterator[AssistantMessageEvent]:
    """Yields the stream events of this reply."""
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
                arguments = msgspec.json.encode(block.arguments).decode() if partial is None else partial
                yield ToolCallDelta(index, arguments)
                if partial is None or not is_cut:
                    yield ToolCallEnd(index)
            case _:
                continue  # an `Extension`, for which there are no stream events
        index += 1
    if reply.is_failed:
        kind = reply.error_kind or ErrorKind.STREAM
        yield StreamFailed(reply.error_message or "", kind, reply.stop_reason, usage=reply.usage, cost=reply.cost)
    else:
        yield StreamDone(reply.stop_reason, reply.usage, reply.cost, reply.served_model, reply.response_id)
