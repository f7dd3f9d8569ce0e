"""Which run each message of a session's history entered in, and when.

Owns that mapping: it ties what was said to what is kept of runs elsewhere, such as copies of the files that they
changed.
"""

from __future__ import annotations

from typing import NamedTuple

from swink_agent.core.journal import MessageAdded, RunEnded, RunStarted

from .session import LoadedSession

__all__ = ["MessageRun", "message_runs"]


class MessageRun(NamedTuple):
    """The run that a message entered in. `at` is in milliseconds since the epoch."""

    run_id: str
    at: int


def message_runs(loaded: LoadedSession) -> list[MessageRun | None]:
    """One for each message of the history; `None` for one that entered in no run of this session, but was given."""
    found: dict[int, MessageRun] = {}
    run_id = ""
    for record in loaded.records():
        match record.entry:
            case RunStarted(run_id=started):
                run_id = started
            case RunEnded():
                run_id = ""
            case MessageAdded() if run_id:
                found[record.number] = MessageRun(run_id, record.at)
            case _:
                pass
    return [None if number is None else found.get(number) for number in loaded.fold.numbers]
