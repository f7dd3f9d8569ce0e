"""The journal of a session: its log, to which a separate thread writes entries.

    record      numbers the entry and queues it, without waiting for the disk
    the thread  masks it, encodes it and writes it at once; it syncs when a caller waits for that
    durable     waits until all that was recorded so far is written and synced; one sync serves all waiting callers

Without sync there is no thread: `record` writes the entry itself.

After a write or a sync that failed, the log accepts nothing more, because it no longer knows what is on disk. Every
waiting caller gets the error. Opening the session again reads what is there.

Owns the order, the thread and the waiting. `masking` makes lines, and `storage` has the open log.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from functools import cache
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, NamedTuple
from weakref import WeakSet

from swink_agent.core.cancel import call_in
from swink_agent.core.secrets.redaction import Redactor

from ..errors import SessionError, reason_of, remedy_of
from ..storage.protocols import LogName, OpenLog
from .fold import Fold
from .masking import LineWriter, masked
from .records import RecordEntry, SessionStarted

_IDLE = 1.0
"""Seconds after which a thread with nothing to write ends."""


class _Waiter(NamedTuple):
    number: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class SessionLog:
    """One session's log, open for its one writer. A `Journal`; safe from any thread."""

    def __init__(
        self,
        log: OpenLog,
        fold: Fold,
        number: int,
        *,
        sync: bool = True,
        prefix: bytes = b"",
        start: SessionStarted | None = None,
    ) -> None:
        self.id = log.name.id
        self._fold = fold
        self._unfolded: list[Any] = []
        """Records that are not in the fold yet, flat: the number, the entry and the time of each."""
        self._open = log
        self._writer = LineWriter(log.append, prefix=prefix)
        """Used by the thread or, without sync, by the caller that holds the lock."""
        self._sync = sync
        self._write_now = None if sync else self._writer.write
        """Writes a record at once; `None` if the thread does that, or the log accepts nothing more."""
        self._start_line = start
        """The first line of a new log, while it is the only one: no redactor has seen it yet."""
        self._is_inherited = False
        """Whether this process was forked from the process that owns the session."""
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._number = number
        """The number of the last recorded entry."""
        self._written = number
        self._synced = number if log.is_synced else -1
        self.is_durable = not sync or log.is_synced
        """Whether `durable` would return at once."""
        self._queue: deque[tuple[int, int, RecordEntry, Redactor | None]] = deque()
        """The records that the thread must write: number, time, entry and redactor."""
        self._waiters: list[_Waiter] = []
        self._thread: threading.Thread | None = None
        self._is_idle = False
        """Whether the thread waits to be woken. A busy thread finds new entries by itself."""
        self._failure: str | None = None
        self._takes_more = True
        """Whether entries are accepted: not after a failure, nor once closing has begun."""
        self._is_closed = False
        self._redactor: Redactor | None = None
        """The redactor of the last entry. It also masks the entries that the log adds itself."""
        self._is_abandoned = False
        _open_logs().add(self)

    def __repr__(self) -> str:
        return f"<SessionLog {self.id}, {self._number} recorded>"

    def __del__(self) -> None:
        try:
            if not self._is_closed:
                with self.guard:
                    self._open.close(is_inherited=self._is_inherited)
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
        # Entries are added here, many at once: one by one, in the middle of a turn, takes three times as long.
        with self._lock:
            if self._unfolded:
                rest = iter(self._unfolded)
                self._unfolded = []
                for number, entry, at in zip(rest, rest, rest, strict=True):
                    self._fold.add(number, entry, at)
        return self._fold

    @property
    def guard(self) -> threading.RLock:
        """The lock: while a thread holds it, no other thread records."""
        return self._lock

    def leave_to_parent(self) -> None:
        """Gives up the session in a forked child process. The parent keeps it."""
        # The writing thread does not exist in the child, and a thread that held the lock will never release it.
        self._is_inherited, self._thread = True, None
        self.is_durable, self._write_now, self._takes_more = False, None, False
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._queue.clear()
        self._waiters.clear()
        self._failure = (
            f"{self._open.name} is written by the process that this one was forked from: "
            "open or create another session here"
        )

    # -- recording ---------------------------------------------------------------------------------------------

    def record(self, entry: RecordEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry and returns its number. `durable` reports errors."""
        # Called for every record of every run, so every step counts. A `with` takes twice as long.
        lock = self._lock
        lock.acquire()
        try:
            if redactor is not None and redactor is not self._redactor:
                self._mask_with(redactor)
            number = self._number = self._number + 1
            at = time_ns() // 1_000_000
            if (write := self._write_now) is not None:
                self._unfolded += (number, entry, at)
                try:
                    write(number, at, entry, redactor)
                except Exception as error:
                    self._fail(error, "written")
            elif self._takes_more:
                self._unfolded += (number, entry, at)
                self._hand_over(number, at, entry, redactor)
            return number
        finally:
            lock.release()

    def _mask_with(self, redactor: Redactor) -> None:
        """Takes an agent's redactor. Only the first line was written without one: if it holds a secret, it is written
        again, before any other line."""
        self._redactor = redactor
        start = self._start_line
        if start is None or self._number or not self._takes_more:
            return
        self._start_line = None
        new = masked(start, redactor)
        if new is not start:
            try:
                self._open.empty()
                self._writer.write(0, start.created, new, None)
            except Exception as error:
                self._fail(error, "written")

    def add(self, entry: RecordEntry) -> int:
        """Takes an entry of the application and returns its number. Raises `SessionError` if the log accepts none."""
        with self.guard:
            self._check()
            return self.record(entry, self._redactor)

    def _hand_over(self, number: int, at: int, entry: RecordEntry, redactor: Redactor | None) -> None:
        self.is_durable = False
        self._queue.append((number, at, entry, redactor))
        if self._thread is None or self._is_idle:
            self._start()

    # -- waiting -----------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Returns when everything recorded so far survives a crash. Raises `SessionError`.

        Without sync it survives a crash of the program, but perhaps not of the machine.
        """
        with self.guard:
            self._check()
            if not self._sync or self._synced >= self._number:
                return
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append(_Waiter(self._number, loop, future))
            self._start()
        await future

    def flush(self, seconds: float) -> None:
        """Waits, in this thread, until everything recorded so far is written. Raises `SessionError`."""
        with self.guard:
            self._wait_until_written(self._number, seconds)
            self._check()

    def _wait_until_written(self, last: int, seconds: float) -> None:
        deadline = monotonic() + seconds
        with self.guard:
            while self._sync and self._failure is None and not self._is_closed and self._written < last:
                rest = deadline - monotonic()
                if rest <= 0:
                    raise SessionError(
                        f"{self._open.name} takes longer than {seconds:g} s to write: the disk may be slow or gone",
                        path=str(self.path),
                    )
                self._wake.wait(rest)

    def finish(self, seconds: float) -> None:
        """Makes an unfinished session visible in lists once all of it is written. Raises `SessionError`."""
        self.flush(seconds)
        with self.guard:
            self._check()
            try:
                self._open.finish(sync=self._sync)
            except OSError as error:
                self._fail(error, "finished")
                self._check()

    def discard(self, seconds: float) -> None:
        """Closes an unfinished session and deletes it. Raises `SessionError`."""
        try:
            self._open.discard()
        except OSError as error:
            raise SessionError(f"{self.name} cannot be deleted: {reason_of(error)}", path=str(self.path)) from error
        finally:
            self.close(seconds)

    def check(self) -> None:
        """Raises `SessionError` if the log accepts nothing more."""
        with self.guard:
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise SessionError(self._failure, path=str(self.path))
        if not self._takes_more:
            raise SessionError(
                f"the session in {self._open.name} was closed: open it again to continue it", path=str(self.path)
            )

    @property
    def is_closed(self) -> bool:
        """Whether the log is closed or being closed."""
        return self._is_closed or (self._failure is None and not self._takes_more)

    @property
    def number(self) -> int:
        """The number of the last recorded entry."""
        return self._number

    def close(self, seconds: float) -> None:
        """Writes and syncs the remaining entries and closes the file. Raises `SessionError` if that fails."""
        with self.guard:
            if self._is_closed:
                return
            if self._is_inherited:
                self._is_closed = True
                self._open.close(is_inherited=True)
                return  # the parent process writes the remaining entries
            # Entries are refused from here on. All earlier ones are written below.
            self._takes_more, self._write_now, last = False, None, self._number
        problem: SessionError | None = None
        try:
            self._wait_until_written(last, seconds)
        except SessionError as error:
            problem = error
        with self.guard:
            if self._is_closed:
                return
            if problem is None and self._sync and self._synced < last:
                try:
                    self._open.sync()
                    self._synced = self._written
                except Exception as error:
                    self._fail(error, "synced")
            if self._failure is not None:
                problem = SessionError(self._failure, path=str(self.path))
            self._is_closed, self.is_durable = True, False
            for waiter in self._waiters:
                call_in(waiter.loop, _refuse, waiter.future, self._closed_error())
            self._waiters.clear()
            self._queue.clear()
            self._wake.notify_all()
            thread = self._thread
        if thread is not None:
            # An idle thread ends at once. A thread that waits for the disk has had its time above.
            thread.join(seconds if problem is None or self._failure is not None else 0.0)
        with self.guard:
            # A thread that still waits for the disk closes the file itself, when it can.
            self._is_abandoned = self._thread is not None
        if not self._is_abandoned:
            self._open.close()
        if problem is not None:
            raise problem

    def _closed_error(self) -> SessionError:
        return SessionError(
            f"the session in {self._open.name} was closed while it was in use: open it again to continue it",
            path=str(self.path),
        )

    # -- the thread --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is not None:
            self._is_idle = False
            self._wake.notify_all()
            return
        self._thread = threading.Thread(target=self._run, name=f"session {self.id}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._thread = None
            self._fail(error, "written")

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue and not self._waiters and not self._is_closed:
                    self._is_idle = True
                    self._wake.wait(_IDLE)
                    self._is_idle = False
                if self._is_closed or self._failure is not None or not (self._queue or self._waiters):
                    self._thread = None
                    if self._is_abandoned:
                        self._open.close()
                    return
                queued = list(self._queue)
                self._queue.clear()
            self._write_all(queued)
            with self._lock:
                if queued:
                    self._wake.notify_all()
                is_due = bool(self._waiters) and not self._queue
                written = self._written
            if is_due:
                try:
                    self._open.sync()
                    self._release(written)
                except Exception as error:
                    with self._lock:
                        self._fail(error, "synced")

    def _write_all(self, queued: list[tuple[int, int, RecordEntry, Redactor | None]]) -> None:
        """Writes records one by one. An error ends the log."""
        written = self._written
        for number, at, entry, redactor in queued:
            if self._is_closed or self._failure is not None:
                break
            try:
                self._writer.write(number, at, entry, redactor)
            except Exception as error:
                with self._lock:
                    self._fail(error, "written")
                return
            written = number
        try:
            self._open.push()
            self._written = written
        except Exception as error:
            with self._lock:
                self._fail(error, "written")

    def _release(self, written: int) -> None:
        """Wakes the callers whose entries are synced now."""
        with self._lock:
            self._synced = max(self._synced, written)
            self.is_durable = self._synced >= self._number and self._takes_more
            waiting, self._waiters = self._waiters, []
            for waiter in waiting:
                if waiter.number <= written:
                    call_in(waiter.loop, _resolve, waiter.future)
                else:
                    self._waiters.append(waiter)

    def _fail(self, error: Exception, what: str) -> None:
        """Ends the log, and gives every waiting caller the error."""
        self.is_durable, self._write_now, self._takes_more = False, None, False
        if self._failure is None:
            self._failure = (
                f"{self.name} could not be {what}: {reason_of(error)}. Nothing after that is on record: "
                f"{remedy_of(error)}, then open the session again to continue from the last record"
            )
        self._queue.clear()
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            call_in(waiter.loop, _refuse, waiter.future, SessionError(self._failure, path=str(self.path)))
        self._wake.notify_all()


@cache
def _open_logs() -> WeakSet[SessionLog]:
    """The logs of this process. A child that is forked leaves them to its parent."""
    logs: WeakSet[SessionLog] = WeakSet()

    def leave_all() -> None:
        for log in logs:
            log.leave_to_parent()

    os.register_at_fork(after_in_child=leave_all)
    return logs


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse(future: asyncio.Future[None], error: SessionError) -> None:
    if not future.done():
        future.set_exception(error)
