"""The processes of one command: which belong to it, and the end of all of them.

Owns the look into /proc. The process that uses it is the subreaper of the tree, so that nothing can leave it by
losing its parent: whatever ends beneath it is there as somebody's child, or as a child of ours that we have not
reaped. Loaded by the launcher: the standard library alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from swink_agent.sandbox.kernel.headcount import children_of

_BETWEEN_ROUNDS = 0.002


class Entry(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    state: str
    parent: int
    group: int
    threads: int

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it can run. One whose first thread alone has ended shows as ended and has others."""
        return self.state in "ZX" and self.threads <= 1


class ProcessTree:
    """All descendants of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._has_lists_of_children = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        self.on_exit: Callable[[int, int], None] = lambda pid, status: None
        """Called with every child of ours that was reaped."""

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

    def _descendants_in_haste(self) -> Iterator[Entry]:
        """Most processes beneath this one, without looking at all that the machine has; each as soon as it is found."""
        if not self._has_lists_of_children:
            yield from self.descendants()
        to_visit = [os.getpid()]
        while to_visit:
            children = children_of(to_visit.pop(0))
            to_visit += children
            yield from (entry for pid in children if (entry := _read(pid)) is not None)

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
        deadline = self._clock() + patience
        while self.reap():
            kill(self._descendants_in_haste())
            if not self.reap():
                break
            if self._clock() > deadline:
                return False
            time.sleep(_BETWEEN_ROUNDS)
        return True


def kill(entries: Iterable[Entry]) -> None:
    """Ends the process groups of these, each at once and as soon as it is known, so that none outgrows it.

    The kernel starts no process for one that has a signal to take. A new group needs a guardian's answer: where that
    does not come any more, whatever they start is in a group that is known. Those that have ended and are not reaped
    tell of theirs as well, and keep its number from being another's.
    """
    ours = os.getpgrp()
    ended: set[int] = set()
    for entry in entries:
        if entry.group == ours:  # it had no time yet to leave it
            send(entry.pid, signal.SIGKILL)
        elif entry.group > 0 and entry.group not in ended:  # it has none any more once it is let go
            send(-entry.group, signal.SIGKILL)
            ended.add(entry.group)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # gone
        pass


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
