"""The processes of one command: how many there are, which belong to it, and the end of all of them.

Owns the look into /proc. The process that uses it is the subreaper of the tree, so that nothing can leave it by
losing its parent. Loaded by the launcher: the standard library alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

_THREADS_TO_PROCESSES = 16
_PAUSE_AFTER_FULL = 0.05
_BETWEEN_ROUNDS = 0.002
_AT_WORK = ("R", "D")


class Entry(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    state: str
    parent: int
    group: int
    threads: int


class ProcessTree:
    """All descendants of this process."""

    def __init__(self, limit: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._processes = self._threads = 1
        self._starting: set[int] = set()
        self._full_until = 0.0
        self._refused = 0
        self.is_closing = False
        self.on_exit: Callable[[int, int], None] = lambda pid, status: None
        """Called with every child of ours that was reaped."""

    def admits(self, task: int, *, thread: bool) -> bool:
        """Whether a task may start one more. Counts up, and looks who is really there only when the count is full."""
        if self.is_closing:
            return False
        if self._limit is None:
            return True
        if self._is_full(thread):
            self._refused += 1
            if self._clock() < self._full_until:
                return False
            self._count()
            if self._is_full(thread):
                self._full_until = self._clock() + _PAUSE_AFTER_FULL
                return False
        self._starting.add(task)
        self._threads += 1
        self._processes += not thread
        return True

    @property
    def is_overrun(self) -> bool:
        """Whether more were wanted, over and over: nothing that knows what it does goes on like that."""
        return self._limit is not None and self._refused > self._limit

    def _is_full(self, thread: bool) -> bool:
        assert self._limit is not None
        return self._threads >= self._limit * _THREADS_TO_PROCESSES or (not thread and self._processes >= self._limit)

    def _count(self) -> None:
        """Who is there, and who may be about to be: tasks that were admitted and have not come to rest since."""
        self.reap()
        found = {task: entry.state for task in self._starting if (entry := _read(task)) is not None}
        self._starting = {task for task, state in found.items() if state in _AT_WORK}
        entries = self.descendants()
        self._processes = len(entries) + len(self._starting)
        self._threads = sum(entry.threads for entry in entries) + len(self._starting)

    def descendants(self, of: int | None = None) -> list[Entry]:
        """Every process beneath this one, or beneath another, in no order."""
        known = {entry.pid: entry for entry in _all_processes()}
        # A parent that ended while we looked is not there; its child has another by now.
        moved = [pid for pid, entry in known.items() if entry.parent and entry.parent not in known]
        known.update({pid: entry for pid in moved if (entry := _read(pid)) is not None})
        children: dict[int, list[Entry]] = {}
        for entry in known.values():
            children.setdefault(entry.parent, []).append(entry)
        found: list[Entry] = []
        to_visit = [os.getpid() if of is None else of]
        while to_visit:
            inside = children.pop(to_visit.pop(), [])
            found += inside
            to_visit += [entry.pid for entry in inside]
        return found

    def _descendants_in_haste(self) -> list[int]:
        """Most processes beneath this one, without looking at all that the machine has."""
        found: list[int] = []
        to_visit = [os.getpid()]
        try:
            while to_visit:
                children = _children(to_visit.pop())
                to_visit += children
                found += children
        except FileNotFoundError:  # a kernel that does not list children
            return [entry.pid for entry in self.descendants()]
        return found

    def holds(self, pid: int) -> bool:
        """Whether a process or thread is beneath this process."""
        us = os.getpid()
        for _ in range(
            1 << 12
        ):  # deeper than any limit on processes; a cycle can only be seen while numbers are reused
            entry = _read(pid)
            if entry is None or entry.parent <= 1:
                return False
            if entry.parent == us:
                return True
            pid = entry.parent
        return False

    def holds_group(self, group: int) -> bool:
        """Whether a process group is one of ours: groups do not cross sessions, and all of ours began in the tree."""
        return any(entry.group == group for entry in self.descendants())

    def reap(self) -> bool:
        """Takes note of children that ended; false when there are none left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.on_exit(pid, status)

    def kill_all(self, patience: float) -> bool:
        """Ends every descendant. False when some were still there after so many seconds (the kernel holds them)."""
        self.is_closing = True
        deadline = self._clock() + patience
        while self.reap():
            for pid in self._descendants_in_haste():
                send(pid, signal.SIGKILL)
            if not self.reap():
                break
            if self._clock() > deadline:
                return False
            time.sleep(_BETWEEN_ROUNDS)
        return True


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # gone
        pass


def _children(pid: int) -> list[int]:
    """The children that each of its threads has.

    Raises `FileNotFoundError` for this very process if the kernel does not tell.
    """
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read(1 << 20).split())
    except OSError:
        if pid == os.getpid():
            raise
    return found


def _all_processes() -> Iterator[Entry]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = _read(int(name))
            if entry is not None:
                yield entry


def _read(pid: int) -> Entry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(2048)
    except OSError:
        return None
    # The name of the program is in brackets and may hold anything, brackets too.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 18:
        return None
    return Entry(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[17]))
