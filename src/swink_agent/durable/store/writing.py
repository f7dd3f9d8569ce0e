"""Appends records to the logs of runs: many runs, few transactions.

One thread writes. It takes a batch of waiting appends and writes it in one transaction, in which each append checks the
epoch of its run: an attempt that lost its run cannot write. If the store cannot be written, the thread retries for a
while, and then refuses the appends that have waited too long.

Owns the thread, the batches and the retries. `store` has the statements; `journal` collects the records of a run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import sqlalchemy as sa
from msgspec import Struct

from ..errors import DurableError, StoreUnavailable
from .connecting import Database, is_outage, reason_of

PATIENCE = 30.0
"""Seconds to wait for a store that is unavailable."""
MOST_BYTES = 32 * 1024 * 1024
"""The most bytes of one record."""
_MOST_AT_ONCE = 64
_IDLE = 1.0
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


class RunLost(DurableError):
    """This attempt no longer has the run: its writes are refused."""


class RecordTooLarge(DurableError):
    """A record is longer than a store accepts."""


class Ending(Struct, frozen=True, kw_only=True):
    """How an attempt leaves its run."""

    status: str
    error: str = ""
    pending: str = "[]"
    """The calls that wait, as JSON."""
    asked: frozenset[tuple[int, str]] = frozenset()
    """The same as pairs: the number of the reply, and the id of the call."""
    delay: float = 0
    """Seconds for which a queued run is not taken."""
    is_free: bool = False
    """Whether the attempt does not count."""
    has_failed: bool = False
    """Whether the model could not be reached."""


class Append(Struct, kw_only=True):
    """Records of one run to write together, and perhaps the end of the attempt."""

    run_id: str
    epoch: int
    before: int
    """The number of the last record before these."""
    lines: Callable[[], list[tuple[int, bytes]]]
    """Masks and encodes the records, each with its number. Called once, in the thread that writes."""
    position: int
    """The number of the last record after these."""
    has_reply: bool = False
    has_prompt: bool = False
    tokens: int = 0
    cost: float = 0.0
    ending: Ending | None = None
    done: Callable[[Exception | str | None], None]
    """Called in the writing thread: with an error, with the reason if the run is cancelled, or with `None`."""
    deadline: float = 0.0
    encoded: list[tuple[int, bytes]] | None = None


ApplyFn = Callable[[sa.Connection, Append], str | None]
"""Writes one append; returns the reason if the run is cancelled. Raises `RunLost`."""


class Writer:
    """The one thread of a process that appends records."""

    def __init__(self, database: Database, apply: ApplyFn) -> None:
        self._database = database
        self._apply = apply
        self._queue: deque[Append] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, append: Append) -> None:
        """Queues an append; it is written at once, after those before it."""
        append.deadline = time.monotonic() + PATIENCE
        with self._wake:
            if not self._is_closed:
                self._queue.append(append)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="swink-records", daemon=True)
                    self._thread.start()
                self._wake.notify()
                return
        append.done(StoreUnavailable(f"{self._database.shown} was closed"))

    def close(self) -> None:
        """Writes the remaining appends, and ends the thread."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._queue and not self._is_closed:
                    self._wake.wait(_IDLE)
                if not self._queue:
                    self._thread = None
                    return
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST_AT_ONCE))]
            self._write(batch)

    def _write(self, batch: list[Append]) -> None:
        ready = [append for append in batch if _encode(append)]
        ready.sort(key=lambda append: append.run_id)  # the same order in all processes prevents deadlocks
        tries = 0
        while ready:
            try:
                self._write_together(ready)
                return
            except Exception as error:
                if not is_outage(error):
                    self._write_one_by_one(ready)
                    return
                ready = self._still_patient(ready, error)
            if self._is_closed and tries > len(_PAUSES):
                self._refuse(ready, StoreUnavailable(f"{self._database.shown} cannot be written"))
                return
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _write_together(self, batch: list[Append]) -> None:
        outcomes: list[tuple[Append, Exception | str | None]] = []
        with self._database.writing() as connection:
            for append in batch:
                try:
                    outcomes.append((append, self._apply(connection, append)))
                except RunLost as error:
                    outcomes.append((append, error))
        for append, outcome in outcomes:
            append.done(outcome)

    def _write_one_by_one(self, batch: list[Append]) -> None:
        """Writes each append alone, so that one that the store does not accept does not affect the others."""
        for append in batch:
            try:
                self._write_together([append])
            except Exception as error:
                what = reason_of(error)
                append.done(DurableError(f"a record of run {append.run_id} cannot be written: {what}"))

    def _still_patient(self, batch: list[Append], error: Exception) -> list[Append]:
        now = time.monotonic()
        late = [append for append in batch if append.deadline <= now]
        words = f"{self._database.shown} cannot be written: {reason_of(error)}"
        self._refuse(late, StoreUnavailable(words))
        return [append for append in batch if append.deadline > now]

    @staticmethod
    def _refuse(batch: list[Append], error: Exception) -> None:
        for append in batch:
            append.done(error)


def _encode(append: Append) -> bool:
    """Encodes the records. Returns whether the append can be written."""
    try:
        append.encoded = append.lines()
        for number, line in append.encoded:
            if len(line) > MOST_BYTES:
                raise RecordTooLarge(
                    f"record {number} of run {append.run_id} has {len(line)} bytes; a store takes {MOST_BYTES} at most"
                )
    except Exception as error:
        append.done(error)
        return False
    return True
