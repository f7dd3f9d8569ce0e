"""What a list shows of a session, counted while it is written.

The fold knows it too, but has to put every message into its place for it. While an agent does nothing but add messages,
counting is enough, and costs a fraction. What rewrites the past ends the counting: then the fold is asked, and the
counting begins anew from there.

Owns the counting. What the numbers mean is said by `Summary`, and what they must come to by `fold`.
"""

from __future__ import annotations

from swink_agent.core.journal import (
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    RunEnded,
    RunStarted,
    ToolStarted,
)
from swink_agent.core.types import AssistantMessage, Cost, ToolCall, ToolResultMessage, Usage, UserMessage, extract_text

from .info import title_from
from .records import RecordEntry, Summary, TitleChanged

__all__ = ["Tally"]

_NO_USAGE, _NO_COST = Usage(), Cost()


class Tally:
    """Counts from a summary on. It is good as long as `is_sure`."""

    __slots__ = (
        "_cost",
        "_first",
        "_first_number",
        "_model",
        "_open",
        "_run_cost",
        "_run_usage",
        "_title",
        "_updated",
        "_usage",
        "is_sure",
        "messages",
    )

    def __init__(self, summary: Summary, *, is_open: bool) -> None:
        self.is_sure = not is_open
        self.messages = summary.messages
        self._usage, self._cost = summary.usage, summary.cost
        self._run_usage, self._run_cost = summary.run_usage, summary.run_cost
        self._model, self._title, self._updated = summary.model, summary.title, summary.updated
        self._first, self._first_number = summary.first, summary.first_number
        self._open: set[int] = set()
        """The calls of the last reply that have no result yet."""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def add(self, number: int, entry: RecordEntry, at: int) -> None:
        """Takes the next entry."""
        kind = type(entry)
        if kind is MessageAdded:
            self._add_message(number, entry)  # pyright: ignore[reportArgumentType]
        elif kind is ToolStarted:
            pass  # the most frequent besides messages, and nothing to count
        elif kind is HistoryCut or kind is MessageReplaced:
            self.is_sure = False
        elif isinstance(entry, ModelChanged):
            self._model = entry.model
        elif isinstance(entry, TitleChanged):
            self._title = entry.title
        elif isinstance(entry, RunStarted):
            self._usage, self._cost = self._usage + self._run_usage, self._cost + self._run_cost
            self._run_usage, self._run_cost = Usage(), Cost()
        elif isinstance(entry, RunEnded):
            self._usage, self._cost = self._usage + entry.usage, self._cost + entry.cost
            self._run_usage, self._run_cost = Usage(), Cost()
        if at > self._updated and kind is not Summary:
            self._updated = at

    def _add_message(self, number: int, entry: MessageAdded) -> None:
        message = entry.message
        if type(message) is ToolResultMessage:
            if entry.call in self._open:
                self._open.discard(entry.call)
                self.messages += 1
            else:
                self.is_sure = False  # where it belongs, if anywhere, is for the fold to say
            return
        if self._open:
            self.is_sure = False  # a reply whose calls were never answered
            return
        self.messages += 1
        if type(message) is AssistantMessage:
            content = message.content
            if len(content) != 1 or type(content[0]) is ToolCall:
                self._open.update(range(len(message.tool_calls)))
            if entry.source == "reply" and (message.usage != _NO_USAGE or message.cost != _NO_COST):
                self._run_usage += message.usage
                self._run_cost += message.cost
        elif not self._first and type(message) is UserMessage:
            self._first, self._first_number = title_from(extract_text(message.content)), number

    def summary(self) -> Summary:
        """What it comes to so far."""
        return Summary(
            messages=self.messages,
            usage=self._usage,
            cost=self._cost,
            run_usage=self._run_usage,
            run_cost=self._run_cost,
            model=self._model,
            title=self._title,
            first=self._first,
            first_number=self._first_number,
            updated=self._updated,
        )
