"""Finds, limits and kills the processes beneath a process, and watches commands while they run.

Reads `/proc`, or runs `ps` on systems without it. The result is true only at the moment of reading. A process namespace
is safer.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache

from ..profile import ProcessLimits
from ..starting import run_program
from .headcount import LOOK_AGAIN, Headcount, put_first, read_process

_LOG = logging.getLogger("swink_agent.sandbox")

_INFO = struct.Struct("Q16xI32xi")  # of `struct pidfd_info`: requested and given fields, the parent, the wait status
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_EXIT = 1 << 3
_IDLE_LOOKS = 2  # the next command may come at once


def descendants(pid: int) -> list[int]:
    """Every process beneath this one, children before grandchildren; without those whose parent has died."""
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
    """Counts the processes beneath this one, with the means of this system."""
    return Headcount(pid, most, children=None if os.path.exists("/proc/self/task") else _children_by_ps)


def with_variable(name: str, value: str) -> list[int]:
    """Processes of this user that started with this environment variable. Only on Linux."""
    wanted = f"{name}={value}".encode()
    found: list[int] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:  # not ours, or ended
            continue
    return found


def kill_descendants(pid: int, others: Callable[[], list[int]] = list, *, deadline: float = 2.0) -> None:
    """Kills the process group of `pid`, everything beneath it and what `others` finds, until nothing is left."""
    end = time.monotonic() + deadline
    while True:
        # Descendants must be read before their parents are killed. The group is stopped first, so that it cannot grow.
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


def limit_process(pid: int, limits: ProcessLimits, tasks: int | None = None) -> None:
    """Sets limits that the kernel enforces, if this system can limit another process. Raises `OSError`."""
    import resource

    if not hasattr(resource, "prlimit"):
        return
    for kind, most in (
        (resource.RLIMIT_CORE, limits.core),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, tasks),
    ):
        if most is not None:
            soft, hard = (most if value == resource.RLIM_INFINITY else value for value in resource.prlimit(pid, kind))
            resource.prlimit(pid, kind, (min(soft, most), min(hard, most)))


def can_tell_exits() -> bool:
    """Whether this kernel keeps how a process ended after its parent has reaped it (Linux 6.15).

    bubblewrap reports 137 both for a command killed by signal 9 and for one that exited with 137.
    """
    return kernel_release() >= (6, 15)


@cache
def kernel_release() -> tuple[int, ...]:
    """The first two numbers of the kernel's release."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def exit_code_of(process: int) -> int | None:
    """The exit code of an ended process, by its descriptor, or minus the signal that killed it. `None` if unknown."""
    try:
        given, _, status = _info_of(process, _EXIT)
    except OSError:
        return None
    return os.waitstatus_to_exitcode(status) if given & _EXIT else None


def parent_of(pid: int, process: int) -> int | None:
    """The parent of a process, given its number and descriptor, or `None` if it is gone."""
    try:
        return _info_of(process)[1]
    except OSError:  # a kernel before Linux 6.13, or it is gone
        entry = read_process(pid)
        return None if entry is None else entry.parent


def _info_of(process: int, wanted: int = 0) -> tuple[int, int, int]:
    info = bytearray(_INFO.pack(wanted, 0, 0))
    fcntl.ioctl(process, _GET_INFO, info)
    return _INFO.unpack(info)


class Watch:
    """Watches commands while they run: if `look` returns a reason for one, its `end` is called with it.

    Uses one thread, which exists only while something is watched and a moment longer, and at most a tenth of a core.
    """

    def __init__(self, period: float = LOOK_AGAIN) -> None:
        self._period = period
        self._watched: dict[object, tuple[float, Callable[[], str], Callable[[str], None]]] = {}
        """Keys with the time of their first look: most commands have ended by then."""
        self._later: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, key: object, look: Callable[[], str], end: Callable[[str], None]) -> None:
        """Calls `look` repeatedly in a thread. Once it returns a reason, calls `end` with it."""
        with self._lock:
            self._watched[key] = (time.monotonic() + self._period, look, end)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="swink-sandbox-watch", daemon=True)
                thread.start()
                self._thread = thread  # only now: if no thread can be started, the next call tries again

    def remove(self, key: object) -> None:
        with self._lock:
            self._watched.pop(key, None)

    def call_later(self, function: Callable[[], None]) -> None:
        """Calls the function in the thread, a moment later; here if the thread has ended. A failure is logged."""
        with self._lock:
            if self._thread is not None:
                self._later.append(function)
                return
        _call([function])

    def close(self) -> None:
        """Stops watching. The thread ends at once."""
        self._closed.set()

    def _run(self) -> None:
        put_first(threading.get_native_id())  # only its count stops a fork bomb of root
        idle_looks = 0
        pause = self._period
        while True:
            is_closed = self._closed.wait(pause)
            with self._lock:
                watched = list(self._watched.values())
                later, self._later = self._later, []
                idle_looks = 0 if watched else idle_looks + 1
                is_last = is_closed or idle_looks > _IDLE_LOOKS
                if is_last:
                    self._thread = None
            started, now = time.thread_time(), time.monotonic()  # they differ if a fork bomb takes the processor
            for first, look, end in () if is_last else watched:
                if now >= first and (reason := _looked(look)):
                    try:
                        end(reason)
                    except Exception:  # the other commands are still watched
                        _LOG.exception("a command could not be killed, because %s", reason)
            pause = max(self._period, 10 * (time.thread_time() - started))
            if not later or is_last or not watched:
                _call(later)
            else:  # not in this thread, which others need: a disk may take some time
                try:
                    threading.Thread(target=_call, args=(later,), name="swink-sandbox-free", daemon=True).start()
                except RuntimeError:  # no thread can be started
                    _call(later)
            if is_last:
                return


def _call(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        try:
            function()
        except Exception:  # the others must still be called
            _LOG.exception("resources of an ended command could not be freed")


def _looked(look: Callable[[], str]) -> str:
    try:
        return look()
    except Exception as error:  # a command that cannot be watched is killed
        _LOG.exception("a command could not be watched")
        return f"it could no longer be watched ({error})"


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
        if (entry := read_process(pid)) is not None:
            yield pid, entry.parent


def _parents_by_ps() -> Iterator[tuple[int, int]]:
    try:
        listing = run_program(["/bin/ps", "-axo", "pid=,ppid="], timeout=5, environ={}, outside=())
    except (OSError, subprocess.SubprocessError):
        return
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) == 2:
            yield int(fields[0]), int(fields[1])


def _children_by_ps(pid: int) -> tuple[list[int], int]:
    return [child for child, parent in _parents_by_ps() if parent == pid], 1


def _is_alive(pid: int) -> bool:
    if (entry := read_process(pid)) is not None:
        return entry.state not in "ZX"
    if os.path.exists("/proc/self/stat"):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
