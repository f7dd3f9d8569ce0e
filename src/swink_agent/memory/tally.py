"""What a list shows of a session, counted while it is written.

The fold knows it too, but has to put every message into its place for it. While an agent does nothing but add messages,
counting is enough, and costs a fraction. What rewrites the past ends the counting: then the fold is asked, and the
counting begins anew from there.

Owns the counting. What the numbers mean is said by `Summary`, and what they must come to by `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeAlias

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

NumberedEntry: TypeAlias = tuple[int, int, RecordEntry]
"""An entry behind its number and its time."""
_NO_USAGE, _NO_COST = Usage(), Cost()
_at = itemgetter(1)


class SummaryCounter:
    """Counts from a summary on. It is good as long as `is_sure`."""

    __slots__ = (
        "_cost",
        "_first",
        "_first_number",
        "_model",
        "_open",
        "_run_cost",
        "_run_replies",
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
        self._run_replies: list[AssistantMessage] = []
        """Those that are not in `_run_usage` yet: most never are, for the end of the run says what all of it used."""
        self._open: set[int] = set()
        """The calls of the last reply that have no result yet."""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def count(self, records: Sequence[NumberedEntry]) -> None:
        """Takes the next records, none of them a summary, as far as it can be sure of what they come to."""
        opened, messages, replied = self._open, 0, self._run_replies.append
        for number, _, entry in records:
            if type(entry) is MessageAdded:
                message, call = entry.message, entry.call
                if type(message) is ToolResultMessage:
                    if call not in opened:
                        self.is_sure = False  # where it belongs is for the fold to say
                        break
                    opened.discard(call)
                elif opened:
                    self.is_sure = False  # a reply whose calls were never answered
                    break
                elif type(message) is AssistantMessage:
                    content = message.content
                    if len(content) != 1:
                        opened.update(range(len(message.tool_calls)))
                    elif type(content[0]) is ToolCall:
                        opened.add(0)
                    if entry.source == "reply":
                        replied(message)
                elif type(message) is UserMessage and not self._first:
                    self._first, self._first_number = title_from(extract_text(message.content)), number
                messages += 1
            elif type(entry) is not ToolStarted:
                self._add_other(entry)
                if not self.is_sure:
                    break
        self.messages += messages
        self._updated = max(self._updated, max(map(_at, records), default=0))

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
            self._add_run_replies()
            self._usage, self._cost = self._usage + self._run_usage, self._cost + self._run_cost
            self._run_usage, self._run_cost = Usage(), Cost()
        elif isinstance(entry, RunEnded):
            self._usage, self._cost = self._usage + entry.usage, self._cost + entry.cost
            self._run_usage, self._run_cost = Usage(), Cost()
            self._run_replies.clear()

    def _add_run_replies(self) -> None:
        for message in self._run_replies:
            if message.usage != _NO_USAGE:
                self._run_usage += message.usage
            if message.cost != _NO_COST:
                self._run_cost += message.cost
        self._run_replies.clear()

    def summary(self) -> Summary:
        """What it comes to so far."""
        self._add_run_replies()
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
