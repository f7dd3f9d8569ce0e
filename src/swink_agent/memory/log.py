"""The journal that is a file: entries are numbered when they are recorded, and written by a thread of their own.

    record      numbers the entry and hands it over; nobody waits for the disk
    the thread  masks it, encodes it, and writes it at once, with one write; syncs when somebody waits for it
    durable     waits until all that was recorded so far is written and synced; one sync serves all who wait

After a write or a sync that failed, the log takes nothing more: what is on disk is no longer known, and everyone who
waits is told. Opening the session again finds out.

Owns the order, the thread and the waiting. The open file is in `session_file`; what it looks like in `records`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from os import getpid
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

from swink_agent.core.cancel import call_in
from swink_agent.core.journal import MessageAdded, RunEnded
from swink_agent.core.secrets.redaction import Redactor

from .errors import SessionError, reason_of
from .files import FileOperations
from .fold import Fold
from .masking import masked
from .records import RecordEntry, SessionStarted
from .session_file import SessionFile
from .tally import FlatRecords, SummaryCounter, in_threes

__all__ = ["SessionLog"]

_IDLE = 1.0
"""Seconds after which a thread with nothing to write ends."""
_MOST_UNSUMMARIZED = 64 * 1024
"""Bytes after which the next quiet moment gets a summary, so that a list reads little."""


class _Waiter(NamedTuple):
    number: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class SessionLog:
    """One session's file, open for its one writer. A `Journal`; safe from any thread."""

    __slots__ = (
        "__weakref__",
        "_failure",
        "_file",
        "_fold",
        "_is_abandoned",
        "_is_closed",
        "_is_idle",
        "_is_inherited",
        "_lock",
        "_number",
        "_process",
        "_queue",
        "_redactor",
        "_start_line",
        "_summarized",
        "_sync",
        "_synced",
        "_takes_more",
        "_tallied",
        "_tally",
        "_thread",
        "_unfolded",
        "_unsummarized",
        "_waiters",
        "_wake",
        "_write_now",
        "_written",
        "is_durable",
        "path",
    )

    def __init__(
        self,
        path: Path,
        descriptor: int,
        fold: Fold,
        number: int,
        *,
        files: FileOperations,
        sync: bool = True,
        folders: Sequence[Path] | None = None,
        prefix: bytes = b"",
        start: SessionStarted | None = None,
    ) -> None:
        self.path = path
        self._fold = fold
        self._unfolded: FlatRecords = []
        """What the fold has not been given yet: nobody may ever ask for it."""
        self._tally = SummaryCounter(fold.summary(), is_open=fold.is_open)
        self._tallied = 0
        """How much of the unfolded the tally has counted: it counts when it is asked, many at once."""
        self._file = SessionFile(descriptor, files, new_names=folders or (), prefix=prefix)
        """Written by the thread, or, without sync, by whoever has the lock."""
        self._sync = sync
        self._write_now = None if sync else self._file.write
        """What writes a record at once, where no thread does and the log takes more."""
        self._start_line = start
        """What the first line of a new file says, as long as there is no other: nobody could mask it yet."""
        self._process = getpid()
        self._is_inherited = False
        """Whether this process was forked from the one whose session it is."""
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._number = number
        """Of the last entry that was recorded."""
        self._written = number
        self._synced = number if folders is None else -1
        self.is_durable = not sync or folders is None
        """Whether `durable` would return at once."""
        self._queue: deque[tuple[int, int, RecordEntry, Redactor | None]] = deque()
        """What the thread is to write: number, time, entry, and what masks it."""
        self._waiters: list[_Waiter] = []
        self._thread: threading.Thread | None = None
        self._is_idle = False
        """Whether the thread waits to be woken. One that works finds what comes meanwhile by itself."""
        self._failure: str | None = None
        self._takes_more = True
        """Whether records are kept: no more once one could not be, or somebody has begun to close it."""
        self._is_closed = False
        self._unsummarized = 0
        self._summarized = number
        """The number of the last summary, or of the last record that there was."""
        self._redactor: Redactor | None = None
        """The last that masked an entry: it masks what the log says of its own."""
        self._is_abandoned = False

    def __repr__(self) -> str:
        return f"<SessionLog {self.path.name}, {self._number} recorded>"

    def __del__(self) -> None:
        try:
            if not self._is_closed:
                with self.guard:
                    self._file.close(is_inherited=self._is_inherited)
        except Exception:
            pass  # the interpreter is ending, and what this needs is gone: the system closes the file

    @property
    def guard(self) -> threading.RLock:
        """The lock: while somebody holds it, nobody else records, or folds what was. Whoever takes it in a forked child
        finds that the session was left to the parent."""
        if self._process != getpid():
            self._leave_to_parent()
        return self._lock

    def _leave_to_parent(self) -> None:
        """In a child process that was forked: the session stays with the parent."""
        # The thread is not here, and whatever held the lock will never give it back.
        self._process, self._is_inherited, self._thread = getpid(), True, None
        self.is_durable, self._write_now, self._takes_more = False, None, False
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._queue.clear()
        self._waiters.clear()
        self._failure = (
            f"{self.path} is written by the process that this one was forked from: "
            "open or create a session of its own here"
        )

    # -- recording ---------------------------------------------------------------------------------------------

    def record(self, entry: RecordEntry, redactor: Redactor | None = None, /) -> int:
        """Takes an entry, and returns its number. What goes wrong is for `durable`."""
        # For every record of every run: no step that is not needed. A `with` costs twice as much.
        if self._process != getpid():
            self._leave_to_parent()
        lock = self._lock
        lock.acquire()
        try:
            if redactor is not None and redactor is not self._redactor:
                self._mask_with(redactor)
            if self._unsummarized > _MOST_UNSUMMARIZED and self._is_quiet_before(entry):
                self._add_summary()
            number = self._number = self._number + 1
            at = time_ns() // 1_000_000
            if (write := self._write_now) is not None:
                self._unfolded.extend((number, at, entry))
                try:
                    self._unsummarized += write(number, at, entry, redactor)
                except Exception as error:
                    self._fail(error, "written")
            elif self._takes_more:
                self._unfolded.extend((number, at, entry))
                self._hand_over(number, at, entry, redactor)
            if type(entry) is RunEnded and not self._counted().is_open:
                self._add_summary()
            return number
        finally:
            lock.release()

    def _mask_with(self, redactor: Redactor) -> None:
        """Takes the redactor of an agent. What was written before there was one is the first line: where that holds a
        secret, it is written again, before anything is built on it."""
        self._redactor = redactor
        start = self._start_line
        if start is None or self._number or not self._takes_more:
            return
        self._start_line = None
        new = masked(start, redactor)
        if new is not start:
            try:
                self._file.empty()
                self._file.write(0, start.created, new, None)
            except Exception as error:
                self._fail(error, "written")

    def _is_quiet_before(self, entry: RecordEntry) -> bool:
        """Whether no call waits for its result, and this is not one."""
        return type(entry) is MessageAdded and entry.source != "result" and not self._counted().is_open

    def add(self, entry: RecordEntry) -> int:
        """Takes an entry that is not the agent's, and returns its number. Raises `SessionError` where none is kept."""
        with self.guard:
            self._check()
            return self.record(entry, self._redactor)

    def _hand_over(self, number: int, at: int, entry: RecordEntry, redactor: Redactor | None) -> None:
        self.is_durable = False
        self._queue.append((number, at, entry, redactor))
        if self._thread is None or self._is_idle:
            self._start()

    def _add_summary(self) -> None:
        """Says what the records so far come to. Those who made it learn nothing new by it: it is folded by nobody."""
        summary = self._counted().summary()
        self._unsummarized = 0
        self._summarized = self._number = number = self._number + 1
        at = time_ns() // 1_000_000
        if self._write_now is not None:
            try:
                self._write_now(number, at, summary, self._redactor)
            except Exception as error:
                self._fail(error, "written")
        elif self._takes_more:
            self._hand_over(number, at, summary, self._redactor)

    def _counted(self) -> SummaryCounter | Fold:
        """Who knows what a list shows: the tally, or the fold where counting does not do."""
        self._count()
        if self._tally.is_sure:
            return self._tally
        fold = self.fold
        self._tally = SummaryCounter(fold.summary(), is_open=fold.is_open)
        return self._tally if self._tally.is_sure else fold

    def _count(self) -> None:
        """Has the tally count what it has not counted yet: many at once cost half of one by one."""
        if self._tally.is_sure:
            self._tally.count(self._unfolded[self._tallied :])
        self._tallied = len(self._unfolded)

    @property
    def fold(self) -> Fold:
        """What was recorded so far comes to."""
        with self.guard:
            self._count()
            for number, at, entry in in_threes(self._unfolded):
                self._fold.add(number, entry, at)
            self._unfolded.clear()
            self._tallied = 0
            return self._fold

    # -- waiting -----------------------------------------------------------------------------------------------

    async def durable(self) -> None:
        """Returns when everything recorded so far would be there after a crash. Raises `SessionError`.

        Without sync it is there after a crash of the program, but perhaps not of the machine.
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
                        f"{self.path} takes longer than {seconds:g} s to write: the disk may be slow or gone",
                        path=str(self.path),
                    )
                self._wake.wait(rest)

    def finish(self, path: Path, seconds: float) -> None:
        """Gives a file its name when all of it is written: nobody sees a part of it. Raises `SessionError`."""
        self.flush(seconds)
        with self.guard:
            self._check()
            try:
                self._file.rename(self.path, path, sync=self._sync)
            except OSError as error:
                self._fail(error, "finished")
                self._check()
            self.path = path

    def check(self) -> None:
        """Raises the `SessionError` that keeps the log from taking anything more, if there is one."""
        with self.guard:
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise SessionError(self._failure, path=str(self.path))
        if not self._takes_more:
            raise SessionError(
                f"the session in {self.path} was closed: open it again to go on with it", path=str(self.path)
            )

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or somebody is at it."""
        return self._is_closed or (self._failure is None and not self._takes_more)

    @property
    def number(self) -> int:
        """Of the last entry that was recorded."""
        return self._number

    def close(self, seconds: float) -> None:
        """Writes and syncs what is left, and lets go of the file. Raises `SessionError` for what could not be kept."""
        with self.guard:
            if self._is_closed:
                return
            if self._is_inherited:
                self._is_closed = True
                self._file.close(is_inherited=True)
                return  # nothing of it was this process's to keep
            if self._failure is None and self._summarized < self._number:
                counted = self._counted()
                if not counted.is_open and counted.summary().messages:
                    self._add_summary()
            # What comes from now on is refused: whoever was told nothing finds it in the file.
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
                    self._file.sync()
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
            # One that has nothing to write, or no use in it, ends at once; one that the disk holds was waited for.
            thread.join(seconds if problem is None or self._failure is not None else 0.0)
        with self.guard:
            # A thread that the disk still holds lets go of the file itself, when it can.
            self._is_abandoned = self._thread is not None
        if not self._is_abandoned:
            self._file.close()
        if problem is not None:
            raise problem

    def _closed_error(self) -> SessionError:
        return SessionError(
            f"the session in {self.path} was closed while it was in use: open it again to go on with it",
            path=str(self.path),
        )

    # -- the thread --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is not None:
            self._is_idle = False
            self._wake.notify_all()
            return
        self._thread = threading.Thread(target=self._run, name=f"session {self.path.stem}", daemon=True)
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
                        self._file.close()
                    return
                queued = list(self._queue)
                self._queue.clear()
            size = self._write_all(queued)
            with self._lock:
                if queued:
                    self._unsummarized += size
                    self._wake.notify_all()
                is_due = bool(self._waiters) and not self._queue
                written = self._written
            if is_due:
                try:
                    self._file.sync()
                    self._release(written)
                except Exception as error:
                    with self._lock:
                        self._fail(error, "synced")

    def _write_all(self, queued: list[tuple[int, int, RecordEntry, Redactor | None]]) -> int:
        """Writes records one by one; returns how many bytes they took. What goes wrong ends the log."""
        size = 0
        for number, at, entry, redactor in queued:
            if self._is_closed or self._failure is not None:
                break
            try:
                size += self._file.write(number, at, entry, redactor)
            except Exception as error:
                with self._lock:
                    self._fail(error, "written")
                break
            self._written = number
        return size

    def _release(self, written: int) -> None:
        """Lets those go on who waited for what is synced now."""
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
        """The log takes nothing more, and says why to everyone who waits."""
        self.is_durable, self._write_now, self._takes_more = False, None, False
        if self._failure is None:
            self._failure = (
                f"{self.path} could not be {what}: {reason_of(error)}. What was said after that is not on record: "
                "make room or mend the disk, then open the session again to go on from what is"
            )
        self._queue.clear()
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            call_in(waiter.loop, _refuse, waiter.future, SessionError(self._failure, path=str(self.path)))
        self._wake.notify_all()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse(future: asyncio.Future[None], error: SessionError) -> None:
    if not future.done():
        future.set_exception(error)
