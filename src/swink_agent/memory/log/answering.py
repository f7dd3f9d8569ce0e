"""A history in which every call has a result, directly after its reply and in order, however the messages arrive.

Owns the places of results. `fold` makes results for calls that have none.
"""

from __future__ import annotations

from collections.abc import Callable

from swink_agent.core.exchanges import is_empty
from swink_agent.core.types import AgentMessage, AssistantMessage, ToolCall, ToolOutcome, ToolResultMessage

from .records import UnknownMessage

_PENDING = ToolOutcome.PENDING


class OpenCalls:
    """The calls of the last reply, and their results as they arrive."""

    __slots__ = ("calls", "reply", "results")

    def __init__(self, reply: int, calls: tuple[ToolCall, ...]) -> None:
        self.reply = reply
        self.calls = calls
        self.results: list[tuple[int, ToolResultMessage] | None] = [None] * len(calls)

    def place(self, number: int, message: ToolResultMessage, call: int | None) -> int | None:
        """Puts a result with its call. Returns the index of the call; `None` if it answers none."""
        index = self.find(message, call)
        if index is not None:
            self.results[index] = (number, message)
        return index

    def find(self, message: ToolResultMessage, call: int | None) -> int | None:
        """The index of the call that this result answers; `None` if it answers none."""
        calls = self.calls
        for index in range(len(calls)) if call is None else (call,) if 0 <= call < len(calls) else ():
            result = self.results[index]
            is_open = result is None or result[1].outcome is _PENDING  # only a pending result is ever replaced
            if is_open and calls[index].id == message.tool_call_id:
                return index
        return None

    def start(self, call: int) -> None:
        """Notes that a call starts: a pending result no longer holds."""
        if 0 <= call < len(self.calls) and (result := self.results[call]) is not None and result[1].outcome is _PENDING:
            self.results[call] = None


class AnsweredHistory:
    """A growing list of messages in which every call has a result, in order."""

    __slots__ = ("_late", "_recover", "batch", "messages", "numbers")

    def __init__(self, recover: Callable[[OpenCalls, int], ToolResultMessage]) -> None:
        self._recover = recover
        """Makes the result of a call that has none."""
        self._late: tuple[OpenCalls, int] | None = None
        """The calls of the last non-empty reply, if some had no result directly after it, and where their results
        begin."""
        self.messages: list[AgentMessage] = []
        self.numbers: list[int | None] = []
        self.batch: OpenCalls | None = None

    def __len__(self) -> int:
        return len(self.messages) + (0 if self.batch is None else len(self.batch.calls))

    def add(self, number: int, message: AgentMessage, call: int | None = None) -> bool:
        """Adds a message. Returns whether it has a place in the history."""
        batch = self.batch
        if type(message) is ToolResultMessage:
            if batch is None:
                return self._add_late(number, message, call)
            return batch.place(number, message, call) is not None
        if type(message) is UnknownMessage and message.data.get("role") == "tool_result":
            return False  # another version wrote it: its place is unknown, and other results may still come
        messages, numbers = self.messages, self.numbers
        if batch is not None:
            self.batch, start = None, len(messages)
            self._late = None if self._put_results(batch, messages, numbers) else (batch, start)
        messages.append(message)
        numbers.append(number)
        if type(message) is AssistantMessage:
            if self._late is not None and not is_empty(message):
                self._late = None
            if calls := message.tool_calls:
                self.batch = OpenCalls(number, calls)
        return True

    def _add_late(self, number: int, message: ToolResultMessage, call: int | None) -> bool:
        """Puts a result that arrives after another message in its place after its reply, where it is sent. Such results
        are in histories that an application gives, and in runs that close waiting calls."""
        if self._late is None:
            return False
        batch, start = self._late
        index = batch.find(message, call)
        if index is None or (call is not None and batch.results[index] is None):
            return False
        batch.results[index] = (number, message)
        self.messages[start + index], self.numbers[start + index] = message, number
        return True

    def _put_results(self, batch: OpenCalls, messages: list[AgentMessage], numbers: list[int | None]) -> bool:
        """Adds the results after the reply, in the order of its calls. Missing ones are recovered.

        Returns whether every call has a result that stays.
        """
        is_complete = True
        for index, result in enumerate(batch.results):
            number, message = (None, self._recover(batch, index)) if result is None else result
            if number is None or message.outcome is _PENDING:
                is_complete = False
            messages.append(message)
            numbers.append(number)
        return is_complete

    def all(self) -> tuple[list[AgentMessage], list[int | None]]:
        """The messages and their numbers, recovered results included."""
        messages, numbers = list(self.messages), list(self.numbers)
        if self.batch is not None:
            self._put_results(self.batch, messages, numbers)
        return messages, numbers

    def end(self) -> list[AgentMessage]:
        """Messages from the end of the history: at least the last reply and its results. Takes constant time."""
        if self.batch is None:
            return self.messages
        messages = self.messages[-1:]  # the reply whose calls these are
        self._put_results(self.batch, messages, [])
        return messages

    def on_record(self) -> list[tuple[int | None, AgentMessage]]:
        """The messages with their numbers, without the recovered results of the last reply."""
        found: list[tuple[int | None, AgentMessage]] = list(zip(self.numbers, self.messages, strict=True))
        if self.batch is not None:
            found += [result for result in self.batch.results if result is not None]
        return found

    def replace(self, number: int, message: AgentMessage) -> bool:
        batch = self.batch
        if batch is not None and type(message) is ToolResultMessage:
            for index, result in enumerate(batch.results):
                if result is not None and result[0] == number:
                    batch.results[index] = (number, message)
                    return True
        for position in range(len(self.numbers) - 1, -1, -1):
            if self.numbers[position] == number:
                self.messages[position] = message
                if batch is not None and batch.reply == number and type(message) is AssistantMessage:
                    calls = message.tool_calls
                    if len(calls) == len(batch.calls):
                        batch.calls = calls
                return True
        return False
