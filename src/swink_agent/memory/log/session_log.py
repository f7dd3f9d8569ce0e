"""The journal of a session: its log, to which a separate thread writes entries.

    record      numbers the entry and queues it, without waiting for the disk
    durable     queues a barrier and waits for it: all that was recorded before is then written and synced
    the thread  masks, encodes and writes what is queued, then syncs once for all barriers that ask for it

Without sync there is no thread: `record` writes the entry itself.

After a write or a sync that failed, the log accepts nothing more, because it no longer knows what is on disk. Every
waiting caller gets the error. Opening the session again reads what is there.

In a process that was forked from the one that opened it, a log raises `SessionError` and touches nothing: its thread
does not exist there, and its lock and its file are those of the parent.

Owns the order, the thread and the waiting. `masking` makes lines, and `storage` has the open log.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from time import time_ns

from swink_agent.core.journal import RunEnded
from swink_agent.core.secrets.redaction import Redactor

from ..errors import SessionError, reason_of, remedy_of
from ..storage.protocols import LogName, OpenLog
from .fold import Fold
from .masking import LineWriter, masked
from .records import RecordEntry, SessionRecord

_IDLE = 1.0
"""Seconds after which a thread with nothing to write ends."""


class _Barrier(Future[None]):
    """A place in the queue. It is done when all records before it are written, or also synced."""

    def __init__(self, *, is_synced: bool) -> None:
        super().__init__()
        self.is_synced = is_synced
        self.set_running_or_notify_cancel()  # a caller that no longer waits does not cancel it

    def end(self, error: SessionError | None = None) -> None:
        if self.done():
            return
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)


class SessionLog:
    """One session's log, open for its one writer. A `Journal`; safe from any thread."""

    def __init__(self, log: OpenLog, fold: Fold, number: int, *, sync: bool = True) -> None:
        self.id = log.name.id
        self._fold = fold
        fold.forget_runs()  # they are read from the log: a session that stays open does not keep them
        self._open = log
        self._writer = LineWriter(log.append)
        """Used by the thread or, without sync, by the caller that holds the lock."""
        self._sync = sync
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        """Wakes the thread."""
        self._number = number
        """The number of the last recorded entry."""
        self._written = number
        self._synced = number if log.is_synced else -1
        self._queue: list[tuple[SessionRecord, Redactor | None] | _Barrier] = []
        self._taken: list[tuple[SessionRecord, Redactor | None] | _Barrier] = []
        """The part of the queue that the thread is working on."""
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._takes_more = True
        """Whether entries are accepted: not after a failure, nor once closing has begun."""
        self._is_closed = False
        self._redactor: Redactor | None = None
        """The redactor of the last entry. It also masks the entries that the log adds itself."""

    def __repr__(self) -> str:
        return f"<SessionLog {self.id}, {self._number} recorded>"

    def __del__(self) -> None:
        try:
            if not self._is_closed and not self._is_inherited:
                self._open.close()
        except Exception:
            pass  # the interpreter is shutting down: the system closes the file

    @property
    def path(self) -> Path:
        """The file that the log is in."""
        return self._open.name.path

    @property
    def name(self) -> LogName:
        return self._open.name

    @property
    def fold(self) -> Fold:
        """What all entries so far add up to. Hold `guard` to read it."""
        return self._fold

    @property
    def guard(self) -> threading.RLock:
        """The lock: while a thread holds it, no other thread records. Raises `SessionError` in a forked process."""
        if self._is_inherited:
            raise self._error(
                f"{self.name} is written by the process that this one was forked from: "
                "open or create another session here"
            )
        return self._lock

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the log. There, a thread that held the lock will
        never release it."""
        return os.getpid() != self._process

    @property
    def is_durable(self) -> bool:
        """Whether `durable` would return at once."""
        return self._takes_more and self._is_safe and not self._is_inherited

    @property
    def _is_safe(self) -> bool:
        return not self._sync or self._synced >= self._number

    @property
    def is_closed(self) -> bool:
        """Whether the log is closed or being closed."""
        return self._is_closed or (self._failure is None and not self._takes_more)

    @property
    def number(self) -> int:
        """The number of the last recorded entry."""
        return self._number

    def check(self) -> None:
        """Raises `SessionError` if the log accepts nothing more."""
        with self.guard:
            if self._failure is not None:
                raise self._error(self._failure)
            if not self._takes_more:
                raise self._error(f"the session in {self.name} was closed: open it again to continue it")

    def _error(self, words: str) -> SessionError:
        return SessionError(words, path=str(self.path))

    # -- recording ---------------------------------------------------------------------------------------------

    def record(self, entry: RecordEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry and returns its number. `durable` reports errors."""
        if self._is_inherited:
            return self._number + 1
        with self._lock:
            if redactor is not None and redactor is not self._redactor:
                self._mask_with(redactor)
            self._number += 1
            if self._takes_more:
                record = SessionRecord(self._number, time_ns() // 1_000_000, entry)
                self._fold.add(record.number, entry, record.at)
                if type(entry) is RunEnded:
                    self._fold.forget_runs()
                self._put(record, redactor)
            return self._number

    def _mask_with(self, redactor: Redactor) -> None:
        """Takes an agent's redactor. Only the first line was written without one: if it holds a secret, it is written
        again, before any other line."""
        self._redactor = redactor
        start = self._fold.start
        if start is not None and not self._number and self._takes_more:
            new = masked(start, redactor)
            if new is not start:
                self._put(SessionRecord(0, start.created, new), None)

    def add(self, entry: RecordEntry) -> int:
        """Takes an entry of the application and returns its number. Raises `SessionError` if the log accepts none."""
        with self.guard:
            self.check()
            return self.record(entry, self._redactor)

    def _put(self, record: SessionRecord, redactor: Redactor | None) -> None:
        """Queues a record or, without sync, writes it."""
        if self._sync:
            self._enqueue((record, redactor))
            return
        try:
            self._write(record, redactor)
        except Exception as error:
            self._fail(error, "written")

    def _enqueue(self, item: tuple[SessionRecord, Redactor | None] | _Barrier) -> None:
        self._queue.append(item)
        if self._thread is not None:
            self._changed.notify()
            return
        self._thread = threading.Thread(target=self._run, name=f"session {self.id}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._thread = None
            self._fail(error, "written")

    # -- waiting -----------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Returns when everything recorded so far survives a crash. Raises `SessionError`.

        Without sync it survives a crash of the program, but perhaps not of the machine.
        """
        with self.guard:
            self.check()
            if self._is_safe:
                return
            barrier = _Barrier(is_synced=True)
            self._enqueue(barrier)
        await asyncio.wrap_future(barrier)

    def flush(self, seconds: float) -> None:
        """Waits, in this thread, until everything recorded so far is written. Raises `SessionError`."""
        with self.guard:
            self.check()
            if not self._sync or self._written >= self._number:
                return
            barrier = _Barrier(is_synced=False)
            self._enqueue(barrier)
        self._wait_for(barrier, seconds)

    def _wait_for(self, barrier: _Barrier, seconds: float) -> None:
        try:
            barrier.result(seconds)
        except TimeoutError:
            words = f"{self.name} takes longer than {seconds:g} s to write: the disk may be slow or gone"
            raise self._error(words) from None

    def finish(self, seconds: float) -> None:
        """Makes an unfinished session visible in lists once all of it is written. Raises `SessionError`."""
        self.flush(seconds)
        with self.guard:
            self.check()
            try:
                self._open.finish(sync=self._sync)
            except OSError as error:
                self._fail(error, "finished")
                self.check()

    def discard(self, seconds: float) -> None:
        """Closes an unfinished session and deletes it. Raises `SessionError`."""
        try:
            self._open.discard()
        except OSError as error:
            raise self._error(f"{self.name} cannot be deleted: {reason_of(error)}") from error
        finally:
            self.close(seconds)

    def close(self, seconds: float) -> None:
        """Writes and syncs the remaining entries and closes the file. Raises `SessionError` if that fails."""
        if self._is_closed or self._is_inherited:
            return
        barrier: _Barrier | None = None
        with self._lock:
            self._takes_more = False  # entries are refused from here on; all earlier ones are written
            if self._failure is None and not self._is_safe:
                barrier = _Barrier(is_synced=True)
                self._enqueue(barrier)
        problem: SessionError | None = None
        try:
            if barrier is not None:
                self._wait_for(barrier, seconds)
        except SessionError as error:
            problem = error
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._failure is not None:
                problem = self._error(self._failure)
            self._end_barriers(
                f"the session in {self.name} was closed while it was in use: open it again to continue it"
            )
            thread = self._thread
            if thread is None:
                self._open.close()
            self._changed.notify()
        if thread is not None:
            # An idle thread closes the file at once. One that waits for the disk has had its time, and does it later.
            thread.join(seconds if problem is None or self._failure is not None else 0.0)
        if problem is not None:
            raise problem

    def _end_barriers(self, words: str) -> None:
        """Gives every waiting caller an error, and forgets what is queued."""
        for item in (*self._taken, *self._queue):
            if isinstance(item, _Barrier):
                item.end(self._error(words))
        self._queue = []

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take():
            what = "written"
            try:
                written = self._written
                for item in self._taken:
                    if not isinstance(item, _Barrier) and not self._is_closed:
                        self._write(*item)
                        written = item[0].number
                self._open.push()
                self._reach(written, self._synced)
                what = "synced"
                if any(isinstance(item, _Barrier) and not item.done() for item in self._taken):
                    self._open.sync()
                    self._reach(written, written)
            except Exception as error:
                self._fail(error, what)

    def _take(self) -> bool:
        """Waits for work and takes all of it. Returns whether there is any: otherwise the thread ends."""
        with self._lock:
            self._taken = []
            self._changed.wait_for(lambda: self._queue or not self._takes_more, _IDLE)
            self._taken, self._queue = self._queue, []
            if not self._taken:
                self._thread = None
                if self._is_closed:
                    self._open.close()
            return bool(self._taken)

    def _write(self, record: SessionRecord, redactor: Redactor | None) -> None:
        if not record.number:
            self._open.empty()  # the first line is written again
        self._writer.write(record.number, record.at, record.entry, redactor)

    def _reach(self, written: int, synced: int) -> None:
        """Notes what is written and synced, and wakes those who wait for it."""
        with self._lock:
            self._written, self._synced = written, synced
            for item in self._taken:
                if isinstance(item, _Barrier) and (synced >= written or not item.is_synced):
                    item.end()

    def _fail(self, error: Exception, what: str) -> None:
        """Ends the log, and gives every waiting caller the error."""
        with self._lock:
            self._takes_more = False
            if self._failure is None:
                self._failure = (
                    f"{self.name} could not be {what}: {reason_of(error)}. Nothing after that is on record: "
                    f"{remedy_of(error)}, then open the session again to continue from the last record"
                )
            self._end_barriers(self._failure)
