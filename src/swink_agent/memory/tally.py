"""What a list shows of a session, counted while it is written.

The fold knows it too, but has to put every message into its place for it. While an agent does nothing but add messages,
counting is enough, and costs a fraction. What rewrites the past ends the counting: then the fold is asked, and the
counting begins anew from there.

Owns the counting. What the numbers mean is said by `Summary`, and what they must come to by `fold`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

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
    AgentMessage,
    AssistantMessage,
    Cost,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    extract_text,
)

from .info import title_from
from .records import RecordEntry, Summary, TitleChanged, UnknownMessage

__all__ = ["FlatRecords", "SummaryCounter", "in_threes"]

FlatRecords: TypeAlias = list[int | RecordEntry]
"""Numbers, times and entries, one behind the other: a tuple for each would be one more thing for the garbage collector
to look at, in every run."""
_NO_USAGE, _NO_COST = Usage(), Cost()


def in_threes(records: FlatRecords) -> Iterable[tuple[int, int, RecordEntry]]:
    """Each entry behind its number and its time."""
    values: Any = iter(records)
    return zip(values, values, values, strict=True)


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

    def count(self, records: FlatRecords) -> None:
        """Takes the next records, none of them a summary, as far as it can be sure of what they come to."""
        entries: list[Any] = records[2::3]
        opened, replied = self._open, self._run_replies.append
        # For every record of every run: what is most frequent comes first, and no step that is not needed.
        for position, entry in enumerate(entries):
            if type(entry) is MessageAdded:
                source = entry.source
                if source == "result" and entry.call in opened and type(entry.message) is ToolResultMessage:
                    opened.discard(entry.call)
                elif source == "reply" and not opened:
                    message: Any = entry.message  # an `AssistantMessage`: to look would be one step more
                    content = message.content
                    if len(content) != 1:
                        opened.update(range(len(message.tool_calls)))
                    elif type(content[0]) is ToolCall:
                        opened.add(0)
                    replied(message)
                else:
                    self._add_other_message(cast("int", records[3 * position]), entry.message)
            elif type(entry) is not ToolStarted:
                self._add_other(entry)
            else:
                continue
            if not self.is_sure:
                return
        self.messages += list(map(type, entries)).count(MessageAdded)
        self._updated = max(self._updated, max(cast("list[int]", records[1::3]), default=0))

    def _add_other_message(self, number: int, message: AgentMessage) -> None:
        if self._open or type(message) in (ToolResultMessage, UnknownMessage):
            self.is_sure = False  # calls that were never answered, or a result of which only the fold says whose it is
        elif type(message) is AssistantMessage:
            self._open.update(range(len(message.tool_calls)))
        elif type(message) is UserMessage and not self._first:
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
