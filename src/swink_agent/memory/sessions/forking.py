"""Copies the beginning of one session into a new one.

Owns what a fork copies: the messages, made valid; the model, state and compacted context of that moment; and the labels
up to it. Usage and cost of the old session's runs are not counted again.
"""

from __future__ import annotations

from msgspec import structs

from swink_agent.core import journal
from swink_agent.core.types import AgentMessage, Text, ToolOutcome, ToolResultMessage

from ..log.fold import Fold, RecoveredResult
from ..log.records import RecordEntry
from .session import LoadedSession, Session

_LEFT_BEHIND = (
    "outcome unknown: this tool call had started, and the session was forked before its result. It may have done all "
    "of its work, some of it, or none: look before you repeat it."
)
_NOT_STARTED = "never ran: the session was forked before this tool call."


def copy_into(session: Session, loaded: LoadedSession, at: int) -> None:
    """Writes the first `at` messages of one session into another, a new one."""
    log = session.log
    numbers = loaded.fold.numbers[:at]
    then = _fold_up_to(loaded, numbers) if at < len(loaded.messages) else loaded.fold
    if then.model is not None:
        log.record(journal.ModelChanged(then.model))
    copied: dict[int | None, int] = {}
    for number, message in zip(numbers, loaded.messages, strict=False):
        copied[number] = log.record(journal.MessageAdded(message, "given"))
    # Calls without results get results, as in a session that continues after a crash. A call that had started in the
    # other session has started in this history too.
    back = {new: old for old, new in copied.items()}
    for one in log.fold.recovered()[1]:
        if loaded.fold.has_started(back.get(one.reply), one.call):
            log.record(journal.ToolStarted(one.call, one.message.tool_call_id, one.message.tool_name))
    open_replies = {then.open_reply}
    left = zip(log.fold.recovered()[1], loaded.messages[at:], strict=False)
    for one, there in left:
        log.record(journal.MessageAdded(_answer(one, there), "result", one.call))
        open_replies.add(back.get(one.reply))
    parts = _context(then, copied, log.fold.numbers, open_replies)
    if parts:
        log.record(journal.ContextReplaced(tuple(parts)))
    if then.state:
        log.record(journal.StateChanged(then.state))
    for label in loaded.labels:
        if label.position <= at:
            log.add(label)


def _answer(one: RecoveredResult, there: AgentMessage) -> ToolResultMessage:
    """The result of a call whose own result is not copied, or is missing in the other session too."""
    if isinstance(there, ToolResultMessage) and there.outcome in (ToolOutcome.LOST, ToolOutcome.NEVER_RAN):
        return one.message
    text = _LEFT_BEHIND if one.message.outcome is ToolOutcome.LOST else _NOT_STARTED
    return structs.replace(one.message, content=(Text(text),))


def _fold_up_to(loaded: LoadedSession, numbers: list[int | None]) -> Fold:
    """The fold at the time when the history had these messages, after the application last replaced the history."""
    records = loaded.records()
    changes = [record.number for record in records if isinstance(record.entry, journal.HistoryCut)]
    last = max([number for number in numbers if number is not None] + changes[-1:], default=0)
    fold = Fold()
    source: journal.MessageSource = "given"  # what an agent has from the start
    for record in records:
        entry = record.entry
        if record.number <= last:
            if isinstance(entry, (journal.MessageAdded, journal.HistoryCut)):
                source = entry.source if isinstance(entry, journal.MessageAdded) else "given"
        elif not _is_of_the_same_moment(entry, source):
            break
        elif isinstance(entry, journal.MessageAdded):
            continue
        fold.add(record.number, entry, record.at)
    return fold


def _is_of_the_same_moment(entry: RecordEntry, source: journal.MessageSource) -> bool:
    """Whether an entry after the last copied message belongs to it.

    The state and the context with which a prompt was sent are recorded after it. Given messages were given together.
    Entries after a reply or a result may belong to the next one.
    """
    if source == "given":
        return not isinstance(entry, (journal.ToolStarted, journal.ContextReplaced)) and (
            not isinstance(entry, journal.MessageAdded) or entry.source == "given"
        )
    return source not in ("reply", "result") and not isinstance(entry, (journal.ToolStarted, journal.MessageAdded))


def _context(
    then: Fold, copied: dict[int | None, int], numbers: list[int | None], open_replies: set[int | None]
) -> list[int | AgentMessage]:
    """The compacted context of that moment: copied messages, and messages that a compaction made.

    `numbers` are those of the new history. A reply whose calls had no results yet, or whose results are not all copied,
    gets the results that it has in the new history.
    """
    parts: list[int | AgentMessage] = []
    for part in then.context_parts({}) or ():
        if not isinstance(part, int):
            parts.append(part)
        elif part in copied:
            parts.append(copied[part])
            if part in open_replies:
                return parts + [number for number in numbers[numbers.index(copied[part]) + 1 :] if number is not None]
    return parts
