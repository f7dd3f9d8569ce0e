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

__all__ = [
    "Watch",
    "children_of",
    "count_beneath",
    "descendants",
    "kill_descendants",
    "too_many_beneath",
    "with_variable",
]


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


def too_many_beneath(pid: int, most: int | None) -> str:
    """A reason to end the command, or nothing. The kernel's own limit counts all of a user's, and root's not at all."""
    if most is None or count_beneath(pid, most) <= most:
        return ""
    return f"it had more than {most} processes"


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
    """Ends the process group of `pid`, everything beneath it and what `others` finds, until nothing is left to end."""
    end = time.monotonic() + deadline
    while True:
        # What is beneath must be read before its parents are gone; a group that grows faster is stopped first.
        with suppress(OSError):
            os.killpg(pid, signal.SIGSTOP)
        beneath = [process for process in descendants(pid) if process not in (pid, os.getpid())]
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        beneath += [process for process in others() if process not in (pid, os.getpid())]
        for process in beneath:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not any(_is_alive(process) for process in beneath) or time.monotonic() > end:
            return
        time.sleep(0.002)


class Watch:
    """Looks after commands while they run: what `look` says about one is handed to its `end`.

    One thread, there only while something is watched, and never more than a tenth of a core.
    """

    def __init__(self, period: float = 0.05) -> None:
        self._period = period
        self._watched: dict[object, tuple[Callable[[], str], Callable[[str], None]]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, key: object, look: Callable[[], str], end: Callable[[str], None]) -> None:
        """Calls `look` again and again, in a thread; once it gives a reason, calls `end` with it."""
        with self._lock:
            self._watched[key] = (look, end)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="swink-sandbox-watch", daemon=True)
                self._thread.start()

    def remove(self, key: object) -> None:
        with self._lock:
            self._watched.pop(key, None)
            if not self._watched:
                self._wake.set()

    def _run(self) -> None:
        pause = 0.0
        while True:
            self._wake.wait(pause)
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched.values())
            started = time.monotonic()
            for look, end in watched:
                reason = look()
                if reason:
                    end(reason)
            pause = max(self._period, 10 * (time.monotonic() - started))


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
