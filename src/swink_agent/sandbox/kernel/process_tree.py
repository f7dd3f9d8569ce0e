"""The processes beneath a process: finding and ending them, and the watch over commands while they run.

Owns the reading of `/proc` (and of `ps` where there is none). What is found is true at the moment of reading only:
who needs more has a namespace.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from .headcount import LOOK_AGAIN, Headcount

__all__ = [
    "Watch",
    "count_heads",
    "descendants",
    "kill_descendants",
    "with_variable",
]


_LOG = logging.getLogger("swink_agent.sandbox")

_FIRST = -20
_IDLE_LOOKS = 2  # the next command may come at once


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


def count_heads(pid: int, most: int | None) -> Headcount:
    """A count of the processes beneath this one, by whatever this system has to tell them."""
    return Headcount(pid, most, children=None if os.path.exists("/proc/self/task") else _children_by_ps)


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

    One thread, there only while something is watched and a moment longer, and never more than a tenth of a core.
    """

    def __init__(self, period: float = LOOK_AGAIN) -> None:
        self._period = period
        self._watched: dict[object, tuple[float, Callable[[], str], Callable[[str], None]]] = {}
        """With the time of the first look: most commands are over by then."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, key: object, look: Callable[[], str], end: Callable[[str], None]) -> None:
        """Calls `look` again and again, in a thread; once it gives a reason, calls `end` with it."""
        with self._lock:
            self._watched[key] = (time.monotonic() + self._period, look, end)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="swink-sandbox-watch", daemon=True)
                thread.start()
                self._thread = thread  # only now: where none can be started, the next one tries again

    def remove(self, key: object) -> None:
        with self._lock:
            self._watched.pop(key, None)

    def close(self) -> None:
        """Nothing will be watched any more: the thread ends at once."""
        self._closed.set()

    def _run(self) -> None:
        with suppress(OSError):  # a bomb of root's is counted by nobody else, and wants all of the processor
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _FIRST)
        idle_looks = 0
        pause = self._period
        while True:
            is_closed = self._closed.wait(pause)
            with self._lock:
                watched = list(self._watched.values())
                idle_looks = 0 if watched else idle_looks + 1
                if is_closed or idle_looks > _IDLE_LOOKS:
                    self._thread = None
                    return
            started, now = time.thread_time(), time.monotonic()  # where a bomb takes the processor, the two differ
            for first, look, end in watched:
                if now >= first and (reason := _looked(look)):
                    try:
                        end(reason)
                    except Exception:  # the others are watched all the same
                        _LOG.exception("a command could not be ended, as %s", reason)
            pause = max(self._period, 10 * (time.thread_time() - started))


def _looked(look: Callable[[], str]) -> str:
    try:
        return look()
    except Exception as error:  # what nobody can look after does not run on
        _LOG.exception("a command could not be watched")
        return f"it could not be watched any more ({error})"


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


def _children_by_ps(pid: int) -> tuple[list[int], int]:
    return [child for child, parent in _parents_by_ps() if parent == pid], 1


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
