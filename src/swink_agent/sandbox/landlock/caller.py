"""One system call of a child that waits for its guardian, and how its arguments are read.

Copies strings from the child's memory, owns the descriptors that are open while a call is served, and judges paths.
`landlock/opens` and `landlock/files` do the calls. The launcher loads this module: the standard library only.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.landlock.paths import (
    CLOSED,
    HIDDEN,
    OPEN,
    PathVerdict,
    PathVerdicts,
    Resolver,
    path_of,
    umask_of,
)

_SHARED_MEMORY = b"/dev/shm/"


class CallServices(NamedTuple):
    """The objects with which every call of one command is served."""

    listener: kernel.Listener
    resolver: Resolver
    path_verdicts: PathVerdicts
    memory: kernel.ForeignMemory
    shared_memory: int
    """A private folder that replaces `/dev/shm`, where the C library keeps semaphores."""


class NamedEntry(NamedTuple):
    """A name in a folder, and what may be done to it."""

    folder: int
    name: bytes
    slash: bool
    path_verdict: PathVerdict
    verdict: str

    @property
    def written_name(self) -> bytes:
        """The name as the caller wrote it: a slash at the end changes the kernel's error."""
        return self.name + b"/" if self.slash else self.name


class Caller:
    """A task that waits in a system call. Call `close()` when the call was answered."""

    __slots__ = ("_opened", "identifier", "services", "task")

    def __init__(self, services: CallServices, identifier: int, task: int) -> None:
        self.services = services
        self.identifier = identifier
        self.task = task
        self._opened: list[int] = []

    def keep(self, descriptor: int) -> int:
        """Returns the descriptor, which is closed after the call."""
        self._opened.append(descriptor)
        return descriptor

    def close(self) -> None:
        if self._opened:
            kernel.close_all(self._opened)

    def path(self, folder: int, address: int) -> tuple[int, bytes]:
        """The path at an address, and the folder that it starts from.

        Raises `OSError` if it cannot be read, or the caller has ended: then another process may have been read.
        """
        services = self.services
        path = services.memory.path(self.task, address)
        if path.startswith(_SHARED_MEMORY) and not services.path_verdicts.is_in_root(path):
            start, path = services.shared_memory, path[len(_SHARED_MEMORY) :].lstrip(b"/") or b"."
        elif path[:1] == b"/":
            start = services.resolver.root
        else:
            start = self.keep(services.resolver.folder_of_caller(self.task, signed(folder)))
        self._check()
        return start, path

    def text(self, address: int) -> bytes:
        """A string that is not a path."""
        text = self.services.memory.path(self.task, address)
        self._check()
        return text

    def bytes_at(self, address: int, length: int) -> bytes:
        """Exactly that many bytes."""
        parts: list[bytes] = []
        while length > 0:
            part = self.services.memory.read(self.task, address, min(length, 4096))
            if not part:
                raise failure(errno.EFAULT)
            parts.append(part)
            address += len(part)
            length -= len(part)
        self._check()
        return b"".join(parts)

    def entry(self, folder: int, address: int) -> NamedEntry:
        """Where a path leads, without following its last name."""
        return self.entry_of(*self.path(folder, address))

    def entry_of(self, start: int, path: bytes) -> NamedEntry:
        services = self.services
        place = services.resolver.place(start, path, self.task)
        folder = self.keep(place.folder) if place.owned else place.folder
        path_verdict = services.path_verdicts.under(folder)
        return NamedEntry(folder, place.name, place.slash, path_verdict, path_verdict.of(place.name))

    def thing(self, folder: int, address: int, *, follow: bool, empty: bool = False) -> int:
        """An `O_PATH` descriptor of what a path leads to or, with `empty` and an empty path, of `folder` itself."""
        if empty and not address:
            return self.descriptor(folder)
        start, path = self.path(folder, address)
        if empty and not path:
            return self.descriptor(folder)
        return self.keep(self.services.resolver.open(start, path, self.task, 0 if follow else os.O_NOFOLLOW))

    def descriptor(self, number: int) -> int:
        """An `O_PATH` descriptor of the file that the caller's descriptor refers to."""
        found = self.keep(self.services.resolver.folder_of_caller(self.task, signed(number)))
        self._check()
        return found

    def judge(self, thing: int) -> tuple[str, bool]:
        """What may be done to a file that was reached by descriptor, and whether it is in a writable place."""
        path_verdicts = self.services.path_verdicts
        path = path_of(thing)
        if path.startswith(b"(unreachable)"):
            return CLOSED, False  # on a file system that is no longer mounted
        if path[:1] != b"/" or path.startswith(b"/memfd:") or path in path_verdicts.roots:
            return OPEN, True  # it has no name in any folder, like a pipe; or it is a root itself
        status = os.fstat(thing)
        kind = path_verdicts.protected.get((status.st_dev, status.st_ino))
        if kind is not None:
            return kind, True
        head, _, name = path.rpartition(b"/")
        path_verdict = path_verdicts.at(head)
        if path_verdict is None:  # elsewhere, or mounted a second time
            folder = self.keep(os.open(head or b"/", kernel.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            path_verdict = path_verdicts.under(folder)
        return path_verdict.of(name), path_verdict.is_inside

    def _check(self) -> None:
        if not self.services.listener.is_valid(self.identifier):
            raise failure(errno.ESRCH)


class Umasks:
    """The umask of each task. Not cached, because the number of a task may be reused without notice."""

    def __init__(self, initial: int, *, are_told: bool = False) -> None:
        """`are_told`: `changed` is called before the first change, so until then nothing need be looked up."""
        os.umask(initial)
        self._current = initial
        self._are_all_initial = are_told

    def changed(self) -> None:
        """Notes that a task is about to set its umask."""
        self._are_all_initial = False

    def use(self, task: int) -> None:
        """Makes the next file of this process get the mode that the task would give it."""
        if self._are_all_initial:
            return
        mask = umask_of(task)
        if mask != self._current:
            os.umask(mask)
            self._current = mask


def failure(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def signed(number: int) -> int:
    """A register as the `int` that the kernel reads."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number


def refuse(entry: NamedEntry, *, makes: bool = False) -> None:
    """Raises unless the name may be changed, or made. A folder above protected names must not be made either."""
    verdict = entry.verdict
    if verdict == OPEN:
        return
    if makes:
        try:
            os.stat(entry.name, dir_fd=entry.folder, follow_symlinks=False)
        except OSError:
            pass
        else:
            raise failure(errno.EEXIST)
    raise denial(verdict)


def denial(verdict: str) -> OSError:
    """The error for the child: read-only, as on a read-only mount, or no access."""
    return failure(errno.EACCES if verdict == HIDDEN else errno.EROFS)
