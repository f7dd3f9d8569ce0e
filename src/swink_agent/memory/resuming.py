"""Going on from what a journal holds, after a crash too.

Owns what the results that were recovered become: they get their place on record, before an agent goes on. What they say
is in `fold`.
"""

from __future__ import annotations

from typing import Protocol

from swink_agent.core.journal import ContextReplaced, HistoryCut, Journal, MessageAdded, Past

from .fold import Fold

__all__ = ["FoldedJournal", "past_of"]


class FoldedJournal(Journal, Protocol):
    """A journal that knows what its entries come to."""

    @property
    def fold(self) -> Fold:
        """What was recorded so far comes to, the entry that `record` took last included."""
        ...


def past_of(journal: FoldedJournal) -> Past:
    """What an agent goes on from: for `agent.attach_journal(journal, past_of(journal))`.

    Calls whose results a crash cost have one on record from here on, which says so.
    """
    # Those at the end come first, and the others say which call they answer: ids may recur, and an open call would take
    # the result of another.
    for one in journal.fold.recovered()[1]:
        journal.record(MessageAdded(one.message, "result", one.call))
    inside, _ = journal.fold.recovered()
    if inside:
        recorded = {id(one.message): journal.record(MessageAdded(one.message, "given", one.call)) for one in inside}
        history, context = journal.fold.history_numbers(recorded), journal.fold.context_parts(recorded)
        journal.record(HistoryCut(tuple(history)))
        if context is not None:
            journal.record(ContextReplaced(tuple(context)))
    return journal.fold.past()
