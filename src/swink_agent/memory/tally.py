"""What a list shows of a session, counted while it is written.

The fold knows it too, but has to put every message into its place for it. While an agent does nothing but add messages,
counting is enough, and costs a fraction. What rewrites the past ends the counting: then the fold is asked, and the
counting begins anew from there.

Owns the counting. What the numbers mean is said by `Summary`, and what they must come to by `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from swink_agent.core.journal import (
    ContextReplaced,
    HistoryCut,
    MessageAdded,
    MessageReplaced,
    ModelChanged,
    RunEnded,
    RunStarted,
    ToolStarted,
)
from swink_agent.core.types import (
    AssistantMessage,
    Cost,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
)

from .info import title_from
from .records import RecordEntry, Summary, TitleChanged

__all__ = ["SummaryCounter"]

_NO_USAGE, _NO_COST = Usage(), Cost()
_at = attrgetter("at")


class NumberedEntry(Protocol):
    """An entry with its number and time."""

    @property
    def number(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def entry(self) -> RecordEntry: ...


class SummaryCounter:
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

    def count(self, records: Sequence[NumberedEntry]) -> None:
        """Takes the next records, none of them a summary, as far as it can be sure of what they come to."""
        opened, messages = self._open, 0
        for record in records:
            entry = record.entry
            if type(entry) is ToolStarted:
                continue  # the most frequent besides messages, and nothing to count
            if type(entry) is not MessageAdded:
                self._add_other(entry)
            elif entry.call in opened and type(entry.message) is ToolResultMessage:
                opened.discard(entry.call)
                messages += 1
                continue
            else:
                self._add_message(record.number, entry)
            if not self.is_sure:
                break
        self.messages += messages
        self._updated = max(self._updated, max(map(_at, records), default=0))

    def _add_message(self, number: int, entry: MessageAdded) -> None:
        message = entry.message
        if self._open or type(message) is ToolResultMessage:
            # A reply whose calls were never answered; or a result, and where it belongs is for the fold to say.
            self.is_sure = False
            return
        self.messages += 1
        if type(message) is AssistantMessage:
            content = message.content
            if len(content) == 1:
                if type(content[0]) is ToolCall:
                    self._open.add(0)
            else:
                self._open.update(range(len(message.tool_calls)))
            if entry.source == "reply" and (message.usage != _NO_USAGE or message.cost != _NO_COST):
                self._run_usage += message.usage
                self._run_cost += message.cost
        elif not self._first and type(message) is UserMessage:
            self._first, self._first_number = title_from(extract_text(message.content)), number

    def _add_other(self, entry: RecordEntry) -> None:
        if isinstance(entry, HistoryCut | MessageReplaced):
            self.is_sure = False
        elif isinstance(entry, ModelChanged):
            self._model = entry.model
        elif isinstance(entry, ContextReplaced):
            if entry.report is not None:
                self._run_usage += entry.report.usage
                self._run_cost += entry.report.cost
        elif isinstance(entry, TitleChanged):
            self._title = entry.title
        elif isinstance(entry, RunStarted):
            self._usage, self._cost = self._usage + self._run_usage, self._cost + self._run_cost
            self._run_usage, self._run_cost = Usage(), Cost()
        elif isinstance(entry, RunEnded):
            self._usage, self._cost = self._usage + entry.usage, self._cost + entry.cost
            self._run_usage, self._run_cost = Usage(), Cost()

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
