"""The journal of one attempt: writes its entries to the table of records, with the epoch of the attempt.

    record      numbers an entry and keeps it; a result is written within a second, even if no caller waits for it
    durable     writes the kept entries, and waits until they are in the store
    finish      writes the rest together with how the attempt ended, in one transaction

`durable` raises an error if the run was cancelled or taken over, or the store could not be written.

Owns the numbers, the entries that are not written yet, and these errors. `store.writing` has the thread that writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from swink_agent.core.cancel import call_in
from swink_agent.core.errors import AgentError
from swink_agent.core.journal import MessageAdded, RunEnded
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AssistantMessage, StopReason
from swink_agent.memory import Fold
from swink_agent.memory.log.masking import LineWriter
from swink_agent.memory.log.records import RecordEntry

from .errors import DurableError
from .store.writing import Append, Ending, Writer

_SOON = 0.2
"""Seconds after which a result is written, if no caller has waited for it before."""
_FAILED = frozenset({StopReason.ERROR, StopReason.ABORTED})


class RunCancelled(DurableError):
    """The run was cancelled: everything so far is on record, and nothing more begins."""


class Kept(NamedTuple):
    """A record that is not written yet."""

    number: int
    at: int
    entry: RecordEntry
    redactor: Redactor | None


class RunJournal:
    """The log of a run, for the one attempt that may write it. A `FoldedJournal`."""

    def __init__(
        self, writer: Writer, run_id: str, epoch: int, fold: Fold, position: int, clock: Callable[[], int]
    ) -> None:
        """`clock` gives the store's time in milliseconds."""
        self.run_id = run_id
        self.epoch = epoch
        self.fold = fold
        self.failure: AgentError | None = None
        """Why nothing more is written."""
        self.on_failure: Callable[[], object] | None = None
        """Called in the event loop when nothing more can be written, or the run is cancelled."""
        self.progressed = asyncio.get_running_loop().time()
        """When something was last recorded."""
        self.has_replied = False
        """Whether this attempt brought a reply."""
        self._writer = writer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._number = position
        self._handed_over = position
        self._kept: list[Kept] = []
        self._unwritten: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RunJournal {self.run_id}, {self._number} recorded>"

    def record(self, entry: RecordEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry and returns its number. `durable` reports errors."""
        self._number = number = self._number + 1
        if self._is_closed or (self.failure is not None and not isinstance(self.failure, RunCancelled)):
            return number
        at = self._clock()
        self.fold.add(number, entry, at)
        self._kept.append(Kept(number, at, entry, redactor))
        self.progressed = self._loop.time()
        if type(entry) is MessageAdded and entry.source == "result" and self._timer is None:
            self._timer = self._loop.call_later(_SOON, self._hand_over)
        return number

    async def durable(self) -> None:
        """Returns when everything so far is on record. Raises `DurableError`s, also after it has written.

        The end of the agent's run is not waited for: `finish` writes it together with the end of the attempt.
        """
        if not (self._kept and type(self._kept[-1].entry) is RunEnded):
            self._hand_over(to_check=True)  # even without entries: the run may be cancelled or taken over by now
            while self._unwritten:
                await asyncio.wait(set(self._unwritten))
        if self.failure is not None:
            raise self.failure

    async def finish(self, ending: Ending) -> None:
        """Writes the rest, and how the attempt ended. If it raises a `DurableError`, the run stays as recorded."""
        self._check()
        future = self._hand_over(ending)
        self._is_closed = True
        assert future is not None
        await asyncio.shield(future)
        self._check()

    def _check(self) -> None:
        """Raises the error that prevents writing, if there is one."""
        if self.failure is not None and not isinstance(self.failure, RunCancelled):
            raise self.failure

    def close(self) -> None:
        """Writes nothing more."""
        self._is_closed = True
        self._kept.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hand_over(self, ending: Ending | None = None, *, to_check: bool = False) -> asyncio.Future[None] | None:
        """Gives the kept entries to the writing thread, which also checks that this attempt still has the run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or not (self._kept or ending or to_check):
            return None
        kept, self._kept = self._kept, []
        future: asyncio.Future[None] = self._loop.create_future()
        self._unwritten.add(future)
        has_reply = any(_is_reply(one.entry) for one in kept)
        self.has_replied = self.has_replied or has_reply
        append = Append(
            run_id=self.run_id,
            epoch=self.epoch,
            before=self._handed_over,
            lines=lambda: _lines(kept),
            position=self._number,
            has_reply=has_reply,
            has_prompt=any(type(one.entry) is MessageAdded and one.entry.source == "prompt" for one in kept),
            tokens=self.fold.usage.tokens,
            cost=self.fold.cost.amount,
            ending=ending,
            done=lambda outcome: call_in(self._loop, self._settle, future, outcome),
        )
        self._handed_over = self._number
        self._writer.add(append)
        return future

    def _settle(self, future: asyncio.Future[None], outcome: Exception | str | None) -> None:
        self._unwritten.discard(future)
        if outcome is not None and self.failure is None:
            if isinstance(outcome, AgentError):
                self.failure = outcome
            elif isinstance(outcome, Exception):
                self.failure = DurableError(f"a record of run {self.run_id} cannot be written: {outcome}")
            else:
                self.failure = RunCancelled(f"run {self.run_id} was cancelled")
            if self.on_failure is not None:
                self.on_failure()
        if not future.done():
            future.set_result(None)


def _is_reply(entry: RecordEntry) -> bool:
    if type(entry) is not MessageAdded or entry.source != "reply":
        return False
    message = entry.message
    return isinstance(message, AssistantMessage) and message.stop_reason not in _FAILED


def _lines(kept: list[Kept]) -> list[tuple[int, bytes]]:
    """The records as lines, without secrets."""
    lines: list[tuple[int, bytes]] = []

    def take(line: bytearray) -> int:
        lines.append((number, bytes(line[:-1])))
        return len(line)

    writer = LineWriter(take)
    for number, at, entry, redactor in kept:
        writer.write(number, at, entry, redactor)
    return lines
