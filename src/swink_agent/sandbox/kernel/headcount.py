"""Counts the processes of a command, from `/proc`.

While its processes are counted one by one, a fork bomb makes hundreds more, and among hundreds of busy processes a
count that takes milliseconds takes seconds. So most looks are one small read of constant cost, and a command that
crowds the machine gets the lowest priority before it is counted. Landlock's launcher loads this module: the standard
library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

LOOK_AGAIN = 0.02
"""Seconds from one look to the next."""

_COUNT_AGAIN = 0.5
_SHARE = 10  # counting uses at most one part in this many of a processor
_THREADS_TO_PROCESSES = 16
_A_CROWD = 8  # a crowd: more than 1/8 of the limit was added, and more than as many tasks want a processor now
_TO_A_PROCESSOR = 4  # and also more than this many per processor, so that normal work on a large machine does not count
_FIRST, _LAST = -20, 19
_MOST_GROUPS = 100

ChildrenFn = Callable[[int], "tuple[list[int], int]"]
"""Returns the children of a process, also those not reaped yet, and its number of threads (1 if not counted)."""


class Entry(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    state: str
    parent: int
    group: int
    threads: int

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it can run. A process whose first thread has ended looks ended but may have others."""
        return self.state in "ZX" and self.threads <= 1


class Headcount:
    """Watches the number of processes beneath one, and of their threads."""

    def __init__(
        self, root: int, most: int | None, *, root_reaps: bool = False, children: ChildrenFn | None = None
    ) -> None:
        """`root_reaps`: the root reaps its children, also those that lost their parent. Ended ones do not count.

        `children`: for a system that does not list children as Linux does.
        """
        self._root = root
        self._most = most
        self._root_reaps = root_reaps
        self._children = children
        self._fewest_tasks: int | None = None
        self._glance_at = self._count_at = self._set_back_at = 0.0

    def reason_to_end(self) -> str:
        """Why a command with too many processes is killed, or an empty text."""
        return f"it had more than {self._most} processes" if self.is_exceeded() else ""

    def is_exceeded(self) -> bool:
        """Whether there are too many. Call it every `LOOK_AGAIN` seconds. True only after a count."""
        if self._most is None:
            return False
        if self._children is not None:  # another program is asked, whose time does not count here
            return time.monotonic() >= self._glance_at and self._are_too_many(self._children, time.monotonic)
        has_grown = self._look_at_machine(self._most)
        now = time.monotonic()
        for is_due, children in (
            (has_grown and now >= self._glance_at, _children_of_first_thread),
            (now >= self._count_at, _children_of_all_threads),
        ):
            # A second count leaves out ended ones. Reaping them first might not end: a bomb makes new ones as fast.
            if (
                is_due
                and self._are_too_many(children)
                and (not self._root_reaps or self._are_too_many(children, is_exact=True))
            ):
                return True
        return False

    def _look_at_machine(self, most: int) -> bool:
        """Whether the machine has gained more tasks than this command may have processes. Sets back a crowd."""
        try:
            running, tasks = tasks_of_machine()
        except (OSError, ValueError, IndexError):
            return True
        self._fewest_tasks = min(tasks, self._fewest_tasks or tasks)
        grown = tasks - self._fewest_tasks
        crowd = most // _A_CROWD
        if grown > crowd and running > max(crowd, _TO_A_PROCESSOR * (os.cpu_count() or 1)):
            self._set_back(crowd)
        return grown > most

    def _set_back(self, crowd: int) -> None:
        """Gives the process groups directly beneath, and so what they start, the lowest priority.

        Not if other programs crowd the machine: then the command would never get a processor.
        """
        if time.monotonic() < self._set_back_at:
            return
        started = time.thread_time()
        is_crowd = self._has_more_tasks_than(crowd)
        self._set_back_at = time.monotonic() + _SHARE * (time.thread_time() - started)
        if not is_crowd:
            return
        for group in groups_beneath(self._root):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PGRP, group, _LAST)

    def _has_more_tasks_than(self, number: int) -> bool:
        tasks, to_visit = 0, [self._root]
        while to_visit and tasks <= number:
            pid = to_visit.pop()
            threads = _threads_of(pid)
            children = children_of(pid) if 1 < threads <= number else _children_of_thread(pid, pid)
            tasks += len(children) + threads - 1
            to_visit += children
        return tasks > number

    def _are_too_many(
        self, children_of: ChildrenFn, clock: Callable[[], float] = time.thread_time, *, is_exact: bool = False
    ) -> bool:
        """Counts no further than necessary. `clock` measures the cost. `is_exact`: omits ended children of the root."""
        most = self._most or 0
        started = clock()
        processes = threads = 0
        to_visit = [self._root]
        while to_visit and processes <= most and threads <= most * _THREADS_TO_PROCESSES:
            children, tasks = children_of(pid := to_visit.pop())
            if is_exact and pid == self._root:
                children = list(islice((child for child in children if not _has_ended(child)), most + 1))
            to_visit += children
            processes += len(children)
            threads += tasks
        pause = _SHARE * (clock() - started)
        now = time.monotonic()
        self._glance_at = now + pause
        if children_of is not _children_of_first_thread:
            self._count_at = now + max(_COUNT_AGAIN, pause)
        return processes > most or threads > most * _THREADS_TO_PROCESSES


def put_first(task: int = 0) -> None:
    """Gives a thread or process, and what it starts, the lowest niceness, if this user may do that.

    A fork bomb of root takes every processor, and only our count ends it. Never a real-time priority: that would come
    before our own screen too.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, task, _FIRST)


def tasks_of_machine() -> tuple[int, int]:
    """How many tasks want a processor, and how many tasks there are. The cost is constant."""
    running, tasks = _read("/proc/loadavg", 128).split()[3].split(b"/")
    return int(running), int(tasks)


def children_of(pid: int) -> list[int]:
    """The current children of all its threads."""
    return _children_of_all_threads(pid)[0]


def groups_beneath(pid: int) -> set[int]:
    """The process groups of its first children. A bomb's processes are in them unless each makes its own."""
    groups: set[int] = set()
    for child in _children_of_thread(pid, pid)[:_MOST_GROUPS]:
        with suppress(OSError):  # it has ended
            groups.add(os.getpgid(child))
    return groups - {os.getpgrp()}


def read_process(pid: int) -> Entry | None:
    """The process, or `None` if it does not exist."""
    try:
        text = _read(f"/proc/{pid}/stat", 2048)
    except OSError:
        return None
    # The name of the program is in brackets and may contain anything, also brackets.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 18:
        return None
    return Entry(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[17]))


def _read(path: str, most: int) -> bytes:
    """The start of a small file that is read many times a second. Costs half as much as a file object."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def _has_ended(pid: int) -> bool:
    entry = read_process(pid)
    return entry is None or entry.has_ended


def _threads_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:  # it has ended
        return 1


def _children_of_all_threads(pid: int) -> tuple[list[int], int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return [], 0
    return [child for task in tasks for child in _children_of_thread(pid, task)], len(tasks)


def _children_of_first_thread(pid: int) -> tuple[list[int], int]:
    return _children_of_thread(pid, pid), 1


def _children_of_thread(pid: int, task: int | str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
            # One read gives one page, which has room for about 800.
            return [int(child) for page in iter(lambda: file.read(1 << 12), b"") for child in page.split()]
    except OSError:  # it has ended
        return []
