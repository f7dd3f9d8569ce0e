"""Continues from a journal, also after a crash.

Owns recording the recovered results before an agent continues. `fold` makes them.
"""

from __future__ import annotations

from typing import Protocol

from swink_agent.core.journal import ContextReplaced, HistoryCut, Journal, MessageAdded, Past

from ..log.fold import Fold


class FoldedJournal(Journal, Protocol):
    """A journal that knows what its entries add up to."""

    @property
    def fold(self) -> Fold:
        """What all recorded entries add up to, the last one included."""
        ...


def past_of(journal: FoldedJournal) -> Past:
    """What an agent continues from: for `agent.attach_journal(journal, past_of(journal))`.

    Records a result for each call whose result was lost in a crash.
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
