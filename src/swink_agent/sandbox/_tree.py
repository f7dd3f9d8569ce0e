"""The processes beneath a process: finding, counting and ending them.

Owns the reading of `/proc` (and of `ps` where there is none), and the watch over how many there are. What is found is
true at the moment of reading only: who needs more has a namespace.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

__all__ = ["CountWatch", "children_of", "count_beneath", "descendants", "kill_descendants", "with_variable"]


def descendants(pid: int) -> list[int]:
    """Every process beneath this one, children before grandchildren; those whose parent has died are not."""
    by_parent: dict[int, list[int]] = {}
    for child, parent in _parents():
        by_parent.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        children = by_parent.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def count_beneath(pid: int, most: int) -> int:
    """How many processes are beneath this one; stops counting after `most`."""
    count = 0
    queue = [pid]
    while queue and count <= most:
        children = children_of(queue.pop())
        count += len(children)
        queue += children
    return count


def with_variable(name: str, value: str) -> list[int]:
    """Processes of ours whose environment started with this variable. Linux only; elsewhere none."""
    wanted = f"{name}={value}".encode()
    found: list[int] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:  # not ours, or gone
            continue
    return found


def kill_descendants(pid: int, others: Callable[[], list[int]] = list, *, deadline: float = 2.0) -> None:
    """Ends everything beneath `pid`, its process group and what `others` finds, until nothing is left to end."""
    end = time.monotonic() + deadline
    while True:
        beneath = [process for process in (*descendants(pid), *others()) if process not in (pid, os.getpid())]
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        for process in beneath:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not any(_is_alive(process) for process in beneath) or time.monotonic() > end:
            return
        time.sleep(0.002)


class CountWatch:
    """Ends a command that has more processes than it may, which a limit of the kernel does not do for root.

    One thread, there only while something is watched for longer than a moment.
    """

    def __init__(self, most: int, period: float = 0.05) -> None:
        self._most = most
        self._period = period
        self._watched: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, pid: int, exceeded: Callable[[], None]) -> None:
        """Calls `exceeded`, in the watching thread, when there are too many processes beneath `pid`."""
        with self._lock:
            self._watched[pid] = exceeded
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="swink-process-count", daemon=True)
                self._thread.start()

    def remove(self, pid: int) -> None:
        with self._lock:
            self._watched.pop(pid, None)
            if not self._watched:
                self._wake.set()

    def _run(self) -> None:
        pause = self._period
        while True:
            self._wake.wait(pause)
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched.items())
            started = time.monotonic()
            largest = 0
            for pid, exceeded in watched:
                count = count_beneath(pid, self._most)
                largest = max(largest, count)
                if count > self._most:
                    exceeded()
            # Closer where it grows, never more than a tenth of a core.
            pause = self._period / 10 if largest > self._most // 8 else self._period
            pause = max(pause, 10 * (time.monotonic() - started))


def children_of(pid: int) -> list[int]:
    """Its children now, those of all its threads."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if not os.path.exists("/proc/self/task"):
            return [child for child, parent in _parents() if parent == pid]
    except OSError:
        pass
    return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    pids = _pids()
    if not pids:
        yield from _parents_by_ps()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                yield pid, int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue


def _parents_by_ps() -> Iterator[tuple[int, int]]:
    try:
        listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) == 2:
            yield int(fields[0]), int(fields[1])


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return False
    except (OSError, IndexError):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
