"""Finds the processes of one command and kills all of them.

Reads /proc. The process that uses it is the subreaper of the tree, so that no process can leave the tree by losing its
parent: each is a child of another, or an unreaped child of ours. The launcher loads this module: the standard library
only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

from swink_agent.sandbox.kernel.headcount import Entry, children_of, read_process

_BETWEEN_ROUNDS = 0.002
_REAPED_AT_ONCE = 256
_AT_MOST_ITSELF = 2  # the command, and the attempt that finds no other child


class ProcessTree:
    """All descendants of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._has_lists_of_children = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        self.on_exit: Callable[[int, int], None] = lambda pid, status: None
        """Called with every reaped child of ours."""

    def descendants(self, of: int | None = None) -> list[Entry]:
        """Every process beneath this one, or beneath another, in any order."""
        numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())
        known = {pid: entry for pid in numbers if (entry := read_process(pid)) is not None}
        # A parent that ended meanwhile is missing; its child has another parent by now.
        moved = [pid for pid, entry in known.items() if entry.parent and entry.parent not in known]
        known.update({pid: entry for pid in moved if (entry := read_process(pid)) is not None})
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

    def _most_descendants(self) -> Iterator[Entry]:
        """Most processes beneath this one, without reading all of /proc, each as soon as it is found."""
        if not self._has_lists_of_children:
            yield from self.descendants()
        to_visit = [os.getpid()]
        while to_visit:
            children = children_of(to_visit.pop(0))
            to_visit += children
            yield from (entry for pid in children if (entry := read_process(pid)) is not None)

    def holds(self, pid: int) -> bool:
        """Whether a process or thread is beneath this process."""
        us = os.getpid()
        for _ in range(1 << 12):  # deeper than any limit on processes; a cycle can only appear while numbers are reused
            entry = read_process(pid)
            if entry is None or entry.parent <= 1:
                return False
            if entry.parent == us:
                return True
            pid = entry.parent
        return False

    def holds_group(self, group: int) -> bool:
        """Whether a process group is ours: groups do not cross sessions, and all of ours began in the tree."""
        return any(entry.group == group for entry in self.descendants())

    def reap(self, most: int = _REAPED_AT_ONCE) -> bool:
        """Reaps children that ended. Returns false if there are none left.

        A fork bomb's processes can end as fast as they are reaped, so one call reaps a limited number.
        """
        for _ in range(most):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.on_exit(pid, status)
        return True

    def kill_all(self, patience: float) -> bool:
        """Kills every descendant. Returns false if some still exist after that many seconds (the kernel holds them)."""
        if not self.reap(_AT_MOST_ITSELF):
            return True  # as after most commands
        deadline = self._clock() + patience
        while True:
            kill(self._most_descendants())
            if not self.reap():
                return True
            if self._clock() > deadline:
                return False
            time.sleep(_BETWEEN_ROUNDS)


def kill(entries: Iterable[Entry]) -> None:
    """Kills the process groups of these, each as a whole and as soon as it is known, so that none outgrows the kills.

    The kernel starts no process for one that has a pending signal. A new group needs a guardian's answer; without it,
    whatever they start is in a known group. Ended processes that are not reaped show their group too, and prevent its
    number from being reused.
    """
    ours = os.getpgrp()
    ended: set[int] = set()
    for entry in entries:
        if entry.group == ours:  # it had no time to leave our group
            send(entry.pid, signal.SIGKILL)
        elif entry.group > 0 and entry.group not in ended:  # it has no group once it is reaped
            send(-entry.group, signal.SIGKILL)
            ended.add(entry.group)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it has ended
        pass
